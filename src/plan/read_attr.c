// Attributes from their messages, with all that rabbet_attr_t promises checked.
#include <string.h>

#include "plan/read.h"

#define RABBET_DAMAGED(...) RABBET_STATUS(RABBET_STATUS_DATA_LOSS, __VA_ARGS__)

static rabbet_status_t read_ints(rabbet_plan_t* plan,
                                 const Rabbet__Plan__Attr* from,
                                 rabbet_attr_t* attr) {
  bool single = attr->type == RABBET_ATTR_INT || attr->type == RABBET_ATTR_BOOL;
  bool logical =
      attr->type == RABBET_ATTR_BOOL || attr->type == RABBET_ATTR_BOOLS;
  if (single && from->n_ints != 1)
    return RABBET_DAMAGED("%zu integers; expected one", from->n_ints);
  for (size_t i = 0; logical && i < from->n_ints; ++i) {
    if (from->ints[i] != 0 && from->ints[i] != 1)
      return RABBET_DAMAGED("%lld is neither true nor false",
                            (long long)from->ints[i]);
  }
  attr->count = from->n_ints;
  return rabbet_arena_copy(&plan->arena, from->ints,
                           from->n_ints * sizeof(int64_t),
                           (void**)(uintptr_t)&attr->data);
}

static rabbet_status_t read_floats(rabbet_plan_t* plan,
                                   const Rabbet__Plan__Attr* from,
                                   rabbet_attr_t* attr) {
  if (attr->type == RABBET_ATTR_FLOAT && from->n_floats != 1)
    return RABBET_DAMAGED("%zu numbers; expected one", from->n_floats);
  attr->count = from->n_floats;
  return rabbet_arena_copy(&plan->arena, from->floats,
                           from->n_floats * sizeof(double),
                           (void**)(uintptr_t)&attr->data);
}

// Bytes with a NUL after them.
static rabbet_status_t read_bytes(rabbet_plan_t* plan,
                                  const Rabbet__Plan__Attr* from,
                                  rabbet_attr_t* attr) {
  char* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&plan->arena, from->data.len + 1, (void**)&copy));
  if (from->data.len > 0) memcpy(copy, from->data.data, from->data.len);
  attr->data = copy;
  attr->count = from->data.len;
  return rabbet_ok();
}

static rabbet_status_t read_strings(rabbet_plan_t* plan,
                                    const Rabbet__Plan__Attr* from,
                                    rabbet_attr_t* attr) {
  size_t ends = 0;
  for (size_t i = 0; i < from->data.len; ++i)
    ends += from->data.data[i] == 0;
  if (ends != from->count ||
      (from->data.len > 0 && from->data.data[from->data.len - 1] != 0))
    return RABBET_DAMAGED("%zu bytes hold %zu strings; expected %llu",
                          from->data.len, ends,
                          (unsigned long long)from->count);
  RABBET_RETURN_IF_ERROR(read_bytes(plan, from, attr));
  attr->count = ends;
  return rabbet_ok();
}

static rabbet_status_t read_tensor(rabbet_plan_t* plan,
                                   const Rabbet__Plan__Attr* from,
                                   rabbet_attr_t* attr) {
  int64_t count = 0;
  size_t bytes = 0;
  if (from->n_dims > RABBET_MAX_RANK)
    return RABBET_DAMAGED("a tensor of rank %zu", from->n_dims);
  if (from->dtype < 0 || from->dtype >= RABBET_DTYPE_COUNT)
    return RABBET_DAMAGED("%d is not a data type", from->dtype);
  attr->dtype = (rabbet_dtype_t)from->dtype;
  attr->dims.rank = (int32_t)from->n_dims;
  for (size_t i = 0; i < from->n_dims; ++i)
    attr->dims.d[i] = from->dims[i];
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&attr->dims, &count));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(attr->dtype, RABBET_FORMAT_LINEAR,
                                             &attr->dims, &bytes));
  if ((uint64_t)count != from->count || bytes != from->data.len)
    return RABBET_DAMAGED(
        "a tensor of %lld elements has %llu of them in %zu "
        "bytes",
        (long long)count, (unsigned long long)from->count, from->data.len);
  RABBET_RETURN_IF_ERROR(read_bytes(plan, from, attr));
  attr->count = (size_t)count;
  return rabbet_ok();
}

rabbet_status_t rabbet_read_attr(rabbet_plan_t* plan,
                                 const Rabbet__Plan__Attr* from,
                                 rabbet_attr_t* attr) {
  *attr = (rabbet_attr_t){.type = (rabbet_attr_type_t)from->type,
                          .dtype = RABBET_DTYPE_NONE};
  RABBET_RETURN_IF_ERROR(rabbet_read_text(plan, from->name, &attr->name));
  switch (from->type) {
    case RABBET_ATTR_INT:
    case RABBET_ATTR_BOOL:
    case RABBET_ATTR_INTS:
    case RABBET_ATTR_BOOLS:
      return read_ints(plan, from, attr);
    case RABBET_ATTR_FLOAT:
    case RABBET_ATTR_FLOATS:
      return read_floats(plan, from, attr);
    case RABBET_ATTR_STRING:
    case RABBET_ATTR_BYTES:
      return read_bytes(plan, from, attr);
    case RABBET_ATTR_STRINGS:
      return read_strings(plan, from, attr);
    case RABBET_ATTR_TENSOR:
      return read_tensor(plan, from, attr);
    default:
      return RABBET_DAMAGED("%d is not a type of attribute", from->type);
  }
}
