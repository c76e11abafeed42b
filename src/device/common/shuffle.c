#include "device/common/shuffle.h"

#include <assert.h>
#include <string.h>

bool rabbet_shuffle_is_reshape(const rabbet_group_node_t* node,
                               rabbet_format_t from, rabbet_format_t to) {
  size_t first = 0, second = 0;
  (void)rabbet_attr_ints(node->attrs, node->op->attr_count, "first_transpose",
                         &first);
  (void)rabbet_attr_ints(node->attrs, node->op->attr_count, "second_transpose",
                         &second);
  return first == 0 && second == 0 && from == RABBET_FORMAT_LINEAR &&
         to == RABBET_FORMAT_LINEAR;
}

// Permutes the logical axes of the box, or applies the inverse permutation.
static void shuffle_permute(const rabbet_group_node_t* node, const char* name,
                            bool inverse, rabbet_box_t* box) {
  size_t count = 0;
  const int64_t* axes =
      rabbet_attr_ints(node->attrs, node->op->attr_count, name, &count);
  if (count == 0) return;
  rabbet_box_t from = *box;
  int32_t place[RABBET_MAX_RANK + 1], rank = from.axis[from.rank - 1] + 1;
  assert((size_t)rank == count);
  for (int32_t i = 0; i < rank; ++i) {
    // place[i]: which logical axis comes to position i.
    if (inverse) {
      place[axes[i]] = i;
    } else {
      place[i] = (int32_t)axes[i];
    }
    assert(axes[i] >= 0 && axes[i] < rank);
  }
  box->rank = 0;
  for (int32_t i = 0; i < rank; ++i) {
    for (int32_t k = 0; k < from.rank; ++k) {
      if (from.axis[k] != place[i]) continue;
      box->axis[box->rank] = i;
      box->extent[box->rank] = from.extent[k];
      box->stride[box->rank++] = from.stride[k];
    }
  }
  assert(box->rank == from.rank);
}

static bool shuffle_is_row_major(const rabbet_box_t* box) {
  int64_t next = 1;
  for (int32_t i = box->rank - 1; i >= 0; --i) {
    if (box->extent[i] != 1 && box->stride[i] != next) return false;
    next *= box->extent[i];
  }
  return true;
}

static void shuffle_row_major(rabbet_box_t* box) {
  int64_t next = 1;
  for (int32_t i = box->rank - 1; i >= 0; --i) {
    box->stride[i] = next;
    next *= box->extent[i];
  }
}

// Splits axes of both boxes, which have the same elements in the same order,
// into axes of equal extents. False if an axis would have to be split by a
// number that does not divide it.
static bool shuffle_refine(const rabbet_box_t* a, const rabbet_box_t* b,
                           int64_t* extents, int64_t* sources, int64_t* targets,
                           int32_t* out_rank) {
  int32_t i = a->rank - 1, k = b->rank - 1, rank = 0;
  int64_t in_a = 1, in_b = 1;  // elements already split off the current axes
  while (i >= 0 && k >= 0 && rank < RABBET_BOX_AXES) {
    int64_t left_a = a->extent[i] / in_a, left_b = b->extent[k] / in_b;
    assert(a->extent[i] % in_a == 0 && b->extent[k] % in_b == 0);
    int64_t part = left_a < left_b ? left_a : left_b;
    if (left_a % part != 0 || left_b % part != 0) return false;
    if (part > 1) {
      extents[rank] = part;
      sources[rank] = a->stride[i] * in_a;
      targets[rank++] = b->stride[k] * in_b;
    }
    in_a *= part;
    in_b *= part;
    if (in_a == a->extent[i]) --i, in_a = 1;
    if (in_b == b->extent[k]) --k, in_b = 1;
    // Skips axes of one element.
    while (i >= 0 && in_a == 1 && a->extent[i] == 1)
      --i;
    while (k >= 0 && in_b == 1 && b->extent[k] == 1)
      --k;
  }
  *out_rank = rank;
  return i < 0 && k < 0;
}

static rabbet_status_t shuffle_boxes(const rabbet_node_kernel_t* kernel,
                                     const rabbet_dims_t* in,
                                     const rabbet_dims_t* out,
                                     rabbet_box_t* source,
                                     rabbet_box_t* target) {
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* values = kernel->group->values;
  int64_t in_count = 0, out_count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(in, &in_count));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(out, &out_count));
  char a[128], b[128];
  if (in_count != out_count) {
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "a tensor of shape %s cannot be shuffled to %s: the "
                         "numbers of elements differ",
                         rabbet_dims_print(in, a, sizeof(a)),
                         rabbet_dims_print(out, b, sizeof(b)));
  }
  if (!rabbet_box(in, values[node->inputs[0]].format, source) ||
      !rabbet_box(out, values[node->outputs[0]].format, target)) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "shapes %s and %s have padding in the formats that "
                         "the kernel was chosen for",
                         rabbet_dims_print(in, a, sizeof(a)),
                         rabbet_dims_print(out, b, sizeof(b)));
  }
  if (source->rank > 0) shuffle_permute(node, "first_transpose", false, source);
  if (target->rank > 0) shuffle_permute(node, "second_transpose", true, target);
  return rabbet_ok();
}

static void shuffle_step(const rabbet_box_t* source, const rabbet_box_t* target,
                         rabbet_shuffle_t* shuffle) {
  assert(source->rank == target->rank);
  assert(shuffle->step_count <
         sizeof(shuffle->steps) / sizeof(shuffle->steps[0]));
  rabbet_shuffle_step_t* step = &shuffle->steps[shuffle->step_count++];
  step->rank = source->rank;
  memcpy(step->extents, source->extent, sizeof(step->extents));
  memcpy(step->sources, source->stride, sizeof(step->sources));
  memcpy(step->targets, target->stride, sizeof(step->targets));
}

static void shuffle_steps(const rabbet_box_t* source,
                          const rabbet_box_t* target, int64_t count,
                          rabbet_shuffle_t* shuffle) {
  rabbet_shuffle_step_t* step = &shuffle->steps[0];
  rabbet_box_t between;
  if (shuffle_is_row_major(source)) {
    between = *target;
    shuffle_row_major(&between);
    shuffle_step(&between, target, shuffle);
  } else if (shuffle_is_row_major(target)) {
    between = *source;
    shuffle_row_major(&between);
    shuffle_step(source, &between, shuffle);
  } else if (shuffle_refine(source, target, step->extents, step->sources,
                            step->targets, &step->rank)) {
    shuffle->step_count = 1;
  } else {
    between = *source;
    shuffle_row_major(&between);
    shuffle_step(source, &between, shuffle);
    between = *target;
    shuffle_row_major(&between);
    shuffle_step(&between, target, shuffle);
    shuffle->workspace = (size_t)(count * shuffle->size);
  }
}

rabbet_status_t rabbet_shuffle_resolve(const rabbet_node_kernel_t* kernel,
                                       const rabbet_dims_t* dims,
                                       rabbet_shuffle_t* out_shuffle) {
  const rabbet_dims_t* in = &dims[kernel->node->inputs[0]];
  const rabbet_dims_t* out = &dims[kernel->node->outputs[0]];
  rabbet_dtype_t dtype = kernel->group->values[kernel->node->inputs[0]].dtype;
  rabbet_box_t source, target;
  int64_t count = 0;
  memset(out_shuffle, 0, sizeof(*out_shuffle));
  out_shuffle->size = rabbet_dtype_bits(dtype) / 8;
  RABBET_RETURN_IF_ERROR(shuffle_boxes(kernel, in, out, &source, &target));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(in, &count));
  if (count > 0) shuffle_steps(&source, &target, count, out_shuffle);
  return rabbet_ok();
}
