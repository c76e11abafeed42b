// The passes that change the IR. Each leaves it swept.
#ifndef RABBET_SRC_BUILDER_IR_PASSES_H_
#define RABBET_SRC_BUILDER_IR_PASSES_H_

#include "builder/build.h"

// Values known to the host need no kernel: integer tensors whose elements are
// expressions lose their producers, constants among them become constants.
RABBET_PRIVATE_API rabbet_status_t rabbet_pass_shapes(rabbet_build_t* build);
// Evaluates nodes that depend on constants alone, unless they would grow much.
RABBET_PRIVATE_API rabbet_status_t rabbet_pass_fold(rabbet_build_t* build);
// Rewrites nodes by the rules below until none applies.
RABBET_PRIVATE_API rabbet_status_t rabbet_pass_simplify(rabbet_build_t* build);
// Keeps one of nodes that compute the same from the same.
RABBET_PRIVATE_API rabbet_status_t
rabbet_pass_common_subexpressions(rabbet_build_t* build);
// Equal constant tables of rotations become one (shared_tables.c). Rotations of
// queries and keys that are parts of one tensor become one of the tensor, for
// devices whose attention reads slices (packed_rotations.c).
RABBET_PRIVATE_API rabbet_status_t
rabbet_pass_packed_rotations(rabbet_build_t* build);
// Slices of one tensor that attention reads are taken before transposes and
// reshapes of it, for devices whose attention reads slices
// (attention_parts.c).
RABBET_PRIVATE_API rabbet_status_t
rabbet_pass_attention_parts(rabbet_build_t* build);
// Attention among pixels of an image reads and writes it with channels last,
// for such devices (channel_attention.c).
RABBET_PRIVATE_API rabbet_status_t
rabbet_pass_channel_attention(rabbet_build_t* build);
// Scores of an attention have one shape between its products, for such devices
// (attention_shapes.c).
RABBET_PRIVATE_API rabbet_status_t
rabbet_pass_attention_shapes(rabbet_build_t* build);
// Makes one product of those of one tensor that go into one attention, or have
// a single row.
RABBET_PRIVATE_API rabbet_status_t rabbet_pass_parallel(rabbet_build_t* build);
// Rotations of queries and keys, and updates of their caches, become one layer,
// for devices with a kernel for it (rewrite/rotations/cached_rotation.c).
RABBET_PRIVATE_API rabbet_status_t
rabbet_pass_cached_rotation(rabbet_build_t* build);
// Constant weights of products of few rows are stored contiguous along k, for
// devices that read them so (weights_along_k.c).
RABBET_PRIVATE_API rabbet_status_t
rabbet_pass_weights_along_k(rabbet_build_t* build);
// Makes rows of products by constants whole vectors (odd_columns.c).
RABBET_PRIVATE_API rabbet_status_t
rabbet_pass_odd_columns(rabbet_build_t* build);
// Each collective comes after the one before it in the network, whatever
// kernels are chosen (collective_order.c). Last: a value that is only waited
// for must stay what it is.
RABBET_PRIVATE_API rabbet_status_t
rabbet_pass_collective_order(rabbet_build_t* build);

// Makes the nodes of a mask that compares places for each attention that reads
// it (place_masks.c), where the device's attention takes them.
RABBET_PRIVATE_API rabbet_status_t rabbet_pass_masks(rabbet_build_t* build);

// Makes a node that dequantizes for each of its readers (quantized_products.c),
// and evaluates those of constants.
RABBET_PRIVATE_API rabbet_status_t rabbet_pass_quantize(rabbet_build_t* build);

// With RABBET_BUILDER_INT8, for weakly typed networks
// (implicit_quantization.c): before the network is simplified, the user's
// settings of layers; at the end, when weights are known, pairs of nodes that
// quantize and dequantize where ranges are known.
RABBET_PRIVATE_API rabbet_status_t rabbet_pass_wishes(rabbet_build_t* build);
RABBET_PRIVATE_API rabbet_status_t rabbet_pass_implicit(rabbet_build_t* build);
// At the end: plugins that read one tensor several times get views of it
// (repeated_inputs.c).
RABBET_PRIVATE_API rabbet_status_t rabbet_pass_operands(rabbet_build_t* build);
// Whether a node quantizes to make the value, which then is 8 bits or, if the
// node is left out, the numbers that they represent. No other conversion
// exists.
RABBET_PRIVATE_API bool rabbet_ir_is_quantize_result(
    const rabbet_ir_value_t* value);

// ---- For rabbet_pass_quantize -----------------------------------------------

// The node that dequantizes 8 bits for this input, without settings of the
// user; else NULL.
RABBET_PRIVATE_API rabbet_ir_node_t* rabbet_ir_dequantizer(
    const rabbet_ir_t* ir, const rabbet_ir_node_t* node, size_t input);
// Whether the node is a product of two dequantized tensors.
RABBET_PRIVATE_API bool rabbet_ir_is_quantized(const rabbet_ir_t* ir,
                                               const rabbet_ir_node_t* node);
// Whether the node is a maximum over windows of one.
RABBET_PRIVATE_API bool rabbet_ir_is_quantized_maximum(
    const rabbet_ir_t* ir, const rabbet_ir_node_t* node);
// Whether the node dequantizes a factor of such a product, or may later.
RABBET_PRIVATE_API bool rabbet_ir_is_factor(const rabbet_ir_t* ir,
                                            const rabbet_ir_node_t* node);
// Evaluates nodes that dequantize constants, except those that a product reads.
RABBET_PRIVATE_API rabbet_status_t rabbet_fold_factors(rabbet_build_t* build);

// Constant or refittable weights of 4 or 8 bits that products dequantize
// (packed_weights.c). Whether the node dequantizes such weights for products,
// as their second factor, or may later.
RABBET_PRIVATE_API bool rabbet_ir_is_packed(const rabbet_ir_t* ir,
                                            const rabbet_ir_node_t* node);
// The node that does so for this product and nothing else; NULL if its factors
// are other tensors, or both quantized.
RABBET_PRIVATE_API rabbet_ir_node_t* rabbet_ir_packed_factor(
    const rabbet_ir_t* ir, const rabbet_ir_node_t* node);
// Whether two nodes of one operator have the same attributes.
RABBET_PRIVATE_API bool rabbet_ir_attrs_agree(const rabbet_ir_node_t* a,
                                              const rabbet_ir_node_t* b);
// Whether each of the columns of packed weights [columns][k] has its own
// numbers, so that they can be joined; whether those of two nodes agree; joins
// them (packed_siblings.c).
RABBET_PRIVATE_API bool rabbet_ir_packed_columns(const rabbet_ir_t* ir,
                                                 const rabbet_ir_node_t* maker,
                                                 int64_t columns);
RABBET_PRIVATE_API bool rabbet_ir_packed_agree(const rabbet_ir_t* ir,
                                               const rabbet_ir_node_t* a,
                                               const rabbet_ir_node_t* b);
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_join_packed(
    rabbet_build_t* build, rabbet_ir_node_t* const* makers,
    const int64_t* columns, size_t count, const rabbet_ir_node_t* before,
    rabbet_ir_value_t** out_value);
// Stores weights of 8 bits that are numbers of 4 as INT4.
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_narrow(rabbet_build_t* build,
                                                    rabbet_ir_node_t* node);
// Joins products of one tensor by constants (and sums with a constant for each
// column) whose results are `ends` and have one reader each; `*out_joint` is
// NULL if they do not agree. The products go when nothing reads them.
RABBET_PRIVATE_API rabbet_status_t
rabbet_ir_join_products(rabbet_build_t* build, rabbet_ir_value_t* const* ends,
                        size_t count, rabbet_ir_value_t** out_joint);
// A constant or refittable value with other extents, as many elements.
RABBET_PRIVATE_API rabbet_status_t
rabbet_ir_reshape_constant(rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                           const rabbet_dims_t* dims, int32_t* out_value);
// Transposes an operand of such a node: its last two axes.
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_turn_constant(
    rabbet_build_t* build, const rabbet_ir_value_t* value, int32_t* out_value);

// Memory for a deferred constant; it has no contents yet.
RABBET_PRIVATE_API rabbet_status_t
rabbet_fold_reserve(rabbet_build_t* build, rabbet_ir_value_t* value);
// Evaluates the node that makes a deferred constant.
RABBET_PRIVATE_API rabbet_status_t
rabbet_fold_deferred(rabbet_build_t* build, rabbet_ir_value_t* value);
// Gives back the constants that folding made.
void rabbet_fold_deinitialize(rabbet_build_t* build);

// For rabbet_pass_packed_rotations.
RABBET_PRIVATE_API rabbet_status_t rabbet_share_tables(rabbet_build_t* build);

// ---- Layouts of heads (head_layouts.c) --------------------------------------

// Heads of queries, keys or values of each step of a batch.
typedef struct rabbet_heads_t {
  rabbet_expr_t batch, steps;
  int64_t count, width;
} rabbet_heads_t;

typedef enum rabbet_heads_layout_t {
  RABBET_HEADS_UNKNOWN,
  RABBET_HEADS_JOINED,  // [batch, steps, count * width]
  RABBET_HEADS_INNER,   // [batch, steps, count, width]
  RABBET_HEADS_OUTER,   // [batch, count, steps, width]
} rabbet_heads_layout_t;

// Whether transposes of heads are views: there is one head, or always one step.
RABBET_PRIVATE_API bool rabbet_ir_heads_are_views(const rabbet_ir_t* ir,
                                                  const rabbet_heads_t* heads);
// Whether the value has the shape of these heads in this layout.
RABBET_PRIVATE_API bool rabbet_ir_has_heads(const rabbet_ir_t* ir,
                                            const rabbet_ir_value_t* value,
                                            const rabbet_heads_t* heads,
                                            rabbet_heads_layout_t layout);
// The layout with the value's shape. OUTER if several have it, which are the
// same memory only if rabbet_ir_heads_are_views.
RABBET_PRIVATE_API rabbet_heads_layout_t
rabbet_ir_heads_layout(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                       const rabbet_heads_t* heads);
// Whether a permutation leads from INNER to OUTER and back.
RABBET_PRIVATE_API bool rabbet_ir_swaps_heads(const int64_t* perm,
                                              size_t count);
// The value before shuffles that lead to `value`, which has *layout, from
// another layout; the result's layout then is in *layout. Nothing else reads
// what is between. If rabbet_ir_heads_are_views, all views count, and the
// layout is that of the result's shape.
RABBET_PRIVATE_API rabbet_ir_value_t* rabbet_ir_heads_origin(
    const rabbet_ir_t* ir, rabbet_ir_value_t* value,
    const rabbet_heads_t* heads, rabbet_heads_layout_t* layout);

// ---- Rules of rabbet_pass_simplify -----------------------------------------

// Looks at one live node; sets *changed if it rewrote something.
typedef rabbet_status_t rabbet_rule_t(rabbet_build_t* build,
                                      rabbet_ir_node_t* node, bool* changed);

// Nodes that copy their input (rules_trivial.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_identity;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_shuffle;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_slice;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_concatenation;
// A gather with one constant index is a slice (rules_gather.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_gathered_part;
// One by positions in a single axis is along this axis.
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_gathered_rows;
// A scatter to constant places one behind the other is a concatenation
// (rules_scatter.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_scattered_part;
// Slices of one input of a concatenation, and transposes that undo those of its
// inputs (rules_concatenation.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_slice_of_input;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_transposed_inputs;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_neutral;
// What repeats a constant along axes moves behind the layer
// (rules_expansion.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_expansion;
// Rolls and circular padding become slices that wrap (rules_wrap.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_wrapped_parts;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_wrapped_slices;
// Per-channel scales and offsets go into weights and bias (rules_affine.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_affine;
// Zeros put around go into the convolution's padding (rules_padding.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_padding;
// Ends cut off a convolution's result come out of its padding.
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_cropped_convolution;
// Transposes go into matrix products (rules_matrix.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_matrix;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_turned_product;
// (x - mean) / sqrt(variance + epsilon), written out, becomes a normalization
// (rules_normalization.c). One between a transpose and its inverse takes other
// axes instead.
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_normalization;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_transposed_normalization;
// One of instances, which a reshape makes of groups of channels, becomes one of
// groups (rules_group_normalization.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_group_normalization;
// Rotary position embeddings written out become one rotation; a transpose
// before it goes behind it (rules_rotation.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_rotation;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_rotated_halves;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_rotated_transpose;
// Products of complex numbers, given as pairs, by such of size 1 become
// rotations of neighbours (rules_complex_rotation.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_complex_rotation;
// Rotations of a part of a tensor, to which a concatenation adds the rest,
// become one of the tensor (rules_rotated_part.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_rotated_part;
// Normalizations and rotations in FLOAT between casts from and to a narrow type
// are of that type (rules_narrow.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_narrow;

// Products by gathered matrices read these in place (rules_grouped.c). Biases
// and scores of rows go into the layer (rules_grouped_sum.c), and so do an
// activation between two such products (rules_experts.c), and the sum over the
// experts of a token, whose row was repeated for each of them (rules_tokens.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_grouped_product;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_grouped_sum;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_experts;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_tokens;

// GELU, written out, becomes one activation (rules_gelu.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_gelu;

// A cast of dequantized weights becomes the type to which they are dequantized
// (packed_weights.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_packed_cast;

// Scales of quantizations get the rank of the scaled tensor (rules_quantize.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_quantized_view;
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_quantize;

// Tensors of 8 bits stay so where no layer needs their numbers
// (rules_requantize.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_requantize;

// Scales of blocks are broadcast along an axis of their own (rules_blocks.c),
// except those of weights that kernels may dequantize.
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_blocks;
// The same without an exception.
RABBET_PRIVATE_API rabbet_rule_t rabbet_ir_spread_blocks;

// Masks before a softmax are added (rules_mask.c).
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_mask;
// Weights of an attention of which no row is masked altogether are numbers.
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_weights_nan;
// They are not so low that HALF has no number for them.
RABBET_PRIVATE_API rabbet_rule_t rabbet_rule_mask_range;

// ---- For rules (rewrite.c) --------------------------------------------------

RABBET_PRIVATE_API int64_t rabbet_ir_int(const rabbet_ir_node_t* node,
                                         const char* name);
RABBET_PRIVATE_API const int64_t* rabbet_ir_ints(const rabbet_ir_node_t* node,
                                                 const char* name,
                                                 size_t* out_count);
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_set_int(rabbet_build_t* build,
                                                     rabbet_ir_node_t* node,
                                                     const char* name,
                                                     int64_t value);
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_set_ints(rabbet_build_t* build,
                                                      rabbet_ir_node_t* node,
                                                      const char* name,
                                                      const int64_t* values,
                                                      size_t count);
// The node that makes the value for this one reader alone, if it is of this
// operator and has no settings of the user; else NULL.
RABBET_PRIVATE_API rabbet_ir_node_t* rabbet_ir_sole_producer(
    const rabbet_ir_t* ir, const rabbet_ir_value_t* value, rabbet_op_id_t op);
// Elements of a constant.
RABBET_PRIVATE_API int64_t rabbet_ir_count(const rabbet_ir_t* ir,
                                           const rabbet_ir_value_t* constant);
// Whether an extent is known to be 0.
RABBET_PRIVATE_API bool rabbet_ir_is_empty(const rabbet_ir_t* ir,
                                           const rabbet_ir_value_t* value);
// Every element of a constant is this number (at least one).
RABBET_PRIVATE_API bool rabbet_ir_is_number(const rabbet_ir_t* ir,
                                            const rabbet_ir_value_t* value,
                                            double number);
// Finds the number that each element of a FLOAT constant is. False for other
// types, for constants of several numbers and for those without elements.
RABBET_PRIVATE_API bool rabbet_ir_number(const rabbet_ir_t* ir,
                                         const rabbet_ir_value_t* value,
                                         float* out_number);
// Whether kernels compute in FLOAT for tensors of this type.
RABBET_PRIVATE_API bool rabbet_ir_is_real(rabbet_dtype_t dtype);
// Whether the node only permutes axes: its axis i is the input's axis perm[i].
RABBET_PRIVATE_API bool rabbet_ir_permutation(const rabbet_ir_t* ir,
                                              const rabbet_ir_node_t* shuffle,
                                              int64_t perm[RABBET_MAX_RANK]);
// A node that only permutes axes so, before node `before`.
RABBET_PRIVATE_API rabbet_status_t
rabbet_ir_add_permutation(rabbet_build_t* build, const rabbet_ir_node_t* before,
                          const char* name, int32_t input, const int64_t* perm,
                          int32_t rank, rabbet_ir_node_t** out_node);
// Sizes that the host knows, as an input of a node.
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_add_sizes(
    rabbet_build_t* build, const char* name, const rabbet_expr_t* sizes,
    int32_t count, int32_t* out_value);
// A reshape of `*value` before node `before`, unless it has these extents.
RABBET_PRIVATE_API rabbet_status_t
rabbet_ir_add_reshape(rabbet_build_t* build, const rabbet_ir_node_t* before,
                      const rabbet_expr_t* extents, int32_t rank,
                      const rabbet_ir_value_t** value);
// `*value` multiplied with, or divided by, the number that `scale` does so with
// its input (rabbet_fuse_scaled), before node `before`.
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_add_scale(
    rabbet_build_t* build, const rabbet_ir_node_t* before,
    const rabbet_ir_node_t* scale, const rabbet_ir_value_t** value);
// A rotation of inputs[0] by the tables inputs[1] and inputs[2], before node
// `before`.
RABBET_PRIVATE_API rabbet_status_t
rabbet_ir_add_rotation(rabbet_build_t* build, const rabbet_ir_node_t* before,
                       const char* name, const int32_t inputs[3], int64_t size,
                       bool interleaved, rabbet_ir_node_t** out_node);
// A node that takes `size` elements of an axis, before node `before`.
RABBET_PRIVATE_API rabbet_status_t
rabbet_ir_add_slice(rabbet_build_t* build, const rabbet_ir_node_t* before,
                    const char* name, int32_t input, int64_t axis,
                    int64_t start, int64_t size, rabbet_ir_node_t** out_node);
// The value of which a view makes `value` by giving it a last axis of extent 1;
// NULL: there is none.
RABBET_PRIVATE_API const rabbet_ir_value_t* rabbet_ir_unsqueezed(
    const rabbet_ir_t* ir, const rabbet_ir_value_t* value);
// The value of which a view makes `value` by taking that axis away.
RABBET_PRIVATE_API const rabbet_ir_value_t* rabbet_ir_squeezed(
    const rabbet_ir_t* ir, const rabbet_ir_value_t* value);
// A window of one axis of `x`, whole on the others.
typedef struct rabbet_ir_part_t {
  rabbet_ir_value_t* x;
  int64_t start, size, stride;  // size: -1 if it is not constant
} rabbet_ir_part_t;
// Whether a slice, without settings of the user, makes the value so.
RABBET_PRIVATE_API bool rabbet_ir_part(const rabbet_ir_t* ir,
                                       const rabbet_ir_value_t* value,
                                       int32_t axis,
                                       rabbet_ir_part_t* out_part);
// Inputs 1 and 2 of the node, where it has them, with axes permuted so;
// *out_views is false if one would have to be copied. Unread views are swept.
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_permute_operands(
    rabbet_build_t* build, const rabbet_ir_node_t* node, const int64_t* perm,
    int32_t rank, int32_t inputs[3], bool* out_views);
// Whether `value` has the shape of the node's only output, and no promise keeps
// it from being read in its place.
RABBET_PRIVATE_API bool rabbet_ir_can_bypass(const rabbet_ir_t* ir,
                                             const rabbet_ir_node_t* node,
                                             const rabbet_ir_value_t* value);
// All readers of the node's only output read `value` instead, and the node
// goes; false, and nothing changes, if rabbet_ir_can_bypass is false.
RABBET_PRIVATE_API bool rabbet_ir_bypass(rabbet_ir_t* ir,
                                         rabbet_ir_node_t* node,
                                         rabbet_ir_value_t* value);
// Whether the user asked for types of the node or its outputs.
RABBET_PRIVATE_API bool rabbet_ir_has_wishes(const rabbet_ir_t* ir,
                                             const rabbet_ir_node_t* node);
// A constant whose elements all are this number: one that the IR has, so that
// nodes that read it can be common subexpressions, or a new one.
RABBET_PRIVATE_API rabbet_status_t
rabbet_ir_filled(rabbet_build_t* build, const char* name, rabbet_dtype_t dtype,
                 const rabbet_dims_t* dims, double number, int32_t* out_value);
// Makes room for `count` elements of a FP32 constant with these dims.
RABBET_PRIVATE_API rabbet_status_t rabbet_ir_new_floats(
    rabbet_build_t* build, const char* name, const rabbet_dims_t* dims,
    rabbet_ir_value_t** out_value, float** out_data);

#endif  // RABBET_SRC_BUILDER_IR_PASSES_H_
