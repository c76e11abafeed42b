// Steps that the attention operators of com.microsoft have in common.
#ifndef RABBET_SRC_ONNX_MICROSOFT_MICROSOFT_ATTENTION_H_
#define RABBET_SRC_ONNX_MICROSOFT_MICROSOFT_ATTENTION_H_

#include "onnx/compositions.h"

// Axes of queries, keys and values.
enum {
  RABBET_ONNX_BATCH,
  RABBET_ONNX_HEADS,
  RABBET_ONNX_LENGTH,
  RABBET_ONNX_SIZE,
  RABBET_ONNX_HEADS_RANK
};

typedef struct rabbet_onnx_heads_t {
  rabbet_tensor_t *q, *k, *v;  // [batch, heads, length, size]
  rabbet_tensor_t* kept;       // BOOL, by score: which keys count; NULL: all
  rabbet_tensor_t* bias;       // added to the scores, or NULL
  rabbet_tensor_t* sink;       // keyless score [1, heads, 1, 1], or NULL
  double filter;               // added to scores that do not count
  double cap;                  // scores are cap tanh(score / cap); 0: no cap
} rabbet_onnx_heads_t;

// [batch, length, heads, size] as [batch, heads, length, size].
rabbet_tensor_t* rabbet_onnx_heads_first(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x);
// The attention's result [batch, length, heads * size]; the scale is the node's
// attribute, else 1 / sqrt(size).
rabbet_tensor_t* rabbet_onnx_attend(rabbet_onnx_node_t* node,
                                    const rabbet_onnx_heads_t* a);
// The causal mask: key `column` counts for query `row` if column <= row +
// before, the query's position among the keys. `before` is [1] or [batch, 1, 1,
// 1].
rabbet_tensor_t* rabbet_onnx_causal(rabbet_onnx_node_t* node,
                                    const rabbet_onnx_heads_t* a,
                                    rabbet_tensor_t* before);
// A part of an axis.
rabbet_tensor_t* rabbet_onnx_part(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  int axis, rabbet_onnx_index_t start,
                                  rabbet_onnx_index_t size);
// Rows of a table of cosines or sines at the positions, of rank 4. `heads` is
// the axis of the heads. Positions are [batch, length], or NULL for `before`
// ([1] or [batch, 1]) and what follows.
rabbet_tensor_t* rabbet_onnx_rotary_rows(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* table,
                                         rabbet_tensor_t* positions, int heads);
// Fails unless the attribute has this value; `why` is the meaning of other
// values.
void rabbet_onnx_expect_int(rabbet_onnx_node_t* node, const char* attr,
                            int64_t value, const char* why);
// Fails if the input is given.
void rabbet_onnx_expect_none(rabbet_onnx_node_t* node, size_t index,
                             const char* operand);

#endif  // RABBET_SRC_ONNX_MICROSOFT_MICROSOFT_ATTENTION_H_
