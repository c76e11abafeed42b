// Families of primitives with weights (convolution, matrix product), whose
// groups are of floating-point numbers or of 8-bit integers
// (device/common/quantized.h).
#ifndef RABBET_SRC_DEVICE_CPU_DNNL_WEIGHTED_H_
#define RABBET_SRC_DEVICE_CPU_DNNL_WEIGHTED_H_

#include "device/cpu/dnnl/fused.h"

typedef struct rabbet_dnnl_weighted_offer_t {
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  const rabbet_dims_t* dims;            // of each value
  rabbet_type_format_t* tensors;        // scratch, of each input and output
  const rabbet_quantized_t* quantized;  // NULL in floating point
  float* scratch;                       // rabbet_dnnl_fused_quantize
} rabbet_dnnl_weighted_offer_t;

typedef struct rabbet_dnnl_weighted_t {
  const char* noun;  // "convolution"
  rabbet_op_id_t op;
  bool (*matches)(const rabbet_group_t* group);  // in floating point
  // Offers candidates that compute in `dtype`; FLOAT if quantized.
  rabbet_status_t (*offer)(const rabbet_dnnl_weighted_offer_t* offer,
                           rabbet_dtype_t dtype);
  // `group` is the kernel's or quantized->plain.
  rabbet_status_t (*compile)(rabbet_dnnl_program_t* program,
                             const rabbet_group_t* group,
                             const rabbet_quantized_t* quantized,
                             float* scratch);
} rabbet_dnnl_weighted_t;

rabbet_status_t rabbet_dnnl_weighted_propose(
    const rabbet_dnnl_weighted_t* family, const rabbet_propose_t* propose,
    rabbet_candidate_sink_t sink);
rabbet_status_t rabbet_dnnl_weighted_compile(
    const rabbet_dnnl_weighted_t* family, rabbet_dnnl_program_t* program);

#endif  // RABBET_SRC_DEVICE_CPU_DNNL_WEIGHTED_H_
