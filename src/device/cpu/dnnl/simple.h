// Families with one primitive, of which only the first implementation is used.
#ifndef RABBET_SRC_DEVICE_CPU_DNNL_SIMPLE_H_
#define RABBET_SRC_DEVICE_CPU_DNNL_SIMPLE_H_

#include "device/cpu/dnnl/program.h"

// Offers the library's first choice for the spec unless that is its reference.
// `in_place`: output 0 may be written over input 0.
rabbet_status_t rabbet_dnnl_offer_first(const rabbet_propose_t* propose,
                                        rabbet_candidate_sink_t sink,
                                        const rabbet_kernel_class_t* kernel,
                                        const rabbet_dnnl_spec_t* spec,
                                        const rabbet_type_format_t* tensors,
                                        bool in_place);

// Compiles one primitive from the first node's first input to the group's
// output, with conversions if `compute` is not their type; `extra`: further
// arguments.
rabbet_status_t rabbet_dnnl_compile_simple(rabbet_dnnl_program_t* program,
                                           const rabbet_dnnl_spec_t* spec,
                                           rabbet_dtype_t compute,
                                           const rabbet_dnnl_binding_t* extra,
                                           int extra_count);

#endif  // RABBET_SRC_DEVICE_CPU_DNNL_SIMPLE_H_
