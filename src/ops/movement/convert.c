#include "ops/movement/convert.h"

#include <math.h>
#include <string.h>

static void int_bounds(rabbet_dtype_t dtype, double* low, double* high) {
  switch (dtype) {
    case RABBET_DTYPE_INT8:
      *low = INT8_MIN, *high = INT8_MAX;
      break;
    case RABBET_DTYPE_UINT8:
      *low = 0, *high = UINT8_MAX;
      break;
    case RABBET_DTYPE_INT32:
      *low = INT32_MIN, *high = INT32_MAX;
      break;
    default:
      *low = -0x1p63, *high = 0x1p63;
      break;
  }
}

static int64_t convert_truncate(rabbet_dtype_t dtype, double value) {
  double low = 0, high = 0;
  int_bounds(dtype, &low, &high);
  if (isnan(value)) return 0;
  if (value <= low)
    return dtype == RABBET_DTYPE_INT64 ? INT64_MIN : (int64_t)low;
  if (value >= high) {
    return dtype == RABBET_DTYPE_INT64 ? INT64_MAX : (int64_t)high;
  }
  return (int64_t)value;
}

// Conversions from and to DOUBLE that C does itself.
static bool convert_double(rabbet_dtype_t from, const void* source,
                           rabbet_dtype_t to, void* target, int64_t count) {
  if (from == RABBET_DTYPE_FLOAT && to == RABBET_DTYPE_DOUBLE) {
    for (int64_t i = 0; i < count; ++i)
      ((double*)target)[i] = ((const float*)source)[i];
  } else if (from == RABBET_DTYPE_DOUBLE && to == RABBET_DTYPE_FLOAT) {
    for (int64_t i = 0; i < count; ++i)
      ((float*)target)[i] = (float)((const double*)source)[i];
  } else if (from == RABBET_DTYPE_INT64 && to == RABBET_DTYPE_DOUBLE) {
    for (int64_t i = 0; i < count; ++i)
      ((double*)target)[i] = (double)((const int64_t*)source)[i];
  } else {
    return false;
  }
  return true;
}

// The conversions that weights need most, without a step by way of double.
static bool convert_short(rabbet_dtype_t from, const void* source,
                          rabbet_dtype_t to, void* target, int64_t count) {
  if (from == RABBET_DTYPE_FLOAT && to == RABBET_DTYPE_HALF) {
    for (int64_t i = 0; i < count; ++i)
      ((uint16_t*)target)[i] = rabbet_float_to_half(((const float*)source)[i]);
  } else if (from == RABBET_DTYPE_FLOAT && to == RABBET_DTYPE_BF16) {
    for (int64_t i = 0; i < count; ++i)
      ((uint16_t*)target)[i] = rabbet_float_to_bf16(((const float*)source)[i]);
  } else if (from == RABBET_DTYPE_HALF && to == RABBET_DTYPE_FLOAT) {
    for (int64_t i = 0; i < count; ++i)
      ((float*)target)[i] = rabbet_half_to_float(((const uint16_t*)source)[i]);
  } else if (from == RABBET_DTYPE_BF16 && to == RABBET_DTYPE_FLOAT) {
    for (int64_t i = 0; i < count; ++i)
      ((float*)target)[i] = rabbet_bf16_to_float(((const uint16_t*)source)[i]);
  } else {
    return false;
  }
  return true;
}

void rabbet_convert(rabbet_dtype_t from, const void* source, rabbet_dtype_t to,
                    void* target, int64_t count) {
  if (from == to) {
    size_t bits = (size_t)count * (size_t)rabbet_dtype_bits(from);
    if (count > 0) memmove(target, source, (bits + 7) / 8);
    return;
  }
  if (convert_short(from, source, to, target, count) ||
      convert_double(from, source, to, target, count))
    return;
  bool from_float = rabbet_dtype_is_float(from);
  bool to_float = rabbet_dtype_is_float(to);
  for (int64_t i = 0; i < count; ++i) {
    if (!from_float && !to_float) {
      int64_t value = rabbet_load_int64(from, source, i);
      if (to == RABBET_DTYPE_BOOL) value = value != 0;
      rabbet_store_int64(to, target, i, value);
    } else if (from_float && !to_float) {
      double value = rabbet_load_double(from, source, i);
      rabbet_store_int64(
          to, target, i,
          to == RABBET_DTYPE_BOOL ? value != 0 : convert_truncate(to, value));
    } else if (from == RABBET_DTYPE_INT64 && to == RABBET_DTYPE_FLOAT) {
      // Rounds once, to FLOAT: a step by way of double would round twice.
      ((float*)target)[i] = (float)((const int64_t*)source)[i];
    } else {
      rabbet_store_double(to, target, i, rabbet_load_double(from, source, i));
    }
  }
}
