// Rules of fusion: which nodes may share a kernel.
//
// A fused group has one exit: only its last node's output is needed outside. So
// groups can be chosen independently of each other, and their dependencies have
// no cycles.
#ifndef RABBET_SRC_BUILDER_CHOOSE_FUSE_H_
#define RABBET_SRC_BUILDER_CHOOSE_FUSE_H_

#include "builder/build.h"

enum {
  RABBET_FUSE_POINTWISE = 1 << 0,  // joins others of its kind
  RABBET_FUSE_EPILOGUE = 1 << 1,   // takes point-wise nodes that follow
  RABBET_FUSE_PROLOGUE = 1 << 2,   // takes point-wise nodes before input 0
  RABBET_FUSE_OPERAND = 1 << 3,    // joins the point-wise nodes that read it
};
// The ways in which a node may be fused; 0: it stays alone. OPERAND is left
// out, which depends on the device.
RABBET_PRIVATE_API uint32_t rabbet_fuse_kind(const rabbet_ir_t* ir,
                                             const rabbet_ir_node_t* node);
// Whether the node is a slice that the device's element-wise kernels read where
// it lies: RABBET_FUSE_OPERAND.
RABBET_PRIVATE_API bool rabbet_fuse_is_operand(const rabbet_build_t* build,
                                               const rabbet_ir_node_t* node);
// Whether something besides the graph's nodes needs the node's output.
RABBET_PRIVATE_API bool rabbet_fuse_is_exit(const rabbet_ir_t* ir,
                                            const rabbet_ir_node_t* node);
// Whether the nodes' only outputs have equal shapes.
RABBET_PRIVATE_API bool rabbet_fuse_same_shape(const rabbet_ir_t* ir,
                                               const rabbet_ir_node_t* a,
                                               const rabbet_ir_node_t* b);

// Whether the node is a slice, a transpose or a reshape with constant
// parameters.
RABBET_PRIVATE_API bool rabbet_fuse_is_move(const rabbet_ir_t* ir,
                                            const rabbet_ir_node_t* node);

// The tensor that the node multiplies with, or divides by, a constant scalar;
// else NULL.
RABBET_PRIVATE_API rabbet_ir_value_t* rabbet_fuse_scaled(
    const rabbet_ir_t* ir, const rabbet_ir_node_t* node);

// Attention that ends in `last`: the product that makes scores, up to four
// point-wise nodes (a scale, a mask), the softmax, zeros in place of NaN (IsNaN
// and Where, for rows that are masked entirely), a cast, and `last`, which
// takes the result as input 0; values between have no other readers. In order
// of execution; returns their number, 0 if `last` does not end an attention.
typedef enum rabbet_fuse_reach_t {
  RABBET_FUSE_PRODUCTS = 0,  // these nodes only
  // With scales by one number before the first product's inputs: exporters
  // write sqrt(scale) q and sqrt(scale) k', which keeps scores small in HALF.
  RABBET_FUSE_SCALES = 1,
  // With transposes before the products' inputs and after the result, which a
  // kernel can take as strides.
  RABBET_FUSE_TURNS = 2,
  // With slices before them too, factors that are parts of one tensor; and
  // where the point-wise nodes' shapes are not known to be equal.
  RABBET_FUSE_SLICES = 3,
  // With the nodes that make a mask by comparing places, where the mask is too
  // large to be folded.
  RABBET_FUSE_PLACES = 4,
} rabbet_fuse_reach_t;
// The reach of the device's kernels.
RABBET_PRIVATE_API rabbet_fuse_reach_t
rabbet_fuse_reach(const rabbet_build_t* build);
// Whether the device may have one kernel for an attention that `node` is part
// of: in narrow types and in TF32. Elsewhere what is made for it would cost.
RABBET_PRIVATE_API bool rabbet_fuse_wants_attention(
    const rabbet_build_t* build, const rabbet_ir_node_t* node);
// The most nodes before one input, movements and scales; and after the result.
enum {
  RABBET_FUSE_CHAIN_MAX = 4,
  RABBET_FUSE_SCALES_MAX = 2,
  RABBET_FUSE_AFTER_MAX = 2
};
enum { RABBET_FUSE_MASK_MAX = 6 };
enum { RABBET_FUSE_ATTENTION_MAX = 29 + RABBET_FUSE_MASK_MAX };
RABBET_PRIVATE_API size_t rabbet_fuse_attention(
    const rabbet_ir_t* ir, rabbet_ir_node_t* last, rabbet_fuse_reach_t reach,
    rabbet_ir_node_t* out_nodes[RABBET_FUSE_ATTENTION_MAX]);

// The nodes that make a mask from constants alone by comparing them and
// choosing numbers, in order of execution. Returns their number; 0: there are
// none, too many, or others.
RABBET_PRIVATE_API size_t
rabbet_fuse_mask(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                 rabbet_ir_node_t* out_nodes[RABBET_FUSE_MASK_MAX]);

// The nodes that dequantize the factors of a product for it only: both factors,
// or only the second, if it is packed weights. Returns their number, 0 for
// other nodes.
RABBET_PRIVATE_API size_t rabbet_fuse_factors(const rabbet_ir_t* ir,
                                              const rabbet_ir_node_t* node,
                                              rabbet_ir_node_t* out_makers[2]);

// The most rows for which a kernel computes more than a product with its
// epilogue.
enum { RABBET_FUSE_ROWS = 8 };
// The RMS normalization that makes the rows of the product, if the device may
// have both in one kernel; else NULL.
RABBET_PRIVATE_API rabbet_ir_node_t* rabbet_fuse_normalization(
    const rabbet_build_t* build, const rabbet_ir_node_t* product);
// Whether the device may have both in one kernel: products of the same rows and
// of constants of one shape, both packed or both floats.
RABBET_PRIVATE_API bool rabbet_fuse_is_pair(const rabbet_build_t* build,
                                            const rabbet_ir_node_t* a,
                                            const rabbet_ir_node_t* b);

// The gate of squeeze and excitation that ends in `last`: a reduction of an
// image to one pixel, and one or two convolutions of it with element-wise nodes
// after each, if the device may have all in one kernel; values between have no
// other readers. In any order; returns their number, 0 if there is none.
enum { RABBET_FUSE_SQUEEZE_MAX = 20 };
RABBET_PRIVATE_API size_t
rabbet_fuse_squeeze(const rabbet_build_t* build, rabbet_ir_node_t* last,
                    rabbet_ir_node_t* out_nodes[RABBET_FUSE_SQUEEZE_MAX]);

// ids[i]: the cluster of node i, named after its first node. Only nodes of the
// same cluster may share a kernel.
RABBET_PRIVATE_API rabbet_status_t rabbet_fuse_partition(rabbet_build_t* build,
                                                         int32_t* ids);

#endif  // RABBET_SRC_BUILDER_CHOOSE_FUSE_H_
