// A device's offers for a group, kept in the timing cache: a build that
// meets an equal group again, or is made again, does not ask its classes, nor
// the libraries behind them.
#ifndef RABBET_SRC_BUILDER_PROPOSE_KEPT_PROPOSALS_H_
#define RABBET_SRC_BUILDER_PROPOSE_KEPT_PROPOSALS_H_

#include "builder/choose/unit.h"

// The classes that are asked.
typedef struct rabbet_asked_classes_t {
  const rabbet_kernel_class_t* const* list;  // of the device, in its order
  size_t count;
  uint32_t flag;    // RABBET_KERNEL_FALLBACK, or 0: the others
  bool allowed;     // of the tactic sources that are allowed, or the others
  int64_t sources;  // that are
} rabbet_asked_classes_t;

// A candidate and its key in the timing cache, if that was computed.
typedef struct rabbet_kept_candidate_t {
  rabbet_candidate_t candidate;
  rabbet_hash_t key;
  bool has_key;
} rabbet_kept_candidate_t;

// All that the offers for a group depend on. *out_keeps: they may be kept.
// Not those for plugins, whose code is not known, nor those of devices that do
// not say what they depend on (rabbet_device_t's `features`).
RABBET_PRIVATE_API rabbet_status_t rabbet_kept_proposals_key(
    rabbet_build_t* build, const rabbet_propose_t* question,
    const rabbet_asked_classes_t* classes, rabbet_hash_t* out_key,
    bool* out_keeps);

// The candidates, in the build's arena. *out_found: they were kept; bytes that
// are damaged were not.
RABBET_PRIVATE_API rabbet_status_t rabbet_kept_proposals_find(
    rabbet_build_t* build, rabbet_hash_t key, const rabbet_group_t* group,
    const rabbet_asked_classes_t* classes,
    rabbet_kept_candidate_t** out_candidates, size_t* out_count,
    bool* out_found);

// Appends a candidate to the bytes that are kept. False if it cannot be kept:
// it has an artifact, or its class is not the device's.
RABBET_PRIVATE_API bool rabbet_kept_proposals_add(
    rabbet_strbuf_t* bytes, const rabbet_group_t* group,
    const rabbet_asked_classes_t* classes,
    const rabbet_kept_candidate_t* candidate);
RABBET_PRIVATE_API rabbet_status_t rabbet_kept_proposals_put(
    rabbet_build_t* build, rabbet_hash_t key, const rabbet_strbuf_t* bytes);

#endif  // RABBET_SRC_BUILDER_PROPOSE_KEPT_PROPOSALS_H_
