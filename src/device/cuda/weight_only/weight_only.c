// Products with constant weights of 4 or 8 bits, which stay packed in memory
// and become factors of tensor cores in registers, and any chain of
// element-wise layers after them: decoding with weight-only quantization. The
// two products of a gated perceptron are one kernel, in which a warp has a tile
// of each: they share x, and the gate's result stays in registers.
//
// Bound by reading the weights once. If there are few lines, the blocks of a
// cluster split k, so that every multiprocessor has warps enough. Weights are
// read where the plan has them, if they are contiguous along k and their lines
// are whole pieces of 16 bytes; else the kernel keeps a copy that is. Their
// loads begin before the previous kernel has ended. With more rows than a block
// has, the weights are read again, from the cache.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/view.h"
#include "device/common/weight_only.h"
#include "device/cuda/products/joint.h"
#include "device/cuda/products/layers.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/weight_only/params.h"

// Options of weight_only/weight_only.cuh: pieces 0 is for one row. A tactic is
// SPLITS i + j with row i of the table and 2^j warps for the stages of a tile,
// plus TACTICS times the logarithm of a cluster's blocks.
typedef struct weight_only_shape_t {
  int pieces, tiles, stages;
} weight_only_shape_t;
static const weight_only_shape_t weight_only_shapes[] = {
    {0, 1, 4}, {0, 2, 3}, {0, 1, 2}, {1, 1, 4},
    {2, 2, 3}, {4, 1, 4}, {8, 1, 3}};
enum {
  WEIGHT_ONLY_SHAPES =
      sizeof(weight_only_shapes) / sizeof(weight_only_shapes[0]),
  WEIGHT_ONLY_FEW = 3,  // the first shape for several rows
  WEIGHT_ONLY_SPLITS = 4,
  WEIGHT_ONLY_TACTICS = WEIGHT_ONLY_SHAPES * WEIGHT_ONLY_SPLITS,
  WEIGHT_ONLY_PIECE = 8,
  WEIGHT_ONLY_PAIR_PIECES = 4,
  WEIGHT_ONLY_CLUSTERS = 3,  // of 1, 2 and 4 blocks
  WEIGHT_ONLY_CLUSTER_MAJOR = 9,
  // Each block normalizes its rows anew.
  WEIGHT_ONLY_NORMALIZED_ROWS = 8,
};

// A program, and what a block of it computes.
typedef struct weight_only_form_t {
  CUfunction wide, single;
  int64_t rows, lines;
  int64_t shared;    // bytes
  int64_t received;  // where a cluster's sums come to, in floats
} weight_only_form_t;

// The parts of a group: `product` is the rest of it without `rows`.
typedef struct weight_only_parts_t {
  rabbet_cuda_normalized_t rows;
  rabbet_weight_only_t product;
} weight_only_parts_t;

typedef struct weight_only_kernel_t {
  rabbet_cuda_node_t node;
  weight_only_parts_t parts;
  rabbet_dtype_t dtype;
  int64_t size;  // bytes of an element
  int64_t word;  // weights of 32 bits
  int64_t pitch;
  int split_log, cluster_log;
  int other;  // weight_only_other
  // The tactic's, and, if that is for one row, one for several.
  weight_only_form_t forms[2];
  void* copies[2];  // of the weights; NULL: there is none
} weight_only_kernel_t;

typedef struct cuda_weight_only_state_t {
  const weight_only_form_t* form;
  rabbet_cuda_layers_t layers;
  weight_only_t parameters;
  bool is_wide, empty;
  int x, w[2], scale[2], zero[2], numbers;  // boundary inputs; -1: none
  rabbet_cuda_launch_t launch;
} cuda_weight_only_state_t;

// ---- Types -----------------------------------------------------------------

static const char* weight_only_name(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_INT4    ? "int4_t"
         : dtype == RABBET_DTYPE_FP4   ? "fp4_t"
         : dtype == RABBET_DTYPE_NF4   ? "nf4_t"
         : dtype == RABBET_DTYPE_INT8  ? "int8_t"
         : dtype == RABBET_DTYPE_UINT8 ? "uint8_t"
                                       : "fp8_t";
}

static bool weight_only_computes(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16;
}

static int weight_only_parts(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT ? 3 : 1;
}

static int weight_only_rows(rabbet_dtype_t dtype,
                            const weight_only_shape_t* shape) {
  return shape->pieces == 0
             ? 1
             : shape->pieces * WEIGHT_ONLY_PIECE / weight_only_parts(dtype);
}

static bool weight_only_parse(const rabbet_group_t* group,
                              weight_only_parts_t* out) {
  return rabbet_cuda_normalized_parse(group, &out->rows) &&
         rabbet_weight_only_parse(&out->rows.plain, &out->product);
}

// Whether the value is one of the weights or of their numbers, which keep their
// types, as may what multiplies normalized rows.
static bool weight_only_keeps(const rabbet_group_t* group,
                              const weight_only_parts_t* parts, int32_t value) {
  const rabbet_weight_only_t* product = &parts->product;
  return (value >= 0 && value == parts->rows.scale &&
          group->values[value].dtype == RABBET_DTYPE_FLOAT) ||
         value == product->w || value == product->scale ||
         value == product->zero || value == product->second.w ||
         value == product->second.scale || value == product->second.zero;
}

// ---- Pairs -----------------------------------------------------------------

static bool weight_only_is_pair(const rabbet_weight_only_t* product) {
  return product->second_result >= 0;
}

// The tiles of a warp: one of each of a pair's weights.
static int weight_only_tiles(const rabbet_weight_only_t* product,
                             const weight_only_shape_t* shape) {
  return weight_only_is_pair(product) ? 2 : shape->tiles;
}

// With three stages of two tiles a block fits the shared memory of all GPUs.
static int weight_only_stages(const rabbet_weight_only_t* product,
                              const weight_only_shape_t* shape) {
  enum { MOST = 3 };
  return weight_only_is_pair(product) && shape->stages > MOST ? MOST
                                                              : shape->stages;
}

// The columns of y that they have.
static int64_t weight_only_lines(const rabbet_weight_only_t* product,
                                 const weight_only_shape_t* shape) {
  return (int64_t)WEIGHT_ONLY_TILE *
         (weight_only_is_pair(product) ? 1 : shape->tiles);
}

// Which of the epilogue's operands is the pair's second result; -1: none. False
// if the epilogue reads it more than once.
static bool weight_only_other(const rabbet_weight_only_t* product,
                              const rabbet_dims_t* dims, int* out_operand) {
  *out_operand = -1;
  return !weight_only_is_pair(product) ||
         rabbet_cuda_epilogue_operand(&product->plain, dims,
                                      product->second_result, out_operand);
}

// ---- Blocks ----------------------------------------------------------------

// How the program reads the numbers of blocks.
typedef struct weight_only_blocks_t {
  int64_t block;  // of k; 0: one number for a line
  bool wide_scales, wide_zeros;
  bool halves;  // two in 16 bytes of weights: not in the program for one row
} weight_only_blocks_t;

// Whether the numbers that a stage has of each line are contiguous and aligned
// to their size.
static bool weight_only_is_wide(const rabbet_weight_blocks_t* blocks,
                                int64_t count, int64_t bits) {
  int64_t line = blocks->row_stride;
  return count > 1 && blocks->depth_stride == 1 && line % count == 0 &&
         count * bits % 8 == 0;
}

// False if a block is no part of a stage, nor whole stages: the program that
// computes element by element is for it.
static bool weight_only_blocks(const rabbet_group_t* group,
                               const rabbet_weight_only_t* product,
                               weight_only_blocks_t* out) {
  int bits = rabbet_dtype_bits(group->values[product->w].dtype);
  int scale_bits = rabbet_dtype_bits(group->values[product->scale].dtype);
  const rabbet_weight_blocks_t *s = &product->scales, *z = &product->zeros;
  int64_t step = WEIGHT_ONLY_LINE * 8 / bits, least = 16;
  *out = (weight_only_blocks_t){.block = 0};
  // Its numbers are no factors of tensor cores.
  if (group->values[product->w].dtype == RABBET_DTYPE_NF4) return false;
  bool has_zeros = product->zero >= 0 && z->depth_stride != 0;
  bool has_scales = s->depth_stride != 0;
  if (!has_scales && !has_zeros) return true;
  if (!has_scales || (has_zeros && z->depth != s->depth)) return false;
  out->block = s->depth;
  if (out->block >= step) return out->block % step == 0;
  int64_t count = step / out->block;
  if (out->block < least || step % out->block != 0) return false;
  out->halves = out->block * bits < 128;
  out->wide_scales = weight_only_is_wide(s, count, scale_bits);
  out->wide_zeros = has_zeros && weight_only_is_wide(z, count, bits);
  return true;
}

// ---- Proposing -------------------------------------------------------------

// Splits of the stages for which each multiprocessor has warps, as far as there
// are stages: more of them cost more at the end.
static int weight_only_split(const rabbet_cuda_device_t* device,
                             const rabbet_weight_only_t* product,
                             const weight_only_shape_t* shape, int bits) {
  int64_t warps = rabbet_ceildiv(product->n, weight_only_lines(product, shape));
  int64_t stages =
      rabbet_ceildiv(product->k * bits / 8, (int64_t)WEIGHT_ONLY_LINE);
  int log = 0;
  while (log + 1 < WEIGHT_ONLY_SPLITS && (INT64_C(2) << log) <= stages &&
         warps << log < (int64_t)16 * device->multiprocessors)
    ++log;
  return log;
}

// Whether a cluster's blocks, whose warps all share a tile, find enough stages,
// and are needed to give all multiprocessors work.
static bool weight_only_can_cluster(const rabbet_cuda_device_t* device,
                                    const rabbet_weight_only_t* product,
                                    const weight_only_shape_t* shape, int bits,
                                    int cluster_log) {
  enum { MOST_BLOCKS = 4 };
  int64_t blocks =
      rabbet_ceildiv(product->n, weight_only_lines(product, shape));
  int64_t stages =
      rabbet_ceildiv(product->k * bits / 8, (int64_t)WEIGHT_ONLY_LINE);
  return cluster_log == 0 ||
         (device->major >= WEIGHT_ONLY_CLUSTER_MAJOR &&
          stages >= (int64_t)WEIGHT_ONLY_WARPS << cluster_log &&
          blocks << cluster_log <=
              (int64_t)MOST_BLOCKS * device->multiprocessors);
}

static rabbet_status_t weight_only_offer_split(rabbet_proposal_t* proposal,
                                               int shape, int split,
                                               int cluster_log) {
  const weight_only_shape_t* s = &weight_only_shapes[shape];
  const weight_only_parts_t* parts = proposal->context;
  const rabbet_weight_only_t* product = &parts->product;
  rabbet_candidate_t candidate = {.kernel = proposal->kernel,
                                  .tactic = cluster_log * WEIGHT_ONLY_TACTICS +
                                            shape * WEIGHT_ONLY_SPLITS + split,
                                  .tensors = proposal->tensors};
  snprintf(candidate.tactic_name, sizeof(candidate.tactic_name),
           "%s%s%d lines, %d stages, k in %d",
           weight_only_is_pair(product) ? "pair, " : "",
           s->pieces ? "" : "row, ",
           weight_only_tiles(product, s) * WEIGHT_ONLY_TILE,
           weight_only_stages(product, s), 1 << (split + cluster_log));
  return rabbet_offer(proposal->propose, proposal->sink, &candidate);
}

// Offers the shape with all splits, or with the usual one. `fits`: as
// weight_only_blocks() says.
static rabbet_status_t weight_only_offer(rabbet_proposal_t* proposal, int shape,
                                         int bits, bool fits) {
  const weight_only_parts_t* parts = proposal->context;
  const rabbet_propose_t* propose = proposal->propose;
  const rabbet_cuda_device_t* device = rabbet_cuda(propose->device);
  const weight_only_shape_t* s = &weight_only_shapes[shape];
  int usual = weight_only_split(device, &parts->product, s, bits);
  bool all = propose->optimization_level >= 2;
  for (int split = 0; split < WEIGHT_ONLY_SPLITS; ++split)
    if (all || split == usual)
      RABBET_RETURN_IF_ERROR(
          weight_only_offer_split(proposal, shape, split, 0));
  for (int log = 1; all && fits && log < WEIGHT_ONLY_CLUSTERS; ++log)
    if (weight_only_can_cluster(device, &parts->product, s, bits, log))
      RABBET_RETURN_IF_ERROR(weight_only_offer_split(
          proposal, shape, WEIGHT_ONLY_SPLITS - 1, log));
  return rabbet_ok();
}

// The shapes for one row, or the one for so many rows.
static rabbet_status_t weight_only_offer_type(rabbet_proposal_t* proposal,
                                              rabbet_dtype_t dtype) {
  const rabbet_group_t* group = proposal->propose->group;
  const weight_only_parts_t* parts = proposal->context;
  const rabbet_weight_only_t* product = &parts->product;
  int64_t rows = rabbet_weight_only_rows(&group->values[product->x].dims);
  int bits = rabbet_dtype_bits(group->values[product->w].dtype);
  weight_only_blocks_t blocks;
  if (parts->rows.is_normalized && rows > WEIGHT_ONLY_NORMALIZED_ROWS)
    return rabbet_ok();
  bool fits = weight_only_blocks(group, product, &blocks);
  int first = WEIGHT_ONLY_FEW, last = WEIGHT_ONLY_FEW;
  if (fits && rows == 1 && !blocks.halves) {
    first = 0;
    last = proposal->propose->optimization_level < 2 ? 0 : WEIGHT_ONLY_FEW - 1;
    // The first two differ in tiles, of which a pair has two.
    if (last > 0 && weight_only_is_pair(product)) first = 1;
  }
  while (first > 0 && last + 1 < WEIGHT_ONLY_SHAPES &&
         weight_only_rows(dtype, &weight_only_shapes[last]) < rows)
    first = ++last;
  // Sums of two tiles and so many rows exceed the registers.
  if (weight_only_is_pair(product) &&
      weight_only_shapes[last].pieces > WEIGHT_ONLY_PAIR_PIECES)
    return rabbet_ok();
  for (int shape = first; shape <= last; ++shape)
    RABBET_RETURN_IF_ERROR(weight_only_offer(proposal, shape, bits, fits));
  return rabbet_ok();
}

static rabbet_status_t weight_only_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const weight_only_parts_t* parts = proposal->context;
  const rabbet_weight_only_t* product = &parts->product;
  size_t boundary = group->input_count + group->output_count;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(proposal->propose,
                                   group->values[product->x].dtype, types);
  for (int i = 0; i < count; ++i) {
    if (!weight_only_computes(types[i])) continue;
    for (size_t k = 0; k < boundary; ++k)
      if (!weight_only_keeps(group, parts, rabbet_group_boundary(group, k)))
        proposal->tensors[k].dtype = types[i];
    RABBET_RETURN_IF_ERROR(weight_only_offer_type(proposal, types[i]));
  }
  return rabbet_ok();
}

// Programs take the codes of NaN for numbers.
static bool weight_only_has_nan(const rabbet_group_value_t* w) {
  const uint8_t* codes = w->constant;
  int64_t count = 0;
  uint8_t found = 0;
  if (w->dtype != RABBET_DTYPE_FP8) return false;
  rabbet_status_ignore(rabbet_dims_count(&w->dims, &count));
  for (int64_t i = 0; i < count; ++i)
    found |= (codes[i] & 127) == 127;
  return found != 0;
}

static rabbet_status_t cuda_weight_only_propose(const rabbet_propose_t* propose,
                                                rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  weight_only_parts_t parts;
  const rabbet_weight_only_t* product = &parts.product;
  rabbet_dims_t* dims = NULL;
  int other = 0;
  if (rabbet_cuda(propose->device)->major < 8 ||
      !weight_only_parse(group, &parts) ||
      weight_only_has_nan(&group->values[product->w]) ||
      (weight_only_is_pair(product) &&
       weight_only_has_nan(&group->values[product->second.w])))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, propose->allocator, &dims));
  bool fits = rabbet_cuda_layers_match(&product->plain, dims) &&
              weight_only_other(product, dims, &other);
  rabbet_free(propose->allocator, dims);
  if (!fits) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_weight_only, &parts,
                              weight_only_body);
}

// ---- A copy of the weights -------------------------------------------------

static uint8_t weight_only_get(const uint8_t* from, int bits, int64_t i) {
  return bits == 8 ? from[i] : from[i / 2] >> (i % 2 * 4) & 15;
}

// Lines of k elements, each followed by zeros up to the pitch.
static void weight_only_turn(const rabbet_weight_only_t* product,
                             const uint8_t* from, int bits, int64_t pitch,
                             uint8_t* to) {
  enum { BESIDE = 64 };
  int64_t per_line = product->is_turned ? product->k : 1;
  int64_t per_k = product->is_turned ? 1 : product->n;
  for (int64_t first = 0; first < product->n; first += BESIDE) {
    int64_t end = rabbet_min_i64(first + BESIDE, product->n);
    for (int64_t k = 0; k < product->k; ++k)
      for (int64_t line = first; line < end; ++line) {
        uint8_t w = weight_only_get(from, bits, line * per_line + k * per_k);
        to[line * pitch + k * bits / 8] |= (uint8_t)(w << k * bits % 8);
      }
  }
}

static rabbet_status_t weight_only_copy(weight_only_kernel_t* kernel,
                                        const rabbet_kernel_spec_t* spec,
                                        int32_t w, void** out_copy) {
  const rabbet_weight_only_t* product = &kernel->parts.product;
  const rabbet_group_value_t* value = &spec->group->values[w];
  int bits = rabbet_dtype_bits(value->dtype);
  int64_t line = product->k * bits;  // bits
  void* host = NULL;
  kernel->pitch = rabbet_ceildiv(line, INT64_C(128)) * 16;
  if (product->is_turned && line % 128 == 0) return rabbet_ok();
  size_t bytes = (size_t)(product->n * kernel->pitch);
  RABBET_RETURN_IF_ERROR(rabbet_allocate(spec->allocator, bytes, &host));
  weight_only_turn(product, value->constant, bits, kernel->pitch, host);
  rabbet_status_t status =
      rabbet_cuda_upload(&kernel->node.device->base, host, bytes, out_copy);
  rabbet_free(spec->allocator, host);
  int32_t input = rabbet_group_input_of(spec->group, w);
  if (input < 64) kernel->node.node.base.own_constants |= UINT64_C(1) << input;
  return status;
}

static rabbet_status_t weight_only_copy_all(weight_only_kernel_t* kernel,
                                            const rabbet_kernel_spec_t* spec) {
  const rabbet_weight_only_t* product = &kernel->parts.product;
  RABBET_RETURN_IF_ERROR(
      weight_only_copy(kernel, spec, product->w, &kernel->copies[0]));
  return weight_only_is_pair(product)
             ? weight_only_copy(kernel, spec, product->second.w,
                                &kernel->copies[1])
             : rabbet_ok();
}

// ---- The program -----------------------------------------------------------

static bool weight_only_types_fit(const rabbet_group_t* group,
                                  const weight_only_parts_t* parts,
                                  rabbet_dtype_t dtype) {
  const rabbet_weight_only_t* product = &parts->product;
  bool fits = weight_only_computes(dtype) &&
              weight_only_computes(group->values[product->scale].dtype);
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t at = rabbet_group_boundary(group, i);
    const rabbet_group_value_t* value = &group->values[at];
    fits = fits && value->format == RABBET_FORMAT_LINEAR &&
           (value->dtype == dtype || weight_only_keeps(group, parts, at));
  }
  return fits && (product->zero < 0 || group->values[product->zero].dtype ==
                                           group->values[product->w].dtype);
}

static void weight_only_text(const weight_only_kernel_t* kernel,
                             const rabbet_group_t* group,
                             const weight_only_shape_t* shape,
                             const weight_only_blocks_t* blocks, char* text,
                             size_t size) {
  const rabbet_weight_only_t* product = &kernel->parts.product;
  const rabbet_cuda_normalized_t* rows = &kernel->parts.rows;
  snprintf(text, size,
           "#define ELEMENT %s\n#define FACTOR %s\n#define PARTS %d\n"
           "#define WEIGHT %s\n#define SCALE %s\n#define SHIFTED %d\n"
           "#define BLOCK %lld\n#define PIECES %d\n#define TILES %d\n"
           "#define STAGES %d\n#define WIDE_SCALES %d\n#define WIDE_ZEROS %d\n"
           "#define PAIR %d\n#define OTHER %d\n#define NORMALIZED %d\n"
           "#define SCALED %d\n#define NUMBER %s\n",
           rabbet_cuda_type(kernel->dtype),
           kernel->dtype == RABBET_DTYPE_HALF ? "half_t" : "bf16_t",
           weight_only_parts(kernel->dtype),
           weight_only_name(group->values[product->w].dtype),
           rabbet_cuda_type(group->values[product->scale].dtype),
           product->zero >= 0, (long long)blocks->block, shape->pieces,
           weight_only_tiles(product, shape),
           weight_only_stages(product, shape), blocks->wide_scales,
           blocks->wide_zeros, weight_only_is_pair(product), kernel->other,
           rows->is_normalized, rows->scale >= 0,
           rabbet_cuda_type(rows->scale >= 0 ? group->values[rows->scale].dtype
                                             : kernel->dtype));
}

// Shared memory of a block, in bytes: its stages, later the sums of its warps.
static int64_t weight_only_shared(const rabbet_weight_only_t* product,
                                  const weight_only_shape_t* shape) {
  int64_t lines = (int64_t)weight_only_tiles(product, shape) * WEIGHT_ONLY_TILE;
  int64_t columns = rabbet_max_i64(1, shape->pieces * WEIGHT_ONLY_PIECE);
  return WEIGHT_ONLY_WARPS *
         rabbet_max_i64(
             lines * WEIGHT_ONLY_LINE * weight_only_stages(product, shape),
             columns * (lines + 4) * (int64_t)sizeof(float));
}

static rabbet_status_t weight_only_permit(const weight_only_kernel_t* kernel,
                                          const weight_only_form_t* form) {
  CUfunction functions[] = {form->wide, form->single};
  for (int i = 0; i < 2; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_cuda_launch_permit(
        kernel->node.device, functions[i], form->shared));
  return rabbet_ok();
}

// Adds the program of a shape. Of blocks that fit no stage: one that computes
// element by element.
static rabbet_status_t weight_only_add(weight_only_kernel_t* kernel,
                                       const rabbet_kernel_spec_t* spec,
                                       const weight_only_shape_t* shape,
                                       weight_only_form_t* form) {
  rabbet_cuda_node_t* base = &kernel->node;
  rabbet_kernel_spec_t plain = *spec;
  weight_only_blocks_t blocks;
  char begin[768];
  plain.group = &kernel->parts.product.plain;
  bool fits = weight_only_blocks(spec->group, &kernel->parts.product, &blocks);
  if (!fits) {  // one program for all blocks and tactics
    kernel->cluster_log = 0;
    static const weight_only_shape_t none = {.pieces = 0};
    shape = &none;
    blocks = (weight_only_blocks_t){.block = 0};
  }
  weight_only_text(kernel, spec->group, shape, &blocks, begin, sizeof(begin));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_layers_add(base, &plain, "weight_only/weight_only.cu", begin,
                             fits ? "device/cuda/weight_only/weight_only.cuh"
                                  : "device/cuda/weight_only/any.cuh"));
  size_t program = base->program_count - 1;
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, program, "weight_only", &form->wide));
  form->rows = 1;
  form->lines = WEIGHT_ONLY_WARPS;
  form->single = form->wide;
  if (!fits) return rabbet_ok();
  form->rows = weight_only_rows(kernel->dtype, shape);
  form->lines = weight_only_lines(&kernel->parts.product, shape) *
                (WEIGHT_ONLY_WARPS >> kernel->split_log);
  form->shared = weight_only_shared(&kernel->parts.product, shape);
  form->received = form->shared / (int64_t)sizeof(float);
  if (kernel->cluster_log > 0)
    form->shared +=
        (form->rows * weight_only_tiles(&kernel->parts.product, shape) *
         WEIGHT_ONLY_TILE * (int64_t)sizeof(float))
        << kernel->cluster_log;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(
      base, program, "weight_only_single", &form->single));
  return weight_only_permit(kernel, form);
}

static rabbet_status_t weight_only_find_other(
    weight_only_kernel_t* kernel, const rabbet_kernel_spec_t* spec) {
  rabbet_dims_t* dims = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(spec->group, spec->allocator, &dims));
  bool fits = weight_only_other(&kernel->parts.product, dims, &kernel->other);
  rabbet_free(spec->allocator, dims);
  return fits ? rabbet_ok()
              : RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                              "cuda.matmul.weight_only does not combine the "
                              "products '%s' and '%s'",
                              kernel->parts.product.nodes[0].name,
                              kernel->node.node.node->name);
}

static rabbet_status_t cuda_weight_only_program(
    rabbet_cuda_node_t* base, const rabbet_kernel_spec_t* spec) {
  weight_only_kernel_t* kernel = (weight_only_kernel_t*)base;
  const rabbet_group_t* group = spec->group;
  bool fits = weight_only_parse(group, &kernel->parts) && spec->tactic >= 0 &&
              spec->tactic < WEIGHT_ONLY_CLUSTERS * WEIGHT_ONLY_TACTICS;
  if (fits) kernel->dtype = group->values[kernel->parts.product.x].dtype;
  if (!fits || !weight_only_types_fit(group, &kernel->parts, kernel->dtype))
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "cuda.matmul.weight_only computes products with "
                         "dequantized constants whose other tensors have one "
                         "floating type, all LINEAR; this one does not, or has "
                         "no tactic %d",
                         (int)spec->tactic);
  int tactic = spec->tactic % WEIGHT_ONLY_TACTICS;
  const weight_only_shape_t* shape =
      &weight_only_shapes[tactic / WEIGHT_ONLY_SPLITS];
  kernel->split_log = tactic % WEIGHT_ONLY_SPLITS;
  kernel->cluster_log = spec->tactic / WEIGHT_ONLY_TACTICS;
  // A cluster's blocks have one tile.
  if (kernel->cluster_log > 0) kernel->split_log = WEIGHT_ONLY_SPLITS - 1;
  kernel->size = rabbet_dtype_bits(kernel->dtype) / 8;
  kernel->word =
      32 / rabbet_dtype_bits(group->values[kernel->parts.product.w].dtype);
  RABBET_RETURN_IF_ERROR(weight_only_find_other(kernel, spec));
  RABBET_RETURN_IF_ERROR(
      weight_only_add(kernel, spec, shape, &kernel->forms[0]));
  if (shape->pieces == 0)
    RABBET_RETURN_IF_ERROR(weight_only_add(
        kernel, spec, &weight_only_shapes[WEIGHT_ONLY_FEW], &kernel->forms[1]));
  return weight_only_copy_all(kernel, spec);
}

static rabbet_status_t cuda_weight_only_create(const rabbet_kernel_spec_t* spec,
                                               rabbet_kernel_t** out_kernel) {
  return rabbet_cuda_node_create(spec, &rabbet_cuda_weight_only,
                                 sizeof(weight_only_kernel_t),
                                 cuda_weight_only_program, out_kernel);
}

static void cuda_weight_only_destroy(rabbet_kernel_t* base) {
  if (!base) return;
  weight_only_kernel_t* kernel = (weight_only_kernel_t*)base;
  rabbet_device_t* device = &kernel->node.device->base;
  for (int i = 0; i < 2; ++i)
    device->vtable->free(device, kernel->copies[i]);
  rabbet_cuda_node_destroy(base);
}

// ---- Preparing -------------------------------------------------------------

static weight_only_places_t weight_only_places(
    const rabbet_weight_blocks_t* blocks) {
  return (weight_only_places_t){.lines = blocks->rows,
                                .depth = blocks->depth,
                                .line_step = blocks->row_stride,
                                .block_step = blocks->depth_stride};
}

static void weight_only_parameters(const weight_only_kernel_t* kernel,
                                   const rabbet_matmul_shape_t* s,
                                   weight_only_t* p) {
  const rabbet_weight_only_t* product = &kernel->parts.product;
  p->scale = weight_only_places(&product->scales);
  if (product->zero >= 0) p->zero = weight_only_places(&product->zeros);
  p->pitch = kernel->pitch;
  p->x_row = s->a_row;
  p->x_k = s->a_column;
  p->y_row = s->y_row;
  p->rows = (int32_t)s->m;
  p->lines = (int32_t)s->n;
  p->k = (int32_t)s->k;
  p->mask = 0x000f000f;
  p->stages = (int32_t)rabbet_ceildiv(kernel->pitch, WEIGHT_ONLY_LINE);
  p->blocks = (int32_t)rabbet_ceildiv(s->k, product->scales.depth);
}

static rabbet_status_t weight_only_launch(const weight_only_kernel_t* kernel,
                                          const weight_only_form_t* form,
                                          const rabbet_matmul_shape_t* s,
                                          rabbet_cuda_launch_t* out) {
  int64_t x = rabbet_ceildiv(s->m, form->rows) << kernel->cluster_log;
  int64_t y = rabbet_ceildiv(s->n, form->lines);
  if (s->m >= INT32_MAX / 2 || s->n >= INT32_MAX / 2 ||
      s->k >= INT32_MAX / 16 || y > 65535 || s->batch.size != 1 ||
      s->loop_count != 0)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the product '%s' has m %lld, n %lld, k %lld, more "
                         "than cuda.matmul.weight_only counts",
                         kernel->parts.product.plain.nodes[0].name,
                         (long long)s->m, (long long)s->n, (long long)s->k);
  *out = (rabbet_cuda_launch_t){.grid = {(unsigned)x, (unsigned)y, 1},
                                .block = {32 * WEIGHT_ONLY_WARPS, 1, 1},
                                .shared_bytes = (unsigned)form->shared,
                                .cluster = 1u << kernel->cluster_log};
  return rabbet_ok();
}

static void weight_only_inputs(cuda_weight_only_state_t* state, int side,
                               const rabbet_group_t* group,
                               const rabbet_weight_factor_t* factor) {
  state->w[side] = rabbet_group_input_of(group, factor->w);
  state->scale[side] = rabbet_group_input_of(group, factor->scale);
  state->zero[side] = rabbet_group_input_of(group, factor->zero);
}

static rabbet_status_t weight_only_fill(const weight_only_kernel_t* kernel,
                                        const rabbet_dims_t* dims,
                                        cuda_weight_only_state_t* state) {
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_weight_only_t* product = &kernel->parts.product;
  const rabbet_group_node_t* node = &product->plain.nodes[0];
  rabbet_matmul_shape_t s;
  weight_only_t* p = &state->parameters;
  RABBET_RETURN_IF_ERROR(rabbet_matmul_shape(node, dims, &s));
  state->x = rabbet_group_input_of(group, product->x);
  state->numbers = kernel->parts.rows.scale < 0
                       ? -1
                       : rabbet_group_input_of(group, kernel->parts.rows.scale);
  p->epsilon = kernel->parts.rows.epsilon;
  weight_only_inputs(
      state, 0, group,
      &(rabbet_weight_factor_t){product->w, product->scale, product->zero});
  weight_only_inputs(state, 1, group, &product->second);
  state->empty = s.m == 0;
  weight_only_parameters(kernel, &s, p);
  p->split_log = kernel->split_log;
  p->cluster_log = kernel->cluster_log;
  const layer_operand_t result = {NULL, 0, s.y_row, 1};
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_layers_place(&kernel->node, &product->plain, dims, &result,
                               false, &state->layers, &p->layers));
  // The kernel does not read the second result from memory.
  if (kernel->other >= 0) state->layers.inputs[kernel->other] = state->x;
  state->form = &kernel->forms[s.m > 1 && kernel->forms[1].wide];
  p->received = (int32_t)state->form->received;
  state->is_wide = s.a_column == 1 && s.k % kernel->word == 0 &&
                   (s.m == 1 || s.a_row % kernel->word == 0);
  return state->empty
             ? rabbet_ok()
             : weight_only_launch(kernel, state->form, &s, &state->launch);
}

static rabbet_status_t cuda_weight_only_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_weight_only_state_t** out_state, size_t* out_workspace) {
  const weight_only_kernel_t* kernel = (const weight_only_kernel_t*)base;
  cuda_weight_only_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status = weight_only_fill(kernel, shapes->dims, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t cuda_weight_only_enqueue(
    rabbet_kernel_t* base, cuda_weight_only_state_t* state,
    const rabbet_kernel_call_t* call) {
  const weight_only_kernel_t* kernel = (const weight_only_kernel_t*)base;
  weight_only_t* p = &state->parameters;
  p->x = call->inputs[state->x];
  if (state->numbers >= 0) p->numbers = call->inputs[state->numbers];
  for (int i = 0; i < 2 && state->w[i] >= 0; ++i) {
    p->w[i] = kernel->copies[i] ? kernel->copies[i] : call->inputs[state->w[i]];
    p->scales[i] = call->inputs[state->scale[i]];
    p->zeros[i] = state->zero[i] < 0 ? NULL : call->inputs[state->zero[i]];
  }
  p->y = call->outputs[0];
  rabbet_cuda_layers_bind(&state->layers, call, 0, &p->layers);
  bool wide = state->is_wide &&
              rabbet_cuda_is_aligned(
                  p->x, rabbet_min_i64(16, kernel->word * kernel->size));
  state->launch.function = wide ? state->form->wide : state->form->single;
  void* parameters[] = {p};
  if (state->empty) return rabbet_ok();
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

static bool cuda_weight_only_takes(const rabbet_kernel_spec_t* spec) {
  weight_only_parts_t parts;
  return weight_only_parse(spec->group, &parts);
}

RABBET_NODE_TABLE(cuda_weight_only, "cuda.matmul.weight_only", 3,
                  .destroy = cuda_weight_only_destroy,
                  .artifacts = rabbet_cuda_node_artifacts,
                  .library_version = rabbet_cuda_node_library);
