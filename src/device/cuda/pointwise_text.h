// From a group of element-wise layers to CUDA C++ (kernels/pointwise.cuh).
#ifndef RABBET_SRC_DEVICE_CUDA_POINTWISE_TEXT_H_
#define RABBET_SRC_DEVICE_CUDA_POINTWISE_TEXT_H_

#include "base/strbuf.h"
#include "device/kernel.h"

enum { RABBET_CUDA_PW_OPERANDS = 48 };

// Where a boundary input's elements come from.
typedef struct rabbet_cuda_pw_inputs_t {
  int memory_count, scalar_count;
  // Of input i: its number among those in memory, or -1; among scalars, or -1.
  int memory[RABBET_CUDA_PW_OPERANDS], scalar[RABBET_CUDA_PW_OPERANDS];
} rabbet_cuda_pw_inputs_t;

// Constants of one element come with the launch.
void rabbet_cuda_pw_inputs(const rabbet_group_t* group,
                           rabbet_cuda_pw_inputs_t* out_inputs);
// Whether every layer has a function, and every type a name, in the kernels.
bool rabbet_cuda_pw_supports(const rabbet_group_t* group);
// Elements to a vector: 16 bytes of the widest type.
int rabbet_cuda_pw_vector(const rabbet_group_t* group);
// The whole text; `unroll` vectors for each thread.
void rabbet_cuda_pw_text(const rabbet_group_t* group,
                         const rabbet_cuda_pw_inputs_t* inputs, int unroll,
                         rabbet_strbuf_t* out_text);

#endif  // RABBET_SRC_DEVICE_CUDA_POINTWISE_TEXT_H_
