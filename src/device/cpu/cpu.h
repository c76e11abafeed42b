// Declarations that the files of the CPU device share.
#ifndef RABBET_SRC_DEVICE_CPU_CPU_H_
#define RABBET_SRC_DEVICE_CPU_CPU_H_

#include "device/common/node_kernel.h"
#include "device/cpu/dnnl/wrap.h"
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
// Whether it has AVX512-VNNI besides RABBET_CPU_AVX512.
bool rabbet_cpu_has_vnni(void);
// And AVX512-VBMI besides.
bool rabbet_cpu_has_vbmi(void);
// Whether sums of products with FLOAT's small (denormal) numbers take no longer
// than others: on processors of AMD.
bool rabbet_cpu_has_quick_small_numbers(void);
// The blocked format whose block fills a vector register of floats: CHW16 or
// CHW8.
rabbet_format_t rabbet_cpu_blocked_format(void);

// Every class, one line each in device/kernels.def.
#define RABBET_CPU_KERNEL(name, ...) extern const rabbet_kernel_class_t name;
#include "device/kernels.def"

// ---- Proposing -------------------------------------------------------------

// Input 0 and the output in one type and format, for each of the formats
// (LINEAR, HWC, the blocked one: bit 1, 2, 4 of `formats`) and each type that
// the network allows.
enum {
  RABBET_CPU_OFFER_LINEAR = 1,
  RABBET_CPU_OFFER_HWC = 2,
  RABBET_CPU_OFFER_BLOCKED = 4
};
rabbet_status_t rabbet_cpu_offer_same(rabbet_proposal_t* proposal,
                                      uint32_t formats, const char* tactic_name,
                                      int32_t in_place);

#endif  // RABBET_SRC_DEVICE_CPU_CPU_H_
