// The gate of squeeze and excitation: the means of an image's channels, and one
// or two convolutions of them, in one kernel (image/squeeze.cuh).
#include <assert.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "core/view.h"
#include "device/cuda/image/squeeze_params.h"
#include "device/cuda/products/layers.h"
#include "device/cuda/programs/launch.h"
#include "ops/enums.h"
#include "ops/image/window.h"

// Channels for which shared memory suffices.
enum { CHANNELS = 4096 };

typedef struct squeeze_kernel_t {
  rabbet_cuda_node_t node;
  CUfunction function;
} squeeze_kernel_t;

typedef struct squeeze_source_t {
  int w, bias;  // boundary inputs; bias -1: none
  rabbet_cuda_layers_t layers;
} squeeze_source_t;

typedef struct cuda_squeeze_state_t {
  squeeze_t parameters;
  squeeze_source_t products[SQUEEZE_PRODUCTS];
  int x, count;  // boundary input; products
  bool is_empty;
  rabbet_cuda_launch_t launch;
} cuda_squeeze_state_t;

// ---- The group -------------------------------------------------------------

// The group's convolutions, each with its chain as a group of its own, whose
// inputs and values are those of the group. It has pointers into itself: it
// must not be moved.
typedef struct squeeze_parts_t {
  int count;
  rabbet_group_t products[SQUEEZE_PRODUCTS];
  // Before product i, and after the last. Weights are constants, so a plan
  // knows them.
  int32_t channels[SQUEEZE_PRODUCTS + 1];
} squeeze_parts_t;

static bool squeeze_is_pooling(const rabbet_group_t* group) {
  const rabbet_group_node_t* node = &group->nodes[0];
  if (!rabbet_op_is(node->op, RABBET_OP_REDUCE)) return false;
  int64_t op = rabbet_node_int(node, "op");
  int32_t rank = group->values[node->inputs[0]].dims.rank;
  int64_t spatial = (INT64_C(1) << rank) - 4;  // all axes but the first two
  return (op == RABBET_REDUCE_AVG || op == RABBET_REDUCE_SUM) && rank > 2 &&
         rabbet_node_int(node, "axes") == spatial &&
         rabbet_node_int(node, "keep_dims") != 0;
}

// Whether a convolution of single pixels is a product with its weights.
static bool squeeze_is_product(const rabbet_group_t* group,
                               const rabbet_group_node_t* node) {
  const rabbet_group_value_t* w = &group->values[node->inputs[1]];
  rabbet_window_t window;
  if (!w->constant || w->dims.rank < 3 ||
      rabbet_node_int(node, "num_groups") != 1 || w->dims.d[0] < 1 ||
      w->dims.d[0] > CHANNELS || w->dims.d[1] < 1 || w->dims.d[1] > CHANNELS ||
      rabbet_group_input_of(group, node->inputs[1]) < 0)
    return false;
  rabbet_status_t status =
      rabbet_window_read(node->attrs, node->op->attr_count, w->dims.rank - 2,
                         w->dims.d + 2, &window);
  bool fits = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  for (int32_t i = 0; fits && i < window.spatial; ++i)
    fits = window.size[i] == 1 && window.stride[i] == 1 && window.pre[i] == 0 &&
           window.post[i] == 0;
  return fits;
}

// Begins a part with the convolution at node `at`. What it reads is the result
// of the part before.
static void squeeze_push(const rabbet_group_t* group, size_t at,
                         squeeze_parts_t* out) {
  rabbet_group_node_t* node = &group->nodes[at];
  const rabbet_dims_t* w = &group->values[node->inputs[1]].dims;
  int own = out->count++;
  if (own > 0) out->products[own - 1].outputs = node->inputs;
  out->channels[own] = (int32_t)w->d[1];
  out->channels[own + 1] = (int32_t)w->d[0];
  out->products[own] = *group;
  out->products[own].nodes = node;
  out->products[own].node_count = 0;
}

static bool squeeze_parse(const rabbet_group_t* group, squeeze_parts_t* out) {
  out->count = 0;
  if (group->node_count < 2 || group->output_count != 1 ||
      !squeeze_is_pooling(group) ||
      group->nodes[1].inputs[0] != group->nodes[0].outputs[0])
    return false;
  for (size_t i = 1; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    if (rabbet_op_is(node->op, RABBET_OP_CONVOLUTION)) {
      if (out->count == SQUEEZE_PRODUCTS || !squeeze_is_product(group, node))
        return false;
      squeeze_push(group, i, out);
    }
    if (out->count == 0) return false;
    ++out->products[out->count - 1].node_count;
  }
  return true;
}

static bool squeeze_fits(const squeeze_parts_t* parts,
                         const rabbet_dims_t* dims) {
  for (int i = 0; i < parts->count; ++i)
    if (!rabbet_cuda_layers_fit(&parts->products[i], dims)) return false;
  return true;
}

// ---- Geometry --------------------------------------------------------------

static int64_t squeeze_vector(rabbet_dtype_t dtype) {
  return 128 / rabbet_dtype_bits(dtype);
}

// Sets what depends on the weights alone; returns the bytes of shared memory.
static int64_t squeeze_memory(const squeeze_parts_t* parts, bool hwc,
                              rabbet_dtype_t dtype, squeeze_t* p) {
  enum { WARPS = SQUEEZE_THREADS / 32 };
  int64_t vector = squeeze_vector(dtype);
  for (int i = 0; i <= parts->count; ++i)
    p->channels[i] = parts->channels[i];
  for (int i = 0; i < parts->count; ++i) {
    int64_t width = p->channels[i] % vector == 0 ? vector
                    : p->channels[i] % 2 == 0    ? 2
                                                 : 1;
    p->products[i].lanes_log = (int32_t)rabbet_cuda_log2(
        rabbet_min_i64(rabbet_ceildiv((int64_t)p->channels[i], width), 32));
  }
  int64_t channels = p->channels[0];
  assert(channels > 0 && (!hwc || channels / vector <= SQUEEZE_THREADS));
  int64_t own = rabbet_ceildiv(channels, (int64_t)SQUEEZE_BLOCKS);
  if (hwc)
    p->shares = (int32_t)(SQUEEZE_THREADS / (channels / vector));
  else
    p->shares = (int32_t)rabbet_max_i64(WARPS / own, 1);
  p->pooled = hwc ? (int32_t)(SQUEEZE_BLOCKS * channels) : 0;
  p->hidden = p->pooled + (int32_t)channels;
  p->scratch = p->hidden + (parts->count > 1 ? p->channels[1] : 0);
  int64_t floats = p->scratch + p->shares * (hwc ? channels : own);
  return floats * (int64_t)sizeof(float);
}

// ---- Proposing -------------------------------------------------------------

static bool squeeze_takes_format(rabbet_device_t* device,
                                 const squeeze_parts_t* parts,
                                 rabbet_format_t format, rabbet_dtype_t dtype) {
  squeeze_t p;
  int64_t channels = parts->channels[0], vector = squeeze_vector(dtype);
  bool hwc = format == RABBET_FORMAT_HWC;
  bool fits =
      hwc ? channels % vector == 0 && channels / vector <= SQUEEZE_THREADS
          : format == RABBET_FORMAT_LINEAR;
  return fits && squeeze_memory(parts, hwc, dtype, &p) <=
                     rabbet_cuda(device)->shared_bytes;
}

static rabbet_status_t squeeze_offer(rabbet_proposal_t* proposal,
                                     const squeeze_parts_t* parts) {
  static const rabbet_format_t formats[] = {RABBET_FORMAT_HWC,
                                            RABBET_FORMAT_LINEAR};
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      proposal->propose, group->values[group->nodes[0].inputs[0]].dtype, types);
  for (int t = 0; t < count; ++t) {
    if (!rabbet_cuda_layers_computes(types[t])) continue;
    for (size_t i = 0; i < group->input_count + group->output_count; ++i)
      if (rabbet_dtype_is_float(proposal->tensors[i].dtype))
        proposal->tensors[i].dtype = types[t];
    for (int f = 0; f < 2; ++f) {
      if (!squeeze_takes_format(proposal->propose->device, parts, formats[f],
                                types[t]))
        continue;
      rabbet_proposal_set_input(proposal, 0, types[t], formats[f]);
      rabbet_proposal_set_output(proposal, types[t], formats[f]);
      RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(
          proposal, formats[f] == RABBET_FORMAT_HWC ? "channels last" : "rows",
          -1));
    }
  }
  return rabbet_ok();
}

// Whether the kernel's integers count the images; sets the positions of one.
static bool squeeze_counts(const rabbet_dims_t* x, int64_t* out_positions) {
  const int64_t most = INT32_MAX / 64;
  int64_t positions = 1;
  for (int32_t i = 2; i < x->rank; ++i)
    if (__builtin_mul_overflow(positions, x->d[i], &positions)) return false;
  *out_positions = positions;
  return positions < most && x->d[0] <= INT32_MAX / SQUEEZE_BLOCKS / 2;
}

static rabbet_status_t cuda_squeeze_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  squeeze_parts_t parts;
  rabbet_dims_t* opt = NULL;
  int64_t positions = 0;
  if (!squeeze_parse(group, &parts) ||
      !squeeze_counts(&group->values[group->nodes[0].inputs[0]].max,
                      &positions))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, proposal->propose->allocator, &opt));
  rabbet_status_t status =
      squeeze_fits(&parts, opt) ? squeeze_offer(proposal, &parts) : rabbet_ok();
  rabbet_free(proposal->propose->allocator, opt);
  return status;
}

static rabbet_status_t cuda_squeeze_propose(const rabbet_propose_t* propose,
                                            rabbet_candidate_sink_t sink) {
  squeeze_parts_t parts;
  // Clusters of blocks.
  if (rabbet_cuda(propose->device)->major < 9 ||
      !squeeze_parse(propose->group, &parts))
    return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_squeeze, NULL,
                              cuda_squeeze_body);
}

// ---- The program -----------------------------------------------------------

static bool squeeze_takes_boundary(const rabbet_kernel_spec_t* spec,
                                   const squeeze_parts_t* parts) {
  const rabbet_group_t* group = spec->group;
  const rabbet_group_value_t* x = &group->values[group->nodes[0].inputs[0]];
  const rabbet_group_value_t* y = &group->values[group->outputs[0]];
  for (size_t i = 0; i < group->input_count + group->output_count; ++i)
    if (group->values[rabbet_group_boundary(group, i)].dtype != x->dtype)
      return false;
  return rabbet_cuda_layers_computes(x->dtype) && x->format == y->format &&
         squeeze_takes_format(spec->device, parts, x->format, x->dtype);
}

static rabbet_status_t squeeze_text(const rabbet_cuda_node_t* kernel,
                                    const squeeze_parts_t* parts,
                                    const rabbet_dims_t* dims,
                                    rabbet_strbuf_t* text) {
  static const char* const names[SQUEEZE_PRODUCTS] = {"finish", "finish_1"};
  const rabbet_group_t* group = kernel->node.group;
  const rabbet_group_value_t* x = &group->values[group->nodes[0].inputs[0]];
  rabbet_strbuf_t chains;
  int operands[SQUEEZE_PRODUCTS] = {0};
  rabbet_strbuf_initialize(kernel->node.allocator, &chains);
  rabbet_status_t status = rabbet_ok();
  for (int i = 0; i < parts->count && rabbet_is_ok(status); ++i)
    status = rabbet_cuda_layers_function(kernel, &parts->products[i], dims,
                                         names[i], &chains, &operands[i]);
  if (rabbet_is_ok(status)) status = rabbet_strbuf_status(&chains);
  if (rabbet_is_ok(status))
    rabbet_strbuf_printf(
        text,
        "#define ELEMENT %s\n#define HWC %d\n#define PRODUCTS %d\n"
        "#define OPERANDS %d\n#define OPERANDS_1 %d\n"
        "#include \"device/cuda/pointwise/functions.cuh\"\n"
        "#include \"device/cuda/image/squeeze.cuh\"\n%s%s",
        rabbet_cuda_type(x->dtype), x->format == RABBET_FORMAT_HWC,
        parts->count, operands[0], operands[1], rabbet_strbuf_text(&chains),
        parts->count > 1 ? ""
                         : "DEVICE float finish_1(float x, const layers_t&, "
                           "const float*) {\n  return x;\n}\n");
  rabbet_strbuf_deinitialize(&chains);
  return rabbet_is_ok(status) ? rabbet_strbuf_status(text) : status;
}

static rabbet_status_t squeeze_add(rabbet_cuda_node_t* kernel,
                                   const rabbet_kernel_spec_t* spec,
                                   const squeeze_parts_t* parts) {
  rabbet_dims_t* dims = NULL;
  rabbet_strbuf_t text;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(spec->group, spec->allocator, &dims));
  rabbet_strbuf_initialize(spec->allocator, &text);
  rabbet_status_t status = squeeze_text(kernel, parts, dims, &text);
  rabbet_free(spec->allocator, dims);
  if (rabbet_is_ok(status))
    status = rabbet_cuda_node_add(kernel, spec, "image/squeeze.cu",
                                  rabbet_strbuf_text(&text), NULL);
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static rabbet_status_t cuda_squeeze_program(rabbet_cuda_node_t* base,
                                            const rabbet_kernel_spec_t* spec) {
  squeeze_kernel_t* kernel = (squeeze_kernel_t*)base;
  const rabbet_group_t* group = spec->group;
  squeeze_parts_t parts;
  squeeze_t p;
  if (!squeeze_parse(group, &parts) || !squeeze_takes_boundary(spec, &parts))
    return RABBET_STATUS(
        RABBET_STATUS_INCOMPATIBLE,
        "cuda.squeeze computes the means of images in LINEAR or HWC, of one "
        "floating type, and convolutions of them; the group of '%s' is another",
        base->node.node->name);
  const rabbet_group_value_t* x = &group->values[group->nodes[0].inputs[0]];
  base->node.base.alignment = 16;
  RABBET_RETURN_IF_ERROR(squeeze_add(base, spec, &parts));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "squeeze", &kernel->function));
  int64_t bytes =
      squeeze_memory(&parts, x->format == RABBET_FORMAT_HWC, x->dtype, &p);
  return rabbet_cuda_launch_permit(base->device, kernel->function, bytes);
}

// ---- Preparing -------------------------------------------------------------

static rabbet_status_t squeeze_launch(const squeeze_kernel_t* kernel,
                                      const squeeze_parts_t* parts,
                                      const rabbet_dims_t* x,
                                      cuda_squeeze_state_t* state) {
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_value_t* value = &group->values[group->nodes[0].inputs[0]];
  squeeze_t* p = &state->parameters;
  int64_t positions = 0;
  char text[128];
  if (!squeeze_counts(x, &positions))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': cuda.squeeze takes images of at most "
                         "2^25 positions, and 2^27 of them; the input is %s",
                         kernel->node.node.node->name,
                         rabbet_dims_print(x, text, sizeof(text)));
  int64_t bytes = squeeze_memory(parts, value->format == RABBET_FORMAT_HWC,
                                 value->dtype, p);
  p->positions = (int32_t)positions;
  p->scale = rabbet_node_int(&group->nodes[0], "op") == RABBET_REDUCE_AVG
                 ? (float)(1.0 / (double)positions)
                 : 1.0f;
  state->launch = (rabbet_cuda_launch_t){
      .function = kernel->function,
      .grid = {(unsigned)(x->d[0] * SQUEEZE_BLOCKS), 1, 1},
      .block = {SQUEEZE_THREADS, 1, 1},
      .shared_bytes = (unsigned)bytes,
      .cluster = SQUEEZE_BLOCKS};
  return rabbet_ok();
}

static rabbet_status_t squeeze_fill(const squeeze_kernel_t* kernel,
                                    const rabbet_dims_t* dims,
                                    cuda_squeeze_state_t* state) {
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_dims_t* x = &dims[group->nodes[0].inputs[0]];
  squeeze_parts_t parts;
  int64_t elements = 0;
  if (!squeeze_parse(group, &parts))
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "the group of '%s' is none of cuda.squeeze's",
                         kernel->node.node.node->name);
  RABBET_RETURN_IF_ERROR(
      rabbet_dims_count(&dims[group->outputs[0]], &elements));
  state->is_empty = elements == 0;
  state->x = rabbet_group_input_of(group, group->nodes[0].inputs[0]);
  state->count = parts.count;
  if (state->is_empty) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(squeeze_launch(kernel, &parts, x, state));
  for (int i = 0; i < parts.count; ++i) {
    const rabbet_group_node_t* node = &parts.products[i].nodes[0];
    squeeze_source_t* source = &state->products[i];
    int32_t bias = rabbet_node_input(node, 2);
    const layer_operand_t result = {NULL, 0, state->parameters.channels[i + 1],
                                    1};
    source->w = rabbet_group_input_of(group, node->inputs[1]);
    source->bias = bias < 0 ? -1 : rabbet_group_input_of(group, bias);
    RABBET_RETURN_IF_ERROR(rabbet_cuda_layers_place(
        &kernel->node, &parts.products[i], dims, &result, false,
        &source->layers, &state->parameters.products[i].layers));
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_squeeze_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_squeeze_state_t** out_state, size_t* out_workspace) {
  cuda_squeeze_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      squeeze_fill((const squeeze_kernel_t*)base, shapes->dims, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t cuda_squeeze_enqueue(rabbet_kernel_t* base,
                                            cuda_squeeze_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const squeeze_kernel_t* kernel = (const squeeze_kernel_t*)base;
  squeeze_t* p = &state->parameters;
  if (state->is_empty) return rabbet_ok();
  p->x = call->inputs[state->x];
  p->y = call->outputs[0];
  for (int i = 0; i < state->count; ++i) {
    const squeeze_source_t* source = &state->products[i];
    squeeze_product_t* product = &p->products[i];
    product->w = call->inputs[source->w];
    product->bias = source->bias < 0 ? NULL : call->inputs[source->bias];
    rabbet_cuda_layers_bind(&source->layers, call, 0, &product->layers);
  }
  void* parameters[] = {p};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

static bool cuda_squeeze_takes(const rabbet_kernel_spec_t* spec) {
  squeeze_parts_t parts;
  return squeeze_parse(spec->group, &parts);
}

RABBET_CUDA_NODE_CLASS(cuda_squeeze, squeeze_kernel_t, "cuda.squeeze", 1);
