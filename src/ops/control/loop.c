// Layers at the boundary of a loop, the loop as one layer, and assertions. They
// describe the structure of loops, which the builder unrolls or makes sequences
// of. So devices do not get these layers, and they have no reference kernels.
#include "ops/loop_wiring.h"
#include "ops/rules.h"

static const rabbet_op_operand_t loop_any_output[] = {
    {"output", 0, RABBET_T_ANY}};

// ---- State -----------------------------------------------------------------

// The value of the previous iteration is not an input here: a later layer
// computes it, so the network keeps it.
static const rabbet_op_operand_t recurrence_inputs[] = {
    {"initial_value", 0, RABBET_T_ANY}};

const rabbet_op_t rabbet_op_recurrence = {
    .name = "recurrence",
    .layer_type = "RECURRENCE",
    .flags = RABBET_OP_NO_FOLD | RABBET_OP_STRUCTURE,
    .inputs = recurrence_inputs,
    .input_count = RABBET_OP_COUNT_OF(recurrence_inputs),
    .outputs = loop_any_output,
    .output_count = RABBET_OP_COUNT_OF(loop_any_output),
    .infer_shapes = rabbet_op_same_shape,
};

// ---- Slices ----------------------------------------------------------------

static rabbet_status_t iterator_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* from = &infer->inputs[0].shape;
  rabbet_shape_t* to = &infer->outputs[0].shape;
  int32_t axis = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_op_axis("axis", RABBET_OP_INT(infer, "axis"), from->rank, &axis));
  for (int32_t i = 0; i < from->rank; ++i) {
    if (i != axis) to->d[to->rank++] = from->d[i];
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t iterator_inputs[] = {
    {"tensor", 0, RABBET_T_ANY}};
static const rabbet_op_attr_t iterator_attrs[] = {
    {"axis", RABBET_ATTR_INT, false, 0, 0, NULL},
    {"reverse", RABBET_ATTR_BOOL, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_iterator = {
    .name = "iterator",
    .layer_type = "ITERATOR",
    .flags = RABBET_OP_NO_FOLD | RABBET_OP_STRUCTURE,
    .inputs = iterator_inputs,
    .input_count = RABBET_OP_COUNT_OF(iterator_inputs),
    .outputs = loop_any_output,
    .output_count = RABBET_OP_COUNT_OF(loop_any_output),
    .attrs = iterator_attrs,
    .attr_count = RABBET_OP_COUNT_OF(iterator_attrs),
    .infer_shapes = iterator_infer_shapes,
};

// ---- The end ---------------------------------------------------------------

static const rabbet_op_enumerator_t trip_limit_kinds[] = {
    {"COUNT", RABBET_TRIP_LIMIT_COUNT},
    {"WHILE", RABBET_TRIP_LIMIT_WHILE},
    {NULL, 0}};

static rabbet_status_t trip_limit_infer_shapes(const rabbet_op_infer_t* infer) {
  bool counts = RABBET_OP_INT(infer, "kind") == RABBET_TRIP_LIMIT_COUNT;
  const rabbet_op_value_t* x = &infer->inputs[0];
  bool fits = (counts ? RABBET_T_INDICES : RABBET_T(BOOL)) & 1u << x->dtype;
  if (fits && x->shape.rank == 0) return rabbet_ok();
  char text[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 0 ('tensor') is %s %s; a limit of kind %s is %s without "
      "dimensions",
      rabbet_dtype_name(x->dtype), rabbet_op_shape_text(infer, &x->shape, text),
      counts ? "COUNT" : "WHILE", counts ? "an INT32 or INT64" : "a BOOL");
}

static const rabbet_op_operand_t trip_limit_inputs[] = {
    {"tensor", 0, RABBET_T_INDICES | RABBET_T(BOOL)}};
static const rabbet_op_attr_t trip_limit_attrs[] = {
    {"kind", RABBET_ATTR_INT, .required = true,
     .enumerators = trip_limit_kinds},
};

const rabbet_op_t rabbet_op_trip_limit = {
    .name = "trip_limit",
    .layer_type = "TRIP_LIMIT",
    .flags = RABBET_OP_NO_FOLD | RABBET_OP_STRUCTURE,
    .inputs = trip_limit_inputs,
    .input_count = RABBET_OP_COUNT_OF(trip_limit_inputs),
    .attrs = trip_limit_attrs,
    .attr_count = RABBET_OP_COUNT_OF(trip_limit_attrs),
    .infer_shapes = trip_limit_infer_shapes,
};

rabbet_status_t rabbet_loop_trips(rabbet_expr_graph_t* graph,
                                  rabbet_expr_t count,
                                  rabbet_expr_t* out_trips) {
  rabbet_expr_t zero = RABBET_EXPR_NONE;
  *out_trips = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(graph, 0, &zero));
  return rabbet_expr_binary(graph, RABBET_EXPR_MAX, count, zero, out_trips);
}

// ---- Results ---------------------------------------------------------------

static const rabbet_op_enumerator_t loop_output_kinds[] = {
    {"LAST_VALUE", RABBET_LOOP_OUTPUT_LAST_VALUE},
    {"CONCATENATE", RABBET_LOOP_OUTPUT_CONCATENATE},
    {"REVERSE", RABBET_LOOP_OUTPUT_REVERSE},
    {NULL, 0}};

static rabbet_status_t loop_output_infer_length(const rabbet_op_infer_t* infer,
                                                rabbet_expr_t* out_length) {
  const rabbet_expr_t* values = NULL;
  size_t count = 0;
  if (infer->input_count < 2 || !infer->inputs[1].present) {
    return RABBET_OP_INVALID(
        "the number of iterations is not known, so that the output needs a "
        "length: give it with set_input(1, tensor), or the loop a trip limit "
        "of kind COUNT");
  }
  RABBET_RETURN_IF_ERROR(rabbet_op_operand_values(infer, 1, &values, &count));
  if (infer->inputs[1].shape.rank != 0 || count != 1) {
    return RABBET_OP_INVALID("input 1 ('length') must have no dimensions");
  }
  return rabbet_loop_trips(infer->graph, values[0], out_length);
}

static rabbet_status_t loop_output_infer_shapes(
    const rabbet_op_infer_t* infer) {
  if (RABBET_OP_INT(infer, "kind") == RABBET_LOOP_OUTPUT_LAST_VALUE) {
    return rabbet_op_same_shape(infer);
  }
  const rabbet_shape_t* from = &infer->inputs[0].shape;
  rabbet_shape_t* to = &infer->outputs[0].shape;
  if (from->rank == RABBET_MAX_RANK) {
    return RABBET_OP_INVALID(
        "the output would have %d dimensions; at most %d "
        "are possible",
        from->rank + 1, RABBET_MAX_RANK);
  }
  int32_t axis = 0;
  RABBET_RETURN_IF_ERROR(rabbet_op_axis("axis", RABBET_OP_INT(infer, "axis"),
                                        from->rank + 1, &axis));
  to->rank = from->rank + 1;
  for (int32_t i = 0; i < from->rank; ++i) {
    to->d[i < axis ? i : i + 1] = from->d[i];
  }
  return loop_output_infer_length(infer, &to->d[axis]);
}

static const rabbet_op_operand_t loop_output_inputs[] = {
    {"value", 0, RABBET_T_ANY},
    {"length", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE,
     RABBET_T_INDICES},
};
static const rabbet_op_attr_t loop_output_attrs[] = {
    {"kind", RABBET_ATTR_INT, .required = true,
     .enumerators = loop_output_kinds},
    {"axis", RABBET_ATTR_INT, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_loop_output = {
    .name = "loop_output",
    .layer_type = "LOOP_OUTPUT",
    .flags = RABBET_OP_NO_FOLD | RABBET_OP_STRUCTURE,
    .inputs = loop_output_inputs,
    .input_count = RABBET_OP_COUNT_OF(loop_output_inputs),
    .outputs = loop_any_output,
    .output_count = RABBET_OP_COUNT_OF(loop_any_output),
    .attrs = loop_output_attrs,
    .attr_count = RABBET_OP_COUNT_OF(loop_output_attrs),
    .infer_shapes = loop_output_infer_shapes,
};

// ---- The loop as one layer --------------------------------------------------

static const int64_t* wiring_list(const rabbet_attr_t* attrs, size_t count,
                                  const char* name, size_t expected,
                                  bool* fits) {
  size_t given = 0;
  const int64_t* list = rabbet_attr_ints(attrs, count, name, &given);
  *fits &= given == expected;
  return list;
}

rabbet_status_t rabbet_loop_wiring_read(const rabbet_attr_t* attrs,
                                        size_t count,
                                        rabbet_loop_wiring_t* out_wiring) {
  bool fits = true;
  *out_wiring = (rabbet_loop_wiring_t){
      .count = rabbet_attr_int(attrs, count, "count", -1),
      .condition = rabbet_attr_int(attrs, count, "condition", -1)};
  out_wiring->varying =
      rabbet_attr_ints(attrs, count, "varying", &out_wiring->carried_count);
  out_wiring->reverse =
      rabbet_attr_ints(attrs, count, "reverse", &out_wiring->slice_count);
  out_wiring->sources =
      rabbet_attr_ints(attrs, count, "sources", &out_wiring->output_count);
  out_wiring->kinds =
      wiring_list(attrs, count, "kinds", out_wiring->output_count, &fits);
  out_wiring->lengths =
      wiring_list(attrs, count, "lengths", out_wiring->output_count, &fits);
  return fits ? rabbet_ok()
              : RABBET_OP_INVALID(
                    "'sources', 'kinds' and 'lengths' differ in length");
}

// A network with the layer infers it from its sequences.
static rabbet_status_t loop_infer_shapes(const rabbet_op_infer_t* infer) {
  (void)infer;
  return RABBET_OP_INVALID("a network alone knows its shape");
}

static const rabbet_op_operand_t loop_inputs[] = {
    {"inputs", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_VARIADIC, RABBET_T_ANY},
};
static const rabbet_op_operand_t loop_outputs[] = {
    {"outputs", RABBET_OPERAND_VARIADIC, RABBET_T_ANY}};
static const rabbet_op_attr_t loop_attrs[] = {
    {"varying", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"reverse", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"sources", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"kinds", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"lengths", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"count", RABBET_ATTR_INT, false, -1, 0, NULL},
    {"condition", RABBET_ATTR_INT, false, -1, 0, NULL},
};

const rabbet_op_t rabbet_op_loop = {
    .name = "loop",
    .layer_type = "LOOP",
    .flags = RABBET_OP_NO_FOLD | RABBET_OP_STRUCTURE,
    .inputs = loop_inputs,
    .input_count = RABBET_OP_COUNT_OF(loop_inputs),
    .outputs = loop_outputs,
    .output_count = RABBET_OP_COUNT_OF(loop_outputs),
    .attrs = loop_attrs,
    .attr_count = RABBET_OP_COUNT_OF(loop_attrs),
    .infer_shapes = loop_infer_shapes,
};

// ---- Assertions ------------------------------------------------------------

static rabbet_status_t assertion_infer_shapes(const rabbet_op_infer_t* infer) {
  (void)infer;
  return rabbet_ok();
}

static const rabbet_op_operand_t assertion_inputs[] = {
    {"condition", 0, RABBET_T(BOOL)}};
static const rabbet_op_attr_t assertion_attrs[] = {
    {"message", RABBET_ATTR_STRING, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_assertion = {
    .name = "assertion",
    .layer_type = "ASSERTION",
    .flags = RABBET_OP_NO_FOLD | RABBET_OP_STRUCTURE,
    .inputs = assertion_inputs,
    .input_count = RABBET_OP_COUNT_OF(assertion_inputs),
    .attrs = assertion_attrs,
    .attr_count = RABBET_OP_COUNT_OF(assertion_attrs),
    .infer_shapes = assertion_infer_shapes,
};
