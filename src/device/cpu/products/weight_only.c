// Products with weights of 4 or 8 bits, which are read where the plan has them
// and become floats in registers. A few rows are bound by the bytes of the
// weights. For many rows, panels of the weights become floats in the cache, so
// that the rows share that work.
#include "device/common/weight_only.h"

#include <assert.h>
#include <string.h>

#include "core/view.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/digits.h"
#include "device/cpu/vectors/e4m3.h"
#include "device/cpu/vectors/vectors.h"

enum {
  ALIGNMENT = 64,
  // Rows of x up to which floats are made in registers.
  FEW_ROWS = 12,
  // Of these, rows that are multiplied by their digits, one by one: all three
  // digits, or one. More rows of all digits are faster as floats, since they
  // share the weights'.
  EXACT_ROWS = 2,
  // Rows of weights that all rows of x read before the next ones: they stay in
  // the cache.
  TURN_ROWS = 32,
  // A panel's depth, and rows of x that read it from the cache.
  PANEL_DEPTH = 1024,
  PANEL_READERS = 256,
};

typedef struct cpu_weight_only_kernel_t {
  rabbet_node_kernel_t node;
  rabbet_weight_only_t product;
  rabbet_packed_type_t type;
  // As the kernel reads the weights; `codes` and `scales` are set in a call
  // where the kernel has none of its own.
  rabbet_packed_t packed;
  int64_t blocks;     // of a row
  float zero_offset;  // zeros are stored less this
  uint8_t* codes;
  float* scales;
  int8_t* zeros;  // [n][blocks], or NULL
  bool has_nan;   // FP8, which loops of digits take without
} cpu_weight_only_kernel_t;

typedef struct cpu_weight_only_state_t {
  int64_t rows;
  rabbet_dtype_t dtype;  // of x and the result
  int64_t size;          // bytes of an element
  int64_t padded;        // floats of a row of x in the order of packed_dots
  int digits_each;       // of a number of a row; 0: none
  bool has_tables;       // the row is multiplied by AVX512-VBMI
  // Offsets in the workspace, in bytes, and a thread's share of it.
  size_t x, digits, sums, y, slots, slot_bytes;
} cpu_weight_only_state_t;

// ---- Which groups ----------------------------------------------------------

static bool weight_only_type(rabbet_dtype_t dtype,
                             rabbet_packed_type_t* out_type) {
  static const rabbet_packed_type_t types[RABBET_DTYPE_COUNT] = {
      [RABBET_DTYPE_INT4] = RABBET_PACKED_INT4 + 1,
      [RABBET_DTYPE_FP4] = RABBET_PACKED_FP4 + 1,
      [RABBET_DTYPE_NF4] = RABBET_PACKED_NF4 + 1,
      [RABBET_DTYPE_INT8] = RABBET_PACKED_INT8 + 1,
      [RABBET_DTYPE_UINT8] = RABBET_PACKED_UINT8 + 1,
      [RABBET_DTYPE_FP8] = RABBET_PACKED_FP8 + 1,
  };
  if (types[dtype] == 0) return false;
  *out_type = types[dtype] - 1;
  return true;
}

// The length of blocks in which both scales and zero points are constant; 0:
// the kernel has no loop for it.
static int64_t weight_only_block(const rabbet_weight_only_t* p) {
  int64_t a = p->scales.depth, b = p->zero < 0 ? a : p->zeros.depth;
  int64_t block = rabbet_min_i64(a, b), other = rabbet_max_i64(a, b);
  if (block >= p->k) return p->k;
  bool fits = block >= RABBET_PACKED_BLOCK && (block & (block - 1)) == 0;
  return fits && (other >= p->k || other % block == 0) ? block : 0;
}

static bool weight_only_matches(const rabbet_group_t* group,
                                rabbet_weight_only_t* p) {
  rabbet_packed_type_t type;
  if (!rabbet_weight_only_parse(group, p) || p->plain.node_count != 1 ||
      !weight_only_type(group->values[p->w].dtype, &type) ||
      weight_only_block(p) == 0)
    return false;
  // Zero points are whole numbers.
  return p->zero < 0 ||
         (type != RABBET_PACKED_FP4 && type != RABBET_PACKED_NF4 &&
          type != RABBET_PACKED_FP8);
}

static bool weight_only_is_real(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16;
}

static bool cpu_weight_only_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  rabbet_weight_only_t p;
  if (!rabbet_takes_linear(group) || !weight_only_matches(group, &p))
    return false;
  rabbet_dtype_t dtype = group->values[p.x].dtype;
  return weight_only_is_real(dtype) &&
         weight_only_is_real(group->values[p.scale].dtype) &&
         group->values[group->outputs[0]].dtype == dtype &&
         (p.zero < 0 ||
          group->values[p.zero].dtype == group->values[p.w].dtype);
}

static rabbet_status_t cpu_weight_only_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_weight_only_t p;
  rabbet_dtype_t types[4];
  if (!weight_only_matches(group, &p) ||
      !weight_only_is_real(group->values[p.scale].dtype) ||
      !weight_only_is_real(group->values[p.x].dtype))
    return rabbet_ok();
  int count =
      rabbet_compute_types(proposal->propose, group->values[p.x].dtype, types);
  for (int t = 0; t < count; ++t) {
    int32_t x = rabbet_group_input_of(group, p.x);
    proposal->tensors[x].dtype = types[t];
    rabbet_proposal_set_output(proposal, types[t], RABBET_FORMAT_LINEAR);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "packed", -1));
  }
  return rabbet_ok();
}

static rabbet_status_t cpu_weight_only_propose(const rabbet_propose_t* propose,
                                               rabbet_candidate_sink_t sink) {
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_weight_only, NULL,
                              cpu_weight_only_body);
}

// ---- Constants -------------------------------------------------------------

static int64_t weight_only_place(const rabbet_weight_blocks_t* blocks,
                                 int64_t n, int64_t k) {
  return n / blocks->rows * blocks->row_stride +
         k / blocks->depth * blocks->depth_stride;
}

static bool weight_only_has_nibbles(const cpu_weight_only_kernel_t* kernel) {
  return kernel->type <= RABBET_PACKED_NF4;
}

// Weights [k][n], and those whose rows do not begin at bytes, are copied.
static rabbet_status_t weight_only_copy_codes(
    cpu_weight_only_kernel_t* kernel) {
  const rabbet_weight_only_t* p = &kernel->product;
  const uint8_t* from = kernel->node.group->values[p->w].constant;
  bool nibbles = weight_only_has_nibbles(kernel);
  int64_t stride = nibbles ? (p->k + 1) / 2 : p->k;
  kernel->packed.stride = stride;
  if (p->is_turned && (!nibbles || p->k % 2 == 0)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      kernel->node.allocator, (size_t)(p->n * stride), (void**)&kernel->codes));
  kernel->node.base.kept_bytes = (size_t)(p->n * stride);
  int64_t row = p->is_turned ? p->k : 1, step = p->is_turned ? 1 : p->n;
  for (int64_t n = 0; n < p->n; ++n)
    for (int64_t k = 0; k < p->k; ++k) {
      int64_t at = n * row + k * step;
      uint8_t* to = kernel->codes + n * stride;
      if (nibbles)
        to[k / 2] = (uint8_t)(to[k / 2] | (from[at / 2] >> at % 2 * 4 & 15)
                                              << k % 2 * 4);
      else
        to[k] = from[at];
    }
  int32_t input = rabbet_group_input_of(kernel->node.group, p->w);
  if (input < 64) kernel->node.base.own_constants |= UINT64_C(1) << input;
  return rabbet_ok();
}

static rabbet_status_t weight_only_copy_scales(
    cpu_weight_only_kernel_t* kernel) {
  const rabbet_weight_only_t* p = &kernel->product;
  const rabbet_group_value_t* from = &kernel->node.group->values[p->scale];
  kernel->packed.rows = p->scales.rows;
  kernel->packed.scale_stride = p->scales.row_stride;
  bool in_order =
      kernel->blocks == 1 ||
      (p->scales.depth_stride == 1 && p->scales.depth == kernel->packed.block);
  if (from->dtype == RABBET_DTYPE_FLOAT && in_order) return rabbet_ok();
  int64_t rows = rabbet_ceildiv(p->n, p->scales.rows);
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      kernel->node.allocator, (size_t)(rows * kernel->blocks) * sizeof(float),
      (void**)&kernel->scales));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < kernel->blocks; ++b)
      kernel->scales[r * kernel->blocks + b] = (float)rabbet_load_double(
          from->dtype, from->constant,
          weight_only_place(&p->scales, r * p->scales.rows,
                            b * kernel->packed.block));
  kernel->packed.scale_stride = kernel->blocks;
  int32_t input = rabbet_group_input_of(kernel->node.group, p->scale);
  if (input < 64) kernel->node.base.own_constants |= UINT64_C(1) << input;
  return rabbet_ok();
}

static rabbet_status_t weight_only_copy_zeros(
    cpu_weight_only_kernel_t* kernel) {
  enum { UINT8_MIDDLE = 128 };
  const rabbet_weight_only_t* p = &kernel->product;
  if (p->zero < 0) return rabbet_ok();
  const rabbet_group_value_t* from = &kernel->node.group->values[p->zero];
  int64_t offset = kernel->type == RABBET_PACKED_UINT8 ? UINT8_MIDDLE : 0;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(kernel->node.allocator,
                                         (size_t)(p->n * kernel->blocks),
                                         (void**)&kernel->zeros));
  kernel->zero_offset = (float)offset;
  for (int64_t n = 0; n < p->n; ++n)
    for (int64_t b = 0; b < kernel->blocks; ++b)
      kernel->zeros[n * kernel->blocks + b] =
          (int8_t)(rabbet_load_int64(
                       from->dtype, from->constant,
                       weight_only_place(&p->zeros, n,
                                         b * kernel->packed.block)) -
                   offset);
  int32_t input = rabbet_group_input_of(kernel->node.group, p->zero);
  if (input < 64) kernel->node.base.own_constants |= UINT64_C(1) << input;
  return rabbet_ok();
}

// Whether a code of FP8 is NaN. It reads what the first call would read from
// the plan's file otherwise, eight codes at a time.
static bool weight_only_has_nan(const cpu_weight_only_kernel_t* kernel) {
  const rabbet_weight_only_t* p = &kernel->product;
  const uint8_t* codes = kernel->node.group->values[p->w].constant;
  const int64_t count = p->n * p->k;
  const uint64_t ones = UINT64_MAX / UINT8_MAX;
  uint64_t found = 0;
  int64_t i = 0;
  for (uint64_t eight; i + 8 <= count; i += 8) {
    memcpy(&eight, codes + i, sizeof(eight));
    // The sum of a code without its sign and 1 is 128 for NaN alone.
    found |= (eight & ones * INT8_MAX) + ones;
  }
  for (; i < count; ++i)
    found |= (uint64_t)(codes[i] & INT8_MAX) + 1;
  return (found & ones << 7) != 0;
}

static void cpu_weight_only_destroy(rabbet_kernel_t* base) {
  cpu_weight_only_kernel_t* kernel = (cpu_weight_only_kernel_t*)base;
  if (!kernel) return;
  rabbet_free(kernel->node.allocator, kernel->codes);
  rabbet_free(kernel->node.allocator, kernel->scales);
  rabbet_free(kernel->node.allocator, kernel->zeros);
  rabbet_free(kernel->node.allocator, kernel);
}

static rabbet_status_t cpu_weight_only_create(const rabbet_kernel_spec_t* spec,
                                              rabbet_kernel_t** out_kernel) {
  cpu_weight_only_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->node =
      (rabbet_node_kernel_t){.base = {.kernel_class = &rabbet_cpu_weight_only},
                             .allocator = spec->allocator,
                             .group = spec->group,
                             .node = &spec->group->nodes[0]};
  bool matches = weight_only_matches(spec->group, &kernel->product);
  assert(matches);  // `takes` has checked it
  matches =
      matches && weight_only_type(spec->group->values[kernel->product.w].dtype,
                                  &kernel->type);
  kernel->packed.depth = kernel->product.k;
  kernel->packed.block = weight_only_block(&kernel->product);
  kernel->blocks = rabbet_ceildiv(kernel->product.k, kernel->packed.block);
  kernel->has_nan =
      kernel->type == RABBET_PACKED_FP8 &&
      rabbet_digits_fit(rabbet_digits(), kernel->type, RABBET_DIGIT_COUNT) &&
      weight_only_has_nan(kernel);
  rabbet_status_t status = weight_only_copy_codes(kernel);
  if (rabbet_is_ok(status)) status = weight_only_copy_scales(kernel);
  if (rabbet_is_ok(status)) status = weight_only_copy_zeros(kernel);
  if (rabbet_is_ok(status))
    *out_kernel = &kernel->node.base;
  else
    cpu_weight_only_destroy(&kernel->node.base);
  return status;
}

// ---- Geometry --------------------------------------------------------------

// A thread's memory for many rows of x, in bytes.
typedef struct weight_only_slot_t {
  size_t panel, sums, x_rows, sum_rows, floats, bytes;
} weight_only_slot_t;

static weight_only_slot_t weight_only_slot(int64_t depth) {
  const size_t readers = PANEL_READERS, align = ALIGNMENT;
  weight_only_slot_t slot = {0};
  slot.sums = slot.panel + (size_t)PANEL_DEPTH * RABBET_PANEL * sizeof(float);
  slot.x_rows = slot.sums + readers * RABBET_PANEL * sizeof(float);
  slot.sum_rows = slot.x_rows + readers * sizeof(float*);
  slot.floats = slot.sum_rows + readers * sizeof(float*);
  slot.bytes =
      rabbet_align_up(slot.floats + (size_t)depth * sizeof(float), align);
  return slot;
}

static bool weight_only_reserve(int64_t count, int64_t each, size_t* total,
                                size_t* out_place) {
  size_t bytes = 0;
  *out_place = *total;
  if (!rabbet_checked_mul((size_t)count, (size_t)each, &bytes) ||
      !rabbet_checked_add(*total, bytes, total) ||
      *total > PTRDIFF_MAX - ALIGNMENT)
    return false;
  *total = rabbet_align_up(*total, ALIGNMENT);
  return true;
}

// Chunks of digits of a row of x.
static int64_t weight_only_chunks(const cpu_weight_only_kernel_t* kernel) {
  return rabbet_ceildiv(kernel->product.k, (int64_t)RABBET_DIGIT_CHUNK);
}

static rabbet_status_t weight_only_lay_out(
    const cpu_weight_only_kernel_t* kernel, int threads,
    cpu_weight_only_state_t* state, size_t* out_workspace) {
  const rabbet_weight_only_t* p = &kernel->product;
  const int64_t floats = sizeof(float);
  bool few = state->rows <= FEW_ROWS;
  bool own = state->dtype != RABBET_DTYPE_FLOAT;
  int64_t width = few ? state->padded : own ? p->k : 0;
  size_t total = 0;
  state->slot_bytes = few ? rabbet_align_up((size_t)(p->k * floats), ALIGNMENT)
                          : weight_only_slot(p->k).bytes;
  bool fits =
      weight_only_reserve(state->rows, width * floats, &total, &state->x) &&
      weight_only_reserve(
          state->digits_each > 0 ? state->rows * weight_only_chunks(kernel) : 0,
          sizeof(rabbet_digits_t), &total, &state->digits) &&
      weight_only_reserve(kernel->zeros ? state->rows : 0,
                          kernel->blocks * floats, &total, &state->sums) &&
      weight_only_reserve(few && own ? state->rows : 0, p->n * floats, &total,
                          &state->y) &&
      weight_only_reserve(rabbet_cpu_slots(threads), (int64_t)state->slot_bytes,
                          &total, &state->slots);
  *out_workspace = total;
  if (fits) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "layer '%s': %lld rows are too many", p->nodes[0].name,
                       (long long)state->rows);
}

// Digits of each number of a few rows; 0: there is no loop for them.
static int weight_only_digits(const cpu_weight_only_kernel_t* kernel,
                              int64_t rows) {
  const rabbet_group_node_t* product = &kernel->product.nodes[0];
  if (rabbet_attr_int(product->attrs, product->op->attr_count, "round_input0",
                      0) != 0 &&
      rabbet_digits_fit(rabbet_digits(), kernel->type, 1))
    return 1;
  return rows <= EXACT_ROWS && !kernel->has_nan &&
                 rabbet_digits_fit(rabbet_digits(), kernel->type,
                                   RABBET_DIGIT_COUNT)
             ? RABBET_DIGIT_COUNT
             : 0;
}

static rabbet_status_t cpu_weight_only_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_weight_only_state_t** out_state, size_t* out_workspace) {
  const cpu_weight_only_kernel_t* kernel = (cpu_weight_only_kernel_t*)base;
  const rabbet_weight_only_t* p = &kernel->product;
  const rabbet_dims_t* x = &shapes->dims[p->x];
  int64_t chunk = rabbet_vectors()->packed_chunk;
  cpu_weight_only_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  if (x->rank < 1 || x->d[x->rank - 1] != p->k)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': the last axis of input 0 has extent "
                         "%lld, and the weights have %lld",
                         p->nodes[0].name,
                         (long long)(x->rank < 1 ? 1 : x->d[x->rank - 1]),
                         (long long)p->k);
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  state->rows = rabbet_weight_only_rows(x);
  state->dtype = kernel->node.group->values[p->x].dtype;
  state->size = rabbet_dtype_bits(state->dtype) / 8;
  state->padded = rabbet_ceildiv(p->k, chunk) * chunk;
  if (state->rows <= FEW_ROWS)
    state->digits_each = weight_only_digits(kernel, state->rows);
  state->has_tables = state->rows == 1 && kernel->type == RABBET_PACKED_FP8 &&
                      rabbet_e4m3_available();
  return rabbet_node_state_finish(
      base, state,
      weight_only_lay_out(kernel, shapes->threads, state, out_workspace),
      (void**)out_state);
}

// ---- A call ----------------------------------------------------------------

typedef struct weight_only_call_t {
  const cpu_weight_only_kernel_t* kernel;
  const cpu_weight_only_state_t* state;
  const rabbet_vectors_t* vectors;
  rabbet_packed_t packed;
  const char* x;
  char* y;
  char* workspace;
  float* rows;  // x for the products: in the order of packed_dots if few
  float* sums;  // of x in each block, or NULL
  float* out;   // few rows: the result as floats
  rabbet_digits_t* digits;
  bool has_digits[FEW_ROWS];  // of each row
  bool has_tables;            // of the only row
} weight_only_call_t;

static char* weight_only_slot_of(const weight_only_call_t* call) {
  return call->workspace + call->state->slots +
         (size_t)rabbet_cpu_slot() * call->state->slot_bytes;
}

static void weight_only_convert(const weight_only_call_t* call,
                                const char* from, int64_t count, float* to) {
  rabbet_convert_fn_t convert = call->vectors->to_float[call->state->dtype];
  for (int64_t i = 0; i < count; i += RABBET_LANES)
    convert(from + i * call->state->size, to + i,
            rabbet_min_i64(RABBET_LANES, count - i));
}

static void weight_only_store(const weight_only_call_t* call, const float* from,
                              int64_t count, char* to) {
  rabbet_convert_fn_t convert = call->vectors->from_float[call->state->dtype];
  if (!convert) memcpy(to, from, (size_t)count * sizeof(*from));
  for (int64_t i = 0; convert && i < count; i += RABBET_LANES)
    convert(from + i, to + i * call->state->size,
            rabbet_min_i64(RABBET_LANES, count - i));
}

static void weight_only_sum(const weight_only_call_t* call, const float* x,
                            float* sums) {
  int64_t depth = call->packed.depth, block = call->packed.block;
  for (int64_t b = 0; b < call->kernel->blocks; ++b) {
    int64_t count = rabbet_min_i64(block, depth - b * block);
    double sum = 0;
    call->vectors->reduce_float(RABBET_REDUCE_SUM, x + b * block, count, &sum);
    sums[b] = (float)sum;
  }
}

// Whether sums of products with numbers of FP8, before they are scaled, stay
// finite.
static bool weight_only_is_moderate(const weight_only_call_t* call,
                                    const float* x) {
  const float most = 0x1p100f;
  double ends[2] = {0};
  call->vectors->reduce_float(RABBET_REDUCE_MIN, x, call->packed.depth,
                              &ends[0]);
  call->vectors->reduce_float(RABBET_REDUCE_MAX, x, call->packed.depth,
                              &ends[1]);
  return ends[0] >= -most && ends[1] <= most;
}

// Prepares rows of x.
static void weight_only_rows(void* context, int64_t begin, int64_t end) {
  weight_only_call_t* call = context;
  const cpu_weight_only_state_t* state = call->state;
  int64_t depth = call->packed.depth;
  bool few = state->rows <= FEW_ROWS;
  for (int64_t r = begin; r < end; ++r) {
    const char* from = call->x + r * depth * state->size;
    const float* x = (const float*)(const void*)from;
    if (state->dtype != RABBET_DTYPE_FLOAT) {
      float* room = few ? (float*)(void*)weight_only_slot_of(call)
                        : call->rows + r * depth;
      weight_only_convert(call, from, depth, room);
      x = room;
    }
    bool has_digits = state->digits_each > 0 &&
                      rabbet_digits_convert(
                          rabbet_digits(), call->kernel->type, &call->packed,
                          state->digits_each, x,
                          call->digits + r * weight_only_chunks(call->kernel));
    if (few) call->has_digits[r] = has_digits;
    if (state->has_tables) call->has_tables = weight_only_is_moderate(call, x);
    if (call->has_tables)
      rabbet_e4m3_order(x, depth, call->rows);
    else if (few && !has_digits)
      call->vectors->packed_order(call->kernel->type, x, depth,
                                  call->rows + r * state->padded);
    if (call->sums)
      weight_only_sum(call, x, call->sums + r * call->kernel->blocks);
  }
}

// Zero points for row r of x.
static rabbet_packed_zeros_t weight_only_zeros(const weight_only_call_t* call,
                                               int64_t r) {
  const cpu_weight_only_kernel_t* kernel = call->kernel;
  return (rabbet_packed_zeros_t){.codes = kernel->zeros,
                                 .blocks = kernel->blocks,
                                 .offset = kernel->zero_offset,
                                 .sums = call->sums + r * kernel->blocks};
}

// ---- Few rows --------------------------------------------------------------

// Multiplies rows of x from `r` on, as many as go together; returns how many.
static int weight_only_step(const weight_only_call_t* call, int64_t r,
                            int64_t begin, int64_t end) {
  const cpu_weight_only_state_t* state = call->state;
  int64_t columns = call->kernel->product.n;
  float* out = call->out + r * columns;
  if (call->has_digits[r]) {
    const rabbet_packed_zeros_t* zeros = NULL;
    rabbet_packed_zeros_t points;
    if (call->sums) {
      points = weight_only_zeros(call, r);
      zeros = &points;
    }
    rabbet_digits_dots(rabbet_digits(), call->kernel->type, &call->packed,
                       zeros, state->digits_each,
                       call->digits + r * weight_only_chunks(call->kernel),
                       begin, end, out);
    return 1;
  }
  const float* x[RABBET_PRODUCT_ROWS];
  int count = 0;
  for (; count < RABBET_PRODUCT_ROWS && r + count < state->rows &&
         !call->has_digits[r + count];
       ++count)
    x[count] = call->rows + (r + count) * state->padded;
  call->vectors->packed_dots[call->kernel->type](&call->packed, x, count, begin,
                                                 end, out, columns);
  for (int i = 0; i < count && call->sums; ++i) {
    const rabbet_packed_zeros_t zeros = weight_only_zeros(call, r + i);
    rabbet_packed_subtract_zeros(&call->packed, &zeros, begin, end,
                                 out + i * columns);
  }
  return count;
}

static void weight_only_multiply(const weight_only_call_t* call, int64_t begin,
                                 int64_t end) {
  const cpu_weight_only_state_t* state = call->state;
  if (call->has_tables) {
    rabbet_e4m3_dots(&call->packed, call->rows, begin, end, call->out);
    return;
  }
  int64_t turn = state->rows > 1 ? TURN_ROWS : end - begin;
  for (int64_t n = begin; n < end; n += turn)
    for (int64_t r = 0; r < state->rows;)
      r += weight_only_step(call, r, n, rabbet_min_i64(n + turn, end));
}

static void weight_only_few(void* context, int64_t begin, int64_t end) {
  const weight_only_call_t* call = context;
  const cpu_weight_only_state_t* state = call->state;
  int64_t columns = call->kernel->product.n;
  weight_only_multiply(call, begin, end);
  for (int64_t r = 0; r < state->rows; ++r) {
    float* out = call->out + r * columns;
    if (state->dtype != RABBET_DTYPE_FLOAT)
      weight_only_store(call, out + begin, end - begin,
                        call->y + (r * columns + begin) * state->size);
  }
}

// ---- Many rows -------------------------------------------------------------

// Adds the products of rows of x with rows `begin` to `end` - 1 of the weights.
static void weight_only_add(const weight_only_call_t* call, char* room,
                            int64_t row, int64_t count, int64_t begin,
                            int64_t end) {
  weight_only_slot_t slot = weight_only_slot(call->packed.depth);
  float* panel = (float*)(void*)(room + slot.panel);
  float* sums = (float*)(void*)(room + slot.sums);
  const float** x = (const float**)(void*)(room + slot.x_rows);
  float** out = (float**)(void*)(room + slot.sum_rows);
  int64_t depth = call->packed.depth, chunk = call->vectors->packed_chunk;
  memset(sums, 0, (size_t)count * RABBET_PANEL * sizeof(*sums));
  for (int64_t k = 0; k < depth; k += PANEL_DEPTH) {
    int64_t length = rabbet_min_i64(PANEL_DEPTH, depth - k);
    call->vectors->packed_panel(call->kernel->type, &call->packed, begin, end,
                                k / chunk, rabbet_ceildiv(length, chunk),
                                panel);
    for (int64_t i = 0; i < count; ++i) {
      x[i] = call->rows + (row + i) * depth + k;
      out[i] = sums + i * RABBET_PANEL;
    }
    const rabbet_panel_t part = {
        .weights = panel, .count = length, .width = RABBET_PANEL};
    call->vectors->panel_products(x, out, count, &part);
  }
}

static void weight_only_many(void* context, int64_t begin, int64_t end) {
  const weight_only_call_t* call = context;
  const cpu_weight_only_state_t* state = call->state;
  int64_t columns = call->kernel->product.n;
  char* room = weight_only_slot_of(call);
  float* sums =
      (float*)(void*)(room + weight_only_slot(call->packed.depth).sums);
  for (int64_t r = 0; r < state->rows; r += PANEL_READERS)
    for (int64_t i = begin; i < end; ++i) {
      int64_t count = rabbet_min_i64(PANEL_READERS, state->rows - r);
      int64_t n = i * RABBET_PANEL;
      int64_t width = rabbet_min_i64(RABBET_PANEL, columns - n);
      weight_only_add(call, room, r, count, n, n + width);
      for (int64_t row = 0; row < count; ++row) {
        float* out = sums + row * RABBET_PANEL;
        if (call->sums) {
          const rabbet_packed_zeros_t zeros = weight_only_zeros(call, r + row);
          rabbet_packed_subtract_zeros(&call->packed, &zeros, n, n + width,
                                       out - n);
        }
        weight_only_store(call, out, width,
                          call->y + ((r + row) * columns + n) * state->size);
      }
    }
}

static rabbet_status_t cpu_weight_only_enqueue(
    rabbet_kernel_t* base, cpu_weight_only_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cpu_weight_only_kernel_t* kernel = (cpu_weight_only_kernel_t*)base;
  const rabbet_weight_only_t* p = &kernel->product;
  char* workspace = call->workspace;
  weight_only_call_t run = {
      .kernel = kernel,
      .state = state,
      .vectors = rabbet_vectors(),
      .packed = kernel->packed,
      .x = call->inputs[rabbet_group_input_of(kernel->node.group, p->x)],
      .y = call->outputs[0],
      .workspace = workspace,
      .rows = (float*)(void*)(workspace + state->x),
      .digits = (rabbet_digits_t*)(void*)(workspace + state->digits),
      .sums = kernel->zeros ? (float*)(void*)(workspace + state->sums) : NULL};
  bool few = state->rows <= FEW_ROWS;
  bool is_float = state->dtype == RABBET_DTYPE_FLOAT;
  if (state->rows == 0) return rabbet_ok();
  run.packed.codes =
      kernel->codes
          ? kernel->codes
          : call->inputs[rabbet_group_input_of(kernel->node.group, p->w)];
  run.packed.scales =
      kernel->scales
          ? kernel->scales
          : call->inputs[rabbet_group_input_of(kernel->node.group, p->scale)];
  run.out = (float*)(void*)(is_float ? run.y : workspace + state->y);
  // Many rows of FLOAT are read where they are.
  if (!few && is_float) run.rows = (float*)(void*)run.x;
  if (few || !is_float || run.sums)
    rabbet_cpu_parallel(
        state->rows,
        rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / (p->k * state->size)),
        weight_only_rows, &run);
  int64_t grain = rabbet_max_i64(
      1, RABBET_CPU_GRAIN_BYTES / (kernel->packed.stride * state->rows));
  if (few)
    rabbet_cpu_parallel(p->n, grain, weight_only_few, &run);
  else
    rabbet_cpu_parallel(rabbet_ceildiv(p->n, (int64_t)RABBET_PANEL),
                        rabbet_max_i64(1, grain / RABBET_PANEL),
                        weight_only_many, &run);
  return rabbet_ok();
}

RABBET_NODE_TABLE(cpu_weight_only, "cpu.weight_only", 2,
                  .destroy = cpu_weight_only_destroy);
