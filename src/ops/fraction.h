// Elements of FLOAT tensors that are computed from shapes, followed as
// quotients of integer expressions: scales and lengths go through FLOAT and
// back.
//
// A constant such as 0.7f is taken for the simplest fraction that rounds to it,
// and nothing is rounded in between: floor(10 * 0.7f) is 7, and n * (m / n) is
// m for every n. So results are those of exact arithmetic, from which FLOAT
// may differ by its rounding.
#ifndef RABBET_SRC_OPS_FRACTION_H_
#define RABBET_SRC_OPS_FRACTION_H_

#include "ops/op.h"

// top / bottom, bottom above 0. top is NONE where no expression says it.
typedef struct rabbet_fraction_t {
  rabbet_expr_t top, bottom;
} rabbet_fraction_t;

static inline bool rabbet_fraction_exists(rabbet_fraction_t x) {
  return x.top != RABBET_EXPR_NONE;
}

// The simplest fraction within FLOAT's rounding of x: p / q, q above 0. False
// where x is not finite, or so large or small that there is none of use.
RABBET_PRIVATE_API bool rabbet_simplest_fraction(double x, int64_t* out_p,
                                                 int64_t* out_q);

// Element i of a followed tensor, of any type.
rabbet_status_t rabbet_fraction_at(const rabbet_op_infer_t* infer,
                                   const rabbet_op_value_t* value, int64_t i,
                                   rabbet_fraction_t* out_x);
// Gives a constant FLOAT tensor values, where each element has a fraction.
rabbet_status_t rabbet_fractions_of_constant(const rabbet_op_infer_t* infer,
                                             rabbet_op_value_t* value);

// op: of unary. NONE where no fraction says it.
RABBET_PRIVATE_API rabbet_status_t
rabbet_fraction_unary(const rabbet_op_infer_t* infer, int64_t op,
                      rabbet_fraction_t x, rabbet_fraction_t* out_y);
// op: of elementwise. Comparisons give 0 or 1. NONE where no fraction says it.
RABBET_PRIVATE_API rabbet_status_t rabbet_fraction_binary(
    const rabbet_op_infer_t* infer, int64_t op, rabbet_fraction_t a,
    rabbet_fraction_t b, rabbet_fraction_t* out_y);
// a / b, rounded towards 0; b is above 0.
rabbet_status_t rabbet_op_truncated(const rabbet_op_infer_t* infer,
                                    rabbet_expr_t a, rabbet_expr_t b,
                                    rabbet_expr_t* out_value);

// Room for `count` elements of an output, as fractions.
typedef struct rabbet_fractions_t {
  rabbet_expr_t *tops, *bottoms;
} rabbet_fractions_t;
rabbet_status_t rabbet_fractions_new(const rabbet_op_infer_t* infer,
                                     size_t count, rabbet_fractions_t* out);
// Makes them the output's values.
void rabbet_fractions_store(const rabbet_fractions_t* from, size_t count,
                            rabbet_op_value_t* output);

#endif  // RABBET_SRC_OPS_FRACTION_H_
