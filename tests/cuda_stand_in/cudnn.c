// A stand-in for cuDNN's backend interface: descriptors are lists of
// attributes; a plan is a program (cudnn_program.c) that runs on the host in
// the driver's streams.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_stand_in/cudnn_program.h"
#include "cuda_stand_in/services.h"

#define EXPORT __attribute__((visibility("default")))

// Functions with other parameters than Rabbet calls do not compile.
#define RABBET_CUDNN_CALL(result, name, parameters) \
  EXPORT result name parameters;
#include "device/cuda/cudnn/cudnn.def"
#undef RABBET_CUDNN_CALL

struct cudnnContext {
  CUstream stream;
};

typedef struct attribute_t {
  int name, type;
  int64_t count;
  void* values;
} attribute_t;

typedef struct descriptor_t {
  int type;
  bool finalized;
  int references;
  attribute_t attributes[24];
  int attribute_count;
  program_t* program;  // of a graph and of a plan
} descriptor_t;

// ---- Errors ----------------------------------------------------------------

static _Thread_local char last_error[256];

EXPORT size_t cudnnGetVersion(void) {
  return 91900;
}

EXPORT const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
      return "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
    default:
      return "CUDNN_STATUS_INTERNAL_ERROR";
  }
}

EXPORT void cudnnGetLastErrorString(char* text, size_t size) {
  snprintf(text, size, "%s", last_error);
}

static cudnnStatus_t failed(cudnnStatus_t status, const char* what) {
  snprintf(last_error, sizeof(last_error), "the stand-in refuses %s", what);
  return status;
}
static cudnnStatus_t bad(const char* what) {
  return failed(CUDNN_STATUS_BAD_PARAM, what);
}

// The result of a call that the test made fail.
static cudnnStatus_t refused(const char* name) {
  CUresult result = stand_in_services()->call(name, "");
  if (result == CUDA_SUCCESS) return CUDNN_STATUS_SUCCESS;
  return failed(result == CUDA_ERROR_OUT_OF_MEMORY
                    ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED
                    : 4000,
                "this call on demand");
}

// ---- Handles ---------------------------------------------------------------

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  cudnnStatus_t status = refused("cudnnCreate");
  if (status != CUDNN_STATUS_SUCCESS) return status;
  *handle = calloc(1, sizeof(**handle));
  stand_in_services()->track("cuDNN handles", 1);
  return status;
}

EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  cudnnStatus_t status = refused("cudnnDestroy");
  stand_in_services()->track("cuDNN handles", -1);
  free(handle);
  return status;
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, void* stream) {
  cudnnStatus_t status = refused("cudnnSetStream");
  if (status == CUDNN_STATUS_SUCCESS) handle->stream = stream;
  return status;
}

// ---- Attributes ------------------------------------------------------------

static size_t element_size(int type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    default:
      return 4;
  }
}

static void descriptor_release(descriptor_t* d);

static void attribute_clear(attribute_t* a) {
  if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < a->count; ++i)
      descriptor_release(((descriptor_t**)a->values)[i]);
  free(a->values);
  *a = (attribute_t){.values = NULL};
}

static void descriptor_clear(descriptor_t* d) {
  for (int i = 0; i < d->attribute_count; ++i)
    attribute_clear(&d->attributes[i]);
  d->attribute_count = 0;
  free(d->program);
  d->program = NULL;
}

static void descriptor_release(descriptor_t* d) {
  if (--d->references > 0) return;
  descriptor_clear(d);
  free(d);
}

static const attribute_t* find(const descriptor_t* d, int name) {
  for (int i = 0; i < d->attribute_count; ++i)
    if (d->attributes[i].name == name) return &d->attributes[i];
  return NULL;
}

static void put(descriptor_t* d, int name, int type, int64_t count,
                const void* values) {
  attribute_t* a = (attribute_t*)(uintptr_t)find(d, name);
  if (a)
    attribute_clear(a);
  else if (d->attribute_count == 24)
    abort();
  else
    a = &d->attributes[d->attribute_count++];
  size_t size = (size_t)count * element_size(type);
  *a = (attribute_t){name, type, count, malloc(size + 1)};
  memcpy(a->values, values, size);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < count; ++i)
      ++((descriptor_t**)a->values)[i]->references;
}

static void descriptor_copy(const descriptor_t* from, descriptor_t* to) {
  descriptor_clear(to);
  for (int i = 0; i < from->attribute_count; ++i) {
    const attribute_t* a = &from->attributes[i];
    put(to, a->name, a->type, a->count, a->values);
  }
  to->finalized = true;
}

static descriptor_t* descriptor_new(int type) {
  descriptor_t* d = calloc(1, sizeof(*d));
  if (!d) abort();
  d->type = type;
  d->references = 1;
  return d;
}

// The first value of an attribute; a default where it is not set.
static int64_t int_of(const descriptor_t* d, int name, int64_t otherwise) {
  const attribute_t* a = find(d, name);
  int64_t wide = 0;
  int32_t narrow = 0;
  if (!a || a->count < 1) return otherwise;
  if (element_size(a->type) == 8) {
    memcpy(&wide, a->values, 8);
    return wide;
  }
  if (element_size(a->type) == 1) return *(const unsigned char*)a->values != 0;
  memcpy(&narrow, a->values, 4);
  return narrow;
}

static double number_of(const descriptor_t* d, int name, double otherwise) {
  const attribute_t* a = find(d, name);
  if (!a) return otherwise;
  if (a->type == CUDNN_TYPE_FLOAT) return (double)*(const float*)a->values;
  return *(const double*)a->values;
}

static descriptor_t* refer(const descriptor_t* d, int name) {
  const attribute_t* a = find(d, name);
  if (!a || a->type != CUDNN_TYPE_BACKEND_DESCRIPTOR || a->count != 1)
    return NULL;
  return *(descriptor_t**)a->values;
}

// ---- Programs --------------------------------------------------------------

static bool copy_list(const descriptor_t* d, int name, int64_t count,
                      int64_t out[TENSOR_AXES]) {
  const attribute_t* a = find(d, name);
  if (!a || a->type != CUDNN_TYPE_INT64 || a->count != count ||
      count > TENSOR_AXES)
    return false;
  memcpy(out, a->values, (size_t)count * sizeof(int64_t));
  return true;
}

static bool tensor_read(const descriptor_t* d, tensor_t* out) {
  const attribute_t* dims = find(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
  if (d->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR || !dims ||
      !find(d, CUDNN_ATTR_TENSOR_UNIQUE_ID) ||
      !find(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT))
    return false;
  memset(out, 0, sizeof(*out));
  out->id = int_of(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  out->rank = (int32_t)dims->count;
  out->type = (int32_t)int_of(d, CUDNN_ATTR_TENSOR_DATA_TYPE, -1);
  out->is_virtual = int_of(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0);
  out->by_value = int_of(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0);
  bool good =
      dims->count >= 1 &&
      copy_list(d, CUDNN_ATTR_TENSOR_DIMENSIONS, dims->count, out->dims) &&
      copy_list(d, CUDNN_ATTR_TENSOR_STRIDES, dims->count, out->strides) &&
      (out->type == CUDNN_DATA_FLOAT || out->type == CUDNN_DATA_HALF ||
       out->type == CUDNN_DATA_BFLOAT16 || out->type == CUDNN_DATA_INT8 ||
       (out->is_virtual &&
        (out->type == CUDNN_DATA_INT32 || out->type == CUDNN_DATA_BOOLEAN)));
  for (int i = 0; good && i < out->rank; ++i)
    good = out->dims[i] > 0 && out->strides[i] >= 0;
  return good;
}

// The tensor's number in the program; -1: it cannot be taken.
static int32_t program_tensor(program_t* p, const descriptor_t* operation,
                              int name) {
  const descriptor_t* d = refer(operation, name);
  tensor_t tensor;
  if (!d || !tensor_read(d, &tensor)) return -1;
  for (int32_t i = 0; i < p->tensor_count; ++i)
    if (p->tensors[i].id == tensor.id)
      return memcmp(&p->tensors[i], &tensor, sizeof(tensor)) == 0 ? i : -1;
  if (p->tensor_count == PROGRAM_TENSORS) return -1;
  p->tensors[p->tensor_count] = tensor;
  return p->tensor_count++;
}

static bool read_window(const descriptor_t* how, step_t* s) {
  s->spatial = (int32_t)int_of(how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
  return int_of(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, -1) ==
             CUDNN_CROSS_CORRELATION &&
         copy_list(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, s->spatial,
                   s->pre) &&
         copy_list(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, s->spatial,
                   s->post) &&
         copy_list(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, s->spatial,
                   s->stride) &&
         copy_list(how, CUDNN_ATTR_CONVOLUTION_DILATIONS, s->spatial,
                   s->dilation);
}

static bool read_pointwise(const descriptor_t* how, step_t* s) {
  s->mode = (int32_t)int_of(how, CUDNN_ATTR_POINTWISE_MODE, -1);
  s->slope = number_of(how, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
  s->clipped_above = find(how, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP) != NULL;
  s->upper = number_of(how, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 0);
  s->alpha = number_of(how, CUDNN_ATTR_POINTWISE_ELU_ALPHA, 1);
  s->beta = number_of(how, CUDNN_ATTR_POINTWISE_SWISH_BETA, 1);
  s->axis = (int32_t)int_of(how, CUDNN_ATTR_POINTWISE_AXIS, -1);
  s->precision = (int32_t)int_of(how, CUDNN_ATTR_POINTWISE_MATH_PREC, -1);
  return s->mode >= 0;
}

static bool read_reduction(const descriptor_t* how, step_t* s) {
  s->mode = (int32_t)int_of(how, CUDNN_ATTR_REDUCTION_OPERATOR, -1);
  return s->mode == CUDNN_REDUCE_TENSOR_ADD ||
         s->mode == CUDNN_REDUCE_TENSOR_MAX;
}

static bool read_nothing(const descriptor_t* how, step_t* s) {
  (void)how;
  (void)s;
  return true;
}

// How each kind of operation is described.
static const struct {
  int kind, how, x, b, y;  // attributes
  bool (*read)(const descriptor_t* how, step_t* s);
} operations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, read_window},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, read_window},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
     CUDNN_ATTR_OPERATION_POINTWISE_YDESC, read_pointwise},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
     CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC,
     read_nothing},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
     -1, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, read_reduction},
};

// NULL, or what is wrong.
static const char* program_add(program_t* p, const descriptor_t* operation) {
  for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); ++i) {
    if (operations[i].kind != operation->type) continue;
    if (p->step_count == PROGRAM_STEPS) return "so many operations";
    step_t* s = &p->steps[p->step_count];
    *s = (step_t){.kind = operation->type, .b = -1, .t = -1};
    s->x = program_tensor(p, operation, operations[i].x);
    s->y = program_tensor(p, operation, operations[i].y);
    bool has_b = operations[i].b >= 0 && find(operation, operations[i].b);
    if (has_b) s->b = program_tensor(p, operation, operations[i].b);
    bool has_t = find(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC) != NULL;
    if (has_t)
      s->t = program_tensor(p, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const descriptor_t* how = refer(operation, operations[i].how);
    if (s->x < 0 || s->y < 0 || (has_b && s->b < 0) || (has_t && s->t < 0))
      return "a tensor";
    if (!how || !how->finalized || !operations[i].read(how, s))
      return "how an operation is described";
    const char* wrong = step_wrong(p, s);
    if (!wrong) ++p->step_count;
    return wrong;
  }
  return "an operation of this kind";
}

// ---- The documented support surface ----------------------------------------

#define FAULT "RABBET_STAND_IN_CUDNN_FAULT"

// Of a factor or the result of attention, whose axis `columns` runs over a
// head.
static bool lies_by_heads(const tensor_t* t, int columns) {
  bool good = t->strides[columns] == 1 && t->dims[columns] % 8 == 0;
  for (int i = 0; good && i < t->rank; ++i)
    good = i == columns || t->dims[i] == 1 || t->strides[i] % 8 == 0;
  return good;
}

static bool same_dims(const tensor_t* a, const tensor_t* b) {
  return a->rank == b->rank &&
         memcmp(a->dims, b->dims, sizeof(a->dims[0]) * (size_t)a->rank) == 0;
}

static bool is_by_channel(const tensor_t* t, const tensor_t* result) {
  for (int i = 0; i < t->rank; ++i)
    if (t->dims[i] != 1 && (i != 1 || t->dims[i] != result->dims[i]))
      return false;
  return true;
}

static bool is_convolution(const step_t* step) {
  return step->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         step->kind ==
             CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
}

static bool is_pixel(const tensor_t* t) {
  for (int i = 2; i < t->rank; ++i)
    if (t->dims[i] != 1) return false;
  return true;
}

static bool is_dense(const tensor_t* t, bool channels_last) {
  int64_t stride = channels_last ? t->dims[1] : 1;
  for (int i = t->rank - 1; i >= 0; --i) {
    bool inner = channels_last && i == 1;
    if (t->strides[i] != (inner ? 1 : stride)) return false;
    if (!inner) stride *= t->dims[i];
  }
  return true;
}

// All three tensors of a convolution are dense in one order, and it can be
// seen which: images of one pixel and tensors of one channel do not show it,
// and the strides of images of one pixel in LINEAR, (C, 1, 1, 1), are good only
// beside a tensor that does, and in a convolution alone. The filter is second.
static bool has_one_order(const tensor_t* tensors[3], bool is_alone) {
  bool last = true, linear = true, shown = false, pixels = false;
  for (int i = 0; i < 3; ++i) {
    const tensor_t* t = tensors[i];
    last = last && is_dense(t, true);
    linear = linear && is_dense(t, false);
    shown = shown || (t->dims[1] > 1 && !is_pixel(t));
    pixels = pixels || (t->dims[1] > 1 && is_pixel(t) && i != 1);
  }
  return last || (linear && (!pixels || (shown && is_alone)));
}

// The library itself crashes, or computes something else.
static void check_support(const program_t* p) {
  bool good = true;
  int products = 0;
  for (int i = 0; i < p->step_count; ++i)
    products += p->steps[i].kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
  for (int i = 0; i < p->step_count; ++i) {
    const step_t* s = &p->steps[i];
    const tensor_t *x = &p->tensors[s->x], *y = &p->tensors[s->y];
    const tensor_t* b = s->b < 0 ? NULL : &p->tensors[s->b];
    if (products == 2 && s->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
      good = good && (x->is_virtual || lies_by_heads(x, 3)) &&
             (y->is_virtual ? lies_by_heads(b, 2)
                            : lies_by_heads(b, 3) && lies_by_heads(y, 3));
    if (is_convolution(s))
      good =
          good &&
          has_one_order(
              (const tensor_t*[]){x, b, y},
              p->step_count == 1 &&
                  s->kind ==
                      CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    if (is_convolution(&p->steps[0]) && i > 0 && b && !b->is_virtual)
      good = good && (same_dims(b, y) || is_by_channel(b, y));
  }
  if (!good)
    stand_in_services()->misuse(
        "a cuDNN graph outside what the library documents");
}

// ---- Engines ---------------------------------------------------------------

// The engines that the heuristics offer, best first.
static const struct {
  int mode;
  int64_t engine;
  int64_t knob;  // value of knob 2; 0: it has none
  int note;      // -1: none
  rounding_t rounding;
  int64_t workspace;
  bool works;
  bool compiles;
} engines[] = {
    {CUDNN_HEUR_MODE_A, 1, 0, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, ROUND_TF32, 0,
     true, false},
    {CUDNN_HEUR_MODE_A, 7, 1, -1, ROUND_NOTHING, 0, false, false},
    {CUDNN_HEUR_MODE_A, 0, 1, -1, ROUND_NOTHING, 0, true, false},
    {CUDNN_HEUR_MODE_A, 0, 2, -1, ROUND_NOTHING, 4096, true, true},
    {CUDNN_HEUR_MODE_FALLBACK, 0, 1, -1, ROUND_NOTHING, 0, true, false},
    {CUDNN_HEUR_MODE_FALLBACK, 5, 0, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
     ROUND_HALF, 0, true, false},
    {CUDNN_HEUR_MODE_FALLBACK, 8, 0, -1, ROUND_NOTHING, 0, true, true},
    {CUDNN_HEUR_MODE_FALLBACK, 6, 0, -1, ROUND_NOTHING, 256, true, false},
};
enum { ENGINE_COUNT = sizeof(engines) / sizeof(engines[0]) };

static void config_fill(int row, descriptor_t* graph, descriptor_t* config) {
  descriptor_t* engine = descriptor_new(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  descriptor_t* knob = descriptor_new(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  const int32_t note = engines[row].note, knob_type = 2;
  descriptor_clear(config);
  put(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      1, &graph);
  put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
      &engines[row].engine);
  put(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
      note >= 0, &note);
  put(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
      engines[row].compiles || getenv("RABBET_STAND_IN_CUDNN_COMPILES"),
      &(const int32_t){CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION});
  put(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
      &knob_type);
  put(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
      &engines[row].knob);
  put(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
      &engine);
  put(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      engines[row].knob > 0, &knob);
  config->finalized = true;
  descriptor_release(engine);
  descriptor_release(knob);
}

static cudnnStatus_t heuristics_results(const descriptor_t* d,
                                        int64_t requested, int64_t* count,
                                        descriptor_t** out) {
  int64_t mode = int_of(d, CUDNN_ATTR_ENGINEHEUR_MODE, -1);
  descriptor_t* graph = refer(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  *count = 0;
  check_support(graph->program);
  stand_in_fault(FAULT, "ask", graph->program->step_count);
  for (int i = 0; i < ENGINE_COUNT; ++i) {
    if (engines[i].mode != mode) continue;
    if (out && *count < requested) {
      if (out[*count]->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
        return bad("a descriptor that is no configuration");
      config_fill(i, graph, out[*count]);
    }
    ++*count;
  }
  if (requested > 0 && *count > requested) *count = requested;
  return CUDNN_STATUS_SUCCESS;
}

static int config_row(const descriptor_t* config) {
  const descriptor_t* engine = refer(config, CUDNN_ATTR_ENGINECFG_ENGINE);
  const descriptor_t* knob = refer(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
  if (!engine) return -1;
  int64_t number = int_of(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
  int64_t value = knob ? int_of(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0) : 0;
  for (int i = 0; i < ENGINE_COUNT; ++i)
    if (engines[i].engine == number && engines[i].knob == value) return i;
  return -1;
}

// ---- Plans -----------------------------------------------------------------

#define PLAN_BEGIN "{\"stand-in\": \""

static void plan_write(descriptor_t* plan) {
  static const char digits[] = "0123456789abcdef";
  const unsigned char* bytes = (const unsigned char*)plan->program;
  size_t begin = strlen(PLAN_BEGIN), size = begin + 2 * sizeof(program_t) + 2;
  char* text = malloc(size + 1);
  if (!text) abort();
  memcpy(text, PLAN_BEGIN, begin);
  for (size_t i = 0; i < sizeof(program_t); ++i) {
    text[begin + 2 * i] = digits[bytes[i] >> 4];
    text[begin + 2 * i + 1] = digits[bytes[i] & 15];
  }
  memcpy(text + size - 2, "\"}", 2);
  put(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
      (int64_t)size, text);
  free(text);
}

static bool plan_read(descriptor_t* plan, const attribute_t* text) {
  static const char digits[] = "0123456789abcdef";
  const char* data = text->values;
  size_t begin = strlen(PLAN_BEGIN);
  if (text->count != (int64_t)(begin + 2 * sizeof(program_t) + 2) ||
      memcmp(data, PLAN_BEGIN, begin) != 0)
    return false;
  plan->program = malloc(sizeof(program_t));
  for (size_t i = 0; i < sizeof(program_t); ++i) {
    const char* high = memchr(digits, data[begin + 2 * i], 16);
    const char* low = memchr(digits, data[begin + 2 * i + 1], 16);
    if (!high || !low) return false;
    ((unsigned char*)plan->program)[i] =
        (unsigned char)((high - digits) << 4 | (low - digits));
  }
  return memcmp(plan->program->magic, PROGRAM_MAGIC, 8) == 0;
}

static cudnnStatus_t plan_finalize(descriptor_t* plan) {
  const attribute_t* text =
      find(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  const descriptor_t* config =
      refer(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (!find(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
    return bad("a plan without a handle");
  if (text) {
    if (!plan_read(plan, text)) return bad("the text of a plan");
  } else {
    int row = config ? config_row(config) : -1;
    if (row < 0) return bad("a plan without a configuration");
    if (!engines[row].works)
      return failed(CUDNN_STATUS_NOT_SUPPORTED, "this engine for the graph");
    stand_in_fault(FAULT, "plan", engines[row].engine);
    const descriptor_t* graph =
        refer(refer(config, CUDNN_ATTR_ENGINECFG_ENGINE),
              CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    if (!graph) return bad("an engine without a graph");
    check_support(graph->program);
    plan->program = malloc(sizeof(program_t));
    memcpy(plan->program, graph->program, sizeof(program_t));
    plan->program->rounding = (int32_t)engines[row].rounding;
    plan->program->workspace = engines[row].workspace;
    plan->program->engine = engines[row].engine;
    plan_write(plan);
  }
  put(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
      &plan->program->workspace);
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t graph_finalize(descriptor_t* graph) {
  const attribute_t* list = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (!list || list->count < 1 ||
      !find(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE))
    return bad("a graph without operations or without a handle");
  graph->program = calloc(1, sizeof(program_t));
  memcpy(graph->program->magic, PROGRAM_MAGIC, 8);
  for (int64_t i = 0; i < list->count; ++i) {
    const char* wrong =
        program_add(graph->program, ((descriptor_t**)list->values)[i]);
    if (wrong) return bad(wrong);
  }
  return CUDNN_STATUS_SUCCESS;
}

// Alone, to find what is wrong with it early.
static cudnnStatus_t operation_finalize(const descriptor_t* operation) {
  program_t* program = calloc(1, sizeof(*program));
  const char* wrong = program_add(program, operation);
  free(program);
  return wrong ? bad(wrong) : CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(descriptor_t* d) {
  tensor_t tensor;
  switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return tensor_read(d, &tensor) ? CUDNN_STATUS_SUCCESS : bad("a tensor");
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return operation_finalize(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return graph_finalize(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return plan_finalize(d);
    default:
      return CUDNN_STATUS_SUCCESS;
  }
}

// ---- The backend interface -------------------------------------------------

EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(
    cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  cudnnStatus_t status = refused("cudnnBackendCreateDescriptor");
  if (status != CUDNN_STATUS_SUCCESS) return status;
  *descriptor = descriptor_new(type);
  stand_in_services()->track("cuDNN descriptors", 1);
  return status;
}

EXPORT cudnnStatus_t
cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  cudnnStatus_t status = refused("cudnnBackendDestroyDescriptor");
  stand_in_services()->track("cuDNN descriptors", -1);
  descriptor_release(descriptor);
  return status;
}

EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  descriptor_t* d = descriptor;
  cudnnStatus_t status = refused("cudnnBackendFinalize");
  if (status == CUDNN_STATUS_SUCCESS) status = finalize(d);
  d->finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

EXPORT cudnnStatus_t cudnnBackendSetAttribute(
    cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
    cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  descriptor_t* d = descriptor;
  cudnnStatus_t status = refused("cudnnBackendSetAttribute");
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (d->finalized) return bad("an attribute of what is finished");
  if (count < 0 || !values) return bad("an attribute without values");
  for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; ++i) {
    const descriptor_t* other = ((descriptor_t* const*)values)[i];
    if (!other || !other->finalized)
      return bad("a descriptor that is not finished");
  }
  put(d, name, type, count, values);
  return status;
}

EXPORT cudnnStatus_t cudnnBackendGetAttribute(
    cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
    cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
    void* values) {
  const descriptor_t* d = descriptor;
  cudnnStatus_t status = refused("cudnnBackendGetAttribute");
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (!d->finalized) return bad("to read what is not finished");
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
    return heuristics_results(d, requested, count, values);
  const attribute_t* a = find(d, name);
  if (!a || a->type != type) return bad("an attribute that is not there");
  *count = a->count;
  int64_t copied = a->count < requested ? a->count : requested;
  for (int64_t i = 0; i < copied; ++i) {
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
      descriptor_copy(((descriptor_t**)a->values)[i],
                      ((descriptor_t**)values)[i]);
  }
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR && copied > 0)
    memcpy(values, a->values, (size_t)copied * element_size(type));
  return status;
}

// ---- Executing -------------------------------------------------------------

static bool run_bind(const descriptor_t* pack, program_run_t* run) {
  const attribute_t* ids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const attribute_t* at = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  const attribute_t* space = find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (!ids || !at || ids->count != at->count) return false;
  if (space) run->workspace = *(void* const*)space->values;
  for (int32_t i = 0; i < run->program.tensor_count; ++i) {
    const tensor_t* t = &run->program.tensors[i];
    if (t->is_virtual) continue;
    for (int64_t k = 0; k < ids->count; ++k)
      if (((const int64_t*)ids->values)[k] == t->id)
        run->addresses[i] = ((void* const*)at->values)[k];
    if (!run->addresses[i]) return false;
    if (t->by_value)
      run->numbers[i] = *(const float*)run->addresses[i];
    else if ((uintptr_t)run->addresses[i] % 16 != 0)
      return false;
  }
  return true;
}

EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                         cudnnBackendDescriptor_t plan_handle,
                                         cudnnBackendDescriptor_t pack_handle) {
  const descriptor_t *plan = plan_handle, *pack = pack_handle;
  if (!handle || !plan || !pack || !plan->finalized || !pack->finalized ||
      !plan->program)
    return bad("to run what is not finished");
  program_run_t* run = calloc(1, sizeof(*run));
  if (!run) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  memcpy(&run->program, plan->program, sizeof(run->program));
  run->poisons = stand_in_fault(FAULT, "run", plan->program->engine);
  cudnnStatus_t status = run_bind(pack, run)
                             ? CUDNN_STATUS_SUCCESS
                             : bad("the addresses of a run's tensors");
  char text[64];
  snprintf(text, sizeof(text), "%d operations, workspace %lld",
           run->program.step_count, (long long)run->program.workspace);
  if (status == CUDNN_STATUS_SUCCESS &&
      stand_in_services()->enqueue("cudnnBackendExecute", text, handle->stream,
                                   program_execute, run,
                                   sizeof(*run)) != CUDA_SUCCESS)
    status = failed(5000, "to run");
  free(run);
  return status;
}
