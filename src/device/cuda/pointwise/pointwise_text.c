#include "device/cuda/pointwise/pointwise_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "core/view.h"
#include "device/cuda/programs/node.h"
#include "ops/enums.h"

// ---- Types -----------------------------------------------------------------

// The type of a lane (programs/number.cuh).
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

static bool pw_is_float(rabbet_dtype_t dtype) {
  return strcmp(pw_lane(dtype), "float") == 0;
}

static bool pw_is_scalar(const rabbet_group_value_t* value) {
  if (!value->constant || value->dtype == RABBET_DTYPE_INT64) return false;
  for (int32_t i = 0; i < value->dims.rank; ++i) {
    if (value->dims.d[i] != 1) return false;
  }
  return true;
}

uint32_t rabbet_cuda_pw_scalar(const rabbet_group_value_t* value) {
  double number = rabbet_load_double(value->dtype, value->constant, 0);
  float real = (float)number;
  int32_t integer = 0;
  uint32_t bits = 0;
  if (!pw_is_float(value->dtype)) integer = (int32_t)number;
  memcpy(&bits, pw_is_float(value->dtype) ? (void*)&real : (void*)&integer,
         sizeof(bits));
  return bits;
}

bool rabbet_cuda_pw_is_long(const rabbet_group_t* group) {
  return group->node_count > 48;
}

int rabbet_cuda_pw_single(const rabbet_group_t* group) {
  return rabbet_cuda_pw_is_long(group) ? 1 : 4;
}

// ---- Operands --------------------------------------------------------------

// A table needs at least TABLE_LEAST constants of one shape. It is a copy, so
// the constants may have at most TABLE_ROWS elements.
enum { TABLE_LEAST = 4, TABLE_ROWS = 1 << 16 };

// Whether a constant has one number per row of the result.
static bool pw_may_be_column(const rabbet_group_t* group,
                             const rabbet_group_value_t* value) {
  const rabbet_dims_t* dims = &value->dims;
  int64_t count = 1;
  for (int32_t i = 0; i < dims->rank && count <= TABLE_ROWS; ++i)
    count *= dims->d[i];
  return value->constant && count <= TABLE_ROWS &&
         (value->dtype == RABBET_DTYPE_FLOAT ||
          value->dtype == RABBET_DTYPE_HALF ||
          value->dtype == RABBET_DTYPE_BF16) &&
         group->values[group->outputs[0]].format == RABBET_FORMAT_LINEAR &&
         dims->rank > 0 && dims->d[dims->rank - 1] == 1;
}

// A per-row scalar is loaded once and broadcast; it is not vectorised.
int rabbet_cuda_pw_vector(const rabbet_group_t* group) {
  int widest = 8;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    const rabbet_group_value_t* value =
        &group->values[rabbet_pw_operand(group, (int)i)];
    int bits = rabbet_dtype_bits(value->dtype);
    if (!pw_is_scalar(value) && !pw_may_be_column(group, value) &&
        bits > widest)
      widest = bits;
  }
  return 128 / widest;
}

static int pw_columns_like(const rabbet_group_t* group, size_t input) {
  const rabbet_group_value_t* like = &group->values[group->inputs[input]];
  int count = 0;
  for (size_t i = 0; i < group->input_count; ++i) {
    const rabbet_group_value_t* value = &group->values[group->inputs[i]];
    count += !pw_is_scalar(value) && pw_may_be_column(group, value) &&
             rabbet_dims_equal(&value->dims, &like->dims);
  }
  return count;
}

// The way of a boundary operand; -1 if there are too many ways. Only constants
// share ways: equality of other shapes is not known.
static int pw_way(const rabbet_group_t* group, int operand,
                  rabbet_cuda_pw_layout_t* layout) {
  const rabbet_group_value_t* value =
      &group->values[rabbet_pw_operand(group, operand)];
  for (int i = 0; value->constant && i < layout->way_count; ++i) {
    const rabbet_group_value_t* other =
        &group->values[rabbet_pw_operand(group, layout->leader[i])];
    if (other->constant && rabbet_dims_equal(&other->dims, &value->dims))
      return i;
  }
  if (layout->way_count == RABBET_CUDA_PW_WAYS) return -1;
  layout->leader[layout->way_count] = operand;
  return layout->way_count++;
}

// The table for constants of that shape, added if it is new; -1 if there are
// too many tables.
static int pw_table(const rabbet_group_t* group, size_t input,
                    rabbet_cuda_pw_layout_t* layout, int* first) {
  const rabbet_group_value_t* value = &group->values[group->inputs[input]];
  if (!pw_may_be_column(group, value)) return -1;
  for (int i = 0; i < layout->table_count; ++i)
    if (rabbet_dims_equal(&group->values[group->inputs[first[i]]].dims,
                          &value->dims))
      return i;
  if (layout->table_count == RABBET_CUDA_PW_TABLES ||
      pw_columns_like(group, input) < TABLE_LEAST)
    return -1;
  first[layout->table_count] = (int)input;
  return layout->table_count++;
}

static void pw_sources(const rabbet_group_t* group,
                       rabbet_cuda_pw_layout_t* layout, int* first) {
  for (size_t i = 0; i < group->input_count; ++i) {
    rabbet_cuda_pw_input_t* input = &layout->inputs[i];
    if (pw_is_scalar(&group->values[group->inputs[i]])) {
      input->source = RABBET_CUDA_PW_SCALAR;
      input->number = layout->scalar_count++;
      continue;
    }
    int table = pw_table(group, i, layout, first);
    if (table < 0) {
      input->number = layout->memory_count++;
      continue;
    }
    input->source = RABBET_CUDA_PW_TABLE;
    input->number = table;
    input->column = layout->columns[table]++;
  }
}

static bool pw_address(const rabbet_group_t* group, int address, int operand,
                       rabbet_cuda_pw_layout_t* layout) {
  layout->boundary[address] = operand;
  layout->way[address] = pw_way(group, operand, layout);
  return layout->way[address] >= 0;
}

// Whether the parameters fit into a launch. Counts as if all constants were in
// memory and those of the full shape, which may be in another format, had ways
// of their own.
static bool pw_launch_has_room(const rabbet_group_t* group,
                               const rabbet_cuda_pw_layout_t* layout) {
  const rabbet_dims_t* full = &group->values[group->outputs[0]].dims;
  int addresses = rabbet_cuda_pw_addresses(layout), ways = layout->way_count;
  for (int i = 0; i < layout->table_count; ++i)
    addresses += layout->columns[i];
  for (size_t i = 0; i < group->input_count; ++i) {
    const rabbet_group_value_t* value = &group->values[group->inputs[i]];
    ways += value->constant && rabbet_dims_equal(&value->dims, full);
  }
  int bytes = 64 + 8 * addresses + (8 * ways + 12) * layout->axes +
              4 * layout->scalar_count;
  return ways <= RABBET_CUDA_PW_WAYS && bytes <= RABBET_CUDA_PW_BYTES;
}

bool rabbet_cuda_pw_layout(const rabbet_group_t* group,
                           rabbet_cuda_pw_layout_t* out) {
  int first[RABBET_CUDA_PW_TABLES];
  memset(out, 0, sizeof(*out));
  if (group->input_count + group->output_count > RABBET_PW_MAX_OPERANDS)
    return false;
  int32_t rank = group->values[group->outputs[0]].dims.rank;
  out->axes = rank > 0 ? rank : 1;
  out->output_count = (int)group->output_count;
  pw_sources(group, out, first);
  bool fits = true;
  for (size_t i = 0; i < group->input_count; ++i)
    if (out->inputs[i].source == RABBET_CUDA_PW_MEMORY)
      fits = pw_address(group, out->inputs[i].number, (int)i, out) && fits;
  for (int i = 0; i < out->table_count; ++i)
    fits = pw_address(group, out->memory_count + i, first[i], out) && fits;
  for (int i = 0; i < out->output_count; ++i)
    fits = pw_address(group, out->memory_count + out->table_count + i,
                      (int)group->input_count + i, out) &&
           fits;
  return fits && pw_launch_has_room(group, out);
}

int rabbet_cuda_pw_table_row(const rabbet_cuda_pw_layout_t* layout, int table) {
  return (int)rabbet_align_up((size_t)layout->columns[table], 4);
}

// ---- Functions -------------------------------------------------------------

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
  return true;
}

// ---- Layers ----------------------------------------------------------------

// Writes a number, or infinity, as a double literal of C++.
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

typedef struct pw_writer_t {
  const rabbet_group_t* group;
  const rabbet_cuda_pw_layout_t* layout;
  rabbet_strbuf_t* text;
  // Vectors of each table's columns that were loaded.
  uint64_t loaded[RABBET_CUDA_PW_TABLES];
  // is_lazy: there are so many inputs that each is loaded just before its use.
  bool is_lazy, was_loaded[RABBET_PW_MAX_OPERANDS];
} pw_writer_t;
enum { LAZY_INPUTS = 12 };

bool rabbet_cuda_pw_is_lazy(const rabbet_cuda_pw_layout_t* layout) {
  return layout->memory_count > LAZY_INPUTS;
}

// Writes a value's name in the body of a loop over lanes.
static void pw_value(const pw_writer_t* w, int32_t value) {
  int32_t input = rabbet_group_input_of(w->group, value);
  const rabbet_cuda_pw_input_t* from =
      input >= 0 ? &w->layout->inputs[input] : NULL;
  if (from && from->source == RABBET_CUDA_PW_SCALAR)
    rabbet_strbuf_printf(w->text, "v%d", value);
  else if (from && from->source == RABBET_CUDA_PW_TABLE)
    rabbet_strbuf_printf(w->text, "t%d_%d.v[%d]", from->number,
                         from->column / 4, from->column % 4);
  else
    rabbet_strbuf_printf(w->text, "v%d[e]", value);
}

// Writes powers with a small integer exponent as products.
static bool pw_power(const pw_writer_t* w, const rabbet_group_node_t* node) {
  const rabbet_group_value_t* exponent = &w->group->values[node->inputs[1]];
  if (rabbet_node_int(node, "op") != RABBET_ELEMENTWISE_POW ||
      !pw_is_float(exponent->dtype) || !pw_is_scalar(exponent))
    return false;
  double power = rabbet_load_double(exponent->dtype, exponent->constant, 0);
  if (power != 2 && power != 3) return false;
  for (int i = 0; i < (int)power; ++i) {
    if (i > 0) rabbet_strbuf_printf(w->text, " * ");
    pw_value(w, node->inputs[0]);
  }
  return true;
}

static void pw_activation_arguments(const pw_writer_t* w,
                                    const rabbet_group_node_t* node,
                                    rabbet_dtype_t to) {
  for (int k = 0; k < 2; ++k) {
    rabbet_strbuf_printf(w->text,
                         rabbet_dtype_is_float(to) ? ", (float)" : ", ");
    pw_number(w->text, rabbet_attr_float(node->attrs, node->op->attr_count,
                                         k == 0 ? "alpha" : "beta", 0));
  }
}

static void pw_call(const pw_writer_t* w, const rabbet_group_node_t* node,
                    int function) {
  rabbet_dtype_t to = w->group->values[node->outputs[0]].dtype;
  // Narrow integers wrap around at their own width.
  bool wraps = to == RABBET_DTYPE_INT8 || to == RABBET_DTYPE_UINT8;
  if (wraps)
    rabbet_strbuf_printf(w->text, "load(store_as<%s>(", rabbet_cuda_type(to));
  rabbet_strbuf_printf(w->text, "%s_%s(", pw_functions[function].prefix,
                       rabbet_op_enumerator_name(
                           &node->op->attrs[0],
                           rabbet_node_int(node, pw_functions[function].attr)));
  for (size_t i = 0; i < node->input_count; ++i) {
    if (i > 0) rabbet_strbuf_printf(w->text, ", ");
    pw_value(w, node->inputs[i]);
  }
  if (pw_functions[function].id == RABBET_OP_ACTIVATION)
    pw_activation_arguments(w, node, to);
  rabbet_strbuf_printf(w->text, wraps ? ")))" : ")");
}

// (x - zero point) * scale
static void pw_dequantize(const pw_writer_t* w,
                          const rabbet_group_node_t* node) {
  rabbet_strbuf_printf(w->text, "((float)");
  pw_value(w, node->inputs[0]);
  if (node->input_count > 2 && node->inputs[2] >= 0) {
    rabbet_strbuf_printf(w->text, " - (float)");
    pw_value(w, node->inputs[2]);
  }
  rabbet_strbuf_printf(w->text, ") * ");
  pw_value(w, node->inputs[1]);
}

static void pw_quantize(const pw_writer_t* w, const rabbet_group_node_t* node,
                        rabbet_dtype_t to) {
  rabbet_strbuf_printf(w->text, "quantize<%s>(", rabbet_cuda_type(to));
  pw_value(w, node->inputs[0]);
  rabbet_strbuf_printf(w->text, ", ");
  pw_value(w, node->inputs[1]);
  if (node->input_count > 2 && node->inputs[2] >= 0) {
    rabbet_strbuf_printf(w->text, ", (float)");
    pw_value(w, node->inputs[2]);
    rabbet_strbuf_printf(w->text, ")");
  } else {
    rabbet_strbuf_printf(w->text, ", -0.0f)");  // x + -0 is x, also for x = -0
  }
}

static void pw_expression(const pw_writer_t* w,
                          const rabbet_group_node_t* node) {
  rabbet_dtype_t to = w->group->values[node->outputs[0]].dtype;
  if (rabbet_op_is(node->op, RABBET_OP_SELECT)) {
    pw_value(w, node->inputs[0]);
    rabbet_strbuf_printf(w->text, " ? ");
    pw_value(w, node->inputs[1]);
    rabbet_strbuf_printf(w->text, " : ");
    pw_value(w, node->inputs[2]);
    return;
  }
  if (rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE)) {
    pw_dequantize(w, node);
    return;
  }
  if (rabbet_op_is(node->op, RABBET_OP_QUANTIZE)) {
    pw_quantize(w, node, to);
    return;
  }
  if (rabbet_op_is(node->op, RABBET_OP_CAST) ||
      rabbet_op_is(node->op, RABBET_OP_IDENTITY)) {
    rabbet_strbuf_printf(w->text, "load(store_as<%s>(", rabbet_cuda_type(to));
    pw_value(w, node->inputs[0]);
    rabbet_strbuf_printf(w->text, "))");
    return;
  }
  for (int i = 0; i < PW_FUNCTIONS; ++i) {
    if (!rabbet_op_is(node->op, pw_functions[i].id)) continue;
    if (pw_functions[i].id == RABBET_OP_ELEMENTWISE && pw_power(w, node))
      return;
    pw_call(w, node, i);
  }
}

// ---- The text --------------------------------------------------------------

static void pw_operand_list(const pw_writer_t* w, int first, int count) {
  for (int i = 0; i < count; ++i) {
    int32_t value = rabbet_pw_operand(w->group, w->layout->boundary[first + i]);
    rabbet_strbuf_printf(w->text, " X(%d, %s, %d)", i,
                         rabbet_cuda_type(w->group->values[value].dtype),
                         w->layout->way[first + i]);
  }
}

static void pw_head(const pw_writer_t* w, int unroll, bool across) {
  const rabbet_cuda_pw_layout_t* layout = w->layout;
  rabbet_strbuf_printf(
      w->text,
      "#define VECTOR %d\n#define UNROLL %d\n#define SINGLE %d\n"
      "#define INPUTS %d\n#define TABLES %d\n#define OUTPUTS %d\n"
      "#define SCALARS %d\n#define WAYS %d\n#define AXES %d\n"
      "#define ACROSS %d\n#define FOR_INPUTS(X)",
      rabbet_cuda_pw_vector(w->group), unroll, rabbet_cuda_pw_single(w->group),
      layout->memory_count, layout->table_count, layout->output_count,
      layout->scalar_count, layout->way_count, layout->axes, across);
  // Empty where `apply` loads them.
  pw_operand_list(w, 0, w->is_lazy ? 0 : layout->memory_count);
  rabbet_strbuf_printf(w->text, "\n#define FOR_OUTPUTS(X)");
  pw_operand_list(w, layout->memory_count + layout->table_count,
                  layout->output_count);
  rabbet_strbuf_printf(w->text,
                       "\n#include \"device/cuda/pointwise/pointwise.cuh\"\n");
}

// Loads an input, unless `apply` got it as an argument.
static void pw_load_input(const pw_writer_t* w, size_t input) {
  int number = w->layout->inputs[input].number;
  int32_t value = w->group->inputs[input];
  rabbet_dtype_t dtype = w->group->values[value].dtype;
  char from[16];
  snprintf(from, sizeof(from), w->is_lazy ? "x%d" : "in.x%d", number);
  if (w->is_lazy)
    rabbet_strbuf_printf(
        w->text, "  const auto x%d = fetch<%s, V>(space, %d, %d, place[%d]);\n",
        number, rabbet_cuda_type(dtype), number, w->layout->way[number],
        w->layout->way[number]);
  rabbet_strbuf_printf(w->text,
                       "  %s v%d[V];\n  LANES v%d[e] = load(%s.v[e]);\n",
                       pw_lane(dtype), value, value, from);
}

static void pw_load_inputs(const pw_writer_t* w) {
  for (size_t i = 0; i < w->group->input_count; ++i) {
    const rabbet_cuda_pw_input_t* from = &w->layout->inputs[i];
    int32_t value = w->group->inputs[i];
    const char* lane = pw_lane(w->group->values[value].dtype);
    if (from->source == RABBET_CUDA_PW_MEMORY && !w->is_lazy)
      pw_load_input(w, i);
    else if (from->source == RABBET_CUDA_PW_SCALAR)
      rabbet_strbuf_printf(
          w->text, "  const %s v%d = scalar_as<%s>(space.scalars[%d]);\n", lane,
          value, lane, from->number);
  }
  for (int i = 0; i < w->layout->table_count; ++i)
    rabbet_strbuf_printf(
        w->text, "  const float* t%d = table(space, %d, place[%d] * %d);\n", i,
        i, w->layout->way[w->layout->memory_count + i],
        rabbet_cuda_pw_table_row(w->layout, i));
}

// Loads a layer's operands just before the layer; of a table four columns at a
// time.
static void pw_load_operands(pw_writer_t* w, const rabbet_group_node_t* node) {
  for (size_t i = 0; i < node->input_count; ++i) {
    int32_t input = rabbet_group_input_of(w->group, node->inputs[i]);
    if (input >= 0 && w->is_lazy && !w->was_loaded[input] &&
        w->layout->inputs[input].source == RABBET_CUDA_PW_MEMORY) {
      w->was_loaded[input] = true;
      pw_load_input(w, (size_t)input);
    }
    if (input < 0 || w->layout->inputs[input].source != RABBET_CUDA_PW_TABLE)
      continue;
    int table = w->layout->inputs[input].number;
    int at = w->layout->inputs[input].column / 4;
    if (w->loaded[table] >> at & 1) continue;
    w->loaded[table] |= UINT64_C(1) << at;
    rabbet_strbuf_printf(
        w->text, "  const pack_t<float, 4> t%d_%d = load_fixed(t%d + %d);\n",
        table, at, table, 4 * at);
  }
}

// Computes layer by layer, with all lanes of each, so that few values are live
// at a time.
void rabbet_cuda_pw_text(const rabbet_group_t* group,
                         const rabbet_cuda_pw_layout_t* layout, int unroll,
                         bool across, rabbet_strbuf_t* text) {
  pw_writer_t w = {.group = group,
                   .layout = layout,
                   .text = text,
                   .is_lazy = rabbet_cuda_pw_is_lazy(layout)};
  pw_head(&w, unroll, across);
  rabbet_strbuf_printf(
      text,
      "template <int V>\n"
      "DEVICE void apply(const inputs_t<V>& in, const space_t& space,\n"
      "                  const int64_t* place, outputs_t<V>& out) {\n");
  pw_load_inputs(&w);
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    int32_t value = node->outputs[0];
    pw_load_operands(&w, node);
    rabbet_strbuf_printf(text, "  %s v%d[V];\n  LANES v%d[e] = ",
                         pw_lane(group->values[value].dtype), value, value);
    pw_expression(&w, node);
    rabbet_strbuf_printf(text, ";\n");
  }
  for (size_t i = 0; i < group->output_count; ++i)
    rabbet_strbuf_printf(
        text, "  LANES out.y%d.v[e] = store_as<%s>(v%d[e]);\n", (int)i,
        rabbet_cuda_type(group->values[group->outputs[i]].dtype),
        group->outputs[i]);
  rabbet_strbuf_printf(text, "}\n");
}
