#include "rabbet/allocator.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define RABBET_SCALAR_ALIGNMENT _Alignof(max_align_t)

// realloc may move an over-aligned block to an address that is not aligned,
// and by then the old one is gone.
static void* system_resize_aligned(void* block, size_t size, size_t alignment) {
  void* moved = NULL;
  if (posix_memalign(&moved, alignment, size) != 0) return NULL;
  if (block) {
    size_t old_size = malloc_usable_size(block);
    memcpy(moved, block, old_size < size ? old_size : size);
    free(block);
  }
  return moved;
}

static void* system_resize(void* self, void* block, size_t size,
                           size_t alignment) {
  (void)self;
  if (size == 0) {
    free(block);
    return NULL;
  }
  return alignment <= RABBET_SCALAR_ALIGNMENT
             ? realloc(block, size)
             : system_resize_aligned(block, size, alignment);
}

rabbet_allocator_t rabbet_allocator_system(void) {
  return (rabbet_allocator_t){.self = NULL, .resize = system_resize};
}

static rabbet_status_t out_of_memory(size_t size) {
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                       "no memory for a block of %zu bytes", size);
}

rabbet_status_t rabbet_allocate(rabbet_allocator_t allocator, size_t size,
                                void** out_block) {
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(
      allocator, size, RABBET_SCALAR_ALIGNMENT, out_block));
  if (*out_block) memset(*out_block, 0, size);
  return rabbet_ok();
}

rabbet_status_t rabbet_reallocate(rabbet_allocator_t allocator, size_t size,
                                  void** block) {
  if (!*block && size == 0) return rabbet_ok();
  void* resized =
      allocator.resize(allocator.self, *block, size, RABBET_SCALAR_ALIGNMENT);
  if (!resized && size != 0) return out_of_memory(size);
  *block = resized;
  return rabbet_ok();
}

rabbet_status_t rabbet_allocate_aligned(rabbet_allocator_t allocator,
                                        size_t size, size_t alignment,
                                        void** out_block) {
  *out_block = NULL;
  if (size == 0) return rabbet_ok();
  *out_block = allocator.resize(allocator.self, NULL, size, alignment);
  return *out_block ? rabbet_ok() : out_of_memory(size);
}

void rabbet_free(rabbet_allocator_t allocator, void* block) {
  rabbet_free_aligned(allocator, block, RABBET_SCALAR_ALIGNMENT);
}

void rabbet_free_aligned(rabbet_allocator_t allocator, void* block,
                         size_t alignment) {
  if (block) allocator.resize(allocator.self, block, 0, alignment);
}
