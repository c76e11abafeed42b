// Weights of 3x3 convolutions as oneDNN's Winograd kernels read them. Its own
// reorder takes 1.3 us for the nine weights of a pair of channels, seconds for
// a network.
#include <assert.h>

#include "device/cpu/cpu.h"
#include "device/cpu/dnnl/internal.h"
#include "device/cpu/parallel.h"

enum { TAPS = 3, ALPHA = 6, LANES = 16 };

// The library has these kernels for AVX-512 only.
#if defined(__x86_64__)
#define WINOGRAD_CODE __attribute__((target("avx512f,fma")))
#else
#define WINOGRAD_CODE
#endif

// Tiles of 4x4 results are interpolated at 0, -8/5, 8/5, 2/3, -2/3 and
// infinity. A row has the powers 0 to 2 of its point times the row's factor,
// with which the kernels' other transforms count.
static const float winograd_rows[ALPHA][TAPS] = {
    {256.0f / 225, 0, 0},
    {-32.0f / 119 * 64 / 25, -32.0f / 119 * 8 / 5, -32.0f / 119},
    {-32.0f / 119 * 64 / 25, 32.0f / 119 * 8 / 5, -32.0f / 119},
    {32.0f / 119 * 4 / 9, 32.0f / 119 * 2 / 3, 32.0f / 119},
    {32.0f / 119 * 4 / 9, -32.0f / 119 * 2 / 3, 32.0f / 119},
    {0, 0, 1}};

typedef struct winograd_t {
  const dnnl_wino_desc_t* to;
  const float* from;        // [outputs][inputs][3][3]
  int64_t outputs, inputs;  // without the padding of `to`
  float* target;
} winograd_t;

// The nine weights of one input channel for a block of output channels; zeros
// for padding.
WINOGRAD_CODE static inline void winograd_gather(
    const winograd_t* w, int64_t first, int64_t input,
    float taps[TAPS * TAPS][LANES]) {
  for (int lane = 0; lane < LANES; ++lane) {
    int64_t output = first + lane;
    const float* from = w->from + (output * w->inputs + input) * (TAPS * TAPS);
    bool is_padding = output >= w->outputs || input >= w->inputs;
    for (int t = 0; t < TAPS * TAPS; ++t)
      taps[t][lane] = is_padding ? 0 : from[t];
  }
}

// Rows times taps: along the width, then along the height.
WINOGRAD_CODE static inline void winograd_transform(
    const float taps[TAPS * TAPS][LANES], float* target, size_t stride) {
  float wide[TAPS][ALPHA][LANES];
  for (int y = 0; y < TAPS; ++y)
    for (int j = 0; j < ALPHA; ++j) {
      const float *row = winograd_rows[j], (*t)[LANES] = taps + y * TAPS;
      for (int lane = 0; lane < LANES; ++lane)
        wide[y][j][lane] =
            row[0] * t[0][lane] + row[1] * t[1][lane] + row[2] * t[2][lane];
    }
  for (int i = 0; i < ALPHA; ++i)
    for (int j = 0; j < ALPHA; ++j) {
      const float* row = winograd_rows[i];
      float* out = target + (size_t)(i * ALPHA + j) * stride;
      for (int lane = 0; lane < LANES; ++lane)
        out[lane] = row[0] * wide[0][j][lane] + row[1] * wide[1][j][lane] +
                    row[2] * wide[2][j][lane];
    }
}

// Blocks of output channels. Order in memory: chunk of blocks, row and column
// of the tile, chunk of inputs, block within the chunk, input, lane.
WINOGRAD_CODE static void winograd_blocks(void* context, int64_t begin,
                                          int64_t end) {
  const winograd_t* w = context;
  const dnnl_wino_desc_t* to = w->to;
  const int64_t inputs = (int64_t)to->ic2_block * to->ic_block;  // of a chunk
  const size_t stride = (size_t)to->ic * (size_t)to->oc2_block * LANES;
  float taps[TAPS * TAPS][LANES];
  for (int64_t block = begin; block < end; ++block) {
    int64_t chunk = block / to->oc2_block, within = block % to->oc2_block;
    float* base = w->target + (size_t)chunk * ALPHA * ALPHA * stride;
    for (int64_t input = 0; input < to->ic; ++input) {
      int64_t place =
          (input / inputs * to->oc2_block + within) * inputs + input % inputs;
      winograd_gather(w, block * LANES, input, taps);
      winograd_transform(taps, base + place * LANES, stride);
    }
  }
}

bool rabbet_dnnl_pack_winograd(const rabbet_dnnl_layout_t* layout,
                               const rabbet_dnnl_primitive_t* primitive,
                               const void* source, void* target) {
  size_t size = 0;
  const dnnl_memory_desc_t* desc =
      rabbet_dnnl_primitive_layout(primitive, RABBET_DNNL_WEIGHTS, &size);
  if (!desc || desc->format_kind != dnnl_format_kind_wino) return false;
  const dnnl_wino_desc_t* to = &desc->format_desc.wino_desc;
  if (rabbet_cpu_isa() < RABBET_CPU_AVX512 ||
      to->wino_format != dnnl_wino_wei_OBaaIBOIio || to->r != TAPS ||
      to->alpha != ALPHA || to->oc_block != LANES ||
      desc->data_type != dnnl_f32 || layout->dtype != RABBET_DTYPE_FLOAT ||
      layout->order != RABBET_DNNL_FORMAT ||
      layout->format != RABBET_FORMAT_LINEAR || layout->rank != 4)
    return false;
  assert(to->oc % (LANES * to->oc2_block) == 0 &&
         to->ic % (to->ic2_block * to->ic_block) == 0);
  winograd_t w = {.to = to,
                  .from = source,
                  .outputs = layout->dims[0],
                  .inputs = layout->dims[1],
                  .target = target};
  rabbet_cpu_parallel(to->oc / LANES, 1, winograd_blocks, &w);
  return true;
}
