// Profiles, and the sequences that callers run for them.
#include <assert.h>
#include <string.h>

#include "plan/verify.h"

static size_t count_profiles(const rabbet_plan_t* plan, int32_t entry) {
  size_t count = 0;
  for (size_t i = 0; i < plan->profile_count; ++i)
    count += plan->entries[i] == entry;
  return count;
}

rabbet_status_t rabbet_verify_profiles(const rabbet_plan_t* plan) {
  if (plan->profile_count == 0)
    return RABBET_DAMAGED("the plan has no profile");
  // Without inputs nothing else bounds the number.
  if (plan->profile_count > RABBET_PLAN_MAX_PROFILES)
    return RABBET_DAMAGED("the plan has %zu profiles; at most %d are possible",
                          plan->profile_count, RABBET_PLAN_MAX_PROFILES);
  if (plan->entries[0] != 0)
    return RABBET_DAMAGED("profile 0 runs sequence %d; expected the first",
                          plan->entries[0]);
  for (size_t i = 0; i < plan->profile_count; ++i) {
    int32_t entry = plan->entries[i];
    if (entry < 0 || (size_t)entry >= plan->sequence_count)
      return RABBET_DAMAGED("profile %zu runs sequence %d of %zu", i, entry,
                            plan->sequence_count);
    size_t count = count_profiles(plan, entry);
    if (plan->sequences[entry].profile_count != count)
      return RABBET_DAMAGED(
          "sequence %d has the ranges of %zu profiles; %zu run it", entry,
          plan->sequences[entry].profile_count, count);
  }
  for (size_t i = 0; i < plan->sequence_count; ++i)
    if (plan->sequences[i].profile_count > plan->profile_count)
      return RABBET_DAMAGED("sequence %zu has %zu profiles, the plan %zu", i,
                            plan->sequences[i].profile_count,
                            plan->profile_count);
  return rabbet_ok();
}

static bool same_dims(const rabbet_plan_sequence_t* a,
                      const rabbet_plan_value_t* left,
                      const rabbet_plan_sequence_t* b,
                      const rabbet_plan_value_t* right) {
  rabbet_dims_t x = rabbet_shape_dims(a->graph, &left->shape);
  rabbet_dims_t y = rabbet_shape_dims(b->graph, &right->shape);
  for (int32_t i = 0; i < x.rank && x.rank == y.rank; ++i)
    if (x.d[i] >= 0 && y.d[i] >= 0 && x.d[i] != y.d[i]) return false;
  return x.rank == y.rank;
}

// Aliases may differ: a run goes by those of its own sequence.
static bool same_io(const rabbet_plan_sequence_t* a,
                    const rabbet_plan_sequence_t* b, size_t io) {
  const rabbet_plan_io_t *left = &a->ios[io], *right = &b->ios[io];
  const rabbet_plan_value_t* x = &a->values[left->value];
  const rabbet_plan_value_t* y = &b->values[right->value];
  return strcmp(left->name, right->name) == 0 &&
         left->is_shape_input == right->is_shape_input &&
         left->is_debug == right->is_debug && x->dtype == y->dtype &&
         x->format == y->format && same_dims(a, x, b, y);
}

rabbet_status_t rabbet_verify_entries(const rabbet_plan_t* plan) {
  const rabbet_plan_sequence_t* first = &plan->sequences[0];
  for (size_t p = 1; p < plan->profile_count; ++p) {
    const rabbet_plan_sequence_t* entry = &plan->sequences[plan->entries[p]];
    if (entry->hidden_count != first->hidden_count)
      return RABBET_DAMAGED("profile %zu has %zu hidden outputs; expected %zu",
                            p, entry->hidden_count, first->hidden_count);
    if (entry->io_count != first->io_count ||
        entry->input_count != first->input_count)
      return RABBET_DAMAGED(
          "profile %zu has %zu inputs and %zu outputs; expected %zu and %zu", p,
          entry->input_count, entry->io_count - entry->input_count,
          first->input_count, first->io_count - first->input_count);
    for (size_t i = 0; i < first->io_count; ++i)
      if (!same_io(first, entry, i))
        return RABBET_DAMAGED("'%s' differs between the profiles 0 and %zu",
                              first->ios[i].name, p);
  }
  return rabbet_ok();
}
