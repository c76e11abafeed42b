// Models multiply pairs of elements as complex numbers by others of size 1. As
// plans have no such numbers, that is
//   concatenation(a * cos - b * sin, a * sin + b * cos) to [..., n, 2]
// of the parts a and b of x [..., n, 2], which torch takes without the last
// axis and ONNX's exporter with one of extent 1. It becomes a rotation of
// neighbours of [..., 2 n], where reshapes meet those that made pairs of it.

#include "builder/ir/passes.h"
#include "ops/enums.h"

enum { REAL, IMAGINARY, PARTS };

// A product of a part of pairs by a table.
typedef struct complex_term_t {
  rabbet_ir_value_t* pairs;
  int64_t part;
  const rabbet_ir_value_t* table;
} complex_term_t;

typedef struct complex_found_t {
  rabbet_ir_value_t* pairs;
  const rabbet_ir_value_t* tables[PARTS];  // cosines, sines
} complex_found_t;

static const rabbet_ir_node_t* complex_maker(const rabbet_ir_t* ir,
                                             const rabbet_ir_value_t* value,
                                             int64_t op) {
  const rabbet_ir_node_t* node = value->producer;
  return node && !node->dead && rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE) &&
                 rabbet_ir_int(node, "op") == op &&
                 !rabbet_ir_has_wishes(ir, node)
             ? node
             : NULL;
}

// Whether the value is a part of pairs.
static bool complex_part(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                         complex_term_t* out) {
  const rabbet_ir_value_t* squeezed = rabbet_ir_squeezed(ir, value);
  rabbet_ir_part_t part;
  if (squeezed) value = squeezed;
  if (!rabbet_ir_part(ir, value, value->shape.rank - 1, &part) ||
      part.size != 1 ||
      rabbet_ir_dims(ir, part.x).d[value->shape.rank - 1] != 2)
    return false;
  out->pairs = part.x;
  out->part = part.start;
  return true;
}

static bool complex_term(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                         complex_term_t* out) {
  const rabbet_ir_node_t* node =
      complex_maker(ir, value, RABBET_ELEMENTWISE_PROD);
  for (size_t i = 0; node && i < 2; ++i)
    if (complex_part(ir, rabbet_ir_input(ir, node, i), out)) {
      out->table = rabbet_ir_input(ir, node, 1 - i);
      return true;
    }
  return false;
}

// Both terms of a sum or difference, that of the real part first.
static bool complex_terms(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                          int64_t op, complex_term_t out[PARTS]) {
  const rabbet_ir_node_t* node = complex_maker(ir, value, op);
  if (!node) return false;
  for (size_t i = 0; i < PARTS; ++i)
    if (!complex_term(ir, rabbet_ir_input(ir, node, i), &out[i])) return false;
  if (op == RABBET_ELEMENTWISE_SUM && out[REAL].part == IMAGINARY) {
    complex_term_t swap = out[REAL];
    out[REAL] = out[IMAGINARY];
    out[IMAGINARY] = swap;
  }
  return out[REAL].part == REAL && out[IMAGINARY].part == IMAGINARY &&
         out[REAL].pairs == out[IMAGINARY].pairs;
}

// Whether the table has a number for each pair, and broadcasts to the other
// axes of a part of this shape.
static bool complex_is_table(const rabbet_ir_t* ir,
                             const rabbet_ir_value_t* table,
                             const rabbet_ir_value_t* pairs, int32_t rank) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, table), x = rabbet_ir_dims(ir, pairs);
  if (dims.rank != rank || table->dtype != pairs->dtype ||
      dims.d[x.rank - 2] != x.d[x.rank - 2])
    return false;
  for (int32_t i = 0; i < x.rank - 2; ++i)
    if (dims.d[i] != 1 && table->shape.d[i] != pairs->shape.d[i]) return false;
  return rank == x.rank - 1 || dims.d[rank - 1] == 1;
}

static bool complex_match(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                          complex_found_t* out) {
  const rabbet_ir_value_t* y = rabbet_ir_output(ir, node, 0);
  rabbet_dims_t dims = rabbet_ir_dims(ir, y);
  int64_t axis = rabbet_ir_int(node, "axis");
  if (node->input_count != PARTS || dims.rank < 2 ||
      (axis != dims.rank - 1 && axis != -1) || dims.d[dims.rank - 1] != 2 ||
      dims.d[dims.rank - 2] <= 0 || rabbet_ir_has_wishes(ir, node) ||
      !rabbet_ir_is_real(y->dtype))
    return false;
  const rabbet_ir_value_t* ends[PARTS];
  complex_term_t terms[PARTS][PARTS];
  for (size_t i = 0; i < PARTS; ++i) {
    ends[i] = rabbet_ir_input(ir, node, i);
    const rabbet_ir_value_t* plain = rabbet_ir_unsqueezed(ir, ends[i]);
    if (plain) ends[i] = plain;
    if (!complex_terms(
            ir, ends[i],
            i == REAL ? RABBET_ELEMENTWISE_SUB : RABBET_ELEMENTWISE_SUM,
            terms[i]))
      return false;
  }
  *out = (complex_found_t){
      .pairs = terms[REAL][REAL].pairs,
      .tables = {terms[REAL][REAL].table, terms[REAL][IMAGINARY].table}};
  if (terms[IMAGINARY][REAL].pairs != out->pairs ||
      terms[IMAGINARY][REAL].table != out->tables[1] ||
      terms[IMAGINARY][IMAGINARY].table != out->tables[0] ||
      !rabbet_ir_shape_equal(&out->pairs->shape, &y->shape))
    return false;
  for (size_t i = 0; i < PARTS; ++i)
    if (!complex_is_table(ir, out->tables[i], out->pairs, ends[i]->shape.rank))
      return false;
  return true;
}

rabbet_status_t rabbet_rule_complex_rotation(rabbet_build_t* build,
                                             rabbet_ir_node_t* node,
                                             bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  complex_found_t found;
  rabbet_ir_node_t* made = NULL;
  if (!complex_match(ir, node, &found)) return rabbet_ok();
  const rabbet_shape_t shape = found.pairs->shape;
  rabbet_dims_t dims = rabbet_ir_dims(ir, found.pairs);
  int32_t rank = shape.rank - 1;
  const int64_t size = 2 * dims.d[rank - 1];
  const rabbet_ir_value_t* operands[] = {found.pairs, found.tables[0],
                                         found.tables[1]};
  rabbet_shape_t flat = shape;
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_constant(ir->graph, size, &flat.d[rank - 1]));
  for (int i = 0; i < 3; ++i) {
    if (i > 0) flat = found.tables[i - 1]->shape;
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_add_reshape(build, node, flat.d, rank, &operands[i]));
  }
  const int32_t inputs[] = {operands[0]->id, operands[1]->id, operands[2]->id};
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_rotation(build, node, node->name, inputs,
                                                size, true, &made));
  const rabbet_ir_value_t* y = rabbet_ir_output(ir, made, 0);
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(build, node, shape.d, shape.rank, &y));
  // Nodes that nothing reads are swept.
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_value(ir, y->id));
  return rabbet_ok();
}
