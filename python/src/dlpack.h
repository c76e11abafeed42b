// DLPack 1.1: the layout of the structures that cross between libraries
// (https://dmlc.github.io/dlpack/latest/c_api.html).
#ifndef RABBET_PYTHON_SRC_DLPACK_H_
#define RABBET_PYTHON_SRC_DLPACK_H_

#include <stdint.h>

enum { RABBET_DL_MAJOR = 1, RABBET_DL_MINOR = 1 };
enum { RABBET_DL_CPU = 1, RABBET_DL_CUDA = 2 };
enum {
  RABBET_DL_INT = 0,
  RABBET_DL_UINT = 1,
  RABBET_DL_FLOAT = 2,
  RABBET_DL_BFLOAT = 4,
  RABBET_DL_BOOL = 6,
  RABBET_DL_FLOAT8_E4M3FN = 10,
  RABBET_DL_FLOAT8_E8M0FNU = 14,
  RABBET_DL_FLOAT4_E2M1FN = 17,
};
enum { RABBET_DL_FLAG_READ_ONLY = 1 };

typedef struct rabbet_dl_device_t {
  int32_t type;
  int32_t id;
} rabbet_dl_device_t;

typedef struct rabbet_dl_dtype_t {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} rabbet_dl_dtype_t;

typedef struct rabbet_dl_tensor_t {
  void* data;
  rabbet_dl_device_t device;
  int32_t rank;
  rabbet_dl_dtype_t dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; NULL: row-major
  uint64_t byte_offset;
} rabbet_dl_tensor_t;

typedef struct rabbet_dl_managed_t {
  rabbet_dl_tensor_t tensor;
  void* context;
  void (*deleter)(struct rabbet_dl_managed_t* self);
} rabbet_dl_managed_t;

typedef struct rabbet_dl_versioned_t {
  uint32_t major, minor;
  void* context;
  void (*deleter)(struct rabbet_dl_versioned_t* self);
  uint64_t flags;
  rabbet_dl_tensor_t tensor;
} rabbet_dl_versioned_t;

#endif  // RABBET_PYTHON_SRC_DLPACK_H_
