// Named values: attributes of operators and fields of plugins.
#ifndef RABBET_ATTR_H_
#define RABBET_ATTR_H_

#include "rabbet/types.h"

RABBET_EXTERN_C_BEGIN

// Numbers are stable (plan files).
typedef enum rabbet_attr_type_t {
  RABBET_ATTR_INT = 1,      // data: int64_t[1]
  RABBET_ATTR_FLOAT = 2,    // data: double[1]
  RABBET_ATTR_BOOL = 3,     // data: int64_t[1], 0 or 1
  RABBET_ATTR_STRING = 4,   // data: count bytes of UTF-8 (and a NUL after)
  RABBET_ATTR_BYTES = 5,    // data: count bytes
  RABBET_ATTR_INTS = 6,     // data: int64_t[count]
  RABBET_ATTR_FLOATS = 7,   // data: double[count]
  RABBET_ATTR_BOOLS = 8,    // data: int64_t[count], each 0 or 1
  RABBET_ATTR_STRINGS = 9,  // data: count NUL-terminated strings, packed
  RABBET_ATTR_TENSOR = 10,  // data: elements of dtype, row-major in dims
} rabbet_attr_type_t;
// Of a plugin's field, never of an attribute: any type.
#define RABBET_ATTR_ANY ((rabbet_attr_type_t)0)

// A view; the function that returns it says how long it lives. Enumerations and
// data types are INT.
typedef struct rabbet_attr_t {
  const char* name;
  rabbet_attr_type_t type;
  const void* data;
  size_t count;  // elements (bytes for STRING, BYTES; elements of TENSOR)
  rabbet_dtype_t dtype;  // TENSOR only
  rabbet_dims_t dims;    // TENSOR only
  uint64_t reserved[2];  // 0
} rabbet_attr_t;

// "int", "list of floats", ...
RABBET_API const char* rabbet_attr_type_name(rabbet_attr_type_t type);
// Bytes at `data`.
RABBET_API size_t rabbet_attr_bytes(const rabbet_attr_t* attr);
// First attribute of that name, or NULL.
RABBET_API const rabbet_attr_t* rabbet_attr_find(const rabbet_attr_t* attrs,
                                                 size_t count,
                                                 const char* name);

RABBET_EXTERN_C_END
#endif  // RABBET_ATTR_H_
