// Data that a plan keeps for kernels, so that loading needs no compiler and no
// library search: compiled code, a library's chosen plan.
#ifndef RABBET_SRC_CORE_ARTIFACT_H_
#define RABBET_SRC_CORE_ARTIFACT_H_

#include "base/hash.h"
#include "rabbet/status.h"

// Artifacts with equal keys are interchangeable; a plan keeps one of them.
// `data` is aligned to 64 bytes in a plan.
typedef struct rabbet_artifact_t {
  rabbet_hash_t key;
  const char* name;  // shown by the inspector: "reduce.cu"
  const void* data;
  size_t size;  // not 0
} rabbet_artifact_t;

// `add` copies its arguments.
typedef struct rabbet_artifact_sink_t {
  void* context;
  rabbet_status_t (*add)(void* context, const rabbet_artifact_t* artifact);
} rabbet_artifact_sink_t;

static inline int rabbet_hash_compare(rabbet_hash_t a, rabbet_hash_t b) {
  if (a.high != b.high) return a.high < b.high ? -1 : 1;
  if (a.low != b.low) return a.low < b.low ? -1 : 1;
  return 0;
}

#endif  // RABBET_SRC_CORE_ARTIFACT_H_
