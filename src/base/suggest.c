#define _GNU_SOURCE
#include "base/suggest.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

// Longer names are not compared: nobody types them.
#define RABBET_SUGGEST_LONGEST 64
#define RABBET_SUGGEST_FAR 1000

static int min3(int a, int b, int c) {
  int least = a < b ? a : b;
  return least < c ? least : c;
}

static bool same_letter(char a, char b) {
  return tolower((unsigned char)a) == tolower((unsigned char)b);
}

// Optimal string alignment distance: insertions, deletions, substitutions and
// exchanges of neighbours.
static int edit_distance(const char* a, size_t a_size, const char* b,
                         size_t b_size) {
  assert(a_size <= RABBET_SUGGEST_LONGEST && b_size <= RABBET_SUGGEST_LONGEST);
  int rows[3][RABBET_SUGGEST_LONGEST + 1];
  for (size_t j = 0; j <= b_size; ++j)
    rows[0][j] = (int)j;
  for (size_t i = 1; i <= a_size; ++i) {
    int* row = rows[i % 3];
    const int* above = rows[(i + 2) % 3];
    const int* above2 = rows[(i + 1) % 3];
    row[0] = (int)i;
    for (size_t j = 1; j <= b_size; ++j) {
      bool same = same_letter(a[i - 1], b[j - 1]);
      row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + !same);
      if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
          same_letter(a[i - 2], b[j - 1]) && above2[j - 2] + 1 < row[j])
        row[j] = above2[j - 2] + 1;
    }
  }
  return rows[a_size % 3][b_size];
}

static int suggest_distance(const char* word, const char* name) {
  size_t word_size = strlen(word), name_size = strlen(name);
  if (!word_size || !name_size || word_size > RABBET_SUGGEST_LONGEST ||
      name_size > RABBET_SUGGEST_LONGEST)
    return RABBET_SUGGEST_FAR;
  int distance = edit_distance(word, word_size, name, name_size);
  size_t longer = word_size > name_size ? word_size : name_size;
  size_t shorter = word_size + name_size - longer;
  if (distance <= 1 + (int)longer / 4 && distance < (int)longer)
    return distance;
  if (shorter >= 3 && (strcasestr(name, word) || strcasestr(word, name)))
    return RABBET_SUGGEST_LONGEST + distance;
  return RABBET_SUGGEST_FAR;
}

size_t rabbet_suggest(const char* word, rabbet_suggest_name_fn_t name_at,
                      const void* list, size_t count,
                      const char* out_names[RABBET_SUGGEST_MAX]) {
  int distances[RABBET_SUGGEST_MAX];
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    const char* name = name_at(list, i);
    int distance = name ? suggest_distance(word, name) : RABBET_SUGGEST_FAR;
    if (distance >= RABBET_SUGGEST_FAR) continue;
    bool full = found == RABBET_SUGGEST_MAX;
    if (full && distances[found - 1] <= distance) continue;
    size_t at = full ? found - 1 : found++;
    for (; at > 0 && distances[at - 1] > distance; --at) {
      distances[at] = distances[at - 1];
      out_names[at] = out_names[at - 1];
    }
    distances[at] = distance;
    out_names[at] = name;
  }
  return found;
}

const char* rabbet_suggest_print(const char* word,
                                 rabbet_suggest_name_fn_t name_at,
                                 const void* list, size_t count, char* buffer,
                                 size_t capacity) {
  const char* names[RABBET_SUGGEST_MAX];
  size_t found = rabbet_suggest(word, name_at, list, count, names);
  if (capacity == 0) return "";
  buffer[0] = '\0';
  size_t size = 0;
  for (size_t i = 0; i < found && size < capacity; ++i) {
    const char* before = i == 0           ? "; did you mean "
                         : i == found - 1 ? " or "
                                          : ", ";
    size += (size_t)snprintf(buffer + size, capacity - size, "%s'%s'%s", before,
                             names[i], i == found - 1 ? "?" : "");
  }
  return buffer;
}
