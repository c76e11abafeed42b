#include "base/arena.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"

#define RABBET_ARENA_ALIGNMENT 16
#define RABBET_ARENA_FIRST_BLOCK ((size_t)4096)
#define RABBET_ARENA_LARGEST_BLOCK ((size_t)1 << 20)

// The head of the list is the block that allocations are cut from.
typedef struct rabbet_arena_block_t {
  struct rabbet_arena_block_t* next;
  size_t size;  // bytes of `data`
  size_t used;
  _Alignas(RABBET_ARENA_ALIGNMENT) char data[];
} rabbet_arena_block_t;

void rabbet_arena_initialize(rabbet_allocator_t allocator,
                             rabbet_arena_t* out_arena) {
  *out_arena = (rabbet_arena_t){.allocator = allocator};
}

static void arena_free_blocks(rabbet_arena_t* arena,
                              rabbet_arena_block_t* block) {
  while (block) {
    rabbet_arena_block_t* next = block->next;
    rabbet_free_aligned(arena->allocator, block, RABBET_ARENA_ALIGNMENT);
    block = next;
  }
}

void rabbet_arena_deinitialize(rabbet_arena_t* arena) {
  arena_free_blocks(arena, arena->blocks);
  arena->blocks = NULL;
  arena->used_bytes = 0;
}

void rabbet_arena_reset(rabbet_arena_t* arena) {
  if (!arena->blocks) return;
  arena_free_blocks(arena, arena->blocks->next);
  arena->blocks->next = NULL;
  arena->blocks->used = 0;
  arena->used_bytes = 0;
}

// A block for at least `size` bytes, made the head unless it is for a large
// piece alone and the head has more room left.
static rabbet_status_t arena_grow(rabbet_arena_t* arena, size_t size,
                                  rabbet_arena_block_t** out_block) {
  assert(size > 0 && size % RABBET_ARENA_ALIGNMENT == 0);
  rabbet_arena_block_t* head = arena->blocks;
  size_t capacity = head ? head->size * 2 : RABBET_ARENA_FIRST_BLOCK;
  if (capacity > RABBET_ARENA_LARGEST_BLOCK)
    capacity = RABBET_ARENA_LARGEST_BLOCK;
  if (capacity < size) capacity = size;
  size_t total = 0;
  if (!rabbet_checked_add(sizeof(rabbet_arena_block_t), capacity, &total))
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                         "no memory for a block of %zu bytes", capacity);
  rabbet_arena_block_t* block = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(
      arena->allocator, total, RABBET_ARENA_ALIGNMENT, (void**)&block));
  block->size = capacity;
  block->used = 0;
  bool keep_head = head && head->size - head->used > capacity - size;
  block->next = keep_head ? head->next : head;
  if (keep_head) {
    head->next = block;
  } else {
    arena->blocks = block;
  }
  *out_block = block;
  return rabbet_ok();
}

rabbet_status_t rabbet_arena_allocate(rabbet_arena_t* arena, size_t size,
                                      void** out_block) {
  *out_block = NULL;
  if (!arena->allocator.resize)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "allocation from an arena that has no allocator");
  size_t padded = 0;
  if (!rabbet_checked_add(size, RABBET_ARENA_ALIGNMENT - 1, &padded))
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                         "no memory for a block of %zu bytes", size);
  padded &= ~(size_t)(RABBET_ARENA_ALIGNMENT - 1);
  if (padded == 0) padded = RABBET_ARENA_ALIGNMENT;
  rabbet_arena_block_t* block = arena->blocks;
  if (!block || block->size - block->used < padded)
    RABBET_RETURN_IF_ERROR(arena_grow(arena, padded, &block));
  assert(block->used <= block->size && padded <= block->size - block->used);
  *out_block = memset(block->data + block->used, 0, padded);
  block->used += padded;
  arena->used_bytes += padded;
  return rabbet_ok();
}

rabbet_status_t rabbet_arena_allocate_array(rabbet_arena_t* arena, size_t count,
                                            size_t size, void** out_block) {
  size_t total = 0;
  *out_block = NULL;
  if (!rabbet_checked_mul(count, size, &total))
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                         "no memory for %zu elements of %zu bytes", count,
                         size);
  return rabbet_arena_allocate(arena, total, out_block);
}

rabbet_status_t rabbet_arena_copy(rabbet_arena_t* arena, const void* data,
                                  size_t size, void** out_copy) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(arena, size, out_copy));
  if (size) memcpy(*out_copy, data, size);
  return rabbet_ok();
}

rabbet_status_t rabbet_arena_strdup(rabbet_arena_t* arena, const char* text,
                                    const char** out_copy) {
  *out_copy = NULL;
  void* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(arena, text, strlen(text) + 1, &copy));
  *out_copy = copy;
  return rabbet_ok();
}

rabbet_status_t rabbet_arena_printf(rabbet_arena_t* arena,
                                    const char** out_text, const char* format,
                                    ...) {
  *out_text = NULL;
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int size = vsnprintf(NULL, 0, format, arguments);
  void* text = NULL;
  rabbet_status_t status =
      size < 0 ? RABBET_STATUS(RABBET_STATUS_INTERNAL,
                               "text cannot be formatted as '%s'", format)
               : rabbet_arena_allocate(arena, (size_t)size + 1, &text);
  if (rabbet_is_ok(status)) {
    vsnprintf(text, (size_t)size + 1, format, again);
    *out_text = text;
  }
  va_end(again);
  va_end(arguments);
  return status;
}
