// Functions of statuses for Rabbet's own tests.
#ifndef RABBET_SRC_BASE_STATUS_H_
#define RABBET_SRC_BASE_STATUS_H_

#include "rabbet/allocator.h"

// Statuses come from the system allocator. A fault test puts its own in its
// place; NULL restores the system's. `*allocator` must live until then and
// until every status made from it is freed. Not while other threads run.
RABBET_PRIVATE_API void rabbet_status_use_test_allocator(
    const rabbet_allocator_t* allocator);

#endif  // RABBET_SRC_BASE_STATUS_H_
