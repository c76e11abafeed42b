// Shuffles that do not move elements: views, in LINEAR memory or between two
// formats.

#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"
#include "ops/op.h"

static const int64_t* views_transpose(const rabbet_ir_node_t* node,
                                      const char* name, size_t* out_count) {
  return rabbet_attr_ints(node->attrs, node->op->attr_count, name, out_count);
}

// Whether a permutation keeps the order of all axes with extents other than 1.
// before->d[i] is the extent of axis i before the permutation.
static bool views_keeps_order(const int64_t* axes, size_t count,
                              const rabbet_dims_t* before) {
  int64_t last = -1;
  for (size_t i = 0; i < count && i < (size_t)before->rank; ++i) {
    assert(axes[i] >= 0 && axes[i] < before->rank);
    if (before->d[axes[i]] == 1) continue;
    if (axes[i] < last) return false;
    last = axes[i];
  }
  return true;
}

// The shape between the reshape and the second transpose.
static rabbet_dims_t views_between(const rabbet_dims_t* output,
                                   const int64_t* second, size_t count) {
  rabbet_dims_t between = *output;
  for (size_t i = 0; i < count && i < (size_t)output->rank; ++i)
    between.d[second[i]] = output->d[i];
  return between;
}

bool rabbet_ir_is_view(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  if (!rabbet_op_is(node->op, RABBET_OP_SHUFFLE)) return false;
  size_t first_count = 0, second_count = 0;
  const int64_t* first = views_transpose(node, "first_transpose", &first_count);
  const int64_t* second =
      views_transpose(node, "second_transpose", &second_count);
  assert(node->output_count == 1);
  rabbet_dims_t input = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, 0));
  rabbet_dims_t output = rabbet_ir_dims(ir, rabbet_ir_output(ir, node, 0));
  rabbet_dims_t between = views_between(&output, second, second_count);
  return views_keeps_order(first, first_count, &input) &&
         views_keeps_order(second, second_count, &between);
}

// ---- Between formats -------------------------------------------------------

// The axes of a tensor in the order of its memory, outermost first.
static void views_order(int32_t rank, rabbet_format_t format,
                        int32_t order[RABBET_MAX_RANK]) {
  bool last = format == RABBET_FORMAT_HWC;
  for (int32_t i = 0; i < rank; ++i)
    order[i] = !last || i == 0 ? i : i + 1 < rank ? i + 1 : 1;
}

static void views_strides(const rabbet_dims_t* dims, rabbet_format_t format,
                          int64_t strides[RABBET_MAX_RANK]) {
  int32_t order[RABBET_MAX_RANK];
  int64_t stride = 1;
  views_order(dims->rank, format, order);
  for (int32_t i = dims->rank - 1; i >= 0; --i) {
    strides[order[i]] = stride;
    stride *= dims->d[order[i]];
  }
}

// Strides of the shape `to` for a tensor of the shape `from` with these
// strides: each axis is a part of one that is contiguous, or several of them.
// False if elements would have to move.
static bool views_reshape(const rabbet_dims_t* from, const int64_t* strides,
                          const rabbet_dims_t* to, int64_t* out_strides) {
  int32_t at = to->rank - 1;
  int64_t run = 1, count = 1, made = 1;
  for (int32_t i = from->rank - 1; i >= 0; --i) {
    if (count == 1) run = strides[i];
    if (from->d[i] == 1 && count == 1) continue;
    count *= from->d[i];
    int32_t next = i - 1;
    while (next >= 0 && from->d[next] == 1)
      --next;
    if (next >= 0 && strides[next] == count * run) continue;
    for (; at >= 0 && (made < count || to->d[at] == 1); --at) {
      out_strides[at] = made * run;
      made *= to->d[at];
    }
    if (made != count) return false;
    count = made = 1;
  }
  for (; at >= 0 && to->d[at] == 1; --at)
    out_strides[at] = 1;
  return at < 0 && count == 1;
}

// Makes a batch of any size one of 1, if it stays the first axis. False if
// another extent is not constant.
static bool views_fix(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                      rabbet_dims_t* input, rabbet_dims_t* output) {
  const rabbet_shape_t* from = &rabbet_ir_input(ir, node, 0)->shape;
  const rabbet_shape_t* to = &rabbet_ir_output(ir, node, 0)->shape;
  size_t first_count = 0, second_count = 0;
  const int64_t* first = views_transpose(node, "first_transpose", &first_count);
  const int64_t* second =
      views_transpose(node, "second_transpose", &second_count);
  *input = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, 0));
  *output = rabbet_ir_dims(ir, rabbet_ir_output(ir, node, 0));
  if (input->rank < 1 || output->rank < 1) return false;
  if (input->d[0] < 0 && (first_count == 0 || first[0] == 0) &&
      (second_count == 0 || second[0] == 0) &&
      memcmp(&from->d[0], &to->d[0], sizeof(from->d[0])) == 0)
    input->d[0] = output->d[0] = 1;
  for (int32_t i = 0; i < input->rank; ++i)
    if (input->d[i] <= 0) return false;
  for (int32_t i = 0; i < output->rank; ++i)
    if (output->d[i] <= 0) return false;
  return true;
}

// A transpose without a reshape, whatever the extents are: compares the order
// in which both tensors have the input's axes.
static bool views_turns(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                        rabbet_format_t from, rabbet_format_t to) {
  size_t count = 0, second = 0, reshape = 0;
  const int64_t* axes = views_transpose(node, "first_transpose", &count);
  views_transpose(node, "second_transpose", &second);
  views_transpose(node, "reshape_dims", &reshape);
  rabbet_dims_t dims = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, 0));
  int32_t in[RABBET_MAX_RANK], out[RABBET_MAX_RANK], i = 0, k = 0;
  if (second > 0 || reshape > 0 || rabbet_ir_input(ir, node, 1) ||
      rabbet_ir_int(node, "reshape_to_scalar") || count != (size_t)dims.rank)
    return false;
  views_order(dims.rank, from, in);
  views_order(dims.rank, to, out);
  for (;;) {
    while (i < dims.rank && dims.d[in[i]] == 1)
      ++i;
    while (k < dims.rank && dims.d[axes[out[k]]] == 1)
      ++k;
    if (i == dims.rank || k == dims.rank) return i == k;
    if (in[i++] != axes[out[k++]]) return false;
  }
}

bool rabbet_ir_is_view_between(const rabbet_ir_t* ir,
                               const rabbet_ir_node_t* node,
                               rabbet_format_t from, rabbet_format_t to) {
  if (!rabbet_op_is(node->op, RABBET_OP_SHUFFLE)) return false;
  if (views_turns(ir, node, from, to)) return true;
  size_t first_count = 0, second_count = 0;
  const int64_t* first = views_transpose(node, "first_transpose", &first_count);
  const int64_t* second =
      views_transpose(node, "second_transpose", &second_count);
  rabbet_dims_t input, output;
  if (!views_fix(ir, node, &input, &output)) return false;
  int64_t given[RABBET_MAX_RANK], turned[RABBET_MAX_RANK],
      made[RABBET_MAX_RANK], wanted[RABBET_MAX_RANK];
  rabbet_dims_t before = input;
  rabbet_dims_t between = views_between(&output, second, second_count);
  views_strides(&input, from, given);
  views_strides(&output, to, wanted);
  for (int32_t i = 0; i < input.rank; ++i) {
    int64_t axis = first_count > 0 ? first[i] : i;
    before.d[i] = input.d[axis];
    turned[i] = given[axis];
  }
  if (!views_reshape(&before, turned, &between, made)) return false;
  for (int32_t i = 0; i < output.rank; ++i)
    if (output.d[i] != 1 && made[second_count > 0 ? second[i] : i] != wanted[i])
      return false;
  return true;
}
