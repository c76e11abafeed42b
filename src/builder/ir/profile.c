#include <assert.h>
#include <string.h>

#include "builder/build.h"
#include "core/view.h"

// The range of an input's shape and, for a shape input, of its values.
typedef struct profile_entry_t {
  char* input;
  bool has_shape;
  rabbet_dims_t min, opt, max;
  size_t value_count;
  int64_t* values;  // min, opt, max, one after another; NULL: none
} profile_entry_t;

struct rabbet_profile_t {
  rabbet_allocator_t allocator;
  rabbet_refcount_t references;
  RABBET_VEC(profile_entry_t) entries;
};

rabbet_status_t rabbet_profile_create(rabbet_allocator_t allocator,
                                      rabbet_profile_t** out_profile) {
  *out_profile = NULL;
  rabbet_profile_t* profile = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*profile), (void**)&profile));
  profile->allocator = allocator;
  rabbet_refcount_initialize(&profile->references);
  *out_profile = profile;
  return rabbet_ok();
}

void rabbet_profile_retain(rabbet_profile_t* profile) {
  if (profile) rabbet_refcount_retain(&profile->references);
}

void rabbet_profile_release(rabbet_profile_t* profile) {
  if (!profile || !rabbet_refcount_release(&profile->references)) return;
  for (size_t i = 0; i < profile->entries.count; ++i) {
    rabbet_free(profile->allocator, profile->entries.data[i].input);
    rabbet_free(profile->allocator, profile->entries.data[i].values);
  }
  rabbet_vec_free(profile->allocator, &profile->entries);
  rabbet_free(profile->allocator, profile);
}

static profile_entry_t* profile_find(const rabbet_profile_t* profile,
                                     const char* input) {
  for (size_t i = 0; i < profile->entries.count; ++i)
    if (strcmp(profile->entries.data[i].input, input) == 0)
      return &profile->entries.data[i];
  return NULL;
}

static rabbet_status_t profile_entry(rabbet_profile_t* profile,
                                     const char* input,
                                     profile_entry_t** out_entry) {
  *out_entry = profile_find(profile, input);
  if (*out_entry) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(profile->allocator, &profile->entries, 1));
  size_t size = strlen(input) + 1;
  char* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(profile->allocator, size, (void**)&copy));
  memcpy(copy, input, size);
  profile_entry_t* entry = &profile->entries.data[profile->entries.count++];
  *entry = (profile_entry_t){.input = copy};
  *out_entry = entry;
  return rabbet_ok();
}

static rabbet_status_t profile_check_dims(const char* input,
                                          const rabbet_dims_t* min,
                                          const rabbet_dims_t* opt,
                                          const rabbet_dims_t* max) {
  if (min->rank < 0 || min->rank > RABBET_MAX_RANK || min->rank != opt->rank ||
      min->rank != max->rank)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "profile of input '%s': min, opt and max must have "
                         "one rank of at most %d; they have %d, %d and %d",
                         input, RABBET_MAX_RANK, min->rank, opt->rank,
                         max->rank);
  for (int i = 0; i < min->rank; ++i) {
    if (min->d[i] >= 0 && min->d[i] <= opt->d[i] && opt->d[i] <= max->d[i])
      continue;
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "profile of input '%s': dimension %d must have "
                         "0 <= min <= opt <= max; it has %lld, %lld, %lld",
                         input, i, (long long)min->d[i], (long long)opt->d[i],
                         (long long)max->d[i]);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_profile_set_shape(rabbet_profile_t* profile,
                                         const char* input,
                                         const rabbet_dims_t* min,
                                         const rabbet_dims_t* opt,
                                         const rabbet_dims_t* max) {
  RABBET_RETURN_IF_ERROR(profile_check_dims(input, min, opt, max));
  profile_entry_t* entry = NULL;
  RABBET_RETURN_IF_ERROR(profile_entry(profile, input, &entry));
  entry->has_shape = true;
  entry->min = *min;
  entry->opt = *opt;
  entry->max = *max;
  return rabbet_ok();
}

rabbet_status_t rabbet_profile_set_values(rabbet_profile_t* profile,
                                          const char* input, const int64_t* min,
                                          const int64_t* opt,
                                          const int64_t* max, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (min[i] > opt[i] || opt[i] > max[i])
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "profile of shape input '%s': value %zu must have "
                           "min <= opt <= max; it has %lld, %lld, %lld",
                           input, i, (long long)min[i], (long long)opt[i],
                           (long long)max[i]);
  profile_entry_t* entry = NULL;
  RABBET_RETURN_IF_ERROR(profile_entry(profile, input, &entry));
  int64_t* values = NULL;
  // One more element, so that the values of an empty input are not NULL.
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      profile->allocator, (3 * count + 1) * sizeof(int64_t), (void**)&values));
  if (count > 0) {
    memcpy(values, min, count * sizeof(int64_t));
    memcpy(values + count, opt, count * sizeof(int64_t));
    memcpy(values + 2 * count, max, count * sizeof(int64_t));
  }
  rabbet_free(profile->allocator, entry->values);
  entry->values = values;
  entry->value_count = count;
  return rabbet_ok();
}

rabbet_status_t rabbet_profile_shape(const rabbet_profile_t* profile,
                                     const char* input, rabbet_dims_t* out_min,
                                     rabbet_dims_t* out_opt,
                                     rabbet_dims_t* out_max) {
  const profile_entry_t* entry = profile_find(profile, input);
  if (!entry || !entry->has_shape)
    return RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                         "the profile has no shape for input '%s'", input);
  assert(entry->min.rank == entry->opt.rank &&
         entry->opt.rank == entry->max.rank);
  *out_min = entry->min;
  *out_opt = entry->opt;
  *out_max = entry->max;
  return rabbet_ok();
}

rabbet_status_t rabbet_profile_values(
    const rabbet_profile_t* profile, const char* input, const int64_t** out_min,
    const int64_t** out_opt, const int64_t** out_max, size_t* out_count) {
  const profile_entry_t* entry = profile_find(profile, input);
  *out_count = 0;
  *out_min = *out_opt = *out_max = NULL;
  if (!entry || !entry->values)
    return RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                         "the profile has no values for input '%s'", input);
  *out_count = entry->value_count;
  *out_min = entry->values;
  *out_opt = entry->values + entry->value_count;
  *out_max = entry->values + 2 * entry->value_count;
  return rabbet_ok();
}

static bool profile_entry_same_optimum(const profile_entry_t* a,
                                       const profile_entry_t* b) {
  if (a->value_count != b->value_count || a->has_shape != b->has_shape ||
      (a->has_shape && !rabbet_dims_equal(&a->opt, &b->opt)))
    return false;
  for (size_t i = 0; i < a->value_count; ++i)
    if (a->values[a->value_count + i] != b->values[b->value_count + i])
      return false;
  return true;
}

bool rabbet_profile_same_optimum(const rabbet_profile_t* a,
                                 const rabbet_profile_t* b) {
  if (a->entries.count != b->entries.count) return false;
  for (size_t i = 0; i < a->entries.count; ++i) {
    const profile_entry_t* entry = &a->entries.data[i];
    const profile_entry_t* other = profile_find(b, entry->input);
    if (!other || !profile_entry_same_optimum(entry, other)) return false;
  }
  return true;
}
