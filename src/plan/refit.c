// Plan files with other weights.
#include <assert.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/plan_file.h"

static void plan_sizes(const rabbet_plan_sections_t* sections,
                       uint64_t sizes[RABBET_PLAN_SECTION_LIMIT]) {
  sizes[0] = 0;
  for (int id = 1; id < RABBET_PLAN_SECTION_LIMIT; ++id)
    sizes[id] = sections->section[id].size;
}

rabbet_status_t rabbet_plan_resize_weights(const void* data, size_t size,
                                           uint64_t weights_size,
                                           rabbet_allocator_t allocator,
                                           void** out_data, size_t* out_size,
                                           uint8_t** out_weights) {
  rabbet_plan_sections_t sections;
  uint64_t sizes[RABBET_PLAN_SECTION_LIMIT];
  uint64_t offsets[RABBET_PLAN_SECTION_LIMIT] = {0}, total = 0;
  *out_data = NULL;
  *out_size = 0;
  *out_weights = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_plan_file_open(data, size, false, &sections));
  plan_sizes(&sections, sizes);
  sizes[RABBET_PLAN_SECTION_WEIGHTS] = weights_size;
  RABBET_RETURN_IF_ERROR(rabbet_plan_file_layout(sizes, offsets, &total));
  uint8_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(
      allocator, (size_t)total, RABBET_PLAN_ALIGNMENT, (void**)&copy));
  memset(copy, 0, (size_t)total);
  for (int id = 1; id < RABBET_PLAN_SECTION_LIMIT; ++id) {
    const rabbet_span_t* from = &sections.section[id];
    uint64_t bytes = from->size < sizes[id] ? from->size : sizes[id];
    assert(bytes == from->size || id == RABBET_PLAN_SECTION_WEIGHTS);
    if (bytes > 0) memcpy(copy + offsets[id], from->data, (size_t)bytes);
  }
  rabbet_plan_file_seal(copy, total, sections.producer, sizes, offsets);
  *out_data = copy;
  *out_size = (size_t)total;
  *out_weights = copy + offsets[RABBET_PLAN_SECTION_WEIGHTS];
  return rabbet_ok();
}

void rabbet_plan_reseal(void* data) {
  rabbet_plan_file_reseal(data);
}
