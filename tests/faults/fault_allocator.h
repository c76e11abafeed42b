// An allocator for tests: fails the n-th allocation, and finds leaks, double
// frees, foreign pointers and alignments that change. A resized block always
// moves, new memory is filled with rubbish, freed memory is overwritten.
#ifndef RABBET_TESTS_FAULTS_FAULT_ALLOCATOR_H_
#define RABBET_TESTS_FAULTS_FAULT_ALLOCATOR_H_

#include <pthread.h>

#include "rabbet/allocator.h"

#define RABBET_FAULT_BUCKETS 1024

typedef struct rabbet_fault_allocator_t {
  pthread_mutex_t lock;
  int64_t calls;         // that allocate or resize, so far
  int64_t fail_at;       // the call, counted from 0, that fails; -1: none
  bool fail_ever_after;  // the calls after it fail too
  int64_t failed;        // calls that were made to fail
  size_t live_blocks;
  size_t live_bytes, peak_bytes;
  struct rabbet_fault_block_t* buckets[RABBET_FAULT_BUCKETS];
} rabbet_fault_allocator_t;

void rabbet_fault_initialize(int64_t fail_at, bool fail_ever_after,
                             rabbet_fault_allocator_t* out_fault);
// Thread-safe. A misuse ends the process with a message.
rabbet_allocator_t rabbet_fault_allocator(rabbet_fault_allocator_t* fault);
// Fails the running test, with the number and sizes, if blocks are live; frees
// them.
void rabbet_fault_deinitialize(rabbet_fault_allocator_t* fault);

// One try of what is tested: must free all that it makes, whatever happens.
typedef rabbet_status_t (*rabbet_fault_body_t)(rabbet_allocator_t allocator,
                                               void* user_data);

// Runs `body` with the first allocation failing, then the second, ..., until
// none fails; then likewise with all later ones failing too, statuses' own
// memory included. Each run in which one failed must end in OUT_OF_MEMORY, the
// last one in OK, all without leaks; else the running test fails. Returns the
// number of allocations that `body` makes.
int64_t rabbet_fault_run(rabbet_fault_body_t body, void* user_data);

// The same where some failures are survived: they may end in OK too.
int64_t rabbet_fault_run_tolerant(rabbet_fault_body_t body, void* user_data);

#endif  // RABBET_TESTS_FAULTS_FAULT_ALLOCATOR_H_
