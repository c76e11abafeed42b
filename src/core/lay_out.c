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
  if (info->block > 1 || info->channels_last) {
    layout.channels = dims->d[1];
    layout.block = info->block;
    for (int32_t i = 2; i < dims->rank; ++i)
      layout.inner *= dims->d[i];
  }
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

void rabbet_lay_out(rabbet_dtype_t from, const void* source,
                    const rabbet_dims_t* dims, rabbet_dtype_t to,
                    rabbet_format_t format, void* target) {
  constant_layout_t layout = constant_layout(format, dims);
  bool is_float = rabbet_dtype_is_float(from);
  int64_t count = 1;
  for (int32_t i = 0; i < dims->rank; ++i)
    count *= dims->d[i];
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = constant_place(&layout, i);
    if (is_float)
      rabbet_store_double(
          to, target, at,
          constant_within(to, rabbet_load_double(from, source, i)));
    else
      rabbet_store_int64(to, target, at, rabbet_load_int64(from, source, i));
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
