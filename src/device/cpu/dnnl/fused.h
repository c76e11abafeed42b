// A primitive with weights, bias and an epilogue: common parts of convolutions
// and matrix products.
#ifndef RABBET_SRC_DEVICE_CPU_DNNL_FUSED_H_
#define RABBET_SRC_DEVICE_CPU_DNNL_FUSED_H_

#include "device/common/quantized.h"
#include "device/cpu/dnnl/epilogue.h"
#include "device/cpu/dnnl/program.h"

// A tactic's number holds the implementation, the family's method, and
enum {
  RABBET_DNNL_TACTIC_METHOD_SHIFT = 24,
  RABBET_DNNL_TACTIC_METHOD = 15 << RABBET_DNNL_TACTIC_METHOD_SHIFT,
  // computing in FLOAT for any type of the tensors;
  RABBET_DNNL_TACTIC_FLOAT = 1 << 28,
  // the result may be written over the tensor that is added to it.
  RABBET_DNNL_TACTIC_IN_PLACE = 1 << 29,
};

typedef struct rabbet_dnnl_fused_t {
  rabbet_dnnl_spec_t spec;  // without posts; types are those computed in
  rabbet_epilogue_t epilogue;
  // Layout of each binary item's operand, which depends on the result's layout.
  rabbet_dnnl_layout_t operands[RABBET_DNNL_MAX_POSTS];
  // The item that adds a tensor of the result's shape, which may be in the
  // result's memory; -1: none.
  int sum_item;
  int32_t src, weights, bias;           // value numbers; bias -1: none
  rabbet_dnnl_layout_t weights_layout;  // in the value's memory
  // Factors of the bias, spec.scale_count of them; NULL: none. Borrowed.
  const float* bias_factors;
} rabbet_dnnl_fused_t;

// Turns the epilogue's first item into the bias if there is no bias yet and the
// item adds a tensor of dims `expected` (one number per channel, with the
// result's rank).
void rabbet_dnnl_fused_take_bias(rabbet_dnnl_fused_t* fused,
                                 const rabbet_group_t* group,
                                 const rabbet_dims_t* dims,
                                 const rabbet_dims_t* expected);
// Sets sum_item from items whose operand has the result's dimensions.
void rabbet_dnnl_fused_find_sum(rabbet_dnnl_fused_t* fused,
                                const rabbet_group_t* group,
                                const rabbet_dims_t* dims);

// 8-bit products. Results are 32-bit integers, then FLOAT: multiplied by the
// factors' scales, passed through the epilogue, divided by the result's scale,
// rounded to even.
//
// `scratch` is borrowed by `fused`: 2 * quantized->w_count numbers. Describes
// the group's primitive, given the family's description of quantized->plain;
// *out_fits is false if oneDNN cannot do that.
void rabbet_dnnl_fused_quantize(rabbet_dnnl_fused_t* fused,
                                const rabbet_quantized_t* quantized,
                                float* scratch, bool* out_fits);

typedef struct rabbet_dnnl_fused_offer_t {
  const rabbet_kernel_class_t* kernel;
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  const rabbet_type_format_t* tensors;
  int32_t tactic;      // method and flags
  const char* prefix;  // of the tactic's name
} rabbet_dnnl_fused_offer_t;
// Offers a candidate for each implementation that may be the fastest.
rabbet_status_t rabbet_dnnl_fused_propose(
    const rabbet_dnnl_fused_t* fused, const rabbet_dnnl_fused_offer_t* offer);

rabbet_status_t rabbet_dnnl_fused_compile(const rabbet_dnnl_fused_t* fused,
                                          rabbet_dnnl_program_t* program);
// The same for a part of the result, which is written to `dst`. The epilogue of
// a part must not add a tensor of the result's shape.
rabbet_status_t rabbet_dnnl_fused_compile_part(const rabbet_dnnl_fused_t* fused,
                                               rabbet_dnnl_program_t* program,
                                               const rabbet_dnnl_ref_t* src,
                                               const rabbet_dnnl_ref_t* dst);

// Boundary types and formats of a fused group. Tensors get the type `dtype`
// (NONE: their own); constants keep theirs. `src` gets the format `in`; the
// result and operands of its shape get `out`.
void rabbet_dnnl_fused_tensors(const rabbet_dnnl_fused_t* fused,
                               const rabbet_group_t* group,
                               const rabbet_dims_t* dims, rabbet_dtype_t dtype,
                               rabbet_format_t in, rabbet_format_t out,
                               rabbet_type_format_t* out_tensors);

#endif  // RABBET_SRC_DEVICE_CPU_DNNL_FUSED_H_
