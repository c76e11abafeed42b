// Element types: their numbers, and where networks have them.
#include <math.h>
#include <string.h>

#include "onnx/file/model.h"

static const rabbet_onnx_type_t onnx_types[] = {
#define RABBET_ONNX_TYPE(number, name, dtype, bits, list, holds)         \
  [number] = {name, RABBET_DTYPE_##dtype, bits, RABBET_ONNX_LIST_##list, \
              RABBET_ONNX_HOLDS_##holds},
#include "onnx/file/types.def"
#undef RABBET_ONNX_TYPE
};

const rabbet_onnx_type_t* rabbet_onnx_type(int32_t number) {
  size_t count = sizeof(onnx_types) / sizeof(onnx_types[0]);
  if (number < 0 || (size_t)number >= count) return NULL;
  const rabbet_onnx_type_t* type = &onnx_types[number];
  return type->name ? type : NULL;
}

const char* rabbet_onnx_type_name(int32_t onnx_type) {
  const rabbet_onnx_type_t* type = rabbet_onnx_type(onnx_type);
  return type ? type->name : "unknown";
}

int32_t rabbet_onnx_type_number(const char* name) {
  int32_t count = sizeof(onnx_types) / sizeof(onnx_types[0]);
  for (int32_t i = 0; i < count; ++i)
    if (onnx_types[i].name && !strcmp(onnx_types[i].name, name)) return i;
  return 0;
}

int32_t rabbet_onnx_type_of(rabbet_dtype_t dtype) {
  int32_t count = sizeof(onnx_types) / sizeof(onnx_types[0]);
  for (int32_t i = 0; i < count; ++i)
    if (onnx_types[i].name && onnx_types[i].dtype == dtype &&
        onnx_types[i].holds == RABBET_ONNX_HOLDS_ITSELF)
      return i;
  return 0;
}

rabbet_status_t rabbet_onnx_dtype(const rabbet_onnx_storage_t* storage,
                                  int32_t onnx_type, rabbet_dtype_t* out_dtype,
                                  bool* out_narrowed) {
  *out_dtype = RABBET_DTYPE_NONE;
  if (out_narrowed) *out_narrowed = false;
  const rabbet_onnx_type_t* type = rabbet_onnx_type(onnx_type);
  if (!type || type->dtype == RABBET_DTYPE_NONE) {
    return RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "element type %s (%d) cannot be used; BOOL, integers and floating "
        "types can, but no strings and complex numbers",
        rabbet_onnx_type_name(onnx_type), (int)onnx_type);
  }
  bool narrows = type->dtype == RABBET_DTYPE_DOUBLE && !storage->keeps_double;
  *out_dtype = narrows ? RABBET_DTYPE_FLOAT : type->dtype;
  if (out_narrowed) *out_narrowed = narrows;
  return rabbet_ok();
}

// ---- Real numbers of 8 bits and fewer --------------------------------------

static const struct {
  const char* name;
  rabbet_onnx_real_t real;
} onnx_reals[] = {
    {"FLOAT8E4M3FN", {3, 7, 448, RABBET_ONNX_REAL_NAN}},
    {"FLOAT8E4M3FNUZ", {3, 8, 240, RABBET_ONNX_REAL_UNSIGNED_ZERO}},
    {"FLOAT8E5M2", {2, 15, 57344, RABBET_ONNX_REAL_INFINITE}},
    {"FLOAT8E5M2FNUZ", {2, 16, 57344, RABBET_ONNX_REAL_UNSIGNED_ZERO}},
    {"FLOAT6E2M3", {3, 1, 7.5, RABBET_ONNX_REAL_FINITE}},
    {"FLOAT6E3M2", {2, 3, 28, RABBET_ONNX_REAL_FINITE}},
    {"FLOAT4E2M1", {1, 1, 6, RABBET_ONNX_REAL_FINITE}},
};

const rabbet_onnx_real_t* rabbet_onnx_real(const rabbet_onnx_type_t* type) {
  for (size_t i = 0; type && i < sizeof(onnx_reals) / sizeof(onnx_reals[0]);
       ++i)
    if (!strcmp(onnx_reals[i].name, type->name)) return &onnx_reals[i].real;
  return NULL;
}

double rabbet_onnx_real_value(const rabbet_onnx_type_t* type, uint32_t code) {
  const rabbet_onnx_real_t* real = rabbet_onnx_real(type);
  uint32_t sign = 1u << (type->bits - 1), rest = code & (sign - 1);
  int exponent = (int)(rest >> real->mantissa_bits);
  uint32_t mantissa = rest & ((1u << real->mantissa_bits) - 1);
  if (exponent > 0) mantissa += 1u << real->mantissa_bits;
  double size = ldexp(mantissa, (exponent > 0 ? exponent : 1) - real->bias -
                                    real->mantissa_bits);
  if (size > real->largest) {
    bool infinite = real->specials == RABBET_ONNX_REAL_INFINITE &&
                    mantissa == 1u << real->mantissa_bits;
    size = infinite ? INFINITY : NAN;
  }
  if (real->specials == RABBET_ONNX_REAL_UNSIGNED_ZERO && code == sign)
    return NAN;
  return code & sign ? -size : size;
}
