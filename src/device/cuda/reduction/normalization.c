// (x - mean) / sqrt(variance + epsilon) * scale + bias: layer, instance, group
// and RMS normalization, and an activation of the result.
//
// Bound by the bytes of input and output. The input is read once if a row fits
// the registers of a block, otherwise twice, the second time from the cache. If
// there are few means, several blocks sum parts of each, and a second kernel
// combines them.
#include <assert.h>

#include "core/view.h"
#include "device/common/normalization.h"
#include "device/cuda/products/epilogue.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"
#include "device/cuda/reduction/axes.h"

#include "device/cuda/reduction/normalization_params.h"
#include "ops/enums.h"

// Constants of reduction/normalization.cu.
enum {
  BLOCK = 256,
  BLOCK_LOG = 8,
  HELD = 4,
  HELD_SINGLE = 8,
  HELD_FLAT = 6,
  MOST_COLUMNS = 4
};
enum { OPERANDS = 3, PART_BYTES = 12, LINE_BYTES = 8, LAUNCHES = 3 };

typedef enum normalize_function_t {
  ROWS,
  ROWS_HELD,
  ROWS_LONG,
  ROWS_PART,
  ROWS_APPLY,
  COLUMNS,
  COLUMNS_PART,
  COLUMNS_APPLY,
  ROWS_FLAT,  // of one vector per thread; up to HELD_FLAT vectors follow
  COLUMNS_HELD = ROWS_FLAT + HELD_FLAT,  // one for each of columns_held
  GROUPS_JOIN = COLUMNS_HELD + 5,        // by vectors alone
  GROUPS_APPLY,
  FUNCTIONS,
} normalize_function_t;
static const int64_t columns_held[] = {4, 6, 8, 12, 24};
static const char* const normalize_names[2 * FUNCTIONS] = {
    // single
    "rows_single",
    "rows_single",
    "rows_long_single",
    "rows_part_single",
    "rows_apply_single",
    "columns_single",
    "columns_part_single",
    "columns_apply_single",
    "rows_flat_1_single",
    "rows_flat_2_single",
    "rows_flat_3_single",
    "rows_flat_4_single",
    "rows_flat_5_single",
    "rows_flat_6_single",
    "columns_held_4_single",
    "columns_held_6_single",
    "columns_held_8_single",
    "columns_held_12_single",
    "columns_held_24_single",
    NULL,
    NULL,
    // vectors
    "rows",
    "rows_held",
    "rows_long",
    "rows_part",
    "rows_apply",
    "columns",
    "columns_part",
    "columns_apply",
    "rows_flat_1",
    "rows_flat_2",
    "rows_flat_3",
    "rows_flat_4",
    "rows_flat_5",
    "rows_flat_6",
    "columns_held_4",
    "columns_held_6",
    "columns_held_8",
    "columns_held_12",
    "columns_held_24",
    "groups_join",
    "groups_apply",
};

typedef struct cuda_normalize_t {
  rabbet_cuda_node_t base;
  int64_t vector, columns_vector;
  int64_t size[OPERANDS];  // bytes of an element; 0: absent
  int32_t at[OPERANDS];    // in the boundary
  float alpha, beta;       // of the activation
} cuda_normalize_t;

typedef struct normalize_launch_t {
  rabbet_cuda_launch_t launches[LAUNCHES];
  int names[LAUNCHES];  // of the functions
  int count;            // of launches
  normalize_t parameters;
} normalize_launch_t;

typedef struct cuda_normalization_state_t {
  normalize_launch_t vectors, single;  // vectors may have no launch: none
  int64_t alignment[OPERANDS];         // for vectors, in bytes
  bool empty;
} cuda_normalization_state_t;

// ---- Geometry --------------------------------------------------------------

typedef struct normalize_plan_t {
  rabbet_normalization_t layer;
  rabbet_axes_t outer, inner, moments;
  bool columns;
  int64_t width;  // columns: extent of the contiguous axis
  int64_t along[OPERANDS];
  int64_t outputs, count;
} normalize_plan_t;

static void normalize_place(normalize_plan_t* plan, const rabbet_box_t* box,
                            int32_t i) {
  const rabbet_normalization_t* layer = &plan->layer;
  int64_t strides[OPERANDS] = {box->stride[i], layer->strides[SCALE][i],
                               layer->strides[BIAS][i]};
  if (i != 1 || layer->groups == 1) {
    rabbet_axes_add(layer->mask >> i & 1 ? &plan->inner : &plan->outer,
                    box->extent[i], strides);
    return;
  }
  int64_t inside[OPERANDS], outside[OPERANDS];
  rabbet_normalization_split(layer, 1, strides, outside, inside);
  rabbet_axes_add(&plan->outer, layer->groups, outside);
  rabbet_axes_add(&plan->inner, layer->x->d[1] / layer->groups, inside);
}

// False if the kernels do not support the format.
static bool normalize_plan(normalize_plan_t* plan, rabbet_format_t format) {
  rabbet_box_t box;
  plan->outer = plan->inner = (rabbet_axes_t){.rank = 0};
  if (!rabbet_box(plan->layer.x, format, &box) ||
      box.rank != plan->layer.x->rank)
    return false;
  for (int32_t i = 0; i < box.rank; ++i)
    normalize_place(plan, &box, i);
  plan->moments = plan->inner;
  rabbet_axes_merge(&plan->outer, OPERANDS);
  rabbet_axes_merge(&plan->inner, OPERANDS);
  rabbet_axes_merge(&plan->moments, 1);
  plan->outputs = rabbet_axes_positions(&plan->outer);
  plan->count = rabbet_axes_positions(&plan->inner);
  plan->columns = rabbet_axes_contiguous(&plan->outer);
  plan->width = 1;
  if (plan->columns) {
    int32_t last = --plan->outer.rank;
    plan->width = plan->outer.extent[last];
    for (int k = 0; k < OPERANDS; ++k)
      plan->along[k] = plan->outer.stride[k][last];
  }
  return true;
}

// ---- Vectors ---------------------------------------------------------------

// The operand's stride along the input's contiguous axis.
static int64_t normalize_along(const normalize_plan_t* plan, int operand) {
  if (plan->columns) return plan->along[operand];
  return plan->inner.rank > 0
             ? plan->inner.stride[operand][plan->inner.rank - 1]
             : 0;
}

// Whether the operand's other strides are multiples of a vector.
static bool normalize_is_even(const normalize_plan_t* plan, int operand,
                              int64_t vector) {
  bool even = true;
  for (int32_t i = 0; i < plan->outer.rank; ++i)
    even = even && plan->outer.stride[operand][i] % vector == 0;
  int32_t inner = plan->inner.rank - (plan->columns ? 0 : 1);
  for (int32_t i = 0; i < inner; ++i)
    even = even && plan->inner.stride[operand][i] % vector == 0;
  return even;
}

static bool normalize_has_vectors(const cuda_normalize_t* kernel,
                                  const normalize_plan_t* plan,
                                  int64_t vector) {
  int64_t extent = plan->columns ? plan->width
                   : plan->inner.rank > 0
                       ? plan->inner.extent[plan->inner.rank - 1]
                       : 1;
  if (vector == 1 || extent % vector != 0 || normalize_along(plan, INPUT) != 1)
    return false;
  for (int k = 0; k < OPERANDS; ++k) {
    if (kernel->size[k] == 0) continue;
    int64_t along = normalize_along(plan, k);
    if (along != 0 && (along != 1 || !normalize_is_even(plan, k, vector)))
      return false;
  }
  return true;
}

// ---- Launches --------------------------------------------------------------

static int64_t normalize_parts(const cuda_normalize_t* kernel, int64_t blocks,
                               int64_t count, int64_t least) {
  assert(blocks > 0 && least > 0);
  int64_t processors = kernel->base.multiprocessors;
  if (blocks >= 2 * processors) return 1;
  int64_t wanted = rabbet_ceildiv(4 * processors, blocks);
  return rabbet_max_i64(1, rabbet_min_i64(wanted, count / least));
}

static void normalize_add(normalize_launch_t* out, int is_vector, int function,
                          const rabbet_cuda_launch_t* launch) {
  assert(out->count < LAUNCHES);
  out->names[out->count] = is_vector * FUNCTIONS + function;
  out->launches[out->count++] = *launch;
}

// Sets function `whole`, or, if means have parts, the two functions after it.
static void normalize_set(int is_vector, int whole, int64_t blocks,
                          int64_t parts, normalize_launch_t* out) {
  normalize_t* n = &out->parameters;
  n->part = (uint32_t)rabbet_ceildiv(n->count, parts);
  n->parts = (uint32_t)rabbet_ceildiv(n->count, rabbet_max_i64(n->part, 1));
  assert(blocks > 0 && blocks <= INT32_MAX && n->parts > 0);
  bool cut = n->parts > 1;
  const rabbet_cuda_launch_t launch = {
      .grid = {(unsigned)blocks, cut ? n->parts : 1, 1},
      .block = {BLOCK, 1, 1}};
  normalize_add(out, is_vector, whole + cut, &launch);
  if (cut) normalize_add(out, is_vector, whole + 2, &launch);
}

// Whether rows are contiguous, with scale and bias along each of them.
static bool normalize_is_flat(const cuda_normalize_t* kernel,
                              const normalize_plan_t* plan) {
  if (plan->inner.rank != 1 || plan->outer.rank > 1) return false;
  bool flat = plan->outer.rank == 0 ||
              plan->outer.stride[INPUT][0] == plan->inner.extent[0];
  for (int k = SCALE; k <= BIAS; ++k)
    flat = flat && (kernel->size[k] == 0 ||
                    (plan->inner.stride[k][0] == 1 &&
                     (plan->outer.rank == 0 || plan->outer.stride[k][0] == 0)));
  return flat;
}

// The log2 of threads for a row of so many vectors. Vectors of zeros beside the
// row's end take as many instructions as the row's, and more than 32 threads
// need barriers. Four threads load the 64 bytes that memory is best read in.
static uint32_t normalize_across(int64_t vectors) {
  uint32_t all = rabbet_cuda_log2(vectors), best = BLOCK_LOG;
  int64_t least = INT64_MAX;
  for (uint32_t log = all < 2 ? all : 2; log <= BLOCK_LOG; ++log) {
    int64_t held = rabbet_ceildiv(vectors, INT64_C(1) << log);
    int64_t cost = (held << log) * (log > 5 ? 9 : 8);
    if (held > HELD_FLAT || cost > least) continue;
    least = cost;
    best = log;
  }
  return best;
}

// One vector per thread if all threads are resident at once, as latency is the
// bound then. Otherwise threads hold as many vectors as wastes the fewest.
static void normalize_flat(const cuda_normalize_t* kernel,
                           const normalize_plan_t* plan, int is_vector,
                           int64_t vectors, normalize_launch_t* out) {
  enum { THREADS = 2048 };  // of a multiprocessor
  uint32_t log = rabbet_cuda_log2(vectors);
  if (log > BLOCK_LOG ||
      plan->outputs << log > (int64_t)THREADS * kernel->base.multiprocessors)
    log = normalize_across(vectors);
  int64_t held = rabbet_ceildiv(vectors, INT64_C(1) << log);
  assert(log <= BLOCK_LOG && held >= 1 && held <= HELD_FLAT);
  out->parameters.across_log = log;
  normalize_set(is_vector, ROWS_FLAT + (int)held - 1,
                rabbet_ceildiv(plan->outputs, BLOCK >> log), 1, out);
}

static void normalize_rows(const cuda_normalize_t* kernel,
                           const normalize_plan_t* plan, int64_t vector,
                           normalize_launch_t* out) {
  int64_t vectors = plan->count / vector;
  int64_t held = vector > 1 ? HELD : HELD_SINGLE;
  bool is_short = vector > 1 && vectors <= 32;
  out->parameters.count = (uint32_t)vectors;
  if (vectors <= HELD_FLAT * BLOCK && normalize_is_flat(kernel, plan)) {
    normalize_flat(kernel, plan, vector > 1, vectors, out);
    return;
  }
  if (vectors > held * BLOCK) {
    int64_t parts = normalize_parts(kernel, plan->outputs, vectors, BLOCK * 2);
    normalize_set(vector > 1, ROWS_LONG, plan->outputs, parts, out);
    return;
  }
  uint32_t log = rabbet_cuda_log2(rabbet_min_i64(vectors, 32));
  while (held << log < vectors)
    ++log;
  assert(log <= BLOCK_LOG);  // longer rows were taken by ROWS_LONG
  out->parameters.across_log = log;
  normalize_set(vector > 1, is_short ? ROWS : ROWS_HELD,
                rabbet_ceildiv(plan->outputs, BLOCK >> log), 1, out);
}

// Sets the threads side by side: 2^log.
static void normalize_tile(const normalize_plan_t* plan, int64_t vector,
                           uint32_t log, normalize_t* n) {
  assert(plan->width > 0 && plan->width % vector == 0);
  assert(plan->outputs % plan->width == 0 && log <= BLOCK_LOG);
  int64_t vectors = plan->width / vector;
  n->across_log = log;
  n->count = (uint32_t)plan->count;
  n->columns = (uint32_t)plan->width;
  n->column_vectors = (uint32_t)vectors;
  n->tiles = (uint32_t)rabbet_ceildiv(vectors, INT64_C(1) << log);
  for (int k = 0; k < OPERANDS; ++k)
    n->along[k] = plan->along[k];
}

// Columns in registers, by the most threads side by side that leave each few
// elements and give all multiprocessors work; false: there are too many.
static bool normalize_columns_held(const cuda_normalize_t* kernel,
                                   const normalize_plan_t* plan, int64_t vector,
                                   normalize_launch_t* out) {
  enum { KINDS = sizeof(columns_held) / sizeof(columns_held[0]), SECTOR = 32 };
  _Static_assert(COLUMNS_HELD + KINDS == GROUPS_JOIN, "a function of each");
  if (plan->inner.rank > 1) return false;
  for (int k = SCALE; k <= BIAS; ++k)
    if (kernel->size[k] > 0 && plan->along[k] != 0) return false;
  int64_t outer = plan->outputs / plan->width,
          processors = kernel->base.multiprocessors;
  uint32_t least =
      rabbet_cuda_log2(rabbet_ceildiv(SECTOR, vector * kernel->size[INPUT]));
  uint32_t log = 5;
  for (; log > least; --log) {
    int64_t tiles = rabbet_ceildiv(plan->width / vector, INT64_C(1) << log);
    if (tiles * outer >= 2 * processors &&
        plan->count <= columns_held[KINDS - 2] << (BLOCK_LOG - log))
      break;
  }
  int kind = 0;
  while (kind < KINDS && columns_held[kind] << (BLOCK_LOG - log) < plan->count)
    ++kind;
  if (kind == KINDS) return false;
  normalize_tile(plan, vector, log, &out->parameters);
  normalize_set(vector > 1, COLUMNS_HELD + kind, out->parameters.tiles * outer,
                1, out);
  return true;
}

static void normalize_columns(const cuda_normalize_t* kernel,
                              const normalize_plan_t* plan, int64_t vector,
                              normalize_launch_t* out) {
  if (normalize_columns_held(kernel, plan, vector, out)) return;
  int64_t vectors = plan->width / vector;
  uint32_t down = BLOCK_LOG - rabbet_cuda_log2(rabbet_min_i64(vectors, 32));
  while (down > 0 && INT64_C(1) << (down - 1) >= plan->count)
    --down;
  normalize_tile(plan, vector, BLOCK_LOG - down, &out->parameters);
  int64_t blocks = out->parameters.tiles * (plan->outputs / plan->width);
  normalize_set(
      vector > 1, COLUMNS, blocks,
      normalize_parts(kernel, blocks, plan->count, INT64_C(16) << down), out);
}

// The channels, last in memory, as columns, of which `each` share a mean; false
// where the layer's means are others.
static bool normalize_channels(const normalize_plan_t* plan,
                               rabbet_format_t format, normalize_plan_t* out,
                               int64_t* out_each) {
  const rabbet_normalization_t* layer = &plan->layer;
  *out = (normalize_plan_t){.layer = *layer};
  if (plan->columns || layer->groups < 2 || layer->by_group || layer->mask & 2)
    return false;
  out->layer.groups = 1;
  *out_each = layer->x->d[1] / layer->groups;
  return normalize_plan(out, format) && out->columns &&
         out->width == layer->x->d[1];
}

// Moments of columns, their groups' lines, and the result: three kernels, which
// read whole vectors whatever the number of a group's channels is.
static void normalize_groups(const cuda_normalize_t* kernel,
                             const normalize_plan_t* plan, int64_t each,
                             int64_t vector, normalize_launch_t* out) {
  normalize_t* n = &out->parameters;
  int64_t vectors = plan->width / vector;
  uint32_t down = BLOCK_LOG - rabbet_cuda_log2(rabbet_min_i64(vectors, 32));
  normalize_tile(plan, vector, BLOCK_LOG - down, n);
  int64_t outer = plan->outputs / plan->width, blocks = n->tiles * outer;
  int64_t parts =
      normalize_parts(kernel, blocks, plan->count, INT64_C(4) << down);
  n->part = (uint32_t)rabbet_ceildiv(plan->count, parts);
  n->parts = (uint32_t)rabbet_ceildiv(plan->count, (int64_t)n->part);
  n->each = (uint32_t)each;
  n->share = (float)(1.0 / ((double)plan->count * (double)each));
  const rabbet_cuda_launch_t all = {.grid = {(unsigned)blocks, n->parts, 1},
                                    .block = {BLOCK, 1, 1}},
                             join = {.grid = {(unsigned)(plan->outputs / each),
                                              1, 1},
                                     .block = {BLOCK, 1, 1}};
  normalize_add(out, 1, COLUMNS_PART, &all);
  normalize_add(out, 1, GROUPS_JOIN, &join);
  normalize_add(out, 1, GROUPS_APPLY, &all);
}

static void normalize_make(const cuda_normalize_t* kernel,
                           const normalize_plan_t* plan, int64_t each,
                           int64_t vector, normalize_launch_t* out) {
  const rabbet_group_node_t* node = plan->layer.node;
  int64_t step = plan->columns ? 1 : vector;
  out->parameters =
      (normalize_t){.outer = rabbet_cuda_axes_pack(&plan->outer, 1),
                    .inner = rabbet_cuda_axes_pack(&plan->inner, step),
                    .moments = rabbet_cuda_axes_pack(&plan->moments, step),
                    .epsilon = (float)rabbet_attr_float(
                        node->attrs, node->op->attr_count, "epsilon", 0),
                    .share = (float)(1.0 / (double)plan->count),
                    .alpha = kernel->alpha,
                    .beta = kernel->beta,
                    .outputs = (uint32_t)plan->outputs};
  for (int k = SCALE; k <= BIAS; ++k) {
    if (kernel->size[k] == 0) continue;
    if (normalize_along(plan, k) == 1) out->parameters.moves |= 1u << k;
  }
  if (each > 0)
    normalize_groups(kernel, plan, each, vector, out);
  else if (plan->columns)
    normalize_columns(kernel, plan, vector, out);
  else
    normalize_rows(kernel, plan, vector, out);
}

// ---- Proposing -------------------------------------------------------------

// The activation behind the normalization; *out_name NULL: there is none. False
// if other layers follow.
static bool normalize_activation(const rabbet_group_t* group,
                                 const rabbet_dims_t* dims,
                                 rabbet_cuda_item_t* out_item,
                                 const char** out_name) {
  rabbet_cuda_epilogue_t e;
  *out_name = NULL;
  if (!rabbet_cuda_epilogue_parse(group, dims, 1, group->nodes[0].outputs[0],
                                  &e) ||
      e.count > 1)
    return false;
  if (e.count == 0) return true;
  *out_item = e.items[0];
  if (out_item->kind == RABBET_CUDA_ITEM_SWISH)
    *out_name = "SWISH";
  else if (out_item->kind == RABBET_CUDA_ITEM_ACTIVATION)
    *out_name = rabbet_op_enumerator_name(
        &rabbet_op_get(RABBET_OP_ACTIVATION)->attrs[0], out_item->op);
  return *out_name != NULL;
}

static rabbet_status_t normalize_offer(rabbet_proposal_t* proposal,
                                       normalize_plan_t* plan) {
  static const rabbet_format_t formats[] = {
      RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC, RABBET_FORMAT_HWC8};
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      proposal->propose, group->values[proposal->node->inputs[INPUT]].dtype,
      types);
  for (int i = 0; i < 3 * count; ++i) {
    if (!normalize_plan(plan, formats[i % 3])) continue;
    rabbet_proposal_set_input(proposal, INPUT, types[i / 3], formats[i % 3]);
    rabbet_proposal_set_output(proposal, types[i / 3], formats[i % 3]);
    RABBET_RETURN_IF_ERROR(
        rabbet_proposal_offer(proposal, plan->columns ? "columns" : "rows", 0));
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_normalization_body(rabbet_proposal_t* proposal) {
  const rabbet_propose_t* propose = proposal->propose;
  rabbet_dims_t* dims = NULL;
  normalize_plan_t plan;
  rabbet_cuda_item_t item;
  const char* name = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(propose->group, propose->allocator, &dims));
  rabbet_status_t status =
      rabbet_normalization_read(propose->group, dims, &plan.layer);
  if (rabbet_is_ok(status) &&
      normalize_activation(propose->group, dims, &item, &name))
    status = normalize_offer(proposal, &plan);
  rabbet_free(propose->allocator, dims);
  return status;
}

// Rejects scales and biases that are the input itself: they would need another
// type.
static bool normalize_fits(const rabbet_group_t* group) {
  const rabbet_group_node_t* node = &group->nodes[0];
  if (group->node_count == 0 || group->output_count != 1 ||
      !rabbet_op_is(node->op, RABBET_OP_NORMALIZATION))
    return false;
  for (size_t i = SCALE; i <= BIAS; ++i) {
    if (rabbet_node_input(node, i) == node->inputs[INPUT]) return false;
  }
  return true;
}

static rabbet_status_t cuda_normalization_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  if (!normalize_fits(propose->group)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_normalization, NULL,
                              cuda_normalization_body);
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t normalize_types(cuda_normalize_t* kernel,
                                       const rabbet_group_t* group,
                                       rabbet_cuda_options_t* options) {
  static const char* const names[OPERANDS] = {"ELEMENT", "SCALE_TYPE",
                                              "BIAS_TYPE"};
  const rabbet_group_node_t* node = &group->nodes[0];
  for (int k = 0; k < OPERANDS; ++k) {
    int32_t value = rabbet_node_input(node, (size_t)k);
    rabbet_dtype_t dtype = RABBET_DTYPE_FLOAT;
    if (value >= 0) {
      dtype = group->values[value].dtype;
      kernel->size[k] = rabbet_dtype_bits(dtype) / 8;
      kernel->at[k] = rabbet_group_input_of(group, value);
    }
    if (!rabbet_dtype_is_float(dtype) || !rabbet_cuda_type(dtype))
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "layer '%s': there is no normalization of type %s",
                           node->name, rabbet_dtype_name(dtype));
    rabbet_cuda_option(options, "-D%s=%s", names[k], rabbet_cuda_type(dtype));
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_normalization_program(
    rabbet_cuda_node_t* base, const rabbet_kernel_spec_t* spec) {
  cuda_normalize_t* kernel = (cuda_normalize_t*)base;
  const rabbet_group_t* group = spec->group;
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_dims_t* dims = NULL;
  rabbet_cuda_item_t item = {.operand = -1};
  const char* activation = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_group_opt_dims(group, spec->allocator, &dims));
  bool fits = normalize_fits(group) &&
              normalize_activation(group, dims, &item, &activation);
  rabbet_free(spec->allocator, dims);
  if (!fits)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the group is no normalization");
  kernel->alpha = item.alpha;
  kernel->beta = item.beta;
  if (activation) rabbet_cuda_option(&options, "-DACTIVATION=%s", activation);
  RABBET_RETURN_IF_ERROR(normalize_types(kernel, group, &options));
  if (group->values[group->outputs[0]].dtype !=
      group->values[group->nodes[0].inputs[INPUT]].dtype)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s': input and output have different types",
                         group->nodes[0].name);
  kernel->vector = 16 / kernel->size[INPUT];
  kernel->columns_vector = rabbet_min_i64(kernel->vector, MOST_COLUMNS);
  rabbet_cuda_option(&options, "-DVECTOR=%d", (int)kernel->vector);
  int present = 0;
  for (int k = SCALE; k <= BIAS; ++k)
    present |= (kernel->size[k] > 0) << k;
  rabbet_cuda_option(&options, "-DPRESENT=%d", present);
  rabbet_cuda_option(&options, "-DCENTRED=%d",
                     rabbet_node_int(base->node.node, "is_rms") == 0);
  return rabbet_cuda_node_split(base, spec, "reduction/normalization.cu",
                                normalize_names, 2 * FUNCTIONS, &options);
}

// ---- Preparing and running -------------------------------------------------

static rabbet_format_t normalize_format(const cuda_normalize_t* kernel) {
  const rabbet_group_t* group = kernel->base.node.group;
  return group->values[group->nodes[0].inputs[INPUT]].format;
}

static rabbet_status_t normalize_check(const cuda_normalize_t* kernel,
                                       normalize_plan_t* plan) {
  const rabbet_group_node_t* node = plan->layer.node;
  rabbet_format_t format = normalize_format(kernel);
  if (normalize_plan(plan, format) &&
      plan->outputs < RABBET_CUDA_MAX_COUNT - BLOCK &&
      plan->count < RABBET_CUDA_MAX_COUNT - BLOCK)
    return rabbet_ok();
  char text[128];
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "layer '%s': the kernel does not take shape %s in "
                       "format %s, or so many elements",
                       node->name,
                       rabbet_dims_print(plan->layer.x, text, sizeof(text)),
                       rabbet_format_name(format));
}

static size_t normalize_workspace(const normalize_launch_t* launch) {
  const normalize_t* n = &launch->parameters;
  size_t lines = n->each > 0 ? n->outputs / n->each * LINE_BYTES : 0;
  return launch->count > 1 ? (size_t)n->parts * n->outputs * PART_BYTES + lines
                           : 0;
}

static rabbet_status_t normalize_functions(const cuda_normalize_t* kernel,
                                           normalize_launch_t* launch) {
  for (int i = 0; i < launch->count; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_make(&kernel->base, (size_t)launch->names[i],
                              &launch->launches[i].function));
  return rabbet_ok();
}

static rabbet_status_t cuda_normalization_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_normalization_state_t** out_state, size_t* out_workspace) {
  const cuda_normalize_t* kernel = (const cuda_normalize_t*)base;
  normalize_plan_t plan;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(rabbet_normalization_read(kernel->base.node.group,
                                                   shapes->dims, &plan.layer));
  RABBET_RETURN_IF_ERROR(normalize_check(kernel, &plan));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cuda_normalization_state_t* state = *out_state;
  state->empty = plan.outputs == 0 || plan.count == 0;
  if (state->empty) return rabbet_ok();
  normalize_make(kernel, &plan, 0, 1, &state->single);
  normalize_plan_t channels;
  int64_t each = 0;
  bool grouped =
      normalize_channels(&plan, normalize_format(kernel), &channels, &each) &&
      channels.outputs < RABBET_CUDA_MAX_COUNT - BLOCK &&
      normalize_has_vectors(kernel, &channels, kernel->columns_vector);
  const normalize_plan_t* wide = grouped ? &channels : &plan;
  int64_t vector = wide->columns ? kernel->columns_vector : kernel->vector;
  if (normalize_has_vectors(kernel, wide, vector)) {
    normalize_make(kernel, wide, grouped ? each : 0, vector, &state->vectors);
    for (int k = 0; k < OPERANDS; ++k) {
      if (normalize_along(wide, k) == 1)
        state->alignment[k] = vector * kernel->size[k];
    }
  }
  size_t single = normalize_workspace(&state->single);
  size_t vectors = normalize_workspace(&state->vectors);
  *out_workspace = single > vectors ? single : vectors;
  RABBET_RETURN_IF_ERROR(normalize_functions(kernel, &state->single));
  return normalize_functions(kernel, &state->vectors);
}

static rabbet_status_t cuda_normalization_enqueue(
    rabbet_kernel_t* base, cuda_normalization_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_normalize_t* kernel = (const cuda_normalize_t*)base;
  const rabbet_cuda_device_t* device = kernel->base.device;
  void *operands[OPERANDS] = {NULL}, *target = call->outputs[0];
  if (state->empty) return rabbet_ok();
  bool vectors = state->vectors.count > 0 &&
                 rabbet_cuda_is_aligned(target, state->alignment[INPUT]);
  for (int k = 0; k < OPERANDS; ++k) {
    if (kernel->size[k] == 0) continue;
    operands[k] = call->inputs[kernel->at[k]];
    if (state->alignment[k] > 0 &&
        !rabbet_cuda_is_aligned(operands[k], state->alignment[k]))
      vectors = false;
  }
  normalize_launch_t* launch = vectors ? &state->vectors : &state->single;
  void* workspace = call->workspace;
  void* parameters[] = {&operands[INPUT], &operands[SCALE],
                        &operands[BIAS],  &target,
                        &workspace,       &launch->parameters};
  for (int i = 0; i < launch->count; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_cuda_launch(device, &launch->launches[i],
                                              parameters, call->stream));
  return rabbet_ok();
}

static bool cuda_normalization_takes(const rabbet_kernel_spec_t* spec) {
  return normalize_fits(spec->group) &&
         rabbet_takes_tensors(
             spec->group, RABBET_TAKES_ONE_FORMAT | RABBET_TAKES_OTHER_TYPES);
}

RABBET_CUDA_NODE_CLASS(cuda_normalization, cuda_normalize_t,
                       "cuda.normalization", 6);
