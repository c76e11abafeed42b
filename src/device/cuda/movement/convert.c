// Casts, of numbers or of bits, copies and changes of format: groups of one
// identity or cast.
//
// Bound by the bytes of both tensors. If the order of elements stays the same,
// vectors of 16 bytes are converted; otherwise tiles go through shared memory,
// so that both sides are accessed in pieces of 64 bytes or more.
#include "core/view.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"

// BLOCK, TILE and MOST_CHANNELS of movement/convert.cu.
enum { BLOCK = 256, TILE = 2048, MOST_CHANNELS = 512 };

typedef struct convert_tiles_t {
  uint32_t channels, positions, from_channels, to_channels;
  uint32_t channel_tiles, position_tiles, tile_channels, tile_positions;
} convert_tiles_t;

typedef struct cuda_convert_t {
  rabbet_cuda_node_t base;
  rabbet_type_format_t from, to;
  bool copies;  // the same type and format: no kernel
  int vector;
  CUfunction flat, single, tiled;
} cuda_convert_t;

typedef enum convert_way_t {
  CONVERT_NOTHING,
  CONVERT_COPY,
  CONVERT_FLAT,
  CONVERT_TILED,
} convert_way_t;

typedef struct cuda_convert_state_t {
  convert_way_t way;
  size_t bytes;   // COPY
  int64_t count;  // FLAT: elements
  convert_tiles_t tiles;
  rabbet_cuda_launch_t launch;
} cuda_convert_state_t;

// ---- Proposing -------------------------------------------------------------

// The kernel's type for the elements; a move without conversion uses any type
// of the same size. NULL: the kernels do not support the type.
static const char* convert_type(rabbet_dtype_t own, rabbet_dtype_t other) {
  if (own != other) return rabbet_cuda_type(own);
  switch (rabbet_dtype_bits(own)) {
    case 8:
      return "uint8_t";
    case 16:
      return "half_t";
    case 32:
      return "int32_t";
    case 64:
      return "int64_t";
    default:
      return NULL;
  }
}

static bool convert_is_one(const rabbet_group_t* group) {
  return group->input_count == 1 && group->output_count == 1 &&
         (rabbet_node_is(group, RABBET_OP_IDENTITY) ||
          rabbet_node_is(group, RABBET_OP_BIT_CAST) ||
          rabbet_node_is(group, RABBET_OP_CAST));
}

static bool convert_supports(rabbet_type_format_t from,
                             rabbet_type_format_t to) {
  bool same = from.dtype == to.dtype && from.format == to.format;
  return rabbet_format_info(from.format) && rabbet_format_info(to.format) &&
         (same || (convert_type(from.dtype, to.dtype) &&
                   convert_type(to.dtype, from.dtype)));
}

static rabbet_status_t cuda_convert_body(rabbet_proposal_t* proposal) {
  const rabbet_propose_t* propose = proposal->propose;
  proposal->keeps_padding = true;
  if (propose->fixed) {
    rabbet_type_format_t from = propose->fixed[0], to = propose->fixed[1];
    if (!convert_supports(from, to)) return rabbet_ok();
    proposal->tensors[0] = from;
    proposal->tensors[1] = to;
    bool in_place = from.format == to.format && rabbet_dtype_bits(from.dtype) ==
                                                    rabbet_dtype_bits(to.dtype);
    return rabbet_proposal_offer(proposal, "convert", in_place ? 0 : -1);
  }
  const rabbet_group_t* group = propose->group;
  rabbet_dtype_t from = group->values[group->inputs[0]].dtype;
  rabbet_dtype_t to = group->values[group->outputs[0]].dtype, types[4];
  int count = rabbet_compute_types(propose, from, types);
  if (rabbet_node_is(group, RABBET_OP_BIT_CAST)) {
    types[0] = from;  // another type has other bits
    count = 1;
  }
  rabbet_format_t formats[RABBET_CUDA_FORMATS];
  int n = rabbet_cuda_formats(RABBET_DTYPE_HALF, propose->formats, formats);
  for (int i = 0; i < n * count; ++i) {
    rabbet_type_format_t source = {types[i / n], formats[i % n]};
    rabbet_type_format_t target = {from == to ? types[i / n] : to,
                                   formats[i % n]};
    if (!convert_supports(source, target)) continue;
    proposal->tensors[0] = source;
    proposal->tensors[1] = target;
    bool same_size =
        rabbet_dtype_bits(source.dtype) == rabbet_dtype_bits(target.dtype);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(
        proposal, from == to ? "copy" : "cast", same_size ? 0 : -1));
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_convert_propose(const rabbet_propose_t* propose,
                                            rabbet_candidate_sink_t sink) {
  if (!convert_is_one(propose->group)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_convert, NULL,
                              cuda_convert_body);
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t cuda_convert_program(rabbet_cuda_node_t* base,
                                            const rabbet_kernel_spec_t* spec) {
  cuda_convert_t* kernel = (cuda_convert_t*)base;
  const rabbet_group_t* group = spec->group;
  if (!convert_is_one(group))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a conversion is a group of one identity or cast");
  const rabbet_group_value_t* from = &group->values[group->inputs[0]];
  const rabbet_group_value_t* to = &group->values[group->outputs[0]];
  kernel->from = (rabbet_type_format_t){from->dtype, from->format};
  kernel->to = (rabbet_type_format_t){to->dtype, to->format};
  if (!convert_supports(kernel->from, kernel->to))
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "there is no kernel from %s %s to %s %s",
        rabbet_dtype_name(from->dtype), rabbet_format_name(from->format),
        rabbet_dtype_name(to->dtype), rabbet_format_name(to->format));
  kernel->copies = from->dtype == to->dtype && from->format == to->format;
  if (kernel->copies) return rabbet_ok();
  int bits = (int)rabbet_max_i64(rabbet_dtype_bits(from->dtype),
                                 rabbet_dtype_bits(to->dtype));
  // Elements that keep their order need no format: types alone make a program.
  bool flat = from->format == to->format;
  const rabbet_format_info_t* source =
      rabbet_format_info(flat ? RABBET_FORMAT_LINEAR : from->format);
  const rabbet_format_info_t* target =
      rabbet_format_info(flat ? RABBET_FORMAT_LINEAR : to->format);
  kernel->vector = 128 / bits;
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DFROM=%s",
                     convert_type(from->dtype, to->dtype));
  rabbet_cuda_option(&options, "-DTO=%s", convert_type(to->dtype, from->dtype));
  rabbet_cuda_option(&options, "-DFROM_BLOCK=%d",
                     __builtin_ctz((unsigned)source->block));
  rabbet_cuda_option(&options, "-DTO_BLOCK=%d",
                     __builtin_ctz((unsigned)target->block));
  rabbet_cuda_option(&options, "-DFROM_LAST=%d", source->channels_last);
  rabbet_cuda_option(&options, "-DTO_LAST=%d", target->channels_last);
  rabbet_cuda_option(&options, "-DVECTOR=%d", kernel->vector);
  rabbet_cuda_option(&options, "-DBITS=%d",
                     rabbet_node_is(group, RABBET_OP_BIT_CAST));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(base, spec, "movement/convert.cu", NULL, &options));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "flat", &kernel->flat));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "single", &kernel->single));
  return rabbet_cuda_node_function(base, 0, "tiled", &kernel->tiled);
}

// ---- Geometry --------------------------------------------------------------

static int64_t convert_padded(int64_t channels, rabbet_format_t format) {
  int64_t block = rabbet_format_info(format)->block;
  return rabbet_ceildiv(channels, block) * block;
}

// Chooses a tile: up to 64 positions; the rest of the TILE elements are
// channels, in whole blocks.
static void convert_tile(const cuda_convert_t* kernel,
                         const rabbet_dims_t* dims, int64_t positions,
                         convert_tiles_t* out) {
  int64_t from = convert_padded(dims->d[1], kernel->from.format);
  int64_t to = convert_padded(dims->d[1], kernel->to.format);
  uint32_t all = rabbet_cuda_log2(TILE);
  uint32_t least = rabbet_cuda_log2(
      rabbet_max_i64(rabbet_format_info(kernel->from.format)->block,
                     rabbet_format_info(kernel->to.format)->block));
  uint32_t across = rabbet_cuda_log2(rabbet_min_i64(positions, 64));
  uint32_t most =
      (uint32_t)rabbet_min_i64(all - across, rabbet_cuda_log2(MOST_CHANNELS));
  uint32_t channels = rabbet_cuda_log2(rabbet_max_i64(from, to));
  if (channels > most) channels = most;
  if (channels < least) channels = least;
  *out = (convert_tiles_t){
      .channels = (uint32_t)dims->d[1],
      .positions = (uint32_t)positions,
      .from_channels = (uint32_t)from,
      .to_channels = (uint32_t)to,
      .tile_channels = channels,
      .tile_positions = all - channels,
  };
  out->channel_tiles = (uint32_t)rabbet_ceildiv(rabbet_max_i64(from, to),
                                                INT64_C(1) << channels);
  out->position_tiles =
      (uint32_t)rabbet_ceildiv(positions, INT64_C(1) << out->tile_positions);
}

static rabbet_status_t convert_too_large(const cuda_convert_t* kernel) {
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "layer '%s': the tensor has more elements than the "
                       "kernel counts",
                       kernel->base.node.node->name);
}

static rabbet_status_t convert_plan(const cuda_convert_t* kernel,
                                    const rabbet_dims_t* dims,
                                    cuda_convert_state_t* state) {
  int64_t positions = 1, count = 0;
  rabbet_dims_t physical;
  RABBET_RETURN_IF_ERROR(
      rabbet_format_physical_dims(kernel->to.format, dims, &physical));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&physical, &count));
  for (int32_t i = 2; i < dims->rank; ++i)
    positions *= dims->d[i];
  if (count == 0) return rabbet_ok();
  if (kernel->copies) {
    state->way = CONVERT_COPY;
    return rabbet_tensor_bytes(kernel->to.dtype, kernel->to.format, dims,
                               &state->bytes);
  }
  int64_t blocks = rabbet_ceildiv(count / kernel->vector, BLOCK);
  state->way = CONVERT_FLAT;
  state->count = count;
  state->launch.function = kernel->flat;
  if (!rabbet_format_lies_alike(dims, kernel->from.format, kernel->to.format)) {
    state->way = CONVERT_TILED;
    state->launch.function = kernel->tiled;
    if (positions >= RABBET_CUDA_MAX_COUNT ||
        dims->d[1] >= RABBET_CUDA_MAX_COUNT)
      return convert_too_large(kernel);
    convert_tile(kernel, dims, positions, &state->tiles);
    blocks = (int64_t)state->tiles.channel_tiles * state->tiles.position_tiles *
             dims->d[0];
  }
  if (blocks >= RABBET_CUDA_MAX_COUNT / BLOCK) return convert_too_large(kernel);
  state->launch.grid[0] = (unsigned)rabbet_max_i64(blocks, 1);
  state->launch.grid[1] = state->launch.grid[2] = 1;
  state->launch.block[0] = BLOCK;
  state->launch.block[1] = state->launch.block[2] = 1;
  return rabbet_ok();
}

static rabbet_status_t cuda_convert_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_convert_state_t** out_state, size_t* out_workspace) {
  const cuda_convert_t* kernel = (const cuda_convert_t*)base;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  rabbet_status_t status = convert_plan(
      kernel, &shapes->dims[kernel->base.node.group->outputs[0]], *out_state);
  if (!rabbet_is_ok(status)) {
    rabbet_node_state_destroy(base, (rabbet_kernel_state_t*)*out_state);
    *out_state = NULL;
  }
  return status;
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t convert_flat(const cuda_convert_t* kernel,
                                    const cuda_convert_state_t* state,
                                    const rabbet_kernel_call_t* call) {
  void *source = call->inputs[0], *target = call->outputs[0];
  rabbet_cuda_launch_t launch = state->launch;
  int64_t from = rabbet_dtype_bits(kernel->from.dtype) / 8;
  int64_t to = rabbet_dtype_bits(kernel->to.dtype) / 8;
  uint32_t count = (uint32_t)(state->count / kernel->vector);
  uint32_t tail = (uint32_t)(state->count % kernel->vector);
  void* parameters[] = {&source, &target, &count, &tail};
  if (!rabbet_cuda_is_aligned(source, from * kernel->vector) ||
      !rabbet_cuda_is_aligned(target, to * kernel->vector)) {
    if (state->count >= RABBET_CUDA_MAX_COUNT) return convert_too_large(kernel);
    count = (uint32_t)state->count;
    launch.function = kernel->single;
    launch.grid[0] = (unsigned)rabbet_ceildiv(state->count, BLOCK);
  }
  return rabbet_cuda_launch(kernel->base.device, &launch, parameters,
                            call->stream);
}

static rabbet_status_t cuda_convert_enqueue(rabbet_kernel_t* base,
                                            cuda_convert_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const cuda_convert_t* kernel = (const cuda_convert_t*)base;
  rabbet_cuda_device_t* device = kernel->base.device;
  void *source = call->inputs[0], *target = call->outputs[0];
  void* parameters[] = {&source, &target, &state->tiles};
  switch (state->way) {
    case CONVERT_COPY:
      return device->base.vtable->copy(&device->base, target, source,
                                       state->bytes, call->stream);
    case CONVERT_FLAT:
      return convert_flat(kernel, state, call);
    case CONVERT_TILED:
      return rabbet_cuda_launch(device, &state->launch, parameters,
                                call->stream);
    default:
      return rabbet_ok();
  }
}

static bool cuda_convert_takes(const rabbet_kernel_spec_t* spec) {
  return convert_is_one(spec->group);
}

RABBET_CUDA_NODE_CLASS(cuda_convert, cuda_convert_t, "cuda.convert", 1);
