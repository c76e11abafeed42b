// The names nearest to a misspelt one.
#ifndef RABBET_SRC_BASE_SUGGEST_H_
#define RABBET_SRC_BASE_SUGGEST_H_

#include "rabbet/base.h"

#define RABBET_SUGGEST_MAX 3

// The name at `index` of a list; NULL skips it.
typedef const char* (*rabbet_suggest_name_fn_t)(const void* list, size_t index);

// Finds up to three names similar to `word` and returns their number. Nearest
// first, borrowed from the list. Similar names differ in case or by a few
// edits, or contain one another.
RABBET_PRIVATE_API size_t rabbet_suggest(
    const char* word, rabbet_suggest_name_fn_t name_at, const void* list,
    size_t count, const char* out_names[RABBET_SUGGEST_MAX]);

// The same as the end of an error message: "; did you mean 'a', 'b' or 'c'?",
// or "" when nothing is near. Returns `buffer`.
RABBET_PRIVATE_API const char* rabbet_suggest_print(
    const char* word, rabbet_suggest_name_fn_t name_at, const void* list,
    size_t count, char* buffer, size_t capacity);

#endif  // RABBET_SRC_BASE_SUGGEST_H_
