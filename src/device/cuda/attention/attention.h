// Recognizes softmax(scale q k' + mask) v in a group, and finds the strides of
// its tensors: slices, reshapes and transposes around the products become
// offsets and strides.
#ifndef RABBET_SRC_DEVICE_CUDA_ATTENTION_ATTENTION_H_
#define RABBET_SRC_DEVICE_CUDA_ATTENTION_ATTENTION_H_

#include "device/cuda/cudnn/kernel.h"
#include "device/cuda/products/epilogue.h"

enum { RABBET_ATTENTION_TURNS = 4 };

// A tensor of the attention: `value` is the boundary value of the group, `seen`
// the value that the product reads or writes.
typedef struct rabbet_attention_tensor_t {
  int32_t value, seen;
  // The nodes between the two, from `value` on. Factors among them are part of
  // `scale`.
  const rabbet_group_node_t* turns[RABBET_ATTENTION_TURNS];
  int turn_count;
  bool turned;  // the product reads it with TRANSPOSE
} rabbet_attention_tensor_t;

// A mask that compares places: a query keeps the keys from `first` to `last`
// places behind its own. Infinite sides are INT32_MIN and INT32_MAX.
typedef struct rabbet_attention_band_t {
  bool exists;
  bool known;  // false: the constants' bytes are not at hand
  int64_t first, last;
} rabbet_attention_band_t;

typedef struct rabbet_attention_t {
  rabbet_attention_tensor_t q, k, v, y;
  int32_t mask;  // value number; -1: none, or a band
  rabbet_attention_band_t band;
  // The mask is added, or it is BOOL and selects the scores that become
  // `other`. A band adds `other` to scores that are not kept, or is BOOL.
  enum {
    RABBET_ATTENTION_ADDS = 0,
    RABBET_ATTENTION_KEEPS_TRUE,
    RABBET_ATTENTION_KEEPS_FALSE,
  } masking;
  double scale, other;
  double cap;  // scores become cap tanh(score / cap) before the mask; 0: none
  bool zero_nan;  // NaN weights, of rows masked entirely, become 0
  size_t nodes;   // number of the group's nodes that were recognized
} rabbet_attention_t;

// A tensor as [batch, heads, rows, columns]; strides in elements. `share`
// neighbouring heads are the same elements: head h lies at h / share times the
// stride.
typedef struct rabbet_attention_view_t {
  int64_t dims[4], strides[4];
  int64_t share;
  int64_t offset;
  int64_t outside;  // the stride of the axis outside of the batch
} rabbet_attention_view_t;

// Of a product of higher rank, axes before the rows that continue each other in
// every tensor are one. Windows of images are three then: images, heads and
// windows.
typedef struct rabbet_attention_views_t {
  rabbet_attention_view_t q, k, v, y;  // k: as many rows as q has columns
  rabbet_attention_view_t mask;        // broadcast axes have stride 0
  int64_t outside;  // the extent of the axis outside of the batch; mostly 1
} rabbet_attention_views_t;

// False if the group is not an attention. `dims` is indexed by value number.
bool rabbet_attention_match(const rabbet_group_t* group,
                            const rabbet_dims_t* dims,
                            rabbet_attention_t* out_attention);
// For known shapes; `host_values` as kernels get them, or NULL. False if a
// tensor cannot be expressed by strides.
bool rabbet_attention_views(const rabbet_group_t* group,
                            const rabbet_attention_t* attention,
                            const rabbet_dims_t* dims,
                            const int64_t* const* host_values,
                            rabbet_attention_views_t* out_views);

// Of a product of rank 5 or more: whether the tensors have views at the largest
// shapes, too, which may not join axes that these join, and whether the batch
// then has an axis outside of it.
rabbet_status_t rabbet_attention_holds(const rabbet_propose_t* propose,
                                       const rabbet_attention_t* attention,
                                       bool* out_holds, bool* out_outside);

// Whether the mask is a constant or a band, the same for all heads, that hides
// every key behind its query's place and nothing else. False where the
// constants' bytes are not known.
bool rabbet_attention_is_causal(const rabbet_group_t* group,
                                const rabbet_attention_t* attention,
                                const rabbet_dims_t* dims);

// ---- cuDNN's attention ------------------------------------------------------

// How a graph describes the mask: as a tensor that is added, or, where
// rabbet_attention_is_causal, by the places of queries and keys.
typedef enum rabbet_attention_graph_t {
  RABBET_ATTENTION_BY_BIAS,
  RABBET_ATTENTION_BY_PLACES,
} rabbet_attention_graph_t;
bool rabbet_attention_describe(const rabbet_group_t* group,
                               const rabbet_dims_t* dims,
                               rabbet_attention_graph_t kind,
                               rabbet_cudnn_graph_t* graph);
rabbet_status_t rabbet_attention_offer(const rabbet_propose_t* propose,
                                       rabbet_attention_graph_t kind,
                                       const rabbet_kernel_class_t* kernel,
                                       rabbet_candidate_sink_t sink);

#endif  // RABBET_SRC_DEVICE_CUDA_ATTENTION_ATTENTION_H_
