// Launches of staged.cu, the program of cuda.attention.tiles for many queries:
// what it needs, and when it is worth trying.
#ifndef RABBET_SRC_DEVICE_CUDA_ATTENTION_ATTENTION_STAGED_H_
#define RABBET_SRC_DEVICE_CUDA_ATTENTION_ATTENTION_STAGED_H_

#include "device/cuda/attention/attention.h"
#include "device/cuda/attention/attention_params.h"

enum { RABBET_ATTENTION_STAGED_WIDTH = 256 };  // the most columns

// Columns, warp groups of a block that compute, and keys of a tile: the
// program's constants follow from them.
typedef struct rabbet_attention_staged_t {
  int64_t width;
  int groups, keys;
} rabbet_attention_staged_t;

bool rabbet_attention_staged_wanted(const rabbet_cuda_device_t* device,
                                    const rabbet_attention_staged_t* staged,
                                    const rabbet_attention_views_t* views);
// Lets the function take the shared memory that it needs.
rabbet_status_t rabbet_attention_staged_permit(
    const rabbet_cuda_device_t* device, const rabbet_attention_staged_t* staged,
    CUfunction attend);
// For tensors whose strides *parameters has: fills in what the survey needs,
// and both launches' geometry; the survey's is empty without a mask. Returns
// the bytes of the survey.
size_t rabbet_attention_staged_launch(const rabbet_attention_staged_t* staged,
                                      const rabbet_attention_views_t* views,
                                      bool has_mask, attend_t* parameters,
                                      rabbet_cuda_launch_t* attend,
                                      rabbet_cuda_launch_t* survey);

#endif  // RABBET_SRC_DEVICE_CUDA_ATTENTION_ATTENTION_STAGED_H_
