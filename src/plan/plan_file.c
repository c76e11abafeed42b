#include "plan/plan_file.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/math.h"
#include "plan/plan.h"

// Header, 64 bytes: magic 8 | version u32 | sections u32 | file size u64 |
// checksum u64 of all that follows up to the table's end | producer 32.
// Row of the table, 32 bytes: id u32 | flags u32 | offset u64 | size u64 |
// checksum u64.
#define RABBET_PLAN_HEADER_SIZE 64
#define RABBET_PLAN_ROW_SIZE 32
#define RABBET_PLAN_MAX_SECTIONS 64
#define RABBET_PLAN_CHECKED_FROM 32
// A reader that does not know the section may pass it over.
#define RABBET_PLAN_FLAG_OPTIONAL 1u

static const uint8_t plan_magic[8] = {0x89, 'R', 'A', 'B', 'B', 'E', 'T', '\n'};

static uint32_t load32(const uint8_t* data) {
  return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
         (uint32_t)data[3] << 24;
}
static uint64_t load64(const uint8_t* data) {
  return load32(data) | (uint64_t)load32(data + 4) << 32;
}
static void store32(uint8_t* data, uint32_t value) {
  for (int i = 0; i < 4; ++i)
    data[i] = (uint8_t)(value >> (8 * i));
}
static void store64(uint8_t* data, uint64_t value) {
  store32(data, (uint32_t)value);
  store32(data + 4, (uint32_t)(value >> 32));
}

static const char* plan_section_name(uint32_t id) {
  static const char* const names[] = {"?",       "DEVICE",  "META",
                                      "WEIGHTS", "KERNELS", "PLUGINS"};
  return id < RABBET_PLAN_SECTION_LIMIT ? names[id] : "?";
}

static bool plan_section_optional(uint32_t id) {
  return id == RABBET_PLAN_SECTION_KERNELS || id == RABBET_PLAN_SECTION_PLUGINS;
}

// ---- Writing

static bool plan_has_section(const uint64_t sizes[RABBET_PLAN_SECTION_LIMIT],
                             uint32_t id) {
  return sizes[id] > 0 || !plan_section_optional(id);
}

static uint32_t plan_count_sections(
    const uint64_t sizes[RABBET_PLAN_SECTION_LIMIT]) {
  uint32_t count = 0;
  for (uint32_t id = 1; id < RABBET_PLAN_SECTION_LIMIT; ++id)
    count += plan_has_section(sizes, id);
  return count;
}

rabbet_status_t rabbet_plan_file_layout(
    const uint64_t sizes[RABBET_PLAN_SECTION_LIMIT],
    uint64_t out_offsets[RABBET_PLAN_SECTION_LIMIT], uint64_t* out_size) {
  uint64_t end = RABBET_PLAN_HEADER_SIZE +
                 RABBET_PLAN_ROW_SIZE * plan_count_sections(sizes);
  for (uint32_t id = 1; id < RABBET_PLAN_SECTION_LIMIT; ++id) {
    if (!plan_has_section(sizes, id)) continue;
    out_offsets[id] = rabbet_align_up(end, RABBET_PLAN_ALIGNMENT);
    if (sizes[id] > INT64_MAX / 2 ||
        !rabbet_checked_add(out_offsets[id], sizes[id], &end) ||
        end > INT64_MAX / 2) {
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "section %s of %llu bytes is too large for a plan",
                           plan_section_name(id),
                           (unsigned long long)sizes[id]);
    }
  }
  *out_size = end;
  return rabbet_ok();
}

static_assert(RABBET_PLAN_HEADER_SIZE +
                      RABBET_PLAN_ROW_SIZE * (RABBET_PLAN_SECTION_LIMIT - 1) <=
                  RABBET_PLAN_FILE_MAX_HEAD,
              "all sections fit");

size_t rabbet_plan_file_head_size(
    const uint64_t sizes[RABBET_PLAN_SECTION_LIMIT]) {
  return RABBET_PLAN_HEADER_SIZE +
         (size_t)RABBET_PLAN_ROW_SIZE * plan_count_sections(sizes);
}

void rabbet_plan_file_head(
    uint8_t* head, uint64_t size, const char* producer,
    const uint64_t sizes[RABBET_PLAN_SECTION_LIMIT],
    const uint64_t offsets[RABBET_PLAN_SECTION_LIMIT],
    const uint64_t checksums[RABBET_PLAN_SECTION_LIMIT]) {
  memcpy(head, plan_magic, sizeof(plan_magic));
  store32(head + 8, RABBET_PLAN_FORMAT_VERSION);
  store32(head + 12, plan_count_sections(sizes));
  store64(head + 16, size);
  size_t producer_size = strlen(producer);
  memcpy(head + 32, producer, producer_size < 32 ? producer_size : 32);
  uint8_t* row = head + RABBET_PLAN_HEADER_SIZE;
  for (uint32_t id = 1; id < RABBET_PLAN_SECTION_LIMIT; ++id) {
    if (!plan_has_section(sizes, id)) continue;
    assert(offsets[id] % RABBET_PLAN_ALIGNMENT == 0 && offsets[id] <= size &&
           sizes[id] <= size - offsets[id]);
    store32(row, id);
    store64(row + 8, offsets[id]);
    store64(row + 16, sizes[id]);
    store64(row + 24, checksums[id]);
    row += RABBET_PLAN_ROW_SIZE;
  }
  store64(head + 24,
          rabbet_hash64(head + RABBET_PLAN_CHECKED_FROM,
                        (size_t)(row - head) - RABBET_PLAN_CHECKED_FROM));
}

void rabbet_plan_file_seal(uint8_t* data, uint64_t size, const char* producer,
                           const uint64_t sizes[RABBET_PLAN_SECTION_LIMIT],
                           const uint64_t offsets[RABBET_PLAN_SECTION_LIMIT]) {
  uint64_t checksums[RABBET_PLAN_SECTION_LIMIT] = {0};
  assert(size >= rabbet_plan_file_head_size(sizes));
  for (uint32_t id = 1; id < RABBET_PLAN_SECTION_LIMIT; ++id)
    if (plan_has_section(sizes, id))
      checksums[id] = rabbet_hash64(data + offsets[id], (size_t)sizes[id]);
  rabbet_plan_file_head(data, size, producer, sizes, offsets, checksums);
}

void rabbet_plan_file_reseal(uint8_t* data) {
  uint32_t count = load32(data + 12);
  uint8_t* row = data + RABBET_PLAN_HEADER_SIZE;
  assert(memcmp(data, plan_magic, sizeof(plan_magic)) == 0);
  assert(count > 0 && count <= RABBET_PLAN_MAX_SECTIONS);
  for (uint32_t i = 0; i < count; ++i, row += RABBET_PLAN_ROW_SIZE)
    store64(row + 24,
            rabbet_hash64(data + load64(row + 8), (size_t)load64(row + 16)));
  store64(data + 24,
          rabbet_hash64(data + RABBET_PLAN_CHECKED_FROM,
                        (size_t)(row - data) - RABBET_PLAN_CHECKED_FROM));
}

// ---- Reading

// Guesses the kind of a file that is no plan.
static const char* plan_guess(const uint8_t* data, size_t size) {
  if (size >= 4 && memcmp(data, "PK\3\4", 4) == 0)
    return "; it seems to be a zip archive";
  if (size >= 4 && memcmp(data, "\177ELF", 4) == 0)
    return "; it seems to be a shared library or program";
  if (size >= 4 && memcmp(data, "ftrt", 4) == 0)
    return "; it seems to be a TensorRT engine, build the model again with "
           "rabbet";
  if (size >= 2 && data[0] == 0x08 && data[1] < 0x20)
    return "; it seems to be an ONNX model, build it first with "
           "rabbet.compile or 'rabbet build'";
  return "";
}

static rabbet_status_t plan_check_header(const uint8_t* data, size_t size) {
  size_t known = size < 8 ? size : 8;
  if (size == 0)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS, "the plan is empty");
  if (memcmp(data, plan_magic, known) != 0)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "this is not a plan: it does not begin with the "
                         "signature of one%s",
                         plan_guess(data, size));
  if (size < RABBET_PLAN_HEADER_SIZE)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the plan is truncated: it has %zu bytes, its header "
                         "alone %d",
                         size, RABBET_PLAN_HEADER_SIZE);
  uint32_t version = load32(data + 8);
  if (version != RABBET_PLAN_FORMAT_VERSION)
    return RABBET_STATUS(
        RABBET_STATUS_INCOMPATIBLE,
        "the plan has format version %u, written by '%.32s'; rabbet %s reads "
        "version %d. Build the plan again",
        version, (const char*)data + 32, rabbet_version(),
        RABBET_PLAN_FORMAT_VERSION);
  uint64_t file_size = load64(data + 16);
  if (file_size > size)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the plan is truncated: it has %zu of %llu bytes",
                         size, (unsigned long long)file_size);
  if (file_size < size)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "%zu bytes follow after the plan's end at %llu",
                         size - (size_t)file_size,
                         (unsigned long long)file_size);
  return rabbet_ok();
}

static rabbet_status_t plan_check_table(const uint8_t* data, size_t size,
                                        uint32_t* out_count) {
  uint32_t count = load32(data + 12);
  *out_count = count;
  if (count == 0 || count > RABBET_PLAN_MAX_SECTIONS ||
      RABBET_PLAN_HEADER_SIZE + count * RABBET_PLAN_ROW_SIZE > size)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the plan's header is damaged: it names %u sections "
                         "in %zu bytes",
                         count, size);
  size_t end = RABBET_PLAN_HEADER_SIZE + count * RABBET_PLAN_ROW_SIZE;
  if (rabbet_hash64(data + RABBET_PLAN_CHECKED_FROM,
                    end - RABBET_PLAN_CHECKED_FROM) != load64(data + 24))
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the plan's header is damaged: its checksum differs");
  return rabbet_ok();
}

static bool all_zero(const uint8_t* data, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (data[i]) return false;
  }
  return true;
}

// Sections lie one behind another, each at the next multiple of 64, with zeros
// between, so that no byte of the file goes unchecked.
static rabbet_status_t plan_check_row(const uint8_t* data, size_t size,
                                      bool is_own, uint32_t number, size_t* end,
                                      rabbet_plan_sections_t* sections) {
  const uint8_t* row =
      data + RABBET_PLAN_HEADER_SIZE + number * RABBET_PLAN_ROW_SIZE;
  uint32_t id = load32(row), flags = load32(row + 4);
  uint64_t offset = load64(row + 8), length = load64(row + 16);
  size_t expected = rabbet_align_up(*end, RABBET_PLAN_ALIGNMENT);
  if (offset != expected || offset > size || length > size - offset)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "section %u (%s) lies at %llu with %llu bytes; "
                         "expected at %zu, within %zu bytes",
                         id, plan_section_name(id), (unsigned long long)offset,
                         (unsigned long long)length, expected, size);
  assert(expected >= *end && expected <= size);
  if (!all_zero(data + *end, expected - *end))
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the padding before section %u (%s) is not zero", id,
                         plan_section_name(id));
  if (!is_own && rabbet_hash64(data + offset, length) != load64(row + 24))
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "section %u (%s, %llu bytes at %llu) is damaged: its "
                         "checksum differs",
                         id, plan_section_name(id), (unsigned long long)length,
                         (unsigned long long)offset);
  *end = (size_t)(offset + length);
  bool known = id > 0 && id < RABBET_PLAN_SECTION_LIMIT;
  if (known && sections->section[id].data)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS, "section %u (%s) comes twice",
                         id, plan_section_name(id));
  if (known && length == 0 && plan_section_optional(id))
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS, "section %u (%s) is empty",
                         id, plan_section_name(id));
  if (known)
    sections->section[id] = (rabbet_span_t){data + offset, (size_t)length};
  if (!known && !(flags & RABBET_PLAN_FLAG_OPTIONAL))
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "the plan has a section %u that rabbet %s does not "
                         "know; it was written by '%s'",
                         id, rabbet_version(), sections->producer);
  return rabbet_ok();
}

rabbet_status_t rabbet_plan_file_open(const uint8_t* data, size_t size,
                                      bool is_own,
                                      rabbet_plan_sections_t* out_sections) {
  *out_sections = (rabbet_plan_sections_t){0};
  RABBET_RETURN_IF_ERROR(plan_check_header(data, size));
  uint32_t count = 0;
  RABBET_RETURN_IF_ERROR(plan_check_table(data, size, &count));
  memcpy(out_sections->producer, data + 32, 32);
  size_t end = RABBET_PLAN_HEADER_SIZE + count * RABBET_PLAN_ROW_SIZE;
  for (uint32_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(
        plan_check_row(data, size, is_own, i, &end, out_sections));
  if (end != size)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the sections end at %zu, the plan at %zu", end, size);
  for (uint32_t id = 1; id < RABBET_PLAN_SECTION_LIMIT; ++id) {
    if (!out_sections->section[id].data && !plan_section_optional(id))
      return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                           "section %u (%s) is missing", id,
                           plan_section_name(id));
  }
  return rabbet_ok();
}
