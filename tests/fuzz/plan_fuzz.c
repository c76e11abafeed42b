// Reads bytes as a plan file, and as the META section of one whose checksums
// are right; what loads is run once on the null device.
#include "base/math.h"
#include "core/view.h"
#include "plan/plan.h"
#include "plan_bytes.h"
#include "rabbet/engine.h"

#define FUZZ_MOST_IO 16

// Refuses what would only test the machine's memory.
static void* capped_resize(void* self, void* block, size_t size,
                           size_t alignment) {
  (void)self;
  if (size > (size_t)16 << 20) return NULL;
  rabbet_allocator_t system = rabbet_allocator_system();
  return system.resize(system.self, block, size, alignment);
}

static const rabbet_allocator_t capped = {.resize = capped_resize};

static rabbet_status_t bind(rabbet_context_t* context, size_t i,
                            void** buffer) {
  const rabbet_engine_t* engine = rabbet_context_engine(context);
  const rabbet_io_t* io = rabbet_engine_io(engine, i);
  rabbet_dims_t min, opt, max;
  const int64_t *low, *middle, *high;
  size_t bytes = 0, count = 0;
  if (io->is_input) {
    RABBET_RETURN_IF_ERROR(
        rabbet_engine_profile_shape(engine, 0, i, &min, &opt, &max));
    RABBET_RETURN_IF_ERROR(rabbet_context_set_input_shape(context, i, &opt));
  }
  RABBET_RETURN_IF_ERROR(rabbet_context_bytes(context, i, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate_aligned(capped, bytes + 1, 64, buffer));
  memset(*buffer, 1, bytes);
  if (io->is_shape_input) {
    RABBET_RETURN_IF_ERROR(rabbet_engine_profile_values(
        engine, 0, i, &low, &middle, &high, &count));
    for (size_t k = 0; k < count; ++k)
      rabbet_store_int64(io->dtype, *buffer, (int64_t)k, middle[k]);
  }
  return rabbet_context_set_address(context, i, *buffer);
}

static void run(rabbet_engine_t* engine) {
  rabbet_context_t* context = NULL;
  void* buffers[FUZZ_MOST_IO] = {0};
  char* text = NULL;
  rabbet_status_t status = rabbet_context_create(engine, capped, &context);
  size_t count = rabbet_engine_io_count(engine);
  for (size_t i = 0; i < count && count <= FUZZ_MOST_IO && rabbet_is_ok(status);
       ++i)
    status = bind(context, i, &buffers[i]);
  if (rabbet_is_ok(status)) status = rabbet_context_execute(context, NULL);
  rabbet_status_ignore(status);
  rabbet_status_ignore(rabbet_engine_inspect(
      engine, context, -1, RABBET_INSPECT_JSON, capped, &text));
  rabbet_free(capped, text);
  rabbet_context_destroy(context);
  for (size_t i = 0; i < FUZZ_MOST_IO; ++i)
    rabbet_free_aligned(capped, buffers[i], 64);
}

static void load(const void* data, size_t size) {
  rabbet_engine_t* engine = NULL;
  rabbet_status_t status =
      rabbet_engine_deserialize(data, size, NULL, capped, &engine);
  if (rabbet_is_ok(status)) run(engine);
  rabbet_status_ignore(status);
  rabbet_engine_release(engine);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const uint8_t weights[256];
  plan_bytes_t parts = {{(const uint8_t*)"null\nnull", data, weights, weights},
                        {9, size, sizeof(weights), 0}};
  load(data, size);
  // Without artifacts, and with as many bytes of them as the seeds have.
  for (uint64_t kernels = 0; kernels <= 164; kernels += 164) {
    size_t whole = 0;
    parts.size[PLAN_KERNELS] = kernels;
    uint8_t* joined = plan_bytes_join(&parts, &whole);
    load(joined, whole);
    free(joined);
  }
  return 0;
}
