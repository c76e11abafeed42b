#include "device/cuda/programs/node.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "device/cuda/programs/nvrtc.h"

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
  rabbet_status_t status = program(kernel, spec);
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
  rabbet_free(kernel->node.allocator, kernel);
}

rabbet_status_t rabbet_cuda_node_artifacts(rabbet_kernel_t* base,
                                           rabbet_artifact_sink_t sink) {
  const rabbet_cuda_node_t* kernel = (const rabbet_cuda_node_t*)base;
  for (size_t i = 0; i < kernel->program_count; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_program_artifact(kernel->programs[i], sink));
  return rabbet_ok();
}

uint64_t rabbet_cuda_node_library(rabbet_device_t* device) {
  int version = 0;
  (void)device;
  rabbet_status_ignore(rabbet_nvrtc_version(&version));
  return (uint64_t)version;
}
