// Forms of the tensors of a sequence whose length a run tells. Those of one
// shape are stacked along axis 0; others are joined along the one axis in which
// they differ, and a vector says where each ends.
#include "onnx/control/list.h"
#include "onnx/held.h"

rabbet_onnx_index_t rabbet_onnx_told_length(rabbet_onnx_node_t* node,
                                            rabbet_onnx_told_t told) {
  return rabbet_onnx_extent(node, told.ends ? told.ends : told.tensor, 0);
}

rabbet_onnx_told_t rabbet_onnx_told_item(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* item) {
  int rank = rabbet_onnx_rank(node, item) + 1;
  return (rabbet_onnx_told_t){.tensor =
                                  rabbet_onnx_unsqueeze(node, item, 1, rank)};
}

// Whether tensors of the rank can be joined along the axis.
static void check_axis(rabbet_onnx_node_t* node, int axis, int rank) {
  if (rabbet_onnx_ok(node) && axis >= rank)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the sequence's tensors differ along axis %d; one of them "
                     "has rank %d",
                     axis, rank);
}

// ---- From one form to the other --------------------------------------------

rabbet_tensor_t* rabbet_onnx_told_moved(rabbet_onnx_node_t* node,
                                        rabbet_onnx_told_t stack, int axis) {
  int64_t perm[RABBET_MAX_RANK];
  int rank = rabbet_onnx_rank(node, stack.tensor);
  for (int i = 0; i < rank; ++i)
    perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
  if (axis == 0 || !rabbet_onnx_ok(node)) return stack.tensor;
  rabbet_tensor_t* moved = rabbet_onnx_transpose(node, stack.tensor, perm);
  rabbet_onnx_hold_like(node, moved, stack.tensor);
  return moved;
}

rabbet_tensor_t* rabbet_onnx_told_even_ends(rabbet_onnx_node_t* node,
                                            rabbet_onnx_index_t count,
                                            rabbet_onnx_index_t extent) {
  rabbet_tensor_t* numbers = rabbet_onnx_with_number(
      node, "SUM", rabbet_onnx_indices(node, count, 0, 1), 1);
  return rabbet_onnx_binary(node, "PROD", numbers,
                            rabbet_onnx_index_vector(node, &extent, 1));
}

rabbet_onnx_told_t rabbet_onnx_told_joined(rabbet_onnx_node_t* node,
                                           rabbet_onnx_told_t told, int axis) {
  rabbet_onnx_index_t dims[RABBET_MAX_RANK], count, extent;
  if (told.ends || !rabbet_onnx_ok(node)) return told;
  rabbet_onnx_told_t joined = {.axis = axis};
  rabbet_tensor_t* moved = rabbet_onnx_told_moved(node, told, axis);
  int rank = rabbet_onnx_rank(node, moved) - 1;
  for (int i = 0; i < rank; ++i)
    dims[i] = rabbet_onnx_extent(node, moved, i < axis ? i : i + 1);
  check_axis(node, axis, rank);
  if (!rabbet_onnx_ok(node)) return joined;
  extent = dims[axis];
  count = rabbet_onnx_extent(node, moved, axis);
  dims[axis] = rabbet_onnx_index_op(node, "PROD", extent, count);
  joined.tensor = rabbet_onnx_reshape(node, moved, dims, rank);
  joined.ends = rabbet_onnx_told_even_ends(node, count, extent);
  rabbet_onnx_hold_like(node, joined.tensor, told.tensor);
  return joined;
}

// The tensors must be of one shape: an assertion holds that in the run.
rabbet_onnx_told_t rabbet_onnx_told_stacked(rabbet_onnx_node_t* node,
                                            rabbet_onnx_told_t told) {
  rabbet_onnx_index_t dims[RABBET_MAX_RANK], count, extent;
  rabbet_onnx_told_t stacked = {0};
  int64_t perm[RABBET_MAX_RANK];
  if (!told.ends || !rabbet_onnx_ok(node)) return told;
  int rank = rabbet_onnx_rank(node, told.tensor) + 1, axis = told.axis;
  if (rank > RABBET_MAX_RANK)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "a stack of the sequence's tensors has more than %d axes",
                     RABBET_MAX_RANK);
  if (!rabbet_onnx_ok(node)) return stacked;
  count = rabbet_onnx_told_length(node, told);
  extent = rabbet_onnx_index_op(
      node, "FLOOR_DIV", rabbet_onnx_extent(node, told.tensor, axis),
      rabbet_onnx_index_op(node, "MAX", count, rabbet_onnx_index(1)));
  for (int i = 0; i < rank; ++i) {
    perm[i] = i == 0 ? axis : i <= axis ? i - 1 : i;
    dims[i] = i == axis ? count
              : i == axis + 1
                  ? extent
                  : rabbet_onnx_extent(node, told.tensor, i < axis ? i : i - 1);
  }
  rabbet_tensor_t* same =
      rabbet_onnx_binary(node, "EQUAL", told.ends,
                         rabbet_onnx_told_even_ends(node, count, extent));
  rabbet_onnx_assert(node, same,
                     "the tensors of a sequence that are stacked have one "
                     "shape");
  stacked.tensor = rabbet_onnx_reshape(node, told.tensor, dims, rank);
  if (axis > 0)
    stacked.tensor = rabbet_onnx_transpose(node, stacked.tensor, perm);
  rabbet_onnx_hold_like(node, stacked.tensor, told.tensor);
  return stacked;
}

// ---- All tensors in one ----------------------------------------------------

int rabbet_onnx_shapes_differ(rabbet_onnx_node_t* node, rabbet_tensor_t* a,
                              rabbet_tensor_t* b) {
  int rank = rabbet_onnx_rank(node, a);
  if (!rabbet_onnx_ok(node) || rabbet_onnx_rank(node, b) != rank) return -1;
  for (int i = 0; i < rank; ++i)
    if (a->shape.d[i] != b->shape.d[i]) return i;
  return -1;
}

rabbet_onnx_told_t rabbet_onnx_told_append(rabbet_onnx_node_t* node,
                                           rabbet_onnx_told_t first,
                                           rabbet_onnx_told_t second) {
  if (!rabbet_onnx_ok(node)) return first;
  int axis = first.ends ? first.axis : second.axis;
  bool join = first.ends || second.ends;
  if (!join) {
    int rank = rabbet_onnx_rank(node, first.tensor);
    for (axis = 0; axis < rank - 1 && !join; ++axis)
      join =
          rabbet_onnx_rank(node, second.tensor) == rank &&
          first.tensor->shape.d[axis + 1] != second.tensor->shape.d[axis + 1];
    axis -= join;
  }
  if (join) {
    first = rabbet_onnx_told_joined(node, first, axis);
    second = rabbet_onnx_told_joined(node, second, axis);
  }
  rabbet_onnx_told_t all = {.axis = join ? axis : 0};
  if (!rabbet_onnx_ok(node)) return all;
  if (first.axis != second.axis)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "some of the sequence's tensors differ in shape along "
                     "axis %d, others along axis %d",
                     first.axis, second.axis);
  rabbet_tensor_t* parts[] = {first.tensor, second.tensor};
  all.tensor = rabbet_onnx_concat(node, parts, 2, all.axis);
  rabbet_onnx_hold_like(node, all.tensor, first.tensor);
  if (!join || !rabbet_onnx_ok(node)) return all;
  rabbet_onnx_index_t start = rabbet_onnx_extent(node, first.tensor, axis);
  rabbet_tensor_t* moved = rabbet_onnx_binary(
      node, "SUM", second.ends, rabbet_onnx_index_vector(node, &start, 1));
  all.ends =
      rabbet_onnx_concat(node, (rabbet_tensor_t*[]){first.ends, moved}, 2, 0);
  return all;
}

static rabbet_onnx_told_t items_stacked(rabbet_onnx_node_t* node,
                                        const rabbet_onnx_list_t* list,
                                        rabbet_tensor_t** parts) {
  for (size_t i = 0; i < list->count; ++i)
    parts[i] = rabbet_onnx_told_item(node, list->items[i]).tensor;
  return (rabbet_onnx_told_t){
      .tensor = list->count == 1
                    ? parts[0]
                    : rabbet_onnx_concat(node, parts, list->count, 0)};
}

static rabbet_onnx_told_t items_joined(rabbet_onnx_node_t* node,
                                       const rabbet_onnx_list_t* list,
                                       int axis) {
  rabbet_onnx_told_t all = {.axis = axis};
  rabbet_onnx_index_t end = rabbet_onnx_index(0), *ends = NULL;
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(&node->importer->arena, list->count,
                                        sizeof(*ends), (void**)&ends));
  for (size_t i = 0; i < list->count && rabbet_onnx_ok(node); ++i) {
    check_axis(node, axis, rabbet_onnx_rank(node, list->items[i]));
    if (!rabbet_onnx_ok(node)) return all;
    end = rabbet_onnx_index_op(node, "SUM", end,
                               rabbet_onnx_extent(node, list->items[i], axis));
    ends[i] = end;
  }
  if (!rabbet_onnx_ok(node)) return all;
  all.ends = rabbet_onnx_index_vector(node, ends, list->count);
  all.tensor = list->count == 1
                   ? list->items[0]
                   : rabbet_onnx_concat(node, list->items, list->count, axis);
  return all;
}

rabbet_onnx_told_t rabbet_onnx_list_told(rabbet_onnx_node_t* node,
                                         const rabbet_onnx_list_t* list,
                                         rabbet_onnx_told_t like) {
  rabbet_onnx_told_t all = list->told;
  rabbet_tensor_t** parts = NULL;
  if (!rabbet_onnx_ok(node)) return all;
  if (list->told.ends) like = list->told;
  if (all.tensor && like.ends)
    all = rabbet_onnx_told_joined(node, all, like.axis);
  if (all.tensor && list->count == 0) return all;
  if (list->count == 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "an empty sequence is read, whose tensors would have no "
                     "shape");
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(&node->importer->arena, list->count,
                                        sizeof(*parts), (void**)&parts));
  if (!rabbet_onnx_ok(node)) return all;
  rabbet_onnx_told_t items = like.ends ? items_joined(node, list, like.axis)
                                       : items_stacked(node, list, parts);
  if (!all.tensor) {
    all = items;
  } else if (like.ends) {
    all = rabbet_onnx_told_append(node, all, items);
  } else {
    rabbet_tensor_t* both[] = {all.tensor, items.tensor};
    all.tensor = rabbet_onnx_concat(node, both, 2, 0);
  }
  rabbet_onnx_hold_like(node, all.tensor,
                        list->told.tensor ? list->told.tensor : list->items[0]);
  return all;
}

// Joined if their shapes are not known to be one.
rabbet_onnx_told_t rabbet_onnx_list_told_alone(rabbet_onnx_node_t* node,
                                               const rabbet_onnx_list_t* list) {
  const rabbet_onnx_told_t stacked = {0};
  if (!list->told.tensor || list->count == 0 || list->told.ends) {
    for (size_t i = 1; i < list->count; ++i) {
      int axis =
          rabbet_onnx_shapes_differ(node, list->items[0], list->items[i]);
      if (axis >= 0)
        return rabbet_onnx_list_told(
            node, list,
            (rabbet_onnx_told_t){.ends = list->items[0], .axis = axis});
    }
    return rabbet_onnx_list_told(node, list, stacked);
  }
  rabbet_onnx_list_t items = *list;
  items.told = stacked;
  return rabbet_onnx_told_append(node, list->told,
                                 rabbet_onnx_list_told_alone(node, &items));
}
