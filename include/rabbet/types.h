// Data types, tensor formats, dimensions: types that all headers use.
//
// How structures cross the border between Rabbet and its users (programs and
// plugins), so that each side can be compiled against an older or a newer
// header than the other:
//
// - A structure that is passed by pointer, one at a time, begins with
//   `struct_size`, which its maker sets to its sizeof. Fields are only ever
//   appended, and zero keeps the behaviour from before the field existed.
//   Rabbet takes a smaller one as if the rest were zero. The rest of a larger
//   one must be zero, else it is refused with both sizes, as it asks for
//   something that this Rabbet does not know. A plugin that was compiled for a
//   newer Rabbet checks `struct_size` before it reads a new field.
// - Structures that a function fills for its caller begin with it, too: the
//   caller sets it, and gets as much as fits.
// - Structures that are passed by value are frozen: allocators, loggers,
//   progress, selectors, listeners, profilers, sinks, instances of plugins;
//   and so are the values dims, weights, type and format, and timing keys.
//   More would be a new structure with a function of its own.
// - Elements of arrays of every run or every query (views, inputs, outputs,
//   tensors, algorithms, carried code), attributes, and a plugin's call have a
//   fixed size with reserved room at the end, which is zero.
// - Arrays of descriptions (fields, images, arguments, initializers) come with
//   the size of their elements beside the count, under the rules of
//   `struct_size`.
// - A structure that a getter returns by pointer belongs to Rabbet and may
//   grow at its end: read it where it is, and copy fields, not the structure.
//
// A structure that may grow has no padding at its end, as padding bytes, which
// nobody sets, would become fields: `reserved` stands there, and is zero.
#ifndef RABBET_TYPES_H_
#define RABBET_TYPES_H_

#include "rabbet/base.h"
#include "rabbet/status.h"

RABBET_EXTERN_C_BEGIN

// Numbers are stable (plan files) and those that users of TensorRT know.
typedef enum rabbet_dtype_t {
  RABBET_DTYPE_NONE = -1,
  RABBET_DTYPE_FLOAT = 0,
  RABBET_DTYPE_HALF = 1,
  RABBET_DTYPE_INT8 = 2,
  RABBET_DTYPE_INT32 = 3,
  RABBET_DTYPE_BOOL = 4,
  RABBET_DTYPE_UINT8 = 5,
  RABBET_DTYPE_FP8 = 6,  // E4M3
  RABBET_DTYPE_BF16 = 7,
  RABBET_DTYPE_INT64 = 8,
  RABBET_DTYPE_INT4 = 9,  // two in a byte
  RABBET_DTYPE_FP4 = 10,  // E2M1, two in a byte
  RABBET_DTYPE_E8M0 = 11,
  RABBET_DTYPE_DOUBLE = 12,  // ours: computed on the CPU
  RABBET_DTYPE_NF4 = 13,     // ours: 16 quantiles of a normal distribution
  RABBET_DTYPE_COUNT = 14,
} rabbet_dtype_t;

// How a tensor's elements lie in memory. LINEAR is row-major; the others put
// the channel (axis 1) innermost, whole (HWC, DHWC) or in blocks of the number
// named, padded up with zeros: CHW16 is [N, ceil(C/16), H, W, 16]; HWC8 is
// [N, H, W, ceil(C/8)*8]. Needs rank >= 3 (counting N), DHWC and CDHW rank 5.
typedef enum rabbet_format_t {
  RABBET_FORMAT_NONE = -1,
  RABBET_FORMAT_LINEAR = 0,
  RABBET_FORMAT_CHW2 = 1,
  RABBET_FORMAT_HWC8 = 2,
  RABBET_FORMAT_CHW4 = 3,
  RABBET_FORMAT_CHW16 = 4,
  RABBET_FORMAT_CHW32 = 5,
  RABBET_FORMAT_DHWC8 = 6,
  RABBET_FORMAT_CDHW32 = 7,
  RABBET_FORMAT_HWC = 8,
  RABBET_FORMAT_DLA_LINEAR = 9,
  RABBET_FORMAT_DLA_HWC4 = 10,
  RABBET_FORMAT_HWC16 = 11,
  RABBET_FORMAT_DHWC = 12,
  RABBET_FORMAT_CHW8 = 64,  // ours: the layout of AVX2 convolutions
} rabbet_format_t;

// How a loop ends: after a number of iterations, or before the first one for
// which a condition is false.
typedef enum rabbet_trip_limit_t {
  RABBET_TRIP_LIMIT_COUNT = 0,
  RABBET_TRIP_LIMIT_WHILE = 1,
} rabbet_trip_limit_t;

// The results of a loop: a recurrence's value at the end, or a value of all
// iterations along a new axis, the first or the last iteration first.
typedef enum rabbet_loop_output_t {
  RABBET_LOOP_OUTPUT_LAST_VALUE = 0,
  RABBET_LOOP_OUTPUT_CONCATENATE = 1,
  RABBET_LOOP_OUTPUT_REVERSE = 2,
} rabbet_loop_output_t;

#define RABBET_MAX_RANK 8

// -1 is a dimension that is not known yet (dynamic).
typedef struct rabbet_dims_t {
  int32_t rank;  // -1: unknown rank
  int64_t d[RABBET_MAX_RANK];
} rabbet_dims_t;

// Host data of a constant: `count` elements of `dtype`, row-major, borrowed.
typedef struct rabbet_weights_t {
  rabbet_dtype_t dtype;
  const void* data;
  int64_t count;
} rabbet_weights_t;

// "FLOAT", "HALF", ...; "?" for a number that is no type. Static storage.
RABBET_API const char* rabbet_dtype_name(rabbet_dtype_t dtype);
// Accepts FLOAT, FP32, float32, HALF, FP16, ... in any case.
RABBET_API rabbet_status_t rabbet_dtype_parse(const char* text,
                                              rabbet_dtype_t* out_dtype);
RABBET_API int rabbet_dtype_bits(rabbet_dtype_t dtype);

RABBET_API const char* rabbet_format_name(rabbet_format_t format);
RABBET_API rabbet_status_t rabbet_format_parse(const char* text,
                                               rabbet_format_t* out_format);

// Product of the dimensions (1 for rank 0); OUT_OF_RANGE on overflow or on a
// negative dimension.
RABBET_API rabbet_status_t rabbet_dims_count(const rabbet_dims_t* dims,
                                             int64_t* out_count);
// Bytes of a tensor with its format's padding; checked.
RABBET_API rabbet_status_t rabbet_tensor_bytes(rabbet_dtype_t dtype,
                                               rabbet_format_t format,
                                               const rabbet_dims_t* dims,
                                               size_t* out_bytes);
// "(2, 3, -1)" into a buffer that always ends up terminated.
RABBET_API const char* rabbet_dims_print(const rabbet_dims_t* dims,
                                         char* buffer, size_t capacity);

// Libraries that kernels come from. Numbers of TensorRT's TacticSource.
typedef enum rabbet_tactic_source_t {
  RABBET_TACTIC_CUBLAS = 0,     // cuBLASLt, as CUBLAS_LT
  RABBET_TACTIC_CUBLAS_LT = 1,  // cuBLASLt
  RABBET_TACTIC_CUDNN = 2,
  RABBET_TACTIC_EDGE_MASK_CONVOLUTIONS = 3,  // none here
  RABBET_TACTIC_JIT_CONVOLUTIONS = 4,        // none here
} rabbet_tactic_source_t;

RABBET_EXTERN_C_END
#endif  // RABBET_TYPES_H_
