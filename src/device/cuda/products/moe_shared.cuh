// What kernels of experts share.
#pragma once

#include "device/cuda/products/moe_params.h"
#include "device/cuda/programs/number.cuh"

typedef ELEMENT T;

// The expert of a pair; -1: it does not exist.
DEVICE int32_t expert_of(const void* experts, int64_t pair, const moe_t& p) {
  int64_t e = p.is_long ? ((const int64_t*)experts)[pair]
                        : (int64_t)((const int32_t*)experts)[pair];
  return e >= 0 && e < p.experts ? (int32_t)e : -1;
}

DEVICE float activate(float gate, float up, const moe_t& p) {
  gate = gate > p.limit ? p.limit : gate;
  up = up > p.limit ? p.limit : up < -p.limit ? -p.limit : up;
  if (p.is_silu) gate = gate / (1.0f + expf(-p.alpha * gate));
  return gate * (up + p.beta);
}
