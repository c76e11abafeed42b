#include "core/attr_set.h"

#include <assert.h>
#include <string.h>

rabbet_status_t rabbet_attr_check_reserved(const rabbet_attr_t* attr) {
  if (!attr->reserved[0] && !attr->reserved[1]) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "attribute '%s': reserved is not 0, of which rabbet %s "
                       "knows nothing",
                       attr->name ? attr->name : "", rabbet_version());
}

rabbet_status_t rabbet_attr_copy(rabbet_arena_t* arena,
                                 const rabbet_attr_t* attr,
                                 rabbet_attr_t* out_copy) {
  rabbet_attr_t copy = *attr;
  size_t bytes = rabbet_attr_bytes(attr);
  RABBET_RETURN_IF_ERROR(rabbet_attr_check_reserved(attr));
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

int64_t rabbet_attr_int(const rabbet_attr_t* attrs, size_t count,
                        const char* name, int64_t fallback) {
  const rabbet_attr_t* attr = rabbet_attr_find(attrs, count, name);
  assert(!attr || attr->type == RABBET_ATTR_INT ||
         attr->type == RABBET_ATTR_BOOL);
  return attr ? *(const int64_t*)attr->data : fallback;
}

double rabbet_attr_float(const rabbet_attr_t* attrs, size_t count,
                         const char* name, double fallback) {
  const rabbet_attr_t* attr = rabbet_attr_find(attrs, count, name);
  assert(!attr || attr->type == RABBET_ATTR_FLOAT);
  return attr ? *(const double*)attr->data : fallback;
}

const int64_t* rabbet_attr_ints(const rabbet_attr_t* attrs, size_t count,
                                const char* name, size_t* out_count) {
  const rabbet_attr_t* attr = rabbet_attr_find(attrs, count, name);
  assert(!attr || attr->type == RABBET_ATTR_INTS ||
         attr->type == RABBET_ATTR_BOOLS);
  assert(!attr || attr->data || attr->count == 0);
  *out_count = attr ? attr->count : 0;
  return attr ? attr->data : NULL;
}

const double* rabbet_attr_floats(const rabbet_attr_t* attrs, size_t count,
                                 const char* name, size_t* out_count) {
  const rabbet_attr_t* attr = rabbet_attr_find(attrs, count, name);
  assert(!attr || attr->type == RABBET_ATTR_FLOATS);
  *out_count = attr ? attr->count : 0;
  return attr ? attr->data : NULL;
}
