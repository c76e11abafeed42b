// Queries on the nodes of an attention, for the passes that rewrite it before
// it is grouped.
#ifndef RABBET_SRC_BUILDER_REWRITE_PRODUCTS_ATTENTION_NODES_H_
#define RABBET_SRC_BUILDER_REWRITE_PRODUCTS_ATTENTION_NODES_H_

#include "builder/choose/fuse.h"

// All softmaxes; passes that add nodes visit those of before. In the arena.
RABBET_PRIVATE_API rabbet_status_t rabbet_attention_softmaxes(
    rabbet_build_t* build, rabbet_ir_node_t*** out_nodes, size_t* out_count);
// Whether the node multiplies matrices, in any form.
RABBET_PRIVATE_API bool rabbet_attention_is_product(
    const rabbet_ir_node_t* node);
// The only reader of the node's result, if it has no settings of the user; else
// NULL.
RABBET_PRIVATE_API rabbet_ir_node_t* rabbet_attention_reader(
    const rabbet_ir_t* ir, const rabbet_ir_node_t* node);

// Scales by numbers before a factor of a product, the last one first.
typedef struct rabbet_attention_scales_t {
  rabbet_ir_node_t* nodes[RABBET_FUSE_SCALES_MAX];
  int count;
} rabbet_attention_scales_t;
// Moves `*value` before its scales, which nothing else reads.
RABBET_PRIVATE_API void rabbet_attention_before_scales(
    const rabbet_ir_t* ir, const rabbet_ir_value_t** value,
    rabbet_attention_scales_t* out);
// Scales `*value` again, before node `before`.
RABBET_PRIVATE_API rabbet_status_t rabbet_attention_scale(
    rabbet_build_t* build, const rabbet_ir_node_t* before,
    const rabbet_attention_scales_t* scales, const rabbet_ir_value_t** value);

#endif  // RABBET_SRC_BUILDER_REWRITE_PRODUCTS_ATTENTION_NODES_H_
