// Limits of the network that an import makes from a model.
//
// A small file can stand for a large network: functions that call functions
// twice, loops in loops, constants written out. Nodes and bytes are counted, so
// that such a file ends in an error soon, instead of in hours or without
// memory.
#include <errno.h>
#include <stdlib.h>

#include "onnx/import.h"

#define RABBET_ONNX_NODES_VARIABLE "RABBET_ONNX_MAX_NODES"
#define RABBET_ONNX_MEMORY_VARIABLE "RABBET_ONNX_MAX_MIB"

static rabbet_status_t onnx_read_limit(const char* variable, uint64_t fallback,
                                       uint64_t* out_limit) {
  const char* text = getenv(variable);
  *out_limit = fallback;
  if (!text || !*text) return rabbet_ok();
  char* end = NULL;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (*end || text[0] == '-' || errno || value < 1 || value > UINT64_MAX >> 20)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the environment's %s is '%s'; expected a positive "
                         "number",
                         variable, text);
  *out_limit = value;
  return rabbet_ok();
}

static uint64_t onnx_used_bytes(const rabbet_onnx_importer_t* importer) {
  return importer->arena.used_bytes + importer->storage->arena.used_bytes +
         importer->network->arena.used_bytes;
}

rabbet_status_t rabbet_onnx_limits_begin(rabbet_onnx_importer_t* importer) {
  rabbet_onnx_limits_t* limits = &importer->limits;
  RABBET_RETURN_IF_ERROR(onnx_read_limit(
      RABBET_ONNX_NODES_VARIABLE, RABBET_ONNX_MAX_NODES, &limits->nodes));
  RABBET_RETURN_IF_ERROR(onnx_read_limit(RABBET_ONNX_MEMORY_VARIABLE,
                                         RABBET_ONNX_MAX_MIB, &limits->bytes));
  limits->bytes <<= 20;
  limits->bytes_before = onnx_used_bytes(importer);
  return rabbet_ok();
}

rabbet_status_t rabbet_onnx_spend(rabbet_onnx_importer_t* importer,
                                  uint64_t count) {
  uint64_t limit = importer->limits.nodes;
  if (count <= limit && importer->node_count <= limit - count) {
    importer->node_count += count;
    return rabbet_ok();
  }
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "with functions, loops and recurrent layers written out the model has "
      "more than %llu nodes, layers and iterations; " RABBET_ONNX_NODES_VARIABLE
      " in the environment raises the limit",
      (unsigned long long)limit);
}

rabbet_status_t rabbet_onnx_spend_bytes(rabbet_onnx_importer_t* importer,
                                        uint64_t more) {
  const rabbet_onnx_limits_t* limits = &importer->limits;
  uint64_t used = onnx_used_bytes(importer) - limits->bytes_before;
  if (more <= limits->bytes && used <= limits->bytes - more) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "constants and names that are made while the model is imported need more "
      "than %llu MiB; " RABBET_ONNX_MEMORY_VARIABLE
      " in the environment raises the limit",
      (unsigned long long)(limits->bytes >> 20));
}
