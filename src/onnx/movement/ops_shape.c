// Shapes: reading them, changing them.
#include <string.h>

#include "onnx/dynamic_axes.h"
#include "onnx/operators.h"

// ---- Reading ---------------------------------------------------------------

// [start, end) of the axes, clamped, as opset 15 allows.
static void onnx_import_shape(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int64_t rank = rabbet_onnx_rank(node, x);
  int64_t start = rabbet_onnx_attr_int(node, "start", 0);
  int64_t end = rabbet_onnx_attr_int(node, "end", rank);
  if (start < 0) start += rank;
  if (end < 0) end += rank;
  start = start < 0 ? 0 : start > rank ? rank : start;
  end = end < start ? start : end > rank ? rank : end;
  rabbet_tensor_t* shape = rabbet_onnx_shape(node, x);
  if (start != 0 || end != rank) {
    rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, shape);
    slice.start[0] = rabbet_onnx_index(start);
    slice.size[0] = rabbet_onnx_index(end - start);
    shape = rabbet_onnx_slice(node, shape, &slice);
  }
  node->outputs[0] = shape;
}

static void onnx_import_size(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  rabbet_onnx_index_t size = rabbet_onnx_index(1);
  for (int i = 0; i < dims.rank && rabbet_onnx_ok(node); ++i) {
    size = rabbet_onnx_index_op(node, "PROD", size,
                                rabbet_onnx_extent(node, x, i));
  }
  rabbet_tensor_t* y = rabbet_onnx_index_vector(node, &size, 1);
  node->outputs[0] = rabbet_onnx_squeeze(node, y, 1);
}

// ---- Reshape ---------------------------------------------------------------

// 0 copies an extent (unless allowzero) and -1 is inferred, as in a shuffle.
static void onnx_import_reshape(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  bool zero_copies = rabbet_onnx_attr_int(node, "allowzero", 0) == 0;
  bool is_attr = node->opset < 5;
  rabbet_tensor_t* shape = is_attr ? NULL : rabbet_onnx_required(node, 1);
  rabbet_onnx_ints_t known = is_attr ? rabbet_onnx_attr_ints(node, "shape")
                                     : rabbet_onnx_try_ints(node, shape);
  if (is_attr && !known.present)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'shape' is missing");
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* inputs[] = {x, shape};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_BOOL("zero_is_placeholder", zero_copies),
      RABBET_ONNX_INTS("reshape_dims", known.data, known.count),
      RABBET_ONNX_BOOL("reshape_to_scalar", known.count == 0),
  };
  bool constant = known.present;
  node->outputs[0] = rabbet_onnx_layer(
      node, "shuffle", inputs, constant ? 1 : 2, attrs, constant ? 3 : 1);
}

static void onnx_import_flatten(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int rank = rabbet_onnx_rank(node, x);
  int64_t given = rabbet_onnx_attr_int(node, "axis", 1);
  // axis == rank is legal here.
  int axis = given == rank ? rank : rabbet_onnx_axis(node, given, rank);
  rabbet_onnx_index_t dims[] = {rabbet_onnx_index(1), rabbet_onnx_index(1)};
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_index_t* side = &dims[i < axis ? 0 : 1];
    *side = rabbet_onnx_index_op(node, "PROD", *side,
                                 rabbet_onnx_extent(node, x, i));
  }
  node->outputs[0] = rabbet_onnx_reshape(node, x, dims, 2);
}

static void onnx_import_transpose(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int rank = rabbet_onnx_rank(node, x);
  rabbet_onnx_ints_t perm = rabbet_onnx_attr_ints(node, "perm");
  int64_t reversed[RABBET_MAX_RANK];
  for (int i = 0; i < rank; ++i) {
    reversed[i] = rank - 1 - i;
  }
  if (!perm.present) perm = (rabbet_onnx_ints_t){true, (size_t)rank, reversed};
  if (rabbet_onnx_ok(node) && perm.count != (size_t)rank) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "perm has %zu axes, but the input has rank %d", perm.count,
                     rank);
  }
  if (!rabbet_onnx_ok(node)) return;
  node->outputs[0] = rank == 0 ? x : rabbet_onnx_transpose(node, x, perm.data);
}

// Fails in a run if an extent that is not known at import is 1: the rank of the
// result is fixed at import, if the caller allows it.
static void onnx_squeeze_demand(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                int axis) {
  const char* message = NULL;
  rabbet_onnx_index_t extent = rabbet_onnx_extent(node, x, axis);
  rabbet_onnx_fail(
      node,
      rabbet_arena_printf(&node->importer->arena, &message,
                          "axis %d of '%s' has extent 1, which node '%s' "
                          "(Squeeze without axes) would drop; the rank of its "
                          "result was fixed when the model was imported: give "
                          "the node its axes, or run larger shapes",
                          axis, rabbet_tensor_name(x), node->name));
  if (!rabbet_onnx_ok(node) || rabbet_onnx_is_static(extent)) return;
  if (node->importer->refuses_open_ranks) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the rank of its result is open: axis %d of '%s' may have "
                     "extent 1, and the node has no axes",
                     axis, rabbet_tensor_name(x));
    return;
  }
  rabbet_tensor_t* one =
      rabbet_onnx_with_number(node, "EQUAL", extent.tensor, 1);
  rabbet_onnx_assert(node, rabbet_onnx_unary(node, "NOT", one), message);
}

static void onnx_import_squeeze(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  rabbet_onnx_dynamic_axes_t dynamic_axes;
  if (rabbet_onnx_read_dynamic_axes(node, rabbet_onnx_input(node, 1), dims.rank,
                                    &dynamic_axes)) {
    node->outputs[0] = rabbet_onnx_dynamic_squeeze(node, x, &dynamic_axes);
    return;
  }
  rabbet_onnx_ints_t axes = rabbet_onnx_axes(node, 1);
  uint32_t mask = rabbet_onnx_axes_mask(node, axes, dims.rank);
  for (int i = 0; i < dims.rank && !axes.present && rabbet_onnx_ok(node); ++i) {
    if (dims.d[i] == 1) mask |= 1u << i;
    if (dims.d[i] < 0) onnx_squeeze_demand(node, x, i);
  }
  node->outputs[0] = rabbet_onnx_squeeze(node, x, mask);
}

static bool onnx_unsqueezes_dynamic(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* x) {
  rabbet_tensor_t* axes = rabbet_onnx_input(node, 1);
  rabbet_dims_t length = {0};
  if (axes) length = rabbet_onnx_dims(node, axes);
  int64_t rank =
      rabbet_onnx_rank(node, x) + (length.rank == 1 ? length.d[0] : 1);
  rabbet_onnx_dynamic_axes_t dynamic_axes;
  if (rank > RABBET_MAX_RANK ||
      !rabbet_onnx_read_dynamic_axes(node, axes, (int)rank, &dynamic_axes))
    return false;
  node->outputs[0] = rabbet_onnx_dynamic_unsqueeze(node, x, &dynamic_axes);
  return true;
}

static void onnx_import_unsqueeze(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  if (onnx_unsqueezes_dynamic(node, x)) return;
  rabbet_onnx_ints_t axes = rabbet_onnx_axes(node, 1);
  if (rabbet_onnx_ok(node) && !axes.present) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT, "axes are missing");
  }
  int rank = rabbet_onnx_rank(node, x) + (int)axes.count;
  if (rabbet_onnx_ok(node) && axes.count > RABBET_MAX_RANK) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "%zu axes are inserted; at most %d are possible",
                     axes.count, RABBET_MAX_RANK);
  }
  if (!rabbet_onnx_ok(node)) return;
  node->outputs[0] = rabbet_onnx_unsqueeze(
      node, x, rabbet_onnx_axes_mask(node, axes, rank), rank);
}

// ---- Expand ----------------------------------------------------------------

// The extent that x and the wanted shape broadcast to: the wanted one, unless
// that is 1. (wanted == 1) * (x - 1) + wanted.
static rabbet_onnx_index_t onnx_broadcast(rabbet_onnx_node_t* node,
                                          rabbet_onnx_index_t x,
                                          rabbet_onnx_index_t wanted) {
  if (rabbet_onnx_is_static(x) && x.value == 1) return wanted;
  if (rabbet_onnx_is_static(wanted)) return wanted.value == 1 ? x : wanted;
  if (rabbet_onnx_is_static(x)) return x;
  rabbet_onnx_index_t is_one =
      rabbet_onnx_index_op(node, "EQUAL", wanted, rabbet_onnx_index(1));
  rabbet_onnx_index_t less =
      rabbet_onnx_index_op(node, "SUB", x, rabbet_onnx_index(1));
  return rabbet_onnx_index_op(
      node, "SUM", rabbet_onnx_index_op(node, "PROD", is_one, less), wanted);
}

static void onnx_import_expand(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* shape = rabbet_onnx_required(node, 1);
  int wanted = rabbet_onnx_shape_length(node, shape);
  int own = rabbet_onnx_rank(node, x);
  if (!rabbet_onnx_ok(node)) return;
  int rank = own > wanted ? own : wanted;
  x = rabbet_onnx_to_rank(node, x, rank);
  rabbet_onnx_index_t dims[RABBET_MAX_RANK];
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i) {
    dims[i] = rabbet_onnx_extent(node, x, i);
    int position = i - (rank - wanted);
    if (position < 0) continue;
    dims[i] = onnx_broadcast(node, dims[i],
                             rabbet_onnx_element(node, shape, position));
  }
  if (rabbet_onnx_ok(node)) {
    node->outputs[0] = rabbet_onnx_spread(node, x, dims, rank);
  }
}

// ---- Blocks ----------------------------------------------------------------

// Reshape to six axes, transpose, reshape to four.
typedef struct onnx_blocks_t {
  rabbet_onnx_index_t split[6];
  int64_t perm[6];
  rabbet_onnx_index_t joined[4];
} onnx_blocks_t;

static bool onnx_block_input(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                             int64_t* out_block,
                             rabbet_onnx_index_t* out_dims) {
  *out_block = rabbet_onnx_attr_int(node, "blocksize", 0);
  if (rabbet_onnx_ok(node) && (*out_block < 1 || *out_block > 65535 ||
                               rabbet_onnx_rank(node, x) != 4)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the input has rank %d and attribute 'blocksize' is "
                     "%lld; expected rank 4 and from 1 to 65535",
                     rabbet_onnx_rank(node, x), (long long)*out_block);
  }
  for (int i = 0; i < 4 && rabbet_onnx_ok(node); ++i) {
    out_dims[i] = rabbet_onnx_extent(node, x, i);
  }
  return rabbet_onnx_ok(node);
}

static rabbet_tensor_t* onnx_move_blocks(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x,
                                         onnx_blocks_t* blocks) {
  rabbet_tensor_t* y = rabbet_onnx_reshape(node, x, blocks->split, 6);
  y = rabbet_onnx_transpose(node, y, blocks->perm);
  return rabbet_onnx_reshape(node, y, blocks->joined, 4);
}

static bool onnx_column_first(rabbet_onnx_node_t* node) {
  const char* mode = rabbet_onnx_attr_string(node, "mode", "DCR");
  if (strcmp(mode, "DCR") != 0 && strcmp(mode, "CRD") != 0) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "mode is '%s'; DCR and CRD exist", mode);
  }
  return !strcmp(mode, "CRD");
}

static void onnx_import_depth_to_space(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_onnx_index_t d[4];
  int64_t size;
  bool crd = onnx_column_first(node);
  if (!onnx_block_input(node, x, &size, d)) return;
  rabbet_onnx_index_t b = rabbet_onnx_index(size);
  rabbet_onnx_index_t depth = rabbet_onnx_index_op(
      node, "FLOOR_DIV", d[1], rabbet_onnx_index(size * size));
  onnx_blocks_t blocks = {
      .split = {d[0], b, b, depth, d[2], d[3]},
      .perm = {0, 3, 4, 1, 5, 2},
      .joined = {d[0], depth, rabbet_onnx_index_op(node, "PROD", d[2], b),
                 rabbet_onnx_index_op(node, "PROD", d[3], b)}};
  if (crd) {
    static const int64_t perm[] = {0, 1, 4, 2, 5, 3};
    memcpy(blocks.perm, perm, sizeof(perm));
    blocks.split[1] = depth;
    blocks.split[3] = b;
  }
  node->outputs[0] = onnx_move_blocks(node, x, &blocks);
}

static void onnx_import_space_to_depth(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_onnx_index_t d[4];
  int64_t size;
  bool crd = onnx_column_first(node);
  if (!onnx_block_input(node, x, &size, d)) return;
  rabbet_onnx_index_t b = rabbet_onnx_index(size);
  rabbet_onnx_index_t height = rabbet_onnx_index_op(node, "FLOOR_DIV", d[2], b);
  rabbet_onnx_index_t width = rabbet_onnx_index_op(node, "FLOOR_DIV", d[3], b);
  rabbet_onnx_index_t depth =
      rabbet_onnx_index_op(node, "PROD", d[1], rabbet_onnx_index(size * size));
  onnx_blocks_t blocks = {.split = {d[0], d[1], height, b, width, b},
                          .perm = {0, 3, 5, 1, 2, 4},
                          .joined = {d[0], depth, height, width}};
  if (crd) {
    static const int64_t perm[] = {0, 1, 3, 5, 2, 4};
    memcpy(blocks.perm, perm, sizeof(perm));
  }
  node->outputs[0] = onnx_move_blocks(node, x, &blocks);
}

RABBET_ONNX_OPERATORS(shape) = {
    RABBET_ONNX_OP(DepthToSpace, depth_to_space, "", 1, 11, 13, 28),
    RABBET_ONNX_OP(Expand, expand, "", 8, 13),
    RABBET_ONNX_OP(Flatten, flatten, "", 1, 9, 11, 13, 21, 23, 24, 25),
    RABBET_ONNX_OP(Reshape, reshape, "", 1, 5, 13, 14, 19, 21, 23, 24, 25),
    RABBET_ONNX_OP(Shape, shape, "", 1, 13, 15, 19, 21, 23, 24, 25),
    RABBET_ONNX_OP(Size, size, "", 1, 13, 19, 21, 23, 24, 25),
    RABBET_ONNX_OP(SpaceToDepth, space_to_depth, "", 1, 13, 28),
    RABBET_ONNX_OP(Squeeze, squeeze, "", 1, 11, 13, 21, 23, 24, 25),
    RABBET_ONNX_OP(Transpose, transpose, "", 1, 13, 21, 23, 24, 25),
    RABBET_ONNX_OP(Unsqueeze, unsqueeze, "", 1, 11, 13, 21, 23, 24, 25),
    {0},
};
