#include "device/cuda/programs/compile.h"

#include <string.h>

#include "base/math.h"
#include "base/store.h"

// Behind cubin and PTX, which lie as rabbet_nvrtc_compile gives them.
typedef struct compile_sizes_t {
  uint64_t cubin, ptx;
} compile_sizes_t;

// The key of all that the compiler's result depends on.
static rabbet_status_t compile_key(const rabbet_nvrtc_input_t* input,
                                   rabbet_hash_t key, rabbet_hash_t* out_key) {
  int version = 0;
  RABBET_RETURN_IF_ERROR(rabbet_nvrtc_version(&version));
  const struct {
    char kind[8], standard[16];
    rabbet_hash_t key;
    int32_t version, major, minor, specific, lines, only_ptx;
  } all = {.kind = "NVRTC",
           .standard = RABBET_NVRTC_STANDARD,
           .key = key,
           .version = version,
           .major = input->major,
           .minor = input->minor,
           .specific = input->specific,
           .lines = rabbet_nvrtc_has_lines(),
           .only_ptx = input->only_ptx};
  *out_key = rabbet_hash128(&all, sizeof(all));
  return rabbet_ok();
}

static rabbet_status_t compile_find(const rabbet_cuda_device_t* device,
                                    rabbet_hash_t key, bool only_ptx,
                                    rabbet_nvrtc_output_t* out_code) {
  rabbet_allocator_t allocator = device->base.allocator;
  compile_sizes_t sizes = {0};
  void* data = NULL;
  size_t size = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_store_find(device->base.store, key, allocator, &data, &size));
  if (!data) return rabbet_ok();
  size_t room = size < sizeof(sizes) ? 0 : size - sizeof(sizes);
  const char* end = (const char*)data + room;
  if (room > 0) memcpy(&sizes, end, sizeof(sizes));
  if ((sizes.cubin == 0) != only_ptx || sizes.ptx == 0 || sizes.cubin > room ||
      sizes.ptx > room ||
      rabbet_align_up((size_t)sizes.cubin, 64) + sizes.ptx != room ||
      end[-1] != 0) {
    rabbet_free(allocator, data);  // not of this function: it is replaced
    return rabbet_ok();
  }
  *out_code = (rabbet_nvrtc_output_t){.cubin = data,
                                      .cubin_size = (size_t)sizes.cubin,
                                      .ptx = end - sizes.ptx,
                                      .ptx_size = (size_t)sizes.ptx};
  return rabbet_ok();
}

rabbet_status_t rabbet_cuda_compile(const rabbet_cuda_device_t* device,
                                    const rabbet_nvrtc_input_t* input,
                                    rabbet_hash_t key,
                                    rabbet_nvrtc_output_t* out_code) {
  rabbet_hash_t kept = {0, 0};
  *out_code = (rabbet_nvrtc_output_t){0};
  if (device->base.store) {
    RABBET_RETURN_IF_ERROR(compile_key(input, key, &kept));
    RABBET_RETURN_IF_ERROR(
        compile_find(device, kept, input->only_ptx, out_code));
    if (out_code->cubin) return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_nvrtc_compile(input, device->base.allocator, out_code));
  const compile_sizes_t sizes = {out_code->cubin_size, out_code->ptx_size};
  const rabbet_span_t parts[] = {
      {out_code->cubin,
       rabbet_align_up(out_code->cubin_size, 64) + out_code->ptx_size},
      {&sizes, sizeof(sizes)}};
  rabbet_store_put(device->base.store, kept, parts, 2);
  return rabbet_ok();
}
