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

// All tensors of the list, its items included, in the form of `like`: joined
// along an axis if that has `ends`, else stacked. A list with told tensors
// keeps their form. NULL tensor, failing, for an empty known list.
rabbet_onnx_told_t rabbet_onnx_list_told(rabbet_onnx_node_t* node,
                                         const rabbet_onnx_list_t* list,
                                         rabbet_onnx_told_t like);

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
