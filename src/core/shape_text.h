// Shapes as people type them: "name:2x3x224x224", in lists "a:1x3,b:8".
//
// A name may stand in single quotes, and must where it holds a colon, a comma
// or a quote (doubled). Nothing, or the word "scalar", after the colon is a
// shape of rank 0. -1 is a dimension left open. The one * that a name may hold
// is for the caller to resolve.
#ifndef RABBET_SRC_CORE_SHAPE_TEXT_H_
#define RABBET_SRC_CORE_SHAPE_TEXT_H_

#include "base/arena.h"
#include "base/strbuf.h"
#include "rabbet/types.h"

typedef struct rabbet_named_dims_t {
  const char* name;
  bool quoted;  // a * in it is no wildcard
  rabbet_dims_t dims;
} rabbet_named_dims_t;

// A list in the arena, in the order of the text. INVALID_ARGUMENT quotes the
// wrong part, says what was expected there, and names duplicates.
RABBET_PRIVATE_API rabbet_status_t
rabbet_shape_text_parse(const char* text, rabbet_arena_t* arena,
                        rabbet_named_dims_t** out_shapes, size_t* out_count);

// Whether a name, with at most one * standing for any characters, fits.
RABBET_PRIVATE_API bool rabbet_shape_text_matches(
    const rabbet_named_dims_t* pattern, const char* name);

// An item for a tensor of this name as one word of a shell, the name quoted
// where this grammar or the shell needs it, for a hint such as "--shapes
// x:1x3". Dimensions left open are shown as 1.
RABBET_PRIVATE_API void rabbet_shape_text_example(const char* name,
                                                  const rabbet_dims_t* dims,
                                                  rabbet_strbuf_t* out);

#endif  // RABBET_SRC_CORE_SHAPE_TEXT_H_
