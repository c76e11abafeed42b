// Evaluates one operator on host tensors, including type and shape inference:
// for tests, constant folding, and trials of an operator.
#ifndef RABBET_SRC_OPS_EVALUATE_H_
#define RABBET_SRC_OPS_EVALUATE_H_

#include "ops/op.h"

// Completes attributes, infers, allocates and runs the reference kernel.
// Inputs are LINEAR host tensors; one with dtype NONE is omitted. `outputs` has
// room for op->output_count; each output's data is freed with
// rabbet_free_aligned(allocator, data, 64).
RABBET_PRIVATE_API rabbet_status_t rabbet_op_evaluate(
    const char* op_name, const rabbet_attr_t* attrs, size_t attr_count,
    const rabbet_view_t* inputs, size_t input_count,
    rabbet_allocator_t allocator, rabbet_view_t* outputs);
// The same with a limit: if an output has more than `max_bytes`, nothing is
// computed, *out_too_large (may be NULL) is set, and the result is
// OUT_OF_RANGE.
RABBET_PRIVATE_API rabbet_status_t rabbet_op_evaluate_small(
    const char* op_name, const rabbet_attr_t* attrs, size_t attr_count,
    const rabbet_view_t* inputs, size_t input_count, size_t max_bytes,
    rabbet_allocator_t allocator, rabbet_view_t* outputs, bool* out_too_large);

#endif  // RABBET_SRC_OPS_EVALUATE_H_
