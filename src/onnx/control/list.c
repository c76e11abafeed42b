// Sequences whose length a run tells. Tensors of one shape are stacked along
// axis 0; others are joined along the one axis in which they differ, and a
// vector says where each ends.
#include "onnx/control/list.h"

#include "onnx/held.h"

// ---- Lists -----------------------------------------------------------------

rabbet_onnx_list_t* rabbet_onnx_list_make(rabbet_onnx_node_t* node,
                                          rabbet_dtype_t dtype, size_t count) {
  rabbet_arena_t* arena = &node->importer->arena;
  rabbet_onnx_list_t* list = NULL;
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_onnx_spend(node->importer, count));
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_fail(node, rabbet_arena_allocate_array(arena, 1, sizeof(*list),
                                                     (void**)&list));
  if (!rabbet_onnx_ok(node)) return NULL;
  *list = (rabbet_onnx_list_t){
      .handle = {.kind = RABBET_TENSOR_LAYER, .id = -1, .name = node->name},
      .dtype = dtype,
      .count = count};
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(arena, count, sizeof(*list->items),
                                        (void**)&list->items));
  return rabbet_onnx_ok(node) ? list : NULL;
}

rabbet_onnx_list_t* rabbet_onnx_list_longer(rabbet_onnx_node_t* node,
                                            const rabbet_onnx_list_t* from,
                                            size_t more) {
  rabbet_onnx_list_t* list =
      rabbet_onnx_list_make(node, from->dtype, from->count + more);
  if (!list) return NULL;
  list->told = from->told;
  list->rest = from->rest;
  for (size_t i = 0; i < from->count; ++i)
    list->items[i] = from->items[i];
  return list;
}

rabbet_onnx_list_t* rabbet_onnx_list_of(rabbet_onnx_node_t* node,
                                        rabbet_dtype_t dtype,
                                        rabbet_onnx_told_t told) {
  rabbet_onnx_list_t* list = rabbet_onnx_list_make(node, dtype, 0);
  if (list) list->told = told;
  return list;
}

// ---- All tensors in one ----------------------------------------------------

static rabbet_onnx_told_t list_stacked(rabbet_onnx_node_t* node,
                                       const rabbet_onnx_list_t* list,
                                       rabbet_tensor_t** parts) {
  size_t count = 0;
  if (list->told.tensor) parts[count++] = list->told.tensor;
  for (size_t i = 0; i < list->count; ++i) {
    rabbet_tensor_t* item = list->items[i];
    int rank = rabbet_onnx_rank(node, item) + 1;
    parts[count++] = rabbet_onnx_unsqueeze(node, item, 1, rank);
  }
  return (rabbet_onnx_told_t){
      .tensor =
          count == 1 ? parts[0] : rabbet_onnx_concat(node, parts, count, 0)};
}

static rabbet_onnx_told_t list_joined(rabbet_onnx_node_t* node,
                                      const rabbet_onnx_list_t* list, int axis,
                                      rabbet_tensor_t** parts) {
  rabbet_onnx_told_t all = {.axis = axis};
  rabbet_tensor_t* ends[2] = {list->told.ends, NULL};
  rabbet_onnx_index_t end = rabbet_onnx_index(0), *own = NULL;
  size_t count = 0;
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(&node->importer->arena, list->count,
                                        sizeof(*own), (void**)&own));
  if (!rabbet_onnx_ok(node)) return all;
  if (list->told.tensor) {
    parts[count++] = list->told.tensor;
    end = rabbet_onnx_extent(node, list->told.tensor, axis);
  }
  for (size_t i = 0; i < list->count; ++i) {
    parts[count++] = list->items[i];
    end = rabbet_onnx_index_op(node, "SUM", end,
                               rabbet_onnx_extent(node, list->items[i], axis));
    own[i] = end;
  }
  ends[1] = rabbet_onnx_index_vector(node, own, list->count);
  all.tensor =
      count == 1 ? parts[0] : rabbet_onnx_concat(node, parts, count, axis);
  all.ends = ends[0] ? rabbet_onnx_concat(node, ends, 2, 0) : ends[1];
  return all;
}

rabbet_onnx_told_t rabbet_onnx_list_told(rabbet_onnx_node_t* node,
                                         const rabbet_onnx_list_t* list,
                                         rabbet_onnx_told_t like) {
  const rabbet_onnx_told_t none = {0};
  rabbet_tensor_t** parts = NULL;
  if (!rabbet_onnx_ok(node)) return none;
  if (list->told.tensor) like = list->told;
  if (list->told.tensor && list->count == 0) return list->told;
  if (list->count == 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "an empty sequence is read, whose tensors would have no "
                     "shape");
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(&node->importer->arena, list->count + 1,
                                        sizeof(*parts), (void**)&parts));
  if (!rabbet_onnx_ok(node)) return none;
  rabbet_onnx_told_t all = like.ends ? list_joined(node, list, like.axis, parts)
                                     : list_stacked(node, list, parts);
  rabbet_onnx_hold_like(node, all.tensor,
                        list->told.tensor ? list->told.tensor : list->items[0]);
  return all;
}

// ---- A list whose beginning its loop has -----------------------------------

// One of its tensors, for the first import of the body.
static rabbet_tensor_t* list_sample(rabbet_onnx_node_t* node,
                                    const rabbet_onnx_list_t* list) {
  list->rest->is_read = true;
  if (list->count > 0) return list->items[0];
  if (!list->rest->sample)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "it reads a sequence that the loop begins empty, before "
                     "anything is inserted; its tensors' shape is not known "
                     "there");
  return list->rest->sample;
}

// ---- Operators -------------------------------------------------------------

static const rabbet_onnx_told_t stacked = {0};

static rabbet_onnx_index_t told_length(rabbet_onnx_node_t* node,
                                       rabbet_onnx_told_t told) {
  return rabbet_onnx_extent(node, told.ends ? told.ends : told.tensor, 0);
}

rabbet_onnx_index_t rabbet_onnx_list_length(rabbet_onnx_node_t* node,
                                            const rabbet_onnx_list_t* list) {
  rabbet_onnx_index_t length = rabbet_onnx_index((int64_t)list->count);
  if (list->told.tensor)
    length = rabbet_onnx_index_op(node, "SUM", length,
                                  told_length(node, list->told));
  if (!list->rest) return length;
  list->rest->is_read = true;
  // No constant, since the import would decide by it.
  if (list->rest->number)
    length = rabbet_onnx_index_op(
        node, "SUM", length, rabbet_onnx_element(node, list->rest->number, 0));
  return length;
}

static rabbet_onnx_index_t list_place(rabbet_onnx_node_t* node,
                                      rabbet_onnx_index_t at,
                                      rabbet_onnx_index_t length) {
  if (rabbet_onnx_is_static(at) && at.value >= 0) return at;
  rabbet_onnx_index_t is_negative =
      rabbet_onnx_index_op(node, "LESS", at, rabbet_onnx_index(0));
  return rabbet_onnx_index_op(
      node, "SUM", at, rabbet_onnx_index_op(node, "PROD", is_negative, length));
}

static rabbet_tensor_t* list_part(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  int axis, rabbet_onnx_index_t start,
                                  rabbet_onnx_index_t end) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  if (!rabbet_onnx_ok(node)) return NULL;
  slice.start[axis] = start;
  slice.size[axis] = rabbet_onnx_index_op(node, "SUB", end, start);
  rabbet_tensor_t* part = rabbet_onnx_slice(node, x, &slice);
  rabbet_onnx_hold_like(node, part, x);
  return part;
}

// Element `at` of the vector.
static rabbet_onnx_index_t list_element(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* vector,
                                        rabbet_onnx_index_t at) {
  rabbet_onnx_index_t next =
      rabbet_onnx_index_op(node, "SUM", at, rabbet_onnx_index(1));
  return rabbet_onnx_element(node, list_part(node, vector, 0, at, next), 0);
}

rabbet_tensor_t* rabbet_onnx_list_at(rabbet_onnx_node_t* node,
                                     const rabbet_onnx_list_t* list,
                                     rabbet_onnx_index_t at) {
  // From the end, as far as that is known.
  int64_t place = at.value < 0 ? at.value + (int64_t)list->count : -1;
  if (rabbet_onnx_is_static(at) && place >= 0) return list->items[place];
  if (list->rest) return list_sample(node, list);
  rabbet_onnx_told_t all = rabbet_onnx_list_told(node, list, stacked);
  if (!rabbet_onnx_ok(node)) return NULL;
  at = list_place(node, at, told_length(node, all));
  rabbet_onnx_index_t next =
      rabbet_onnx_index_op(node, "SUM", at, rabbet_onnx_index(1));
  if (!all.ends) {
    rabbet_tensor_t* part = list_part(node, all.tensor, 0, at, next);
    rabbet_tensor_t* item = rabbet_onnx_squeeze(node, part, 1);
    rabbet_onnx_hold_like(node, item, part);
    return item;
  }
  rabbet_tensor_t* zero = rabbet_onnx_int64s(node, (const int64_t[]){0}, 1);
  rabbet_tensor_t* starts =
      rabbet_onnx_concat(node, (rabbet_tensor_t*[]){zero, all.ends}, 2, 0);
  return list_part(node, all.tensor, all.axis, list_element(node, starts, at),
                   list_element(node, starts, next));
}

rabbet_onnx_list_t* rabbet_onnx_list_change(rabbet_onnx_node_t* node,
                                            const rabbet_onnx_list_t* list,
                                            rabbet_onnx_index_t at,
                                            rabbet_tensor_t* item) {
  if (list->rest) {
    list_sample(node, list);
    return rabbet_onnx_list_longer(node, list, 0);
  }
  rabbet_onnx_told_t all = rabbet_onnx_list_told(node, list, stacked);
  if (all.ends)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the sequence's tensors differ in shape and in number in "
                     "each run; of such, only the end can be changed");
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_index_t length = told_length(node, all);
  at = list_place(node, at, length);
  rabbet_onnx_index_t next =
      item ? at : rabbet_onnx_index_op(node, "SUM", at, rabbet_onnx_index(1));
  rabbet_tensor_t* parts[] = {
      list_part(node, all.tensor, 0, rabbet_onnx_index(0), at), NULL, NULL};
  size_t count = 1;
  if (item)
    parts[count++] =
        rabbet_onnx_unsqueeze(node, item, 1, rabbet_onnx_rank(node, item) + 1);
  parts[count++] = list_part(node, all.tensor, 0, next, length);
  rabbet_tensor_t* changed = rabbet_onnx_concat(node, parts, count, 0);
  rabbet_onnx_hold_like(node, changed, all.tensor);
  return rabbet_onnx_list_of(node, list->dtype,
                             (rabbet_onnx_told_t){.tensor = changed});
}

// The stack with its axis 0 moved to `axis`.
static rabbet_tensor_t* list_moved(rabbet_onnx_node_t* node,
                                   rabbet_tensor_t* stack, int axis) {
  int64_t perm[RABBET_MAX_RANK];
  int rank = rabbet_onnx_rank(node, stack);
  for (int i = 0; i < rank; ++i)
    perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
  return axis == 0 ? stack : rabbet_onnx_transpose(node, stack, perm);
}

rabbet_tensor_t* rabbet_onnx_list_concat(rabbet_onnx_node_t* node,
                                         const rabbet_onnx_list_t* list,
                                         int64_t axis, bool stack) {
  if (list->rest) {
    rabbet_tensor_t* one = list_sample(node, list);
    if (!stack) return one;
    return rabbet_onnx_unsqueeze(node, one, 1, rabbet_onnx_rank(node, one) + 1);
  }
  rabbet_onnx_told_t all = rabbet_onnx_list_told(node, list, stacked);
  int rank = rabbet_onnx_rank(node, all.tensor) - (all.ends == NULL);
  int at = rabbet_onnx_axis(node, axis, rank + stack);
  if (!rabbet_onnx_ok(node)) return NULL;
  if (all.ends) {
    if (!stack && at == all.axis) return all.tensor;
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the sequence's tensors differ along axis %d in each run, "
                     "and can be concatenated along that one alone",
                     all.axis);
    return NULL;
  }
  rabbet_tensor_t* moved = list_moved(node, all.tensor, at);
  rabbet_onnx_hold_like(node, moved, all.tensor);
  if (stack || !rabbet_onnx_ok(node)) return moved;
  rabbet_onnx_index_t dims[RABBET_MAX_RANK];
  for (int i = 0; i < rank; ++i)
    dims[i] = rabbet_onnx_extent(node, moved, i < at ? i : i + 1);
  dims[at] = rabbet_onnx_index_op(node, "PROD", dims[at],
                                  rabbet_onnx_extent(node, moved, at));
  rabbet_tensor_t* joined = rabbet_onnx_reshape(node, moved, dims, rank);
  rabbet_onnx_hold_like(node, joined, all.tensor);
  return joined;
}
