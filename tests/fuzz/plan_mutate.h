// Changes plans so that their checksums stay right: fields of META by
// protobuf's reflection, and bytes of the sections behind it.
#ifndef RABBET_TESTS_FUZZ_PLAN_MUTATE_H_
#define RABBET_TESTS_FUZZ_PLAN_MUTATE_H_

#include <stddef.h>
#include <stdint.h>

// A changed copy of the plan file, to be freed; NULL if the bytes are no plan
// file. Fields may be taken from `donor`, another plan file. Equal seeds give
// equal results.
uint8_t* plan_mutate(const uint8_t* data, size_t size, const uint8_t* donor,
                     size_t donor_size, uint64_t seed, size_t* out_size);

// A copy of the plan for the CUDA device, to be freed; NULL if the bytes are no
// plan file. Its kernels are those that compute the same there.
uint8_t* plan_move_to_cuda(const uint8_t* data, size_t size, size_t* out_size);

#endif  // RABBET_TESTS_FUZZ_PLAN_MUTATE_H_
