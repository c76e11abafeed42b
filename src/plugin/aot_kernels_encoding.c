// Ahead-of-time kernels as bytes: one description of the layout serves writing
// and reading (docs/reference/plan_format.md).
#include <string.h>

#include "base/math.h"
#include "base/strbuf.h"
#include "plugin/aot_kernels.h"

#define AOT_MAGIC 0x314b5252u  // "RRK1"
#define AOT_ALIGNMENT 16

// Writes into `out`, or reads from `data` and allocates in the arena.
typedef struct aot_coder_t {
  rabbet_strbuf_t* out;
  const uint8_t* data;
  size_t size, at;
  rabbet_arena_t* arena;
  bool damaged;
  rabbet_status_t status;  // of allocations
} aot_coder_t;

static bool coder_stopped(const aot_coder_t* coder) {
  return coder->damaged || !rabbet_is_ok(coder->status);
}

static void code_raw(aot_coder_t* coder, void* value, size_t size) {
  if (coder->out) {
    rabbet_strbuf_append(coder->out, value, size);
    coder->at += size;
    return;
  }
  if (coder_stopped(coder) || size > coder->size - coder->at) {
    coder->damaged = true;
    memset(value, 0, size);
    return;
  }
  memcpy(value, coder->data + coder->at, size);
  coder->at += size;
}

// A count of things that take at least `least` bytes each.
static void code_count(aot_coder_t* coder, size_t* count, size_t least) {
  uint64_t value = *count;
  code_raw(coder, &value, sizeof(value));
  if (coder->out) return;
  if (value > (coder->size - coder->at) / least) coder->damaged = true;
  *count = coder->damaged ? 0 : (size_t)value;
}

// An array whose elements the caller encodes.
static void code_array(aot_coder_t* coder, const void* array, size_t count,
                       size_t size, void** out_array) {
  *out_array = (void*)(uintptr_t)array;
  if (coder->out || coder_stopped(coder)) return;
  coder->status =
      rabbet_arena_allocate_array(coder->arena, count, size, out_array);
}

// Bytes, aligned; read into the arena with a NUL behind them.
static void code_bytes(aot_coder_t* coder, const void** data, size_t* size) {
  uint8_t padding[AOT_ALIGNMENT] = {0};
  code_count(coder, size, 1);
  size_t gap = rabbet_align_up(coder->at, AOT_ALIGNMENT) - coder->at;
  code_raw(coder, padding, gap);
  if (coder->out) {
    code_raw(coder, (void*)(uintptr_t)*data, *size);
    return;
  }
  uint8_t* copy = NULL;
  if (coder_stopped(coder)) return;
  coder->status = rabbet_arena_allocate(coder->arena, *size + 1, (void**)&copy);
  if (!rabbet_is_ok(coder->status)) return;
  code_raw(coder, copy, *size);
  *data = copy;
}

#define CODE(coder, value) code_raw((coder), &(value), sizeof(value))

// ---- The layout ------------------------------------------------------------

// Node 0 is the constant 0 that every graph here begins with.
static void code_node(aot_coder_t* coder, rabbet_aot_kernels_t* kernels,
                      size_t i) {
  rabbet_expr_node_t node = {0};
  rabbet_symbol_t symbol = {.opt = RABBET_EXPR_NONE, .upper = RABBET_EXPR_NONE};
  if (coder->out) {
    node = *rabbet_expr_node(kernels->graph, (rabbet_expr_t)i);
    if (node.op == RABBET_EXPR_SYMBOL) {
      symbol = *rabbet_expr_symbol(kernels->graph, (size_t)node.a);
      node.a = symbol.tensor;
      node.b = symbol.index;
      node.value = symbol.kind;
    }
  }
  int32_t op = (int32_t)node.op;
  CODE(coder, op);
  CODE(coder, node.a);
  CODE(coder, node.b);
  CODE(coder, node.value);
  if (coder->out || coder_stopped(coder)) return;
  node.op = (rabbet_expr_op_t)op;
  rabbet_expr_t made = RABBET_EXPR_NONE;
  if (op == RABBET_EXPR_SYMBOL) {
    symbol.kind = node.value == RABBET_SYMBOL_DIM ? RABBET_SYMBOL_DIM
                                                  : RABBET_SYMBOL_VALUE;
    symbol.tensor = node.a;
    symbol.index = node.b;
    coder->damaged |= node.a < 0 || node.b < 0;
    if (!coder->damaged)
      coder->status = rabbet_expr_of_symbol(kernels->graph, &symbol, &made);
  } else {
    rabbet_status_t status = rabbet_expr_append(kernels->graph, &node, &made);
    if (rabbet_status_code(status) == RABBET_STATUS_INVALID_ARGUMENT) {
      rabbet_status_ignore(status);
      coder->damaged = true;
    } else {
      coder->status = status;
    }
  }
  if ((size_t)made != i) coder->damaged = true;
}

static void code_graph(aot_coder_t* coder, rabbet_aot_kernels_t* kernels) {
  size_t count = coder->out ? rabbet_expr_node_count(kernels->graph) - 1 : 0;
  code_count(coder, &count, 20);
  for (size_t i = 1; i <= count && !coder_stopped(coder); ++i)
    code_node(coder, kernels, i);
}

static void code_map(aot_coder_t* coder, rabbet_plugin_arg_t* arg) {
  rabbet_plugin_tensor_map_t* map = NULL;
  code_array(coder, arg->map, 1, sizeof(*map), (void**)&map);
  if (coder_stopped(coder)) return;
  int32_t of_output = map->of_output;
  CODE(coder, of_output);
  map->of_output = of_output != 0;
  CODE(coder, map->index);
  CODE(coder, map->rank);
  CODE(coder, map->dims);
  CODE(coder, map->strides);
  CODE(coder, map->box);
  CODE(coder, map->element_strides);
  CODE(coder, map->interleave);
  CODE(coder, map->swizzle);
  CODE(coder, map->l2_promotion);
  CODE(coder, map->oob_fill);
  arg->map = map;
}

static void code_arg(aot_coder_t* coder, rabbet_plugin_arg_t* arg) {
  int32_t kind = (int32_t)arg->kind;
  uint64_t size = arg->size;
  CODE(coder, kind);
  CODE(coder, arg->index);
  CODE(coder, arg->value);
  CODE(coder, size);
  if (coder_stopped(coder)) return;
  arg->kind = (rabbet_plugin_arg_kind_t)kind;
  arg->size = (size_t)size;
  if (arg->kind == RABBET_PLUGIN_ARG_BYTES)
    code_bytes(coder, &arg->data, &arg->size);
  if (arg->kind == RABBET_PLUGIN_ARG_TENSOR_MAP) code_map(coder, arg);
}

static void code_image(aot_coder_t* coder, rabbet_plugin_image_t* image) {
  CODE(coder, image->major);
  CODE(coder, image->minor);
  code_bytes(coder, &image->data, &image->size);
}

static void code_launch(aot_coder_t* coder, rabbet_plugin_launch_t* launch) {
  const void* name = launch->kernel;
  size_t length = coder->out ? strlen(launch->kernel) : 0;
  int32_t cooperative = launch->cooperative;
  rabbet_plugin_image_t* images = NULL;
  rabbet_plugin_arg_t* args = NULL;
  code_bytes(coder, &name, &length);
  launch->kernel = name;
  code_count(coder, &launch->image_count, 8);
  code_array(coder, launch->images, launch->image_count, sizeof(*images),
             (void**)&images);
  for (size_t i = 0; i < launch->image_count && !coder_stopped(coder); ++i)
    code_image(coder, &images[i]);
  CODE(coder, launch->grid);
  CODE(coder, launch->block);
  CODE(coder, launch->shared_bytes);
  CODE(coder, launch->cluster);
  CODE(coder, cooperative);
  code_count(coder, &launch->arg_count, 20);
  code_array(coder, launch->args, launch->arg_count, sizeof(*args),
             (void**)&args);
  for (size_t i = 0; i < launch->arg_count && !coder_stopped(coder); ++i)
    code_arg(coder, &args[i]);
  launch->images = images;
  launch->args = args;
  launch->cooperative = cooperative != 0;
}

static void code_kernels(aot_coder_t* coder, rabbet_aot_kernels_t* kernels) {
  uint32_t magic = AOT_MAGIC;
  uint64_t inputs = kernels->input_count, outputs = kernels->output_count;
  CODE(coder, magic);
  CODE(coder, kernels->workspace);
  CODE(coder, inputs);
  CODE(coder, outputs);
  if (magic != AOT_MAGIC || inputs != kernels->input_count ||
      outputs != kernels->output_count)
    coder->damaged = true;
  code_graph(coder, kernels);
  code_count(coder, &kernels->launch_count, 64);
  void* launches = NULL;
  code_array(coder, kernels->launches, kernels->launch_count,
             sizeof(*kernels->launches), &launches);
  kernels->launches = launches;
  for (size_t i = 0; i < kernels->launch_count && !coder_stopped(coder); ++i)
    code_launch(coder, &kernels->launches[i]);
}

// ---- Both ways -------------------------------------------------------------

rabbet_status_t rabbet_aot_kernels_encode(const rabbet_aot_kernels_t* kernels,
                                          rabbet_allocator_t allocator,
                                          void** out_data, size_t* out_size) {
  rabbet_strbuf_t buffer;
  rabbet_strbuf_initialize(allocator, &buffer);
  aot_coder_t coder = {.out = &buffer, .status = rabbet_ok()};
  // Writing does not change the object.
  code_kernels(&coder, (rabbet_aot_kernels_t*)(uintptr_t)kernels);
  rabbet_status_t status = rabbet_strbuf_status(&buffer);
  *out_data = NULL;
  *out_size = buffer.size;
  if (rabbet_is_ok(status))
    status = rabbet_allocate(allocator, buffer.size, out_data);
  if (rabbet_is_ok(status)) memcpy(*out_data, buffer.data, buffer.size);
  rabbet_strbuf_deinitialize(&buffer);
  return status;
}

rabbet_status_t rabbet_aot_kernels_decode(const void* data, size_t size,
                                          size_t input_count,
                                          size_t output_count,
                                          rabbet_allocator_t allocator,
                                          rabbet_aot_kernels_t** out_kernels) {
  rabbet_aot_kernels_t* kernels = NULL;
  *out_kernels = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_aot_kernels_new(allocator, input_count, output_count, &kernels));
  aot_coder_t coder = {.data = data,
                       .size = size,
                       .arena = &kernels->arena,
                       .status = rabbet_ok()};
  code_kernels(&coder, kernels);
  rabbet_status_t status = coder.status;
  if (rabbet_is_ok(status) && (coder.damaged || coder.at != size))
    status = RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                           "the ahead-of-time kernel in the plan is damaged");
  if (rabbet_is_ok(status)) status = rabbet_aot_kernels_check(kernels);
  if (!rabbet_is_ok(status)) {
    rabbet_aot_kernels_destroy(kernels);
    return status;
  }
  *out_kernels = kernels;
  return rabbet_ok();
}
