// The scores of an attention get one shape, so that its nodes are a group.
//
// Swin adds the mask of shifted windows to scores that are reshaped for it,
// from [N W, H, L, L] to [N, W, H, L, L], and back; einsum, as exporters write
// it, multiplies tensors of rank 3 and reshapes the result. Only axes before
// rows change. Here the products' factors are reshaped instead, and scores,
// masks and weights have the shape with the most axes from the first product to
// the last. Numbers for each head or row that multiply scores (the temperatures
// of cosine attention) multiply queries, which are fewer, and two masks become
// one.
#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"
#include "builder/rewrite/parts.h"
#include "builder/rewrite/products/attention_nodes.h"
#include "ops/enums.h"

enum { SCORES_NODES = 8, MATRIX_AXES = 2 };

typedef struct step_t {
  rabbet_ir_node_t* node;
  size_t input;  // that takes the scores
} step_t;

// From the first product to the last one, in order of execution.
typedef struct scores_t {
  rabbet_build_t* build;
  rabbet_ir_t* ir;
  rabbet_ir_node_t *first, *softmax, *last;
  size_t input;  // of the last, that takes the weights
  step_t steps[2 * SCORES_NODES + 1];
  int count;
  rabbet_shape_t shape;  // that all get
} scores_t;

// ---- Finding ----------------------------------------------------------------

// Where each axis of a shape ends in the axes of a finer one.
typedef struct runs_t {
  int ends[RABBET_MAX_RANK];
} runs_t;

// Whether each axis before rows of `shape` is a run of axes of s->shape.
static bool scores_runs(const scores_t* s, const rabbet_shape_t* shape,
                        runs_t* out, rabbet_status_t* status) {
  rabbet_shape_t fine = s->shape, coarse = *shape;
  rabbet_parts_t parts;
  fine.rank -= MATRIX_AXES;
  coarse.rank -= MATRIX_AXES;
  if (!rabbet_parts_runs(s->ir->graph, &fine, &coarse, &parts, status))
    return false;
  for (int32_t i = 0; i < coarse.rank; ++i)
    out->ends[i] =
        parts.ends[i] == 0 ? 0 : parts.atoms[parts.ends[i] - 1].source + 1;
  return true;
}

static bool scores_keeps_matrix(const rabbet_shape_t* a,
                                const rabbet_shape_t* b) {
  return a->rank > MATRIX_AXES && b->rank > MATRIX_AXES &&
         a->d[a->rank - 1] == b->d[b->rank - 1] &&
         a->d[a->rank - 2] == b->d[b->rank - 2];
}

// Whether the node only joins or divides axes before rows.
static bool scores_is_reshape(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* node) {
  return rabbet_op_is(node->op, RABBET_OP_SHUFFLE) &&
         rabbet_fuse_is_move(ir, node) && rabbet_ir_is_view(ir, node) &&
         scores_keeps_matrix(&rabbet_ir_input(ir, node, 0)->shape,
                             &rabbet_ir_output(ir, node, 0)->shape);
}

// The node that makes the value for one reader; NULL: it may not be replaced.
static rabbet_ir_node_t* scores_maker(const rabbet_ir_t* ir,
                                      const rabbet_ir_value_t* value) {
  rabbet_ir_node_t* maker = value ? value->producer : NULL;
  return !maker || maker->dead || value->uses != 1 ||
                 rabbet_fuse_is_exit(ir, maker) ||
                 rabbet_ir_has_wishes(ir, maker)
             ? NULL
             : maker;
}

// Finds the steps from the product to the value, the last one first.
static bool scores_before(scores_t* s, const rabbet_ir_value_t* value) {
  const rabbet_ir_t* ir = s->ir;
  rabbet_ir_node_t* maker = scores_maker(ir, value);
  if (!maker) return false;
  if (rabbet_attention_is_product(maker)) {
    s->first = maker;
    return true;
  }
  if (s->count == SCORES_NODES) return false;
  bool reshapes = scores_is_reshape(ir, maker);
  if (!reshapes && rabbet_fuse_kind(ir, maker) != RABBET_FUSE_POINTWISE)
    return false;
  for (size_t i = 0; i < (reshapes ? 1 : maker->input_count); ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(ir, maker, i);
    if (!input || input->constant ||
        (!reshapes && !rabbet_ir_shape_equal(&input->shape, &value->shape)))
      continue;
    s->steps[s->count++] = (step_t){maker, i};
    if (scores_before(s, input)) return true;
    --s->count;
  }
  return false;
}

// Finds the steps from the softmax to the product with values.
static bool scores_after(scores_t* s) {
  const rabbet_ir_value_t* value = rabbet_ir_output(s->ir, s->softmax, 0);
  rabbet_ir_node_t* node = rabbet_attention_reader(s->ir, s->softmax);
  for (int i = 0; node && i < SCORES_NODES; ++i) {
    if (rabbet_attention_is_product(node)) {
      s->last = node;
      s->input = node->inputs[0] == value->id ? 0 : 1;
      return true;
    }
    if (!rabbet_op_is(node->op, RABBET_OP_CAST) &&
        !scores_is_reshape(s->ir, node))
      return false;
    s->steps[s->count++] = (step_t){node, 0};
    value = rabbet_ir_output(s->ir, node, 0);
    node = rabbet_attention_reader(s->ir, node);
  }
  return false;
}

// ---- Masks of two axes of places --------------------------------------------

// SAM and MViT add what depends on a key's row and on its column to scores that
// are reshaped to have both axes: the sum of such terms, reshaped, is a mask.
enum { PLACES_TERMS = 4 };
typedef struct places_t {
  const rabbet_ir_value_t* scores;
  rabbet_shape_t shape;  // with axes of rows and columns
  const rabbet_ir_value_t* terms[PLACES_TERMS];
  int count;
} places_t;

static bool places_is_reshape(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* node) {
  return node && rabbet_op_is(node->op, RABBET_OP_SHUFFLE) &&
         rabbet_fuse_is_move(ir, node) && rabbet_ir_is_view(ir, node);
}

static bool places_find(const rabbet_ir_t* ir, const rabbet_ir_node_t* end,
                        places_t* out) {
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, end, 0);
  out->shape = value->shape;
  for (out->count = 0;;) {
    rabbet_ir_node_t* maker = scores_maker(ir, value);
    if (places_is_reshape(ir, maker)) {
      out->scores = rabbet_ir_input(ir, maker, 0);
      return out->count > 0 &&
             rabbet_ir_shape_equal(&out->scores->shape,
                                   &rabbet_ir_output(ir, end, 0)->shape);
    }
    if (!maker || out->count == PLACES_TERMS ||
        !rabbet_op_is(maker->op, RABBET_OP_ELEMENTWISE) ||
        rabbet_ir_int(maker, "op") != RABBET_ELEMENTWISE_SUM)
      return false;
    bool second = scores_maker(ir, rabbet_ir_input(ir, maker, 0)) == NULL ||
                  !rabbet_ir_shape_equal(&rabbet_ir_input(ir, maker, 0)->shape,
                                         &out->shape);
    value = rabbet_ir_input(ir, maker, second ? 1 : 0);
    out->terms[out->count++] = rabbet_ir_input(ir, maker, second ? 0 : 1);
    if (!rabbet_ir_shape_equal(&value->shape, &out->shape)) return false;
  }
}

static rabbet_status_t scores_binary(const scores_t* s, int64_t op,
                                     const char* name,
                                     const rabbet_ir_value_t* a,
                                     const rabbet_ir_value_t* b,
                                     const rabbet_ir_value_t** out_value);

// Whether the sum of the terms has all elements of the scores.
static bool places_are_whole(const places_t* places) {
  for (int32_t axis = 0; axis < places->shape.rank; ++axis) {
    bool whole = false;
    for (int i = 0; i < places->count; ++i)
      whole |= places->terms[i]->shape.d[axis] == places->shape.d[axis];
    if (!whole) return false;
  }
  return true;
}

// Adds the reshaped sum of the terms to the scores that the softmax reads, if
// they are reshaped for the terms, and the sum has all of their elements.
static rabbet_status_t places_join(scores_t* s) {
  rabbet_ir_node_t* end =
      scores_maker(s->ir, rabbet_ir_input(s->ir, s->softmax, 0));
  places_t places;
  if (!places_is_reshape(s->ir, end) || !places_find(s->ir, end, &places))
    return rabbet_ok();
  const rabbet_ir_value_t *sum = places.terms[0], *value = NULL;
  if (!places_are_whole(&places) ||
      !rabbet_fuse_wants_attention(s->build, s->softmax))
    return rabbet_ok();
  s->last = end;
  for (int i = 1; i < places.count; ++i)
    RABBET_RETURN_IF_ERROR(scores_binary(s, RABBET_ELEMENTWISE_SUM, end->name,
                                         sum, places.terms[i], &sum));
  assert(rabbet_ir_shape_equal(&sum->shape, &places.shape));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_reshape(
      s->build, end, places.scores->shape.d, places.scores->shape.rank, &sum));
  RABBET_RETURN_IF_ERROR(scores_binary(s, RABBET_ELEMENTWISE_SUM, end->name,
                                       places.scores, sum, &value));
  (void)rabbet_ir_bypass(s->ir, end, rabbet_ir_value(s->ir, value->id));
  return rabbet_ok();
}

static bool scores_find(scores_t* s) {
  int32_t rank = rabbet_ir_output(s->ir, s->softmax, 0)->shape.rank;
  if (rank <= MATRIX_AXES ||
      rabbet_ir_int(s->softmax, "axes") != (int64_t)1 << (rank - 1) ||
      rabbet_ir_has_wishes(s->ir, s->softmax) ||
      !scores_before(s, rabbet_ir_input(s->ir, s->softmax, 0)))
    return false;
  for (int i = 0; i < s->count / 2; ++i) {
    step_t swap = s->steps[i];
    s->steps[i] = s->steps[s->count - 1 - i];
    s->steps[s->count - 1 - i] = swap;
  }
  s->steps[s->count++] = (step_t){s->softmax, 0};
  return scores_after(s);
}

// ---- What is to be done -----------------------------------------------------

static bool scores_is_elementwise(const rabbet_ir_node_t* node, int64_t op) {
  return rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE) &&
         rabbet_ir_int(node, "op") == op;
}

static bool scores_is_one(const rabbet_ir_t* ir, rabbet_expr_t extent) {
  int64_t number = 0;
  return rabbet_expr_is_constant(ir->graph, extent, &number) && number == 1;
}

// The constants that a step multiplies rows with, more than a number; else
// NULL.
static const rabbet_ir_value_t* scores_row_factors(const scores_t* s,
                                                   const step_t* step) {
  const rabbet_ir_t* ir = s->ir;
  if (!scores_is_elementwise(step->node, RABBET_ELEMENTWISE_PROD)) return NULL;
  const rabbet_ir_value_t* value =
      rabbet_ir_input(ir, step->node, 1 - step->input);
  const rabbet_shape_t* shape = &value->shape;
  bool turned = rabbet_ir_int(s->first, "op0") == RABBET_MATRIX_TRANSPOSE;
  return value->constant && shape->rank > MATRIX_AXES &&
                 rabbet_ir_count(ir, value) > 1 &&
                 scores_is_one(ir, shape->d[shape->rank - 1]) &&
                 (!turned || scores_is_one(ir, shape->d[shape->rank - 2]))
             ? value
             : NULL;
}

// The mask that the step adds to the scores; NULL: the step is no addition.
static const rabbet_ir_value_t* scores_mask(const rabbet_ir_t* ir,
                                            const step_t* step) {
  return scores_is_elementwise(step->node, RABBET_ELEMENTWISE_SUM)
             ? rabbet_ir_input(ir, step->node, 1 - step->input)
             : NULL;
}

// Steps up to here multiply scores or change their shape only.
static bool scores_only_scales(const scores_t* s, int count) {
  for (int i = 0; i < count; ++i)
    if (!scores_is_reshape(s->ir, s->steps[i].node) &&
        !scores_is_elementwise(s->steps[i].node, RABBET_ELEMENTWISE_PROD))
      return false;
  return true;
}

// Chooses the shape; false: all nodes have it, and there is nothing else to do.
static bool scores_choose(scores_t* s) {
  bool wanted = false;
  int masks = 0;
  s->shape = rabbet_ir_output(s->ir, s->first, 0)->shape;
  for (int i = 0; i < s->count; ++i) {
    const step_t* step = &s->steps[i];
    const rabbet_shape_t* shape =
        &rabbet_ir_output(s->ir, step->node, 0)->shape;
    if (shape->rank > s->shape.rank) s->shape = *shape;
    masks += scores_mask(s->ir, step) != NULL;
    wanted |= scores_is_reshape(s->ir, step->node) ||
              (scores_row_factors(s, step) && scores_only_scales(s, i));
  }
  return wanted || masks > 1;
}

// ---- Making -----------------------------------------------------------------

// A value of the rank of `like` that broadcasts to it, reshaped to broadcast to
// s->shape instead. *out_value NULL: that cannot be.
static rabbet_status_t scores_align(const scores_t* s,
                                    const rabbet_shape_t* like,
                                    const rabbet_ir_value_t* value,
                                    const rabbet_ir_value_t** out_value) {
  rabbet_ir_t* ir = s->ir;
  rabbet_expr_t extents[RABBET_MAX_RANK], one = RABBET_EXPR_NONE;
  rabbet_status_t status = rabbet_ok();
  int32_t lead = s->shape.rank - MATRIX_AXES, at = 0;
  runs_t runs;
  *out_value = NULL;
  if (value->shape.rank != like->rank) return rabbet_ok();
  bool fits = scores_runs(s, like, &runs, &status);
  RABBET_RETURN_IF_ERROR(status);
  if (!fits) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(ir->graph, 1, &one));
  for (int32_t i = 0; i < like->rank - MATRIX_AXES; ++i) {
    bool whole = value->shape.d[i] == like->d[i];
    if (!whole && !scores_is_one(ir, value->shape.d[i])) return rabbet_ok();
    for (; at < runs.ends[i]; ++at)
      extents[at] = whole ? s->shape.d[at] : one;
  }
  for (; at < lead; ++at)
    extents[at] = one;  // axes of extent 1 behind the last run
  for (int32_t i = 0; i < MATRIX_AXES; ++i)
    extents[lead + i] = value->shape.d[like->rank - MATRIX_AXES + i];
  *out_value = value;
  return rabbet_ir_add_reshape(s->build, s->last, extents, s->shape.rank,
                               out_value);
}

// The same for a factor of a product; scales by a number, which kernels take
// before the product alone, stay behind the reshape.
static rabbet_status_t scores_align_factor(const scores_t* s,
                                           const rabbet_shape_t* like,
                                           const rabbet_ir_value_t* value,
                                           const rabbet_ir_value_t** out) {
  rabbet_attention_scales_t scales;
  rabbet_attention_before_scales(s->ir, &value, &scales);
  RABBET_RETURN_IF_ERROR(scores_align(s, like, value, out));
  return *out ? rabbet_attention_scale(s->build, s->last, &scales, out)
              : rabbet_ok();
}

static rabbet_status_t scores_add(const scores_t* s,
                                  const rabbet_ir_node_t* like,
                                  const rabbet_attr_t* attrs,
                                  const int32_t* inputs,
                                  const rabbet_ir_value_t** out_value) {
  rabbet_ir_node_t* node = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      s->ir, rabbet_op_id(like->op), like->name, attrs, like->op->attr_count,
      inputs, like->input_count, s->last, &node));
  *out_value = rabbet_ir_output(s->ir, node, 0);
  return rabbet_ok();
}

static rabbet_status_t scores_binary(const scores_t* s, int64_t op,
                                     const char* name,
                                     const rabbet_ir_value_t* a,
                                     const rabbet_ir_value_t* b,
                                     const rabbet_ir_value_t** out_value) {
  const rabbet_attr_t attr = {
      .name = "op", .type = RABBET_ATTR_INT, .data = &op, .count = 1};
  const int32_t inputs[2] = {a->id, b->id};
  rabbet_ir_node_t* node = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      s->ir, RABBET_OP_ELEMENTWISE, name, &attr, 1, inputs, 2, s->last, &node));
  *out_value = rabbet_ir_output(s->ir, node, 0);
  return rabbet_ok();
}

// The step with the scores `*value`, which have s->shape; *value NULL: it
// cannot have that.
static rabbet_status_t scores_repeat(const scores_t* s, const step_t* step,
                                     const rabbet_ir_value_t** value) {
  const rabbet_ir_node_t* node = step->node;
  const rabbet_shape_t* like = &rabbet_ir_output(s->ir, node, 0)->shape;
  int32_t inputs[4] = {-1, -1, -1, -1};
  const rabbet_ir_value_t* scores = *value;
  *value = NULL;
  if (node->input_count > 4) return rabbet_ok();
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(s->ir, node, i);
    if (!input) continue;
    if (i == step->input)
      input = scores;
    else
      RABBET_RETURN_IF_ERROR(scores_align(s, like, input, &input));
    if (!input) return rabbet_ok();
    inputs[i] = input->id;
  }
  const int64_t axes = (int64_t)1 << (s->shape.rank - 1);
  const rabbet_attr_t along = {
      .name = "axes", .type = RABBET_ATTR_INT, .data = &axes, .count = 1};
  bool is_softmax = node == s->softmax;
  assert(!is_softmax || node->op->attr_count == 1);
  return scores_add(s, node, is_softmax ? &along : node->attrs, inputs, value);
}

// The product with its factors in s->shape, *value in the place of factor
// `given` (2: of none). *value NULL: shapes do not fit.
static rabbet_status_t scores_multiply(const scores_t* s,
                                       const rabbet_ir_node_t* node,
                                       size_t given,
                                       const rabbet_ir_value_t** value) {
  const rabbet_shape_t* like = &rabbet_ir_output(s->ir, node, 0)->shape;
  int32_t inputs[2] = {-1, -1};
  for (size_t i = 0; i < 2; ++i) {
    const rabbet_ir_value_t* factor = *value;
    if (i != given)
      RABBET_RETURN_IF_ERROR(scores_align_factor(
          s, like, rabbet_ir_input(s->ir, node, i), &factor));
    if (!factor) {
      *value = NULL;
      return rabbet_ok();
    }
    inputs[i] = factor->id;
  }
  return scores_add(s, node, node->attrs, inputs, value);
}

// The first product with `factors` multiplied into rows of its first factor.
static rabbet_status_t scores_warm(const scores_t* s,
                                   const rabbet_ir_value_t* factors,
                                   const rabbet_ir_value_t** value) {
  const rabbet_shape_t* like = &rabbet_ir_output(s->ir, s->first, 0)->shape;
  RABBET_RETURN_IF_ERROR(
      scores_align(s, like, rabbet_ir_input(s->ir, s->first, 0), value));
  if (!*value) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(scores_binary(s, RABBET_ELEMENTWISE_PROD,
                                       s->first->name, *value, factors, value));
  return scores_multiply(s, s->first, 0, value);
}

// Collects what multiplies rows of scores: *out_factors, or NULL. Steps that it
// takes are left out afterwards.
static rabbet_status_t scores_take_factors(scores_t* s,
                                           const rabbet_ir_value_t** out) {
  *out = NULL;
  for (int i = 0; i < s->count && scores_only_scales(s, i); ++i) {
    step_t* step = &s->steps[i];
    const rabbet_ir_value_t* factors = scores_row_factors(s, step);
    if (!factors) continue;
    RABBET_RETURN_IF_ERROR(scores_align(
        s, &rabbet_ir_output(s->ir, step->node, 0)->shape, factors, &factors));
    if (!factors) return rabbet_ok();
    if (*out)
      RABBET_RETURN_IF_ERROR(scores_binary(s, RABBET_ELEMENTWISE_PROD,
                                           step->node->name, *out, factors,
                                           &factors));
    *out = factors;
    memmove(step, step + 1, (size_t)(s->count - i - 1) * sizeof(*step));
    --s->count;
    --i;
  }
  return rabbet_ok();
}

// Whether the sum of two masks has fewer elements than the scores.
static bool scores_are_small(const scores_t* s, const rabbet_ir_value_t* a,
                             const rabbet_ir_value_t* b) {
  for (int32_t i = 0; i < s->shape.rank - MATRIX_AXES; ++i)
    if (scores_is_one(s->ir, a->shape.d[i]) &&
        scores_is_one(s->ir, b->shape.d[i]) &&
        !scores_is_one(s->ir, s->shape.d[i]))
      return true;
  return false;
}

static bool scores_is_constant(const rabbet_ir_value_t* value) {
  return value->constant || value->is_deferred;
}

// Adds the masks of all further steps that add one to *mask; these are then
// left out. Sums of two run-time masks are made only if they are smaller than
// the scores.
static rabbet_status_t scores_join_masks(scores_t* s, int first,
                                         bool is_constant,
                                         const rabbet_ir_value_t** mask) {
  for (int i = first + 1; i < s->count; ++i) {
    step_t* step = &s->steps[i];
    if (scores_is_reshape(s->ir, step->node)) continue;
    const rabbet_ir_value_t *other = scores_mask(s->ir, step), *sum = NULL;
    if (!other) return rabbet_ok();
    is_constant &= scores_is_constant(other);
    RABBET_RETURN_IF_ERROR(scores_align(
        s, &rabbet_ir_output(s->ir, step->node, 0)->shape, other, &other));
    if (!other || other->dtype != (*mask)->dtype ||
        (!is_constant && !scores_are_small(s, *mask, other)))
      return rabbet_ok();
    RABBET_RETURN_IF_ERROR(scores_binary(s, RABBET_ELEMENTWISE_SUM,
                                         step->node->name, *mask, other, &sum));
    *mask = sum;
    memmove(step, step + 1, (size_t)(s->count - i - 1) * sizeof(*step));
    --s->count;
    --i;
  }
  return rabbet_ok();
}

// The sum of scores and masks in s->shape.
static rabbet_status_t scores_add_masks(scores_t* s, int at,
                                        const rabbet_ir_value_t** value) {
  const step_t* step = &s->steps[at];
  const rabbet_ir_value_t* mask = scores_mask(s->ir, step);
  bool is_constant = scores_is_constant(mask);
  RABBET_RETURN_IF_ERROR(scores_align(
      s, &rabbet_ir_output(s->ir, step->node, 0)->shape, mask, &mask));
  if (!mask) {
    *value = NULL;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(scores_join_masks(s, at, is_constant, &mask));
  return scores_binary(s, RABBET_ELEMENTWISE_SUM, step->node->name, *value,
                       mask, value);
}

// Makes all of it in s->shape before the last product, whose readers then read
// that. Nodes that nothing reads are swept.
static rabbet_status_t scores_rewrite(scores_t* s) {
  const rabbet_ir_value_t *value = NULL, *factors = NULL;
  const rabbet_shape_t shape = rabbet_ir_output(s->ir, s->last, 0)->shape;
  RABBET_RETURN_IF_ERROR(scores_take_factors(s, &factors));
  RABBET_RETURN_IF_ERROR(factors ? scores_warm(s, factors, &value)
                                 : scores_multiply(s, s->first, 2, &value));
  for (int i = 0; value && i < s->count; ++i) {
    const step_t* step = &s->steps[i];
    if (scores_is_reshape(s->ir, step->node)) continue;
    RABBET_RETURN_IF_ERROR(scores_mask(s->ir, step)
                               ? scores_add_masks(s, i, &value)
                               : scores_repeat(s, step, &value));
  }
  if (value)
    RABBET_RETURN_IF_ERROR(scores_multiply(s, s->last, s->input, &value));
  if (!value) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(s->build, s->last, shape.d, shape.rank, &value));
  (void)rabbet_ir_bypass(s->ir, s->last, rabbet_ir_value(s->ir, value->id));
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_attention_shapes(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t** found = NULL;
  size_t count = 0;
  if (rabbet_fuse_reach(build) < RABBET_FUSE_SLICES) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_attention_softmaxes(build, &found, &count));
  for (size_t i = 0; i < count; ++i) {
    scores_t s = {.build = build, .ir = ir, .softmax = found[i]};
    if (s.softmax->dead) continue;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        places_join(&s), "joining what is added to '%s'", s.softmax->name));
    if (!scores_find(&s) || !rabbet_fuse_wants_attention(build, s.last) ||
        !scores_choose(&s))
      continue;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        scores_rewrite(&s), "giving the scores of '%s' one shape",
        s.softmax->name));
  }
  return rabbet_ir_sweep(ir);
}
