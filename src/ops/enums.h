// Enumerations of operators' attributes. The numbers are those of TensorRT's
// enums of the same names. Plans and models contain them, so none is ever
// reused.
//
// ROW(kind, name, number) expands to the enum, the descriptor's enumerators
// and, elsewhere, tables by number. CUDA C++ includes this file, too.
#ifndef RABBET_SRC_OPS_ENUMS_H_
#define RABBET_SRC_OPS_ENUMS_H_

#define RABBET_ACTIVATIONS(ROW)         \
  ROW(ACTIVATION, RELU, 0)              \
  ROW(ACTIVATION, SIGMOID, 1)           \
  ROW(ACTIVATION, TANH, 2)              \
  ROW(ACTIVATION, LEAKY_RELU, 3)        \
  ROW(ACTIVATION, ELU, 4)               \
  ROW(ACTIVATION, SELU, 5)              \
  ROW(ACTIVATION, SOFTSIGN, 6)          \
  ROW(ACTIVATION, SOFTPLUS, 7)          \
  ROW(ACTIVATION, CLIP, 8)              \
  ROW(ACTIVATION, HARD_SIGMOID, 9)      \
  ROW(ACTIVATION, SCALED_TANH, 10)      \
  ROW(ACTIVATION, THRESHOLDED_RELU, 11) \
  ROW(ACTIVATION, GELU_ERF, 12)         \
  ROW(ACTIVATION, GELU_TANH, 13)

#define RABBET_UNARIES(ROW) \
  ROW(UNARY, EXP, 0)        \
  ROW(UNARY, LOG, 1)        \
  ROW(UNARY, SQRT, 2)       \
  ROW(UNARY, RECIP, 3)      \
  ROW(UNARY, ABS, 4)        \
  ROW(UNARY, NEG, 5)        \
  ROW(UNARY, SIN, 6)        \
  ROW(UNARY, COS, 7)        \
  ROW(UNARY, TAN, 8)        \
  ROW(UNARY, SINH, 9)       \
  ROW(UNARY, COSH, 10)      \
  ROW(UNARY, ASIN, 11)      \
  ROW(UNARY, ACOS, 12)      \
  ROW(UNARY, ATAN, 13)      \
  ROW(UNARY, ASINH, 14)     \
  ROW(UNARY, ACOSH, 15)     \
  ROW(UNARY, ATANH, 16)     \
  ROW(UNARY, CEIL, 17)      \
  ROW(UNARY, FLOOR, 18)     \
  ROW(UNARY, ERF, 19)       \
  ROW(UNARY, NOT, 20)       \
  ROW(UNARY, SIGN, 21)      \
  ROW(UNARY, ROUND, 22)     \
  ROW(UNARY, ISINF, 23)     \
  ROW(UNARY, ISNAN, 24)

#define RABBET_ELEMENTWISES(ROW) \
  ROW(ELEMENTWISE, SUM, 0)       \
  ROW(ELEMENTWISE, PROD, 1)      \
  ROW(ELEMENTWISE, MAX, 2)       \
  ROW(ELEMENTWISE, MIN, 3)       \
  ROW(ELEMENTWISE, SUB, 4)       \
  ROW(ELEMENTWISE, DIV, 5)       \
  ROW(ELEMENTWISE, POW, 6)       \
  ROW(ELEMENTWISE, FLOOR_DIV, 7) \
  ROW(ELEMENTWISE, AND, 8)       \
  ROW(ELEMENTWISE, OR, 9)        \
  ROW(ELEMENTWISE, XOR, 10)      \
  ROW(ELEMENTWISE, EQUAL, 11)    \
  ROW(ELEMENTWISE, GREATER, 12)  \
  ROW(ELEMENTWISE, LESS, 13)

#define RABBET_REDUCES(ROW) \
  ROW(REDUCE, SUM, 0)       \
  ROW(REDUCE, PROD, 1)      \
  ROW(REDUCE, MAX, 2)       \
  ROW(REDUCE, MIN, 3)       \
  ROW(REDUCE, AVG, 4)

#define RABBET_COLLECTIVES(ROW)      \
  ROW(COLLECTIVE, ALL_REDUCE, 0)     \
  ROW(COLLECTIVE, ALL_GATHER, 1)     \
  ROW(COLLECTIVE, BROADCAST, 2)      \
  ROW(COLLECTIVE, REDUCE, 3)         \
  ROW(COLLECTIVE, REDUCE_SCATTER, 4) \
  ROW(COLLECTIVE, ALL_TO_ALL, 5)     \
  ROW(COLLECTIVE, GATHER, 6)         \
  ROW(COLLECTIVE, SCATTER, 7)

#define RABBET_POOLINGS(ROW) \
  ROW(POOLING, MAX, 0)       \
  ROW(POOLING, AVERAGE, 1)   \
  ROW(POOLING, MAX_AVERAGE_BLEND, 2)

// VECTOR: the operand is a batch of vectors, without a matrix axis.
#define RABBET_MATRIX_OPS(ROW) \
  ROW(MATRIX, NONE, 0)         \
  ROW(MATRIX, TRANSPOSE, 1)    \
  ROW(MATRIX, VECTOR, 2)

#define RABBET_GATHERS(ROW) \
  ROW(GATHER, DEFAULT, 0)   \
  ROW(GATHER, ELEMENT, 1)   \
  ROW(GATHER, ND, 2)

#define RABBET_SAMPLES(ROW)     \
  ROW(SAMPLE, STRICT_BOUNDS, 0) \
  ROW(SAMPLE, WRAP, 1)          \
  ROW(SAMPLE, CLAMP, 2)         \
  ROW(SAMPLE, FILL, 3)          \
  ROW(SAMPLE, REFLECT, 4)

#define RABBET_PADDINGS(ROW)           \
  ROW(PADDING, EXPLICIT_ROUND_DOWN, 0) \
  ROW(PADDING, EXPLICIT_ROUND_UP, 1)   \
  ROW(PADDING, SAME_UPPER, 2)          \
  ROW(PADDING, SAME_LOWER, 3)

#define RABBET_INTERPOLATIONS(ROW) \
  ROW(INTERPOLATION, NEAREST, 0)   \
  ROW(INTERPOLATION, LINEAR, 1)    \
  ROW(INTERPOLATION, CUBIC, 2)

// From 64 on: ours.
#define RABBET_COORDINATES(ROW)               \
  ROW(COORDINATE, ALIGN_CORNERS, 0)           \
  ROW(COORDINATE, ASYMMETRIC, 1)              \
  ROW(COORDINATE, HALF_PIXEL, 2)              \
  ROW(COORDINATE, HALF_PIXEL_SYMMETRIC, 64)   \
  ROW(COORDINATE, HALF_PIXEL_FOR_NEAREST, 65) \
  ROW(COORDINATE, CROP, 66)

#define RABBET_TOPKS(ROW) \
  ROW(TOPK, MAX, 0)       \
  ROW(TOPK, MIN, 1)

#define RABBET_SCATTERS(ROW) \
  ROW(SCATTER, ELEMENT, 0)   \
  ROW(SCATTER, ND, 1)

// Ours.
#define RABBET_SCATTER_REDUCTIONS(ROW) \
  ROW(SCATTER_REDUCTION, NONE, 0)      \
  ROW(SCATTER_REDUCTION, ADD, 1)       \
  ROW(SCATTER_REDUCTION, MUL, 2)       \
  ROW(SCATTER_REDUCTION, MIN, 3)       \
  ROW(SCATTER_REDUCTION, MAX, 4)

// From 64 on: ours.
#define RABBET_KV_CACHES(ROW) \
  ROW(KV_CACHE, LINEAR, 0)    \
  ROW(KV_CACHE, CIRCULAR, 64)

#define RABBET_MOE_ACTS(ROW) \
  ROW(MOE_ACT, NONE, 0)      \
  ROW(MOE_ACT, SILU, 1)

#define RABBET_FILLS(ROW)      \
  ROW(FILL, LINSPACE, 0)       \
  ROW(FILL, RANDOM_UNIFORM, 1) \
  ROW(FILL, RANDOM_NORMAL, 2)

#define RABBET_SELECTORS(ROW) \
  ROW(SELECTOR, FORMULA, 0)   \
  ROW(SELECTOR, UPPER, 1)

#define RABBET_ROUNDS(ROW) \
  ROW(ROUND, HALF_UP, 0)   \
  ROW(ROUND, HALF_DOWN, 1) \
  ROW(ROUND, FLOOR, 2)     \
  ROW(ROUND, CEIL, 3)

// A list of rabbet_op_enumerator_t ends with {NULL, 0}.
#define RABBET_ENUM_NUMBER(kind, name, number) RABBET_##kind##_##name = number,
#define RABBET_ENUMERATOR(kind, name, number) {#name, number},

typedef enum rabbet_activation_t {
  RABBET_ACTIVATIONS(RABBET_ENUM_NUMBER) RABBET_ACTIVATION_COUNT
} rabbet_activation_t;
typedef enum rabbet_unary_t {
  RABBET_UNARIES(RABBET_ENUM_NUMBER) RABBET_UNARY_COUNT
} rabbet_unary_t;
typedef enum rabbet_elementwise_t {
  RABBET_ELEMENTWISES(RABBET_ENUM_NUMBER) RABBET_ELEMENTWISE_COUNT
} rabbet_elementwise_t;
typedef enum rabbet_reduce_t {
  RABBET_REDUCES(RABBET_ENUM_NUMBER) RABBET_REDUCE_COUNT
} rabbet_reduce_t;
typedef enum rabbet_collective_op_t {
  RABBET_COLLECTIVES(RABBET_ENUM_NUMBER) RABBET_COLLECTIVE_COUNT
} rabbet_collective_op_t;
typedef enum rabbet_pooling_t {
  RABBET_POOLINGS(RABBET_ENUM_NUMBER) RABBET_POOLING_COUNT
} rabbet_pooling_t;
typedef enum rabbet_matrix_op_t {
  RABBET_MATRIX_OPS(RABBET_ENUM_NUMBER) RABBET_MATRIX_OP_COUNT
} rabbet_matrix_op_t;
typedef enum rabbet_gather_mode_t {
  RABBET_GATHERS(RABBET_ENUM_NUMBER) RABBET_GATHER_COUNT
} rabbet_gather_mode_t;
typedef enum rabbet_sample_mode_t {
  RABBET_SAMPLES(RABBET_ENUM_NUMBER) RABBET_SAMPLE_COUNT
} rabbet_sample_mode_t;
typedef enum rabbet_padding_mode_t {
  RABBET_PADDINGS(RABBET_ENUM_NUMBER) RABBET_PADDING_COUNT
} rabbet_padding_mode_t;
typedef enum rabbet_interpolation_t {
  RABBET_INTERPOLATIONS(RABBET_ENUM_NUMBER)
} rabbet_interpolation_t;
typedef enum rabbet_coordinate_t {
  RABBET_COORDINATES(RABBET_ENUM_NUMBER)
} rabbet_coordinate_t;
typedef enum rabbet_topk_t { RABBET_TOPKS(RABBET_ENUM_NUMBER) } rabbet_topk_t;
typedef enum rabbet_scatter_mode_t {
  RABBET_SCATTERS(RABBET_ENUM_NUMBER)
} rabbet_scatter_mode_t;
typedef enum rabbet_scatter_reduction_t {
  RABBET_SCATTER_REDUCTIONS(RABBET_ENUM_NUMBER)
} rabbet_scatter_reduction_t;
typedef enum rabbet_kv_cache_t {
  RABBET_KV_CACHES(RABBET_ENUM_NUMBER)
} rabbet_kv_cache_t;
typedef enum rabbet_moe_act_t {
  RABBET_MOE_ACTS(RABBET_ENUM_NUMBER)
} rabbet_moe_act_t;
typedef enum rabbet_fill_t { RABBET_FILLS(RABBET_ENUM_NUMBER) } rabbet_fill_t;
typedef enum rabbet_selector_t {
  RABBET_SELECTORS(RABBET_ENUM_NUMBER)
} rabbet_selector_t;
typedef enum rabbet_round_t {
  RABBET_ROUNDS(RABBET_ENUM_NUMBER)
} rabbet_round_t;

#endif  // RABBET_SRC_OPS_ENUMS_H_
