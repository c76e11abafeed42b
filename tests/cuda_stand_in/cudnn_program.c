#include "cuda_stand_in/cudnn_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_stand_in/numbers.h"
#include "cuda_stand_in/services.h"

int64_t tensor_count(const tensor_t* tensor) {
  int64_t count = 1;
  for (int i = 0; i < tensor->rank; ++i)
    count *= tensor->dims[i];
  return count;
}

// ---- Checks ----------------------------------------------------------------

static bool broadcasts(const tensor_t* from, const tensor_t* to) {
  if (from->rank != to->rank) return false;
  for (int i = 0; i < from->rank; ++i)
    if (from->dims[i] != 1 && from->dims[i] != to->dims[i]) return false;
  return true;
}

static const char* convolution_wrong(const step_t* s, const tensor_t* x,
                                     const tensor_t* w, const tensor_t* y) {
  if (s->spatial < 2 || s->spatial > 3 || x->rank != s->spatial + 2 ||
      w->rank != x->rank || y->rank != x->rank)
    return "a convolution's ranks";
  if (x->dims[0] != y->dims[0] || w->dims[0] != y->dims[1] || w->dims[1] < 1 ||
      x->dims[1] % w->dims[1] != 0 ||
      y->dims[1] % (x->dims[1] / w->dims[1]) != 0)
    return "a convolution's channels";
  for (int i = 0; i < s->spatial; ++i) {
    int64_t extent = (w->dims[i + 2] - 1) * s->dilation[i] + 1;
    int64_t room = x->dims[i + 2] + s->pre[i] + s->post[i] - extent;
    if (s->pre[i] < 0 || s->post[i] < 0 || s->stride[i] < 1 ||
        s->dilation[i] < 1 || room < 0 ||
        room / s->stride[i] + 1 != y->dims[i + 2])
      return "a convolution's window";
  }
  return NULL;
}

static const char* matmul_wrong(const tensor_t* a, const tensor_t* b,
                                const tensor_t* y) {
  int r = y->rank;
  if (r < 2 || a->rank != r || b->rank != r ||
      a->dims[r - 1] != b->dims[r - 2] || a->dims[r - 2] != y->dims[r - 2] ||
      b->dims[r - 1] != y->dims[r - 1])
    return "a product's extents";
  for (int i = 0; i < r - 2; ++i)
    if (y->dims[i] % a->dims[i] != 0 || y->dims[i] % b->dims[i] != 0)
      return "a product's batches";
  return NULL;
}

// Places are INT32, and what is compared or selects is BOOL, computed as BOOL.
static const char* pointwise_wrong(const program_t* p, const step_t* s) {
  const tensor_t *x = &p->tensors[s->x], *y = &p->tensors[s->y];
  const tensor_t* b = s->b >= 0 ? &p->tensors[s->b] : NULL;
  const tensor_t* t = s->t >= 0 ? &p->tensors[s->t] : NULL;
  if (!broadcasts(x, y) || (b && !broadcasts(b, y)) || (t && !broadcasts(t, y)))
    return "a point-wise operation's extents";
  bool compares = s->mode == CUDNN_POINTWISE_CMP_GE;
  bool selects = s->mode == CUDNN_POINTWISE_BINARY_SELECT;
  bool counts = s->mode == CUDNN_POINTWISE_GEN_INDEX;
  bool good = selects == (t != NULL) &&
              (!selects || (b && t->type == CUDNN_DATA_BOOLEAN)) &&
              compares == (y->type == CUDNN_DATA_BOOLEAN) &&
              compares == (s->precision == CUDNN_DATA_BOOLEAN) &&
              counts == (y->type == CUDNN_DATA_INT32) &&
              (!compares || (b && x->type == CUDNN_DATA_INT32 &&
                             b->type == CUDNN_DATA_INT32)) &&
              (!counts || (!b && s->axis >= 0 && s->axis < y->rank));
  return good ? NULL : "a point-wise operation's types";
}

const char* step_wrong(const program_t* program, const step_t* s) {
  const tensor_t *x = &program->tensors[s->x], *y = &program->tensors[s->y];
  const tensor_t* b = s->b >= 0 ? &program->tensors[s->b] : NULL;
  switch (s->kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return b ? convolution_wrong(s, x, b, y) : "a convolution's filter";
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return b ? convolution_wrong(s, y, b, x) : "a convolution's filter";
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return b ? matmul_wrong(x, b, y) : "a product's factor";
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return broadcasts(y, x) ? NULL : "a reduction's extents";
    default:
      return pointwise_wrong(program, s);
  }
}

// ---- Tensors as floats, dense ----------------------------------------------

static size_t type_size(int32_t type) {
  return type == CUDNN_DATA_FLOAT ? 4 : type == CUDNN_DATA_INT8 ? 1 : 2;
}

static void unravel(const tensor_t* t, int64_t index, int64_t* at) {
  for (int i = t->rank - 1; i >= 0; --i) {
    at[i] = index % t->dims[i];
    index /= t->dims[i];
  }
}

// Where a tensor that broadcasts has the element for `at`, in dense order.
static int64_t ravel(const tensor_t* t, const int64_t* at) {
  int64_t index = 0;
  for (int i = 0; i < t->rank; ++i)
    index = index * t->dims[i] + (t->dims[i] == 1 ? 0 : at[i]);
  return index;
}

static int64_t offset(const tensor_t* t, int64_t index) {
  int64_t at[TENSOR_AXES], sum = 0;
  unravel(t, index, at);
  for (int i = 0; i < t->rank; ++i)
    sum += at[i] * t->strides[i];
  return sum;
}

static bool tensor_reach(const tensor_t* t, const void* address,
                         const char* what) {
  int64_t span = 1;
  for (int i = 0; i < t->rank; ++i)
    span += (t->dims[i] - 1) * t->strides[i];
  return stand_in_services()->reach(address, (size_t)span * type_size(t->type),
                                    what);
}

static float element_load(int32_t type, const void* data, int64_t at) {
  if (type == CUDNN_DATA_FLOAT) return ((const float*)data)[at];
  if (type == CUDNN_DATA_INT8) return ((const int8_t*)data)[at];
  uint16_t bits = ((const uint16_t*)data)[at];
  return type == CUDNN_DATA_HALF ? number_from_half(bits)
                                 : number_from_bf16(bits);
}

static void element_store(int32_t type, void* data, int64_t at, float x) {
  if (type == CUDNN_DATA_FLOAT)
    ((float*)data)[at] = x;
  else if (type == CUDNN_DATA_INT8)
    ((int8_t*)data)[at] = (int8_t)fmaxf(-128, fminf(127, rintf(x)));
  else
    ((uint16_t*)data)[at] =
        type == CUDNN_DATA_HALF ? number_to_half(x) : number_to_bf16(x);
}

// ---- Steps -----------------------------------------------------------------

static float round_factor(int32_t rounding, float x) {
  return rounding == ROUND_TF32   ? number_to_tf32(x)
         : rounding == ROUND_HALF ? number_from_half(number_to_half(x))
                                  : x;
}

typedef struct convolution_t {
  const step_t* s;
  const tensor_t *x, *w, *y;
  const float *x_data, *w_data;
} convolution_t;

// The window's sum for one element of the result.
static float convolve_at(const convolution_t* c, const int64_t* at) {
  const step_t* s = c->s;
  int64_t groups = c->x->dims[1] / c->w->dims[1];
  int64_t first = at[1] / (c->y->dims[1] / groups) * c->w->dims[1];
  int64_t taps = 1, place[TENSOR_AXES];
  float sum = 0;
  for (int i = 0; i < s->spatial; ++i)
    taps *= c->w->dims[i + 2];
  place[0] = at[0];
  for (int64_t tap = 0; tap < taps; ++tap) {
    bool inside = true;
    int64_t rest = tap, plane = 1, in_plane = 0;
    for (int i = s->spatial - 1; i >= 0; --i) {
      place[i + 2] = at[i + 2] * s->stride[i] - s->pre[i] +
                     rest % c->w->dims[i + 2] * s->dilation[i];
      rest /= c->w->dims[i + 2];
      inside = inside && place[i + 2] >= 0 && place[i + 2] < c->x->dims[i + 2];
      in_plane += place[i + 2] * plane;
      plane *= c->x->dims[i + 2];
    }
    if (!inside) continue;
    const float* x =
        c->x_data + (at[0] * c->x->dims[1] + first) * plane + in_plane;
    const float* w = c->w_data + at[1] * c->w->dims[1] * taps + tap;
    for (int64_t k = 0; k < c->w->dims[1]; ++k)
      sum += x[k * plane] * w[k * taps];
  }
  return sum;
}

// The position in x whose window has this tap at `at`; -1: none.
static int64_t deconvolve_from(const convolution_t* c, const int64_t* at,
                               int64_t tap) {
  const step_t* s = c->s;
  int64_t plane = 1, in_plane = 0;
  for (int i = s->spatial - 1; i >= 0; --i) {
    int64_t place =
        at[i + 2] + s->pre[i] - tap % c->w->dims[i + 2] * s->dilation[i];
    tap /= c->w->dims[i + 2];
    if (place < 0 || place % s->stride[i] != 0 ||
        place / s->stride[i] >= c->x->dims[i + 2])
      return -1;
    in_plane += place / s->stride[i] * plane;
    plane *= c->x->dims[i + 2];
  }
  return in_plane;
}

static float deconvolve_at(const convolution_t* c, const int64_t* at) {
  int64_t maps = c->w->dims[1], groups = c->y->dims[1] / maps;
  int64_t channels = c->x->dims[1] / groups, taps = 1, plane = 1;
  int64_t first = at[1] / maps * channels;
  float sum = 0;
  for (int i = 0; i < c->s->spatial; ++i) {
    taps *= c->w->dims[i + 2];
    plane *= c->x->dims[i + 2];
  }
  for (int64_t tap = 0; tap < taps; ++tap) {
    int64_t in_plane = deconvolve_from(c, at, tap);
    for (int64_t k = first; k < first + channels && in_plane >= 0; ++k)
      sum += c->x_data[(at[0] * c->x->dims[1] + k) * plane + in_plane] *
             c->w_data[(k * maps + at[1] % maps) * taps + tap];
  }
  return sum;
}

static float matmul_at(const tensor_t* a, const float* a_data,
                       const tensor_t* b, const float* b_data,
                       const tensor_t* y, const int64_t* at) {
  int r = y->rank;
  int64_t a_at = 0, b_at = 0, k = a->dims[r - 1], n = b->dims[r - 1];
  // Fewer batches of a factor serve groups of the result's.
  for (int i = 0; i < r - 2; ++i) {
    a_at = a_at * a->dims[i] + at[i] / (y->dims[i] / a->dims[i]);
    b_at = b_at * b->dims[i] + at[i] / (y->dims[i] / b->dims[i]);
  }
  a_at = (a_at * a->dims[r - 2] + at[r - 2]) * k;
  b_at = b_at * k * n + at[r - 1];
  float sum = 0;
  for (int64_t i = 0; i < k; ++i)
    sum += a_data[a_at + i] * b_data[b_at + i * n];
  return sum;
}

static float relu(const step_t* s, float x) {
  if (x < 0) return x * (float)s->slope;
  return s->clipped_above && x > (float)s->upper ? (float)s->upper : x;
}

static float pointwise(const step_t* s, float x, float b) {
  const float root = 0.70710678118654752f;
  switch (s->mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_MIN:
      return x != x || x < b ? x : b;
    case CUDNN_POINTWISE_MAX:
      return x != x || x > b ? x : b;
    case CUDNN_POINTWISE_SQRT:
      return sqrtf(x);
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_ABS:
      return fabsf(x);
    case CUDNN_POINTWISE_EXP:
      return expf(x);
    case CUDNN_POINTWISE_LOG:
      return logf(x);
    case CUDNN_POINTWISE_NEG:
      return -x;
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b;
    case CUDNN_POINTWISE_RELU_FWD:
      return relu(s, x);
    case CUDNN_POINTWISE_TANH_FWD:
      return tanhf(x);
    case CUDNN_POINTWISE_SIGMOID_FWD:
      return 1 / (1 + expf(-x));
    case CUDNN_POINTWISE_ELU_FWD:
      return x > 0 ? x : (float)s->alpha * expm1f(x);
    case CUDNN_POINTWISE_GELU_FWD:
      return 0.5f * x * (1 + erff(x * root));
    case CUDNN_POINTWISE_SWISH_FWD:
      return x / (1 + expf(-(float)s->beta * x));
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD:
      return 0.5f * x *
             (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    default:
      return NAN;
  }
}

static void reduce(const step_t* s, const tensor_t* x, const float* x_data,
                   const tensor_t* y, float* y_data) {
  int64_t at[TENSOR_AXES], count = tensor_count(x);
  bool add = s->mode == CUDNN_REDUCE_TENSOR_ADD;
  for (int64_t i = 0; i < tensor_count(y); ++i)
    y_data[i] = add ? 0 : -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    unravel(x, i, at);
    float* sum = &y_data[ravel(y, at)];
    if (add)
      *sum += x_data[i];
    else if (x_data[i] > *sum || x_data[i] != x_data[i])
      *sum = x_data[i];
  }
}

typedef struct execution_t {
  program_run_t* run;
  float* data[PROGRAM_TENSORS];
} execution_t;

static float* rounded(const execution_t* e, int32_t tensor) {
  const tensor_t* t = &e->run->program.tensors[tensor];
  int64_t count = tensor_count(t);
  float* copy = malloc((size_t)count * sizeof(float) + 1);
  if (!copy) abort();
  bool is_float = t->type == CUDNN_DATA_FLOAT;
  int32_t rounding = is_float ? e->run->program.rounding : ROUND_NOTHING;
  for (int64_t i = 0; i < count; ++i)
    copy[i] = round_factor(rounding, e->data[tensor][i]);
  return copy;
}

// Two products are attention, whose rows without a key that counts are zeros:
// the library takes 0 for a maximum of -infinity.
static bool is_attention(const program_t* p) {
  int products = 0;
  for (int32_t i = 0; i < p->step_count; ++i)
    products += p->steps[i].kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
  return products == 2;
}

static float pointwise_at(const execution_t* e, const step_t* s,
                          const int64_t* at) {
  const tensor_t* tensors = e->run->program.tensors;
  if (s->mode == CUDNN_POINTWISE_GEN_INDEX) return (float)at[s->axis];
  float x = e->data[s->x][ravel(&tensors[s->x], at)];
  float b = s->b >= 0 ? e->data[s->b][ravel(&tensors[s->b], at)] : 0;
  if (s->mode == CUDNN_POINTWISE_SUB && b == -INFINITY) return x;
  if (s->mode == CUDNN_POINTWISE_DIV && b == 0 &&
      is_attention(&e->run->program))
    return 0;
  if (s->mode != CUDNN_POINTWISE_BINARY_SELECT) return pointwise(s, x, b);
  return e->data[s->t][ravel(&tensors[s->t], at)] != 0 ? x : b;
}

static void step_execute(execution_t* e, const step_t* s) {
  const tensor_t* tensors = e->run->program.tensors;
  const tensor_t *x = &tensors[s->x], *y = &tensors[s->y];
  const tensor_t* b = s->b >= 0 ? &tensors[s->b] : NULL;
  float* out = e->data[s->y];
  int64_t at[TENSOR_AXES], count = tensor_count(y);
  bool product =
      s->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
      s->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
      s->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
  if (s->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    reduce(s, x, e->data[s->x], y, out);
    return;
  }
  float* left = product ? rounded(e, s->x) : NULL;
  float* right = product ? rounded(e, s->b) : NULL;
  const convolution_t convolution = {s, x, b, y, left, right};
  for (int64_t i = 0; i < count; ++i) {
    unravel(y, i, at);
    if (s->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
      out[i] = convolve_at(&convolution, at);
    else if (s->kind ==
             CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
      out[i] = deconvolve_at(&convolution, at);
    else if (product)
      out[i] = matmul_at(x, left, b, right, y, at);
    else
      out[i] = pointwise_at(e, s, at);
  }
  free(left);
  free(right);
}

// ---- Programs --------------------------------------------------------------

static bool tensor_is_written(const program_t* p, int32_t tensor) {
  for (int32_t i = 0; i < p->step_count; ++i)
    if (p->steps[i].y == tensor) return true;
  return false;
}

static bool tensor_begin(execution_t* e, int32_t i) {
  const program_t* p = &e->run->program;
  const tensor_t* t = &p->tensors[i];
  int64_t count = tensor_count(t);
  e->data[i] = malloc((size_t)count * sizeof(float) + 1);
  if (!e->data[i]) abort();
  for (int64_t k = 0; k < count; ++k)
    e->data[i][k] = t->by_value ? e->run->numbers[i] : NAN;
  if (t->by_value || t->is_virtual) return true;
  bool written = tensor_is_written(p, i);
  if (!tensor_reach(t, e->run->addresses[i],
                    written ? "cuDNN writes" : "cuDNN reads"))
    return false;
  for (int64_t k = 0; !written && k < count; ++k)
    e->data[i][k] = element_load(t->type, e->run->addresses[i], offset(t, k));
  return true;
}

static void tensor_end(const execution_t* e, int32_t i) {
  const program_t* p = &e->run->program;
  const tensor_t* t = &p->tensors[i];
  if (t->by_value || t->is_virtual || !tensor_is_written(p, i)) return;
  for (int64_t k = 0; k < tensor_count(t); ++k)
    element_store(t->type, e->run->addresses[i], offset(t, k), e->data[i][k]);
}

void program_execute(void* data) {
  program_run_t* run = data;
  const program_t* p = &run->program;
  execution_t e = {.run = run};
  bool good = !run->poisons ||
              stand_in_services()->reach((void*)16, 1, "a poisonous engine's");
  good = good && (p->workspace == 0 || stand_in_services()->reach(
                                           run->workspace, (size_t)p->workspace,
                                           "cuDNN's workspace has"));
  if (good && p->workspace > 0)
    memset(run->workspace, 0xFF, (size_t)p->workspace);
  for (int32_t i = 0; good && i < p->tensor_count; ++i)
    good = tensor_begin(&e, i);
  for (int32_t i = 0; good && i < p->step_count; ++i)
    step_execute(&e, &p->steps[i]);
  for (int32_t i = 0; good && i < p->tensor_count; ++i)
    tensor_end(&e, i);
  for (int32_t i = 0; i < p->tensor_count; ++i)
    free(e.data[i]);
}
