// Export macros and version of the public C API.
#ifndef RABBET_BASE_H_
#define RABBET_BASE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The version is said here alone: CMake and pyproject.toml read these lines.
#define RABBET_VERSION_MAJOR 0
#define RABBET_VERSION_MINOR 1
#define RABBET_VERSION_PATCH 0
#define RABBET_VERSION_TEXT_(x) #x
#define RABBET_VERSION_JOIN_(major, minor, patch) \
  RABBET_VERSION_TEXT_(major)                     \
  "." RABBET_VERSION_TEXT_(minor) "." RABBET_VERSION_TEXT_(patch)
// "0.1.0"
#define RABBET_VERSION_STRING                                      \
  RABBET_VERSION_JOIN_(RABBET_VERSION_MAJOR, RABBET_VERSION_MINOR, \
                       RABBET_VERSION_PATCH)

#ifdef __cplusplus
#define RABBET_EXTERN_C_BEGIN extern "C" {
#define RABBET_EXTERN_C_END }
#else
#define RABBET_EXTERN_C_BEGIN
#define RABBET_EXTERN_C_END
#endif

// RABBET_API: part of the stable interface. RABBET_PRIVATE_API: exported only
// so that Rabbet's own libraries can share code; may change in any release and
// is declared in src/, never in include/.
#define RABBET_API __attribute__((visibility("default")))
#define RABBET_PRIVATE_API __attribute__((visibility("default")))
#define RABBET_MUST_USE __attribute__((warn_unused_result))
#define RABBET_PRINTF(text, first) __attribute__((format(printf, text, first)))

RABBET_EXTERN_C_BEGIN

// RABBET_VERSION_STRING of the library in use; static storage.
RABBET_API const char* rabbet_version(void);

RABBET_EXTERN_C_END
#endif  // RABBET_BASE_H_
