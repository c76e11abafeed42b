// Sequences of tensors at import: known tensors, behind those that only a run
// tells.
#ifndef RABBET_SRC_ONNX_CONTROL_LIST_H_
#define RABBET_SRC_ONNX_CONTROL_LIST_H_

#include "onnx/index.h"

// A new list of `count` items, which the caller sets; NULL if that fails.
rabbet_onnx_list_t* rabbet_onnx_list_make(rabbet_onnx_node_t* node,
                                          rabbet_dtype_t dtype, size_t count);
// A copy with room for `more` items, which the caller sets.
rabbet_onnx_list_t* rabbet_onnx_list_longer(rabbet_onnx_node_t* node,
                                            const rabbet_onnx_list_t* from,
                                            size_t more);
// Of tensors that a run tells.
rabbet_onnx_list_t* rabbet_onnx_list_of(rabbet_onnx_node_t* node,
                                        rabbet_dtype_t dtype,
                                        rabbet_onnx_told_t told);
static inline rabbet_tensor_t* rabbet_onnx_list_handle(
    rabbet_onnx_list_t* list) {
  return list ? &list->handle : NULL;
}
// Whether all its tensors are items.
static inline bool rabbet_onnx_list_is_known(const rabbet_onnx_list_t* list) {
  return !list->told.tensor && !list->rest;
}

// ---- Told tensors (list_forms.c)

rabbet_onnx_index_t rabbet_onnx_told_length(rabbet_onnx_node_t* node,
                                            rabbet_onnx_told_t told);
// A stack of one.
rabbet_onnx_told_t rabbet_onnx_told_item(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* item);
// A stack with its axis 0 moved to `axis`.
rabbet_tensor_t* rabbet_onnx_told_moved(rabbet_onnx_node_t* node,
                                        rabbet_onnx_told_t stack, int axis);
// extent, 2 extent, ..., count extent: where tensors of one extent end.
rabbet_tensor_t* rabbet_onnx_told_even_ends(rabbet_onnx_node_t* node,
                                            rabbet_onnx_index_t count,
                                            rabbet_onnx_index_t extent);
// A stack, joined along an axis of its tensors; joined ones stay as they are.
rabbet_onnx_told_t rabbet_onnx_told_joined(rabbet_onnx_node_t* node,
                                           rabbet_onnx_told_t told, int axis);
// Joined tensors as a stack; the run fails if they are not of one shape.
rabbet_onnx_told_t rabbet_onnx_told_stacked(rabbet_onnx_node_t* node,
                                            rabbet_onnx_told_t told);
// The first axis along which shapes are not known to be equal; -1: none.
int rabbet_onnx_shapes_differ(rabbet_onnx_node_t* node, rabbet_tensor_t* a,
                              rabbet_tensor_t* b);
// All of both: joined if one is, or if their shapes are not known to be one.
rabbet_onnx_told_t rabbet_onnx_told_append(rabbet_onnx_node_t* node,
                                           rabbet_onnx_told_t first,
                                           rabbet_onnx_told_t second);
// All tensors of the list, its items included: joined along an axis if `like`
// has `ends`, or the list's told ones are joined; else stacked. Fails for an
// empty known list.
rabbet_onnx_told_t rabbet_onnx_list_told(rabbet_onnx_node_t* node,
                                         const rabbet_onnx_list_t* list,
                                         rabbet_onnx_told_t like);
// The same in the form that the shapes need.
rabbet_onnx_told_t rabbet_onnx_list_told_alone(rabbet_onnx_node_t* node,
                                               const rabbet_onnx_list_t* list);

// ---- Operators on lists that are not known ----------------------------------
//
// Of a list whose beginning its loop has, the result only stands for one of its
// type and rank: the loop's body is imported again (rabbet_onnx_rest_t).

rabbet_onnx_index_t rabbet_onnx_list_length(rabbet_onnx_node_t* node,
                                            const rabbet_onnx_list_t* list);
// `at` may count from the end.
rabbet_tensor_t* rabbet_onnx_list_at(rabbet_onnx_node_t* node,
                                     const rabbet_onnx_list_t* list,
                                     rabbet_onnx_index_t at);
// Without the tensor at `at`, or with `item` in front of it.
rabbet_onnx_list_t* rabbet_onnx_list_change(rabbet_onnx_node_t* node,
                                            const rabbet_onnx_list_t* list,
                                            rabbet_onnx_index_t at,
                                            rabbet_tensor_t* item);
rabbet_tensor_t* rabbet_onnx_list_concat(rabbet_onnx_node_t* node,
                                         const rabbet_onnx_list_t* list,
                                         int64_t axis, bool stack);

#endif  // RABBET_SRC_ONNX_CONTROL_LIST_H_
