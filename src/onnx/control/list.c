// Operators on sequences whose length a run tells.
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

rabbet_onnx_index_t rabbet_onnx_list_length(rabbet_onnx_node_t* node,
                                            const rabbet_onnx_list_t* list) {
  rabbet_onnx_index_t length = rabbet_onnx_index((int64_t)list->count);
  if (list->told.tensor)
    length = rabbet_onnx_index_op(node, "SUM", length,
                                  rabbet_onnx_told_length(node, list->told));
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

// Where element `at` of joined tensors begins, or the end of all behind the
// last one.
static rabbet_onnx_index_t joined_start(rabbet_onnx_node_t* node,
                                        rabbet_onnx_told_t all,
                                        rabbet_onnx_index_t at) {
  rabbet_tensor_t* zero = rabbet_onnx_int64s(node, (const int64_t[]){0}, 1);
  return list_element(
      node,
      rabbet_onnx_concat(node, (rabbet_tensor_t*[]){zero, all.ends}, 2, 0), at);
}

rabbet_tensor_t* rabbet_onnx_list_at(rabbet_onnx_node_t* node,
                                     const rabbet_onnx_list_t* list,
                                     rabbet_onnx_index_t at) {
  // From the end, as far as that is known.
  int64_t place = at.value < 0 ? at.value + (int64_t)list->count : -1;
  if (rabbet_onnx_is_static(at) && place >= 0) return list->items[place];
  if (list->rest) return list_sample(node, list);
  rabbet_onnx_told_t all = rabbet_onnx_list_told_alone(node, list);
  if (!rabbet_onnx_ok(node)) return NULL;
  at = list_place(node, at, rabbet_onnx_told_length(node, all));
  rabbet_onnx_index_t next =
      rabbet_onnx_index_op(node, "SUM", at, rabbet_onnx_index(1));
  if (!all.ends) {
    rabbet_tensor_t* part = list_part(node, all.tensor, 0, at, next);
    rabbet_tensor_t* item = rabbet_onnx_squeeze(node, part, 1);
    rabbet_onnx_hold_like(node, item, part);
    return item;
  }
  return list_part(node, all.tensor, all.axis, joined_start(node, all, at),
                   joined_start(node, all, next));
}

// The tensors from `start` to `end` as told ones. Ends count from their start.
static rabbet_onnx_told_t told_part(rabbet_onnx_node_t* node,
                                    rabbet_onnx_told_t all,
                                    rabbet_onnx_index_t start,
                                    rabbet_onnx_index_t end) {
  rabbet_onnx_told_t part = {.axis = all.axis};
  if (!all.ends) {
    part.tensor = list_part(node, all.tensor, 0, start, end);
    return part;
  }
  rabbet_onnx_index_t from = joined_start(node, all, start);
  part.tensor =
      list_part(node, all.tensor, all.axis, from, joined_start(node, all, end));
  part.ends =
      rabbet_onnx_binary(node, "SUB", list_part(node, all.ends, 0, start, end),
                         rabbet_onnx_index_vector(node, &from, 1));
  return part;
}

rabbet_onnx_list_t* rabbet_onnx_list_change(rabbet_onnx_node_t* node,
                                            const rabbet_onnx_list_t* list,
                                            rabbet_onnx_index_t at,
                                            rabbet_tensor_t* item) {
  if (list->rest) {
    list_sample(node, list);
    return rabbet_onnx_list_longer(node, list, 0);
  }
  rabbet_onnx_told_t all = rabbet_onnx_list_told_alone(node, list);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_index_t length = rabbet_onnx_told_length(node, all);
  at = list_place(node, at, length);
  rabbet_onnx_index_t next =
      item ? at : rabbet_onnx_index_op(node, "SUM", at, rabbet_onnx_index(1));
  rabbet_onnx_told_t before = told_part(node, all, rabbet_onnx_index(0), at);
  rabbet_onnx_told_t after = told_part(node, all, next, length);
  if (item)
    before = rabbet_onnx_told_append(node, before,
                                     rabbet_onnx_told_item(node, item));
  rabbet_onnx_told_t changed = rabbet_onnx_told_append(node, before, after);
  rabbet_onnx_hold_like(node, changed.tensor, all.tensor);
  return rabbet_onnx_list_of(node, list->dtype, changed);
}

rabbet_tensor_t* rabbet_onnx_list_concat(rabbet_onnx_node_t* node,
                                         const rabbet_onnx_list_t* list,
                                         int64_t axis, bool stack) {
  if (list->rest) {
    rabbet_tensor_t* one = list_sample(node, list);
    if (!stack) return one;
    return rabbet_onnx_unsqueeze(node, one, 1, rabbet_onnx_rank(node, one) + 1);
  }
  rabbet_onnx_told_t all = rabbet_onnx_list_told_alone(node, list);
  int rank = rabbet_onnx_rank(node, all.tensor) - (all.ends == NULL);
  int at = rabbet_onnx_axis(node, axis, rank + stack);
  if (!rabbet_onnx_ok(node)) return NULL;
  if (all.ends && !stack && at == all.axis) return all.tensor;
  // Others than stacked ones must be of one shape, which the run checks.
  if (all.ends) all = rabbet_onnx_told_stacked(node, all);
  return stack ? rabbet_onnx_told_moved(node, all, at)
               : rabbet_onnx_told_joined(node, all, at).tensor;
}
