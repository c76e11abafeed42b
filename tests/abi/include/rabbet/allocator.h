// Where host memory comes from. Every `create` function takes an allocator and
// the object frees itself through the same one.
#ifndef RABBET_ALLOCATOR_H_
#define RABBET_ALLOCATOR_H_

#include "rabbet/base.h"
#include "rabbet/status.h"

RABBET_EXTERN_C_BEGIN

// Passed by value; `self` must outlive everything made from it.
typedef struct rabbet_allocator_t {
  void* self;
  // Resizes `block` (NULL: allocates) to `size` bytes (0: frees, returns NULL)
  // at `alignment` (a power of two; the same in all calls for one block).
  // Returns NULL on failure, leaving `block` valid. Callable on any thread.
  void* (*resize)(void* self, void* block, size_t size, size_t alignment);
} rabbet_allocator_t;

// The C library's allocator.
RABBET_API rabbet_allocator_t rabbet_allocator_system(void);

// Allocates zero-filled memory aligned for any scalar. Size 0 gives NULL.
// RABBET_STATUS_OUT_OF_MEMORY names the size.
RABBET_API rabbet_status_t rabbet_allocate(rabbet_allocator_t allocator,
                                           size_t size, void** out_block);

// Resizes, keeping contents; new bytes are not cleared. On failure *block is
// unchanged.
RABBET_API rabbet_status_t rabbet_reallocate(rabbet_allocator_t allocator,
                                             size_t size, void** block);

// Uninitialised memory at `alignment` (power of two, for tensors 64); freed by
// rabbet_free_aligned with the same alignment.
RABBET_API rabbet_status_t rabbet_allocate_aligned(rabbet_allocator_t allocator,
                                                   size_t size,
                                                   size_t alignment,
                                                   void** out_block);

RABBET_API void rabbet_free(rabbet_allocator_t allocator, void* block);
RABBET_API void rabbet_free_aligned(rabbet_allocator_t allocator, void* block,
                                    size_t alignment);

RABBET_EXTERN_C_END
#endif  // RABBET_ALLOCATOR_H_
