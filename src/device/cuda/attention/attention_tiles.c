// softmax(scale q k' + mask) v as one kernel of our own: HALF, BF16, and FLOAT
// as TF32, with a mask of any type and broadcasting. If cuDNN has a kernel,
// too, both are timed.
//
// Short sequences are bound by latency, so several warps split the keys of a
// row. Long ones are bound by exponentials and the first-level cache. Few
// queries with many keys are bound by reading these: heads that share keys are
// rows of one block, and the blocks of a cluster split the keys. Many queries
// are bound by the tensor cores: blocks of some of them share keys and values
// in shared memory (staged.cu).
#include "device/cuda/attention/attention_staged.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/view.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"

#include "device/cuda/attention/attention_params.h"

// Constants of attention/attention.cu.
enum {
  TILE_ROWS = 16,
  TILE_KEYS = 32,
  TILE_KEYS_FLOAT = 16,
  WIDTH_STEP = 32,
  ALIGNMENT = 16
};
enum { MOST_WIDTH = 128, OLDEST_MAJOR = 8 };

// The warps of a block: groups with rows of their own, warps of a group that
// split the keys; and the blocks of a cluster. Or, of staged.cu, warp groups
// and keys of a tile.
typedef struct tiles_tactic_t {
  const char* name;
  int rows, keys, splits, groups;
} tiles_tactic_t;
#define WARPS(of_rows, of_keys, blocks) \
  .rows = of_rows, .keys = of_keys, .splits = blocks
#define STAGED(warp_groups, of_keys) \
  .splits = 1, .groups = warp_groups, .keys = of_keys
static const tiles_tactic_t tiles_tactics[] = {
    {"1 x 1 warps", WARPS(1, 1, 1)},
    {"1 x 4 warps", WARPS(1, 4, 1)},
    {"1 x 8 warps", WARPS(1, 8, 1)},
    {"1 x 2 warps", WARPS(1, 2, 1)},
    {"2 x 2 warps", WARPS(2, 2, 1)},
    {"4 x 1 warps", WARPS(4, 1, 1)},
    {"8 x 1 warps", WARPS(8, 1, 1)},
    {"1 x 4 warps, keys in 2", WARPS(1, 4, 2)},
    {"1 x 4 warps, keys in 4", WARPS(1, 4, 4)},
    {"1 x 4 warps, keys in 8", WARPS(1, 4, 8)},
    {"1 x 4 warps, keys in 16", WARPS(1, 4, 16)},
    {"1 x 8 warps, keys in 4", WARPS(1, 8, 4)},
    {"1 x 8 warps, keys in 8", WARPS(1, 8, 8)},
    {"1 x 8 warps, keys in 16", WARPS(1, 8, 16)},
    {"staged, 64 x 64", STAGED(1, 64)},
    {"staged, 64 x 128", STAGED(1, 128)},
    {"staged, 128 x 64", STAGED(2, 64)},
    {"staged, 128 x 128", STAGED(2, 128)},
};
enum { TACTICS = sizeof(tiles_tactics) / sizeof(tiles_tactics[0]) };
// A tactic's number has the index in the table above, the number of columns,
// and whether heads share keys: a plan's group may have dynamic shapes, which
// do not tell it.
enum {
  TACTIC_WIDTH_SHIFT = 8,
  TACTIC_PLACE = (1 << TACTIC_WIDTH_SHIFT) - 1,
  TACTIC_SHARED_SHIFT = 20
};
// The oldest GPU with clusters; their blocks on any GPU, and at most.
enum { CLUSTER_MAJOR = 9, CLUSTER_PORTABLE = 8, MOST_CLUSTER = 16 };

typedef struct tiles_kernel_t {
  rabbet_cuda_node_t base;
  rabbet_attention_t attention;
  const tiles_tactic_t* tactic;
  int64_t width, size;  // columns; bytes of an element
  bool shared;          // heads may share keys
  int32_t at[4];        // boundary inputs: q, k, v, mask
  CUfunction function, survey;
} tiles_kernel_t;

typedef struct cuda_attention_tiles_state_t {
  attend_t parameters;
  int64_t offsets[3];  // of q, k, v; in bytes
  rabbet_cuda_launch_t launch, survey;
  int64_t pair;  // bytes of two elements of the mask; 0: not read in pairs
  bool empty;
} cuda_attention_tiles_state_t;

// ---- Shapes ----------------------------------------------------------------

// Columns are contiguous, and rows are aligned to vectors.
static bool tiles_is_even(const rabbet_attention_view_t* view, int64_t size,
                          int64_t width) {
  bool even = view->offset * size % ALIGNMENT == 0 &&
              view->outside * size % ALIGNMENT == 0;
  for (int i = 0; i < 3; ++i)
    even = even &&
           (view->dims[i] == 1 || view->strides[i] * size % ALIGNMENT == 0);
  return even && view->strides[3] == 1 && view->dims[3] == width;
}

static bool tiles_broadcasts(const rabbet_attention_view_t* view,
                             const rabbet_attention_view_t* y) {
  for (int i = 0; i < 2; ++i)
    if (view->dims[i] != 1 && view->dims[i] != y->dims[i]) return false;
  return true;
}

// Swaps rows and columns of k, so that its rows are keys.
static void tiles_turn(rabbet_attention_view_t* k) {
  const rabbet_attention_view_t from = *k;
  k->dims[2] = from.dims[3];
  k->dims[3] = from.dims[2];
  k->strides[2] = from.strides[3];
  k->strides[3] = from.strides[2];
}

static int64_t tiles_share_of(const rabbet_attention_view_t* view) {
  bool same = view->dims[1] > 1 && view->strides[1] == 0;
  return same ? view->dims[1] : view->share;
}
// How many heads of queries share one of keys and values; 0: they do not agree.
static int64_t tiles_share(const rabbet_attention_views_t* views) {
  int64_t share = tiles_share_of(&views->k);
  if (views->q.share > 1 || views->y.share > 1) return 0;
  if (share == tiles_share_of(&views->v) && views->y.dims[1] % share == 0)
    return share;
  return views->k.share == 1 && views->v.share == 1;
}

// False where the kernel cannot read or write the tensors.
static bool tiles_views(const rabbet_group_t* group,
                        const rabbet_attention_t* attention,
                        const rabbet_dims_t* dims,
                        const int64_t* const* host_values, int64_t size,
                        rabbet_attention_views_t* out) {
  if (!rabbet_attention_views(group, attention, dims, host_values, out))
    return false;
  int64_t width = out->q.dims[3];
  tiles_turn(&out->k);
  return tiles_is_even(&out->q, size, width) &&
         tiles_is_even(&out->k, size, width) &&
         tiles_is_even(&out->v, size, width) &&
         tiles_is_even(&out->y, size, width) &&
         tiles_broadcasts(&out->q, &out->y) &&
         tiles_broadcasts(&out->k, &out->y) &&
         tiles_broadcasts(&out->v, &out->y) && tiles_share(out) > 0 &&
         out->k.dims[2] == out->v.dims[2] && out->q.dims[2] == out->y.dims[2];
}

// Whether there is a kernel for so many columns of `size` bytes.
static bool tiles_has_width(const tiles_tactic_t* tactic, int64_t width,
                            int64_t size) {
  int64_t most =
      tactic->groups > 0 ? RABBET_ATTENTION_STAGED_WIDTH : MOST_WIDTH;
  return width > 0 && width <= most && width * size % ALIGNMENT == 0 &&
         (tactic->groups == 0 || size == 2);
}
// The columns that a warp computes.
static int64_t tiles_padded(int64_t width) {
  return rabbet_ceildiv(width, (int64_t)WIDTH_STEP) * WIDTH_STEP;
}

// ---- Proposing -------------------------------------------------------------

typedef struct tiles_offer_t {
  rabbet_attention_t attention;
  rabbet_attention_views_t views;
  const rabbet_dims_t* dims;
  bool deep;  // the batch may have an axis outside of it
} tiles_offer_t;

// Shared memory of a block, in bytes: for the results that its warps combine,
// and for those of its cluster.
static int64_t tiles_shared(const tiles_tactic_t* tactic, int64_t head) {
  enum { EACH = TILE_ROWS * 8 };  // for a row: its maximum and its sum
  int64_t width = tiles_padded(head);
  int64_t warps = tactic->keys == 1 ? 0
                                    : (int64_t)tactic->rows * tactic->keys *
                                          (TILE_ROWS * width * 4 + EACH);
  return tactic->splits == 1
             ? warps
             : warps + TILE_ROWS * width * 4 + (int64_t)tactic->splits * EACH;
}

// Whether so many blocks of a cluster all have keys, and all clusters together
// are a few blocks for each multiprocessor.
static bool tiles_can_split(const rabbet_cuda_device_t* device, int splits,
                            int64_t keys,
                            const rabbet_attention_views_t* views) {
  enum { MOST_BLOCKS = 4 };
  int64_t share = rabbet_max_i64(1, tiles_share(views));
  int64_t rows = rabbet_ceildiv(views->y.dims[2] * share, (int64_t)TILE_ROWS);
  int64_t clusters =
      views->outside * views->y.dims[0] * views->y.dims[1] / share * rows;
  return device->major >= CLUSTER_MAJOR && splits <= MOST_CLUSTER &&
         clusters > 0 && tiles_padded(views->q.dims[3]) % (2 * splits) == 0 &&
         views->k.dims[2] > keys * (splits / 2) &&
         clusters * splits <= (int64_t)MOST_BLOCKS * device->multiprocessors;
}

// Whether the tactic's cluster is the largest such one, or there is none.
// `tile`: keys of a warp.
static bool tiles_splits_well(const rabbet_cuda_device_t* device,
                              const tiles_tactic_t* tactic, int64_t tile,
                              const rabbet_attention_views_t* views) {
  int64_t keys = tile * tactic->keys;
  return tactic->splits == 1 ||
         (tiles_can_split(device, tactic->splits, keys, views) &&
          !tiles_can_split(device, 2 * tactic->splits, keys, views));
}

// Whether warps read keys that heads share where they are. With many queries
// cuDNN is faster, even after copies for each head where it needs them, if it
// takes the attention.
static bool tiles_reads_shared(const tiles_offer_t* offer,
                               rabbet_dtype_t dtype) {
  enum { FEW_QUERIES = 64 };
  return offer->views.k.share == 1 || offer->views.y.dims[2] <= FEW_QUERIES ||
         dtype == RABBET_DTYPE_FLOAT || offer->attention.zero_nan ||
         offer->attention.band.exists ||
         offer->attention.masking != RABBET_ATTENTION_ADDS;
}

// Rejects variants that leave warps idle, and single warps if there is work for
// several.
static bool tiles_fills_warps(const rabbet_cuda_device_t* device,
                              const tiles_tactic_t* tactic,
                              rabbet_dtype_t dtype,
                              const rabbet_attention_views_t* views) {
  enum { SHARED = 48 * 1024 };  // without asking for more
  int64_t rows = views->y.dims[2] * rabbet_max_i64(1, tiles_share(views));
  int64_t keys = views->k.dims[2];
  int64_t tile = dtype == RABBET_DTYPE_FLOAT ? TILE_KEYS_FLOAT : TILE_KEYS;
  if (!tiles_splits_well(device, tactic, tile, views)) return false;
  if (tactic->rows * tactic->keys == 1) return keys <= tile;
  return (tactic->rows == 1 || rows > TILE_ROWS * (tactic->rows / 2)) &&
         (tactic->keys == 1 || keys > tile * (tactic->keys / 2)) &&
         tiles_shared(tactic, views->q.dims[3]) <= SHARED;
}

static rabbet_attention_staged_t tiles_staged(const tiles_tactic_t* tactic,
                                              int64_t width) {
  return (rabbet_attention_staged_t){
      .width = width, .groups = tactic->groups, .keys = tactic->keys};
}

// The survey of a mask has two axes before rows.
static bool tiles_surveys(const rabbet_attention_t* a, bool outside) {
  return a->mask < 0 || !outside;
}

static bool tiles_is_wanted(const rabbet_cuda_device_t* device,
                            const tiles_tactic_t* tactic, rabbet_dtype_t dtype,
                            const tiles_offer_t* offer) {
  const rabbet_attention_views_t* views = &offer->views;
  int64_t width = views->q.dims[3];
  const rabbet_attention_staged_t staged = tiles_staged(tactic, width);
  if (!tiles_has_width(tactic, width, rabbet_dtype_bits(dtype) / 8))
    return false;
  return tactic->groups > 0
             ? tiles_surveys(&offer->attention, offer->deep) &&
                   rabbet_attention_staged_wanted(device, &staged, views)
             : tiles_reads_shared(offer, dtype) &&
                   tiles_fills_warps(device, tactic, dtype, views);
}

static void tiles_set(rabbet_proposal_t* proposal, int32_t value,
                      rabbet_dtype_t dtype) {
  int32_t at = rabbet_group_input_of(proposal->propose->group, value);
  if (at >= 0) proposal->tensors[at].dtype = dtype;
}

static rabbet_status_t tiles_offer_types(rabbet_proposal_t* proposal,
                                         rabbet_dtype_t dtype,
                                         rabbet_dtype_t mask) {
  const tiles_offer_t* offer = proposal->context;
  const rabbet_attention_t* a = &offer->attention;
  int32_t width = (int32_t)offer->views.q.dims[3];
  int32_t shared = tiles_share(&offer->views) > 1;
  rabbet_network_tensors(proposal->propose->group, proposal->tensors);
  tiles_set(proposal, a->q.value, dtype);
  tiles_set(proposal, a->k.value, dtype);
  tiles_set(proposal, a->v.value, dtype);
  if (a->mask >= 0) tiles_set(proposal, a->mask, mask);
  rabbet_proposal_set_output(proposal, dtype, RABBET_FORMAT_LINEAR);
  for (int32_t i = 0; i < TACTICS; ++i) {
    if (!tiles_is_wanted(rabbet_cuda(proposal->propose->device),
                         &tiles_tactics[i], dtype, offer))
      continue;
    rabbet_candidate_t candidate = {.kernel = &rabbet_cuda_attention_tiles,
                                    .tactic = i | width << TACTIC_WIDTH_SHIFT |
                                              shared << TACTIC_SHARED_SHIFT,
                                    .tensors = proposal->tensors};
    snprintf(candidate.tactic_name, sizeof(candidate.tactic_name), "%s",
             tiles_tactics[i].name);
    RABBET_RETURN_IF_ERROR(
        rabbet_offer(proposal->propose, proposal->sink, &candidate));
    if (proposal->propose->optimization_level == 0) break;
  }
  return rabbet_ok();
}

static bool tiles_can(const rabbet_propose_t* propose, rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_HALF || dtype == RABBET_DTYPE_BF16 ||
         (dtype == RABBET_DTYPE_FLOAT && propose->tf32);
}

// Offers the mask in the type of the other tensors and in its own.
static rabbet_status_t cuda_attention_tiles_body(rabbet_proposal_t* proposal) {
  const rabbet_propose_t* propose = proposal->propose;
  const rabbet_group_t* group = propose->group;
  tiles_offer_t* offer = proposal->context;
  const rabbet_attention_t* a = &offer->attention;
  rabbet_dtype_t types[4];
  int count =
      rabbet_compute_types(propose, group->values[a->q.value].dtype, types);
  for (int i = 0; i < count; ++i) {
    rabbet_dtype_t own = a->mask >= 0 ? group->values[a->mask].dtype : types[i];
    if (!tiles_can(propose, types[i]) ||
        !tiles_views(group, a, offer->dims, NULL,
                     rabbet_dtype_bits(types[i]) / 8, &offer->views))
      continue;
    if (rabbet_dtype_is_float(own))
      RABBET_RETURN_IF_ERROR(tiles_offer_types(proposal, types[i], types[i]));
    if (own != types[i])
      RABBET_RETURN_IF_ERROR(tiles_offer_types(proposal, types[i], own));
  }
  return rabbet_ok();
}

static bool tiles_is_constant_width(const rabbet_group_t* group,
                                    const rabbet_attention_t* a) {
  const rabbet_group_value_t* q = &group->values[a->q.seen];
  int32_t last = q->dims.rank - 1;
  return last >= 0 && q->min.d[last] == q->max.d[last];
}

static rabbet_status_t cuda_attention_tiles_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_dims_t* dims = NULL;
  tiles_offer_t offer;
  if (group->node_count < 3 ||
      rabbet_cuda(propose->device)->major < OLDEST_MAJOR)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, propose->allocator, &dims));
  offer.dims = dims;
  rabbet_status_t status = rabbet_ok();
  bool fits = rabbet_attention_match(group, dims, &offer.attention) &&
              (!offer.attention.band.exists || offer.attention.band.known) &&
              tiles_is_constant_width(group, &offer.attention);
  bool outside = false;
  if (fits)
    status = rabbet_attention_holds(propose, &offer.attention, &fits, &outside);
  if (fits) offer.deep = group->values[offer.attention.y.seen].dims.rank > 4;
  if (rabbet_is_ok(status) && fits)
    status = rabbet_proposal_make(propose, sink, &rabbet_cuda_attention_tiles,
                                  &offer, cuda_attention_tiles_body);
  rabbet_free(propose->allocator, dims);
  return status;
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t tiles_refuse(const rabbet_kernel_spec_t* spec,
                                    const char* what) {
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "layer '%s': cuda.attention.tiles %s",
                       spec->group->nodes[0].name, what);
}

static bool tiles_mask_fits(const rabbet_group_value_t* mask,
                            const rabbet_attention_t* a) {
  bool adds = a->masking == RABBET_ATTENTION_ADDS;
  return mask->format == RABBET_FORMAT_LINEAR &&
         rabbet_cuda_type(mask->dtype) &&
         (adds ? rabbet_dtype_is_float(mask->dtype)
               : mask->dtype == RABBET_DTYPE_BOOL);
}

// Checks types and formats of the boundary.
static rabbet_status_t tiles_check(const tiles_kernel_t* kernel,
                                   const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  const rabbet_attention_t* a = &kernel->attention;
  rabbet_dtype_t dtype = group->values[a->y.value].dtype;
  const int32_t values[] = {a->q.value, a->k.value, a->v.value, a->y.value};
  bool fits = dtype == RABBET_DTYPE_HALF || dtype == RABBET_DTYPE_BF16 ||
              dtype == RABBET_DTYPE_FLOAT;
  for (int i = 0; i < 4; ++i)
    fits = fits && group->values[values[i]].dtype == dtype &&
           group->values[values[i]].format == RABBET_FORMAT_LINEAR;
  if (a->mask >= 0) fits = fits && tiles_mask_fits(&group->values[a->mask], a);
  if (!fits)
    return tiles_refuse(spec,
                        "computes HALF, BF16 and FLOAT, one for all but the "
                        "mask, all LINEAR; these tensors are others");
  if (kernel->base.device->major < OLDEST_MAJOR)
    return tiles_refuse(spec, "needs compute capability 8.0 or later");
  return rabbet_ok();
}

// Options for the shape of the block; returns the source.
static const char* tiles_options(const tiles_kernel_t* kernel,
                                 rabbet_cuda_options_t* options) {
  const tiles_tactic_t* tactic = kernel->tactic;
  if (tactic->groups > 0) {
    rabbet_cuda_option(options, "-DGROUPS=%d", tactic->groups);
    rabbet_cuda_option(options, "-DKEYS=%d", tactic->keys);
    return "attention/staged.cu";
  }
  rabbet_cuda_option(options, "-DWIDTH=%d", (int)tiles_padded(kernel->width));
  rabbet_cuda_option(options, "-DROW_WARPS=%d", tactic->rows);
  rabbet_cuda_option(options, "-DKEY_WARPS=%d", tactic->keys);
  rabbet_cuda_option(options, "-DSPLITS=%d", tactic->splits);
  rabbet_cuda_option(options, "-DSHARED=%d", kernel->shared);
  return "attention/attention.cu";
}

// Lets the function take what its tactic needs.
static rabbet_status_t tiles_permit(tiles_kernel_t* kernel) {
  const rabbet_cuda_device_t* device = kernel->base.device;
  const rabbet_attention_staged_t staged =
      tiles_staged(kernel->tactic, kernel->width);
  if (staged.groups > 0) {
    if (kernel->attention.mask >= 0)
      RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(
          &kernel->base, 0, "survey", &kernel->survey));
    return rabbet_attention_staged_permit(device, &staged, kernel->function);
  }
  return kernel->tactic->splits <= CLUSTER_PORTABLE
             ? rabbet_ok()
             : RABBET_CUDA_INSIDE(
                   device, cuFuncSetAttribute,
                   (kernel->function,
                    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
}

static rabbet_status_t tiles_compile(tiles_kernel_t* kernel,
                                     const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  const rabbet_attention_t* a = &kernel->attention;
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DELEMENT=%s",
                     rabbet_cuda_type(group->values[a->y.value].dtype));
  if (a->mask >= 0)
    rabbet_cuda_option(&options, "-DMASK=%s",
                       rabbet_cuda_type(group->values[a->mask].dtype));
  if (a->masking != RABBET_ATTENTION_ADDS && !a->band.exists)
    rabbet_cuda_option(&options, "-DKEEP=%d",
                       a->masking == RABBET_ATTENTION_KEEPS_TRUE);
  if (a->zero_nan) rabbet_cuda_option(&options, "-DZERO_NAN");
  int added = a->masking == RABBET_ATTENTION_ADDS ? 1 : 2;
  rabbet_cuda_option(&options, "-DBAND=%d", a->band.exists ? added : 0);
  rabbet_cuda_option(&options, "-DCAP=%d", a->cap != 0);
  rabbet_cuda_option(&options, "-DHEAD=%d", (int)kernel->width);
  const char* source = tiles_options(kernel, &options);
  kernel->base.specific = kernel->tactic->groups > 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(&kernel->base, spec, source, NULL, &options));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(&kernel->base, 0, "attend", &kernel->function));
  return tiles_permit(kernel);
}

static rabbet_status_t cuda_attention_tiles_program(
    rabbet_cuda_node_t* base, const rabbet_kernel_spec_t* spec) {
  tiles_kernel_t* kernel = (tiles_kernel_t*)base;
  const rabbet_group_t* group = spec->group;
  rabbet_attention_t* a = &kernel->attention;
  rabbet_dims_t* dims = NULL;
  if (spec->tactic < 0 || (spec->tactic & TACTIC_PLACE) >= TACTICS)
    return tiles_refuse(spec, "has no such tactic");
  kernel->base.node.base.alignment = ALIGNMENT;
  kernel->tactic = &tiles_tactics[spec->tactic & TACTIC_PLACE];
  kernel->shared = spec->tactic >> TACTIC_SHARED_SHIFT != 0;
  kernel->width =
      (spec->tactic & ((1 << TACTIC_SHARED_SHIFT) - 1)) >> TACTIC_WIDTH_SHIFT;
  RABBET_RETURN_IF_ERROR(rabbet_group_opt_dims(group, spec->allocator, &dims));
  bool matches = rabbet_attention_match(group, dims, a);
  rabbet_free(spec->allocator, dims);
  if (!matches) return tiles_refuse(spec, "computes attention; this is none");
  RABBET_RETURN_IF_ERROR(tiles_check(kernel, spec));
  rabbet_dtype_t dtype = group->values[a->y.value].dtype;
  kernel->size = rabbet_dtype_bits(dtype) / 8;
  if (!tiles_has_width(kernel->tactic, kernel->width, kernel->size))
    return tiles_refuse(spec, "has no kernel for so many columns");
  const int32_t values[] = {a->q.value, a->k.value, a->v.value, a->mask};
  for (int i = 0; i < 4; ++i)
    kernel->at[i] =
        values[i] < 0 ? -1 : rabbet_group_input_of(group, values[i]);
  assert(kernel->at[0] >= 0 && kernel->at[1] >= 0 && kernel->at[2] >= 0);
  return tiles_compile(kernel, spec);
}

// ---- Geometry --------------------------------------------------------------

static void tiles_strides(const rabbet_attention_view_t* view, int64_t* out) {
  for (int i = 0; i < 3; ++i)
    out[i] = view->dims[i] == 1 ? 0 : view->strides[i];
}

static void tiles_outside(const rabbet_attention_views_t* views,
                          attend_t* out) {
  const rabbet_attention_view_t* all[] = {&views->q, &views->k, &views->v,
                                          &views->y, &views->mask};
  for (int i = 0; i < 5; ++i)
    out->outside[i] = all[i]->outside;
  out->batches = views->outside > 1 ? (uint32_t)views->y.dims[0] : 0;
}

// Whether hidden keys have no weight in any row: rows keep others, or what
// hides them is infinite.
static bool tiles_leaves_out(const rabbet_attention_t* a,
                             const rabbet_attention_views_t* views) {
  const double low = -1e4;
  return a->other == -INFINITY ||
         (a->other <= low && a->band.first <= a->band.last &&
          a->band.last >= 0 &&
          views->y.dims[2] - 1 + a->band.first < views->k.dims[2]);
}

// No key lies as far from a query as the least and the greatest number.
static int32_t tiles_clamped(int64_t places) {
  return (int32_t)rabbet_max_i64(INT32_MIN, rabbet_min_i64(places, INT32_MAX));
}

static void tiles_set_band(const rabbet_attention_t* a,
                           const rabbet_attention_views_t* views,
                           attend_t* out) {
  bool leaves_out = tiles_leaves_out(a, views);
  out->first = tiles_clamped(a->band.first);
  out->last = tiles_clamped(a->band.last);
  out->near = leaves_out ? out->first : INT32_MIN;
  out->far = leaves_out ? out->last : INT32_MAX;
}

// Returns the bytes of workspace.
static size_t tiles_fill(const tiles_kernel_t* kernel,
                         const rabbet_attention_views_t* views,
                         cuda_attention_tiles_state_t* state) {
  // A softmax over no keys and empty results were refused before.
  assert(views->k.dims[2] > 0 && views->y.dims[2] > 0);
  assert(views->q.dims[3] == kernel->width);
  attend_t* p = &state->parameters;
  const tiles_tactic_t* tactic = kernel->tactic;
  tiles_strides(&views->q, p->q);
  tiles_strides(&views->k, p->k);
  tiles_strides(&views->v, p->v);
  tiles_strides(&views->y, p->y);
  memcpy(p->mask, views->mask.strides, sizeof(p->mask));
  tiles_outside(views, p);
  bool staged = tactic->groups > 0;
  int64_t share = tiles_share(views);
  int64_t rows = views->y.dims[2] * (staged ? 1 : share);
  assert(share > 0 && (share == 1 || kernel->shared));
  p->rows = (uint32_t)rows;
  p->keys = (uint32_t)views->k.dims[2];
  p->share = (uint32_t)share;
  p->scale = (float)kernel->attention.scale;
  p->other = (float)kernel->attention.other;
  p->cap = (float)kernel->attention.cap;
  tiles_set_band(&kernel->attention, views, p);
  state->offsets[0] = views->q.offset * kernel->size;
  state->offsets[1] = views->k.offset * kernel->size;
  state->offsets[2] = views->v.offset * kernel->size;
  state->launch.function = kernel->function;
  state->survey.function = kernel->survey;
  const rabbet_attention_staged_t form = tiles_staged(tactic, kernel->width);
  if (staged)
    return rabbet_attention_staged_launch(&form, views, kernel->at[3] >= 0, p,
                                          &state->launch, &state->survey);
  int64_t tiles = rabbet_ceildiv(rows, (int64_t)TILE_ROWS * tactic->rows);
  bool split = tactic->splits > 1;
  state->launch = (rabbet_cuda_launch_t){
      .function = kernel->function,
      .grid = {(unsigned)(tiles * tactic->splits),
               (unsigned)(views->y.dims[1] / share),
               (unsigned)(views->outside * views->y.dims[0])},
      .block = {(unsigned)(32 * tactic->rows * tactic->keys), 1, 1},
      .shared_bytes = split ? (unsigned)tiles_shared(tactic, kernel->width) : 0,
      .cluster = split ? (unsigned)tactic->splits : 0};
  return 0;
}

static rabbet_status_t tiles_is_empty(const tiles_kernel_t* kernel,
                                      const rabbet_dims_t* dims,
                                      bool* out_empty) {
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_dims_count(&dims[kernel->attention.y.value], &count));
  *out_empty = count == 0;
  return rabbet_ok();
}

// Whether launches count so many heads, rows and keys.
static bool tiles_counts(const tiles_kernel_t* kernel,
                         const rabbet_attention_views_t* views) {
  enum { MOST_GRID = 65535 };
  int64_t heads = views->y.dims[1], rows = views->y.dims[2];
  if (views->y.dims[0] > MOST_GRID / views->outside ||
      views->k.dims[2] > INT32_MAX - 8 * TILE_KEYS)
    return false;
  if (kernel->tactic->groups == 0)
    return heads <= MOST_GRID && rows <= INT32_MAX / (16 * tiles_share(views));
  if (!tiles_surveys(&kernel->attention, views->outside > 1)) return false;
  // The bytes of the survey, too, are counted in 32 bits.
  int64_t masks =
      kernel->at[3] < 0 ? 0 : views->mask.dims[0] * views->mask.dims[1];
  return heads <= INT32_MAX && rows / TILE_ROWS <= MOST_GRID &&
         masks <= MOST_GRID &&
         (rows / TILE_ROWS + 1) * (views->k.dims[2] / TILE_KEYS + 1) <=
             INT32_MAX / rabbet_max_i64(1, masks);
}

static rabbet_status_t cuda_attention_tiles_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_attention_tiles_state_t** out_state, size_t* out_workspace) {
  const tiles_kernel_t* kernel = (const tiles_kernel_t*)base;
  const rabbet_group_t* group = kernel->base.node.group;
  rabbet_attention_views_t views = {.y = {.offset = 0}};
  bool empty = false;
  *out_workspace = 0;
  if (kernel->attention.band.exists && !kernel->attention.band.known)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': the constants that its mask compares do "
                         "not count up by 1; expected that, as the kernel was "
                         "chosen for a band of keys",
                         group->nodes[0].name);
  RABBET_RETURN_IF_ERROR(tiles_is_empty(kernel, shapes->dims, &empty));
  if (!empty && (!tiles_views(group, &kernel->attention, shapes->dims,
                              shapes->host_values, kernel->size, &views) ||
                 views.q.dims[3] != kernel->width ||
                 (tiles_share(&views) > 1 && !kernel->shared) ||
                 !tiles_counts(kernel, &views)))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': at these shapes the tensors of the "
                         "attention lie in another way than the kernel was "
                         "chosen for, or are too large for it",
                         group->nodes[0].name);
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  (*out_state)->empty = empty;
  if (!empty) *out_workspace = tiles_fill(kernel, &views, *out_state);
  if ((*out_state)->parameters.pairs)
    (*out_state)->pair =
        rabbet_dtype_bits(group->values[kernel->attention.mask].dtype) / 4;
  return rabbet_ok();
}

static rabbet_status_t tiles_launch(const tiles_kernel_t* kernel,
                                    cuda_attention_tiles_state_t* state,
                                    char* inputs[3], void* mask,
                                    const rabbet_kernel_call_t* call) {
  const rabbet_cuda_device_t* device = kernel->base.device;
  attend_t* p = &state->parameters;
  void *y = call->outputs[0], *survey = call->workspace;
  void* plain[] = {&inputs[0], &inputs[1], &inputs[2], &mask, &y, p};
  void* surveyed[] = {&inputs[0], &inputs[1], &inputs[2], &mask,
                      &y,         &survey,    p};
  void* counted[] = {&mask, &survey, p};
  p->pairs = state->pair > 0 && rabbet_cuda_is_aligned(mask, state->pair);
  if (kernel->tactic->groups > 0 && mask)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_launch(device, &state->survey, counted, call->stream));
  return rabbet_cuda_launch(device, &state->launch,
                            kernel->tactic->groups > 0 ? surveyed : plain,
                            call->stream);
}

static rabbet_status_t cuda_attention_tiles_enqueue(
    rabbet_kernel_t* base, cuda_attention_tiles_state_t* state,
    const rabbet_kernel_call_t* call) {
  const tiles_kernel_t* kernel = (const tiles_kernel_t*)base;
  if (state->empty) return rabbet_ok();
  char* inputs[3];
  uintptr_t bits = (uintptr_t)call->outputs[0];
  for (int i = 0; i < 3; ++i) {
    inputs[i] = (char*)call->inputs[kernel->at[i]] + state->offsets[i];
    bits |= (uintptr_t)inputs[i];
  }
  if (bits % ALIGNMENT != 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s': a tensor's address is not a multiple of "
                         "%d; give the engine memory that is",
                         kernel->base.node.node->name, ALIGNMENT);
  void* mask = kernel->at[3] < 0 ? NULL : call->inputs[kernel->at[3]];
  return tiles_launch(kernel, state, inputs, mask, call);
}

static bool cuda_attention_tiles_takes(const rabbet_kernel_spec_t* spec) {
  return spec->group->node_count >= 3 && spec->group->output_count == 1;
}

RABBET_CUDA_NODE_CLASS(cuda_attention_tiles, tiles_kernel_t,
                       "cuda.attention.tiles", 2);
