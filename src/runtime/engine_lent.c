// Constants that lie in memory of the engine's caller already
// (rabbet_engine_options_t): steps read them there.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "runtime/runtime.h"

// Smaller constants fill too few pages to be worth a comparison.
#define LENT_LEAST ((size_t)1 << 16)
// Of a piece that is compared before the whole.
#define LENT_PIECE ((size_t)64)

static size_t lent_size(const rabbet_weights_t* weights) {
  int bits = rabbet_dtype_bits(weights->dtype);
  bool counts = bits > 0 && weights->count > 0 &&
                (uint64_t)weights->count <= SIZE_MAX / 64;
  return counts ? ((size_t)weights->count * (size_t)bits + 7) / 8 : 0;
}

static int compare_lent(const void* a, const void* b) {
  size_t left = lent_size(*(const rabbet_weights_t* const*)a);
  size_t right = lent_size(*(const rabbet_weights_t* const*)b);
  return (left > right) - (left < right);
}

// Those that a constant could lie in, by size. Returns their number.
static size_t list_lent(const rabbet_engine_options_t* options,
                        const rabbet_weights_t** lent) {
  size_t count = 0;
  for (size_t i = 0; i < options->lent_count; ++i) {
    const rabbet_weights_t* weights = &options->lent[i];
    if (weights->data && lent_size(weights) >= LENT_LEAST &&
        (uintptr_t)weights->data % RABBET_PLAN_ALIGNMENT == 0)
      lent[count++] = weights;
  }
  if (count > 0) qsort(lent, count, sizeof(*lent), compare_lent);
  return count;
}

// Most weights of one size differ in the piece in the middle.
static bool is_equal(const uint8_t* a, const uint8_t* b, size_t size) {
  assert(size >= LENT_LEAST);
  size_t middle = size / 2;
  return memcmp(a + middle, b + middle, LENT_PIECE) == 0 &&
         memcmp(a, b, size) == 0;
}

// The first one of at least that size.
static size_t first_of_size(const rabbet_weights_t* const* lent, size_t count,
                            uint64_t size) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (lent_size(lent[middle]) < size)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void find_lent(const rabbet_plan_t* plan, rabbet_plan_value_t* value,
                      const rabbet_weights_t* const* lent, size_t count) {
  const uint8_t* bytes = plan->weights + value->offset;
  for (size_t i = first_of_size(lent, count, value->size);
       i < count && lent_size(lent[i]) == value->size; ++i) {
    if (!is_equal(bytes, lent[i]->data, (size_t)value->size)) continue;
    value->lent = lent[i]->data;
    rabbet_file_map_drop(plan->file, bytes, (size_t)value->size);
    return;
  }
}

rabbet_status_t rabbet_engine_find_lent(
    rabbet_engine_t* engine, const rabbet_engine_options_t* options) {
  rabbet_plan_t* plan = engine->plan;
  if (options->lent_count > 0 && !options->lent)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "options.lent is NULL, and lent_count is %zu",
                         options->lent_count);
  if (options->lent_count == 0 || !engine->device->host_memory ||
      plan->full_size > 0)
    return rabbet_ok();
  const rabbet_weights_t** lent = NULL;
  size_t bytes = 0;
  if (!rabbet_checked_mul(options->lent_count, sizeof(*lent), &bytes))
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE, "%zu lent constants",
                         options->lent_count);
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(engine->allocator, bytes, (void**)&lent));
  size_t count = list_lent(options, lent);
  for (size_t i = 0; i < plan->sequence_count; ++i) {
    rabbet_plan_sequence_t* sequence = &plan->sequences[i];
    for (size_t v = 0; v < sequence->value_count; ++v) {
      rabbet_plan_value_t* value = &sequence->values[v];
      if (value->storage == RABBET_PLAN_STORAGE_CONSTANT &&
          value->size >= LENT_LEAST)
        find_lent(plan, value, lent, count);
    }
  }
  rabbet_free(engine->allocator, lent);
  rabbet_plan_link_constants(plan);
  return rabbet_ok();
}
