// A plugin library for tests: "halve" of the namespace "carried", y = x / 2.
// CMakeLists.txt makes several of it, each with one thing wrong.
#include "plugin_answers.h"

static rabbet_status_t halve_enqueue(void* self,
                                     const rabbet_plugin_call_t* call) {
  (void)self;
  int64_t count = 0;
  const float* x = call->inputs[0].data;
  float* y = call->outputs[0].data;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&call->inputs[0].dims, &count));
  if (count > 0 && x[0] != x[0])
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "the first element is not a number");
  for (int64_t i = 0; i < count; ++i)
    y[i] = x[i] / 2;
  return rabbet_ok();
}

static void halve_destroy(void* self) {
  rabbet_free(rabbet_allocator_system(), self);
}

// An instance has memory, so that a leak is one.
static rabbet_status_t halve_create(void* user_data,
                                    const rabbet_plugin_create_t* args,
                                    rabbet_plugin_instance_t* out_instance) {
  static const rabbet_plugin_vtable_t vtable = {
      .struct_size = sizeof(vtable),
      .destroy = halve_destroy,
      .output_count = plugin_one_output,
      .describe = plugin_describe_like,
      .enqueue = halve_enqueue,
  };
  (void)user_data, (void)args;
  void* self = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(rabbet_allocator_system(), 8, &self));
  *out_instance = (rabbet_plugin_instance_t){&vtable, self};
  return rabbet_ok();
}

static rabbet_status_t add(const char* name) {
  rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                     .name = name,
                                     .plugin_namespace = "carried",
                                     .origin = "library.c",
                                     .destroy = halve_destroy,
                                     .create = halve_create,
                                     .input_count = 1};
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(rabbet_allocator_system(), 8, &creator.user_data));
  rabbet_status_t status = rabbet_plugin_register(&creator);
  if (!rabbet_is_ok(status)) halve_destroy(creator.user_data);
  return status;
}

// Libraries whose entry is data have no call of it.
__attribute__((unused)) static rabbet_status_t add_all(void) {
  RABBET_RETURN_IF_ERROR(add("halve"));
#if defined(LIBRARY_TWICE)
  RABBET_RETURN_IF_ERROR(add("halve"));
#elif defined(LIBRARY_FAILS)
  return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE, "it was made to fail");
#endif
  return rabbet_ok();
}

#if defined(LIBRARY_WITHOUT_ENTRY)
// The name alone is no entry.
RABBET_PLUGIN_EXPORT const char* other_entry(void);
RABBET_PLUGIN_EXPORT const char* other_entry(void) {
  rabbet_status_free(add_all());
  return "rabbet_plugin_library_register";
}
#elif defined(LIBRARY_OF_LATER_ABI)
RABBET_PLUGIN_EXPORT uint32_t rabbet_plugin_library_abi(void);
RABBET_PLUGIN_EXPORT uint32_t rabbet_plugin_library_abi(void) {
  return RABBET_PLUGIN_ABI + 1;
}
RABBET_PLUGIN_EXPORT rabbet_status_t rabbet_plugin_library_register(void);
RABBET_PLUGIN_EXPORT rabbet_status_t rabbet_plugin_library_register(void) {
  return add_all();
}
#elif defined(LIBRARY_WITHOUT_ABI)
RABBET_PLUGIN_EXPORT rabbet_status_t rabbet_plugin_library_register(void);
RABBET_PLUGIN_EXPORT rabbet_status_t rabbet_plugin_library_register(void) {
  return add_all();
}
#elif defined(LIBRARY_DATA_ENTRY)
RABBET_PLUGIN_EXPORT extern LIBRARY_DATA_ENTRY int
    rabbet_plugin_library_register[4];
RABBET_PLUGIN_EXPORT LIBRARY_DATA_ENTRY int rabbet_plugin_library_register[4] =
    {1};
#elif defined(LIBRARY_DATA_ABI)
RABBET_PLUGIN_EXPORT uint32_t rabbet_plugin_library_abi = RABBET_PLUGIN_ABI;
RABBET_PLUGIN_EXPORT rabbet_status_t rabbet_plugin_library_register(void);
RABBET_PLUGIN_EXPORT rabbet_status_t rabbet_plugin_library_register(void) {
  return add_all();
}
#elif defined(LIBRARY_INDIRECT)
// The loader asks which function the entry is; that one has no symbol.
static rabbet_status_t (*choose_entry(void))(void) {
  return add_all;
}
RABBET_PLUGIN_EXPORT uint32_t rabbet_plugin_library_abi(void);
RABBET_PLUGIN_EXPORT uint32_t rabbet_plugin_library_abi(void) {
  return RABBET_PLUGIN_ABI;
}
RABBET_PLUGIN_EXPORT rabbet_status_t rabbet_plugin_library_register(void)
    __attribute__((ifunc("choose_entry")));
#else
RABBET_PLUGIN_LIBRARY(add_all)
#endif
