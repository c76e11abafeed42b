// A tensor in memory, not owned.
#ifndef RABBET_SRC_CORE_VIEW_H_
#define RABBET_SRC_CORE_VIEW_H_

#include "rabbet/types.h"

typedef struct rabbet_view_t {
  void* data;  // host or device address, as the user of the view knows
  rabbet_dtype_t dtype;
  rabbet_format_t format;
  rabbet_dims_t dims;  // logical, never padded
} rabbet_view_t;

static inline bool rabbet_dims_equal(const rabbet_dims_t* a,
                                     const rabbet_dims_t* b) {
  if (a->rank != b->rank) return false;
  for (int32_t i = 0; i < a->rank; ++i)
    if (a->d[i] != b->d[i]) return false;
  return true;
}

// One element of a LINEAR host tensor as a double (exact for all types but
// INT64 beyond 2^53) or as an integer (towards zero, saturated, NaN is 0); and
// back, rounding once to nearest even. From a double, integer types and the
// floating types without infinity saturate (NaN in an integer is 0; BOOL is
// value != 0); from an integer, narrower integer types keep the low bits.
RABBET_PRIVATE_API double rabbet_load_double(rabbet_dtype_t dtype,
                                             const void* data, int64_t index);
RABBET_PRIVATE_API int64_t rabbet_load_int64(rabbet_dtype_t dtype,
                                             const void* data, int64_t index);
RABBET_PRIVATE_API void rabbet_store_double(rabbet_dtype_t dtype, void* data,
                                            int64_t index, double value);
RABBET_PRIVATE_API void rabbet_store_int64(rabbet_dtype_t dtype, void* data,
                                           int64_t index, int64_t value);

// IEEE binary16 and bfloat16; round to nearest even, NaN kept quiet.
RABBET_PRIVATE_API float rabbet_half_to_float(uint16_t bits);
RABBET_PRIVATE_API uint16_t rabbet_float_to_half(float value);
RABBET_PRIVATE_API float rabbet_bf16_to_float(uint16_t bits);
RABBET_PRIVATE_API uint16_t rabbet_float_to_bf16(float value);

static inline bool rabbet_dtype_is_float(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16 || dtype == RABBET_DTYPE_FP8 ||
         dtype == RABBET_DTYPE_FP4 || dtype == RABBET_DTYPE_E8M0 ||
         dtype == RABBET_DTYPE_DOUBLE || dtype == RABBET_DTYPE_NF4;
}
static inline bool rabbet_dtype_is_integer(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_INT8 || dtype == RABBET_DTYPE_INT32 ||
         dtype == RABBET_DTYPE_INT64 || dtype == RABBET_DTYPE_UINT8 ||
         dtype == RABBET_DTYPE_INT4;
}

// Row-major strides in elements of LINEAR; for other formats the strides of
// the logical axes within a block-free reading, or UNSUPPORTED where no such
// strides exist (CHW2, CHW4, ... with more than one block).
RABBET_PRIVATE_API rabbet_status_t rabbet_view_strides(
    const rabbet_view_t* view, int64_t out_strides[RABBET_MAX_RANK]);
// Shape of the memory: padded, blocked axis last ([N, C/16, H, W, 16], ...).
RABBET_PRIVATE_API rabbet_status_t
rabbet_format_physical_dims(rabbet_format_t format, const rabbet_dims_t* dims,
                            rabbet_dims_t* out_physical);
// Whether both formats have the same memory layout for these dims, without
// padding: HWC and HWC8 with full blocks, or all formats if each channel is one
// element. Dims of -1 stand for any extent.
RABBET_PRIVATE_API bool rabbet_format_lies_alike(const rabbet_dims_t* dims,
                                                 rabbet_format_t a,
                                                 rabbet_format_t b);
// How many channels a block holds (1 for LINEAR, HWC), and whether blocks are
// innermost with the spatial axes outside each block (CHWx) or channels last.
typedef struct rabbet_format_info_t {
  const char* name;
  int block;           // channels to a block; pads C up to a multiple
  bool channels_last;  // HWC family
  int min_rank;
} rabbet_format_info_t;
// NULL for a number that is no format.
RABBET_PRIVATE_API const rabbet_format_info_t* rabbet_format_info(
    rabbet_format_t format);

#endif  // RABBET_SRC_CORE_VIEW_H_
