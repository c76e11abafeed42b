// Loads a plan and runs it once on inputs of ones. Needs librabbet_runtime
// alone:
//
//   cc run_plan.c -lrabbet_runtime -o run_plan && ./run_plan model.plan
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rabbet/engine.h>

// Memory for one input or output; FP32 inputs are filled with ones.
static rabbet_status_t bind(rabbet_context_t* context, size_t io,
                            const rabbet_io_t* info) {
  size_t bytes = 0;
  void* memory = NULL;
  rabbet_status_t status = rabbet_context_bytes(context, io, &bytes);
  if (rabbet_is_ok(status)) {
    status =
        rabbet_allocate_aligned(rabbet_allocator_system(), bytes, 64, &memory);
  }
  if (!rabbet_is_ok(status)) return status;
  memset(memory, 0, bytes);
  for (size_t i = 0; info->dtype == RABBET_DTYPE_FLOAT && i < bytes / 4; ++i) {
    ((float*)memory)[i] = 1.0f;
  }
  return rabbet_context_set_address(context, io, memory);
}

int main(int argc, char** argv) {
  rabbet_engine_t* engine = NULL;
  rabbet_context_t* context = NULL;
  rabbet_status_t status =
      rabbet_engine_load(argc > 1 ? argv[1] : "model.plan", NULL,
                         rabbet_allocator_system(), &engine);
  if (rabbet_is_ok(status)) {
    status = rabbet_context_create(engine, rabbet_allocator_system(), &context);
  }
  size_t count = rabbet_is_ok(status) ? rabbet_engine_io_count(engine) : 0;
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i) {
    status = bind(context, i, rabbet_engine_io(engine, i));
  }
  if (rabbet_is_ok(status)) status = rabbet_context_execute(context, NULL);
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i) {
    const rabbet_io_t* info = rabbet_engine_io(engine, i);
    if (info->is_input || info->dtype != RABBET_DTYPE_FLOAT) continue;
    printf("%s[0] = %g\n", info->name,
           (double)*(float*)rabbet_context_address(context, i));
  }
  if (!rabbet_is_ok(status)) {
    fprintf(stderr, "run_plan: %s\n", rabbet_status_message(status));
  }
  int code = rabbet_is_ok(status) ? 0 : 1;
  rabbet_status_free(status);
  for (size_t i = 0; context && i < count; ++i) {
    rabbet_free_aligned(rabbet_allocator_system(),
                        rabbet_context_address(context, i), 64);
  }
  rabbet_context_destroy(context);
  rabbet_engine_release(engine);
  return code;
}
