// The point-wise layers after a product as a part of its kernel
// (products/layers_params.h): any chain with operands that are scalars, have
// one number per column, or have the result's shape. A convolution with
// channels last has pixels as rows and channels as columns.
#ifndef RABBET_SRC_DEVICE_CUDA_PRODUCTS_LAYERS_H_
#define RABBET_SRC_DEVICE_CUDA_PRODUCTS_LAYERS_H_

#include "base/strbuf.h"
#include "device/cuda/products/layers_params.h"
#include "device/cuda/products/matmul.h"
#include "device/cuda/programs/node.h"

// The operands of a prepared kernel.
typedef struct rabbet_cuda_layers_t {
  int count;
  int inputs[LAYERS];    // boundary inputs
  bool is_full[LAYERS];  // it has the result's shape
} rabbet_cuda_layers_t;

// Whether the group's first node is followed by such a chain, for all shapes of
// the profile. `opt`: the dims of each value.
bool rabbet_cuda_layers_fit(const rabbet_group_t* group,
                            const rabbet_dims_t* opt);
// Whether the group is a floating-point product with such a chain.
bool rabbet_cuda_layers_match(const rabbet_group_t* group,
                              const rabbet_dims_t* opt);
// The common type of all boundary values; RABBET_DTYPE_NONE if types differ or
// a value is not LINEAR.
rabbet_dtype_t rabbet_cuda_layers_type(const rabbet_group_t* group);
// Whether kernels of images with channels last compute the type: FLOAT, HALF,
// BF16.
bool rabbet_cuda_layers_computes(rabbet_dtype_t dtype);
// The format of boundary tensor i of a group of such a kernel: HWC for the
// image that the first node reads and tensors of the result's shape, else
// LINEAR.
rabbet_format_t rabbet_cuda_layers_format(const rabbet_group_t* group,
                                          size_t i);
// Whether the boundary has one such type and such formats, as far as a loaded
// plan can tell, which does not know shapes yet.
bool rabbet_cuda_layers_take_images(const rabbet_group_t* group);
// Adds the program `name`: the text `begin`, then `header`, then the layers.
// The chain does not depend on shapes.
rabbet_status_t rabbet_cuda_layers_add(rabbet_cuda_node_t* kernel,
                                       const rabbet_kernel_spec_t* spec,
                                       const char* name, const char* begin,
                                       const char* header);
// Writes the chain of `group` as the function `name` in CUDA C++, with the
// parameters of `finish` (layers_params.h), for programs of several chains.
rabbet_status_t rabbet_cuda_layers_function(const rabbet_cuda_node_t* kernel,
                                            const rabbet_group_t* group,
                                            const rabbet_dims_t* dims,
                                            const char* name,
                                            rabbet_strbuf_t* text,
                                            int* out_operands);
// The strides of the operands. `group` is the kernel's, or the part of it that
// begins with the product; `result` has the result's strides, in elements.
// `swapped`: rows of the kernel are columns of the result.
rabbet_status_t rabbet_cuda_layers_place(
    const rabbet_cuda_node_t* kernel, const rabbet_group_t* group,
    const rabbet_dims_t* dims, const layer_operand_t* result, bool swapped,
    rabbet_cuda_layers_t* out_layers, layers_t* out_parameters);
// Sets the addresses for a run; the result begins `y` bytes into the output.
static inline void rabbet_cuda_layers_bind(const rabbet_cuda_layers_t* layers,
                                           const rabbet_kernel_call_t* call,
                                           int64_t y, layers_t* parameters) {
  for (int i = 0; i < layers->count; ++i)
    parameters->operands[i].data =
        (const char*)call->inputs[layers->inputs[i]] +
        (layers->is_full[i] ? y : 0);
}

#endif  // RABBET_SRC_DEVICE_CUDA_PRODUCTS_LAYERS_H_
