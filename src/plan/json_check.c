#include "plan/json_check.h"

#include <string.h>

static void json_space(const char** at) {
  *at += strspn(*at, " \t\r\n");
}

static bool json_string(const char** at) {
  if (**at != '"') return false;
  for (++*at; **at && **at != '"'; ++*at) {
    if ((unsigned char)**at < 0x20) return false;
    if (**at != '\\') continue;
    ++*at;
    if (**at == 'u') {
      if (strspn(*at + 1, "0123456789abcdefABCDEF") < 4) return false;
      *at += 4;
    } else if (!**at || !strchr("\"\\/bfnrt", **at)) {
      return false;
    }
  }
  if (**at != '"') return false;
  ++*at;
  return true;
}

static bool json_digits(const char** at) {
  size_t count = strspn(*at, "0123456789");
  *at += count;
  return count > 0;
}

static bool json_number(const char** at) {
  if (**at == '-') ++*at;
  if (**at == '0')
    ++*at;
  else if (!json_digits(at))
    return false;
  if (**at == '.') {
    ++*at;
    if (!json_digits(at)) return false;
  }
  if (**at == 'e' || **at == 'E') {
    ++*at;
    if (**at == '+' || **at == '-') ++*at;
    if (!json_digits(at)) return false;
  }
  return true;
}

static bool json_scalar(const char** at) {
  static const char* const words[] = {"true", "false", "null"};
  for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
    size_t size = strlen(words[i]);
    if (strncmp(*at, words[i], size) != 0) continue;
    *at += size;
    return true;
  }
  return **at == '"' ? json_string(at) : json_number(at);
}

// In an object, the name and colon before a value.
static bool json_name(const char** at) {
  json_space(at);
  if (!json_string(at)) return false;
  json_space(at);
  return *(*at)++ == ':';
}

bool rabbet_json_valid(const char* text) {
  char closers[64];
  size_t depth = 0;
  for (;;) {
    // Here a value begins.
    json_space(&text);
    if (*text == '[' || *text == '{') {
      char closer = *text == '[' ? ']' : '}';
      ++text;
      json_space(&text);
      if (depth == sizeof(closers)) return false;
      if (*text != closer) {
        closers[depth++] = closer;
        if (closer == '}' && !json_name(&text)) return false;
        continue;
      }
      ++text;
    } else if (!json_scalar(&text)) {
      return false;
    }
    // A value has ended here, and perhaps its containers.
    json_space(&text);
    while (depth > 0 && *text == closers[depth - 1]) {
      --depth;
      ++text;
      json_space(&text);
    }
    if (depth == 0) return *text == 0;
    if (*text++ != ',') return false;
    if (closers[depth - 1] == '}' && !json_name(&text)) return false;
  }
}
