// Reads bytes as an ONNX model: an import ends in a status, and what it leaves
// can be released. A status that says the importer is wrong ends the program.
#include <stdio.h>
#include <stdlib.h>

#include "rabbet/onnx.h"

// Refuses what would only test the machine's memory.
static void* capped_resize(void* self, void* block, size_t size,
                           size_t alignment) {
  (void)self;
  if (size > (size_t)64 << 20) return NULL;
  rabbet_allocator_t system = rabbet_allocator_system();
  return system.resize(system.self, block, size, alignment);
}

static const rabbet_allocator_t capped = {.resize = capped_resize};

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rabbet_network_t* network = NULL;
  rabbet_onnx_errors_t* errors = NULL;
  rabbet_status_t status = rabbet_network_create(
      RABBET_NETWORK_STRONGLY_TYPED, capped, (rabbet_logger_t){0}, &network);
  if (rabbet_is_ok(status)) {
    status = rabbet_onnx_errors_create(capped, &errors);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_onnx_import_memory(network, data, size, NULL, NULL, errors);
  }
  if (rabbet_is_ok(status)) status = rabbet_network_validate(network);
  if (rabbet_status_code(status) == RABBET_STATUS_INTERNAL) {
    fprintf(stderr, "%s\n", rabbet_status_message(status));
    abort();
  }
  rabbet_status_free(status);
  rabbet_onnx_errors_destroy(errors);
  rabbet_network_release(network);
  return 0;
}
