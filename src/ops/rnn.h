// Geometry and attributes of recurrent networks. C and CUDA C++ (which has the
// fixed-width types).
#ifndef RABBET_SRC_OPS_RNN_H_
#define RABBET_SRC_OPS_RNN_H_

#include "ops/enums.h"

#ifdef __cplusplus
#define RABBET_RNN_INLINE static __device__ __forceinline__
#else
#include "ops/op.h"
#define RABBET_RNN_INLINE static inline
#endif

enum {
  RABBET_RNN_INPUT = 0,
  RABBET_RNN_RECURRENCE = 1,
  RABBET_RNN_BIAS = 2,
  RABBET_RNN_HIDDEN = 3,
  RABBET_RNN_CELL = 4,
  RABBET_RNN_PEEPHOLES = 5,
  RABBET_RNN_LENGTHS = 6,
  RABBET_RNN_INPUTS = 7,
};
enum {
  RABBET_RNN_OUTPUT = 0,
  RABBET_RNN_LAST_HIDDEN = 1,
  RABBET_RNN_LAST_CELL = 2,
  RABBET_RNN_OUTPUTS = 3,
};

#define RABBET_RNN_CELLS(ROW) \
  ROW(RNN_CELL, RNN, 0)       \
  ROW(RNN_CELL, GRU, 1)       \
  ROW(RNN_CELL, LSTM, 2)

#define RABBET_RNN_DIRECTIONS(ROW) \
  ROW(RNN_DIRECTION, FORWARD, 0)   \
  ROW(RNN_DIRECTION, REVERSE, 1)   \
  ROW(RNN_DIRECTION, BIDIRECTIONAL, 2)

typedef enum rabbet_rnn_cell_t {
  RABBET_RNN_CELLS(RABBET_ENUM_NUMBER)
} rabbet_rnn_cell_t;
typedef enum rabbet_rnn_direction_t {
  RABBET_RNN_DIRECTIONS(RABBET_ENUM_NUMBER)
} rabbet_rnn_direction_t;

// A function of a cell that rabbet_activation_t lacks: alpha x + beta.
enum { RABBET_RNN_AFFINE = 64 };
// The functions of a direction: of gates, of the new state, of an LSTM's
// output. An RNN has the first one only, a GRU two.
enum { RABBET_RNN_FUNCTIONS = 3 };

typedef struct rabbet_rnn_function_t {
  int32_t type;  // rabbet_activation_t or RABBET_RNN_AFFINE
  float alpha, beta;
} rabbet_rnn_function_t;

// Kernels on CUDA have it as parameter.
typedef struct rabbet_rnn_t {
  int64_t steps, batch, hidden;
  int32_t cell;   // rabbet_rnn_cell_t
  int32_t gates;  // of a cell: 1, 3 or 4
  int32_t directions;
  int32_t is_reverse;  // the only direction runs from the last step
  int32_t batch_first, linear_before_reset, input_forget;
  float clip;  // of functions' arguments; infinity: none
  rabbet_rnn_function_t functions[2][RABBET_RNN_FUNCTIONS];
} rabbet_rnn_t;

// The position of a sequence's step among rows of inputs and outputs.
RABBET_RNN_INLINE int64_t rabbet_rnn_row(const rabbet_rnn_t* r, int64_t step,
                                         int64_t sequence) {
  return r->batch_first ? sequence * r->steps + step
                        : step * r->batch + sequence;
}
// The position of a sequence's state among those of all directions.
RABBET_RNN_INLINE int64_t rabbet_rnn_state(const rabbet_rnn_t* r,
                                           int32_t direction,
                                           int64_t sequence) {
  return r->batch_first ? sequence * r->directions + direction
                        : direction * r->batch + sequence;
}
// The step that a direction computes as number `i` of a sequence of `length`.
RABBET_RNN_INLINE int64_t rabbet_rnn_step(const rabbet_rnn_t* r,
                                          int32_t direction, int64_t i,
                                          int64_t length) {
  return direction == 1 || r->is_reverse ? length - 1 - i : i;
}
// Lengths beyond the input mean all of it, negative ones nothing.
RABBET_RNN_INLINE int64_t rabbet_rnn_length(const rabbet_rnn_t* r,
                                            int64_t length) {
  return length < 0 ? 0 : length > r->steps ? r->steps : length;
}

#ifndef __cplusplus
// From completed attributes and the inputs' dims (NULL: omitted); OUT_OF_RANGE
// unless these fit each other: dynamic ones are checked at run time. Without
// the input's there are no steps and sequences.
RABBET_PRIVATE_API rabbet_status_t rabbet_rnn_read(
    const rabbet_attr_t* attrs, size_t attr_count,
    const rabbet_dims_t* const dims[RABBET_RNN_INPUTS], rabbet_rnn_t* out_rnn);
// f(x), where x has been clipped.
RABBET_PRIVATE_API double rabbet_rnn_apply(
    const rabbet_rnn_function_t* function, double x);
// The functions that a direction of such a cell has.
static inline int rabbet_rnn_function_count(int64_t cell) {
  return cell == RABBET_RNN_CELL_RNN ? 1 : cell == RABBET_RNN_CELL_GRU ? 2 : 3;
}
#endif

#endif  // RABBET_SRC_OPS_RNN_H_
