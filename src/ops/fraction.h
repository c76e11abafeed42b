// Elements of FLOAT and DOUBLE tensors computed from shapes, as quotients of
// integer expressions: exporters compute scales and lengths in FLOAT and
// convert them back.
//
// A constant such as 0.7f becomes the simplest fraction that rounds to it.
// Numbers are computed as kernels do it, rounded to the type. What depends on
// extents that are not known is not rounded: floor(n * 0.7f) is 7 for 10, and
// n * (m / n) is m for every n. Such results are exact; arithmetic of FLOAT or
// DOUBLE may differ from them by rounding.
#ifndef RABBET_SRC_OPS_FRACTION_H_
#define RABBET_SRC_OPS_FRACTION_H_

#include "ops/op.h"

// top / bottom, with bottom > 0. top is NONE if the value is unknown.
typedef struct rabbet_fraction_t {
  rabbet_expr_t top, bottom;
} rabbet_fraction_t;

static inline bool rabbet_fraction_exists(rabbet_fraction_t x) {
  return x.top != RABBET_EXPR_NONE;
}

// The simplest fraction p / q, q > 0, that rounds to x in FLOAT. False if x is
// not finite, or too large or too small for one.
RABBET_PRIVATE_API bool rabbet_simplest_fraction(double x, int64_t* out_p,
                                                 int64_t* out_q);

// Element i of a tensor with known values, of any type.
rabbet_status_t rabbet_fraction_at(const rabbet_op_infer_t* infer,
                                   const rabbet_op_value_t* value, int64_t i,
                                   rabbet_fraction_t* out_x);
// Sets the values of a constant FLOAT or DOUBLE tensor if each element has a
// fraction; of DOUBLE one that rounds to it in DOUBLE.
rabbet_status_t rabbet_fractions_of_constant(const rabbet_op_infer_t* infer,
                                             rabbet_op_value_t* value);

// op: a rabbet_unary_t. The result is NONE if no fraction represents it.
RABBET_PRIVATE_API rabbet_status_t
rabbet_fraction_unary(const rabbet_op_infer_t* infer, int64_t op,
                      rabbet_fraction_t x, rabbet_fraction_t* out_y);
// op: a rabbet_elementwise_t; comparisons give 0 or 1. The result is NONE if no
// fraction represents it.
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
// Stores them as the output's values.
void rabbet_fractions_store(const rabbet_fractions_t* from, size_t count,
                            rabbet_op_value_t* output);

#endif  // RABBET_SRC_OPS_FRACTION_H_
