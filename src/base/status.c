#include "base/status.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/text.h"
#include "base/thread.h"

// A status is NULL (OK), a number below RABBET_STATUS_BARE_END (the bare code,
// when there was no memory for more), or a pointer to this. Message and file
// name follow the struct in the same block, since a plugin library that made
// the status may be unloaded before it is read.
struct rabbet_status_storage_t {
  rabbet_refcount_t references;
  rabbet_allocator_t allocator;
  rabbet_status_code_t code;
  int line;
  const char* file;
  const void* payload_tag;
  void* payload;
  void (*payload_destroy)(void* payload);
  // The status that this one annotates, kept where it had other owners, so
  // that its payload can be found; else NULL.
  rabbet_status_t origin;
  char message[];
};

#define RABBET_STATUS_BARE_END 64
#define RABBET_STATUS_ALIGNMENT _Alignof(max_align_t)

static const rabbet_allocator_t* status_test_allocator;

void rabbet_status_use_test_allocator(const rabbet_allocator_t* allocator) {
  status_test_allocator = allocator;
}

static rabbet_allocator_t status_allocator(void) {
  return status_test_allocator ? *status_test_allocator
                               : rabbet_allocator_system();
}

static bool status_is_bare(rabbet_status_t status) {
  return (uintptr_t)status < RABBET_STATUS_BARE_END;
}

static rabbet_status_t status_bare(rabbet_status_code_t code) {
  assert((int)code >= 0 && (int)code < RABBET_STATUS_BARE_END);
  return (rabbet_status_t)(uintptr_t)code;
}

// A status with room for `size` bytes of message and its NUL, or NULL.
static rabbet_status_t status_allocate(rabbet_status_code_t code,
                                       const char* file, int line,
                                       size_t size) {
  rabbet_allocator_t allocator = status_allocator();
  size_t file_bytes = file ? strlen(file) + 1 : 0;
  size_t total = sizeof(struct rabbet_status_storage_t);
  if (!rabbet_checked_add(total, size + 1, &total) ||
      !rabbet_checked_add(total, file_bytes, &total))
    return NULL;
  rabbet_status_t status =
      allocator.resize(allocator.self, NULL, total, RABBET_STATUS_ALIGNMENT);
  if (!status) return NULL;
  memset(status, 0, sizeof(*status));
  rabbet_refcount_initialize(&status->references);
  status->allocator = allocator;
  status->code = code;
  status->line = line;
  status->message[0] = '\0';
  if (file) {
    status->file = memcpy(status->message + size + 1, file, file_bytes);
  }
  return status;
}

// Names and bytes of files get into messages, and messages onto terminals.
static rabbet_status_t status_printable(rabbet_status_t status) {
  size_t size = strlen(status->message);
  size_t escaped = rabbet_text_escape(status->message, NULL, 0);
  if (escaped == size) return status;
  rabbet_status_t copy =
      status_allocate(status->code, status->file, status->line, escaped);
  if (copy) rabbet_text_escape(status->message, copy->message, escaped + 1);
  rabbet_status_t bare = status_bare(status->code);
  rabbet_status_free(status);
  return copy ? copy : bare;
}

rabbet_status_t rabbet_status_make_v(rabbet_status_code_t code,
                                     const char* file, int line,
                                     const char* format, va_list arguments) {
  assert(code != RABBET_STATUS_OK);
  if (code <= RABBET_STATUS_OK || code > RABBET_STATUS_INTERNAL)
    code = RABBET_STATUS_INTERNAL;
  va_list again;
  va_copy(again, arguments);
  int size = vsnprintf(NULL, 0, format, arguments);
  rabbet_status_t status =
      status_allocate(code, file, line, size > 0 ? (size_t)size : 0);
  if (status && size > 0)
    vsnprintf(status->message, (size_t)size + 1, format, again);
  va_end(again);
  return status ? status_printable(status) : status_bare(code);
}

rabbet_status_t rabbet_status_make(rabbet_status_code_t code, const char* file,
                                   int line, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  rabbet_status_t status =
      rabbet_status_make_v(code, file, line, format, arguments);
  va_end(arguments);
  return status;
}

// Gives `to` the payload of `from`, and frees `from`.
static void status_succeed(rabbet_status_t from, rabbet_status_t to) {
  if (status_is_bare(from)) return;
  if (atomic_load_explicit(&from->references, memory_order_acquire) > 1) {
    to->origin = from;
    return;
  }
  to->payload_tag = from->payload_tag;
  to->payload = from->payload;
  to->payload_destroy = from->payload_destroy;
  to->origin = from->origin;
  from->payload = NULL;
  from->payload_destroy = NULL;
  from->origin = NULL;
  rabbet_status_free(from);
}

rabbet_status_t rabbet_status_annotate(rabbet_status_t status,
                                       const char* format, ...) {
  if (rabbet_is_ok(status)) return status;
  const char* message = rabbet_status_message(status);
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int size = vsnprintf(NULL, 0, format, arguments);
  rabbet_status_t noted = NULL;
  size_t total = strlen(message) + 2;
  if (size >= 0 && rabbet_checked_add(total, (size_t)size, &total))
    noted =
        status_allocate(rabbet_status_code(status), rabbet_status_file(status),
                        rabbet_status_line(status), total);
  if (noted) {
    vsnprintf(noted->message, (size_t)size + 1, format, again);
    snprintf(noted->message + size, total - (size_t)size + 1, ": %s", message);
    noted = status_printable(noted);
    // Without memory for the note escaped, the status stays as it was.
    if (status_is_bare(noted)) noted = NULL;
  }
  if (noted) status_succeed(status, noted);
  va_end(again);
  va_end(arguments);
  return noted ? noted : status;
}

rabbet_status_t rabbet_status_join(rabbet_status_t first,
                                   rabbet_status_t second) {
  if (rabbet_is_ok(first)) return second;
  if (rabbet_is_ok(second)) return first;
  const char* message = rabbet_status_message(first);
  const char* note = rabbet_status_message(second);
  static const char separator[] = "; then: ";
  size_t total = strlen(message) + strlen(note) + sizeof(separator) - 1;
  rabbet_status_t joined =
      status_allocate(rabbet_status_code(first), rabbet_status_file(first),
                      rabbet_status_line(first), total);
  if (joined) {
    snprintf(joined->message, total + 1, "%s%s%s", message, separator, note);
    status_succeed(first, joined);
  }
  rabbet_status_free(second);
  return joined ? joined : first;
}

rabbet_status_code_t rabbet_status_code(rabbet_status_t status) {
  return status_is_bare(status) ? (rabbet_status_code_t)(uintptr_t)status
                                : status->code;
}

const char* rabbet_status_code_name(rabbet_status_code_t code) {
#define RABBET_STATUS_CODE(id, name) [RABBET_STATUS_##id] = name,
  static const char* const names[] = {
#include "base/status_codes.def"
  };
#undef RABBET_STATUS_CODE
  size_t count = sizeof(names) / sizeof(names[0]);
  return (size_t)code < count ? names[code] : "unknown status code";
}

const char* rabbet_status_message(rabbet_status_t status) {
  return status_is_bare(status)
             ? rabbet_status_code_name(rabbet_status_code(status))
             : status->message;
}

const char* rabbet_status_file(rabbet_status_t status) {
  return status_is_bare(status) ? NULL : status->file;
}

int rabbet_status_line(rabbet_status_t status) {
  return status_is_bare(status) ? 0 : status->line;
}

void rabbet_status_free(rabbet_status_t status) {
  while (!status_is_bare(status) &&
         rabbet_refcount_release(&status->references)) {
    rabbet_status_t origin = status->origin;
    rabbet_allocator_t allocator = status->allocator;
    if (status->payload_destroy) status->payload_destroy(status->payload);
    allocator.resize(allocator.self, status, 0, RABBET_STATUS_ALIGNMENT);
    status = origin;
  }
}

rabbet_status_t rabbet_status_clone(rabbet_status_t status) {
  if (!status_is_bare(status)) rabbet_refcount_retain(&status->references);
  return status;
}

void rabbet_status_set_payload(rabbet_status_t status, const void* tag,
                               void* payload, void (*destroy)(void* payload)) {
  if (status_is_bare(status)) {
    if (destroy) destroy(payload);
    return;
  }
  if (status->payload_destroy) status->payload_destroy(status->payload);
  status->payload_tag = tag;
  status->payload = payload;
  status->payload_destroy = destroy;
}

void* rabbet_status_payload(rabbet_status_t status, const void* tag) {
  for (; !status_is_bare(status); status = status->origin) {
    if (status->payload && status->payload_tag == tag) return status->payload;
  }
  return NULL;
}
