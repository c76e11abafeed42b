// An owned, ordered set of attributes.
#ifndef RABBET_SRC_CORE_ATTR_SET_H_
#define RABBET_SRC_CORE_ATTR_SET_H_

#include "base/arena.h"
#include "rabbet/attr.h"

// INVALID_ARGUMENT for an attribute that has more to it than this version
// knows.
RABBET_PRIVATE_API rabbet_status_t
rabbet_attr_check_reserved(const rabbet_attr_t* attr);
// Fills one attribute view with a deep copy in the arena.
RABBET_PRIVATE_API rabbet_status_t rabbet_attr_copy(rabbet_arena_t* arena,
                                                    const rabbet_attr_t* attr,
                                                    rabbet_attr_t* out_copy);
RABBET_PRIVATE_API rabbet_status_t rabbet_attrs_copy(rabbet_arena_t* arena,
                                                     const rabbet_attr_t* attrs,
                                                     size_t count,
                                                     rabbet_attr_t** out_copy);
// Readers with a default for an absent attribute; the type must already have
// been checked against a descriptor.
RABBET_PRIVATE_API int64_t rabbet_attr_int(const rabbet_attr_t* attrs,
                                           size_t count, const char* name,
                                           int64_t fallback);
RABBET_PRIVATE_API double rabbet_attr_float(const rabbet_attr_t* attrs,
                                            size_t count, const char* name,
                                            double fallback);
// *out_count = 0 and NULL when absent.
RABBET_PRIVATE_API const int64_t* rabbet_attr_ints(const rabbet_attr_t* attrs,
                                                   size_t count,
                                                   const char* name,
                                                   size_t* out_count);
RABBET_PRIVATE_API const double* rabbet_attr_floats(const rabbet_attr_t* attrs,
                                                    size_t count,
                                                    const char* name,
                                                    size_t* out_count);

#endif  // RABBET_SRC_CORE_ATTR_SET_H_
