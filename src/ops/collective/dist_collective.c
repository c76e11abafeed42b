// Exchanges between ranks. Dimension 0 is the one that blocks of ranks lie
// along: contiguous in memory, as the library for it wants them.
#include "ops/collective/dist_collective.h"

#include <string.h>

#include "ops/rules.h"
#include "ops/walk.h"

static const rabbet_op_enumerator_t collective_ops[] = {
    RABBET_COLLECTIVES(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_enumerator_t collective_reduce_ops[] = {
    RABBET_REDUCES(RABBET_ENUMERATOR){"NONE", RABBET_COLLECTIVE_REDUCE_NONE},
    {NULL, 0}};

enum { COLLECTIVE_ATTRS = 5 };

// Of the operation: [operation].
enum { REDUCES = 1, ROOTED = 2, MULTIPLIES = 4, DIVIDES = 8, BLOCKS = 16 };
static const uint8_t collective_traits[RABBET_COLLECTIVE_COUNT] = {
    [RABBET_COLLECTIVE_ALL_REDUCE] = REDUCES,
    [RABBET_COLLECTIVE_ALL_GATHER] = MULTIPLIES,
    [RABBET_COLLECTIVE_BROADCAST] = ROOTED,
    [RABBET_COLLECTIVE_REDUCE] = REDUCES | ROOTED,
    [RABBET_COLLECTIVE_REDUCE_SCATTER] = REDUCES | DIVIDES,
    [RABBET_COLLECTIVE_ALL_TO_ALL] = BLOCKS,
    [RABBET_COLLECTIVE_GATHER] = ROOTED | MULTIPLIES,
    [RABBET_COLLECTIVE_SCATTER] = ROOTED | DIVIDES,
};

bool rabbet_collective_reduces(rabbet_collective_op_t op) {
  return collective_traits[op] & REDUCES;
}

bool rabbet_collective_has_root(rabbet_collective_op_t op) {
  return collective_traits[op] & ROOTED;
}

const char* rabbet_collective_name(rabbet_collective_op_t op) {
  return collective_ops[op].name;
}

void rabbet_collective_read(const rabbet_attr_t* attrs,
                            rabbet_collective_t* out) {
  *out = (rabbet_collective_t){
      .operation = (rabbet_collective_op_t)rabbet_attr_int(
          attrs, COLLECTIVE_ATTRS, "operation", 0),
      .reduce_op = rabbet_attr_int(attrs, COLLECTIVE_ATTRS, "reduce_op", 0),
      .root = rabbet_attr_int(attrs, COLLECTIVE_ATTRS, "root", -1),
      .ranks = rabbet_attr_int(attrs, COLLECTIVE_ATTRS, "num_ranks", 1)};
  out->group =
      rabbet_attr_ints(attrs, COLLECTIVE_ATTRS, "groups", &out->group_count);
  if (out->group_count > 0) out->ranks = (int64_t)out->group_count;
}

static rabbet_status_t collective_check_group(const rabbet_collective_t* c,
                                              int64_t num_ranks) {
  bool has_root = false;
  for (size_t i = 0; i < c->group_count; ++i) {
    has_root |= c->group[i] == c->root;
    if (c->group[i] < 0 || c->group[i] >= RABBET_COLLECTIVE_MAX_RANKS)
      return RABBET_OP_INVALID("groups has rank %lld; ranks count from 0 to %d",
                               (long long)c->group[i],
                               RABBET_COLLECTIVE_MAX_RANKS - 1);
    for (size_t k = 0; k < i; ++k)
      if (c->group[k] == c->group[i])
        return RABBET_OP_INVALID("groups has rank %lld twice",
                                 (long long)c->group[i]);
  }
  if (c->group_count > 0 && num_ranks > 1 &&
      num_ranks < (int64_t)c->group_count)
    return RABBET_OP_INVALID("groups has %zu ranks, but num_ranks is %lld",
                             c->group_count, (long long)num_ranks);
  if (!rabbet_collective_has_root(c->operation)) return rabbet_ok();
  // One rank may mean that num_ranks is not set yet.
  if (c->root < 0 ||
      (c->group_count == 0 && c->ranks > 1 && c->root >= c->ranks))
    return RABBET_OP_INVALID(
        "root is %lld; %s needs a rank from 0 to num_ranks - 1 (%lld)",
        (long long)c->root, rabbet_collective_name(c->operation),
        (long long)(c->ranks - 1));
  if (c->group_count > 0 && !has_root)
    return RABBET_OP_INVALID(
        "root is %lld, which is not one of the %zu ranks of groups",
        (long long)c->root, c->group_count);
  return rabbet_ok();
}

static rabbet_status_t collective_check(const rabbet_op_infer_t* infer,
                                        const rabbet_collective_t* c) {
  const char* name = rabbet_collective_name(c->operation);
  int64_t num_ranks = RABBET_OP_INT(infer, "num_ranks");
  bool reduces = rabbet_collective_reduces(c->operation);
  if (num_ranks < 1 || num_ranks > RABBET_COLLECTIVE_MAX_RANKS ||
      c->group_count > RABBET_COLLECTIVE_MAX_RANKS)
    return RABBET_OP_INVALID("num_ranks is %lld; expected 1 to %d",
                             (long long)num_ranks, RABBET_COLLECTIVE_MAX_RANKS);
  if (reduces != (c->reduce_op != RABBET_COLLECTIVE_REDUCE_NONE))
    return RABBET_OP_INVALID(
        reduces ? "reduce_op is NONE; %s needs SUM, PROD, MAX, MIN or AVG"
                : "reduce_op is set, but %s reduces nothing: it must be NONE",
        name);
  if (reduces && infer->inputs[0].dtype == RABBET_DTYPE_BOOL)
    return RABBET_OP_INVALID(
        "input has type BOOL, which %s does not reduce (insert a cast)", name);
  return collective_check_group(c, num_ranks);
}

static rabbet_status_t collective_infer_shapes(const rabbet_op_infer_t* infer) {
  rabbet_collective_t c;
  rabbet_collective_read(infer->attrs, &c);
  RABBET_RETURN_IF_ERROR(collective_check(infer, &c));
  uint8_t traits = collective_traits[c.operation];
  rabbet_shape_t shape = infer->inputs[0].shape;
  int64_t extent = 0;
  char text[RABBET_OP_TEXT];
  if ((traits & (MULTIPLIES | DIVIDES | BLOCKS)) && shape.rank == 0)
    return RABBET_OP_INVALID("input is a scalar; %s needs a dimension 0",
                             rabbet_collective_name(c.operation));
  if ((traits & (DIVIDES | BLOCKS)) &&
      rabbet_op_is_constant(infer, shape.d[0], &extent) && extent % c.ranks)
    return RABBET_OP_INVALID(
        "input has shape %s; %s needs a dimension 0 that the number of ranks, "
        "%lld, divides",
        rabbet_op_shape_text(infer, &shape, text),
        rabbet_collective_name(c.operation), (long long)c.ranks);
  if (traits & (MULTIPLIES | DIVIDES))
    RABBET_RETURN_IF_ERROR(rabbet_op_with_constant(
        infer, traits & DIVIDES ? RABBET_EXPR_FLOOR_DIV : RABBET_EXPR_PROD,
        shape.d[0], c.ranks, &shape.d[0]));
  infer->outputs[0].shape = shape;
  return rabbet_ok();
}

static rabbet_status_t collective_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t *x = &eval->inputs[0], *y = &eval->outputs[0];
  rabbet_collective_t c;
  rabbet_collective_read(eval->attrs, &c);
  if (c.ranks > 1)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "%s of %lld ranks needs a GPU for each of them",
                         rabbet_collective_name(c.operation),
                         (long long)c.ranks);
  size_t bytes =
      (size_t)rabbet_count_of(&x->dims) * rabbet_element_size(x->dtype);
  if (y->data != x->data && bytes > 0) memcpy(y->data, x->data, bytes);
  return rabbet_ok();
}

// `after` is not read: the layer comes after the one that makes it.
static const rabbet_op_operand_t collective_inputs[] = {
    {"input", 0, RABBET_T_ANY},
    {"after", RABBET_OPERAND_OPTIONAL, RABBET_T_ANY}};
static const rabbet_op_operand_t collective_outputs[] = {
    {"output", 0, RABBET_T_ANY}};
static const rabbet_op_attr_t collective_attrs[COLLECTIVE_ATTRS] = {
    {"operation", RABBET_ATTR_INT, true, 0, 0, collective_ops},
    {"reduce_op", RABBET_ATTR_INT, false, RABBET_COLLECTIVE_REDUCE_NONE, 0,
     collective_reduce_ops},
    {"root", RABBET_ATTR_INT, false, -1, 0, NULL},
    {"num_ranks", RABBET_ATTR_INT, false, 1, 0, NULL},
    {"groups", RABBET_ATTR_INTS, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_dist_collective = {
    .name = "dist_collective",
    .layer_type = "DIST_COLLECTIVE",
    .flags = RABBET_OP_NO_FOLD,
    .inputs = collective_inputs,
    .input_count = RABBET_OP_COUNT_OF(collective_inputs),
    .outputs = collective_outputs,
    .output_count = RABBET_OP_COUNT_OF(collective_outputs),
    .attrs = collective_attrs,
    .attr_count = COLLECTIVE_ATTRS,
    .infer_shapes = collective_infer_shapes,
    .reference = collective_reference,
};
