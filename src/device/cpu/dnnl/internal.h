// Declarations that the sources behind dnnl/wrap.h share: dnnl/wrap.c,
// dnnl/describe.c, dnnl/implementations.c and dnnl/primitive.c.
#ifndef RABBET_SRC_DEVICE_CPU_DNNL_INTERNAL_H_
#define RABBET_SRC_DEVICE_CPU_DNNL_INTERNAL_H_

#include <dnnl.h>
#include <pthread.h>

#include "base/arena.h"
#include "base/map.h"
#include "device/cpu/dnnl/wrap.h"

struct rabbet_dnnl_t {
  rabbet_allocator_t allocator;
  dnnl_engine_t engine;
  // Implementations of the specifications that builds have asked for, by their
  // hashes. `lock` guards them and their memory.
  pthread_mutex_t lock;
  rabbet_map_t lists;
  rabbet_arena_t arena;
};

// A status for a function's return code; `what` names the action that failed.
rabbet_status_t rabbet_dnnl_status(dnnl_status_t status, const char* what);

// ---- Descriptors: dnnl/describe.c ------------------------------------------

bool rabbet_dnnl_channels_last(rabbet_format_t format, int rank);
rabbet_status_t rabbet_dnnl_desc(const rabbet_dnnl_layout_t* layout,
                                 dnnl_memory_desc_t* out_desc);
// The caller destroys it.
rabbet_status_t rabbet_dnnl_attr(const rabbet_dnnl_spec_t* spec,
                                 dnnl_primitive_attr_t* out_attr);

typedef union rabbet_dnnl_op_desc_t {
  dnnl_convolution_desc_t convolution;
  dnnl_deconvolution_desc_t deconvolution;
  dnnl_matmul_desc_t matmul;
  dnnl_inner_product_desc_t inner_product;
  dnnl_pooling_desc_t pooling;
  dnnl_softmax_desc_t softmax;
  dnnl_layer_normalization_desc_t layer_norm;
} rabbet_dnnl_op_desc_t;

typedef struct rabbet_dnnl_descs_t {
  dnnl_memory_desc_t src, weights, bias, dst;
  const dnnl_memory_desc_t* bias_or_null;
} rabbet_dnnl_descs_t;

rabbet_status_t rabbet_dnnl_spec_descs(const rabbet_dnnl_spec_t* spec,
                                       rabbet_dnnl_descs_t* out_descs);
// All kinds but REORDER and CONCAT have an operation descriptor.
dnnl_status_t rabbet_dnnl_op_desc(const rabbet_dnnl_spec_t* spec,
                                  const rabbet_dnnl_descs_t* descs,
                                  rabbet_dnnl_op_desc_t* op);

// ---- Implementations: dnnl/implementations.c -------------------------------

const char* rabbet_dnnl_desc_name(const_dnnl_primitive_desc_t desc);
// Called for one implementation after another until it has taken one.
typedef rabbet_status_t (*rabbet_dnnl_desc_visit_fn_t)(
    void* context, dnnl_primitive_desc_t desc,
    const rabbet_dnnl_implementation_t* found, bool* out_taken);

rabbet_status_t rabbet_dnnl_walk(rabbet_dnnl_t* dnnl,
                                 const rabbet_dnnl_spec_t* spec,
                                 rabbet_dnnl_desc_visit_fn_t visit,
                                 void* context);

#endif  // RABBET_SRC_DEVICE_CPU_DNNL_INTERNAL_H_
