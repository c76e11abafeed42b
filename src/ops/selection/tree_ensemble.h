// Ensembles of decision trees, for the reference and the devices' kernels (C
// and CUDA C++).
//
// All trees share one table of nodes, four INT32 each:
//
//   feature << 4 | outcomes, bits of the split (FLOAT), true child, false child
//   0, first weight, number of weights, -                         (a leaf)
//
// `outcomes` are the results of comparing a feature with the split that lead to
// the true child. A child comes later in the table than its parent, so that
// each walk ends; nodes may have several parents. A walk that meets anything
// else (tables may be computed) ends without a leaf.
//
// Features of DOUBLE, which the reference alone compares, have nodes of five
// INT32: in the place of the split its lower bits, and its upper ones at the
// end.
#ifndef RABBET_SRC_OPS_SELECTION_TREE_ENSEMBLE_H_
#define RABBET_SRC_OPS_SELECTION_TREE_ENSEMBLE_H_

#ifdef __cplusplus
#define RABBET_TREE_INLINE static __device__ __forceinline__
#define RABBET_TREE_FLOAT(bits) __int_as_float(bits)
#define RABBET_TREE_INFINITY float_of_bits(0x7f800000u)
#else
#include <math.h>
#include <string.h>

#include "ops/op.h"
#define RABBET_TREE_INLINE static inline
#define RABBET_TREE_FLOAT(bits) rabbet_tree_float(bits)
#define RABBET_TREE_INFINITY INFINITY
static inline float rabbet_tree_float(int32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
#endif

enum {
  RABBET_TREE_LESS = 1,
  RABBET_TREE_EQUAL = 2,
  RABBET_TREE_GREATER = 4,
  RABBET_TREE_UNORDERED = 8,  // one of both is NaN
  RABBET_TREE_OUTCOMES = 15,  // mask
  RABBET_TREE_FEATURE_SHIFT = 4,
  RABBET_TREE_MOST_FEATURES = 1 << 27,
  RABBET_TREE_COLUMNS = 4,
  RABBET_TREE_DOUBLE_COLUMNS = 5,
};

// Numbers as in ONNX's TreeEnsemble.
enum {
  RABBET_TREE_AVERAGE = 0,
  RABBET_TREE_SUM = 1,
  RABBET_TREE_MIN = 2,
  RABBET_TREE_MAX = 3
};

// A parameter of the CUDA kernel.
typedef struct rabbet_tree_ensemble_t {
  int64_t rows, features;
  int32_t nodes, trees, weights, targets;
  int32_t aggregate;
} rabbet_tree_ensemble_t;

typedef struct rabbet_tree_leaf_t {
  int32_t first, count;  // of its weights, which exist
} rabbet_tree_leaf_t;

RABBET_TREE_INLINE int rabbet_tree_outcome(float x, float split) {
  if (x < split) return RABBET_TREE_LESS;
  if (x == split) return RABBET_TREE_EQUAL;
  return x > split ? RABBET_TREE_GREATER : RABBET_TREE_UNORDERED;
}

RABBET_TREE_INLINE rabbet_tree_leaf_t
rabbet_tree_leaf(const rabbet_tree_ensemble_t* p, const int32_t* node) {
  rabbet_tree_leaf_t leaf = {0, 0};
  if (node[1] >= 0 && node[1] < p->weights && node[2] > 0) {
    leaf.first = node[1];
    leaf.count = p->weights - node[1];
    if (node[2] < leaf.count) leaf.count = node[2];
  }
  return leaf;
}

// The leaf that a row reaches from `root`; without weights if there is none.
RABBET_TREE_INLINE rabbet_tree_leaf_t
rabbet_tree_walk(const rabbet_tree_ensemble_t* p, const int32_t* nodes,
                 int32_t root, const float* row) {
  rabbet_tree_leaf_t none = {0, 0};
  int32_t at = -1, next = root;
  while (next > at && next < p->nodes) {
    const int32_t* node = nodes + 4 * (int64_t)next;
    int32_t outcomes = node[0] & RABBET_TREE_OUTCOMES;
    int32_t feature = node[0] >> RABBET_TREE_FEATURE_SHIFT;
    at = next;
    if (outcomes == 0) return rabbet_tree_leaf(p, node);
    if (feature < 0 || feature >= p->features) return none;
    next =
        outcomes & rabbet_tree_outcome(row[feature], RABBET_TREE_FLOAT(node[1]))
            ? node[2]
            : node[3];
  }
  return none;
}

// The value that an aggregate begins with.
RABBET_TREE_INLINE float rabbet_tree_begin(int32_t aggregate) {
  if (aggregate == RABBET_TREE_MIN) return RABBET_TREE_INFINITY;
  return aggregate == RABBET_TREE_MAX ? -RABBET_TREE_INFINITY : 0.0f;
}
RABBET_TREE_INLINE float rabbet_tree_add(int32_t aggregate, float a, float b) {
  if (aggregate == RABBET_TREE_MIN) return b < a ? b : a;
  if (aggregate == RABBET_TREE_MAX) return b > a ? b : a;
  return a + b;
}
// A minimum or maximum of no weights is 0.
RABBET_TREE_INLINE float rabbet_tree_finish(const rabbet_tree_ensemble_t* p,
                                            float x) {
  if (p->aggregate == RABBET_TREE_AVERAGE)
    return p->trees > 0 ? x / (float)p->trees : 0.0f;
  if (p->aggregate == RABBET_TREE_SUM) return x;
  return x == rabbet_tree_begin(p->aggregate) ? 0.0f : x;
}

#ifndef __cplusplus
enum {
  RABBET_TREE_INPUT = 0,
  RABBET_TREE_NODES = 1,
  RABBET_TREE_ROOTS = 2,
  RABBET_TREE_LEAF_TARGETS = 3,
  RABBET_TREE_LEAF_WEIGHTS = 4,
  RABBET_TREE_INPUTS = 5
};

// `dims`: of the inputs. OUT_OF_RANGE where they do not belong together:
// dynamic extents are checked at run time.
RABBET_PRIVATE_API rabbet_status_t
rabbet_tree_ensemble_read(const rabbet_attr_t* attrs, size_t attr_count,
                          const rabbet_dims_t* const dims[RABBET_TREE_INPUTS],
                          rabbet_tree_ensemble_t* out_ensemble);
#endif

#endif  // RABBET_SRC_OPS_SELECTION_TREE_ENSEMBLE_H_
