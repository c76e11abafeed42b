// Numbers between two posts are multiples of a unit, the scale of the last
// quantization, so that rounding needs no division.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "device/cpu/bytes/product.h"
#include "device/cpu/cpu.h"
#include "ops/enums.h"

typedef struct parse_t {
  const rabbet_group_t* group;
  rabbet_bytes_product_t* product;
  int32_t value;  // the result so far
  int32_t bytes;  // the same quantized, until it is dequantized; or -1
  double unit;
} parse_t;

// ---- Posts -----------------------------------------------------------------

// Multiplies the result so far. Posts commute with a factor, back to the last
// one that rounds.
static void parse_scale(rabbet_bytes_product_t* p, double factor) {
  assert(factor > 0);
  for (int i = p->post_count - 1; i >= 0; --i) {
    rabbet_bytes_post_t* post = &p->posts[i];
    if (post->kind != RABBET_BYTES_LEAKY)
      post->factor = (float)(post->factor * factor);
    post->offset = (float)(post->offset * factor);
    if (post->kind == RABBET_BYTES_ROUND) return;
    post->low = (float)(post->low * factor);
    post->high = (float)(post->high * factor);
  }
  p->base *= factor;
}

static bool parse_push(parse_t* s, rabbet_bytes_post_t post) {
  rabbet_bytes_product_t* p = s->product;
  if (p->post_count == RABBET_BYTES_POSTS) return false;
  p->posts[p->post_count++] = post;
  return true;
}

static bool parse_clamp(parse_t* s, double low, double high) {
  rabbet_bytes_product_t* p = s->product;
  rabbet_bytes_post_t* last =
      p->post_count > 0 ? &p->posts[p->post_count - 1] : NULL;
  float a = (float)(low / s->unit), b = (float)(high / s->unit);
  if (!(a <= b)) return false;
  if (last && last->kind == RABBET_BYTES_ROUND && a <= 0 && b >= 0) {
    last->low = fmaxf(last->low, a / last->factor);
    last->high = fminf(last->high, b / last->factor);
    return true;
  }
  return parse_push(s, (rabbet_bytes_post_t){
                           .kind = RABBET_BYTES_CLAMP, .low = a, .high = b});
}

// ---- Nodes -----------------------------------------------------------------

// Extents that a loaded plan does not know (-1) may be equal to any.
static bool parse_extents_fit(int64_t a, int64_t b) {
  return a == b || a < 0 || b < 0;
}

static bool parse_is_like(const parse_t* s, int32_t value) {
  const rabbet_dims_t *own = &s->group->values[value].dims,
                      *like = &s->group->values[s->value].dims;
  for (int32_t i = 0; i < own->rank && own->rank == like->rank; ++i)
    if (!parse_extents_fit(own->d[i], like->d[i])) return false;
  return own->rank == like->rank;
}

static double parse_attr(const rabbet_group_node_t* node, const char* name) {
  return rabbet_attr_float(node->attrs, node->op->attr_count, name, 0);
}

static bool parse_activation(parse_t* s, const rabbet_group_node_t* node) {
  double a = parse_attr(node, "alpha"), b = parse_attr(node, "beta");
  switch (rabbet_node_int(node, "type")) {
    case RABBET_ACTIVATION_RELU:
      return parse_clamp(s, 0, INFINITY);
    case RABBET_ACTIVATION_CLIP:
      return parse_clamp(s, a, b);
    case RABBET_ACTIVATION_LEAKY_RELU:
      return parse_push(s, (rabbet_bytes_post_t){.kind = RABBET_BYTES_LEAKY,
                                                 .factor = (float)a});
    default:
      return false;
  }
}

// The tensor that is added: one that the group dequantizes, or of floats.
static bool parse_add_tensor(parse_t* s, int32_t operand) {
  const rabbet_group_t* group = s->group;
  const rabbet_group_node_t* maker = rabbet_quantized_maker(group, operand);
  rabbet_bytes_post_t post = {.kind = RABBET_BYTES_ADD, .operand = operand};
  double scale = 1;
  int32_t zero = 0;
  if (!parse_is_like(s, operand)) return false;
  if (maker) {
    if (!rabbet_quantized_number(group, maker->inputs[1], &scale) ||
        !rabbet_quantized_zero(group, maker, &zero))
      return false;
    post.operand = maker->inputs[0];
  }
  post.dtype = group->values[post.operand].dtype;
  post.factor = (float)(scale / s->unit);
  post.offset = (float)(-zero * scale / s->unit);
  bool is_real = post.dtype == RABBET_DTYPE_FLOAT;
  bool is_bytes =
      post.dtype == RABBET_DTYPE_INT8 || post.dtype == RABBET_DTYPE_UINT8;
  return (maker ? is_bytes : is_real) &&
         rabbet_group_input_of(group, post.operand) >= 0 &&
         !group->values[post.operand].constant && parse_push(s, post);
}

// One number for each channel or column of the result, or for all.
static bool parse_add_bias(parse_t* s, int32_t operand) {
  rabbet_bytes_product_t* p = s->product;
  const rabbet_group_value_t* bias = &s->group->values[operand];
  const rabbet_dims_t* like = &s->group->values[s->value].dims;
  bool image = rabbet_op_is(p->node->op, RABBET_OP_CONVOLUTION);
  int32_t axis = image ? 1 : like->rank - 1;
  int32_t lead = like->rank - bias->dims.rank;
  int64_t count = 1;
  for (int32_t i = 0; i < bias->dims.rank; ++i) {
    if (bias->dims.d[i] != 1 &&
        (i + lead != axis ||
         !parse_extents_fit(bias->dims.d[i], like->d[axis])))
      return false;
    count *= bias->dims.d[i];
  }
  if (lead < 0 || p->post_count > 0 || !rabbet_dtype_is_float(bias->dtype))
    return false;
  if (count == 1) {
    p->shift += rabbet_load_double(bias->dtype, bias->constant, 0);
    return s->unit == 1;
  }
  if (p->bias >= 0) return false;
  p->bias = operand;
  return s->unit == 1;
}

static bool parse_elementwise(parse_t* s, const rabbet_group_node_t* node) {
  bool reversed = node->inputs[1] == s->value;
  int32_t operand = node->inputs[reversed ? 0 : 1];
  const rabbet_group_value_t* value = &s->group->values[operand];
  double number = 0;
  if (operand == s->value) return false;
  switch (rabbet_node_int(node, "op")) {
    case RABBET_ELEMENTWISE_SUM:
      return value->constant && rabbet_group_input_of(s->group, operand) >= 0
                 ? parse_add_bias(s, operand)
                 : parse_add_tensor(s, operand);
    case RABBET_ELEMENTWISE_PROD:
      if (!value->constant ||
          !rabbet_quantized_number(s->group, operand, &number))
        return false;
      s->unit *= number;
      return true;
    default:
      return false;
  }
}

// ---- Quantizations ---------------------------------------------------------

static bool parse_limits(rabbet_dtype_t dtype, int32_t* out_low,
                         int32_t* out_high) {
  *out_low = dtype == RABBET_DTYPE_INT8 ? INT8_MIN : 0;
  *out_high = dtype == RABBET_DTYPE_INT8 ? INT8_MAX : UINT8_MAX;
  return dtype == RABBET_DTYPE_INT8 || dtype == RABBET_DTYPE_UINT8;
}

static bool parse_quantize(parse_t* s, const rabbet_group_node_t* node) {
  double scale = 0;
  int32_t zero = 0, low = 0, high = 0;
  if (!rabbet_quantized_number(s->group, node->inputs[1], &scale) ||
      !rabbet_quantized_zero(s->group, node, &zero) ||
      !parse_limits(s->group->values[node->outputs[0]].dtype, &low, &high))
    return false;
  rabbet_bytes_product_t* p = s->product;
  parse_scale(p, s->unit / scale);
  s->unit = scale;
  s->bytes = node->outputs[0];
  p->zero = zero;
  rabbet_bytes_post_t* last =
      p->post_count > 0 ? &p->posts[p->post_count - 1] : NULL;
  if (last && last->kind == RABBET_BYTES_ROUND && last->factor == 1) {
    // A function between them may have left limits that are not whole.
    last->low = fmaxf(rintf(last->low), (float)(low - zero));
    last->high = fminf(rintf(last->high), (float)(high - zero));
    return last->low <= last->high;
  }
  return parse_push(s, (rabbet_bytes_post_t){.kind = RABBET_BYTES_ROUND,
                                             .low = (float)(low - zero),
                                             .high = (float)(high - zero),
                                             .factor = 1});
}

// The inverse of the last quantization, but for its scale.
static bool parse_dequantize(parse_t* s, const rabbet_group_node_t* node) {
  int32_t zero = 0;
  bool fits = rabbet_quantized_number(s->group, node->inputs[1], &s->unit) &&
              rabbet_quantized_zero(s->group, node, &zero) &&
              zero == s->product->zero;
  s->bytes = -1;
  return fits;
}

static bool parse_node(parse_t* s, const rabbet_group_node_t* node) {
  bool known = false;
  if (rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE)) {
    // Others make factors and added tensors.
    if (s->bytes < 0 || node->inputs[0] != s->bytes)
      return rabbet_quantized_maker(s->group, node->outputs[0]) != NULL;
    known = parse_dequantize(s, node);
  } else if (s->bytes >= 0) {
    return false;
  } else if (rabbet_op_is(node->op, RABBET_OP_QUANTIZE)) {
    known = node->inputs[0] == s->value && parse_quantize(s, node);
  } else if (rabbet_op_is(node->op, RABBET_OP_ACTIVATION)) {
    known = node->inputs[0] == s->value && parse_activation(s, node);
  } else if (rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE)) {
    known = (node->inputs[0] == s->value || node->inputs[1] == s->value) &&
            parse_elementwise(s, node);
  }
  known = known && parse_is_like(s, node->outputs[0]);
  s->value = node->outputs[0];
  return known;
}

static bool parse_bias(parse_t* s) {
  rabbet_bytes_product_t* p = s->product;
  p->bias = p->node->input_count > 2 ? p->node->inputs[2] : -1;
  return p->bias < 0 ||
         (s->group->values[p->bias].constant &&
          rabbet_dtype_is_float(s->group->values[p->bias].dtype));
}

bool rabbet_bytes_parse(const rabbet_group_t* group,
                        rabbet_bytes_product_t* out_product) {
  rabbet_bytes_product_t* p = out_product;
  memset(p, 0, sizeof(*p));
  if (group->output_count != 1) return false;
  p->node = rabbet_quantized_product(group, RABBET_OP_CONVOLUTION);
  if (!p->node)
    p->node = rabbet_quantized_product(group, RABBET_OP_MATRIX_MULTIPLY);
  if (!p->node || !rabbet_quantized_factors(group, p->node, &p->factors))
    return false;
  parse_t s = {.group = group,
               .product = p,
               .value = p->node->outputs[0],
               .bytes = -1,
               .unit = 1};
  rabbet_dtype_t x = group->values[p->factors.x].dtype;
  if ((x != RABBET_DTYPE_INT8 && x != RABBET_DTYPE_UINT8) ||
      group->values[p->factors.w].dtype != RABBET_DTYPE_INT8 ||
      !group->values[p->factors.w].constant || !parse_bias(&s))
    return false;
  p->base = 1;
  for (size_t i = 0; i < group->node_count; ++i)
    if (&group->nodes[i] != p->node && !parse_node(&s, &group->nodes[i]))
      return false;
  p->result = group->outputs[0];
  p->dtype = group->values[p->result].dtype;
  if (s.bytes < 0)
    parse_scale(p, s.unit);
  else if (p->posts[p->post_count - 1].factor == 1)
    p->posts[p->post_count - 1].kind =
        RABBET_BYTES_CLAMP;  // then it is rounded
  return p->result == s.value &&
         (s.bytes >= 0 || p->dtype == RABBET_DTYPE_FLOAT);
}
