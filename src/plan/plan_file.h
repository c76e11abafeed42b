// The container of a plan file: header, table of sections, sections.
// docs/reference/plan_format.md describes it; plan.h is the header for users.
#ifndef RABBET_SRC_PLAN_PLAN_FILE_H_
#define RABBET_SRC_PLAN_PLAN_FILE_H_

#include "base/file.h"

#define RABBET_PLAN_FORMAT_VERSION 3

// Numbers are stable.
typedef enum rabbet_plan_section_t {
  RABBET_PLAN_SECTION_DEVICE = 1,   // kind, newline, signature
  RABBET_PLAN_SECTION_META = 2,     // protobuf rabbet.plan.Meta
  RABBET_PLAN_SECTION_WEIGHTS = 3,  // bytes of the constants
  RABBET_PLAN_SECTION_KERNELS = 4,  // bytes of the artifacts; only if any
  RABBET_PLAN_SECTION_PLUGINS = 5,  // code that plugins need; only if any
  RABBET_PLAN_SECTION_LIMIT = 6,
} rabbet_plan_section_t;

typedef struct rabbet_plan_sections_t {
  rabbet_span_t section[RABBET_PLAN_SECTION_LIMIT];  // by its number
  char producer[33];
} rabbet_plan_sections_t;

// Bytes of a file with sections of these sizes; fills their offsets. KERNELS
// and PLUGINS are left out when they are empty, so that they do not change
// other plans.
rabbet_status_t rabbet_plan_file_layout(
    const uint64_t sizes[RABBET_PLAN_SECTION_LIMIT],
    uint64_t out_offsets[RABBET_PLAN_SECTION_LIMIT], uint64_t* out_size);

// Writes header and table: rabbet_plan_file_head_size bytes, which `head` has
// as zeros.
#define RABBET_PLAN_FILE_MAX_HEAD 256
size_t rabbet_plan_file_head_size(
    const uint64_t sizes[RABBET_PLAN_SECTION_LIMIT]);
void rabbet_plan_file_head(uint8_t* head, uint64_t size, const char* producer,
                           const uint64_t sizes[RABBET_PLAN_SECTION_LIMIT],
                           const uint64_t offsets[RABBET_PLAN_SECTION_LIMIT],
                           const uint64_t checksums[RABBET_PLAN_SECTION_LIMIT]);
// The same for a file whose sections already stand at their
// offsets in `data` (zero elsewhere).
void rabbet_plan_file_seal(uint8_t* data, uint64_t size, const char* producer,
                           const uint64_t sizes[RABBET_PLAN_SECTION_LIMIT],
                           const uint64_t offsets[RABBET_PLAN_SECTION_LIMIT]);

// Recomputes the checksums of a sealed file whose sections were changed.
void rabbet_plan_file_reseal(uint8_t* data);

// Checks every byte of header, table and padding, and all checksums, unless
// this process has just written them (`is_own`). Sections are borrowed from
// `data`.
rabbet_status_t rabbet_plan_file_open(const uint8_t* data, size_t size,
                                      bool is_own,
                                      rabbet_plan_sections_t* out_sections);

#endif  // RABBET_SRC_PLAN_PLAN_FILE_H_
