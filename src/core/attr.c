#include "rabbet/attr.h"

#include <string.h>

const char* rabbet_attr_type_name(rabbet_attr_type_t type) {
  static const char* const names[] = {
      [RABBET_ATTR_ANY] = "anything",
      [RABBET_ATTR_INT] = "int",
      [RABBET_ATTR_FLOAT] = "float",
      [RABBET_ATTR_BOOL] = "bool",
      [RABBET_ATTR_STRING] = "string",
      [RABBET_ATTR_BYTES] = "bytes",
      [RABBET_ATTR_INTS] = "list of ints",
      [RABBET_ATTR_FLOATS] = "list of floats",
      [RABBET_ATTR_BOOLS] = "list of bools",
      [RABBET_ATTR_STRINGS] = "list of strings",
      [RABBET_ATTR_TENSOR] = "tensor",
  };
  size_t count = sizeof(names) / sizeof(names[0]);
  return (size_t)type < count && names[type] ? names[type] : "?";
}

static size_t attr_string_bytes(const char* strings, size_t count) {
  const char* end = strings;
  for (size_t i = 0; i < count; ++i)
    end += strlen(end) + 1;
  return (size_t)(end - strings);
}

size_t rabbet_attr_bytes(const rabbet_attr_t* attr) {
  switch (attr->type) {
    case RABBET_ATTR_INT:
    case RABBET_ATTR_BOOL:
    case RABBET_ATTR_FLOAT:
      return 8;
    case RABBET_ATTR_STRING:
    case RABBET_ATTR_BYTES:
      return attr->count;
    case RABBET_ATTR_INTS:
    case RABBET_ATTR_BOOLS:
    case RABBET_ATTR_FLOATS:
      return attr->count * 8;
    case RABBET_ATTR_STRINGS:
      return attr_string_bytes(attr->data, attr->count);
    case RABBET_ATTR_TENSOR: {
      size_t bits = (size_t)rabbet_dtype_bits(attr->dtype);
      return (attr->count * bits + 7) / 8;
    }
  }
  return 0;
}

const rabbet_attr_t* rabbet_attr_find(const rabbet_attr_t* attrs, size_t count,
                                      const char* name) {
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(attrs[i].name, name) == 0) return &attrs[i];
  }
  return NULL;
}
