#include "device/cuda/pointwise_text.h"

#include <math.h>
#include <string.h>

#include "base/math.h"
#include "core/view.h"
#include "device/cuda/node.h"
#include "ops/enums.h"

// ---- What the group holds --------------------------------------------------

static bool pw_is_scalar(const rabbet_group_value_t* value) {
  if (!value->constant || value->dtype == RABBET_DTYPE_INT64) return false;
  for (int32_t i = 0; i < value->dims.rank; ++i) {
    if (value->dims.d[i] != 1) return false;
  }
  return true;
}

void rabbet_cuda_pw_inputs(const rabbet_group_t* group,
                           rabbet_cuda_pw_inputs_t* out) {
  out->memory_count = out->scalar_count = 0;
  for (size_t i = 0; i < group->input_count; ++i) {
    bool scalar = pw_is_scalar(&group->values[group->inputs[i]]);
    out->memory[i] = scalar ? -1 : out->memory_count++;
    out->scalar[i] = scalar ? out->scalar_count++ : -1;
  }
}

int rabbet_cuda_pw_vector(const rabbet_group_t* group) {
  int widest = 8;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t value = i < group->input_count
                        ? group->inputs[i]
                        : group->outputs[i - group->input_count];
    int bits = rabbet_dtype_bits(group->values[value].dtype);
    if (!pw_is_scalar(&group->values[value]) && bits > widest) widest = bits;
  }
  return 128 / widest;
}

// What a lane of the type is (kernels/number.cuh).
static const char* pw_lane(rabbet_dtype_t dtype) {
  switch (dtype) {
    case RABBET_DTYPE_INT8:
    case RABBET_DTYPE_UINT8:
    case RABBET_DTYPE_INT32:
      return "int32_t";
    case RABBET_DTYPE_INT64:
      return "int64_t";
    case RABBET_DTYPE_BOOL:
      return "bool";
    default:
      return "float";
  }
}

static const struct {
  rabbet_op_id_t id;
  const char *attr, *prefix;
  int64_t count;
} pw_functions[] = {
    {RABBET_OP_ELEMENTWISE, "op", "elementwise", RABBET_ELEMENTWISE_COUNT},
    {RABBET_OP_UNARY, "op", "unary", RABBET_UNARY_COUNT},
    {RABBET_OP_ACTIVATION, "type", "activation", RABBET_ACTIVATION_COUNT},
};
enum { PW_FUNCTIONS = sizeof(pw_functions) / sizeof(pw_functions[0]) };

static bool pw_node_is_known(const rabbet_group_node_t* node) {
  for (int i = 0; i < PW_FUNCTIONS; ++i) {
    if (!rabbet_op_is(node->op, pw_functions[i].id)) continue;
    int64_t number = rabbet_node_int(node, pw_functions[i].attr);
    return number >= 0 && number < pw_functions[i].count;
  }
  return rabbet_op_is(node->op, RABBET_OP_IDENTITY) ||
         rabbet_op_is(node->op, RABBET_OP_CAST) ||
         rabbet_op_is(node->op, RABBET_OP_SELECT) ||
         rabbet_op_is(node->op, RABBET_OP_QUANTIZE) ||
         rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE);
}

bool rabbet_cuda_pw_supports(const rabbet_group_t* group) {
  for (size_t i = 0; i < group->value_count; ++i) {
    if (!rabbet_cuda_type(group->values[i].dtype)) return false;
  }
  for (size_t i = 0; i < group->node_count; ++i) {
    if (!pw_node_is_known(&group->nodes[i])) return false;
  }
  return group->input_count <= RABBET_CUDA_PW_OPERANDS;
}

// ---- Layers ----------------------------------------------------------------

// A number of any size, and infinities, as a double of C++.
static void pw_number(rabbet_strbuf_t* text, double number) {
  if (isfinite(number))
    rabbet_strbuf_printf(
        text, "%.17g%s", number,
        number == floor(number) && fabs(number) < 1e16 ? ".0" : "");
  else
    rabbet_strbuf_printf(text, "(double)%s",
                         isnan(number) ? "NOT_A_NUMBER"
                         : number > 0  ? "INFINITE"
                                       : "-INFINITE");
}

// Powers by small whole numbers are products.
static bool pw_power(const rabbet_group_t* group,
                     const rabbet_group_node_t* node, rabbet_strbuf_t* text) {
  const rabbet_group_value_t* exponent = &group->values[node->inputs[1]];
  if (rabbet_node_int(node, "op") != RABBET_ELEMENTWISE_POW ||
      strcmp(pw_lane(exponent->dtype), "float") != 0 || !pw_is_scalar(exponent))
    return false;
  double power = rabbet_load_double(exponent->dtype, exponent->constant, 0);
  int x = node->inputs[0];
  if (power == 2)
    rabbet_strbuf_printf(text, "v%d * v%d", x, x);
  else if (power == 3)
    rabbet_strbuf_printf(text, "v%d * v%d * v%d", x, x, x);
  else
    return false;
  return true;
}

// (x - zero point) scale
static void pw_dequantize(const rabbet_group_node_t* node,
                          rabbet_strbuf_t* text) {
  rabbet_strbuf_printf(text, "((float)v%d", node->inputs[0]);
  if (node->input_count > 2 && node->inputs[2] >= 0)
    rabbet_strbuf_printf(text, " - (float)v%d", node->inputs[2]);
  rabbet_strbuf_printf(text, ") * v%d", node->inputs[1]);
}

static void pw_quantize(const rabbet_group_node_t* node, rabbet_dtype_t to,
                        rabbet_strbuf_t* text) {
  rabbet_strbuf_printf(text, "quantize<%s>(v%d, v%d, ", rabbet_cuda_type(to),
                       node->inputs[0], node->inputs[1]);
  if (node->input_count > 2 && node->inputs[2] >= 0)
    rabbet_strbuf_printf(text, "(float)v%d)", node->inputs[2]);
  else
    rabbet_strbuf_printf(text, "-0.0f)");  // x + -0 is x, -0 too
}

static void pw_expression(const rabbet_group_t* group,
                          const rabbet_group_node_t* node,
                          rabbet_strbuf_t* text) {
  rabbet_dtype_t to = group->values[node->outputs[0]].dtype;
  if (rabbet_op_is(node->op, RABBET_OP_SELECT)) {
    rabbet_strbuf_printf(text, "v%d ? v%d : v%d", node->inputs[0],
                         node->inputs[1], node->inputs[2]);
    return;
  }
  if (rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE)) {
    pw_dequantize(node, text);
    return;
  }
  if (rabbet_op_is(node->op, RABBET_OP_QUANTIZE)) {
    pw_quantize(node, to, text);
    return;
  }
  if (rabbet_op_is(node->op, RABBET_OP_CAST) ||
      rabbet_op_is(node->op, RABBET_OP_IDENTITY)) {
    rabbet_strbuf_printf(text, "load(store_as<%s>(v%d))", rabbet_cuda_type(to),
                         node->inputs[0]);
    return;
  }
  const rabbet_op_attr_t* attr = &node->op->attrs[0];
  for (int i = 0; i < PW_FUNCTIONS; ++i) {
    if (!rabbet_op_is(node->op, pw_functions[i].id)) continue;
    if (pw_functions[i].id == RABBET_OP_ELEMENTWISE &&
        pw_power(group, node, text))
      return;
    // Narrow integers wrap around at their own width.
    bool wraps = to == RABBET_DTYPE_INT8 || to == RABBET_DTYPE_UINT8;
    if (wraps)
      rabbet_strbuf_printf(text, "load(store_as<%s>(", rabbet_cuda_type(to));
    rabbet_strbuf_printf(text, "%s_%s(v%d", pw_functions[i].prefix,
                         rabbet_op_enumerator_name(
                             attr, rabbet_node_int(node, pw_functions[i].attr)),
                         node->inputs[0]);
    if (node->input_count > 1)
      rabbet_strbuf_printf(text, ", v%d", node->inputs[1]);
    for (int k = 0; pw_functions[i].id == RABBET_OP_ACTIVATION && k < 2; ++k) {
      rabbet_strbuf_printf(text,
                           rabbet_dtype_is_float(to) ? ", (float)" : ", ");
      pw_number(text, rabbet_attr_float(node->attrs, node->op->attr_count,
                                        k == 0 ? "alpha" : "beta", 0));
    }
    rabbet_strbuf_printf(text, wraps ? ")))" : ")");
  }
}

// ---- The text --------------------------------------------------------------

static void pw_head(const rabbet_group_t* group,
                    const rabbet_cuda_pw_inputs_t* inputs, int unroll,
                    rabbet_strbuf_t* text) {
  rabbet_strbuf_printf(text,
                       "#define VECTOR %d\n#define UNROLL %d\n"
                       "#define INPUTS %d\n#define OUTPUTS %d\n"
                       "#define SCALARS %d\n#define FOR_INPUTS(X)",
                       rabbet_cuda_pw_vector(group), unroll,
                       inputs->memory_count, (int)group->output_count,
                       inputs->scalar_count);
  for (size_t i = 0; i < group->input_count; ++i) {
    if (inputs->memory[i] >= 0)
      rabbet_strbuf_printf(
          text, " X(%d, %s)", inputs->memory[i],
          rabbet_cuda_type(group->values[group->inputs[i]].dtype));
  }
  rabbet_strbuf_printf(text, "\n#define FOR_OUTPUTS(X)");
  for (size_t i = 0; i < group->output_count; ++i)
    rabbet_strbuf_printf(
        text, " X(%d, %s)", (int)i,
        rabbet_cuda_type(group->values[group->outputs[i]].dtype));
  rabbet_strbuf_printf(text, "\n#include \"pointwise.cuh\"\n");
}

void rabbet_cuda_pw_text(const rabbet_group_t* group,
                         const rabbet_cuda_pw_inputs_t* inputs, int unroll,
                         rabbet_strbuf_t* text) {
  pw_head(group, inputs, unroll, text);
  rabbet_strbuf_printf(
      text,
      "template <int V>\n"
      "DEVICE void apply(const inputs_t<V>& in, const space_t& space,\n"
      "                  outputs_t<V>& out) {\n"
      "#pragma unroll\n"
      "  for (int e = 0; e < V; ++e) {\n");
  for (size_t i = 0; i < group->input_count; ++i) {
    int32_t value = group->inputs[i];
    const char* lane = pw_lane(group->values[value].dtype);
    if (inputs->memory[i] >= 0)
      rabbet_strbuf_printf(text, "    const %s v%d = load(in.x%d.v[e]);\n",
                           lane, value, inputs->memory[i]);
    else
      rabbet_strbuf_printf(text, "    const %s v%d = (%s)space.scalars[%d];\n",
                           lane, value, lane, inputs->scalar[i]);
  }
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    rabbet_strbuf_printf(text, "    const %s v%d = ",
                         pw_lane(group->values[node->outputs[0]].dtype),
                         node->outputs[0]);
    pw_expression(group, node, text);
    rabbet_strbuf_printf(text, ";\n");
  }
  for (size_t i = 0; i < group->output_count; ++i)
    rabbet_strbuf_printf(
        text, "    out.y%d.v[e] = store_as<%s>(v%d);\n", (int)i,
        rabbet_cuda_type(group->values[group->outputs[i]].dtype),
        group->outputs[i]);
  rabbet_strbuf_printf(text, "  }\n}\n");
}
