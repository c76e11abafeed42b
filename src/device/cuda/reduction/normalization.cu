// (x - mean) / sqrt(variance + epsilon) * scale + bias.
//
//   ELEMENT            type of input and output   VECTOR  elements to 16 bytes
//   SCALE_TYPE, BIAS_TYPE
//   PRESENT            bits SCALE and BIAS: the operand exists
//   CENTRED            0: RMS normalization, whose mean is taken as 0
//   ACTIVATION         defined: the function that is applied to the result:
//                      RELU, or SWISH for x sigmoid(x)
//
// Rows: a mean is over the contiguous axis. Short rows are held in registers;
// their variance comes from a second pass over the registers. For long rows, a
// first pass computes each thread's mean and squares, which are combined by the
// method of Chan, Golub and LeVeque, and a second pass reads the row again.
// Columns: the contiguous axis is kept, and neighbouring threads have
// neighbouring means. If there are few means, several blocks sum parts of each
// (the _part functions), and the _apply functions combine the parts.
#include "device/cuda/programs/choice.cuh"
#include "device/cuda/programs/threads.cuh"

#include "device/cuda/reduction/normalization_params.h"

#ifdef ACTIVATION
#include "device/cuda/pointwise/functions.cuh"
template <class T>
DEVICE T activation_SWISH(T x, float, float) {
  return x * activation_SIGMOID(x, 0, 0);
}
#define ACTIVATION_OF_(function, x, a, b) activation_##function(x, a, b)
#define ACTIVATION_OF(function, x, a, b) ACTIVATION_OF_(function, x, a, b)
DEVICE float activated(const normalize_t& n, float x) {
  return ACTIVATION_OF(ACTIVATION, x, n.alpha, n.beta);
}
#else
DEVICE float activated(const normalize_t&, float x) { return x; }
#endif

enum { COLUMNS = VECTOR < 4 ? VECTOR : 4 };

// ---- Moments ---------------------------------------------------------------

// Sums of distances from one of the numbers, so that the variance loses no
// digits if the mean is far from 0.
struct sums_t {
  float sum, squares;
};
struct sums_join {
  static __device__ __forceinline__ sums_t join(sums_t a, sums_t b) {
    sums_t s = {a.sum + b.sum, a.squares + b.squares};
    return s;
  }
};
DEVICE void add(sums_t& s, float distance) {
  s.sum += distance;
  s.squares += distance * distance;
}

// squares: sum of the squared distances from the mean. Each part has a mean of
// its own, so an outlier costs digits only in the variance of its part.
struct moments_t {
  float count, mean, squares;
};
struct moments_join {
  static __device__ __forceinline__ moments_t join(moments_t a, moments_t b) {
    float count = a.count + b.count, between = b.mean - a.mean;
    float share = count > 0 ? b.count / count : 0;
    moments_t m = {count, a.mean + between * share,
                   a.squares + b.squares + between * between * a.count * share};
    return m;
  }
};
DEVICE moments_t moments_of(const sums_t& s, float first, uint32_t count) {
  float mean = count > 0 ? s.sum / (float)count : 0;
  float squares = s.squares - s.sum * mean;
  moments_t m = {(float)count, first + mean, squares > 0 ? squares : 0};
  return m;
}

// y = (x - mean) * factor
struct line_t {
  float mean, factor;
};
DEVICE line_t line_of(const moments_t& m, const normalize_t& n) {
  float mean = CENTRED ? m.mean : 0, from_zero = CENTRED ? 0 : m.mean * m.mean;
  float variance = m.squares * n.share + from_zero;
  line_t line = {mean, 1.0f / sqrtf(variance + n.epsilon)};
  return line;
}

// ---- Scale and bias --------------------------------------------------------

struct places_t {
  int64_t at[3];
};

template <class E, int V>
DEVICE void operand(const E* from, const normalize_t& n, int which, int64_t at,
                    float absent, float* out) {
  if (!(PRESENT >> which & 1)) {
#pragma unroll
    for (int e = 0; e < V; ++e) out[e] = absent;
  } else if (V > 1 && (n.moves >> which & 1u)) {
    pack_t<E, V> pack = load_pack<E, V>(from + at);
#pragma unroll
    for (int e = 0; e < V; ++e) out[e] = to_float(pack.v[e]);
  } else {
    float one = to_float(from[at]);
#pragma unroll
    for (int e = 0; e < V; ++e) out[e] = one;
  }
}

template <int V>
DEVICE void finish(const normalize_t& n, const float* x, const line_t* line,
                   int line_step, const SCALE_TYPE* scale,
                   const BIAS_TYPE* bias, const places_t& place,
                   ELEMENT* target) {
  float factors[V], offsets[V];
  operand<SCALE_TYPE, V>(scale, n, SCALE, place.at[SCALE], 1, factors);
  operand<BIAS_TYPE, V>(bias, n, BIAS, place.at[BIAS], 0, offsets);
  pack_t<ELEMENT, V> pack;
#pragma unroll
  for (int e = 0; e < V; ++e) {
    line_t l = line[e * line_step];
    float y = (x[e] - l.mean) * l.factor * factors[e] + offsets[e];
    pack.v[e] = from_float<ELEMENT>(activated(n, y));
  }
  store_pack<ELEMENT, V>(target + place.at[INPUT], pack);
}

template <int V>
DEVICE void read(const ELEMENT* from, float* out) {
  pack_t<ELEMENT, V> pack = load_pack<ELEMENT, V>(from);
#pragma unroll
  for (int e = 0; e < V; ++e) out[e] = to_float(pack.v[e]);
}

DEVICE places_t outside(const normalize_t& n, uint32_t output) {
  places_t place = {{0, 0, 0}};
  locate<3>(n.outer, output, place.at);
  return place;
}
DEVICE places_t inside(const normalize_t& n, places_t place, uint32_t at) {
  locate<3>(n.inner, at, place.at);
  return place;
}

DEVICE uint32_t part_end(const normalize_t& n, uint32_t begin) {
  return begin + n.part < n.count ? begin + n.part : n.count;
}

// ---- Rows in registers -----------------------------------------------------

template <int V, int N>
DEVICE void hold_rows(const ELEMENT* source, const SCALE_TYPE* scale,
                      const BIAS_TYPE* bias, ELEMENT* target,
                      const normalize_t& n) {
  uint32_t across = 1u << n.across_log, lane = threadIdx.x & (across - 1);
  uint32_t row =
      blockIdx.x * (BLOCK >> n.across_log) + (threadIdx.x >> n.across_log);
  bool is_row = row < n.outputs;
  places_t start = outside(n, is_row ? row : 0);
  pack_t<ELEMENT, V> packs[N];  // all loads are issued before the first use
  float x[N][V], sum = 0, squares = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    uint32_t at = lane + k * across;
    if (!is_row || at >= n.count) continue;
    int64_t place = start.at[INPUT];
    locate<1>(n.moments, at, &place);
    packs[k] = load_pack<ELEMENT, V>(source + place);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (!is_row || lane + k * across >= n.count) continue;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      x[k][e] = to_float(packs[k].v[e]);
      sum += x[k][e];
    }
  }
  line_t line;
  line.mean = CENTRED ? join_threads<sum_of>(sum, n.across_log) * n.share : 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (!is_row || lane + k * across >= n.count) continue;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      float distance = x[k][e] - line.mean;
      squares += distance * distance;
    }
  }
  squares = join_threads<sum_of>(squares, n.across_log);
  line.factor = 1.0f / sqrtf(squares * n.share + n.epsilon);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    uint32_t at = lane + k * across;
    if (!is_row || at >= n.count) continue;
    finish<V>(n, x[k], &line, 0, scale, bias, inside(n, start, at), target);
  }
}

// For contiguous rows with scale and bias along them: addresses need no axes,
// and all loads are issued together.
template <class E, int V>
DEVICE pack_t<E, V> load_if(const E* from, bool is_there) {
  pack_t<E, V> pack;
  if (is_there) pack = load_pack<E, V>(from);
  return pack;
}

// x: distances from the row's first element, or from 0 if the mean is taken as
// 0. If a thread has several vectors, the variance is computed in a second
// pass. With one vector (rows of some hundred elements) one pass is enough, as
// the reductions take most of the time.
template <int V, int N>
DEVICE line_t line_of_row(const normalize_t& n, uint32_t lane, bool is_row,
                          const float (*x)[V]) {
  float mean = 0;
  if (CENTRED && N > 1) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < N; ++k)
#pragma unroll
      for (int e = 0; e < V; ++e)
        if (is_row && lane + (k << n.across_log) < n.count) sum += x[k][e];
    mean = join_threads<sum_of>(sum, n.across_log) * n.share;
  }
  sums_t m = {0, 0};
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int e = 0; e < V; ++e)
      if (is_row && lane + (k << n.across_log) < n.count)
        add(m, x[k][e] - mean);
  m = join_threads<sums_join>(m, n.across_log);
  float rest = CENTRED ? m.sum * n.share : 0;
  float variance = m.squares * n.share - rest * rest;
  if (variance < 0) variance = 0;  // a rounding error
  line_t line = {mean + rest, 1.0f / sqrtf(variance + n.epsilon)};
  return line;
}

template <int V, int N>
DEVICE void flat_rows(const ELEMENT* source, const SCALE_TYPE* scale,
                      const BIAS_TYPE* bias, ELEMENT* target,
                      const normalize_t& n) {
  uint32_t across = 1u << n.across_log, lane = threadIdx.x & (across - 1);
  uint32_t row =
      blockIdx.x * (BLOCK >> n.across_log) + (threadIdx.x >> n.across_log);
  bool is_row = row < n.outputs;
  const bool has_scale = PRESENT >> SCALE & 1, has_bias = PRESENT >> BIAS & 1;
  int64_t start = (int64_t)row * n.count * V;
  pack_t<ELEMENT, V> packs[N];
  pack_t<SCALE_TYPE, V> scales[N];
  pack_t<BIAS_TYPE, V> biases[N];
  float x[N][V], first = CENTRED && is_row ? to_float(source[start]) : 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    uint32_t at = lane + k * across;
    bool is_there = is_row && at < n.count;
    packs[k] = load_if<ELEMENT, V>(source + start + at * V, is_there);
    scales[k] = load_if<SCALE_TYPE, V>(scale + at * V, is_there && has_scale);
    biases[k] = load_if<BIAS_TYPE, V>(bias + at * V, is_there && has_bias);
  }
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int e = 0; e < V; ++e) x[k][e] = to_float(packs[k].v[e]) - first;
  // Its barriers also make all threads read the first element before the
  // stores.
  line_t line = line_of_row<V, N>(n, lane, is_row, x);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    uint32_t at = lane + k * across;
    if (!is_row || at >= n.count) continue;
    pack_t<ELEMENT, V> pack;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      float y = (x[k][e] - line.mean) * line.factor;
      if (has_scale) y *= to_float(scales[k].v[e]);
      if (has_bias) y += to_float(biases[k].v[e]);
      pack.v[e] = from_float<ELEMENT>(activated(n, y));
    }
    store_pack<ELEMENT, V>(target + start + at * V, pack);
  }
}

#define PARAMETERS                                                       \
  const ELEMENT *source, const SCALE_TYPE *scale, const BIAS_TYPE *bias, \
      ELEMENT *target, moments_t *parts, const normalize_t n
#define NORMALIZE(name, call)                                                \
  KERNEL(                                                                    \
      name,                                                                  \
      extern "C" __global__ void __launch_bounds__(BLOCK) name(PARAMETERS) { \
        turn_t turn;                                                         \
        call;                                                                \
      })
#define HOLD_ROWS(name, V, N) \
  NORMALIZE(name, (hold_rows<V, N>(source, scale, bias, target, n)))
HOLD_ROWS(rows, VECTOR, 1)
HOLD_ROWS(rows_held, VECTOR, 4)
HOLD_ROWS(rows_single, 1, 8)
#define FLAT_ROWS(N)                                                \
  NORMALIZE(rows_flat_##N,                                          \
            (flat_rows<VECTOR, N>(source, scale, bias, target, n))) \
  NORMALIZE(rows_flat_##N##_single,                                 \
            (flat_rows<1, N>(source, scale, bias, target, n)))
FLAT_ROWS(1)
FLAT_ROWS(2)
FLAT_ROWS(3)
FLAT_ROWS(4)
FLAT_ROWS(5)
FLAT_ROWS(6)

// ---- Long rows: one block per row, or per part of a row --------------------

// The number of positions first, first + step, ... below `end`.
DEVICE uint32_t steps_of(uint32_t first, uint32_t end, uint32_t step) {
  return first < end ? (end - first - 1) / step + 1 : 0;
}

template <int V>
DEVICE moments_t sum_row(const ELEMENT* source, const normalize_t& n,
                         int64_t start, uint32_t begin, uint32_t end) {
  uint32_t own = begin + threadIdx.x;
  int64_t place = start;
  float first = 0;
  if (own < end) {
    locate<1>(n.moments, own, &place);
    first = to_float(source[place]);
  }
  sums_t all = {0, 0};
#pragma unroll 4
  for (uint32_t at = own; at < end; at += BLOCK) {
    float x[V];
    place = start;
    locate<1>(n.moments, at, &place);
    read<V>(source + place, x);
    sums_t few = {0, 0};
#pragma unroll
    for (int e = 0; e < V; ++e) add(few, x[e] - first);
    all = sums_join::join(all, few);
  }
  return join_threads<moments_join>(
      moments_of(all, first, steps_of(own, end, BLOCK) * V), BLOCK_LOG);
}

template <int V>
DEVICE void write_row(const ELEMENT* source, const SCALE_TYPE* scale,
                      const BIAS_TYPE* bias, ELEMENT* target,
                      const normalize_t& n, const places_t& start,
                      uint32_t begin, uint32_t end, const line_t& line) {
#pragma unroll 2
  for (uint32_t at = begin + threadIdx.x; at < end; at += BLOCK) {
    places_t place = inside(n, start, at);
    float x[V];
    read<V>(source + place.at[INPUT], x);
    finish<V>(n, x, &line, 0, scale, bias, place, target);
  }
}

template <int V>
DEVICE void long_rows(const ELEMENT* source, const SCALE_TYPE* scale,
                      const BIAS_TYPE* bias, ELEMENT* target,
                      const normalize_t& n) {
  places_t start = outside(n, blockIdx.x);
  moments_t m = sum_row<V>(source, n, start.at[INPUT], 0, n.count);
  write_row<V>(source, scale, bias, target, n, start, 0, n.count,
               line_of(m, n));
}

template <int V>
DEVICE void rows_moments(const ELEMENT* source, moments_t* parts,
                         const normalize_t& n) {
  places_t start = outside(n, blockIdx.x);
  uint32_t begin = blockIdx.y * n.part;
  moments_t m =
      sum_row<V>(source, n, start.at[INPUT], begin, part_end(n, begin));
  if (threadIdx.x == 0) parts[(int64_t)blockIdx.y * n.outputs + blockIdx.x] = m;
}

template <int V>
DEVICE void rows_finish(const ELEMENT* source, const SCALE_TYPE* scale,
                        const BIAS_TYPE* bias, ELEMENT* target,
                        const moments_t* parts, const normalize_t& n) {
  uint32_t begin = blockIdx.y * n.part;
  moments_t m = {0, 0, 0};
  for (uint32_t i = threadIdx.x; i < n.parts; i += BLOCK)
    m = moments_join::join(m, parts[(int64_t)i * n.outputs + blockIdx.x]);
  m = join_threads<moments_join>(m, BLOCK_LOG);
  write_row<V>(source, scale, bias, target, n, outside(n, blockIdx.x), begin,
               part_end(n, begin), line_of(m, n));
}

#define LONG_ROWS(suffix, V)                                                   \
  NORMALIZE(rows_long##suffix, (long_rows<V>(source, scale, bias, target, n))) \
  NORMALIZE(rows_part##suffix, (rows_moments<V>(source, parts, n)))            \
  NORMALIZE(rows_apply##suffix,                                                \
            (rows_finish<V>(source, scale, bias, target, parts, n)))
LONG_ROWS(, VECTOR)
LONG_ROWS(_single, 1)

// ---- Columns ---------------------------------------------------------------

struct column_t {
  uint32_t outer, column, first, step;
  bool is_there;
  places_t start;
};

template <int V>
DEVICE column_t column_of(const normalize_t& n) {
  uint32_t across = 1u << n.across_log;
  column_t c;
  c.outer = blockIdx.x / n.tiles;
  c.column =
      (blockIdx.x % n.tiles << n.across_log) + (threadIdx.x & (across - 1));
  c.first = threadIdx.x >> n.across_log;
  c.step = BLOCK >> n.across_log;
  c.is_there = c.column < n.column_vectors;
  if (!c.is_there) c.column = 0;
  c.start = outside(n, c.outer);
#pragma unroll
  for (int k = 0; k < 3; ++k)
    c.start.at[k] += (int64_t)c.column * V * n.along[k];
  return c;
}

template <int V>
DEVICE void sum_columns(const ELEMENT* source, const normalize_t& n,
                        const column_t& c, uint32_t begin, uint32_t end,
                        moments_t* m) {
  uint32_t own = begin + c.first;
  int64_t place = c.start.at[INPUT];
  float first[V];
  sums_t sums[V];
#pragma unroll
  for (int e = 0; e < V; ++e) sums[e].sum = sums[e].squares = first[e] = 0;
  if (c.is_there && own < end) {
    locate<1>(n.inner, own, &place);
    read<V>(source + place, first);
  }
#pragma unroll 4
  for (uint32_t at = own; c.is_there && at < end; at += c.step) {
    float x[V];
    place = c.start.at[INPUT];
    locate<1>(n.inner, at, &place);
    read<V>(source + place, x);
#pragma unroll
    for (int e = 0; e < V; ++e) add(sums[e], x[e] - first[e]);
  }
  uint32_t count = c.is_there ? steps_of(own, end, c.step) : 0;
#pragma unroll
  for (int e = 0; e < V; ++e)
    m[e] = join_columns<moments_join>(moments_of(sums[e], first[e], count),
                                      n.across_log);
}

template <int V>
DEVICE void write_columns(const ELEMENT* source, const SCALE_TYPE* scale,
                          const BIAS_TYPE* bias, ELEMENT* target,
                          const normalize_t& n, const column_t& c,
                          uint32_t begin, uint32_t end, const line_t* lines) {
  for (uint32_t at = begin + c.first; c.is_there && at < end; at += c.step) {
    places_t place = inside(n, c.start, at);
    float x[V];
    read<V>(source + place.at[INPUT], x);
    finish<V>(n, x, lines, 1, scale, bias, place, target);
  }
}

template <int V>
DEVICE void whole_columns(const ELEMENT* source, const SCALE_TYPE* scale,
                          const BIAS_TYPE* bias, ELEMENT* target,
                          const normalize_t& n) {
  column_t c = column_of<V>(n);
  moments_t m[V];
  line_t lines[V];
  sum_columns<V>(source, n, c, 0, n.count, m);
#pragma unroll
  for (int e = 0; e < V; ++e) lines[e] = line_of(m[e], n);
  write_columns<V>(source, scale, bias, target, n, c, 0, n.count, lines);
}

template <int V>
DEVICE void columns_moments(const ELEMENT* source, moments_t* parts,
                            const normalize_t& n) {
  column_t c = column_of<V>(n);
  uint32_t begin = blockIdx.y * n.part;
  moments_t m[V];
  sum_columns<V>(source, n, c, begin, part_end(n, begin), m);
  if (!c.is_there || c.first != 0) return;
  parts += (int64_t)blockIdx.y * n.outputs + c.outer * n.columns + c.column * V;
#pragma unroll
  for (int e = 0; e < V; ++e) parts[e] = m[e];
}

template <int V>
DEVICE void columns_finish(const ELEMENT* source, const SCALE_TYPE* scale,
                           const BIAS_TYPE* bias, ELEMENT* target,
                           const moments_t* parts, const normalize_t& n) {
  column_t c = column_of<V>(n);
  uint32_t begin = blockIdx.y * n.part;
  line_t lines[V];
  parts += c.outer * n.columns + c.column * V;
#pragma unroll
  for (int e = 0; e < V; ++e) {
    moments_t m = {0, 0, 0};
    for (uint32_t i = c.first; i < n.parts; i += c.step)
      m = moments_join::join(m, parts[(int64_t)i * n.outputs + e]);
    lines[e] = line_of(join_columns<moments_join>(m, n.across_log), n);
  }
  write_columns<V>(source, scale, bias, target, n, c, begin, part_end(n, begin),
                   lines);
}

// ---- Groups of columns: channels of a group, channels last ------------------

// The _part function computes the moments of each column; then a block joins
// those of a group, and the _apply function reads the lines.
DEVICE line_t* lines_of_groups(moments_t* parts, const normalize_t& n) {
  return (line_t*)(parts + (int64_t)n.parts * n.outputs);
}
DEVICE void join_groups(moments_t* parts, const normalize_t& n) {
  const moments_t* from = parts + (int64_t)blockIdx.x * n.each;
  moments_t m = {0, 0, 0};
  for (uint32_t i = threadIdx.x; i < n.parts * n.each; i += BLOCK)
    m = moments_join::join(
        m, from[(int64_t)(i / n.each) * n.outputs + i % n.each]);
  m = join_threads<moments_join>(m, BLOCK_LOG);
  if (threadIdx.x == 0) lines_of_groups(parts, n)[blockIdx.x] = line_of(m, n);
}
template <int V>
DEVICE void groups_finish(const ELEMENT* source, const SCALE_TYPE* scale,
                          const BIAS_TYPE* bias, ELEMENT* target,
                          moments_t* parts, const normalize_t& n) {
  column_t c = column_of<V>(n);
  uint32_t begin = blockIdx.y * n.part;
  const line_t* from =
      lines_of_groups(parts, n) + c.outer * (n.columns / n.each);
  line_t lines[V];
#pragma unroll
  for (int e = 0; e < V; ++e) lines[e] = from[(c.column * V + e) / n.each];
  write_columns<V>(source, scale, bias, target, n, c, begin, part_end(n, begin),
                   lines);
}
NORMALIZE(groups_join, (join_groups(parts, n)))
NORMALIZE(groups_apply,
          (groups_finish<COLUMNS>(source, scale, bias, target, parts, n)))

// Joins the values of a column's threads as join_columns does, for at most 32
// columns, by two barriers.
template <class F, class A>
DEVICE A join_down(A x, uint32_t across_log) {
  __shared__ A cells[BLOCK];
  uint32_t across = 1u << across_log, lane = threadIdx.x & (across - 1);
  for (uint32_t flip = across; flip < 32; flip *= 2)
    x = F::join(x, shuffle_xor(x, (int)flip));
  __syncthreads();  // until all threads have read the previous values
  if (threadIdx.x % 32 < across)
    cells[(threadIdx.x / 32 << across_log) + lane] = x;
  __syncthreads();
  x = cells[lane];
  for (uint32_t i = 1; i < WARPS; ++i)
    x = F::join(x, cells[(i << across_log) + lane]);
  return x;
}

template <class A, int V>
struct several_t {
  A v[V];
};
template <class F, class A, int V>
struct several_join {
  static __device__ __forceinline__ several_t<A, V> join(
      const several_t<A, V>& a, const several_t<A, V>& b) {
    several_t<A, V> s;
#pragma unroll
    for (int e = 0; e < V; ++e) s.v[e] = F::join(a.v[e], b.v[e]);
    return s;
  }
};

// The variance is computed in a second pass over the registers.
template <int V, int N>
DEVICE void lines_of_columns(const normalize_t& n, const column_t& c,
                             const pack_t<ELEMENT, V>* packs, line_t* lines) {
  several_t<float, V> means;
#pragma unroll
  for (int e = 0; e < V; ++e) means.v[e] = 0;
  if (CENTRED) {
#pragma unroll
    for (int k = 0; k < N; ++k)
#pragma unroll
      for (int e = 0; e < V; ++e)
        if (c.is_there && c.first + k * c.step < n.count)
          means.v[e] += to_float(packs[k].v[e]);
    means = join_down<several_join<sum_of, float, V> >(means, n.across_log);
  }
  several_t<sums_t, V> sums;
#pragma unroll
  for (int e = 0; e < V; ++e) {
    means.v[e] *= n.share;
    sums.v[e].sum = sums.v[e].squares = 0;
  }
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int e = 0; e < V; ++e)
      if (c.is_there && c.first + k * c.step < n.count)
        add(sums.v[e], to_float(packs[k].v[e]) - means.v[e]);
  sums = join_down<several_join<sums_join, sums_t, V> >(sums, n.across_log);
#pragma unroll
  for (int e = 0; e < V; ++e) {
    float rest = CENTRED ? sums.v[e].sum * n.share : 0;
    float variance = sums.v[e].squares * n.share - rest * rest;
    if (variance < 0) variance = 0;  // a rounding error
    lines[e].mean = means.v[e] + rest;
    lines[e].factor = 1.0f / sqrtf(variance + n.epsilon);
  }
}

// Columns in registers, where a mean is over one axis and scale and bias are
// the same in all columns of a thread: channels of an image.
template <int V, int N>
DEVICE void hold_columns(const ELEMENT* source, const SCALE_TYPE* scale,
                         const BIAS_TYPE* bias, ELEMENT* target,
                         const normalize_t& n) {
  const bool has_scale = PRESENT >> SCALE & 1, has_bias = PRESENT >> BIAS & 1;
  column_t c = column_of<V>(n);
  pack_t<ELEMENT, V> packs[N];  // all loads are issued before the first use
  pack_t<SCALE_TYPE, 1> scales[N];
  pack_t<BIAS_TYPE, 1> biases[N];
  source += c.start.at[INPUT];
  target += c.start.at[INPUT];
#pragma unroll
  for (int k = 0; k < N; ++k) {
    int64_t at = c.first + k * c.step;
    bool is_there = c.is_there && at < n.count;
    packs[k] =
        load_if<ELEMENT, V>(source + at * n.inner.stride[INPUT][0], is_there);
    scales[k] = load_if<SCALE_TYPE, 1>(
        scale + c.start.at[SCALE] + at * n.inner.stride[SCALE][0],
        is_there && has_scale);
    biases[k] = load_if<BIAS_TYPE, 1>(
        bias + c.start.at[BIAS] + at * n.inner.stride[BIAS][0],
        is_there && has_bias);
  }
  line_t lines[V];
  lines_of_columns<V, N>(n, c, packs, lines);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    int64_t at = c.first + k * c.step;
    if (!c.is_there || at >= n.count) continue;
    float factor = has_scale ? to_float(scales[k].v[0]) : 1;
    float offset = has_bias ? to_float(biases[k].v[0]) : 0;
    pack_t<ELEMENT, V> pack;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      float y = to_float(packs[k].v[e]) - lines[e].mean;
      y = y * lines[e].factor * factor + offset;
      pack.v[e] = from_float<ELEMENT>(activated(n, y));
    }
    store_pack<ELEMENT, V>(target + at * n.inner.stride[INPUT][0], pack);
  }
}

#define HOLD_COLUMNS(N)                                                 \
  NORMALIZE(columns_held_##N,                                           \
            (hold_columns<COLUMNS, N>(source, scale, bias, target, n))) \
  NORMALIZE(columns_held_##N##_single,                                  \
            (hold_columns<1, N>(source, scale, bias, target, n)))
HOLD_COLUMNS(4)
HOLD_COLUMNS(6)
HOLD_COLUMNS(8)
HOLD_COLUMNS(12)
HOLD_COLUMNS(24)

#define WHOLE_COLUMNS(suffix, V)                                          \
  NORMALIZE(columns##suffix,                                              \
            (whole_columns<V>(source, scale, bias, target, n)))           \
  NORMALIZE(columns_part##suffix, (columns_moments<V>(source, parts, n))) \
  NORMALIZE(columns_apply##suffix,                                        \
            (columns_finish<V>(source, scale, bias, target, parts, n)))
WHOLE_COLUMNS(, COLUMNS)
WHOLE_COLUMNS(_single, 1)
