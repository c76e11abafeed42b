#include "device/cuda/programs/node.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/thread.h"
#include "device/cuda/programs/nvrtc.h"

typedef struct rabbet_cuda_functions_t {
  const char* source;
  const char* const* names;
  size_t count;
  rabbet_cuda_options_t options;
  bool ahead;  // programs that other threads make are not waited for
  bool lists;  // functions are wanted, and not made
  bool wanted[RABBET_CUDA_NODE_FUNCTIONS];
  _Atomic(rabbet_cuda_program_t*) programs[RABBET_CUDA_NODE_FUNCTIONS];
} cuda_functions_t;

// ---- Programs --------------------------------------------------------------

void rabbet_cuda_option(rabbet_cuda_options_t* options, const char* format,
                        ...) {
  if (options->count == RABBET_CUDA_OPTIONS) {
    options->overflow = true;
    return;
  }
  char* text = options->text[options->count];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof(options->text[0]), format, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length >= sizeof(options->text[0]))
    options->overflow = true;
  ++options->count;
}

const char* rabbet_cuda_type(rabbet_dtype_t dtype) {
  static const char* const names[RABBET_DTYPE_COUNT] = {
      [RABBET_DTYPE_FLOAT] = "float",   [RABBET_DTYPE_HALF] = "half_t",
      [RABBET_DTYPE_BF16] = "bf16_t",   [RABBET_DTYPE_FP8] = "fp8_t",
      [RABBET_DTYPE_INT8] = "int8_t",   [RABBET_DTYPE_UINT8] = "uint8_t",
      [RABBET_DTYPE_INT32] = "int32_t", [RABBET_DTYPE_INT64] = "int64_t",
      [RABBET_DTYPE_BOOL] = "bool_t",   [RABBET_DTYPE_E8M0] = "e8m0_t",
  };
  if ((int)dtype < 0 || (int)dtype >= RABBET_DTYPE_COUNT) return NULL;
  return names[dtype];
}

int rabbet_cuda_formats(rabbet_dtype_t dtype, uint64_t asked,
                        rabbet_format_t out_formats[]) {
  int count = 0;
  if (rabbet_dtype_bits(dtype) < 8) return 0;
  out_formats[count++] = RABBET_FORMAT_LINEAR;
  out_formats[count++] = RABBET_FORMAT_HWC;
  if (rabbet_dtype_bits(dtype) == 16) out_formats[count++] = RABBET_FORMAT_HWC8;
  for (int f = 0; f < 64 && count < RABBET_CUDA_FORMATS; ++f) {
    rabbet_format_t format = (rabbet_format_t)f;
    bool known = !(asked >> f & 1) || !rabbet_format_info(format);
    for (int i = 0; i < count; ++i)
      known = known || out_formats[i] == format;
    if (!known) out_formats[count++] = format;
  }
  assert(count <= RABBET_CUDA_FORMATS);
  return count;
}

int rabbet_cuda_layouts(const rabbet_proposal_t* proposal,
                        rabbet_type_format_t out_layouts[]) {
  const rabbet_propose_t* propose = proposal->propose;
  int32_t input = proposal->node->inputs[0];
  rabbet_dtype_t types[4];
  int total = 0;
  int count =
      rabbet_compute_types(propose, propose->group->values[input].dtype, types);
  assert(count <= (int)(sizeof(types) / sizeof(types[0])));
  for (int t = 0; t < count; ++t) {
    rabbet_format_t formats[RABBET_CUDA_FORMATS];
    int n = rabbet_cuda_formats(types[t], propose->formats, formats);
    for (int f = 0; f < n; ++f)
      out_layouts[total++] = (rabbet_type_format_t){types[t], formats[f]};
  }
  assert(total <= RABBET_CUDA_LAYOUTS);
  return total;
}

rabbet_status_t rabbet_cuda_node_add(rabbet_cuda_node_t* kernel,
                                     const rabbet_kernel_spec_t* spec,
                                     const char* name, const char* text,
                                     const rabbet_cuda_options_t* options) {
  const char* list[RABBET_CUDA_OPTIONS];
  size_t count = options ? options->count : 0;
  if (kernel->program_count == RABBET_CUDA_NODE_PROGRAMS ||
      (options && options->overflow))
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "'%s' has more programs or options than there is room "
                         "for",
                         name);
  for (size_t i = 0; i < count; ++i)
    list[i] = options->text[i];
  const rabbet_cuda_source_t source = {.name = name,
                                       .text = text,
                                       .options = list,
                                       .option_count = count,
                                       .specific = kernel->specific};
  RABBET_RETURN_IF_ERROR(
      (spec->ahead ? rabbet_cuda_program_get_now : rabbet_cuda_program_get)(
          kernel->device, &source, spec->artifacts, spec->artifact_count,
          &kernel->programs[kernel->program_count]));
  ++kernel->program_count;
  return rabbet_ok();
}

rabbet_status_t rabbet_cuda_node_function(const rabbet_cuda_node_t* kernel,
                                          size_t program, const char* name,
                                          CUfunction* out_function) {
  assert(program < kernel->program_count);
  return rabbet_cuda_program_function(kernel->programs[program], name,
                                      out_function);
}

// ---- Functions one by one --------------------------------------------------

typedef struct function_source_t {
  rabbet_cuda_source_t source;
  char chosen[64];
  const char* options[RABBET_CUDA_OPTIONS + 1];
} function_source_t;

static void function_source(const cuda_functions_t* functions, size_t i,
                            function_source_t* out) {
  size_t count = functions->options.count;
  snprintf(out->chosen, sizeof(out->chosen), "-DKERNEL_%s=0,1",
           functions->names[i]);
  for (size_t k = 0; k < count; ++k)
    out->options[k] = functions->options.text[k];
  out->options[count] = out->chosen;
  out->source = (rabbet_cuda_source_t){.name = functions->source,
                                       .options = out->options,
                                       .option_count = count + 1};
}

rabbet_status_t rabbet_cuda_node_split(rabbet_cuda_node_t* kernel,
                                       const rabbet_kernel_spec_t* spec,
                                       const char* source,
                                       const char* const* names, size_t count,
                                       const rabbet_cuda_options_t* options) {
  assert(!kernel->functions && count <= RABBET_CUDA_NODE_FUNCTIONS);
  if (options->overflow)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "'%s' has more options than there is room for",
                         source);
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      spec->allocator, sizeof(*kernel->functions), (void**)&kernel->functions));
  cuda_functions_t* functions = kernel->functions;
  functions->source = source;
  functions->names = names;
  functions->count = count;
  functions->options = *options;
  for (size_t i = 0; i < count && spec->artifact_count > 0; ++i) {
    function_source_t one;
    rabbet_cuda_program_t* program = NULL;
    if (!names[i]) continue;
    function_source(functions, i, &one);
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_program_find(kernel->device, &one.source, spec->artifacts,
                                 spec->artifact_count, &program));
    atomic_store(&functions->programs[i], program);
  }
  return rabbet_ok();
}

// The program of function `i`, which the kernel holds.
static rabbet_status_t function_program(const rabbet_cuda_node_t* kernel,
                                        size_t i,
                                        rabbet_cuda_program_t** out_program) {
  cuda_functions_t* functions = kernel->functions;
  rabbet_cuda_program_t* other = NULL;
  function_source_t one;
  *out_program = atomic_load(&functions->programs[i]);
  if (*out_program) return rabbet_ok();
  function_source(functions, i, &one);
  RABBET_RETURN_IF_ERROR((functions->ahead ? rabbet_cuda_program_get_now
                                           : rabbet_cuda_program_get)(
      kernel->device, &one.source, NULL, 0, out_program));
  if (!atomic_compare_exchange_strong(&functions->programs[i], &other,
                                      *out_program)) {
    assert(other == *out_program);
    rabbet_cuda_program_release(*out_program);  // another thread's is held
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_cuda_node_make(const rabbet_cuda_node_t* kernel,
                                      size_t i, CUfunction* out_function) {
  cuda_functions_t* functions = kernel->functions;
  rabbet_cuda_program_t* program = NULL;
  assert(i < functions->count && functions->names[i]);
  *out_function = NULL;
  if (functions->lists) {
    functions->wanted[i] = true;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(function_program(kernel, i, &program));
  return rabbet_cuda_program_function(program, functions->names[i],
                                      out_function);
}

// Prepares the kernel for the optimum, which makes or lists functions.
static rabbet_status_t functions_try(rabbet_cuda_node_t* kernel,
                                     const rabbet_dims_t* dims) {
  const rabbet_kernel_class_t* kernel_class = kernel->node.base.kernel_class;
  const rabbet_kernel_shapes_t shapes = {.dims = dims, .threads = 1};
  rabbet_kernel_state_t* state = NULL;
  size_t workspace = 0;
  rabbet_status_t status =
      kernel_class->prepare(&kernel->node.base, &shapes, &state, &workspace);
  if (state) kernel_class->destroy_state(&kernel->node.base, state);
  return status;
}

static bool functions_have_one_shape(const rabbet_group_t* group) {
  for (size_t i = 0; i < group->input_count; ++i) {
    const rabbet_group_value_t* value = &group->values[group->inputs[i]];
    for (int32_t axis = 0; axis < value->dims.rank; ++axis)
      if (value->min.d[axis] != value->max.d[axis]) return false;
  }
  return true;
}

static rabbet_status_t functions_list(rabbet_cuda_node_t* kernel,
                                      const rabbet_dims_t* dims) {
  enum { MOST_MULTIPROCESSORS = 512 };
  cuda_functions_t* functions = kernel->functions;
  bool has_one_shape = functions_have_one_shape(kernel->node.group);
  for (size_t i = 0; i < functions->count; ++i)
    functions->wanted[i] = !has_one_shape && functions->names[i];
  if (!has_one_shape) return rabbet_ok();
  rabbet_status_t status = rabbet_ok();
  functions->lists = true;
  for (int i = 1; i <= MOST_MULTIPROCESSORS && rabbet_is_ok(status); ++i) {
    kernel->multiprocessors = i;
    status = functions_try(kernel, dims);
  }
  kernel->multiprocessors = kernel->device->multiprocessors;
  functions->lists = false;
  return status;
}

typedef struct functions_job_t {
  const rabbet_cuda_node_t* kernel;
  atomic_size_t next;
} functions_job_t;

static void* functions_run(void* context) {
  functions_job_t* job = context;
  const cuda_functions_t* functions = job->kernel->functions;
  for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < functions->count;) {
    rabbet_cuda_program_t* program = NULL;
    if (functions->wanted[i])
      rabbet_status_ignore(function_program(job->kernel, i, &program));
  }
  return NULL;
}

// On several threads; who needs a function that failed tries once more.
static void functions_make_all(const rabbet_cuda_node_t* kernel) {
  enum { THREADS = 8 };
  pthread_t threads[THREADS];
  functions_job_t job = {.kernel = kernel};
  int processors = rabbet_cpu_count(), count = 0;
  while (count < THREADS && count + 1 < processors &&
         pthread_create(&threads[count], NULL, functions_run, &job) == 0)
    ++count;
  functions_run(&job);
  for (int i = 0; i < count; ++i)
    pthread_join(threads[i], NULL);
}

static rabbet_status_t functions_artifacts(rabbet_cuda_node_t* kernel,
                                           rabbet_artifact_sink_t sink) {
  cuda_functions_t* functions = kernel->functions;
  rabbet_dims_t* dims = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(kernel->node.group, kernel->node.allocator, &dims));
  rabbet_status_t status = functions_list(kernel, dims);
  rabbet_free(kernel->node.allocator, dims);
  RABBET_RETURN_IF_ERROR(status);
  functions_make_all(kernel);
  for (size_t i = 0; i < functions->count; ++i) {
    rabbet_cuda_program_t* program = NULL;
    if (!functions->wanted[i]) continue;
    RABBET_RETURN_IF_ERROR(function_program(kernel, i, &program));
    RABBET_RETURN_IF_ERROR(rabbet_cuda_program_artifact(program, sink));
  }
  return rabbet_ok();
}

// A kernel that is created for its programs makes those of the optimum.
static rabbet_status_t functions_make_ahead(rabbet_cuda_node_t* kernel,
                                            const rabbet_kernel_spec_t* spec) {
  rabbet_dims_t* dims = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(spec->group, spec->allocator, &dims));
  kernel->functions->ahead = spec->ahead;
  rabbet_status_t status = functions_try(kernel, dims);
  kernel->functions->ahead = false;
  rabbet_free(spec->allocator, dims);
  return status;
}

// ---- The kernel ------------------------------------------------------------

rabbet_status_t rabbet_cuda_node_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    size_t size,
    rabbet_status_t (*program)(rabbet_cuda_node_t* kernel,
                               const rabbet_kernel_spec_t* spec),
    rabbet_kernel_t** out_kernel) {
  assert(size >= sizeof(rabbet_cuda_node_t));
  *out_kernel = NULL;
  if (spec->group->node_count == 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a group without layers has no kernel");
  rabbet_cuda_node_t* kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, size, (void**)&kernel));
  kernel->node.base.kernel_class = kernel_class;
  kernel->node.allocator = spec->allocator;
  kernel->node.group = spec->group;
  kernel->node.node = &spec->group->nodes[0];
  kernel->device = rabbet_cuda(spec->device);
  kernel->multiprocessors = kernel->device->multiprocessors;
  rabbet_status_t status = program(kernel, spec);
  if (rabbet_is_ok(status) && kernel->functions && spec->exact)
    status = functions_make_ahead(kernel, spec);
  if (!rabbet_is_ok(status)) {
    kernel_class->destroy(&kernel->node.base);
    return status;
  }
  *out_kernel = &kernel->node.base;
  return rabbet_ok();
}

void rabbet_cuda_node_destroy(rabbet_kernel_t* base) {
  if (!base) return;
  rabbet_cuda_node_t* kernel = (rabbet_cuda_node_t*)base;
  for (size_t i = 0; i < kernel->program_count; ++i)
    rabbet_cuda_program_release(kernel->programs[i]);
  for (size_t i = 0; kernel->functions && i < kernel->functions->count; ++i)
    rabbet_cuda_program_release(atomic_load(&kernel->functions->programs[i]));
  rabbet_free(kernel->node.allocator, kernel->functions);
  rabbet_free(kernel->node.allocator, kernel);
}

rabbet_status_t rabbet_cuda_node_artifacts(rabbet_kernel_t* base,
                                           rabbet_artifact_sink_t sink) {
  rabbet_cuda_node_t* kernel = (rabbet_cuda_node_t*)base;
  for (size_t i = 0; i < kernel->program_count; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_program_artifact(kernel->programs[i], sink));
  return kernel->functions ? functions_artifacts(kernel, sink) : rabbet_ok();
}

uint64_t rabbet_cuda_node_library(rabbet_device_t* device) {
  int version = 0;
  (void)device;
  rabbet_status_ignore(rabbet_nvrtc_version(&version));
  return (uint64_t)version;
}
