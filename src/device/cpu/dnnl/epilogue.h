// The element-wise operators that follow a convolution or a product in its
// group, as operations on its result.
#ifndef RABBET_SRC_DEVICE_CPU_DNNL_EPILOGUE_H_
#define RABBET_SRC_DEVICE_CPU_DNNL_EPILOGUE_H_

#include "device/cpu/cpu.h"

typedef struct rabbet_epilogue_item_t {
  bool is_binary;
  rabbet_dnnl_function_t function;  // of the result so far
  float alpha, beta;
  rabbet_dnnl_binary_t binary;  // result so far (op) operand
  int32_t operand;              // value number of a boundary input
} rabbet_epilogue_item_t;

typedef struct rabbet_epilogue_t {
  rabbet_epilogue_item_t items[RABBET_DNNL_MAX_POSTS];
  int count;
  int32_t start;   // value that the first item is applied to
  int32_t result;  // the group's only output
} rabbet_epilogue_t;

// Reads nodes [first_node, node_count). False unless they are a chain from
// `start` to the group's only output, all results have the shape of `start`,
// and oneDNN has an operation for each node. `dims`: of each value.
bool rabbet_epilogue_parse(const rabbet_group_t* group,
                           const rabbet_dims_t* dims, size_t first_node,
                           int32_t start, rabbet_epilogue_t* out_epilogue);

// Appends alpha x + beta; false if there is no room, or if there is another
// linear function with which it cannot be merged.
bool rabbet_epilogue_push_linear(rabbet_epilogue_t* epilogue, double alpha,
                                 double beta);

#endif  // RABBET_SRC_DEVICE_CPU_DNNL_EPILOGUE_H_
