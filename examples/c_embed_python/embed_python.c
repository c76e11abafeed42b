// Runs a plan whose operators are written in Python from a C program.
//
//   embed_python PLAN [PLUGINS.py ...]   with files (or modules) that define
//   them embed_python --carried PLAN          with the source that the plan
//   carries
//
// The library rabbet_pyhost finds an interpreter ($RABBET_PYTHON, or python3 on
// PATH) and opens its shared library. Inputs are ones; each output's first
// value is printed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rabbet/engine.h>
#include <rabbet/pyhost.h>

// Memory for an input or output. Inputs are FLOAT, and ones.
static rabbet_status_t bind(rabbet_context_t* context, size_t io,
                            void** memory) {
  const rabbet_io_t* info =
      rabbet_engine_io(rabbet_context_engine(context), io);
  size_t bytes = 0;
  RABBET_RETURN_IF_ERROR(rabbet_context_bytes(context, io, &bytes));
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(rabbet_allocator_system(),
                                                 bytes, 64, &memory[io]));
  if (info->dtype != RABBET_DTYPE_FLOAT)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "'%s' is not FLOAT, which this example is for",
                         info->name);
  for (size_t i = 0; info->is_input && i < bytes / sizeof(float); ++i)
    ((float*)memory[io])[i] = 1;
  return rabbet_context_set_host_address(context, io, memory[io]);
}

// Nothing here knows of Python, or holds the GIL: the operators take it.
static rabbet_status_t run(rabbet_engine_t* engine) {
  rabbet_context_t* context = NULL;
  size_t count = rabbet_engine_io_count(engine);
  void** memory = calloc(count, sizeof(*memory));
  rabbet_status_t status =
      memory
          ? rabbet_context_create(engine, rabbet_allocator_system(), &context)
          : RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY, "no memory");
  for (size_t io = 0; rabbet_is_ok(status) && io < count; ++io)
    status = bind(context, io, memory);
  if (rabbet_is_ok(status)) status = rabbet_context_execute(context, NULL);
  for (size_t io = 0; rabbet_is_ok(status) && io < count; ++io) {
    const rabbet_io_t* info = rabbet_engine_io(engine, io);
    if (!info->is_input)
      printf("%s[0] = %g\n", info->name, (double)*(const float*)memory[io]);
  }
  rabbet_context_destroy(context);
  for (size_t io = 0; memory && io < count; ++io)
    rabbet_free_aligned(rabbet_allocator_system(), memory[io], 64);
  free(memory);
  return status;
}

int main(int argc, char** argv) {
  bool carried = argc > 1 && strcmp(argv[1], "--carried") == 0;
  char** words = argv + 1 + carried;  // the plan, then plugins
  int count = argc - 1 - carried;
  if (count < 1) {
    fprintf(stderr, "usage: embed_python [--carried] PLAN [PLUGINS.py ...]\n");
    return 2;
  }
  const rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                           .host_code_allowed = carried};
  rabbet_engine_t* engine = NULL;
  rabbet_status_t status = rabbet_pyhost_start(NULL);
  if (rabbet_is_ok(status))
    status = rabbet_pyhost_load_plugins((const char* const*)(words + 1),
                                        (size_t)count - 1);
  if (rabbet_is_ok(status))
    status = rabbet_engine_load(words[0], &options, rabbet_allocator_system(),
                                &engine);
  if (rabbet_is_ok(status)) status = run(engine);
  rabbet_engine_release(engine);
  if (!rabbet_is_ok(status))
    fprintf(stderr, "embed_python: %s\n", rabbet_status_message(status));
  int code = rabbet_is_ok(status) ? 0 : 1;
  rabbet_status_free(status);
  // At last: nothing of Python is in use any more.
  rabbet_status_ignore(rabbet_pyhost_stop());
  return code;
}
