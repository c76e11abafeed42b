// Reads bytes as a plan file, whose checksums are put right, and as the META
// section of one for the null device; what loads is run on its device, at its
// usual shapes with a look at the results of each step.
#include <stdio.h>

#include "base/math.h"
#include "core/view.h"
#include "fuzz_plugins.h"
#include "plan/plan.h"
#include "plan_bytes.h"
#include "plan_mutate.h"
#include "rabbet/engine.h"

#define FUZZ_MOST_IO 16
#define FUZZ_MOST_BYTES ((size_t)16 << 20)

// Refuses what would only test the machine's memory.
static void* capped_resize(void* self, void* block, size_t size,
                           size_t alignment) {
  (void)self;
  if (size > FUZZ_MOST_BYTES) return NULL;
  rabbet_allocator_t system = rabbet_allocator_system();
  return system.resize(system.self, block, size, alignment);
}

static const rabbet_allocator_t capped = {.resize = capped_resize};

// RABBET_FUZZ_VERBOSE=1: tells how each load and run ended.
static void report(rabbet_status_t status) {
  if (getenv("RABBET_FUZZ_VERBOSE"))
    fprintf(stderr, "%s\n",
            rabbet_is_ok(status) ? "ok" : rabbet_status_message(status));
  rabbet_status_ignore(status);
}

// Elements of any kind: most small, some large or negative.
static void fill(rabbet_dtype_t dtype, void* data, size_t bytes,
                 uint32_t seed) {
  size_t size = (size_t)rabbet_dtype_bits(dtype) / 8;
  for (size_t i = 0; size > 0 && i < bytes / size; ++i) {
    seed = seed * 1664525 + 1013904223;
    uint32_t choice = seed >> 24;
    int64_t value = choice < 200   ? (int64_t)(choice % 4)
                    : choice < 230 ? -(int64_t)(choice % 8)
                                   : (int64_t)(int32_t)seed;
    if (rabbet_dtype_is_integer(dtype))
      rabbet_store_int64(dtype, data, (int64_t)i, value);
    else
      memset((char*)data + i * size, (int)(choice < 250 ? choice % 64 : 0xff),
             size);
  }
}

// The profile's smallest shapes and values (0), usual ones (1), largest (2).
static rabbet_status_t bind(rabbet_context_t* context, size_t i, int which,
                            void** buffer) {
  const rabbet_engine_t* engine = rabbet_context_engine(context);
  const rabbet_io_t* io = rabbet_engine_io(engine, i);
  rabbet_dims_t dims[3];
  const int64_t* values[3];
  size_t bytes = 0, count = 0;
  if (io->is_input) {
    RABBET_RETURN_IF_ERROR(rabbet_engine_profile_shape(engine, 0, i, &dims[0],
                                                       &dims[1], &dims[2]));
    RABBET_RETURN_IF_ERROR(
        rabbet_context_set_input_shape(context, i, &dims[which]));
  }
  RABBET_RETURN_IF_ERROR(rabbet_context_bytes(context, i, &bytes));
  // Of exactly that size, so that a sanitizer sees each byte beyond it.
  if (bytes > FUZZ_MOST_BYTES || posix_memalign(buffer, 64, bytes ? bytes : 1))
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY, "%zu bytes", bytes);
  fill(io->dtype, *buffer, bytes, (uint32_t)(bytes + i));
  if (io->is_shape_input) {
    RABBET_RETURN_IF_ERROR(rabbet_engine_profile_values(
        engine, 0, i, &values[0], &values[1], &values[2], &count));
    for (size_t k = 0; k < count; ++k)
      rabbet_store_int64(io->dtype, *buffer, (int64_t)k, values[which][k]);
  }
  return rabbet_context_set_host_address(context, i, *buffer);
}

static void run(rabbet_engine_t* engine, int which) {
  rabbet_context_t* context = NULL;
  void* buffers[FUZZ_MOST_IO] = {0};
  char* text = NULL;
  rabbet_status_t status = rabbet_context_create(engine, capped, &context);
  size_t count = rabbet_engine_io_count(engine);
  for (size_t i = 0; i < count && count <= FUZZ_MOST_IO && rabbet_is_ok(status);
       ++i)
    status = bind(context, i, which, &buffers[i]);
  if (rabbet_is_ok(status) && which == 1)
    status = rabbet_context_set_check_finite(context, true);
  if (rabbet_is_ok(status)) status = rabbet_context_execute(context, NULL);
  report(status);
  report(rabbet_engine_inspect(engine, context, -1, RABBET_INSPECT_JSON, capped,
                               &text));
  rabbet_free(capped, text);
  rabbet_context_destroy(context);
  for (size_t i = 0; i < FUZZ_MOST_IO; ++i)
    free(buffers[i]);
}

static void load(const void* data, size_t size) {
  const rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                           .host_code_allowed = true,
                                           .iteration_limit = 1000};
  rabbet_engine_t* engine = NULL;
  rabbet_status_t status =
      rabbet_engine_deserialize(data, size, &options, capped, &engine);
  for (int which = 0; which < 3 && rabbet_is_ok(status); ++which)
    run(engine, which);
  report(status);
  rabbet_engine_release(engine);
  fuzz_forget_source();
}

static bool is_plan(const uint8_t* data, size_t size) {
  return size > PLAN_BYTES_HEADER && memcmp(data, "\x89RABBET\n", 8) == 0;
}

static void load_meta(const uint8_t* data, size_t size) {
  static const uint8_t bytes[256];
  // Bytes of KERNELS and PLUGINS: none, and as many as the seeds have.
  static const uint64_t sizes[][2] = {{0, 0}, {164, 0}, {0, 128}};
  plan_bytes_t parts = {
      {(const uint8_t*)"null\nnull", data, bytes, bytes, bytes},
      {9, size, sizeof(bytes)}};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
    size_t whole = 0;
    parts.size[PLAN_KERNELS] = sizes[i][0];
    parts.size[PLAN_PLUGINS] = sizes[i][1];
    uint8_t* joined = plan_bytes_join(&parts, &whole);
    load(joined, whole);
    free(joined);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static bool registered;
  if (!registered) fuzz_plugins_register();
  registered = true;
  load(data, size);
  if (is_plan(data, size)) return 0;
  load_meta(data, size);
  return 0;
}

#ifdef RABBET_FUZZ
// libFuzzer's mutator changes bytes, which checksums would find at once.
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity,
                               unsigned seed);
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t capacity);

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity,
                               unsigned seed) {
  size_t made = 0;
  uint8_t* file = plan_mutate(data, size, NULL, 0, seed, &made);
  if (!file) return LLVMFuzzerMutate(data, size, capacity);
  if (made <= capacity) memcpy(data, file, made);
  free(file);
  return made <= capacity ? made : size;
}
#endif
