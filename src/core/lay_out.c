#include "core/lay_out.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/view.h"

// The layout of an array that is (outer, channel, inner) in LINEAR.
typedef struct constant_layout_t {
  int64_t channels, inner;
  int64_t block, padded;
  bool channels_last;
} constant_layout_t;

static constant_layout_t constant_layout(rabbet_format_t format,
                                         const rabbet_dims_t* dims) {
  const rabbet_format_info_t* info = rabbet_format_info(format);
  assert(info && dims->rank >= info->min_rank);
  constant_layout_t layout = {.channels = 1, .inner = 1, .block = 1};
  layout.channels_last = info->channels_last;
  bool is_linear = info->block == 1 && !info->channels_last;
  if (!is_linear) {
    layout.channels = dims->d[1];
    layout.block = info->block;
  }
  for (int32_t i = is_linear ? 0 : 2; i < dims->rank; ++i)
    layout.inner *= dims->d[i];
  layout.padded =
      (layout.channels + layout.block - 1) / layout.block * layout.block;
  return layout;
}

static int64_t constant_place(const constant_layout_t* layout, int64_t index) {
  assert(index >= 0);
  int64_t inner = index % layout->inner;
  int64_t channel = index / layout->inner % layout->channels;
  int64_t outer = index / layout->inner / layout->channels;
  assert(channel < layout->padded && layout->padded % layout->block == 0);
  if (layout->channels_last)
    return (outer * layout->inner + inner) * layout->padded + channel;
  return (outer * layout->padded + channel / layout->block * layout->block) *
             layout->inner +
         inner * layout->block + channel % layout->block;
}

// Keeps finite numbers finite. Masks that are added to scores often have the
// lowest FLOAT: as -infinity it would turn rows that are masked entirely into
// NaN, and then, as NaN times 0, other rows, too.
static double constant_within(rabbet_dtype_t dtype, double value) {
  double most = dtype == RABBET_DTYPE_HALF   ? 65504
                : dtype == RABBET_DTYPE_BF16 ? 0x1.fep127
                                             : INFINITY;
  return isfinite(value) ? fmax(fmin(value, most), -most) : value;
}

// ---- Rows ------------------------------------------------------------------

// Elements that lie one behind another, and where they go: to target[at + i *
// step].
typedef struct constant_row_t {
  rabbet_dtype_t from, to;
  const void* source;
  int64_t first, count;
  void* target;
  int64_t at, step;
} constant_row_t;

static void row_any(const constant_row_t* row) {
  bool is_float = rabbet_dtype_is_float(row->from);
  for (int64_t i = 0; i < row->count; ++i) {
    int64_t from = row->first + i, at = row->at + i * row->step;
    if (is_float)
      rabbet_store_double(
          row->to, row->target, at,
          constant_within(row->to,
                          rabbet_load_double(row->from, row->source, from)));
    else
      rabbet_store_int64(row->to, row->target, at,
                         rabbet_load_int64(row->from, row->source, from));
  }
}

// The next two are rabbet_store_double of constant_within, of FLOAT. Weights
// take most of a build's conversions.
static inline uint16_t row_half_of(float value) {
  uint32_t bits = 0, aligned = 0;
  memcpy(&bits, &value, sizeof(bits));
  uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (magnitude == 0x7f800000u) return (uint16_t)(sign | 0x7c00u);
  if (magnitude > 0x477fe000u) return (uint16_t)(sign | 0x7bffu);  // 65504
  if (magnitude < 0x38800000u) {  // below 2^-14: the adder rounds to 2^-24
    float sum = 0;
    memcpy(&sum, &magnitude, sizeof(sum));
    sum += 0.5f;
    memcpy(&aligned, &sum, sizeof(aligned));
    return (uint16_t)(sign | (aligned - 0x3f000000u));
  }
  uint32_t odd = magnitude >> 13 & 1;
  return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

static inline uint16_t row_bf16_of(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7fc0u);
  if (magnitude == 0x7f800000u) return (uint16_t)(sign | 0x7f80u);
  if (magnitude > 0x7f7f0000u) return (uint16_t)(sign | 0x7f7fu);
  return (uint16_t)(sign | (magnitude + 0x7fffu + (magnitude >> 16 & 1)) >> 16);
}

// Defines row_`name`, whose elements are converted by `convert`.
#define CONSTANT_ROW(name, from_type, to_type, convert) \
  static void row_##name(const constant_row_t* row) {   \
    const from_type* source = row->source;              \
    to_type* target = row->target;                      \
    source += row->first;                               \
    target += row->at;                                  \
    for (int64_t i = 0; i < row->count; ++i)            \
      target[i * row->step] = convert(source[i]);       \
  }
CONSTANT_ROW(half, float, uint16_t, row_half_of)
CONSTANT_ROW(bf16, float, uint16_t, row_bf16_of)
CONSTANT_ROW(bits8, uint8_t, uint8_t, )
CONSTANT_ROW(bits16, uint16_t, uint16_t, )
CONSTANT_ROW(bits32, uint32_t, uint32_t, )
CONSTANT_ROW(bits64, uint64_t, uint64_t, )

typedef void (*constant_row_fn_t)(const constant_row_t* row);

static constant_row_fn_t constant_row(rabbet_dtype_t from, rabbet_dtype_t to) {
  if (from == RABBET_DTYPE_FLOAT && to == RABBET_DTYPE_HALF) return row_half;
  if (from == RABBET_DTYPE_FLOAT && to == RABBET_DTYPE_BF16) return row_bf16;
  if (from != to) return row_any;
  switch (rabbet_dtype_bits(from)) {
    case 8:
      return row_bits8;
    case 16:
      return row_bits16;
    case 32:
      return row_bits32;
    case 64:
      return row_bits64;
    default:
      return row_any;
  }
}

void rabbet_lay_out(rabbet_dtype_t from, const void* source,
                    const rabbet_dims_t* dims, rabbet_dtype_t to,
                    rabbet_format_t format, void* target) {
  constant_layout_t layout = constant_layout(format, dims);
  constant_row_fn_t run = constant_row(from, to);
  int64_t count = 1;
  for (int32_t i = 0; i < dims->rank; ++i)
    count *= dims->d[i];
  constant_row_t row = {.from = from,
                        .to = to,
                        .source = source,
                        .count = layout.inner,
                        .target = target};
  row.step = layout.channels_last ? layout.padded : layout.block;
  // Channels that are neighbours in both layouts.
  if (layout.channels_last && layout.inner == 1) {
    row.count = layout.channels;
    row.step = 1;
  }
  for (row.first = 0; row.first < count; row.first += row.count) {
    row.at = constant_place(&layout, row.first);
    run(&row);
  }
}

void rabbet_clear_padding(rabbet_dtype_t dtype, rabbet_format_t format,
                          const rabbet_dims_t* dims, void* data) {
  constant_layout_t layout = constant_layout(format, dims);
  int64_t missing = layout.padded - layout.channels;
  int64_t size = rabbet_dtype_bits(dtype) / 8;
  if (missing == 0 || size == 0) return;
  // One run of padding for each position, after its last channel.
  int64_t step = layout.channels_last ? layout.padded : layout.block;
  for (int64_t n = 0; n < dims->d[0]; ++n) {
    char* first =
        (char*)data +
        constant_place(&layout, (n * layout.channels + layout.channels - 1) *
                                    layout.inner) *
            size +
        size;
    for (int64_t i = 0; i < layout.inner; ++i)
      memset(first + i * step * size, 0, (size_t)(missing * size));
  }
}
