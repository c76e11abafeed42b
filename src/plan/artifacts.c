// Data that kernels keep in a plan: reading the table, and whether it makes
// sense.
#include <assert.h>

#include "base/math.h"
#include "plan/read.h"
#include "plan/verify.h"

// Artifacts lie one behind another, so that the section holds nothing else.
static rabbet_status_t read_artifact(rabbet_plan_t* plan,
                                     const Rabbet__Plan__Artifact* from,
                                     rabbet_span_t section, size_t* at,
                                     rabbet_artifact_t* artifact) {
  RABBET_RETURN_IF_ERROR(rabbet_read_text(plan, from->name, &artifact->name));
  size_t expected = rabbet_align_up(*at, RABBET_PLAN_ALIGNMENT);
  if (from->offset != expected || from->offset > section.size ||
      from->size > section.size - from->offset)
    return RABBET_DAMAGED(
        "'%s' lies at %llu with %llu bytes; expected at %zu, within the %zu "
        "bytes of section KERNELS",
        artifact->name, (unsigned long long)from->offset,
        (unsigned long long)from->size, expected, section.size);
  artifact->key = (rabbet_hash_t){from->key_high, from->key_low};
  artifact->data = (const uint8_t*)section.data + from->offset;
  artifact->size = (size_t)from->size;
  *at = expected + artifact->size;
  return rabbet_ok();
}

rabbet_status_t rabbet_read_artifacts(rabbet_plan_t* plan,
                                      const Rabbet__Plan__Meta* meta,
                                      rabbet_span_t section) {
  size_t end = 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, meta->n_artifacts, sizeof(*plan->artifacts),
      (void**)&plan->artifacts));
  plan->artifact_count = meta->n_artifacts;
  for (size_t i = 0; i < meta->n_artifacts; ++i)
    RABBET_RETURN_IF_ERROR(
        RABBET_ANNOTATE(read_artifact(plan, meta->artifacts[i], section, &end,
                                      &plan->artifacts[i]),
                        "artifact %zu", i));
  if (end != section.size)
    return RABBET_DAMAGED("the artifacts end at %zu, section KERNELS at %zu",
                          end, section.size);
  return rabbet_ok();
}

rabbet_status_t rabbet_verify_step_artifacts(const rabbet_plan_t* plan,
                                             const rabbet_plan_step_t* step) {
  for (size_t i = 0; i < step->artifact_count; ++i) {
    int32_t number = step->artifacts[i];
    if (number < 0 || (size_t)number >= plan->artifact_count)
      return RABBET_DAMAGED("it uses artifact %d of %zu", number,
                            plan->artifact_count);
    if (i > 0 && number <= step->artifacts[i - 1])
      return RABBET_DAMAGED("it names artifact %d after artifact %d", number,
                            step->artifacts[i - 1]);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_verify_artifacts(const rabbet_plan_t* plan) {
  if (plan->artifact_count > INT32_MAX)
    return RABBET_DAMAGED("the plan has too many artifacts");
  for (size_t i = 0; i < plan->artifact_count; ++i) {
    const rabbet_artifact_t* artifact = &plan->artifacts[i];
    if (!artifact->name || !artifact->data || artifact->size == 0)
      return RABBET_DAMAGED("artifact %zu ('%s') is empty", i,
                            artifact->name ? artifact->name : "");
    assert(i == 0 || artifact[-1].name);
    if (i > 0 && rabbet_hash_compare(artifact[-1].key, artifact->key) >= 0)
      return RABBET_DAMAGED(
          "artifact %zu ('%s') has the key of '%s' before it, or a smaller one",
          i, artifact->name, artifact[-1].name);
  }
  return rabbet_ok();
}
