// 8-bit products as a primitive with factors and posts.
//
// Intermediate results are multiples of a unit. It can be the scale of an added
// 8-bit tensor, which then is added without conversion. The factors convert the
// 32-bit sums to the unit, and one linear function at the end converts to the
// result's scale.
#include "device/cpu/dnnl/fused.h"

// Whether f(a x) = a f(x) for a > 0.
static bool quantize_keeps_unit(const rabbet_epilogue_item_t* item) {
  return !item->is_binary && item->function == RABBET_DNNL_RELU;
}

// The item that adds the dequantized tensor, or -1.
static int quantize_find_operand(const rabbet_epilogue_t* e,
                                 const rabbet_quantized_t* q) {
  for (int i = 0; i < e->count; ++i)
    if (e->items[i].is_binary && e->items[i].operand == q->operand.real &&
        q->operand.value >= 0)
      return i;
  return -1;
}

// Chooses the unit. False if a tensor's scale must be the unit, but a function
// of the epilogue does not commute with a factor.
static bool quantize_unit(const rabbet_epilogue_t* e,
                          const rabbet_quantized_t* q, int operand,
                          double* out_unit) {
  bool keeps = true;
  for (int i = 0; i < e->count; ++i)
    keeps = keeps && (i == operand || quantize_keeps_unit(&e->items[i]));
  *out_unit = 1;
  if (operand >= 0) {
    *out_unit = q->operand.scale;
    return keeps && e->items[operand].binary == RABBET_DNNL_ADD;
  }
  if (keeps && q->scale != 0) *out_unit = q->scale;
  return q->operand.value < 0;
}

static bool quantize_types(rabbet_dnnl_fused_t* fused,
                           const rabbet_quantized_t* q) {
  const rabbet_group_value_t* values = q->plain.values;
  fused->spec.src.dtype = values[q->x].dtype;
  fused->spec.weights.dtype = fused->weights_layout.dtype = values[q->w].dtype;
  fused->spec.dst.dtype =
      q->scale != 0 ? values[q->result].dtype : RABBET_DTYPE_FLOAT;
  return fused->spec.src.dtype != RABBET_DTYPE_FP8 &&
         fused->spec.weights.dtype == RABBET_DTYPE_INT8 &&
         fused->spec.dst.dtype != RABBET_DTYPE_FP8;
}

static void quantize_factors(rabbet_dnnl_fused_t* fused,
                             const rabbet_quantized_t* q, double unit,
                             float* scratch) {
  float* bias = scratch + q->w_count;
  for (int64_t i = 0; i < q->w_count; ++i) {
    double scale = q->x_scale * rabbet_quantized_w_scale(q, i);
    scratch[i] = (float)(scale / unit);
    bias[i] = (float)(1 / scale);  // oneDNN adds the bias before the factors
  }
  fused->spec.scales = scratch;
  fused->spec.scale_count = q->w_count;
  fused->spec.scale_axis =
      fused->spec.kind == RABBET_DNNL_MATMUL ? fused->spec.dst.rank - 1 : 1;
  fused->bias_factors = bias;
}

void rabbet_dnnl_fused_quantize(rabbet_dnnl_fused_t* fused,
                                const rabbet_quantized_t* q, float* scratch,
                                bool* out_fits) {
  rabbet_epilogue_t* e = &fused->epilogue;
  int operand = quantize_find_operand(e, q);
  double unit = 1;
  *out_fits = false;
  if (!rabbet_dnnl_has_byte_products() ||
      !quantize_unit(e, q, operand, &unit) || !quantize_types(fused, q) ||
      (fused->bias >= 0 && !q->plain.values[fused->bias].constant))
    return;
  double last = unit / (q->scale != 0 ? q->scale : 1);
  if (last != 1 && !rabbet_epilogue_push_linear(e, last, 0)) return;
  quantize_factors(fused, q, unit, scratch);
  fused->spec.src_zero = q->x_zero;
  fused->spec.dst_zero = q->zero;
  e->result = q->result;
  if (operand >= 0) {
    rabbet_dtype_t dtype = q->plain.values[q->operand.value].dtype;
    if (dtype == RABBET_DTYPE_FP8) return;
    e->items[operand].operand = q->operand.value;
    fused->operands[operand].dtype = dtype;
  }
  // A tensor can be in the result's memory only if it has its type, and if the
  // product does not read it as well.
  int32_t added =
      fused->sum_item >= 0 ? e->items[fused->sum_item].operand : fused->src;
  if (added == fused->src ||
      q->plain.values[added].dtype != fused->spec.dst.dtype)
    fused->sum_item = -1;
  *out_fits = true;
}
