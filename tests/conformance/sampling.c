// Layers that find elements by where they lie between others.
#include <math.h>
#include <string.h>

#include "conformance/conformance.h"
#include "ops/enums.h"

static rabbet_attr_t floats(const char* name, const double* data,
                            size_t count) {
  return (rabbet_attr_t){
      .name = name, .type = RABBET_ATTR_FLOATS, .data = data, .count = count};
}

static void begin(conformance_t* t) {
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  if (conformance_chance(t, 2)) conformance_set_type(t, RABBET_DTYPE_FLOAT);
  t->c.low = -1;
  t->c.high = 1;
  t->c.tolerance = 1e-6;
}

// ---- Resize ----------------------------------------------------------------

typedef struct resize_case_t {
  rabbet_dims_t in;
  int64_t out[8];
  double scales[8], part[16];
} resize_case_t;

// Images most often; else any tensor, of which any axis is resized.
static void resize_extents(conformance_t* t, resize_case_t* r) {
  static const int64_t channels[] = {1, 3, 8, 16, 20, 32};
  bool image = !conformance_chance(t, 3);
  r->in.rank = image ? 4 : 1 + (int32_t)conformance_random(t, 5);
  for (int32_t i = 0; i < r->in.rank; ++i) {
    int64_t most = t->large && image ? 60 : 6;
    bool same = image ? i < 2 : conformance_chance(t, 2);
    r->in.d[i] = 1 + conformance_random(t, most);
    if (image && i == 1) r->in.d[i] = conformance_one_of(t, channels, 6);
    if (image && i == 0) r->in.d[i] = 1 + conformance_random(t, 2);
    r->scales[i] = same ? 1 : 0.5 * (double)(1 + conformance_random(t, 6));
    r->out[i] = (int64_t)((double)r->in.d[i] * r->scales[i]);
    if (same || !conformance_chance(t, 2)) continue;
    r->out[i] = 1 + conformance_random(t, 2 * most);
    r->scales[i] = 0;  // found from the extents
  }
}

static void resize(conformance_t* t) {
  kernel_case_t* c = &t->c;
  resize_case_t r = {0};
  static const int64_t coordinates[] = {
      RABBET_COORDINATE_ALIGN_CORNERS,
      RABBET_COORDINATE_ASYMMETRIC,
      RABBET_COORDINATE_HALF_PIXEL,
      RABBET_COORDINATE_HALF_PIXEL,
      RABBET_COORDINATE_HALF_PIXEL_SYMMETRIC,
      RABBET_COORDINATE_CROP,
      RABBET_COORDINATE_HALF_PIXEL_FOR_NEAREST};
  begin(t);
  int64_t mode = conformance_random(t, 3);
  int64_t coordinate = conformance_one_of(t, coordinates, 7);
  if (mode == 0 && conformance_chance(t, 3)) {
    conformance_set_type(t, conformance_type(t, CONFORMANCE_ALL));
    c->exact = true;
  }
  resize_extents(t, &r);
  bool scaled = true;
  for (int32_t i = 0; i < r.in.rank; ++i)
    scaled = scaled && r.scales[i] != 0;
  bool crops = coordinate == RABBET_COORDINATE_CROP;
  for (int32_t i = 0; i < r.in.rank; ++i) {
    bool whole = r.in.rank == 4 && i < 2;
    r.part[i] = whole ? 0 : -0.2 + 0.1 * (double)conformance_random(t, 4);
    r.part[i + r.in.rank] =
        whole ? 1 : 0.8 + 0.1 * (double)conformance_random(t, 4);
  }
  static const double outside[] = {0.5};
  size_t rank = (size_t)r.in.rank;
  rabbet_attr_t attrs[] = {
      conformance_int(t, "resize_mode", mode),
      conformance_int(t, "coordinate_transformation", coordinate),
      conformance_int(t, "selector_for_single_pixel", conformance_random(t, 2)),
      conformance_int(t, "nearest_rounding", conformance_random(t, 4)),
      conformance_bool(t, "exclude_outside", conformance_chance(t, 2)),
      conformance_ints(t, "shape", r.out, rank),
      floats("scales", r.scales, scaled ? rank : 0),
      floats("part", r.part, crops && !c->exact ? 2 * rank : 0),
      {.name = "outside_value",
       .type = RABBET_ATTR_FLOAT,
       .data = outside,
       .count = 1}};
  int32_t x = kernel_case_input(c, r.in, false);
  kernel_case_output(c, kernel_case_op(c, "resize", attrs, 9, &x, 1));
}

// ---- The best --------------------------------------------------------------

// Rows that are short, longer than blocks sort, and longer than that with more
// wanted than blocks sort; equal elements among them, and NaN.
static void topk(conformance_t* t) {
  kernel_case_t* c = &t->c;
  c->exact = true;
  conformance_set_type(
      t, conformance_type(t, CONFORMANCE_REALS | CONFORMANCE_INTEGERS));
  rabbet_dims_t dims = conformance_dims(t, 1, 4);
  int64_t axis = conformance_random(t, dims.rank);
  if (t->large) dims = KERNEL_DIMS(2, 5000 + conformance_random(t, 2000));
  if (t->large) axis = 1;
  int64_t most = dims.d[axis];
  int64_t k = conformance_chance(t, 3) && most > 0
                  ? 1
                  : conformance_random(t, most + 1);
  if (t->large && conformance_chance(t, 2)) k = 1 + conformance_random(t, 40);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "op", conformance_random(t, 2)),
      conformance_int(t, "k", k), conformance_int(t, "axes", 1 << axis),
      conformance_int(
          t, "indices_type",
          conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64)};
  int32_t x = kernel_case_input(c, dims, false);
  int64_t count = 1;
  for (int32_t i = 0; i < dims.rank; ++i)
    count *= dims.d[i];
  if (c->dtype == RABBET_DTYPE_FLOAT && count > 8) {
    float* data = c->reference[x];
    for (int64_t i = 0; i < count; i += 3)
      data[i] = data[conformance_random(t, count)];
    data[conformance_random(t, count)] = __builtin_nanf("");
    data[conformance_random(t, count)] = -0.0f;
    data[conformance_random(t, count)] = 0.0f;
  }
  int32_t y = kernel_case_op(c, "topk", attrs, 4, &x, 1);
  int64_t reads = conformance_random(t, 4);
  if (reads != 1) kernel_case_output(c, y);
  if (reads != 0) kernel_case_output(c, y + 1);
}

// ---- Running sums ----------------------------------------------------------

static void cumulative(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  if (conformance_chance(t, 2))
    conformance_set_type(t, conformance_type(t, CONFORMANCE_INTEGERS));
  c->tolerance = 2e-5;
  rabbet_dims_t dims = conformance_dims(t, 1, 4);
  int64_t axis = conformance_random(t, dims.rank);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "axis",
                      conformance_chance(t, 2) ? axis : axis - dims.rank),
      conformance_bool(t, "exclusive", conformance_chance(t, 2)),
      conformance_bool(t, "reverse", conformance_chance(t, 2))};
  int32_t x = kernel_case_input(c, dims, false);
  kernel_case_output(c, kernel_case_op(c, "cumulative", attrs, 3, &x, 1));
}

// ---- Scatter ---------------------------------------------------------------

// Indices within and without bounds. Those of one call are distinct, unless
// updates are reduced: what is left of two is the later.
static void scatter_indices(conformance_t* t, int64_t count, int64_t extent,
                            bool distinct, int64_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t index = distinct ? (i * 7 + 3) % (extent + 1)
                             : conformance_random(t, extent + 1);
    out[i] =
        conformance_chance(t, 3) && index < extent ? index - extent : index;
  }
}

static void scatter_begin(conformance_t* t, int64_t* reduction) {
  kernel_case_t* c = &t->c;
  *reduction = conformance_chance(t, 2) ? 0 : conformance_random(t, 5);
  begin(t);
  c->exact = *reduction == 0;
  if (c->exact)
    conformance_set_type(t, conformance_type(t, CONFORMANCE_ALL));
  else if (conformance_chance(t, 2))
    conformance_set_type(t, conformance_type(t, CONFORMANCE_INTEGERS));
  // Sums are rounded one by one.
  if (*reduction > 0)
    c->tolerance = c->dtype == RABBET_DTYPE_BF16   ? 5e-2
                   : c->dtype == RABBET_DTYPE_HALF ? 5e-3
                                                   : 1e-5;
}

// Data are the updates, too: they cannot be updated in place.
static void scatter_itself(conformance_t* t) {
  kernel_case_t* c = &t->c;
  c->exact = true;
  int64_t count = 2 + conformance_random(t, 60), order[64];
  for (int64_t i = 0; i < count; ++i)
    order[i] = (i + 1) % count;
  rabbet_attr_t attrs[] = {conformance_int(t, "mode", 0),
                           conformance_int(t, "axis", 0)};
  int32_t x = kernel_case_input(c, KERNEL_DIMS(count), false);
  int32_t indices = kernel_case_numbers(c, RABBET_DTYPE_INT64,
                                        KERNEL_DIMS(count), order, false);
  kernel_case_output(
      c, kernel_case_op(c, "scatter", attrs, 2, KERNEL_INPUTS(x, indices, x)));
}

static void scatter_rows(conformance_t* t) {
  kernel_case_t* c = &t->c;
  int64_t reduction = 0, index[64];
  scatter_begin(t, &reduction);
  int64_t extent = 5 + conformance_random(t, 40);
  int64_t row = t->large ? 3000 : 1 + conformance_random(t, 20);
  int64_t count = 1 + conformance_random(t, extent);
  // 7 and extent + 1 must have no common factor for the indices to be distinct.
  if ((extent + 1) % 7 == 0) ++extent;
  scatter_indices(t, count, extent, reduction == 0, index);
  rabbet_dtype_t type =
      conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64;
  rabbet_attr_t attrs[] = {conformance_int(t, "mode", RABBET_SCATTER_ND),
                           conformance_int(t, "reduction", reduction)};
  int32_t inputs[] = {kernel_case_input(c, KERNEL_DIMS(extent, row), false),
                      kernel_case_numbers(c, type, KERNEL_DIMS(count, 1), index,
                                          conformance_chance(t, 2)),
                      kernel_case_input(c, KERNEL_DIMS(count, row), false)};
  kernel_case_output(c, kernel_case_op(c, "scatter", attrs, 2, inputs, 3));
}

static void scatter_elements(conformance_t* t) {
  kernel_case_t* c = &t->c;
  int64_t reduction = 0, index[64];
  scatter_begin(t, &reduction);
  int64_t extent = 5 + conformance_random(t, 20);
  int64_t count = 1 + conformance_random(t, extent < 12 ? extent : 12);
  int64_t outer = 1 + conformance_random(t, 4), axis = conformance_random(t, 2);
  if ((extent + 1) % 7 == 0) ++extent;
  for (int64_t i = 0; i < outer; ++i)
    scatter_indices(t, count, extent, reduction == 0, index + i * count);
  int64_t turned[64];
  for (int64_t i = 0; i < outer * count; ++i)
    turned[i] = axis == 1 ? index[i] : index[i % outer * count + i / outer];
  rabbet_dims_t data = axis == 1 ? KERNEL_DIMS(outer + 2, extent)
                                 : KERNEL_DIMS(extent, outer + 2);
  rabbet_dims_t updates =
      axis == 1 ? KERNEL_DIMS(outer, count) : KERNEL_DIMS(count, outer);
  rabbet_attr_t attrs[] = {conformance_int(t, "mode", RABBET_SCATTER_ELEMENT),
                           conformance_int(t, "axis", axis - 2),
                           conformance_int(t, "reduction", reduction)};
  int32_t inputs[] = {kernel_case_input(c, data, false),
                      kernel_case_numbers(c, RABBET_DTYPE_INT64, updates,
                                          turned, conformance_chance(t, 2)),
                      kernel_case_input(c, updates, false)};
  kernel_case_output(c, kernel_case_op(c, "scatter", attrs, 3, inputs, 3));
}

// ---- Caches ----------------------------------------------------------------

// Updates within the cache, over its end, and outside.
static void kv_cache(conformance_t* t) {
  kernel_case_t* c = &t->c;
  int64_t index[4];
  c->exact = true;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_ALL));
  bool flat = conformance_chance(t, 4);
  int64_t batch = 1 + conformance_random(t, 3);
  int64_t heads = 1 + conformance_random(t, 3);
  int64_t extent = 1 + conformance_random(t, t->large ? 200 : 20);
  int64_t count = conformance_random(t, extent + 1);
  int64_t row = conformance_chance(t, 2) ? 8 * (1 + conformance_random(t, 8))
                                         : 1 + conformance_random(t, 20);
  for (int64_t i = 0; i < batch; ++i)
    index[i] = conformance_chance(t, 5) ? conformance_random(t, 100) - 50
                                        : conformance_random(t, extent);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "cache_mode",
                      conformance_chance(t, 2) ? RABBET_KV_CACHE_LINEAR
                                               : RABBET_KV_CACHE_CIRCULAR),
      conformance_int(t, "axis", flat ? 1 : -2)};
  rabbet_dims_t cache = flat ? KERNEL_DIMS(batch, extent)
                             : KERNEL_DIMS(batch, heads, extent, row);
  rabbet_dims_t update =
      flat ? KERNEL_DIMS(batch, count) : KERNEL_DIMS(batch, heads, count, row);
  int32_t inputs[] = {kernel_case_input(c, cache, conformance_chance(t, 4)),
                      kernel_case_input(c, update, false), -1};
  size_t given = conformance_chance(t, 5) ? 2 : 3;
  if (given == 3)
    inputs[2] = kernel_case_numbers(
        c, conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64,
        KERNEL_DIMS(batch), index, false);
  kernel_case_output(
      c, kernel_case_op(c, "kv_cache_update", attrs, 2, inputs, given));
}

// Rotated heads of queries and keys, keys and values put into their caches.
static void cached_rotation(conformance_t* t) {
  static const int64_t sizes[] = {2, 6, 16, 32, 64, 80};
  kernel_case_t* c = &t->c;
  int64_t index[4];
  conformance_set_type(t, conformance_type(t, CONFORMANCE_REALS));
  c->tolerance = 2e-6;
  if (conformance_chance(t, 3))
    c->misaligned = (uint32_t)conformance_random(t, INT64_C(1) << 32);
  int64_t batch = 1 + conformance_random(t, 4);
  int64_t extent = 1 + conformance_random(t, t->large ? 200 : 20);
  int64_t steps =
      conformance_chance(t, 2) ? 1 : conformance_random(t, extent + 1);
  int64_t queries = 1 + conformance_random(t, 6);
  int64_t keys = 1 + conformance_random(t, 3);
  int64_t size = conformance_one_of(t, sizes, 6), width = size;
  if (conformance_chance(t, 3)) width += 1 + conformance_random(t, 40);
  int64_t entries = conformance_chance(t, 2) ? size : size / 2;
  for (int64_t i = 0; i < batch; ++i)
    index[i] = conformance_chance(t, 5) ? conformance_random(t, 100) - 50
                                        : conformance_random(t, extent);
  rabbet_dims_t cache = KERNEL_DIMS(batch, keys, extent, width);
  rabbet_dims_t table =
      KERNEL_DIMS(conformance_chance(t, 2) ? 1 : batch, 1,
                  conformance_chance(t, 3) ? 1 : steps, entries);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "size", size),
      conformance_int(t, "interleaved", conformance_chance(t, 2)),
      conformance_int(t, "cache_mode",
                      conformance_chance(t, 2) ? RABBET_KV_CACHE_LINEAR
                                               : RABBET_KV_CACHE_CIRCULAR)};
  int32_t inputs[] = {
      kernel_case_input(
          c, KERNEL_DIMS(batch, steps, (queries + 2 * keys) * width), false),
      kernel_case_input(c, cache, conformance_chance(t, 4)),
      kernel_case_input(c, cache, conformance_chance(t, 4)),
      kernel_case_input(c, table, conformance_chance(t, 3)),
      kernel_case_input(c, table, conformance_chance(t, 3)),
      -1};
  size_t given = conformance_chance(t, 5) ? 5 : 6;
  if (given == 6)
    inputs[5] = kernel_case_numbers(
        c, conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64,
        KERNEL_DIMS(batch), index, false);
  int32_t node = kernel_case_op(c, "cached_rotation", attrs, 3, inputs, given);
  for (int32_t i = 0; i < 3; ++i)
    kernel_case_output(c, node + i);
}

// ---- Grids -----------------------------------------------------------------

// Points inside and outside; in FLOAT, as what they are made of must not depend
// on their rounding.
static void grid_sample(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  conformance_set_type(t, RABBET_DTYPE_FLOAT);
  static const int64_t outside[] = {RABBET_SAMPLE_CLAMP, RABBET_SAMPLE_FILL,
                                    RABBET_SAMPLE_REFLECT};
  bool volume = conformance_chance(t, 3);
  int64_t batch = 1 + conformance_random(t, 2), size = t->large ? 40 : 6;
  rabbet_dims_t in = {.rank = volume ? 5 : 4, .d = {batch}};
  rabbet_dims_t grid = {.rank = in.rank, .d = {batch}};
  in.d[1] = 1 + conformance_random(t, 5);
  for (int32_t i = 2; i < in.rank; ++i) {
    in.d[i] = 1 + conformance_random(t, volume ? 6 : size);
    grid.d[i - 1] = 1 + conformance_random(t, volume ? 6 : size);
  }
  grid.d[grid.rank - 1] = in.rank - 2;
  rabbet_attr_t attrs[] = {
      conformance_int(t, "interpolation_mode",
                      conformance_random(t, volume ? 2 : 3)),
      conformance_int(t, "sample_mode", conformance_one_of(t, outside, 3)),
      conformance_bool(t, "align_corners", conformance_chance(t, 2))};
  c->tolerance = 1e-4;
  int32_t inputs[] = {kernel_case_input(c, in, false), -1};
  c->low = -2.1;
  c->high = 2.1;
  inputs[1] = kernel_case_input(c, grid, false);
  kernel_case_output(c, kernel_case_op(c, "grid_sample", attrs, 3, inputs, 2));
}

// ---- Regions ---------------------------------------------------------------

// Regions inside and outside of the image, reversed, without extent, far larger
// than it, and not finite. They are FLOAT, since rounding would move samples.
static int32_t regions(conformance_t* t, int64_t count, int64_t extent) {
  kernel_case_t* c = &t->c;
  static const float odd[] = {1e5f, 1e7f, 3e38f, __builtin_inff(),
                              __builtin_nanf("")};
  c->low = -0.3 * (double)extent;
  c->high = 1.4 * (double)extent;
  int32_t value = kernel_case_typed_input(c, RABBET_DTYPE_FLOAT,
                                          KERNEL_DIMS(count, 4), false);
  float* data = c->reference[value];
  for (int64_t i = 0; i < 4 * count; ++i)
    if (conformance_chance(t, 16)) data[i] = odd[conformance_random(t, 5)];
  for (int64_t i = 0; i < count; ++i)
    if (conformance_chance(t, 8)) data[4 * i + 2] = data[4 * i];
  return value;
}

static void roi_align(conformance_t* t) {
  kernel_case_t* c = &t->c;
  int64_t index[64];
  begin(t);
  int64_t batch = 1 + conformance_random(t, 2);
  int64_t count = conformance_random(t, t->large ? 40 : 5);
  int64_t channels = 1 + conformance_random(t, t->large ? 80 : 10);
  int64_t height = 1 + conformance_random(t, t->large ? 40 : 7);
  int64_t width = 1 + conformance_random(t, t->large ? 40 : 7);
  static const double scales[] = {1, 0.25, 0.3};
  double scale = scales[conformance_random(t, 3)];
  rabbet_attr_t attrs[] = {
      conformance_int(t, "mode", conformance_random(t, 2)),
      conformance_int(t, "coordinate_transformation_mode",
                      conformance_random(t, 2)),
      conformance_int(t, "output_height", 1 + conformance_random(t, 7)),
      conformance_int(t, "output_width", 1 + conformance_random(t, 7)),
      conformance_int(t, "sampling_ratio", conformance_random(t, 4)),
      {.name = "spatial_scale",
       .type = RABBET_ATTR_FLOAT,
       .data = &scale,
       .count = 1}};
  for (int64_t i = 0; i < count; ++i)
    index[i] = conformance_chance(t, 8) ? conformance_random(t, 9) - 4
                                        : conformance_random(t, batch);
  c->tolerance = 1e-5;
  int32_t x =
      kernel_case_input(c, KERNEL_DIMS(batch, channels, height, width), false);
  int32_t inputs[] = {
      x, regions(t, count, (int64_t)((double)height / scale)),
      kernel_case_numbers(
          c, conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64,
          KERNEL_DIMS(count), index, false)};
  kernel_case_output(c, kernel_case_op(c, "roi_align", attrs, 6, inputs, 3));
}

// ---- Trees -----------------------------------------------------------------

// The bits of a split that many features equal.
static int64_t tree_split(conformance_t* t) {
  float split = (float)(conformance_random(t, 7) - 3);
  int32_t bits;
  memcpy(&bits, &split, sizeof(bits));
  return bits;
}

// `damage`: some nodes refer to nothing, or to nodes before them.
static void tree_node(conformance_t* t, const int64_t sizes[4], int64_t at,
                      bool damage, int64_t* node) {
  int64_t features = sizes[0], nodes = sizes[1], weights = sizes[2];
  int64_t left = nodes - at - 1;
  bool is_leaf = left == 0 || conformance_chance(t, 4);
  int64_t outcomes = sizes[3] ? sizes[3] : 1 + conformance_random(t, 15);
  int64_t feature = conformance_random(t, features);
  node[0] = is_leaf ? 0 : feature << 4 | outcomes;
  node[1] = is_leaf ? conformance_random(t, weights) : tree_split(t);
  for (int i = 2; i < 4; ++i)
    node[i] = is_leaf ? conformance_random(t, weights - node[1] + 1)
                      : at + 1 + conformance_random(t, left < 9 ? left : 9);
  if (damage && conformance_chance(t, 6))
    node[conformance_random(t, 4)] = conformance_random(t, 2 * nodes) - nodes;
}

static void tree_ensemble(conformance_t* t) {
  kernel_case_t* c = &t->c;
  int64_t numbers[4 * 400];
  conformance_set_type(t, RABBET_DTYPE_FLOAT);
  int64_t sizes[4] = {1 + conformance_random(t, 9),
                      1 + conformance_random(t, 400),
                      1 + conformance_random(t, 60), 0};
  static const int64_t shared[] = {0, 3, 1, 11};
  sizes[3] = shared[conformance_random(t, 4)];
  int64_t rows = conformance_random(t, t->large ? 300 : 20);
  int64_t trees = conformance_random(t, t->large ? 300 : 20);
  int64_t targets = conformance_chance(t, 3) ? 1 : 1 + conformance_random(t, 9);
  bool constant = !conformance_chance(t, 4), damage = conformance_chance(t, 4);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "aggregate_function", conformance_random(t, 4)),
      conformance_int(t, "n_targets", targets)};
  c->tolerance = 1e-5;
  int32_t inputs[5] = {
      kernel_case_input(c, KERNEL_DIMS(rows, sizes[0]), false)};
  for (int64_t i = 0; i < rows * sizes[0]; ++i)
    ((float*)c->reference[inputs[0]])[i] =
        conformance_chance(t, 20) ? NAN : (float)(conformance_random(t, 9) - 4);
  for (int64_t i = 0; i < sizes[1]; ++i)
    tree_node(t, sizes, i, damage, numbers + 4 * i);
  inputs[1] = kernel_case_numbers(c, RABBET_DTYPE_INT32,
                                  KERNEL_DIMS(sizes[1], 4), numbers, constant);
  for (int64_t i = 0; i < trees; ++i)
    numbers[i] = conformance_random(t, sizes[1] + damage);
  inputs[2] = kernel_case_numbers(c, RABBET_DTYPE_INT32, KERNEL_DIMS(trees),
                                  numbers, constant);
  for (int64_t i = 0; i < sizes[2]; ++i)
    numbers[i] = conformance_random(t, targets + damage);
  inputs[3] = kernel_case_numbers(c, RABBET_DTYPE_INT32, KERNEL_DIMS(sizes[2]),
                                  numbers, constant);
  inputs[4] = kernel_case_input(c, KERNEL_DIMS(sizes[2]), constant);
  kernel_case_output(c,
                     kernel_case_op(c, "tree_ensemble", attrs, 2, inputs, 5));
}

// ---- Fills -----------------------------------------------------------------

static void fill(conformance_t* t) {
  kernel_case_t* c = &t->c;
  begin(t);
  int64_t operation = conformance_random(t, 3);
  if (operation == 0 && conformance_chance(t, 2))
    conformance_set_type(t, conformance_type(t, 1u << RABBET_DTYPE_INT32 |
                                                    1u << RABBET_DTYPE_INT64));
  rabbet_dims_t dims = conformance_dims(t, 1, 3);
  static const double alpha[] = {3}, beta[] = {2};
  bool given = dims.rank > 1 || conformance_chance(t, 2);
  // The reference's result is FLOAT, unless it is told the type.
  c->exact = operation == 0 && c->dtype != RABBET_DTYPE_FLOAT;
  rabbet_dtype_t kept = c->exact || c->dtype == RABBET_DTYPE_INT32 ||
                                c->dtype == RABBET_DTYPE_INT64
                            ? c->dtype
                            : RABBET_DTYPE_FLOAT;
  if (operation > 0) conformance_set_type(t, RABBET_DTYPE_FLOAT);
  if (operation > 0) kept = RABBET_DTYPE_FLOAT;
  c->tolerance = 1e-5;
  c->low = 1;
  c->high = 3;
  rabbet_attr_t attrs[] = {
      conformance_int(t, "operation", operation),
      conformance_ints(t, "shape", dims.d, (size_t)dims.rank),
      conformance_int(t, "to_type", kept),
      conformance_int(t, "seed", conformance_random(t, 1000)),
      {.name = "alpha", .type = RABBET_ATTR_FLOAT, .data = alpha, .count = 1},
      {.name = "beta", .type = RABBET_ATTR_FLOAT, .data = beta, .count = 1}};
  int32_t inputs[] = {-1, -1, -1};
  if (given) {
    inputs[1] = kernel_case_input(c, (rabbet_dims_t){.rank = 0}, false);
    inputs[2] = kernel_case_input(
        c, KERNEL_DIMS(operation == 0 ? dims.rank : 1), false);
  }
  kernel_case_output(
      c, kernel_case_op(c, "fill", attrs, 6, inputs, given ? 3 : 0));
}

const conformance_family_t conformance_sampling[] = {
    {"cumulative", 120, cumulative},
    {"fill", 80, fill},
    {"grid_sample", 120, grid_sample},
    {"cached_rotation", 120, cached_rotation},
    {"kv_cache", 150, kv_cache},
    {"resize", 300, resize},
    {"roi_align", 200, roi_align},
    {"scatter_elements", 120, scatter_elements},
    {"scatter_itself", 10, scatter_itself},
    {"scatter_rows", 120, scatter_rows},
    {"topk", 200, topk},
    {"tree_ensemble", 300, tree_ensemble},
    {0},
};
