// Parameters of the kernels in moe.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

#define MOE_COLUMNS 64   // of a tile of results
#define MOE_THREADS 128  // of a block of products
#define MOE_SORT_THREADS 256
// Of moe_few.cu: threads of a block, and those along columns, where each has 16
// bytes of a row, or one element.
#define MOE_FEW_THREADS 256
#define MOE_NARROW_LANES 2
#define MOE_WIDE_LANES 8
#define MOE_SINGLE_LANES 32

// Sizes of a launch, which computes a part of the tokens.
typedef struct moe_t {
  int64_t pairs;  // pairs of a token and an expert
  int64_t hidden, inner;
  int32_t is_gated;  // 0: the tokens have `inner` elements, the last factor
  divisor_t chosen;  // experts of a token
  int32_t experts;
  int32_t rows;     // of a tile of results
  int32_t is_long;  // expert numbers of 64 bits
  int32_t is_silu;
  float limit, alpha, beta;
  int32_t finds;  // scales are computed; 0: the scale is given
  int32_t wide;   // all rows consist of aligned pieces of 16 bytes
  int64_t block;  // elements that share a scale
} moe_t;

// The result of sorting: pairs ordered by expert; each pair's place in that
// order (-1: its expert does not exist); each expert's first place and tile.
typedef struct moe_order_t {
  int32_t *order, *place, *starts, *tiles;
} moe_order_t;

// Inputs of the layer.
typedef struct moe_inputs_t {
  const void *hidden, *experts, *scores, *gate, *up, *down;
  const void *gate_bias, *up_bias, *down_bias, *scale;
} moe_inputs_t;
