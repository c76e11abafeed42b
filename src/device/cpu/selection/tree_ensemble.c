// Decision trees. A step of a walk waits for two loads, so LANES walks go side
// by side: those of several rows through one tree, or of one row through
// several trees. Rows are taken in blocks, so that a tree is read once for all
// of them. Few rows share the trees among threads; the parts are the same for
// any number of threads, so that sums are, too.
#include "ops/selection/tree_ensemble.h"

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

enum { LANES = 8, ROWS = 64, TREES = 64 };

typedef struct cpu_tree_ensemble_state_t {
  rabbet_tree_ensemble_t ensemble;
  bool is_safe;         // constants whose walks need no checks
  int32_t outcomes;     // of all inner nodes, or 0 if they differ
  int64_t parts, part;  // of the trees
} cpu_tree_ensemble_state_t;

// Offers only FLOAT: rounded features would reach other leaves.
static rabbet_status_t cpu_tree_ensemble_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "lanes", -1);
}

RABBET_PROPOSE_FOR(cpu_tree_ensemble, TREE_ENSEMBLE)

// ---- Tables ----------------------------------------------------------------

static bool tree_node_is_safe(const rabbet_tree_ensemble_t* p,
                              const int32_t* node, int32_t at) {
  int32_t feature = node[0] >> RABBET_TREE_FEATURE_SHIFT;
  if (node[0] & RABBET_TREE_OUTCOMES)
    return feature >= 0 && feature < p->features && node[2] > at &&
           node[2] < p->nodes && node[3] > at && node[3] < p->nodes;
  return feature == 0 && node[1] >= 0 && node[2] >= 0 &&
         node[1] <= p->weights - node[2];
}

// Whether no walk can leave the tables and no weight its target.
static bool tree_is_safe(const rabbet_tree_ensemble_t* p, const int32_t* nodes,
                         const int32_t* roots, const int32_t* targets) {
  if (p->features < 1) return false;
  for (int32_t i = 0; i < p->nodes; ++i)
    if (!tree_node_is_safe(p, nodes + 4 * (int64_t)i, i)) return false;
  for (int32_t i = 0; i < p->trees; ++i)
    if (roots[i] < 0 || roots[i] >= p->nodes) return false;
  for (int32_t i = 0; i < p->weights; ++i)
    if (targets[i] < 0 || targets[i] >= p->targets) return false;
  return true;
}

// The outcomes that all inner nodes have; 0 if they differ.
static int32_t tree_outcomes(const rabbet_tree_ensemble_t* p,
                             const int32_t* nodes) {
  int32_t found = 0;
  for (int32_t i = 0; i < p->nodes; ++i) {
    int32_t outcomes = nodes[4 * (int64_t)i] & RABBET_TREE_OUTCOMES;
    if (outcomes != 0 && found != 0 && outcomes != found) return 0;
    if (outcomes != 0) found = outcomes;
  }
  return found;
}

static rabbet_status_t cpu_tree_ensemble_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_tree_ensemble_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_dims_t* dims[RABBET_TREE_INPUTS];
  const void* known[RABBET_TREE_INPUTS];
  cpu_tree_ensemble_state_t made = {.parts = 1};
  *out_workspace = 0;
  *out_state = NULL;
  for (size_t i = 0; i < RABBET_TREE_INPUTS; ++i) {
    dims[i] = &shapes->dims[node->inputs[i]];
    known[i] = kernel->group->values[node->inputs[i]].constant;
  }
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_tree_ensemble_read(node->attrs, node->op->attr_count, dims,
                                &made.ensemble),
      "layer '%s'", node->name));
  rabbet_tree_ensemble_t* p = &made.ensemble;
  if (known[RABBET_TREE_NODES] && known[RABBET_TREE_ROOTS] &&
      known[RABBET_TREE_LEAF_TARGETS]) {
    made.is_safe =
        tree_is_safe(p, known[RABBET_TREE_NODES], known[RABBET_TREE_ROOTS],
                     known[RABBET_TREE_LEAF_TARGETS]);
    made.outcomes = tree_outcomes(p, known[RABBET_TREE_NODES]);
  }
  made.part = p->trees;
  if (p->rows < ROWS && p->trees > TREES) {
    made.part = TREES;
    made.parts = rabbet_ceildiv((int64_t)p->trees, (int64_t)TREES);
    *out_workspace =
        (size_t)(made.parts * p->rows) * (size_t)p->targets * sizeof(float);
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(made), (void**)out_state));
  **out_state = made;
  return rabbet_ok();
}

// ---- Walks -----------------------------------------------------------------

typedef struct tree_call_t {
  const cpu_tree_ensemble_state_t* state;
  const float *x, *weights;
  const int32_t *nodes, *roots, *targets;
  float* y;     // where all trees are one part
  float* sums;  // [parts][rows][targets], or NULL
} tree_call_t;

// Walks of LANES rows (or of one row through LANES trees), at most `count`.
typedef struct tree_lanes_t {
  const float* x[LANES];
  int32_t at[LANES];
} tree_lanes_t;

// Whether a comparison has one of the outcomes: 1 or 0, without a branch.
static inline int32_t tree_goes_any(int32_t outcomes, float x, float split) {
  int32_t less = x<split, equal = x == split, greater = x> split;
  int32_t unordered = 1 - less - equal - greater;
  return (outcomes & (less | equal << 1 | greater << 2 | unordered << 3)) != 0;
}

static inline int32_t tree_goes(int32_t outcomes, float x, float split) {
  if (outcomes == (RABBET_TREE_LESS | RABBET_TREE_EQUAL)) return x <= split;
  if (outcomes == RABBET_TREE_LESS) return x < split;
  return tree_goes_any(outcomes, x, split);
}

// One step of each walk that has not ended; returns whether there was one.
// Where `shared`, the outcomes of all inner nodes, is a constant, the compiler
// leaves one comparison. The child is chosen by its address, since the compiler
// would branch to load one of two.
static inline bool tree_step(const int32_t* nodes, tree_lanes_t* lanes,
                             int32_t shared) {
  int32_t inner = 0;
  for (int i = 0; i < LANES; ++i) {
    const int32_t* node = nodes + 4 * (int64_t)lanes->at[i];
    int32_t outcomes = node[0] & RABBET_TREE_OUTCOMES;
    float x = lanes->x[i][node[0] >> RABBET_TREE_FEATURE_SHIFT];
    float split = rabbet_tree_float(node[1]);
    int32_t goes = shared ? tree_goes(shared, x, split)
                          : tree_goes_any(outcomes, x, split);
    int32_t next = node[3 - goes];
    lanes->at[i] = outcomes ? next : lanes->at[i];
    inner |= outcomes;
  }
  return inner != 0;
}

static void tree_walk_lanes(const tree_call_t* call, tree_lanes_t* lanes) {
  switch (call->state->outcomes) {
    case RABBET_TREE_LESS | RABBET_TREE_EQUAL:
      while (
          tree_step(call->nodes, lanes, RABBET_TREE_LESS | RABBET_TREE_EQUAL))
        ;
      return;
    case RABBET_TREE_LESS:
      while (tree_step(call->nodes, lanes, RABBET_TREE_LESS))
        ;
      return;
    default:
      while (tree_step(call->nodes, lanes, 0))
        ;
  }
}

static void tree_add_leaf(const tree_call_t* call, rabbet_tree_leaf_t leaf,
                          float* sums) {
  const rabbet_tree_ensemble_t* p = &call->state->ensemble;
  for (int32_t i = leaf.first; i < leaf.first + leaf.count; ++i) {
    int32_t target = call->targets[i];
    if (!call->state->is_safe && (target < 0 || target >= p->targets)) continue;
    sums[target] =
        rabbet_tree_add(p->aggregate, sums[target], call->weights[i]);
  }
}

static inline rabbet_tree_leaf_t tree_safe_leaf(const int32_t* node) {
  return (rabbet_tree_leaf_t){node[1], node[2]};
}

// One tree, several rows from `first` on.
static void tree_rows(const tree_call_t* call, int32_t root, int64_t first,
                      int64_t count, float* sums) {
  const rabbet_tree_ensemble_t* p = &call->state->ensemble;
  tree_lanes_t lanes;
  for (int64_t row = 0; row < count; row += LANES) {
    int64_t rows = rabbet_min_i64(LANES, count - row);
    for (int64_t i = 0; i < LANES; ++i) {
      int64_t at = first + row + rabbet_min_i64(i, rows - 1);
      lanes.x[i] = call->x + at * p->features;
      lanes.at[i] = root;
    }
    tree_walk_lanes(call, &lanes);
    for (int64_t i = 0; i < rows; ++i)
      tree_add_leaf(call,
                    tree_safe_leaf(call->nodes + 4 * (int64_t)lanes.at[i]),
                    sums + (row + i) * p->targets);
  }
}

// One row, trees [begin, end).
static void tree_trees(const tree_call_t* call, int64_t begin, int64_t end,
                       const float* x, float* sums) {
  tree_lanes_t lanes;
  for (int64_t tree = begin; tree < end; tree += LANES) {
    int64_t trees = rabbet_min_i64(LANES, end - tree);
    for (int64_t i = 0; i < LANES; ++i) {
      lanes.x[i] = x;
      lanes.at[i] = call->roots[tree + rabbet_min_i64(i, trees - 1)];
    }
    tree_walk_lanes(call, &lanes);
    for (int64_t i = 0; i < trees; ++i)
      tree_add_leaf(
          call, tree_safe_leaf(call->nodes + 4 * (int64_t)lanes.at[i]), sums);
  }
}

static void tree_checked(const tree_call_t* call, int64_t begin, int64_t end,
                         const float* x, float* sums) {
  for (int64_t tree = begin; tree < end; ++tree)
    tree_add_leaf(call,
                  rabbet_tree_walk(&call->state->ensemble, call->nodes,
                                   call->roots[tree], x),
                  sums);
}

// ---- Blocks ----------------------------------------------------------------

// Rows from `first` on, trees [begin, end), into sums.
static void tree_block(const tree_call_t* call, int64_t first, int64_t count,
                       int64_t begin, int64_t end, float* sums) {
  const rabbet_tree_ensemble_t* p = &call->state->ensemble;
  for (int64_t i = 0; i < count * p->targets; ++i)
    sums[i] = rabbet_tree_begin(p->aggregate);
  if (call->state->is_safe && count >= LANES)
    for (int64_t tree = begin; tree < end; ++tree)
      tree_rows(call, call->roots[tree], first, count, sums);
  for (int64_t row = 0; row < count; ++row) {
    const float* x = call->x + (first + row) * p->features;
    if (!call->state->is_safe)
      tree_checked(call, begin, end, x, sums + row * p->targets);
    else if (count < LANES)
      tree_trees(call, begin, end, x, sums + row * p->targets);
  }
}

// Items are blocks of rows, or parts of the trees.
static void tree_items(void* context, int64_t from, int64_t to) {
  const tree_call_t* call = context;
  const cpu_tree_ensemble_state_t* state = call->state;
  const rabbet_tree_ensemble_t* p = &state->ensemble;
  for (int64_t item = from; item < to; ++item) {
    int64_t first = state->parts > 1 ? 0 : item * ROWS;
    int64_t part = state->parts > 1 ? item : 0;
    int64_t count = rabbet_min_i64(ROWS, p->rows - first);
    int64_t begin = part * state->part;
    float* sums = call->sums ? call->sums + part * p->rows * p->targets
                             : call->y + first * p->targets;
    tree_block(call, first, count, begin,
               rabbet_min_i64(begin + state->part, p->trees), sums);
    for (int64_t i = 0; !call->sums && i < count * p->targets; ++i)
      sums[i] = rabbet_tree_finish(p, sums[i]);
  }
}

static void tree_combine(const tree_call_t* call) {
  const rabbet_tree_ensemble_t* p = &call->state->ensemble;
  int64_t count = p->rows * p->targets;
  for (int64_t i = 0; i < count; ++i) {
    float sum = call->sums[i];
    for (int64_t part = 1; part < call->state->parts; ++part)
      sum = rabbet_tree_add(p->aggregate, sum, call->sums[part * count + i]);
    call->y[i] = rabbet_tree_finish(p, sum);
  }
}

static rabbet_status_t cpu_tree_ensemble_enqueue(
    rabbet_kernel_t* base, cpu_tree_ensemble_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_tree_ensemble_t* p = &state->ensemble;
  tree_call_t run = {
      .state = state,
      .x = rabbet_node_input_at(kernel, call, RABBET_TREE_INPUT),
      .nodes = rabbet_node_input_at(kernel, call, RABBET_TREE_NODES),
      .roots = rabbet_node_input_at(kernel, call, RABBET_TREE_ROOTS),
      .targets = rabbet_node_input_at(kernel, call, RABBET_TREE_LEAF_TARGETS),
      .weights = rabbet_node_input_at(kernel, call, RABBET_TREE_LEAF_WEIGHTS),
      .y = rabbet_node_output(kernel, call, 0),
      .sums = state->parts > 1 ? call->workspace : NULL};
  // A walk takes some 8 steps, each as long as that many bytes to copy.
  int64_t walk = 8 * 64, block = rabbet_min_i64(ROWS, p->rows);
  int64_t work = rabbet_max_i64(1, block * state->part * walk);
  rabbet_cpu_parallel(
      state->parts > 1 ? state->parts : rabbet_ceildiv(p->rows, (int64_t)ROWS),
      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / work), tree_items, &run);
  if (run.sums) tree_combine(&run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_tree_ensemble, TREE_ENSEMBLE, 0)

RABBET_NODE_CLASS(cpu_tree_ensemble, "cpu.tree_ensemble", 1);
