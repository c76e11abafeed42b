// GELU written out, as exporters do, becomes one activation, which a matrix
// product can take as its epilogue:
//   0.5 * x * (1 + erf(x / sqrt(2)))
//   0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
// The factors may come in any order and be grouped in any way; a division by
// sqrt(2) may be a product with its reciprocal.
#include <assert.h>
#include <math.h>

#include "builder/ir/passes.h"
#include "core/attr_set.h"
#include "ops/enums.h"

enum { MAX_FACTORS = 4 };

// Exporters write these numbers with few or many digits.
static bool gelu_near(double number, double expected) {
  return fabs(number - expected) < 1e-4 * expected;
}

static const rabbet_ir_node_t* gelu_maker(const rabbet_ir_value_t* value,
                                          rabbet_op_id_t op, const char* attr,
                                          int64_t kind) {
  const rabbet_ir_node_t* node = value ? value->producer : NULL;
  if (!node || node->dead || !rabbet_op_is(node->op, op) ||
      rabbet_ir_int(node, attr) != kind)
    return NULL;
  return node;
}

static const rabbet_ir_node_t* gelu_binary(const rabbet_ir_value_t* value,
                                           int64_t kind) {
  return gelu_maker(value, RABBET_OP_ELEMENTWISE, "op", kind);
}

// The factors of a product: one number, and up to MAX_FACTORS values.
typedef struct gelu_product_t {
  double number;
  const rabbet_ir_value_t* factors[MAX_FACTORS];
  size_t count;
} gelu_product_t;

static bool gelu_multiply(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                          int depth, gelu_product_t* product) {
  float number = 0;
  if (rabbet_ir_number(ir, value, &number)) {
    product->number *= (double)number;
    return true;
  }
  const rabbet_ir_node_t* quotient = gelu_binary(value, RABBET_ELEMENTWISE_DIV);
  if (quotient && depth > 0 &&
      rabbet_ir_number(ir, rabbet_ir_input(ir, quotient, 1), &number) &&
      number != 0) {
    product->number /= (double)number;
    return gelu_multiply(ir, rabbet_ir_input(ir, quotient, 0), depth - 1,
                         product);
  }
  const rabbet_ir_node_t* node = gelu_binary(value, RABBET_ELEMENTWISE_PROD);
  if (node && depth > 0)
    return gelu_multiply(ir, rabbet_ir_input(ir, node, 0), depth - 1,
                         product) &&
           gelu_multiply(ir, rabbet_ir_input(ir, node, 1), depth - 1, product);
  assert(product->count <= MAX_FACTORS && depth >= 0);
  if (product->count == MAX_FACTORS) return false;
  product->factors[product->count++] = value;
  return true;
}

static gelu_product_t gelu_factors(const rabbet_ir_t* ir,
                                   const rabbet_ir_value_t* value) {
  gelu_product_t product = {.number = 1};
  if (!gelu_multiply(ir, value, 4, &product)) product.count = 0;
  return product;
}

// value = x * number, number near `scale`.
static bool gelu_is_scaled(const rabbet_ir_t* ir,
                           const rabbet_ir_value_t* value,
                           const rabbet_ir_value_t* x, double scale) {
  gelu_product_t product = gelu_factors(ir, value);
  return product.count == 1 && product.factors[0] == x &&
         gelu_near(product.number, scale);
}

// value = number * x^3, number near `scale`.
static bool gelu_is_cube(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                         const rabbet_ir_value_t* x, double scale) {
  gelu_product_t product = gelu_factors(ir, value);
  if (!gelu_near(product.number, scale)) return false;
  if (product.count == 3)
    return product.factors[0] == x && product.factors[1] == x &&
           product.factors[2] == x;
  const rabbet_ir_node_t* power =
      product.count == 1
          ? gelu_binary(product.factors[0], RABBET_ELEMENTWISE_POW)
          : NULL;
  return power && rabbet_ir_input(ir, power, 0) == x &&
         rabbet_ir_is_number(ir, rabbet_ir_input(ir, power, 1), 3);
}

// value = sqrt(2 / pi) * (x + 0.044715 * x^3)
static bool gelu_is_inner(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                          const rabbet_ir_value_t* x) {
  gelu_product_t product = gelu_factors(ir, value);
  if (product.count != 1 || !gelu_near(product.number, 0.7978845608))
    return false;
  const rabbet_ir_node_t* sum =
      gelu_binary(product.factors[0], RABBET_ELEMENTWISE_SUM);
  for (size_t i = 0; sum && i < 2; ++i)
    if (rabbet_ir_input(ir, sum, i) == x &&
        gelu_is_cube(ir, rabbet_ir_input(ir, sum, 1 - i), x, 0.044715))
      return true;
  return false;
}

// gate = 1 + erf(..) or 1 + tanh(..) of x; the activation's number, or -1.
static int64_t gelu_gate(const rabbet_ir_t* ir, const rabbet_ir_value_t* gate,
                         const rabbet_ir_value_t* x) {
  const rabbet_ir_node_t* sum = gelu_binary(gate, RABBET_ELEMENTWISE_SUM);
  for (size_t i = 0; sum && i < 2; ++i) {
    const rabbet_ir_value_t* inner = rabbet_ir_input(ir, sum, i);
    if (!rabbet_ir_input(ir, sum, 1 - i)->constant ||
        !rabbet_ir_is_number(ir, rabbet_ir_input(ir, sum, 1 - i), 1))
      continue;
    const rabbet_ir_node_t* erf =
        gelu_maker(inner, RABBET_OP_UNARY, "op", RABBET_UNARY_ERF);
    if (erf && gelu_is_scaled(ir, rabbet_ir_input(ir, erf, 0), x, M_SQRT1_2))
      return RABBET_ACTIVATION_GELU_ERF;
    const rabbet_ir_node_t* tanh =
        gelu_maker(inner, RABBET_OP_ACTIVATION, "type", RABBET_ACTIVATION_TANH);
    if (tanh && gelu_is_inner(ir, rabbet_ir_input(ir, tanh, 0), x))
      return RABBET_ACTIVATION_GELU_TANH;
  }
  return -1;
}

rabbet_status_t rabbet_rule_gelu(rabbet_build_t* build, rabbet_ir_node_t* node,
                                 bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* output = rabbet_ir_output(ir, node, 0);
  if (output->dtype != RABBET_DTYPE_FLOAT ||
      node->precision != RABBET_DTYPE_NONE)
    return rabbet_ok();
  gelu_product_t product = gelu_factors(ir, output);
  if (product.count != 2 || product.number != 0.5) return rabbet_ok();
  for (size_t i = 0; i < 2; ++i) {
    const rabbet_ir_value_t* x = product.factors[i];
    int64_t type = gelu_gate(ir, product.factors[1 - i], x);
    if (type < 0) continue;
    const rabbet_attr_t attr = {
        .name = "type", .type = RABBET_ATTR_INT, .data = &type, .count = 1};
    rabbet_ir_node_t* gelu = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_ACTIVATION,
                                              node->name, &attr, 1, &x->id, 1,
                                              node, &gelu));
    if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, gelu, 0)))
      *changed = true;
    else
      rabbet_ir_kill(ir, gelu);
    return rabbet_ok();
  }
  return rabbet_ok();
}
