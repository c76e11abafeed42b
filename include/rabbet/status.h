// The result of everything that can fail.
#ifndef RABBET_STATUS_H_
#define RABBET_STATUS_H_

#include <stdarg.h>

#include "rabbet/base.h"

RABBET_EXTERN_C_BEGIN

// Numbers are stable.
typedef enum rabbet_status_code_t {
  RABBET_STATUS_OK = 0,
  RABBET_STATUS_CANCELLED = 1,  // the caller asked to stop
  RABBET_STATUS_INVALID_ARGUMENT =
      2,                        // an argument is wrong whatever the state
  RABBET_STATUS_NOT_FOUND = 3,  // a named thing does not exist
  RABBET_STATUS_ALREADY_EXISTS = 4,
  RABBET_STATUS_OUT_OF_RANGE = 5,         // index, or shape outside a profile
  RABBET_STATUS_FAILED_PRECONDITION = 6,  // right call, wrong moment
  RABBET_STATUS_OUT_OF_MEMORY = 7,
  RABBET_STATUS_UNSUPPORTED = 8,    // valid, but no device or kernel does it
  RABBET_STATUS_UNAVAILABLE = 9,    // library, driver or device is missing
  RABBET_STATUS_DATA_LOSS = 10,     // a file is damaged or truncated
  RABBET_STATUS_INCOMPATIBLE = 11,  // made for another version or device
  RABBET_STATUS_IO = 12,            // the operating system said no
  RABBET_STATUS_PLUGIN = 13,        // a plugin's callback failed
  RABBET_STATUS_INTERNAL = 14,      // a bug in Rabbet
} rabbet_status_code_t;

// NULL when OK, so that success costs nothing; otherwise owns a message with
// source location and notes, or, when memory was short, is the bare code. Each
// status that is not OK must be returned, joined, annotated or freed once.
typedef struct rabbet_status_storage_t* rabbet_status_t;

static inline bool rabbet_is_ok(rabbet_status_t status) {
  return status == NULL;
}
static inline rabbet_status_t rabbet_ok(void) {
  return NULL;
}

// A new status. `code` must not be OK. Prefer RABBET_STATUS(code, format, ...).
RABBET_API RABBET_MUST_USE rabbet_status_t
rabbet_status_make(rabbet_status_code_t code, const char* file, int line,
                   const char* format, ...) RABBET_PRINTF(4, 5);
RABBET_API RABBET_MUST_USE rabbet_status_t
rabbet_status_make_v(rabbet_status_code_t code, const char* file, int line,
                     const char* format, va_list arguments);

// Adds a note about the failed action before the message, as in "loading plan
// 'x.plan': section 2: checksum ...". OK passes through.
RABBET_API RABBET_MUST_USE rabbet_status_t rabbet_status_annotate(
    rabbet_status_t status, const char* format, ...) RABBET_PRINTF(2, 3);

// The first failure of two; the second's message becomes a note of the first.
// Takes both.
RABBET_API RABBET_MUST_USE rabbet_status_t
rabbet_status_join(rabbet_status_t first, rabbet_status_t second);

RABBET_API rabbet_status_code_t rabbet_status_code(rabbet_status_t status);
// "invalid argument", ...; static storage.
RABBET_API const char* rabbet_status_code_name(rabbet_status_code_t code);
// The message with notes, outermost first; borrowed from the status.
RABBET_API const char* rabbet_status_message(rabbet_status_t status);
// Where it was made; NULL and 0 if unknown.
RABBET_API const char* rabbet_status_file(rabbet_status_t status);
RABBET_API int rabbet_status_line(rabbet_status_t status);

// Frees; OK and NULL are fine.
RABBET_API void rabbet_status_free(rabbet_status_t status);
// Frees a failure that deliberately does not matter.
static inline void rabbet_status_ignore(rabbet_status_t status) {
  rabbet_status_free(status);
}
// A second owner of the same failure (counted).
RABBET_API RABBET_MUST_USE rabbet_status_t
rabbet_status_clone(rabbet_status_t status);

// An object that travels with the status, such as a Python exception. `tag` is
// the address of a static that identifies the kind; `destroy` runs once on any
// thread. A bare-code status cannot carry one: then it is destroyed at once.
RABBET_API void rabbet_status_set_payload(rabbet_status_t status,
                                          const void* tag, void* payload,
                                          void (*destroy)(void* payload));
// Borrowed; NULL when there is none with this tag.
RABBET_API void* rabbet_status_payload(rabbet_status_t status, const void* tag);

#define RABBET_STATUS(code, ...) \
  rabbet_status_make((code), __FILE__, __LINE__, __VA_ARGS__)
// Evaluates `status` once, and the rest only if it is not OK.
#define RABBET_ANNOTATE(status, ...)                                 \
  __extension__({                                                    \
    rabbet_status_t rabbet_status_noted_ = (status);                 \
    rabbet_is_ok(rabbet_status_noted_)                               \
        ? rabbet_status_noted_                                       \
        : rabbet_status_annotate(rabbet_status_noted_, __VA_ARGS__); \
  })
// Only where nothing is held.
#define RABBET_RETURN_IF_ERROR(expression)                            \
  do {                                                                \
    rabbet_status_t rabbet_status_tmp_ = (expression);                \
    if (!rabbet_is_ok(rabbet_status_tmp_)) return rabbet_status_tmp_; \
  } while (0)

RABBET_EXTERN_C_END
#endif  // RABBET_STATUS_H_
