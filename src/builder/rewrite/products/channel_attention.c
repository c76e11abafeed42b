// Attention among the pixels of an image, whose factors have channels before
// pixels:
//   y [N, H, D, L] = v [N, H, D, L] softmax(q' k)'
// of an image [N, C, h, w], or its parts. With channels last the image is the
// matrix of pixels and channels that attention's kernels read: it is written as
// one transpose of the image, which is no move there, and parts of that, and
// the result likewise.

#include <string.h>

#include "builder/ir/passes.h"
#include "builder/rewrite/parts.h"
#include "builder/rewrite/products/attention_nodes.h"
#include "ops/enums.h"

// Columns of factors that kernels take.
enum { CHANNELS_MULTIPLE = 8, CHANNELS_MOST = 256 };

static bool channels_is_turned(const rabbet_ir_node_t* product,
                               const char* name) {
  return rabbet_ir_int(product, name) == RABBET_MATRIX_TRANSPOSE;
}

// ---- The form of the products -----------------------------------------------

static rabbet_status_t channels_turn(rabbet_build_t* build,
                                     const rabbet_ir_node_t* before,
                                     const rabbet_ir_value_t** value) {
  int64_t order[RABBET_MAX_RANK];
  int32_t rank = (*value)->shape.rank;
  rabbet_ir_node_t* turn = NULL;
  for (int32_t i = 0; i < rank; ++i)
    order[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
      build, before, before->name, (*value)->id, order, rank, &turn));
  *value = rabbet_ir_output(&build->ir, turn, 0);
  return rabbet_ok();
}

static rabbet_status_t channels_multiply(rabbet_build_t* build,
                                         const rabbet_ir_node_t* like,
                                         const rabbet_ir_value_t* a,
                                         const rabbet_ir_value_t* b,
                                         bool turned,
                                         rabbet_ir_node_t** out_product) {
  const int64_t ops[2] = {RABBET_MATRIX_NONE, turned ? RABBET_MATRIX_TRANSPOSE
                                                     : RABBET_MATRIX_NONE};
  const rabbet_attr_t attrs[2] = {
      {.name = "op0", .type = RABBET_ATTR_INT, .data = &ops[0], .count = 1},
      {.name = "op1", .type = RABBET_ATTR_INT, .data = &ops[1], .count = 1}};
  const int32_t inputs[2] = {a->id, b->id};
  return rabbet_ir_add_node(&build->ir, RABBET_OP_MATRIX_MULTIPLY, like->name,
                            attrs, 2, inputs, 2, like, out_product);
}

// Writes v p' as the transpose of p v'. *last becomes the new product.
static rabbet_status_t channels_swap(rabbet_build_t* build,
                                     rabbet_ir_node_t** last) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t *node = *last, *product = NULL;
  RABBET_RETURN_IF_ERROR(channels_multiply(
      build, node, rabbet_ir_input(ir, node, 1), rabbet_ir_input(ir, node, 0),
      !channels_is_turned(node, "op0"), &product));
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, product, 0);
  RABBET_RETURN_IF_ERROR(channels_turn(build, node, &value));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_value(ir, value->id)))
    *last = product;
  return rabbet_ok();
}

// Writes q' k with a transpose before the product, and before scales of q.
static rabbet_status_t channels_turn_queries(rabbet_build_t* build,
                                             rabbet_ir_node_t** first) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t *node = *first, *product = NULL;
  const rabbet_ir_value_t* q = rabbet_ir_input(ir, node, 0);
  rabbet_attention_scales_t scales;
  if (!channels_is_turned(node, "op0")) return rabbet_ok();
  rabbet_attention_before_scales(ir, &q, &scales);
  RABBET_RETURN_IF_ERROR(channels_turn(build, node, &q));
  RABBET_RETURN_IF_ERROR(rabbet_attention_scale(build, node, &scales, &q));
  RABBET_RETURN_IF_ERROR(
      channels_multiply(build, node, q, rabbet_ir_input(ir, node, 1),
                        channels_is_turned(node, "op1"), &product));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, product, 0)))
    *first = product;
  return rabbet_ok();
}

// ---- Factors ----------------------------------------------------------------

// Whether axis `rows` consists of pixels and axis `columns` of channels of the
// tensor that the parts are of.
static bool channels_come_first(const rabbet_parts_t* p, int32_t rows,
                                int32_t columns) {
  const int32_t axes[] = {rows, columns};
  if (p->base->rank < 3) return false;
  for (int k = 0; k < 2; ++k) {
    int begin = axes[k] > 0 ? p->ends[axes[k] - 1] : 0;
    if (begin == p->ends[axes[k]]) return false;
    for (int i = begin; i < p->ends[axes[k]]; ++i) {
      int32_t source = p->atoms[p->order[i]].source;
      if (k == 0 ? source < 2 : source != 1) return false;
    }
  }
  return true;
}

// The transposed images of an attention: mostly one.
enum { CHANNELS_IMAGES = 3 };
typedef struct images_t {
  int32_t from[CHANNELS_IMAGES];
  const rabbet_ir_value_t* to[CHANNELS_IMAGES];
  int count;
} images_t;

static const rabbet_ir_node_t* channels_first_reader(
    const rabbet_ir_t* ir, const rabbet_ir_value_t* value) {
  for (size_t i = 0; i < ir->nodes.count; ++i)
    for (size_t k = 0; k < ir->nodes.data[i]->input_count; ++k)
      if (ir->nodes.data[i]->inputs[k] == value->id) return ir->nodes.data[i];
  return NULL;
}

// The image with channels last, for all factors that are parts of it.
static rabbet_status_t channels_image(rabbet_build_t* build, images_t* images,
                                      const rabbet_ir_value_t* image,
                                      const int64_t* order,
                                      const rabbet_ir_value_t** out_value) {
  rabbet_ir_node_t* turn = NULL;
  for (int i = 0; i < images->count; ++i)
    if (images->from[i] == image->id) {
      *out_value = images->to[i];
      return rabbet_ok();
    }
  const rabbet_ir_node_t* before = channels_first_reader(&build->ir, image);
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
      build, before, before->name, image->id, order, image->shape.rank, &turn));
  *out_value = rabbet_ir_output(&build->ir, turn, 0);
  images->from[images->count] = image->id;
  images->to[images->count++] = *out_value;
  return rabbet_ok();
}

// The node that reads the factor before its scales; *input: where.
static rabbet_ir_node_t* channels_before_scales(const rabbet_ir_t* ir,
                                                rabbet_ir_node_t* product,
                                                size_t* input) {
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, product, *input);
  rabbet_attention_scales_t scales;
  rabbet_attention_before_scales(ir, &value, &scales);
  if (scales.count == 0) return product;
  rabbet_ir_node_t* reader = scales.nodes[scales.count - 1];
  *input = rabbet_ir_input(ir, reader, 0) == value ? 0 : 1;
  return reader;
}

// A factor as parts of an image: the reader to change, and where the moves end.
typedef struct factor_t {
  rabbet_ir_node_t *reader, *end;
  size_t input;
  const rabbet_ir_value_t* image;
  rabbet_parts_t parts;
} factor_t;

// Whether the factor of the product is parts of an image with channels before
// pixels. `turned`: its last axis is that of rows. `scales`: it may be scaled,
// as kernels take it before the first product alone.
static bool channels_find(const rabbet_ir_t* ir, rabbet_ir_node_t* product,
                          size_t input, bool turned, bool scales, factor_t* out,
                          rabbet_status_t* status) {
  rabbet_ir_value_t* factor = rabbet_ir_input(ir, product, input);
  rabbet_parts_chain_t chain;
  out->input = input;
  out->reader =
      scales ? channels_before_scales(ir, product, &out->input) : product;
  rabbet_parts_chain(ir, factor, true, &chain);
  if (chain.count == 0) return false;
  out->end = chain.nodes[chain.count - 1];
  out->image = rabbet_ir_input(ir, chain.nodes[0], 0);
  int32_t last = factor->shape.rank - 1;
  return rabbet_ir_input(ir, out->reader, out->input) ==
             rabbet_ir_output(ir, out->end, 0) &&
         rabbet_parts_read(ir, &chain, 0, &out->parts, status) &&
         channels_come_first(&out->parts, turned ? last : last - 1,
                             turned ? last - 1 : last);
}

// Reads the factor from its image with channels last. Other readers keep what
// they read.
static rabbet_status_t channels_factor(rabbet_build_t* build, images_t* images,
                                       rabbet_ir_node_t* product, size_t input,
                                       bool turned, bool scales) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_status_t status = rabbet_ok();
  int64_t order[RABBET_MAX_RANK];
  const rabbet_ir_value_t* to = NULL;
  factor_t f;
  if (!channels_find(ir, product, input, turned, scales, &f, &status))
    return status;
  const rabbet_shape_t shape = rabbet_ir_output(ir, f.end, 0)->shape;
  int32_t rank = f.image->shape.rank;
  for (int32_t i = 0; i < rank; ++i)
    order[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
  RABBET_RETURN_IF_ERROR(channels_image(build, images, f.image, order, &to));
  rabbet_parts_permute_base(&f.parts, &to->shape, order);
  RABBET_RETURN_IF_ERROR(
      rabbet_parts_make(build, &f.parts, f.end, &shape, &to));
  rabbet_ir_set_input(ir, f.reader, f.input, to->id);
  return rabbet_ok();
}

// ---- The result -------------------------------------------------------------

// The moves that alone read the node's result, in order.
static void channels_moves_after(const rabbet_ir_t* ir, rabbet_ir_node_t* node,
                                 rabbet_parts_chain_t* out) {
  out->count = 0;
  while (out->count < RABBET_FUSE_CHAIN_MAX &&
         (node = rabbet_attention_reader(ir, node)) != NULL &&
         rabbet_op_is(node->op, RABBET_OP_SHUFFLE) &&
         rabbet_fuse_is_move(ir, node))
    out->nodes[out->count++] = node;
}

// Moves the atoms of pixels before those of channels. False: the tensor is no
// image [N, C, ...], C of heads and columns, of rows of the product.
static bool channels_pixels_first(rabbet_parts_t* p, int32_t rank) {
  int order[RABBET_PARTS_ATOMS_MAX], count = 0;
  if (p->rank < 3) return false;
  for (int i = 0; i < p->count; ++i) {
    bool is_row = p->atoms[p->order[i]].source == rank - 2;
    bool is_column = p->atoms[p->order[i]].source == rank - 1;
    if (is_row != (i >= p->ends[1]) || (is_column && i < p->ends[0]))
      return false;
  }
  if (p->ends[1] == p->count || p->ends[0] == p->ends[1] ||
      p->atoms[p->order[p->ends[1] - 1]].source != rank - 1)
    return false;
  for (int i = 0; i < p->ends[0]; ++i)
    order[count++] = p->order[i];
  for (int i = p->ends[1]; i < p->count; ++i)
    order[count++] = p->order[i];
  for (int i = p->ends[0]; i < p->ends[1]; ++i)
    order[count++] = p->order[i];
  memcpy(p->order, order, sizeof(order));
  return true;
}

// The end of the longest run of at least `least` moves after the product that
// are parts of its result, and, if wanted, an image of them; NULL: there is
// none.
static rabbet_ir_node_t* channels_end(const rabbet_ir_t* ir,
                                      rabbet_ir_node_t* last, bool image,
                                      int least, rabbet_parts_t* parts,
                                      rabbet_status_t* status) {
  int32_t rank = rabbet_ir_output(ir, last, 0)->shape.rank;
  rabbet_parts_chain_t chain;
  channels_moves_after(ir, last, &chain);
  for (; chain.count >= least && rabbet_is_ok(*status); --chain.count)
    if (rabbet_parts_read(ir, &chain, 0, parts, status) &&
        (!image || channels_pixels_first(parts, rank)))
      return chain.nodes[chain.count - 1];
  return NULL;
}

// Makes one of the transposes after the product, as far as they are one.
static rabbet_status_t channels_join_moves(rabbet_build_t* build,
                                           rabbet_ir_node_t* last) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, last, 0);
  rabbet_status_t status = rabbet_ok();
  rabbet_parts_t parts;
  rabbet_ir_node_t* end = channels_end(ir, last, false, 2, &parts, &status);
  if (!end) return status;
  const rabbet_shape_t shape = rabbet_ir_output(ir, end, 0)->shape;
  RABBET_RETURN_IF_ERROR(rabbet_parts_make(build, &parts, end, &shape, &value));
  (void)rabbet_ir_bypass(ir, end, rabbet_ir_value(ir, value->id));
  return rabbet_ok();
}

static rabbet_status_t channels_result(rabbet_build_t* build,
                                       rabbet_ir_node_t* last) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, last, 0);
  rabbet_status_t status = rabbet_ok();
  rabbet_parts_t parts;
  int64_t back[RABBET_MAX_RANK];
  rabbet_ir_node_t* end = channels_end(ir, last, true, 1, &parts, &status);
  RABBET_RETURN_IF_ERROR(status);
  if (!end) return channels_join_moves(build, last);
  const rabbet_shape_t image = rabbet_ir_output(ir, end, 0)->shape;
  rabbet_shape_t shape = image;
  for (int32_t i = 0; i < image.rank; ++i) {
    back[i] = i == 0 ? 0 : i == 1 ? image.rank - 1 : i - 1;
    shape.d[back[i]] = image.d[i];
  }
  rabbet_ir_node_t* turn = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_parts_make(build, &parts, end, &shape, &value));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
      build, end, end->name, value->id, back, image.rank, &turn));
  (void)rabbet_ir_bypass(ir, end, rabbet_ir_output(ir, turn, 0));
  return rabbet_ok();
}

// ---- The pass ---------------------------------------------------------------

// The product that reads the softmax's weights, maybe cast, and the only one;
// *out_input: which input that is.
static rabbet_ir_node_t* channels_last(const rabbet_ir_t* ir,
                                       rabbet_ir_node_t* softmax,
                                       size_t* out_input) {
  rabbet_ir_node_t *before = softmax,
                   *node = rabbet_attention_reader(ir, softmax);
  if (node && rabbet_op_is(node->op, RABBET_OP_CAST)) {
    before = node;
    node = rabbet_attention_reader(ir, node);
  }
  if (!node || !rabbet_attention_is_product(node)) return NULL;
  *out_input = node->inputs[0] == rabbet_ir_output(ir, before, 0)->id ? 0 : 1;
  return node;
}

// Whether kernels take so many columns of values.
static bool channels_fits(const rabbet_ir_t* ir, const rabbet_ir_node_t* last,
                          size_t weights) {
  const rabbet_shape_t* y = &rabbet_ir_output(ir, last, 0)->shape;
  int64_t columns = 0;
  return y->rank > 2 &&
         rabbet_expr_is_constant(ir->graph, y->d[y->rank - 1 - (int)weights],
                                 &columns) &&
         columns % CHANNELS_MULTIPLE == 0 && columns <= CHANNELS_MOST;
}

// Whether all three factors are parts of images. `weights`: the input of the
// last product that has the weights.
static bool channels_are_read(const rabbet_ir_t* ir, rabbet_ir_node_t* first,
                              rabbet_ir_node_t* last, size_t weights,
                              rabbet_status_t* status) {
  factor_t f;
  bool turned = weights == 1 ? !channels_is_turned(last, "op0")
                             : channels_is_turned(last, "op1");
  return channels_find(ir, first, 0, channels_is_turned(first, "op0"), true, &f,
                       status) &&
         channels_find(ir, first, 1, !channels_is_turned(first, "op1"), true,
                       &f, status) &&
         channels_find(ir, last, 1 - weights, turned, false, &f, status);
}

// The product that makes the scores for the softmax alone, or NULL.
static rabbet_ir_node_t* channels_first(const rabbet_ir_t* ir,
                                        const rabbet_ir_node_t* softmax) {
  enum { STEPS = 6 };
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, softmax, 0);
  for (int step = 0; step < STEPS && value && value->uses == 1; ++step) {
    rabbet_ir_node_t* node = value->producer;
    if (!node || rabbet_fuse_is_exit(ir, node)) return NULL;
    if (rabbet_attention_is_product(node)) return node;
    const rabbet_shape_t* shape = &value->shape;
    value = NULL;
    for (size_t i = 0; i < node->input_count && !value; ++i) {
      const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, i);
      if (input && !input->constant &&
          rabbet_ir_shape_equal(&input->shape, shape))
        value = input;
    }
  }
  return NULL;
}

static rabbet_status_t channels_rewrite(rabbet_build_t* build,
                                        rabbet_ir_node_t* softmax) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_status_t status = rabbet_ok();
  size_t weights = 0;
  rabbet_ir_node_t *last = channels_last(ir, softmax, &weights),
                   *first = channels_first(ir, softmax),
                   *nodes[RABBET_FUSE_ATTENTION_MAX];
  bool swapped = weights == 1 && last && channels_is_turned(last, "op1");
  if (!first || !last || !channels_fits(ir, last, weights) ||
      !rabbet_fuse_wants_attention(build, last) ||
      (weights == 1 ? !swapped : channels_is_turned(last, "op0")) ||
      !channels_are_read(ir, first, last, weights, &status))
    return status;
  if (swapped) RABBET_RETURN_IF_ERROR(channels_swap(build, &last));
  if (rabbet_fuse_attention(ir, last, RABBET_FUSE_PRODUCTS, nodes) == 0)
    return rabbet_ok();
  first = nodes[0];
  RABBET_RETURN_IF_ERROR(channels_turn_queries(build, &first));
  images_t images = {.count = 0};
  const struct {
    rabbet_ir_node_t* product;
    size_t input;
    bool turned;
  } factors[] = {{first, 0, false},
                 {first, 1, !channels_is_turned(first, "op1")},
                 {last, 1, channels_is_turned(last, "op1")}};
  for (int i = 0; i < 3; ++i)
    RABBET_RETURN_IF_ERROR(channels_factor(build, &images, factors[i].product,
                                           factors[i].input, factors[i].turned,
                                           factors[i].product == first));
  return images.count > 0 ? channels_result(build, last) : rabbet_ok();
}

rabbet_status_t rabbet_pass_channel_attention(rabbet_build_t* build) {
  rabbet_ir_node_t** found = NULL;
  size_t count = 0;
  if (rabbet_fuse_reach(build) < RABBET_FUSE_SLICES) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_attention_softmaxes(build, &found, &count));
  for (size_t i = 0; i < count; ++i)
    if (!found[i]->dead)
      RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
          channels_rewrite(build, found[i]),
          "giving the attention of '%s' channels last", found[i]->name));
  return rabbet_ir_sweep(&build->ir);
}
