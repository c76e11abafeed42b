// What the files of the CPU device share.
#ifndef RABBET_SRC_DEVICE_CPU_CPU_H_
#define RABBET_SRC_DEVICE_CPU_CPU_H_

#include "device/cpu/dnnl_wrap.h"
#include "device/device.h"
#include "device/reference_kernel.h"

typedef struct rabbet_cpu_device_t {
  rabbet_device_t base;
  rabbet_dnnl_t* dnnl;
  char signature[256];
} rabbet_cpu_device_t;

static inline rabbet_dnnl_t* rabbet_cpu_dnnl(rabbet_device_t* device) {
  return ((rabbet_cpu_device_t*)device)->dnnl;
}

// Instruction sets, each including those before it.
typedef enum rabbet_cpu_isa_t {
  RABBET_CPU_BASELINE = 0,     // x86-64 or another architecture
  RABBET_CPU_AVX2 = 1,         // with FMA and F16C
  RABBET_CPU_AVX512 = 2,       // F, BW, DQ, VL
  RABBET_CPU_AVX512_BF16 = 3,  // products of BF16
} rabbet_cpu_isa_t;
rabbet_cpu_isa_t rabbet_cpu_isa(void);
// The blocked format whose block fills a vector register of floats: CHW16 or
// CHW8.
rabbet_format_t rabbet_cpu_blocked_format(void);

// Every class, one line each in kernels.def.
#define RABBET_CPU_KERNEL(name) extern const rabbet_kernel_class_t name;
#include "device/cpu/kernels.def"
#undef RABBET_CPU_KERNEL

// ---- Proposing -------------------------------------------------------------

// Types of the boundary as the network has them, LINEAR; inputs, then outputs.
// `out_tensors` has room for group->input_count + group->output_count.
void rabbet_cpu_network_tensors(const rabbet_group_t* group,
                                rabbet_type_format_t* out_tensors);
// Passes the candidate on unless propose->fixed asks for other types or
// formats, or a tensor's rank is too small for its format.
rabbet_status_t rabbet_cpu_offer(const rabbet_propose_t* propose,
                                 rabbet_candidate_sink_t sink,
                                 const rabbet_candidate_t* candidate);
// Dimensions of every value at the profile's optimum; the caller frees them.
rabbet_status_t rabbet_cpu_opt_dims(const rabbet_group_t* group,
                                    rabbet_allocator_t allocator,
                                    rabbet_dims_t** out_dims);
// Position of a value in the group's boundary inputs, or -1.
int32_t rabbet_cpu_input_of(const rabbet_group_t* group, int32_t value);

// Types to offer for a group whose tensors have type `network`: itself, and
// those that weak typing adds if it is a floating type.
int rabbet_cpu_compute_types(const rabbet_propose_t* propose,
                             rabbet_dtype_t network, rabbet_dtype_t out[4]);

#endif  // RABBET_SRC_DEVICE_CPU_CPU_H_
