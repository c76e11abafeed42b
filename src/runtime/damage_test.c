// Damaged plans: no crash, and no success if a byte differs.
//
// Damage that the checksums cannot see is made by mutating sections and sealing
// them again; plans that still load are then run as well. Seeds are fixed;
// RABBET_TEST_SEED and RABBET_TEST_ROUNDS choose others.
#include <stdlib.h>

#include "plan/plan_file.h"
#include "plan_bytes.h"
#include "plan_samples.h"
#include "rabbet/engine.h"
#include "test_plugins.h"

#define SYSTEM rabbet_allocator_system()
#define ROUNDS 1500

// ---- An allocator that refuses sizes that no sample needs

static void* capped_resize(void* self, void* block, size_t size,
                           size_t alignment) {
  (void)self;
  if (size > (size_t)16 << 20) return NULL;
  rabbet_allocator_t system = SYSTEM;
  return system.resize(system.self, block, size, alignment);
}

static rabbet_allocator_t capped(void) {
  return (rabbet_allocator_t){.resize = capped_resize};
}

// ---- Trying a plan

typedef struct tally_t {
  int refused, loaded, ran;
} tally_t;

static rabbet_status_t set_up(rabbet_context_t* context, void** buffers) {
  const rabbet_engine_t* engine = rabbet_context_engine(context);
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < rabbet_engine_io_count(engine); ++i) {
    const rabbet_io_t* io = rabbet_engine_io(engine, i);
    rabbet_dims_t min, opt, max;
    size_t bytes = 0;
    if (io->is_input)
      status = rabbet_engine_profile_shape(engine, 0, i, &min, &opt, &max);
    if (io->is_input && rabbet_is_ok(status))
      status = rabbet_context_set_input_shape(context, i, &opt);
    if (rabbet_is_ok(status)) status = rabbet_context_bytes(context, i, &bytes);
    if (rabbet_is_ok(status))
      status = rabbet_allocate_aligned(capped(), bytes + 1, 64, &buffers[i]);
    if (rabbet_is_ok(status)) memset(buffers[i], 1, bytes);
    if (rabbet_is_ok(status) && io->is_shape_input) {
      const int64_t *low, *middle, *high;
      size_t count = 0;
      status = rabbet_engine_profile_values(engine, 0, i, &low, &middle, &high,
                                            &count);
      for (size_t k = 0; k < count && rabbet_is_ok(status); ++k)
        rabbet_store_int64(io->dtype, buffers[i], (int64_t)k, middle[k]);
    }
    if (rabbet_is_ok(status))
      status = rabbet_context_set_address(context, i, buffers[i]);
    if (!rabbet_is_ok(status)) return status;
  }
  return rabbet_ok();
}

static void try_run(rabbet_engine_t* engine, tally_t* tally) {
  rabbet_context_t* context = NULL;
  void* buffers[MAKER_MAX] = {0};
  char* text = NULL;
  size_t bytes = 0;
  rabbet_status_ignore(rabbet_engine_context_bytes(engine, 0, &bytes));
  rabbet_status_t status = rabbet_context_create(engine, capped(), &context);
  if (rabbet_is_ok(status)) status = set_up(context, buffers);
  for (int i = 0; i < 2 && rabbet_is_ok(status); ++i)
    status = rabbet_context_execute(context, NULL);
  tally->ran += rabbet_is_ok(status);
  rabbet_status_ignore(status);
  rabbet_status_ignore(rabbet_engine_inspect(
      engine, context, -1, RABBET_INSPECT_JSON, capped(), &text));
  rabbet_free(capped(), text);
  rabbet_context_destroy(context);
  for (size_t i = 0; i < MAKER_MAX; ++i)
    rabbet_free_aligned(capped(), buffers[i], 64);
}

// Plugins rely on what they have agreed to, so that plans with them are loaded
// but not run.
static void try_plan(const void* data, size_t size, bool run, tally_t* tally) {
  rabbet_engine_t* engine = NULL;
  rabbet_status_t status =
      rabbet_engine_deserialize(data, size, NULL, capped(), &engine);
  if (rabbet_is_ok(status)) {
    ++tally->loaded;
    if (run) try_run(engine, tally);
  } else {
    ++tally->refused;
    assert_true(*rabbet_status_message(status) != 0);
  }
  rabbet_status_ignore(status);
  rabbet_engine_release(engine);
}

static bool has_plugin(const sample_t* sample) {
  return sample->make == sample_reads || sample->make == sample_aliases ||
         sample->make == sample_late;
}

static uint8_t* sample_bytes(const sample_t* sample, size_t* size) {
  void *data = NULL, *copy = NULL;
  maker_bytes(sample->make, SYSTEM, &data, size);
  copy = aligned_alloc(64, (*size + 63) / 64 * 64);
  memcpy(copy, data, *size);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  return copy;
}

// ---- Damage that checksums see

static void expect_refused(const uint8_t* data, size_t size, const char* what,
                           size_t where) {
  rabbet_plan_t* plan = NULL;
  rabbet_status_t status = rabbet_plan_read(data, size, NULL, SYSTEM, &plan);
  rabbet_status_code_t code = rabbet_status_code(status);
  if (code != RABBET_STATUS_DATA_LOSS && code != RABBET_STATUS_INCOMPATIBLE)
    fail_msg("%s at %zu: %s: %s", what, where, rabbet_status_code_name(code),
             rabbet_status_message(status));
  rabbet_status_ignore(status);
  rabbet_plan_destroy(plan);
}

static void truncated(void** state) {
  (void)state;
  for (size_t s = 0; s < SAMPLE_COUNT; ++s) {
    size_t size = 0;
    uint8_t* data = sample_bytes(&samples[s], &size);
    for (size_t cut = 0; cut < size; ++cut)
      expect_refused(data, cut, "truncated", cut);
    free(data);
  }
}

static void flipped_bits(void** state) {
  (void)state;
  for (size_t s = 0; s < SAMPLE_COUNT; ++s) {
    size_t size = 0;
    uint8_t* data = sample_bytes(&samples[s], &size);
    for (size_t bit = 0; bit < size * 8; ++bit) {
      data[bit / 8] ^= (uint8_t)(1 << bit % 8);
      expect_refused(data, size, "bit flipped", bit);
      data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(data);
  }
}

// ---- Damage that checksums do not see

static uint64_t random_state;

static uint32_t random_below(uint32_t limit) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 20) % (limit ? limit : 1);
}

// Numbers that are likely to be on an edge, as the bytes of a varint.
static size_t random_number(uint8_t bytes[10]) {
  static const uint64_t numbers[] = {
      0,         1,          2,          3,
      7,         8,          127,        128,
      255,       65535,      INT32_MAX,  UINT32_MAX,
      INT64_MAX, UINT64_MAX, 1ull << 40, UINT64_MAX - 1};
  uint64_t value = numbers[random_below(sizeof(numbers) / sizeof(numbers[0]))];
  size_t size = 0;
  for (; value >= 128; value >>= 7)
    bytes[size++] = (uint8_t)(value | 128);
  bytes[size++] = (uint8_t)value;
  return size;
}

// One change of `size` bytes that have room for 32 more; the new size.
static size_t mutate(uint8_t* data, size_t size) {
  size_t at = random_below((uint32_t)size), count;
  uint8_t number[10];
  switch (random_below(6)) {
    case 0:
      data[at] = (uint8_t)random_below(256);
      return size;
    case 1:
      data[at] ^= (uint8_t)(1 << random_below(8));
      return size;
    case 2:  // A small number becomes a neighbour.
      data[at] = (uint8_t)(data[at] + (random_below(2) ? 1 : -1));
      return size;
    case 3:  // A number over existing bytes.
      count = random_number(number);
      if (count > size - at) count = size - at;
      memcpy(data + at, number, count);
      return size;
    case 4:
      count = 1 + random_below(8);
      if (count > size - at) count = size - at;
      memmove(data + at, data + at + count, size - at - count);
      return size - count;
    default:  // A piece comes twice.
      count = 1 + random_below(16);
      if (count > size - at) count = size - at;
      memmove(data + at + count, data + at, size - at);
      return size + count;
  }
}

static int64_t setting(const char* name, int64_t fallback) {
  const char* text = getenv(name);
  return text ? atoll(text) : fallback;
}

static void mutated(void** state) {
  (void)state;
  uint64_t seed = (uint64_t)setting("RABBET_TEST_SEED", 20261121);
  int64_t rounds = setting("RABBET_TEST_ROUNDS", ROUNDS);
  tally_t tally = {0};
  random_state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t s = 0; s < SAMPLE_COUNT; ++s) {
    size_t size = 0;
    uint8_t* data = sample_bytes(&samples[s], &size);
    for (int64_t round = 0; round < rounds; ++round) {
      plan_bytes_t parts = plan_bytes_split(data);
      int which = random_below(16) ? PLAN_META : PLAN_DEVICE;
      if (parts.size[PLAN_KERNELS] > 0 && random_below(16) == 0)
        which = PLAN_KERNELS;
      if (parts.size[PLAN_PLUGINS] > 0 && random_below(16) == 0)
        which = PLAN_PLUGINS;
      size_t left = parts.size[which], whole = 0;
      uint8_t* section = malloc(left + 8 * 32);
      memcpy(section, parts.section[which], left);
      for (uint32_t k = random_below(3) + 1; k > 0 && left > 0; --k)
        left = mutate(section, left);
      parts.section[which] = section;
      parts.size[which] = left;
      uint8_t* joined = plan_bytes_join(&parts, &whole);
      try_plan(joined, whole, !has_plugin(&samples[s]), &tally);
      free(joined);
      free(section);
    }
    free(data);
  }
  print_message("seed %llu: %d refused, %d loaded, %d ran\n",
                (unsigned long long)seed, tally.refused, tally.loaded,
                tally.ran);
  assert_true(tally.refused > 0 && tally.loaded > 0 && tally.ran > 0);
}

// Header and table with right checksums but wrong contents.
static void mutated_header(void** state) {
  (void)state;
  size_t size = 0;
  uint8_t* data = sample_bytes(&samples[SAMPLE_COUNT - 1], &size);
  size_t sections = (size_t)plan_bytes_sections(data);
  size_t head = PLAN_BYTES_HEADER + sections * PLAN_BYTES_ROW;
  assert_int_equal(sections, 4);
  for (size_t at = PLAN_BYTES_HEADER; at < head; ++at) {
    uint8_t* copy = aligned_alloc(64, (size + 63) / 64 * 64);
    memcpy(copy, data, size);
    copy[at] ^= 0x41;
    plan_bytes_store(copy + 24, rabbet_hash64(copy + 32, head - 32), 8);
    // Flags may be set: they matter only for unknown sections.
    size_t column = (at - PLAN_BYTES_HEADER) % PLAN_BYTES_ROW;
    if (column < 4 || column >= 8)
      expect_refused(copy, size, "table changed", at);
    free(copy);
  }
  free(data);
}

static void foreign_files(void** state) {
  (void)state;
  static const struct {
    const char* bytes;
    size_t size;
    rabbet_status_code_t code;
    const char* message;
  } files[] = {
      {"", 0, RABBET_STATUS_DATA_LOSS, "the plan is empty"},
      {"\x89RAB", 4, RABBET_STATUS_DATA_LOSS, "truncated: it has 4 bytes"},
      {"\x08\x07\x12\x07pytorch", 11, RABBET_STATUS_INCOMPATIBLE,
       "seems to be an ONNX model"},
      {"ftrt....", 8, RABBET_STATUS_INCOMPATIBLE, "a TensorRT engine"},
      {"PK\3\4....", 8, RABBET_STATUS_INCOMPATIBLE, "a zip archive"},
      {"hello", 5, RABBET_STATUS_INCOMPATIBLE, "not a plan"},
  };
  rabbet_plan_t* plan = NULL;
  for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); ++i)
    RABBET_EXPECT_ERROR(
        rabbet_plan_read(files[i].bytes, files[i].size, NULL, SYSTEM, &plan),
        files[i].code, files[i].message);
  size_t size = 0;
  uint8_t* data = sample_bytes(&samples[0], &size);
  RABBET_EXPECT_ERROR(rabbet_plan_read(data, size - 1, NULL, SYSTEM, &plan),
                      RABBET_STATUS_DATA_LOSS, "the plan is truncated: it has");
  data[8] = RABBET_PLAN_FORMAT_VERSION + 1;
  RABBET_EXPECT_ERROR(rabbet_plan_read(data, size, NULL, SYSTEM, &plan),
                      RABBET_STATUS_INCOMPATIBLE,
                      "format version 4, written by 'rabbet test'");
  data[8] = RABBET_PLAN_FORMAT_VERSION;
  data[size - 1] ^= 1;
  RABBET_EXPECT_ERROR(rabbet_plan_read(data, size, NULL, SYSTEM, &plan),
                      RABBET_STATUS_DATA_LOSS, "section 3 (WEIGHTS");
  free(data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(truncated),     cmocka_unit_test(flipped_bits),
      cmocka_unit_test(mutated),       cmocka_unit_test(mutated_header),
      cmocka_unit_test(foreign_files),
  };
  return cmocka_run_group_tests(tests, test_plugins_setup,
                                test_plugins_teardown);
}
