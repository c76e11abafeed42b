#include "device/cpu/dnnl/wrap.h"

#include <stdio.h>
#include <string.h>

#include "device/cpu/dnnl/internal.h"

// ---- Errors ----------------------------------------------------------------

static const struct {
  dnnl_status_t status;
  rabbet_status_code_t code;
  const char* text;
} rabbet_dnnl_statuses[] = {
    {dnnl_out_of_memory, RABBET_STATUS_OUT_OF_MEMORY, "out of memory"},
    {dnnl_invalid_arguments, RABBET_STATUS_INTERNAL, "invalid arguments"},
    {dnnl_unimplemented, RABBET_STATUS_UNSUPPORTED, "unimplemented"},
    {dnnl_iterator_ends, RABBET_STATUS_NOT_FOUND, "no more implementations"},
    {dnnl_runtime_error, RABBET_STATUS_INTERNAL, "runtime error"},
    {dnnl_not_required, RABBET_STATUS_INTERNAL, "not required"},
};

rabbet_status_t rabbet_dnnl_status(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return rabbet_ok();
  for (size_t i = 0;
       i < sizeof(rabbet_dnnl_statuses) / sizeof(rabbet_dnnl_statuses[0]);
       ++i) {
    if (rabbet_dnnl_statuses[i].status != status) continue;
    return RABBET_STATUS(rabbet_dnnl_statuses[i].code, "oneDNN: %s: %s", what,
                         rabbet_dnnl_statuses[i].text);
  }
  return RABBET_STATUS(RABBET_STATUS_INTERNAL, "oneDNN: %s: status %d", what,
                       (int)status);
}

// ---- The library -----------------------------------------------------------

rabbet_status_t rabbet_dnnl_create(rabbet_allocator_t allocator,
                                   rabbet_dnnl_t** out_dnnl) {
  *out_dnnl = NULL;
  rabbet_dnnl_t* dnnl = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*dnnl), (void**)&dnnl));
  dnnl->allocator = allocator;
  dnnl_status_t result = dnnl_engine_create(&dnnl->engine, dnnl_cpu, 0);
  rabbet_status_t status = rabbet_dnnl_status(result, "creating the engine");
  if (!rabbet_is_ok(status)) {
    rabbet_free(allocator, dnnl);
    return status;
  }
  pthread_mutex_init(&dnnl->lock, NULL);
  rabbet_map_initialize(allocator, &dnnl->lists);
  rabbet_arena_initialize(allocator, &dnnl->arena);
  *out_dnnl = dnnl;
  return rabbet_ok();
}

void rabbet_dnnl_destroy(rabbet_dnnl_t* dnnl) {
  if (!dnnl) return;
  dnnl_engine_destroy(dnnl->engine);
  rabbet_map_deinitialize(&dnnl->lists);
  rabbet_arena_deinitialize(&dnnl->arena);
  pthread_mutex_destroy(&dnnl->lock);
  rabbet_free(dnnl->allocator, dnnl);
}

void rabbet_dnnl_version(char out_text[32]) {
  const dnnl_version_t* version = dnnl_version();
  snprintf(out_text, 32, "%d.%d.%d", version->major, version->minor,
           version->patch);
}

const char* rabbet_dnnl_isa(void) {
  static const struct {
    dnnl_cpu_isa_t isa;
    const char* name;
  } names[] = {
      {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
      {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
      {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
      {dnnl_cpu_isa_avx512_core, "avx512_core"},
      {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
      {dnnl_cpu_isa_avx2, "avx2"},
      {dnnl_cpu_isa_avx, "avx"},
      {dnnl_cpu_isa_sse41, "sse41"},
  };
  dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    if (names[i].isa == isa) return names[i].name;
  }
  return "generic";
}

bool rabbet_dnnl_has_byte_products(void) {
  static const char* const with[] = {"avx512_core_amx", "avx512_core_bf16",
                                     "avx512_core_vnni", "avx2_vnni"};
  const char* name = rabbet_dnnl_isa();
  for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); ++i)
    if (strcmp(name, with[i]) == 0) return true;
  return false;
}
