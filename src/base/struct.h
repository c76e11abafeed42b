// Structures from callers and plugins, which may be older or newer than ours:
// the rules are those of rabbet/types.h.
#ifndef RABBET_SRC_BASE_STRUCT_H_
#define RABBET_SRC_BASE_STRUCT_H_

#include <stddef.h>

#include "rabbet/status.h"

// The size of a structure that ends with this field.
#define RABBET_SIZE_THROUGH(type, field) \
  (offsetof(type, field) + sizeof(((type*)0)->field))

// Copies a structure that begins with its struct_size; missing fields are zero.
// NULL gives all zeros. In either case struct_size of the copy is `size`.
// INVALID_ARGUMENT names both sizes: fewer than `least` bytes, or a nonzero
// byte beyond `size`. `type` is the structure's name.
RABBET_PRIVATE_API rabbet_status_t rabbet_struct_read(const char* type,
                                                      const void* given,
                                                      size_t least, size_t size,
                                                      void* out);
// The same for an array whose elements have `given_size` bytes each, into
// `count` elements of `size` bytes.
RABBET_PRIVATE_API rabbet_status_t
rabbet_elements_read(const char* type, const void* given, size_t given_size,
                     size_t count, size_t least, size_t size, void* out);
// Fills a caller's structure, which says its size, from ours: as much as fits,
// zeros beyond.
RABBET_PRIVATE_API void rabbet_struct_write(const void* ours, size_t size,
                                            void* out);

// `last`: the last required field.
#define RABBET_STRUCT_READ(type, given, last, out)                    \
  rabbet_struct_read(#type, (given), RABBET_SIZE_THROUGH(type, last), \
                     sizeof(type), (1 ? (out) : (type*)0))
#define RABBET_ELEMENTS_READ(type, given, given_size, count, last, out) \
  rabbet_elements_read(#type, (given), (given_size), (count),           \
                       RABBET_SIZE_THROUGH(type, last), sizeof(type),   \
                       (1 ? (out) : (type*)0))

#endif  // RABBET_SRC_BASE_STRUCT_H_
