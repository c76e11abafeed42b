// Deconvolutions whose stride equals the window, which decoders use to double
// extents: each input element yields a block of its own.
//
// For each tap a 1x1 convolution computes the tensor of the tap's elements in
// all blocks; one reordering then interleaves these tensors. oneDNN's
// deconvolution for these windows is far slower than its 1x1 convolutions.
#include <string.h>

#include "base/math.h"
#include "device/cpu/dnnl/fused.h"
#include "ops/image/window.h"

typedef struct blocks_case_t {
  const rabbet_group_t* group;
  const rabbet_dims_t* dims;
  rabbet_format_t format;  // of input and output
  rabbet_dtype_t compute;
} blocks_case_t;

static bool blocks_match(const rabbet_group_t* group) {
  if (group->node_count == 0 ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_DECONVOLUTION))
    return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  return rabbet_group_feeds(group, node) &&
         rabbet_attr_int(node->attrs, node->op->attr_count, "num_groups", 1) ==
             1;
}

// Whether the output is made of blocks of the window's extent.
static bool blocks_window(const blocks_case_t* c) {
  const rabbet_group_node_t* node = &c->group->nodes[0];
  const rabbet_dims_t* x = &c->dims[node->inputs[0]];
  const rabbet_dims_t* kernel = &c->dims[node->inputs[1]];
  const rabbet_dims_t* y = &c->dims[node->outputs[0]];
  rabbet_window_t window;
  int64_t before[RABBET_MAX_RANK], after[RABBET_MAX_RANK];
  rabbet_status_t status = rabbet_window_read(
      node->attrs, node->op->attr_count, x->rank - 2, kernel->d + 2, &window);
  bool fits = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  if (!fits) return false;
  rabbet_window_pads_transposed(&window, x->d + 2, y->d + 2, before, after);
  for (int i = 0; i < window.spatial; ++i)
    fits = fits && window.size[i] == window.stride[i] &&
           (window.dilation[i] == 1 || window.size[i] == 1) && before[i] == 0 &&
           y->d[i + 2] == x->d[i + 2] * window.size[i];
  return fits;
}

// Whether the epilogue's operands are the same for all elements of a block.
static bool blocks_operands(const blocks_case_t* c,
                            rabbet_dnnl_fused_t* fused) {
  const rabbet_epilogue_t* e = &fused->epilogue;
  for (int i = 0; i < e->count; ++i) {
    if (!e->items[i].is_binary) continue;
    const rabbet_dims_t* dims = &c->dims[e->items[i].operand];
    for (int k = 0; k < dims->rank; ++k)
      if (k != dims->rank - c->dims[e->result].rank + 1 && dims->d[k] != 1)
        return false;
    fused->operands[i] =
        rabbet_dnnl_layout(c->compute, RABBET_FORMAT_LINEAR, dims);
  }
  return true;
}

// The 1x1 convolution of one tap, which reads every taps-th weight.
static void blocks_spec(const blocks_case_t* c, int64_t tap,
                        rabbet_dnnl_fused_t* fused) {
  const rabbet_dims_t* x = &c->dims[fused->src];
  const rabbet_dims_t* kernel = &c->dims[fused->weights];
  rabbet_dnnl_spec_t* spec = &fused->spec;
  rabbet_dims_t made = *x;
  int64_t taps = 1;
  made.d[1] = kernel->d[1];
  spec->kind = RABBET_DNNL_CONVOLUTION;
  spec->src = rabbet_dnnl_layout(c->compute, c->format, x);
  spec->dst = rabbet_dnnl_layout(c->compute, c->format, &made);
  rabbet_dnnl_layout_t* weights = &fused->weights_layout;
  *weights = (rabbet_dnnl_layout_t){.dtype = c->compute,
                                    .order = RABBET_DNNL_STRIDED,
                                    .rank = kernel->rank,
                                    .offset = tap};
  for (int i = 0; i < kernel->rank - 2; ++i) {
    taps *= kernel->d[i + 2];
    weights->dims[i + 2] = weights->strides[i + 2] = 1;
    spec->stride[i] = spec->dilation[i] = spec->window[i] = 1;
  }
  weights->dims[0] = kernel->d[1];
  weights->strides[0] = taps;
  weights->dims[1] = kernel->d[0];
  weights->strides[1] = kernel->d[1] * taps;
  spec->weights = *weights;
  spec->weights.order = RABBET_DNNL_ANY;
  spec->has_bias = fused->bias >= 0;
  rabbet_dims_t maps = {.rank = 1, .d = {kernel->d[1]}};
  spec->bias =
      rabbet_dnnl_layout(RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR, &maps);
}

static bool blocks_describe(const blocks_case_t* c, int64_t tap,
                            rabbet_dnnl_fused_t* fused) {
  const rabbet_group_node_t* node = &c->group->nodes[0];
  int32_t y = node->outputs[0];
  memset(fused, 0, sizeof(*fused));
  if (!blocks_window(c) ||
      !rabbet_epilogue_parse(c->group, c->dims, 1, y, &fused->epilogue))
    return false;
  fused->src = node->inputs[0];
  fused->weights = node->inputs[1];
  fused->bias = node->input_count > 2 ? node->inputs[2] : -1;
  fused->sum_item = -1;
  rabbet_dims_t per_channel = c->dims[y];
  for (int i = 0; i < per_channel.rank; ++i)
    per_channel.d[i] = i == 1 ? c->dims[y].d[1] : 1;
  rabbet_dnnl_fused_take_bias(fused, c->group, c->dims, &per_channel);
  if (!blocks_operands(c, fused)) return false;
  blocks_spec(c, tap, fused);
  return true;
}

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t blocks_offer(const rabbet_propose_t* propose,
                                    rabbet_candidate_sink_t sink,
                                    const rabbet_dims_t* dims,
                                    rabbet_dtype_t dtype,
                                    rabbet_type_format_t* tensors) {
  const rabbet_format_t formats[] = {rabbet_cpu_blocked_format(),
                                     RABBET_FORMAT_HWC, RABBET_FORMAT_LINEAR};
  for (size_t i = 0; i < 3; ++i) {
    const blocks_case_t c = {propose->group, dims, formats[i],
                             rabbet_dnnl_compute_type(dtype)};
    rabbet_dnnl_fused_t fused;
    if (!blocks_describe(&c, 0, &fused)) return rabbet_ok();
    rabbet_dnnl_fused_tensors(&fused, c.group, c.dims, dtype, c.format,
                              c.format, tensors);
    RABBET_RETURN_IF_ERROR(rabbet_dnnl_fused_propose(
        &fused,
        &(rabbet_dnnl_fused_offer_t){
            .kernel = &rabbet_cpu_dnnl_blocks,
            .propose = propose,
            .sink = sink,
            .tensors = tensors,
            .tactic =
                c.compute == RABBET_DTYPE_FLOAT ? RABBET_DNNL_TACTIC_FLOAT : 0,
            .prefix = "blocks/",
        }));
  }
  return rabbet_ok();
}

static rabbet_status_t cpu_dnnl_blocks_propose(const rabbet_propose_t* propose,
                                               rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  if (!blocks_match(group)) return rabbet_ok();
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      propose, group->values[group->nodes[0].inputs[0]].dtype, types);
  rabbet_dims_t* dims = NULL;
  rabbet_type_format_t* tensors = NULL;
  rabbet_status_t status =
      rabbet_group_opt_dims(group, propose->allocator, &dims);
  if (rabbet_is_ok(status))
    status = rabbet_allocate(
        propose->allocator,
        sizeof(*tensors) * (group->input_count + group->output_count),
        (void**)&tensors);
  for (int i = 0; rabbet_is_ok(status) && i < count; ++i)
    status = blocks_offer(propose, sink, dims, types[i], tensors);
  rabbet_free(propose->allocator, tensors);
  rabbet_free(propose->allocator, dims);
  return status;
}

// ---- Compiling -------------------------------------------------------------

static void blocks_axis(rabbet_dnnl_layout_t* layout, int64_t extent,
                        int64_t stride) {
  layout->dims[layout->rank] = extent;
  layout->strides[layout->rank++] = stride;
}

// Layouts: `from` has the taps' tensors one after the other, `to` is the
// output. Channels are in blocks of `block`; `last`: they are innermost.
static void blocks_layouts(const blocks_case_t* c, rabbet_dnnl_layout_t* from,
                           rabbet_dnnl_layout_t* to) {
  const rabbet_group_node_t* node = &c->group->nodes[0];
  const rabbet_dims_t* x = &c->dims[node->inputs[0]];
  const rabbet_dims_t* kernel = &c->dims[node->inputs[1]];
  bool last = c->format == RABBET_FORMAT_HWC;
  int64_t block = last ? kernel->d[1] : rabbet_format_info(c->format)->block;
  int64_t blocks = rabbet_ceildiv(kernel->d[1], block);
  int64_t in = block, out = block;  // elements behind an axis
  *from = *to =
      (rabbet_dnnl_layout_t){.dtype = c->compute, .order = RABBET_DNNL_STRIDED};
  int64_t size = x->d[0] * blocks * block, tap = 1;
  for (int i = 2; i < x->rank; ++i)
    size *= x->d[i];
  for (int i = x->rank - 1; i >= 2; --i) {
    blocks_axis(from, kernel->d[i], tap * size);
    blocks_axis(to, kernel->d[i], out);
    blocks_axis(from, x->d[i], in);
    blocks_axis(to, x->d[i], out * kernel->d[i]);
    tap *= kernel->d[i];
    in *= x->d[i];
    out *= x->d[i] * kernel->d[i];
  }
  blocks_axis(from, x->d[0] * blocks, in);
  blocks_axis(to, x->d[0] * blocks, out);
  blocks_axis(from, block, 1);
  blocks_axis(to, block, 1);
}

static rabbet_status_t blocks_reorder(const blocks_case_t* c,
                                      rabbet_dnnl_program_t* program,
                                      const rabbet_dnnl_ref_t* from,
                                      const rabbet_dnnl_ref_t* to) {
  rabbet_dnnl_spec_t spec = {.kind = RABBET_DNNL_REORDER};
  rabbet_dnnl_primitive_t* primitive = NULL;
  blocks_layouts(c, &spec.src, &spec.dst);
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_make(program, &spec, 0, &primitive));
  const rabbet_dnnl_binding_t bindings[] = {{RABBET_DNNL_SRC, *from},
                                            {RABBET_DNNL_DST, *to}};
  return rabbet_dnnl_run(program,
                         (rabbet_dnnl_when_t){.is = RABBET_DNNL_ALWAYS},
                         primitive, bindings, 2);
}

static rabbet_status_t blocks_taps(const blocks_case_t* c,
                                   rabbet_dnnl_program_t* program,
                                   const rabbet_dnnl_ref_t* src,
                                   int32_t* out_result,
                                   rabbet_dnnl_ref_t* out_parts) {
  const rabbet_dims_t* kernel = &c->dims[c->group->nodes[0].inputs[1]];
  int64_t taps = 1, count = 0;
  size_t size = (size_t)(rabbet_dtype_bits(c->compute) / 8);
  for (int i = 2; i < kernel->rank; ++i)
    taps *= kernel->d[i];
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_physical_count(program, c->group->outputs[0], &count));
  *out_parts = rabbet_dnnl_scratch(program, (size_t)count * size);
  for (int64_t tap = 0; tap < taps; ++tap) {
    rabbet_dnnl_fused_t fused;
    rabbet_dnnl_ref_t part = *out_parts;
    part.offset += (size_t)(count / taps * tap) * size;
    if (!blocks_describe(c, tap, &fused))
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "deconvolution '%s' does not divide into blocks at "
                           "these shapes",
                           c->group->nodes[0].name);
    *out_result = fused.epilogue.result;
    RABBET_RETURN_IF_ERROR(
        rabbet_dnnl_fused_compile_part(&fused, program, src, &part));
  }
  return rabbet_ok();
}

static rabbet_status_t cpu_dnnl_blocks_compile(rabbet_dnnl_program_t* program) {
  const rabbet_group_t* group = program->kernel->group;
  const rabbet_group_value_t* y = &group->values[group->outputs[0]];
  if (!blocks_match(group) ||
      group->values[group->nodes[0].inputs[0]].format != y->format)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the group is no deconvolution without groups from "
                         "one format to the same");
  const blocks_case_t c = {
      .group = group,
      .dims = program->shapes->dims,
      .format = y->format,
      .compute = program->kernel->tactic & RABBET_DNNL_TACTIC_FLOAT
                     ? RABBET_DTYPE_FLOAT
                     : rabbet_dnnl_compute_type(y->dtype),
  };
  rabbet_dnnl_ref_t src, parts, dst;
  int32_t result = -1;
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_input(program, group->nodes[0].inputs[0], c.compute, &src));
  RABBET_RETURN_IF_ERROR(blocks_taps(&c, program, &src, &result, &parts));
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_begin_output(program, result, c.compute, &dst));
  RABBET_RETURN_IF_ERROR(blocks_reorder(&c, program, &parts, &dst));
  return rabbet_dnnl_end_output(program, result, c.compute, &dst);
}

static bool cpu_dnnl_blocks_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  return blocks_match(group) && group->output_count == 1 &&
         rabbet_takes_reals(group) && rabbet_dnnl_takes_weights(group);
}

RABBET_DNNL_CLASS(cpu_dnnl_blocks, "dnnl.deconvolution_blocks", 1);
