// Grouped products: layers of experts that are one product for each row
// (rules_grouped.c), which become whole experts (rules_experts.c) of tokens
// (rules_tokens.c).
#ifndef RABBET_SRC_BUILDER_REWRITE_EXPERTS_GROUPED_H_
#define RABBET_SRC_BUILDER_REWRITE_EXPERTS_GROUPED_H_

#include "builder/ir/passes.h"

// Whether the node gathers along the first axis of data of this rank.
RABBET_PRIVATE_API bool rabbet_grouped_gathers(const rabbet_ir_t* ir,
                                               const rabbet_ir_node_t* node,
                                               int32_t rank);
// Whether folding evaluates what is made of the value.
RABBET_PRIVATE_API bool rabbet_grouped_is_constant(
    const rabbet_ir_value_t* value);
// Whether the layer of experts is one product of each row with the matrix of
// its one expert, without a score.
RABBET_PRIVATE_API bool rabbet_grouped_is_product(const rabbet_ir_t* ir,
                                                  const rabbet_ir_node_t* moe);
// The value that indices of one of `groups` are made of, by views, and by
// adding `groups` to negative ones: those of two products with one root are the
// same.
RABBET_PRIVATE_API const rabbet_ir_value_t* rabbet_grouped_root(
    const rabbet_ir_t* ir, const rabbet_ir_value_t* value, int64_t groups);
// The value before views that one reader each has.
RABBET_PRIVATE_API rabbet_ir_value_t* rabbet_grouped_before_views(
    const rabbet_ir_t* ir, rabbet_ir_value_t* value);
// Whether two values, of which one is a view of the other, have the same rows:
// the last axis is the same.
RABBET_PRIVATE_API bool rabbet_grouped_same_rows(const rabbet_ir_value_t* a,
                                                 const rabbet_ir_value_t* b);
// The value as [rows, columns].
RABBET_PRIVATE_API rabbet_status_t
rabbet_grouped_flat(rabbet_build_t* build, const rabbet_ir_node_t* before,
                    int32_t value, int64_t columns, int32_t* out_value);

#endif  // RABBET_SRC_BUILDER_REWRITE_EXPERTS_GROUPED_H_
