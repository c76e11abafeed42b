#include <strings.h>

#include "base/suggest.h"
#include "rabbet/types.h"

#define RABBET_DTYPE_MAX_ALIASES 4

static const struct {
  const char* name;
  int bits;
  const char* aliases[RABBET_DTYPE_MAX_ALIASES + 1];
} rabbet_dtypes[RABBET_DTYPE_COUNT] = {
#define RABBET_DTYPE(id, bits, ...) \
  [RABBET_DTYPE_##id] = {#id, bits, {__VA_ARGS__}},
#include "core/dtypes.def"
#undef RABBET_DTYPE
};

static bool dtype_known(rabbet_dtype_t dtype) {
  return (int)dtype >= 0 && (int)dtype < RABBET_DTYPE_COUNT;
}

const char* rabbet_dtype_name(rabbet_dtype_t dtype) {
  return dtype_known(dtype) ? rabbet_dtypes[dtype].name : "?";
}

int rabbet_dtype_bits(rabbet_dtype_t dtype) {
  return dtype_known(dtype) ? rabbet_dtypes[dtype].bits : 0;
}

static const char* dtype_suggestion(const void* list, size_t index) {
  (void)list;
  return index < RABBET_DTYPE_COUNT
             ? rabbet_dtypes[index].name
             : rabbet_dtypes[index - RABBET_DTYPE_COUNT].aliases[0];
}

rabbet_status_t rabbet_dtype_parse(const char* text,
                                   rabbet_dtype_t* out_dtype) {
  *out_dtype = RABBET_DTYPE_NONE;
  for (int i = 0; i < RABBET_DTYPE_COUNT; ++i) {
    bool found = strcasecmp(text, rabbet_dtypes[i].name) == 0;
    const char* const* alias = rabbet_dtypes[i].aliases;
    for (; !found && *alias; ++alias)
      found = strcasecmp(text, *alias) == 0;
    if (!found) continue;
    *out_dtype = (rabbet_dtype_t)i;
    return rabbet_ok();
  }
  char hint[160];
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT, "'%s' is not a data type%s", text,
      rabbet_suggest_print(text, dtype_suggestion, NULL, 2 * RABBET_DTYPE_COUNT,
                           hint, sizeof(hint)));
}
