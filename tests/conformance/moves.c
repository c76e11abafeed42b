// Operators that move elements without looking at them, and conversions.
#include "conformance/conformance.h"
#include "ops/op.h"

enum { MAX_ATTRS = 8 };

static void move_begin(conformance_t* t) {
  t->c.exact = true;
  conformance_set_type(t, conformance_type(t, CONFORMANCE_ALL));
  if (conformance_chance(t, 3)) conformance_set_type(t, RABBET_DTYPE_FLOAT);
  bool real = CONFORMANCE_REALS >> t->c.dtype & 1;
  if (real && conformance_chance(t, 4)) t->c.extra_dtypes = CONFORMANCE_REALS;
}

// Addresses as users give them and as parts of others have them.
static void move_misalign(conformance_t* t) {
  if (conformance_chance(t, 3))
    t->c.misaligned = (uint32_t)conformance_random(t, INT64_C(1) << 32);
}

// ---- Slice -----------------------------------------------------------------

typedef struct slice_t {
  int64_t mode;
  rabbet_dims_t in, start, size, stride;
} slice_t;

static int64_t slice_span(int64_t size, int64_t stride) {
  return size > 0 ? (size - 1) * stride : 0;
}

// Start, size and stride of one axis that are in bounds.
static void slice_axis_inside(conformance_t* t, slice_t* s, int32_t i) {
  int64_t extent = s->in.d[i];
  int64_t stride = 1 + conformance_random(t, 3);
  int64_t most = extent == 0 ? 0 : (extent - 1) / stride + 1;
  int64_t size = most - conformance_random(t, most + 1) / 2;
  int64_t span = slice_span(size, stride);
  int64_t start = size == 0 ? 0 : conformance_random(t, extent - span);
  bool backwards = conformance_chance(t, 3);
  s->start.d[i] = backwards ? start + span : start;
  s->stride.d[i] = backwards ? -stride : stride;
  s->size.d[i] = size;
}

static void slice_axis(conformance_t* t, slice_t* s, int32_t i) {
  s->start.d[i] = 0;
  s->size.d[i] = s->in.d[i];
  s->stride.d[i] = 1;
  if (conformance_chance(t, 2)) return;  // taken whole
  if (s->mode == 0) {
    slice_axis_inside(t, s, i);
  } else if (s->in.d[i] > 0) {
    // Padding on both sides, most often by one step.
    int64_t before = conformance_random(t, 5), after = conformance_random(t, 5);
    if (conformance_chance(t, 6)) before *= s->in.d[i];
    s->start.d[i] = -before;
    s->size.d[i] = s->in.d[i] + before + after;
    if (conformance_chance(t, 4)) {
      s->stride.d[i] = conformance_random(t, 7) - 3;
      s->start.d[i] = conformance_random(t, 9) - 4;
    }
  }
}

static void slice_make(conformance_t* t, slice_t* s) {
  move_begin(t);
  move_misalign(t);
  s->mode = conformance_random(t, 5);
  s->in = conformance_dims(t, 1, 5);
  s->start = s->size = s->stride = (rabbet_dims_t){.rank = s->in.rank};
  for (int32_t i = 0; i < s->in.rank; ++i)
    slice_axis(t, s, i);
}

static void slice_finish(conformance_t* t, const rabbet_attr_t* attrs,
                         size_t attr_count, int32_t inputs[6]) {
  kernel_case_t* c = &t->c;
  if (conformance_chance(t, 2))
    inputs[4] = kernel_case_input(c, KERNEL_DIMS(1), conformance_chance(t, 2));
  kernel_case_output(c,
                     kernel_case_op(c, "slice", attrs, attr_count, inputs, 6));
}

static void slice_by_attributes(conformance_t* t) {
  slice_t s;
  slice_make(t, &s);
  rabbet_attr_t attrs[] = {
      conformance_ints(t, "start", s.start.d, (size_t)s.in.rank),
      conformance_ints(t, "shape", s.size.d, (size_t)s.in.rank),
      conformance_ints(t, "stride", s.stride.d, (size_t)s.in.rank),
      conformance_int(t, "mode", s.mode)};
  int32_t inputs[] = {
      kernel_case_input(&t->c, s.in, false), -1, -1, -1, -1, -1};
  slice_finish(t, attrs, 4, inputs);
}

static void slice_by_inputs(conformance_t* t) {
  slice_t s;
  slice_make(t, &s);
  kernel_case_t* c = &t->c;
  rabbet_dtype_t type =
      conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64;
  bool constant = conformance_chance(t, 2);
  rabbet_dims_t list = KERNEL_DIMS(s.in.rank);
  rabbet_attr_t attrs[] = {conformance_int(t, "mode", s.mode)};
  int32_t inputs[] = {kernel_case_input(c, s.in, false),
                      kernel_case_numbers(c, type, list, s.start.d, constant),
                      kernel_case_numbers(c, type, list, s.size.d, constant),
                      kernel_case_numbers(c, type, list, s.stride.d, constant),
                      -1,
                      -1};
  slice_finish(t, attrs, 1, inputs);
}

// Padding of images by wrapping: what circular convolutions do.
static void slice_circular(conformance_t* t) {
  t->c.exact = true;
  move_misalign(t);
  conformance_set_type(t, conformance_type(t, CONFORMANCE_ALL));
  static const int64_t channels[] = {3, 16, 32, 33};
  int64_t pad = 1 + conformance_random(t, 3);
  int64_t size = t->large ? 61 : 9;
  rabbet_dims_t in = KERNEL_DIMS(2, channels[conformance_random(t, 4)],
                                 size + conformance_random(t, 8), size);
  const int64_t start[] = {0, 0, -pad, -pad, 0};
  const int64_t shape[] = {in.d[0], in.d[1], in.d[2] + 2 * pad,
                           in.d[3] + 2 * pad, 0};
  rabbet_attr_t attrs[] = {conformance_ints(t, "start", start, 4),
                           conformance_ints(t, "shape", shape, 4),
                           conformance_int(t, "mode", 1)};
  kernel_case_output(
      &t->c,
      kernel_case_op(&t->c, "slice", attrs, 3,
                     KERNEL_INPUTS(kernel_case_input(&t->c, in, false))));
}

// Every second element of rows of whole vectors.
static void slice_second(conformance_t* t) {
  move_begin(t);
  move_misalign(t);
  t->c.extra_dtypes = 0;
  int64_t row = 32 * (1 + conformance_random(t, 5));
  rabbet_dims_t in = KERNEL_DIMS(1 + conformance_random(t, 3),
                                 2 + conformance_random(t, 9), row);
  const int64_t start[] = {
      0, conformance_random(t, 2),
      conformance_random(t, 2) + 16 * conformance_random(t, 2)};
  const int64_t shape[] = {in.d[0], in.d[1] - start[1], (row - start[2]) / 2};
  const int64_t stride[] = {1, 1, 2};
  rabbet_attr_t attrs[] = {conformance_ints(t, "start", start, 3),
                           conformance_ints(t, "shape", shape, 3),
                           conformance_ints(t, "stride", stride, 3)};
  kernel_case_output(
      &t->c,
      kernel_case_op(&t->c, "slice", attrs, 3,
                     KERNEL_INPUTS(kernel_case_input(&t->c, in, false))));
}

// ---- Shuffle ---------------------------------------------------------------

// Merges or splits axes at random.
static size_t shuffle_reshape(conformance_t* t, const int64_t* dims,
                              int32_t rank, int64_t* out_dims) {
  size_t count = 0;
  for (int32_t i = 0; i < rank; ++i) {
    if (count > 0 && conformance_chance(t, 3)) {
      out_dims[count - 1] *= dims[i];
      continue;
    }
    int64_t part = 1;
    if (count + 2 < RABBET_MAX_RANK && conformance_chance(t, 3)) {
      static const int64_t parts[] = {2, 4, 3, 16};
      part = parts[conformance_random(t, 4)];
      if (dims[i] % part != 0 || count + (size_t)(rank - i) >= 7) part = 1;
    }
    if (part > 1) out_dims[count++] = part;
    out_dims[count++] = dims[i] / part;
  }
  return count;
}

static void shuffle(conformance_t* t) {
  move_begin(t);
  move_misalign(t);
  kernel_case_t* c = &t->c;
  rabbet_dims_t in = conformance_dims(t, 1, 6);
  rabbet_attr_t attrs[MAX_ATTRS];
  int64_t axes[RABBET_MAX_RANK + 1], dims[RABBET_MAX_RANK + 1];
  size_t count = 0;
  memcpy(dims, in.d, sizeof(in.d));
  if (conformance_chance(t, 2)) {
    conformance_permutation(t, in.rank, axes);
    attrs[count++] =
        conformance_ints(t, "first_transpose", axes, (size_t)in.rank);
    for (int32_t i = 0; i < in.rank; ++i)
      dims[i] = in.d[axes[i]];
  }
  int32_t rank = in.rank;
  int32_t inputs[] = {kernel_case_input(c, in, false), -1};
  if (conformance_chance(t, 2)) {
    int64_t shape[RABBET_MAX_RANK + 1] = {0};
    rank = (int32_t)shuffle_reshape(t, dims, in.rank, shape);
    if (conformance_chance(t, 2)) {
      inputs[1] = kernel_case_numbers(c, RABBET_DTYPE_INT64, KERNEL_DIMS(rank),
                                      shape, true);
    } else {
      attrs[count++] = conformance_ints(t, "reshape_dims", shape, (size_t)rank);
    }
    attrs[count++] = conformance_bool(t, "zero_is_placeholder", false);
  }
  if (conformance_chance(t, 2)) {
    conformance_permutation(t, rank, axes);
    attrs[count++] =
        conformance_ints(t, "second_transpose", axes, (size_t)rank);
  }
  kernel_case_output(c, kernel_case_op(c, "shuffle", attrs, count, inputs, 2));
}

// Transposes of large matrices, whose tiles have all kinds of edges: rows of
// whole vectors, and pixels of a few channels, which devices may have other
// ways for.
static void shuffle_matrix(conformance_t* t) {
  move_begin(t);
  move_misalign(t);
  t->c.extra_dtypes = 0;
  int64_t rows = 1 + conformance_random(t, 90);
  int64_t columns = 1 + conformance_random(t, 300);
  int64_t kind = conformance_random(t, 4);
  if (kind == 1) rows *= 8, columns = (columns / 8 + 1) * 8;
  if (kind == 2) rows = 2 + conformance_random(t, 3), columns *= 16;
  if (kind == 3) rows *= 16, columns = 2 + conformance_random(t, 3);
  rabbet_dims_t in = KERNEL_DIMS(1 + conformance_random(t, 3), rows, columns);
  const int64_t axes[] = {0, 2, 1, 0};
  rabbet_attr_t attrs[] = {conformance_ints(t, "first_transpose", axes, 3)};
  kernel_case_output(
      &t->c,
      kernel_case_op(&t->c, "shuffle", attrs, 1,
                     KERNEL_INPUTS(kernel_case_input(&t->c, in, false))));
}

// ---- Gather ----------------------------------------------------------------

// Indices for an axis of `extent`, a few of them out of bounds.
static int32_t gather_indices(conformance_t* t, rabbet_dims_t dims,
                              int64_t extent) {
  int64_t count = 1;
  for (int32_t i = 0; i < dims.rank; ++i)
    count *= dims.d[i];
  int64_t* data = malloc((size_t)(count + 1) * sizeof(*data));
  for (int64_t i = 0; i < count; ++i) {
    data[i] = conformance_random(t, 2 * extent + 2) - extent - 1;
  }
  int32_t value = kernel_case_numbers(
      &t->c, conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64,
      dims, data, conformance_chance(t, 3));
  free(data);
  return value;
}

static void gather_default(conformance_t* t) {
  move_begin(t);
  move_misalign(t);
  rabbet_dims_t in = conformance_dims(t, 1, 4);
  int64_t axis = conformance_random(t, in.rank);
  int64_t batch =
      conformance_chance(t, 2) ? conformance_random(t, axis + 1) : 0;
  rabbet_dims_t indices = {.rank = (int32_t)batch};
  for (int64_t i = 0; i < batch; ++i)
    indices.d[i] = in.d[i];
  for (int64_t i = conformance_random(t, 3); i > 0; --i)
    indices.d[indices.rank++] = 1 + conformance_random(t, 9);
  rabbet_attr_t attrs[] = {
      conformance_int(t, "axis",
                      conformance_chance(t, 3) ? axis - in.rank : axis),
      conformance_int(t, "num_elementwise_dims", batch)};
  int32_t inputs[] = {kernel_case_input(&t->c, in, false),
                      gather_indices(t, indices, in.d[axis])};
  kernel_case_output(&t->c,
                     kernel_case_op(&t->c, "gather", attrs, 2, inputs, 2));
}

static void gather_element(conformance_t* t) {
  move_begin(t);
  move_misalign(t);
  rabbet_dims_t in = conformance_dims(t, 1, 4), indices = in;
  int64_t axis = conformance_random(t, in.rank);
  for (int32_t i = 0; i < in.rank; ++i) {
    indices.d[i] -= conformance_random(t, in.d[i] + 1) / 3;
  }
  indices.d[axis] = 1 + conformance_random(t, 9);
  rabbet_attr_t attrs[] = {conformance_int(t, "axis", axis),
                           conformance_int(t, "mode", 1)};
  int32_t inputs[] = {kernel_case_input(&t->c, in, false),
                      gather_indices(t, indices, in.d[axis])};
  kernel_case_output(&t->c,
                     kernel_case_op(&t->c, "gather", attrs, 2, inputs, 2));
}

static void gather_nd(conformance_t* t) {
  move_begin(t);
  move_misalign(t);
  rabbet_dims_t in = conformance_dims(t, 1, 4);
  int64_t batch = conformance_random(t, in.rank);
  int64_t depth = 1 + conformance_random(t, in.rank - batch);
  rabbet_dims_t indices = {.rank = (int32_t)batch};
  for (int64_t i = 0; i < batch; ++i)
    indices.d[i] = in.d[i];
  indices.d[indices.rank++] = 1 + conformance_random(t, 17);
  indices.d[indices.rank++] = depth;
  int64_t extent = 1;
  for (int64_t i = 0; i < depth; ++i) {
    if (in.d[batch + i] > extent) extent = in.d[batch + i];
  }
  rabbet_attr_t attrs[] = {conformance_int(t, "num_elementwise_dims", batch),
                           conformance_int(t, "mode", 2)};
  int32_t inputs[] = {kernel_case_input(&t->c, in, false),
                      gather_indices(t, indices, extent)};
  kernel_case_output(&t->c,
                     kernel_case_op(&t->c, "gather", attrs, 2, inputs, 2));
}

// ---- Sequences in reverse order --------------------------------------------

static void reverse_sequence(conformance_t* t) {
  move_begin(t);
  move_misalign(t);
  rabbet_dims_t dims = conformance_dims(t, 2, 5);
  int64_t batch = conformance_random(t, dims.rank);
  int64_t sequence =
      (batch + 1 + conformance_random(t, dims.rank - 1)) % dims.rank;
  rabbet_attr_t attrs[] = {
      conformance_int(t, "batch_axis", batch),
      conformance_int(
          t, "sequence_axis",
          conformance_chance(t, 3) ? sequence - dims.rank : sequence)};
  // Lengths, a few of them out of bounds.
  int32_t inputs[] = {
      kernel_case_input(&t->c, dims, false),
      gather_indices(t, KERNEL_DIMS(dims.d[batch]), dims.d[sequence])};
  kernel_case_output(
      &t->c, kernel_case_op(&t->c, "reverse_sequence", attrs, 2, inputs, 2));
}

// ---- Concatenation ---------------------------------------------------------

static void concatenation(conformance_t* t) {
  move_begin(t);
  move_misalign(t);
  kernel_case_t* c = &t->c;
  rabbet_dims_t dims = conformance_dims(t, 1, 5);
  int64_t axis = conformance_random(t, dims.rank);
  if (dims.rank > 2 && conformance_chance(t, 2)) axis = 1;
  int32_t inputs[6];
  size_t count = 1 + (size_t)conformance_random(t, 5);
  for (size_t i = 0; i < count; ++i) {
    static const int64_t sizes[] = {0, 1, 3, 16, 32, 20};
    if (i > 0) dims.d[axis] = sizes[conformance_random(t, 6)];
    inputs[i] = i > 0 && conformance_chance(t, 6)
                    ? inputs[0]
                    : kernel_case_input(c, dims, conformance_chance(t, 8));
  }
  rabbet_attr_t attrs[] = {conformance_int(
      t, "axis", conformance_chance(t, 2) ? axis : axis - dims.rank)};
  kernel_case_output(
      c, kernel_case_op(c, "concatenation", attrs, 1, inputs, count));
}

// ---- Conversions -----------------------------------------------------------

static void cast(conformance_t* t) {
  move_begin(t);
  t->c.extra_dtypes = 0;
  conformance_set_type(t, conformance_type_in_turn(t, CONFORMANCE_ALL));
  if (conformance_chance(t, 2)) {  // beyond what the narrower types hold
    t->c.low *= 40;
    t->c.high *= 40;
  }
  rabbet_dims_t dims = conformance_dims(t, 0, 4);
  int32_t x = kernel_case_input(&t->c, dims, false);
  rabbet_attr_t attrs[] = {conformance_int(
      t, "to_type", conformance_type_in_turn(t, CONFORMANCE_ALL))};
  kernel_case_output(&t->c, kernel_case_op(&t->c, "cast", attrs, 1, &x, 1));
}

// Bounds, halves and what no type but the largest holds.
static void cast_edges(conformance_t* t) {
  static const double edges[] = {
      0,     -0.0,     0.5,        -0.5,         1.5,           2.5,
      127,   127.5,    128,        -128.5,       -129,          255,
      255.9, 256,      32767,      65504,        65519,         65520,
      1e6,   16777217, 2147483647, 2147483648.0, -2147483648.0, -2147483649.0,
      3e9,   9.2e18,   9.3e18,     -9.3e18,      1e30,          -1e30,
      1e-8,  6e-8,     3.4e38,     33554433,     8388609.5,     -1e-40};
  enum { COUNT = sizeof(edges) / sizeof(edges[0]) + 3 };
  move_begin(t);
  t->c.extra_dtypes = 0;
  conformance_set_type(t, conformance_type_in_turn(t, CONFORMANCE_ALL));
  kernel_case_t* c = &t->c;
  int32_t x = kernel_case_input(c, KERNEL_DIMS(COUNT), false);
  for (int64_t i = 0; i < COUNT; ++i) {
    double value = i < COUNT - 3    ? edges[i]
                   : i == COUNT - 3 ? __builtin_nan("")
                   : i == COUNT - 2 ? __builtin_inf()
                                    : -__builtin_inf();
    rabbet_store_double(c->dtype, c->reference[x], i, value);
  }
  if (c->dtype == RABBET_DTYPE_INT64) {
    // A tie for BF16 in 53 bits that is none in 64.
    rabbet_store_int64(c->dtype, c->reference[x], 0,
                       INT64_C(0x4040000000000001));
    rabbet_store_int64(c->dtype, c->reference[x], 1, INT64_C(0x1010000001));
  }
  rabbet_attr_t attrs[] = {conformance_int(
      t, "to_type", conformance_type_in_turn(t, CONFORMANCE_ALL))};
  kernel_case_output(c, kernel_case_op(c, "cast", attrs, 1, &x, 1));
}

static void bit_cast(conformance_t* t) {
  move_begin(t);
  t->c.extra_dtypes = 0;
  conformance_set_type(t, conformance_type_in_turn(t, CONFORMANCE_ALL));
  int32_t x = kernel_case_input(&t->c, conformance_dims(t, 0, 4), false);
  rabbet_attr_t attrs[] = {conformance_int(
      t, "to_type", conformance_type_in_turn(t, CONFORMANCE_ALL))};
  kernel_case_output(&t->c, kernel_case_op(&t->c, "bit_cast", attrs, 1, &x, 1));
}

// Formats, and types on the way.
static void convert(conformance_t* t) {
  static const rabbet_format_t formats[] = {
      RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,    RABBET_FORMAT_HWC8,
      RABBET_FORMAT_HWC16,  RABBET_FORMAT_CHW2,   RABBET_FORMAT_CHW4,
      RABBET_FORMAT_CHW8,   RABBET_FORMAT_CHW16,  RABBET_FORMAT_CHW32,
      RABBET_FORMAT_DHWC8,  RABBET_FORMAT_CDHW32, RABBET_FORMAT_DHWC};
  move_begin(t);
  t->c.extra_dtypes = 0;
  t->is_fixed = true;
  rabbet_dims_t dims = conformance_dims(t, 3, 5);
  rabbet_dtype_t from = t->c.dtype, to = from;
  if (conformance_chance(t, 2)) to = conformance_type(t, CONFORMANCE_ALL);
  int64_t count = dims.rank == 5 ? 12 : 9;
  t->fixed[0] =
      (rabbet_type_format_t){from, formats[conformance_in_turn(t, count)]};
  t->fixed[1] =
      (rabbet_type_format_t){to, formats[conformance_in_turn(t, count)]};
  int32_t x = kernel_case_input(&t->c, dims, false);
  rabbet_attr_t attrs[] = {conformance_int(t, "to_type", to)};
  kernel_case_output(
      &t->c, from == to ? kernel_case_op(&t->c, "identity", NULL, 0, &x, 1)
                        : kernel_case_op(&t->c, "cast", attrs, 1, &x, 1));
}

static void identity(conformance_t* t) {
  move_begin(t);
  int32_t x = kernel_case_input(&t->c, conformance_dims(t, 0, 5), false);
  kernel_case_output(&t->c, kernel_case_op(&t->c, "identity", NULL, 0, &x, 1));
}

static void shape(conformance_t* t) {
  move_begin(t);
  int32_t x = kernel_case_input(&t->c, conformance_dims(t, 1, 6), false);
  kernel_case_output(&t->c, kernel_case_op(&t->c, "shape", NULL, 0, &x, 1));
}

// No input at all.
static void constant(conformance_t* t) {
  move_begin(t);
  t->c.extra_dtypes = 0;
  rabbet_dims_t dims = conformance_dims(t, 0, 4);
  size_t bytes = 0;
  RABBET_EXPECT_OK(
      rabbet_tensor_bytes(t->c.dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
  uint8_t* data = NULL;
  RABBET_EXPECT_OK(
      rabbet_arena_allocate(&t->c.arena, bytes + 1, (void**)&data));
  for (size_t i = 0; i < bytes; ++i)
    data[i] = (uint8_t)conformance_random(t, 2);
  int64_t count = 0;
  RABBET_EXPECT_OK(rabbet_dims_count(&dims, &count));
  rabbet_attr_t attrs[] = {{.name = "weights",
                            .type = RABBET_ATTR_TENSOR,
                            .data = data,
                            .count = (size_t)count,
                            .dtype = t->c.dtype,
                            .dims = dims}};
  kernel_case_output(&t->c,
                     kernel_case_op(&t->c, "constant", attrs, 1, NULL, 0));
}

const conformance_family_t conformance_moves[] = {
    {"slice", 250, slice_by_attributes},
    {"slice_by_inputs", 100, slice_by_inputs},
    {"slice_circular", 20, slice_circular},
    {"slice_second", 40, slice_second},
    {"shuffle", 300, shuffle},
    {"shuffle_matrix", 60, shuffle_matrix},
    {"gather", 150, gather_default},
    {"gather_element", 80, gather_element},
    {"gather_nd", 80, gather_nd},
    {"reverse_sequence", 120, reverse_sequence},
    {"concatenation", 120, concatenation},
    {"bit_cast", 100, bit_cast},
    {"cast", 200, cast},
    {"cast_edges", 200, cast_edges},
    {"convert", 200, convert},
    {"identity", 40, identity},
    {"shape", 10, shape},
    {"constant", 20, constant},
    {0},
};
