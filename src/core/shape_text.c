#define _GNU_SOURCE
#include "core/shape_text.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/math.h"

static rabbet_status_t dims_syntax(const char* text, size_t size) {
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "'%.*s' is not a shape; expected dimensions such as "
                       "1x3x224x224 (-1 leaves one open, 'scalar' is rank 0)",
                       (int)rabbet_min_i64((int64_t)size, 200), text);
}

// Digits, or -1. Returns the end, or NULL.
static const char* extent_parse(const char* at, const char* end,
                                int64_t* out_value) {
  if (end - at >= 2 && at[0] == '-' && at[1] == '1') {
    *out_value = -1;
    return at + 2;
  }
  const char* start = at;
  int64_t value = 0;
  for (; at < end && isdigit((unsigned char)*at); ++at) {
    if (!rabbet_checked_mul(value, 10, &value) ||
        !rabbet_checked_add(value, *at - '0', &value))
      return NULL;
  }
  *out_value = value;
  return at == start ? NULL : at;
}

static rabbet_status_t dims_parse(const char* text, size_t size,
                                  rabbet_dims_t* out_dims) {
  *out_dims = (rabbet_dims_t){0};
  if (size == 0 || (size == 6 && strncasecmp(text, "scalar", 6) == 0))
    return rabbet_ok();
  rabbet_dims_t dims = {0};
  const char* end = text + size;
  for (const char* at = text;;) {
    int64_t extent = 0;
    at = extent_parse(at, end, &extent);
    if (!at || (at < end && *at != 'x' && *at != 'X'))
      return dims_syntax(text, size);
    if (dims.rank == RABBET_MAX_RANK)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "shape '%.*s' has more than %d dimensions",
                           (int)rabbet_min_i64((int64_t)size, 200), text,
                           RABBET_MAX_RANK);
    dims.d[dims.rank++] = extent;
    if (at++ == end) break;
  }
  *out_dims = dims;
  return rabbet_ok();
}

// Reads a quoted name at *at (which is the quote) into `name`, which has room
// for the whole text.
static rabbet_status_t quoted_name(const char** at, char* name) {
  const char* from = *at + 1;
  for (;; ++from) {
    if (*from == '\0')
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "the quoted name %.200s has no closing quote", *at);
    if (*from == '\'' && *++from != '\'') break;
    *name++ = *from;
  }
  *name = '\0';
  *at = from;
  return rabbet_ok();
}

static rabbet_status_t shape_name(const char** at, bool quoted, char* name) {
  const char* start = *at;
  if (quoted) {
    RABBET_RETURN_IF_ERROR(quoted_name(at, name));
  } else {
    // A dimension never holds a colon, so that the last one of the item ends
    // the name: unquoted "scope:0:1x3" is clear too.
    size_t item = strcspn(start, ",");
    const char* colon = memrchr(start, ':', item);
    if (!colon)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "'%.*s' has no colon; expected NAME:DIMS, such as "
                           "input:1x3x224x224",
                           (int)rabbet_min_i64((int64_t)item, 200), start);
    memcpy(name, start, (size_t)(colon - start));
    name[colon - start] = '\0';
    *at = colon;
  }
  if (**at != ':')
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "expected a colon and dimensions after '%.200s'",
                         name);
  if (!*name)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "'%.200s' has no name before the colon; expected "
                         "NAME:DIMS, such as input:1x3x224x224",
                         start);
  ++*at;
  const char* star = quoted ? NULL : strchr(name, '*');
  if (star && strchr(star + 1, '*'))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the name '%.200s' has more than one *; one is "
                         "allowed, or put the name in quotes",
                         name);
  return rabbet_ok();
}

// `name` has room for the item's own characters.
static rabbet_status_t shape_item(const char** at, char* name,
                                  rabbet_named_dims_t* out_shape) {
  out_shape->name = name;
  out_shape->quoted = **at == '\'';
  RABBET_RETURN_IF_ERROR(shape_name(at, out_shape->quoted, name));
  size_t size = strcspn(*at, ",");
  rabbet_status_t status = dims_parse(*at, size, &out_shape->dims);
  *at += size;
  return RABBET_ANNOTATE(status, "tensor '%.200s'", name);
}

static rabbet_status_t shape_unique(const rabbet_named_dims_t* shapes,
                                    size_t count) {
  for (size_t i = 0; i + 1 < count; ++i) {
    if (strcmp(shapes[i].name, shapes[count - 1].name) == 0)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "the shape of '%.200s' is given twice",
                           shapes[i].name);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_shape_text_parse(const char* text, rabbet_arena_t* arena,
                                        rabbet_named_dims_t** out_shapes,
                                        size_t* out_count) {
  *out_shapes = NULL;
  *out_count = 0;
  if (!*text) return rabbet_ok();
  size_t most = 1;
  for (const char* at = text; *at; ++at)
    most += *at == ',';
  rabbet_named_dims_t* shapes = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, most, sizeof(*shapes), (void**)&shapes));
  char* names = NULL;  // each name at its item's place in the text
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(arena, strlen(text) + 1, (void**)&names));
  size_t count = 0;
  for (const char* at = text;; ++at) {
    RABBET_RETURN_IF_ERROR(
        shape_item(&at, names + (at - text), &shapes[count++]));
    RABBET_RETURN_IF_ERROR(shape_unique(shapes, count));
    if (*at == '\0') break;
  }
  assert(count <= most);
  *out_shapes = shapes;
  *out_count = count;
  return rabbet_ok();
}

bool rabbet_shape_text_matches(const rabbet_named_dims_t* pattern,
                               const char* name) {
  const char* star = pattern->quoted ? NULL : strchr(pattern->name, '*');
  if (!star) return strcmp(pattern->name, name) == 0;
  size_t before = (size_t)(star - pattern->name);
  size_t after = strlen(star + 1);
  size_t size = strlen(name);
  return size >= before + after && memcmp(name, pattern->name, before) == 0 &&
         memcmp(name + size - after, star + 1, after) == 0;
}

// ---- Writing ----------------------------------------------------------------

// A shell's double quotes leave these four their meaning.
static void example_char(char c, bool shell, rabbet_strbuf_t* out) {
  if (shell && strchr("$`\"\\", c)) rabbet_strbuf_append(out, "\\", 1);
  rabbet_strbuf_append(out, &c, 1);
  if (c == '\'') rabbet_strbuf_append(out, &c, 1);
}

void rabbet_shape_text_example(const char* name, const rabbet_dims_t* dims,
                               rabbet_strbuf_t* out) {
  static const char plain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+@-";
  bool quoted = strpbrk(name, ":,'*") != NULL;
  bool shell = name[strspn(name, plain)] != '\0';
  if (shell) rabbet_strbuf_append(out, "\"", 1);
  if (quoted) rabbet_strbuf_append(out, "'", 1);
  for (const char* at = name; *at; ++at)
    example_char(*at, shell, out);
  if (quoted) rabbet_strbuf_append(out, "'", 1);
  rabbet_strbuf_append(out, ":", 1);
  if (dims->rank == 0) rabbet_strbuf_printf(out, "scalar");
  for (int32_t i = 0; i < dims->rank; ++i)
    rabbet_strbuf_printf(out, "%s%lld", i ? "x" : "",
                         (long long)(dims->d[i] < 0 ? 1 : dims->d[i]));
  if (shell) rabbet_strbuf_append(out, "\"", 1);
}
