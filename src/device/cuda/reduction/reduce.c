// Reductions over any axes, with some element-wise layers of floats before and
// after them: norms, means of functions.
//
// Bound by the bytes of the input, which is read once, with four vectors of
// each thread in flight. If outputs are few, each is computed in parts that
// fill the device, and a second kernel combines them.
#include <assert.h>

#include <stdio.h>
#include <string.h>

#include "core/view.h"
#include "device/common/box.h"
#include "device/cuda/products/epilogue.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"
#include "device/cuda/reduction/axes.h"
#include "ops/enums.h"

#include "device/cuda/reduction/reduce_params.h"

// Constants of reduction/reduce.cu.
enum { BLOCK = 256, BLOCK_LOG = 8, MOST_COLUMNS = 8 };

typedef enum reduce_function_t {
  ROWS,  // by whole vectors, by halves and by quarters of them
  ROWS_PART,
  ROWS_HALF,
  ROWS_HALF_PART,
  ROWS_QUARTER,
  ROWS_QUARTER_PART,
  ROWS_SINGLE,
  ROWS_SINGLE_PART,
  COLUMNS,  // likewise, of COLUMNS elements
  COLUMNS_PART,
  COLUMNS_HALF,
  COLUMNS_HALF_PART,
  COLUMNS_SINGLE,
  COLUMNS_SINGLE_PART,
  FINISH,
  FUNCTIONS,
} reduce_function_t;
static const char* const reduce_names[FUNCTIONS] = {
    "rows",           "rows_part",           "rows_half",
    "rows_half_part", "rows_quarter",        "rows_quarter_part",
    "rows_single",    "rows_single_part",    "columns",
    "columns_part",   "columns_half",        "columns_half_part",
    "columns_single", "columns_single_part", "finish",
};

// An element-wise layer as an expression of x, and its numbers.
typedef struct reduce_step_t {
  char text[48];
  float numbers[REDUCE_NUMBERS];
} reduce_step_t;

// The group: layers, the reduction, layers.
typedef struct reduce_parts_t {
  const rabbet_group_node_t* node;
  int32_t x, y;   // boundary values
  bool converts;  // there are layers that do no more
  int counts[2];
  reduce_step_t steps[2][REDUCE_STEPS];
} reduce_parts_t;

typedef struct cuda_reduce_t {
  rabbet_cuda_node_t base;
  int64_t size, vector, columns_vector, cell_size;
  int64_t result_size;
} cuda_reduce_t;

typedef struct reduce_launch_t {
  reduce_function_t name;
  rabbet_cuda_launch_t launch;
  reduce_t parameters;
} reduce_launch_t;

typedef struct cuda_reduce_state_t {
  // With vectors (function NULL: shapes do not allow it), without vectors, and
  // the kernel that combines the parts.
  reduce_launch_t vectors, single, finish;
  int64_t alignment, target_alignment;  // for vectors, in bytes
  int x;                                // boundary input
  bool empty, has_parts;
} cuda_reduce_state_t;

// ---- The group -------------------------------------------------------------

static const char* reduce_enumerator(rabbet_op_id_t op, int64_t value) {
  return rabbet_op_enumerator_name(&rabbet_op_get(op)->attrs[0], value);
}

// Sets the text of a step from a layer with at most constant numbers; `place`
// is the place of its numbers. False if there is no such step.
static bool reduce_describe(const rabbet_group_t* group,
                            const rabbet_cuda_item_t* item, int place,
                            reduce_step_t* out) {
  const char* name = NULL;
  double number = 0;
  switch (item->kind) {
    case RABBET_CUDA_ITEM_UNARY:
      name = reduce_enumerator(RABBET_OP_UNARY, item->op);
      snprintf(out->text, sizeof(out->text), "unary_%s(x)", name ? name : "");
      return name != NULL;
    case RABBET_CUDA_ITEM_ACTIVATION:
      name = reduce_enumerator(RABBET_OP_ACTIVATION, item->op);
      out->numbers[0] = item->alpha;
      out->numbers[1] = item->beta;
      return name && snprintf(out->text, sizeof(out->text),
                              "activation_%s(x,r.numbers[%d],r.numbers[%d])",
                              name, place, place + 1) < (int)sizeof(out->text);
    case RABBET_CUDA_ITEM_ELEMENTWISE:
      name = reduce_enumerator(RABBET_OP_ELEMENTWISE, item->op);
      if (!name || !rabbet_cuda_is_number(group, item->operand, &number))
        return false;
      out->numbers[0] = (float)number;
      return snprintf(out->text, sizeof(out->text),
                      item->reversed ? "elementwise_%s(r.numbers[%d],x)"
                                     : "elementwise_%s(x,r.numbers[%d])",
                      name, place) < (int)sizeof(out->text);
    case RABBET_CUDA_ITEM_SWISH:
      break;
  }
  return false;
}

static bool reduce_is_square(const rabbet_group_node_t* node, int32_t x) {
  return rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE) &&
         rabbet_node_int(node, "op") == RABBET_ELEMENTWISE_PROD &&
         node->inputs[0] == x && node->inputs[1] == x;
}

// Whether the arithmetic, which is in FLOAT, needs nothing for a conversion:
// the type has all numbers of the other one, or the result is written in it.
static bool reduce_converts_for_free(const rabbet_group_t* group, int32_t x,
                                     int32_t y) {
  rabbet_dtype_t from = group->values[x].dtype, to = group->values[y].dtype;
  return from == to || rabbet_dtype_bits(to) > rabbet_dtype_bits(from) ||
         y == group->outputs[0];
}

// Appends a layer that computes from the value `x`.
static bool reduce_push(const rabbet_group_t* group,
                        const rabbet_group_node_t* node, int32_t x, int side,
                        reduce_parts_t* out) {
  if (node->output_count != 1 ||
      !rabbet_dtype_is_float(group->values[x].dtype) ||
      !rabbet_dtype_is_float(group->values[node->outputs[0]].dtype))
    return false;
  if (rabbet_op_is(node->op, RABBET_OP_CAST)) {
    out->converts = true;
    return node->inputs[0] == x &&
           reduce_converts_for_free(group, x, node->outputs[0]);
  }
  if (out->counts[side] == REDUCE_STEPS) return false;
  int at = out->counts[side]++;
  reduce_step_t* step = &out->steps[side][at];
  rabbet_cuda_item_t item;
  int uses = 0;
  *step = (reduce_step_t){.text = "x*x"};
  if (reduce_is_square(node, x)) return true;
  for (size_t i = 0; i < node->input_count; ++i)
    uses += node->inputs[i] == x;
  return uses == 1 && rabbet_cuda_epilogue_item(group, node, x, &item) &&
         reduce_describe(group, &item,
                         (side * REDUCE_STEPS + at) * REDUCE_NUMBERS, step);
}

static bool reduce_parse(const rabbet_group_t* group, reduce_parts_t* out) {
  memset(out, 0, sizeof(*out));
  if (group->node_count == 0 || group->output_count != 1 ||
      group->nodes[0].input_count == 0)
    return false;
  int32_t value = out->x = group->nodes[0].inputs[0];
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    if (!rabbet_op_is(node->op, RABBET_OP_REDUCE)) {
      if (!reduce_push(group, node, value, out->node != NULL, out))
        return false;
    } else if (out->node || node->inputs[0] != value) {
      return false;
    } else {
      out->node = node;
    }
    value = node->outputs[0];
  }
  out->y = value;
  // Products are computed in double, whose functions these are not.
  return out->node && group->outputs[0] == value &&
         rabbet_group_input_of(group, out->x) >= 0 &&
         (group->node_count == 1 ||
          rabbet_node_int(out->node, "op") != RABBET_REDUCE_PROD);
}

// Whether the kernels have the types, which differ where layers convert floats.
static bool reduce_takes_types(const reduce_parts_t* parts, rabbet_dtype_t x,
                               rabbet_dtype_t y) {
  bool converts =
      parts->converts && rabbet_dtype_is_float(x) && rabbet_dtype_is_float(y);
  return rabbet_cuda_type(x) && rabbet_cuda_type(y) && (x == y || converts);
}

// ---- Geometry --------------------------------------------------------------

typedef struct reduce_plan_t {
  bool columns;                 // the contiguous axis is kept
  rabbet_axes_t kept, reduced;  // strides: source, target
  rabbet_axes_t outer;          // kept without the columns
  int64_t width, outputs, positions;
} reduce_plan_t;

// False if the formats do not suit the shapes.
static bool reduce_plan(const rabbet_group_node_t* node,
                        const rabbet_dims_t* in, const rabbet_dims_t* out,
                        rabbet_format_t from, rabbet_format_t to,
                        reduce_plan_t* plan) {
  rabbet_box_t source, target;
  int64_t mask = rabbet_node_int(node, "axes");
  bool keep = rabbet_node_int(node, "keep_dims") != 0;
  if (!rabbet_box(in, from, &source) || !rabbet_box(out, to, &target))
    return false;
  // Blocks of channels are kept whole.
  bool blocked = source.rank != in->rank || target.rank != out->rank;
  if (blocked && (from != to || !keep || (mask >> 1 & 1))) return false;
  *plan = (reduce_plan_t){.width = 1};
  int32_t at = 0;
  for (int32_t i = 0; i < source.rank; ++i) {
    bool reduced = mask >> source.axis[i] & 1;
    int64_t strides[AXES_OPERANDS] = {source.stride[i],
                                      reduced ? 0 : target.stride[at]};
    rabbet_axes_add(reduced ? &plan->reduced : &plan->kept, source.extent[i],
                    strides);
    if (!reduced || keep) ++at;
  }
  rabbet_axes_merge(&plan->kept, 2);
  rabbet_axes_merge(&plan->reduced, 1);
  assert(at == target.rank);
  plan->outputs = rabbet_axes_positions(&plan->kept);
  plan->positions = rabbet_axes_positions(&plan->reduced);
  plan->outer = plan->kept;
  plan->columns = rabbet_axes_contiguous(&plan->kept);
  if (plan->columns) plan->width = plan->outer.extent[--plan->outer.rank];
  return true;
}

// The strides of the target over all outputs.
static rabbet_axes_t reduce_targets(const reduce_plan_t* plan) {
  rabbet_axes_t targets = plan->kept;
  for (int32_t i = 0; i < targets.rank; ++i)
    targets.stride[0][i] = targets.stride[1][i];
  rabbet_axes_merge(&targets, 1);
  return targets;
}

// The number of parts that keeps the device busy: some blocks per
// multiprocessor, each with enough work.
static int64_t reduce_parts(const cuda_reduce_t* kernel, int64_t blocks,
                            int64_t positions, int64_t least) {
  assert(blocks > 0 && least > 0);
  int64_t wanted = rabbet_ceildiv(4 * kernel->base.multiprocessors, blocks);
  int64_t most = rabbet_max_i64(1, positions / least);
  int64_t parts = rabbet_min_i64(rabbet_min_i64(wanted, most), 4096);
  return blocks >= 2 * kernel->base.multiprocessors ? 1 : parts;
}

static void reduce_fill(const reduce_plan_t* plan, int64_t count,
                        int64_t blocks, int64_t parts, int function,
                        reduce_launch_t* out) {
  reduce_t* r = &out->parameters;
  rabbet_axes_t targets = reduce_targets(plan);
  r->targets = rabbet_cuda_axes_pack(&targets, 1);
  r->elements = plan->positions;
  r->outputs = (uint32_t)plan->outputs;
  r->count = (uint32_t)count;
  r->part = (uint32_t)rabbet_ceildiv(count, parts);
  parts = count > 0 ? rabbet_ceildiv(count, r->part) : 1;
  assert(parts == 1 || (function != FINISH && (parts - 1) * r->part < count));
  bool is_dense =
      targets.rank == 0 || (targets.rank == 1 && targets.stride[0][0] == 1);
  r->packed = is_dense;
  out->name = function + (parts > 1);
  out->launch = (rabbet_cuda_launch_t){
      .grid = {(unsigned)blocks, (unsigned)parts, 1}, .block = {BLOCK, 1, 1}};
}

// Threads per row: so many that none has more than a few vectors, unless there
// are enough rows.
static void reduce_rows(const cuda_reduce_t* kernel, const reduce_plan_t* plan,
                        int64_t vector, reduce_launch_t* out) {
  assert(plan->positions % vector == 0);
  int64_t count = plan->positions / vector;
  int64_t threads = (int64_t)kernel->base.multiprocessors * 2048;
  uint32_t log = rabbet_cuda_log2(rabbet_min_i64(count, 32));
  while (log < BLOCK_LOG && count > INT64_C(4) << log &&
         (plan->outputs << log < threads || count > INT64_C(32) << log))
    ++log;
  int64_t blocks = rabbet_ceildiv(plan->outputs, BLOCK >> log);
  int64_t parts = reduce_parts(kernel, blocks, count, BLOCK * 8);
  int function = ROWS_SINGLE;
  if (vector > 1)
    function = kernel->vector == vector       ? ROWS
               : kernel->vector == 2 * vector ? ROWS_HALF
                                              : ROWS_QUARTER;
  reduce_fill(plan, count, blocks, parts, function, out);
  out->parameters.reduced = rabbet_cuda_axes_pack(&plan->reduced, vector);
  out->parameters.kept = rabbet_cuda_axes_pack(&plan->kept, 1);
  out->parameters.across_log = log;
}

static void reduce_columns(const cuda_reduce_t* kernel,
                           const reduce_plan_t* plan, int64_t vector,
                           reduce_launch_t* out) {
  assert(plan->width > 0 && plan->width % vector == 0);
  assert(plan->outputs % plan->width == 0);
  int64_t vectors = plan->width / vector, outer = plan->outputs / plan->width;
  uint32_t down = BLOCK_LOG - rabbet_cuda_log2(rabbet_min_i64(vectors, 32));
  while (down > 0 && INT64_C(1) << (down - 1) >= plan->positions)
    --down;
  assert(down <= BLOCK_LOG);
  uint32_t log = BLOCK_LOG - down;
  int64_t tiles = rabbet_ceildiv(vectors, INT64_C(1) << log);
  int64_t parts =
      reduce_parts(kernel, tiles * outer, plan->positions, INT64_C(16) << down);
  int function = COLUMNS_SINGLE;
  if (vector > 1)
    function = kernel->columns_vector == vector ? COLUMNS : COLUMNS_HALF;
  reduce_fill(plan, plan->positions, tiles * outer, parts, function, out);
  out->parameters.reduced = rabbet_cuda_axes_pack(&plan->reduced, 1);
  out->parameters.kept = rabbet_cuda_axes_pack(&plan->outer, 1);
  out->parameters.columns = (uint32_t)plan->width;
  out->parameters.column_vectors = (uint32_t)vectors;
  out->parameters.tiles = (uint32_t)tiles;
  out->parameters.across_log = log;
}

// The parts are rows of the workspace, their outputs columns.
static void reduce_finish(const cuda_reduce_t* kernel,
                          const reduce_plan_t* plan, int64_t parts,
                          reduce_launch_t* out) {
  assert(parts > 1);
  reduce_plan_t joined = *plan;
  int64_t strides[AXES_OPERANDS] = {plan->outputs};
  joined.reduced = joined.outer = (rabbet_axes_t){.rank = 0};
  rabbet_axes_add(&joined.reduced, parts, strides);
  joined.positions = parts;
  joined.width = plan->outputs;
  reduce_columns(kernel, &joined, 1, out);
  out->name = FINISH;
  out->launch.grid[1] = 1;
  out->parameters.part = out->parameters.count;
  out->parameters.elements = plan->positions;
}

// The most elements, at most `vector`, that rows or columns have as whole
// vectors of aligned memory.
static int64_t reduce_fitting(const reduce_plan_t* plan, int64_t vector) {
  const rabbet_axes_t* along = plan->columns ? &plan->kept : &plan->reduced;
  const rabbet_axes_t* across = plan->columns ? &plan->reduced : &plan->kept;
  if (!rabbet_axes_contiguous(along)) return 1;
  for (; vector > 1; vector /= 2) {
    bool fits = rabbet_cuda_axes_fit(along, vector, 1);
    for (int32_t i = 0; i < across->rank; ++i)
      fits = fits && across->stride[0][i] % vector == 0;
    if (fits) break;
  }
  return vector;
}

static void reduce_vectors(const cuda_reduce_t* kernel,
                           const reduce_plan_t* plan,
                           cuda_reduce_state_t* state) {
  int64_t most = plan->columns ? kernel->columns_vector : kernel->vector;
  int64_t vector = reduce_fitting(plan, most);
  // Columns have two widths of vectors, rows three.
  if (vector == 1 || (plan->columns ? 2 * vector < most : 4 * vector < most))
    return;
  state->alignment = vector * kernel->size;
  if (plan->columns)
    reduce_columns(kernel, plan, vector, &state->vectors);
  else
    reduce_rows(kernel, plan, vector, &state->vectors);
  if (plan->columns && state->vectors.parameters.packed)
    state->target_alignment = vector * kernel->result_size;
}

// ---- Proposing -------------------------------------------------------------

// Constants are numbers, which keep their type, and types that differ stay.
static void reduce_set(rabbet_proposal_t* proposal, const reduce_parts_t* parts,
                       rabbet_dtype_t dtype, rabbet_format_t from,
                       rabbet_format_t to) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_value_t *x = &group->values[parts->x],
                             *y = &group->values[parts->y];
  bool same = x->dtype == y->dtype;
  proposal->tensors[rabbet_group_input_of(group, parts->x)] =
      (rabbet_type_format_t){same ? dtype : x->dtype, from};
  rabbet_proposal_set_output(proposal, same ? dtype : y->dtype, to);
}

static rabbet_status_t cuda_reduce_body(rabbet_proposal_t* proposal) {
  const reduce_parts_t* parts = proposal->context;
  rabbet_format_t formats[RABBET_CUDA_FORMATS];
  int n = rabbet_cuda_formats(RABBET_DTYPE_HALF, proposal->propose->formats,
                              formats);
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_dims_t* in = &group->values[parts->x].dims;
  const rabbet_dims_t* out = &group->values[parts->y].dims;
  rabbet_dtype_t types[4];
  rabbet_dtype_t x = group->values[parts->x].dtype;
  int count = rabbet_compute_types(proposal->propose, x, types);
  if (x != group->values[parts->y].dtype) count = 1;
  for (int i = 1; i < 2 * n; ++i) {
    rabbet_format_t from = formats[i / 2];
    rabbet_format_t to = i % 2 ? from : RABBET_FORMAT_LINEAR;
    reduce_plan_t plan;
    if (!reduce_plan(parts->node, in, out, from, to, &plan)) continue;
    for (int t = 0; t < count; ++t) {
      reduce_set(proposal, parts, types[t], from, to);
      RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(
          proposal, plan.columns ? "columns" : "rows", -1));
    }
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_reduce_propose(const rabbet_propose_t* propose,
                                           rabbet_candidate_sink_t sink) {
  reduce_parts_t parts;
  if (!reduce_parse(propose->group, &parts) ||
      !reduce_takes_types(&parts, propose->group->values[parts.x].dtype,
                          propose->group->values[parts.y].dtype))
    return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_reduce, &parts,
                              cuda_reduce_body);
}

// ---- The program -----------------------------------------------------------

static const char* reduce_lane(rabbet_dtype_t dtype, int64_t op) {
  // Products are double: partial products in float could overflow.
  if (rabbet_dtype_is_float(dtype))
    return op == RABBET_REDUCE_PROD ? "double" : "float";
  return dtype == RABBET_DTYPE_INT64 || op == RABBET_REDUCE_AVG ? "int64_t"
                                                                : "int32_t";
}

static const char* reduce_identity(rabbet_dtype_t dtype, int64_t op) {
  bool highest = op == RABBET_REDUCE_MIN;
  if (op == RABBET_REDUCE_PROD) return "1";
  if (op != RABBET_REDUCE_MAX && op != RABBET_REDUCE_MIN) return "0";
  switch (dtype) {
    case RABBET_DTYPE_INT8:
      return highest ? "127" : "(-128)";
    case RABBET_DTYPE_UINT8:
      return highest ? "255" : "0";
    case RABBET_DTYPE_INT32:
      return highest ? "2147483647" : "(-2147483647-1)";
    case RABBET_DTYPE_INT64:
      return highest ? "9223372036854775807ll" : "(-9223372036854775807ll-1)";
    default:
      return highest ? "INFINITE" : "(-INFINITE)";
  }
}

static rabbet_status_t cuda_reduce_program(rabbet_cuda_node_t* base,
                                           const rabbet_kernel_spec_t* spec) {
  cuda_reduce_t* kernel = (cuda_reduce_t*)base;
  reduce_parts_t parts;
  if (!reduce_parse(spec->group, &parts))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the group is no reduction");
  const rabbet_group_node_t* node = parts.node;
  rabbet_dtype_t dtype = spec->group->values[parts.x].dtype;
  rabbet_dtype_t result = spec->group->values[parts.y].dtype;
  int64_t op = rabbet_node_int(node, "op");
  if (!reduce_takes_types(&parts, dtype, result) || op < 0 ||
      op >= RABBET_REDUCE_COUNT)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s': there is no reduction %d of type %s",
                         node->name, (int)op, rabbet_dtype_name(dtype));
  const char* lane = reduce_lane(dtype, op);
  kernel->size = rabbet_dtype_bits(dtype) / 8;
  kernel->result_size = rabbet_dtype_bits(result) / 8;
  kernel->vector = 16 / kernel->size;
  kernel->columns_vector = rabbet_min_i64(kernel->vector, MOST_COLUMNS);
  kernel->cell_size = lane[0] == 'f' || lane[3] == '3' ? 4 : 8;
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(dtype));
  rabbet_cuda_option(&options, "-DRESULT=%s", rabbet_cuda_type(result));
  rabbet_cuda_option(&options, "-DACC=%s", lane);
  rabbet_cuda_option(&options, "-DOP=%d", (int)op);
  rabbet_cuda_option(&options, "-DIDENTITY=%s", reduce_identity(dtype, op));
  rabbet_cuda_option(&options, "-DVECTOR=%d", (int)kernel->vector);
  if (parts.counts[0] + parts.counts[1] > 0)
    rabbet_cuda_option(&options, "-DSTEPS");
  for (int side = 0; side < 2; ++side)
    for (int i = 0; i < parts.counts[side]; ++i)
      rabbet_cuda_option(&options, "-D%s_%d=%s", side ? "AFTER" : "BEFORE", i,
                         parts.steps[side][i].text);
  return rabbet_cuda_node_split(base, spec, "reduction/reduce.cu", reduce_names,
                                FUNCTIONS, &options);
}

// ---- Preparing -------------------------------------------------------------

static rabbet_status_t reduce_read(const cuda_reduce_t* kernel,
                                   const reduce_parts_t* parts,
                                   const rabbet_kernel_shapes_t* shapes,
                                   reduce_plan_t* plan) {
  const rabbet_group_node_t* node = parts->node;
  const rabbet_group_value_t* values = kernel->base.node.group->values;
  int32_t in = parts->x, out = parts->y;
  char text[128];
  if (!reduce_plan(node, &shapes->dims[in], &shapes->dims[out],
                   values[in].format, values[out].format, plan))
    return RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "layer '%s': the kernel does not take shape %s in format %s",
        node->name, rabbet_dims_print(&shapes->dims[in], text, sizeof(text)),
        rabbet_format_name(values[in].format));
  if (plan->outputs < RABBET_CUDA_MAX_COUNT - BLOCK &&
      plan->positions < RABBET_CUDA_MAX_COUNT)
    return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "layer '%s': shape %s has more elements than the kernel "
      "counts",
      node->name, rabbet_dims_print(&shapes->dims[in], text, sizeof(text)));
}

static rabbet_status_t reduce_function(const cuda_reduce_t* kernel,
                                       const reduce_parts_t* parts,
                                       reduce_launch_t* launch) {
  for (int i = 0; i < 2 * REDUCE_STEPS; ++i)
    memcpy(launch->parameters.numbers + i * REDUCE_NUMBERS,
           parts->steps[i / REDUCE_STEPS][i % REDUCE_STEPS].numbers,
           sizeof(parts->steps[0][0].numbers));
  return rabbet_cuda_node_make(&kernel->base, launch->name,
                               &launch->launch.function);
}

static rabbet_status_t cuda_reduce_prepare(rabbet_kernel_t* base,
                                           const rabbet_kernel_shapes_t* shapes,
                                           cuda_reduce_state_t** out_state,
                                           size_t* out_workspace) {
  const cuda_reduce_t* kernel = (const cuda_reduce_t*)base;
  reduce_plan_t plan;
  reduce_parts_t parts;
  *out_workspace = 0;
  bool known = reduce_parse(kernel->base.node.group, &parts);
  assert(known);  // it was when the kernel was made
  (void)known;
  RABBET_RETURN_IF_ERROR(reduce_read(kernel, &parts, shapes, &plan));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cuda_reduce_state_t* state = *out_state;
  state->x = rabbet_group_input_of(kernel->base.node.group, parts.x);
  state->empty = plan.outputs == 0;
  if (state->empty) return rabbet_ok();
  if (plan.columns)
    reduce_columns(kernel, &plan, 1, &state->single);
  else
    reduce_rows(kernel, &plan, 1, &state->single);
  reduce_vectors(kernel, &plan, state);
  int64_t count = rabbet_max_i64(state->single.launch.grid[1],
                                 state->vectors.launch.grid[1]);
  if (count > 1)
    *out_workspace = (size_t)(count * plan.outputs * kernel->cell_size);
  state->has_parts = count > 1;
  if (state->has_parts) {
    reduce_finish(kernel, &plan, count, &state->finish);
    RABBET_RETURN_IF_ERROR(reduce_function(kernel, &parts, &state->finish));
  }
  if (state->alignment > 0)
    RABBET_RETURN_IF_ERROR(reduce_function(kernel, &parts, &state->vectors));
  return reduce_function(kernel, &parts, &state->single);
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t cuda_reduce_enqueue(rabbet_kernel_t* base,
                                           cuda_reduce_state_t* state,
                                           const rabbet_kernel_call_t* call) {
  const cuda_reduce_t* kernel = (const cuda_reduce_t*)base;
  const rabbet_cuda_device_t* device = kernel->base.device;
  void *source = call->inputs[state->x], *target = call->outputs[0];
  if (state->empty) return rabbet_ok();
  bool vectors = state->vectors.launch.function &&
                 rabbet_cuda_is_aligned(source, state->alignment) &&
                 (state->target_alignment == 0 ||
                  rabbet_cuda_is_aligned(target, state->target_alignment));
  reduce_launch_t* first = vectors ? &state->vectors : &state->single;
  int64_t parts = first->launch.grid[1];
  void* into = parts > 1 ? call->workspace : target;
  void* parameters[] = {&source, &into, &first->parameters};
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_launch(device, &first->launch, parameters, call->stream));
  if (parts == 1) return rabbet_ok();
  assert(state->has_parts);
  reduce_launch_t* finish = &state->finish;
  finish->parameters.count = finish->parameters.part = (uint32_t)parts;
  void* joined[] = {&into, &target, &finish->parameters};
  return rabbet_cuda_launch(device, &finish->launch, joined, call->stream);
}

static bool cuda_reduce_takes(const rabbet_kernel_spec_t* spec) {
  reduce_parts_t parts;
  if (rabbet_node_is(spec->group, RABBET_OP_REDUCE))
    return rabbet_takes_node(spec->group, RABBET_OP_REDUCE,
                             RABBET_TAKES_FORMATS);
  return reduce_parse(spec->group, &parts) &&
         rabbet_takes_tensors(spec->group,
                              RABBET_TAKES_FORMATS | RABBET_TAKES_ANY_TYPES);
}

RABBET_CUDA_NODE_CLASS(cuda_reduce, cuda_reduce_t, "cuda.reduce", 3);
