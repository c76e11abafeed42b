// Ensembles of decision trees (-DAGGREGATE: RABBET_TREE_SUM, ...). A block
// takes a row at a time and each thread a tree: bound by the latency of the
// walks. Weights are added in an order that no timing changes.
#include "device/cuda/programs/number.cuh"
#include "ops/selection/tree_ensemble.h"

enum { THREADS = 128 };

// One target: threads aggregate their trees, then the block the threads.
extern "C" __global__ void __launch_bounds__(128)
    trees_of_one(const float* x, const int32_t* nodes, const int32_t* roots,
                 const int32_t* targets, const float* weights, float* y,
                 const __grid_constant__ rabbet_tree_ensemble_t p) {
  turn_t turn;
  __shared__ float sums[THREADS];
  int32_t thread = (int32_t)threadIdx.x;
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    float sum = rabbet_tree_begin(AGGREGATE);
    for (int64_t tree = thread; tree < p.trees; tree += THREADS) {
      rabbet_tree_leaf_t leaf =
          rabbet_tree_walk(&p, nodes, roots[tree], x + row * p.features);
      for (int32_t i = leaf.first; i < leaf.first + leaf.count; ++i)
        if (targets[i] == 0) sum = rabbet_tree_add(AGGREGATE, sum, weights[i]);
    }
    sums[thread] = sum;
    __syncthreads();
#pragma unroll
    for (int32_t half = THREADS / 2; half > 0; half /= 2) {
      if (thread < half)
        sums[thread] =
            rabbet_tree_add(AGGREGATE, sums[thread], sums[thread + half]);
      __syncthreads();
    }
    if (thread == 0) y[row] = rabbet_tree_finish(&p, sums[0]);
    __syncthreads();
  }
}

// Adds a target's weights in the leaves of `trees` trees.
DEVICE float add_leaves(const rabbet_tree_leaf_t* leaves, int64_t trees,
                        const int32_t* targets, const float* weights,
                        int32_t target, float sum) {
  for (int64_t tree = 0; tree < trees; ++tree)
    for (int32_t i = 0; i < leaves[tree].count; ++i)
      if (targets[leaves[tree].first + i] == target)
        sum = rabbet_tree_add(AGGREGATE, sum, weights[leaves[tree].first + i]);
  return sum;
}

// Many: each thread walks through a tree, then aggregates some of the targets.
extern "C" __global__ void __launch_bounds__(128)
    trees_of_many(const float* x, const int32_t* nodes, const int32_t* roots,
                  const int32_t* targets, const float* weights, float* y,
                  const __grid_constant__ rabbet_tree_ensemble_t p) {
  turn_t turn;
  __shared__ rabbet_tree_leaf_t leaves[THREADS];
  int32_t thread = (int32_t)threadIdx.x;
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    float* sums = y + row * p.targets;
    for (int64_t target = thread; target < p.targets; target += THREADS)
      sums[target] = rabbet_tree_begin(AGGREGATE);
    for (int64_t tree = 0; tree < p.trees; tree += THREADS) {
      int64_t trees = p.trees - tree < THREADS ? p.trees - tree : THREADS;
      if (thread < trees)
        leaves[thread] = rabbet_tree_walk(&p, nodes, roots[tree + thread],
                                          x + row * p.features);
      __syncthreads();
      for (int64_t target = thread; target < p.targets; target += THREADS)
        sums[target] = add_leaves(leaves, trees, targets, weights,
                                  (int32_t)target, sums[target]);
      __syncthreads();
    }
    for (int64_t target = thread; target < p.targets; target += THREADS)
      sums[target] = rabbet_tree_finish(&p, sums[target]);
  }
}
