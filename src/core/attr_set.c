#include "core/attr_set.h"

#include <string.h>

rabbet_status_t rabbet_attr_copy(rabbet_arena_t* arena,
                                 const rabbet_attr_t* attr,
                                 rabbet_attr_t* out_copy) {
  rabbet_attr_t copy = *attr;
  size_t bytes = rabbet_attr_bytes(attr);
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(arena, attr->name, &copy.name));
  // One byte more, which the arena clears: the NUL after a string.
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(arena, bytes + 1, &data));
  if (bytes) memcpy(data, attr->data, bytes);
  copy.data = data;
  *out_copy = copy;
  return rabbet_ok();
}

rabbet_status_t rabbet_attrs_copy(rabbet_arena_t* arena,
                                  const rabbet_attr_t* attrs, size_t count,
                                  rabbet_attr_t** out_copy) {
  *out_copy = NULL;
  rabbet_attr_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(arena, count, sizeof(*copy), (void**)&copy));
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_attr_copy(arena, &attrs[i], &copy[i]));
  *out_copy = copy;
  return rabbet_ok();
}

static bool rabbet_attr_same_dims(const rabbet_dims_t* a,
                                  const rabbet_dims_t* b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; ++i) {
    if (a->d[i] != b->d[i]) return false;
  }
  return true;
}

bool rabbet_attr_equal(const rabbet_attr_t* a, const rabbet_attr_t* b) {
  if (strcmp(a->name, b->name) != 0 || a->type != b->type ||
      a->count != b->count)
    return false;
  if (a->type == RABBET_ATTR_TENSOR &&
      (a->dtype != b->dtype || !rabbet_attr_same_dims(&a->dims, &b->dims)))
    return false;
  size_t bytes = rabbet_attr_bytes(a);
  return bytes == rabbet_attr_bytes(b) &&
         (bytes == 0 || memcmp(a->data, b->data, bytes) == 0);
}

int64_t rabbet_attr_int(const rabbet_attr_t* attrs, size_t count,
                        const char* name, int64_t fallback) {
  const rabbet_attr_t* attr = rabbet_attr_find(attrs, count, name);
  return attr ? *(const int64_t*)attr->data : fallback;
}

double rabbet_attr_float(const rabbet_attr_t* attrs, size_t count,
                         const char* name, double fallback) {
  const rabbet_attr_t* attr = rabbet_attr_find(attrs, count, name);
  return attr ? *(const double*)attr->data : fallback;
}

const char* rabbet_attr_string(const rabbet_attr_t* attrs, size_t count,
                               const char* name, const char* fallback) {
  const rabbet_attr_t* attr = rabbet_attr_find(attrs, count, name);
  return attr ? attr->data : fallback;
}

const int64_t* rabbet_attr_ints(const rabbet_attr_t* attrs, size_t count,
                                const char* name, size_t* out_count) {
  const rabbet_attr_t* attr = rabbet_attr_find(attrs, count, name);
  *out_count = attr ? attr->count : 0;
  return attr ? attr->data : NULL;
}

const double* rabbet_attr_floats(const rabbet_attr_t* attrs, size_t count,
                                 const char* name, size_t* out_count) {
  const rabbet_attr_t* attr = rabbet_attr_find(attrs, count, name);
  *out_count = attr ? attr->count : 0;
  return attr ? attr->data : NULL;
}
