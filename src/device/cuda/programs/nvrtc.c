#include "device/cuda/programs/nvrtc.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "device/cuda/driver/library.h"

#define NVRTC_MAX_OPTIONS 32
#define NVRTC_MAX_HEADERS 128

typedef int nvrtcResult;
typedef struct _nvrtcProgram* nvrtcProgram;

typedef struct nvrtc_table_t {
  nvrtcResult (*nvrtcVersion)(int* major, int* minor);
  const char* (*nvrtcGetErrorString)(nvrtcResult result);
  nvrtcResult (*nvrtcCreateProgram)(nvrtcProgram* program, const char* text,
                                    const char* name, int header_count,
                                    const char* const* headers,
                                    const char* const* header_names);
  nvrtcResult (*nvrtcDestroyProgram)(nvrtcProgram* program);
  nvrtcResult (*nvrtcCompileProgram)(nvrtcProgram program, int option_count,
                                     const char* const* options);
  nvrtcResult (*nvrtcGetCUBINSize)(nvrtcProgram program, size_t* size);
  nvrtcResult (*nvrtcGetCUBIN)(nvrtcProgram program, char* cubin);
  nvrtcResult (*nvrtcGetPTXSize)(nvrtcProgram program, size_t* size);
  nvrtcResult (*nvrtcGetPTX)(nvrtcProgram program, char* ptx);
  nvrtcResult (*nvrtcGetProgramLogSize)(nvrtcProgram program, size_t* size);
  nvrtcResult (*nvrtcGetProgramLog)(nvrtcProgram program, char* log);
} nvrtc_table_t;

#define NVRTC_SYMBOL(name) \
  { #name, offsetof(nvrtc_table_t, name), false }
static const rabbet_cuda_symbol_t nvrtc_symbols[] = {
    NVRTC_SYMBOL(nvrtcVersion),        NVRTC_SYMBOL(nvrtcGetErrorString),
    NVRTC_SYMBOL(nvrtcCreateProgram),  NVRTC_SYMBOL(nvrtcDestroyProgram),
    NVRTC_SYMBOL(nvrtcCompileProgram), NVRTC_SYMBOL(nvrtcGetCUBINSize),
    NVRTC_SYMBOL(nvrtcGetCUBIN),       NVRTC_SYMBOL(nvrtcGetPTXSize),
    NVRTC_SYMBOL(nvrtcGetPTX),         NVRTC_SYMBOL(nvrtcGetProgramLogSize),
    NVRTC_SYMBOL(nvrtcGetProgramLog),
};

static const char* const nvrtc_names[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                          "libnvrtc.so", NULL};
static const rabbet_cuda_library_t nvrtc_library = {
    .title = "NVRTC, the compiler of kernels,",
    .variable = "RABBET_NVRTC",
    .file_names = nvrtc_names,
    .hint = "pip install nvidia-cuda-nvrtc, or install a CUDA toolkit",
};

static pthread_mutex_t nvrtc_lock = PTHREAD_MUTEX_INITIALIZER;
static nvrtc_table_t nvrtc_table;
static bool nvrtc_ready;

static rabbet_status_t nvrtc_open(void) {
  void* handle = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_library_open(&nvrtc_library, &handle));
  return rabbet_cuda_library_bind(
      &nvrtc_library, handle, nvrtc_symbols,
      sizeof(nvrtc_symbols) / sizeof(nvrtc_symbols[0]), &nvrtc_table);
}

static rabbet_status_t nvrtc_get(const nvrtc_table_t** out_table) {
  pthread_mutex_lock(&nvrtc_lock);
  rabbet_status_t status = nvrtc_ready ? rabbet_ok() : nvrtc_open();
  nvrtc_ready = rabbet_is_ok(status);
  pthread_mutex_unlock(&nvrtc_lock);
  *out_table = &nvrtc_table;
  return status;
}

static rabbet_status_t nvrtc_check(const nvrtc_table_t* nvrtc,
                                   nvrtcResult result, const char* what) {
  if (result == 0) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INTERNAL, "NVRTC: %s: %s", what,
                       nvrtc->nvrtcGetErrorString(result));
}

rabbet_status_t rabbet_nvrtc_version(int* out_version) {
  const nvrtc_table_t* nvrtc = NULL;
  int major = 0, minor = 0;
  *out_version = 0;
  RABBET_RETURN_IF_ERROR(nvrtc_get(&nvrtc));
  RABBET_RETURN_IF_ERROR(
      nvrtc_check(nvrtc, nvrtc->nvrtcVersion(&major, &minor), "version"));
  *out_version = major * 1000 + minor * 10;
  return rabbet_ok();
}

bool rabbet_nvrtc_has_lines(void) {
  const char* lines = getenv("RABBET_NVRTC_LINE_INFO");
  return lines && *lines && strcmp(lines, "0") != 0;
}

// A status with the compiler's messages.
static rabbet_status_t nvrtc_failed(const nvrtc_table_t* nvrtc,
                                    nvrtcProgram program,
                                    const rabbet_nvrtc_input_t* input,
                                    nvrtcResult result,
                                    rabbet_allocator_t allocator) {
  size_t size = 0;
  char* log = NULL;
  if (nvrtc->nvrtcGetProgramLogSize(program, &size) == 0)
    rabbet_status_ignore(rabbet_allocate(allocator, size + 1, (void**)&log));
  if (log && nvrtc->nvrtcGetProgramLog(program, log) != 0) log[0] = 0;
  rabbet_status_t status = RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT, "compiling '%s' for sm_%d%d: %s\n%s",
      input->name, input->major, input->minor,
      nvrtc->nvrtcGetErrorString(result), log ? log : "");
  rabbet_free(allocator, log);
  return status;
}

static rabbet_status_t nvrtc_take(const nvrtc_table_t* nvrtc,
                                  nvrtcProgram program, bool only_ptx,
                                  rabbet_allocator_t allocator,
                                  rabbet_nvrtc_output_t* out) {
  size_t cubin = 0, ptx = 0;
  if (!only_ptx)
    RABBET_RETURN_IF_ERROR(nvrtc_check(
        nvrtc, nvrtc->nvrtcGetCUBINSize(program, &cubin), "size of the cubin"));
  RABBET_RETURN_IF_ERROR(nvrtc_check(
      nvrtc, nvrtc->nvrtcGetPTXSize(program, &ptx), "size of the PTX"));
  size_t at = rabbet_align_up(cubin, 64);
  uint8_t* memory = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, at + ptx + 1, (void**)&memory));
  rabbet_status_t status =
      only_ptx
          ? rabbet_ok()
          : nvrtc_check(nvrtc, nvrtc->nvrtcGetCUBIN(program, (char*)memory),
                        "the cubin");
  if (rabbet_is_ok(status))
    status = nvrtc_check(nvrtc, nvrtc->nvrtcGetPTX(program, (char*)memory + at),
                         "the PTX");
  if (!rabbet_is_ok(status)) {
    rabbet_free(allocator, memory);
    return status;
  }
  *out = (rabbet_nvrtc_output_t){.cubin = memory,
                                 .cubin_size = cubin,
                                 .ptx = (const char*)memory + at,
                                 .ptx_size = ptx};
  return rabbet_ok();
}

rabbet_status_t rabbet_nvrtc_compile(const rabbet_nvrtc_input_t* input,
                                     rabbet_allocator_t allocator,
                                     rabbet_nvrtc_output_t* out_code) {
  const nvrtc_table_t* nvrtc = NULL;
  const char* options[NVRTC_MAX_OPTIONS + 3];
  size_t count = input->option_count;
  const char *names[NVRTC_MAX_HEADERS], *texts[NVRTC_MAX_HEADERS];
  char architecture[48];
  *out_code = (rabbet_nvrtc_output_t){0};
  RABBET_RETURN_IF_ERROR(nvrtc_get(&nvrtc));
  if (input->option_count > NVRTC_MAX_OPTIONS ||
      input->header_count > NVRTC_MAX_HEADERS)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "'%s' has %zu options and %zu headers", input->name,
                         input->option_count, input->header_count);
  for (size_t i = 0; i < input->header_count; ++i) {
    names[i] = input->headers[i].name;
    texts[i] = input->headers[i].text;
  }
  for (size_t i = 0; i < input->option_count; ++i)
    options[i] = input->options[i];
  snprintf(architecture, sizeof(architecture), "--gpu-architecture=%s_%d%d%s",
           input->only_ptx ? "compute" : "sm", input->major, input->minor,
           input->specific ? "a" : "");
  options[count++] = architecture;
  options[count++] = RABBET_NVRTC_STANDARD;
  // Line numbers for profilers make machine code three times as large.
  if (rabbet_nvrtc_has_lines()) options[count++] = "--generate-line-info";
  nvrtcProgram program = NULL;
  RABBET_RETURN_IF_ERROR(nvrtc_check(
      nvrtc,
      nvrtc->nvrtcCreateProgram(&program, input->text, input->name,
                                (int)input->header_count, texts, names),
      "making a program"));
  nvrtcResult result = nvrtc->nvrtcCompileProgram(program, (int)count, options);
  rabbet_status_t status =
      result == 0
          ? nvrtc_take(nvrtc, program, input->only_ptx, allocator, out_code)
          : nvrtc_failed(nvrtc, program, input, result, allocator);
  nvrtc->nvrtcDestroyProgram(&program);
  return status;
}
