#include "base/struct.h"

#include <assert.h>
#include <string.h>

static uint32_t struct_struct_size(const void* given) {
  uint32_t size = 0;
  memcpy(&size, given, sizeof(size));
  return size;
}

// `name` is that of the field or parameter that says the size.
static rabbet_status_t sized_read(const char* type, const char* name,
                                  const uint8_t* given, size_t given_size,
                                  size_t least, size_t size, void* out) {
  assert(least <= size);
  if (given_size < least)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%s: %s is %zu, expected at least %zu; set it to "
                         "sizeof(%s)",
                         type, name, given_size, least, type);
  for (size_t i = size; i < given_size; ++i) {
    if (given[i])
      return RABBET_STATUS(
          RABBET_STATUS_INVALID_ARGUMENT,
          "%s: %s is %zu, that of rabbet %s is %zu, and byte %zu is not 0: a "
          "field is set that this version does not have",
          type, name, given_size, rabbet_version(), size, i);
  }
  memset(out, 0, size);
  memcpy(out, given, given_size < size ? given_size : size);
  return rabbet_ok();
}

rabbet_status_t rabbet_struct_read(const char* type, const void* given,
                                   size_t least, size_t size, void* out) {
  assert(least >= sizeof(uint32_t));
  uint32_t own_size = (uint32_t)size;
  if (given)
    RABBET_RETURN_IF_ERROR(sized_read(type, "struct_size", given,
                                      struct_struct_size(given), least, size,
                                      out));
  else
    memset(out, 0, size);
  memcpy(out, &own_size, sizeof(own_size));
  return rabbet_ok();
}

rabbet_status_t rabbet_elements_read(const char* type, const void* given,
                                     size_t given_size, size_t count,
                                     size_t least, size_t size, void* out) {
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(sized_read(
        type, "the size of an element", (const uint8_t*)given + i * given_size,
        given_size, least, size, (uint8_t*)out + i * size));
  return rabbet_ok();
}

void rabbet_struct_write(const void* ours, size_t size, void* out) {
  uint32_t out_size = struct_struct_size(out);
  size_t copied = out_size < size ? out_size : size;
  if (out_size < sizeof(out_size)) return;
  memset(out, 0, out_size);
  memcpy(out, ours, copied);
  memcpy(out, &out_size, sizeof(out_size));
}
