// softmax(scale q k' + mask) v recognized in a group, and where its tensors lie
// in memory: slices, reshapes and transposes around the products are a matter
// of strides.
#ifndef RABBET_SRC_DEVICE_CUDA_ATTENTION_ATTENTION_H_
#define RABBET_SRC_DEVICE_CUDA_ATTENTION_ATTENTION_H_

#include "device/cuda/products/epilogue.h"

enum { RABBET_ATTENTION_TURNS = 4 };

// A tensor of the attention: `value` is the group's boundary value, `seen` is
// the operand or result of the product.
typedef struct rabbet_attention_tensor_t {
  int32_t value, seen;
  // Between the two, in order of execution; scales among them are in `scale`.
  const rabbet_group_node_t* turns[RABBET_ATTENTION_TURNS];
  int turn_count;
  bool turned;  // the product reads it with TRANSPOSE
} rabbet_attention_tensor_t;

typedef struct rabbet_attention_t {
  rabbet_attention_tensor_t q, k, v, y;
  int32_t mask;  // value number; -1: none
  // The mask is added, or is BOOL and says which scores become `other`.
  enum {
    RABBET_ATTENTION_ADDS = 0,
    RABBET_ATTENTION_KEEPS_TRUE,
    RABBET_ATTENTION_KEEPS_FALSE,
  } masking;
  double scale, other;
  bool zero_nan;  // weights that are NaN are 0: of rows masked altogether
  size_t nodes;   // of the group that were recognized
} rabbet_attention_t;

// [batch, heads, rows, columns] as the products see it, in elements.
typedef struct rabbet_attention_view_t {
  int64_t dims[4], strides[4];
  int64_t offset;
} rabbet_attention_view_t;

typedef struct rabbet_attention_views_t {
  rabbet_attention_view_t q, k, v, y;  // k: as many rows as q has columns
  rabbet_attention_view_t mask;        // strides of axes it lacks are 0
} rabbet_attention_views_t;

// False if the group is something else. `dims` by value number.
bool rabbet_attention_match(const rabbet_group_t* group,
                            const rabbet_dims_t* dims,
                            rabbet_attention_t* out_attention);
// For known shapes; `host_values` as kernels are given them, or NULL. False
// where strides cannot say where an element lies.
bool rabbet_attention_views(const rabbet_group_t* group,
                            const rabbet_attention_t* attention,
                            const rabbet_dims_t* dims,
                            const int64_t* const* host_values,
                            rabbet_attention_views_t* out_views);

#endif  // RABBET_SRC_DEVICE_CUDA_ATTENTION_ATTENTION_H_
