// Text that grows.
#ifndef RABBET_SRC_TRITON_TEXT_H_
#define RABBET_SRC_TRITON_TEXT_H_

#include "rabbet/allocator.h"

// The first failure is kept until the end, and nothing is added after it.
typedef struct rabbet_text_t {
  rabbet_allocator_t allocator;
  char* data;  // NULL while it is empty
  size_t size, capacity;
  rabbet_status_t status;
} rabbet_text_t;

void rabbet_text_printf(rabbet_text_t* text, const char* format, ...)
    RABBET_PRINTF(2, 3);

#endif  // RABBET_SRC_TRITON_TEXT_H_
