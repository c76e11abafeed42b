// A step of a recurrent network: a warp for each hidden element and some
// sequences, which multiplies all gates' rows of the weights by the states of
// the step before and then computes the cell. Bound by the latency of a launch
// for few sequences, by the weights in the L2 cache for many.
//
//   ELEMENT  type of all real tensors: half_t, bf16_t or float
//   CELL     rabbet_rnn_cell_t
//   LINEAR   whether a GRU's reset gate comes after the product
#include "device/cuda/pointwise/functions.cuh"
#include "device/cuda/recurrent/rnn_params.h"

typedef ELEMENT T;

// Gates of the first product. A GRU that resets the state needs a second one.
#if CELL == 2
enum { GATES = 4, FIRST = 4 };
#elif CELL == 1
enum { GATES = 3, FIRST = LINEAR ? 3 : 2 };
#else
enum { GATES = 1, FIRST = 1 };
#endif

DEVICE float apply(const rabbet_rnn_function_t& f, float x) {
  float a = f.alpha, b = f.beta;
  switch (f.type) {
    case RABBET_ACTIVATION_RELU:
      return activation_RELU(x, a, b);
    case RABBET_ACTIVATION_SIGMOID:
      return activation_SIGMOID(x, a, b);
    case RABBET_ACTIVATION_TANH:
      return activation_TANH(x, a, b);
    case RABBET_ACTIVATION_LEAKY_RELU:
      return activation_LEAKY_RELU(x, a, b);
    case RABBET_ACTIVATION_ELU:
      return activation_ELU(x, a, b);
    case RABBET_ACTIVATION_SELU:
      return activation_SELU(x, a, b);
    case RABBET_ACTIVATION_SOFTSIGN:
      return activation_SOFTSIGN(x, a, b);
    case RABBET_ACTIVATION_SOFTPLUS:
      return activation_SOFTPLUS(x, a, b);
    case RABBET_ACTIVATION_CLIP:
      return activation_CLIP(x, a, b);
    case RABBET_ACTIVATION_HARD_SIGMOID:
      return activation_HARD_SIGMOID(x, a, b);
    case RABBET_ACTIVATION_SCALED_TANH:
      return activation_SCALED_TANH(x, a, b);
    case RABBET_ACTIVATION_THRESHOLDED_RELU:
      return activation_THRESHOLDED_RELU(x, a, b);
    case RABBET_ACTIVATION_GELU_ERF:
      return activation_GELU_ERF(x, a, b);
    case RABBET_ACTIVATION_GELU_TANH:
      return activation_GELU_TANH(x, a, b);
    default:
      return a * x + b;
  }
}

DEVICE float clipped(const rabbet_rnn_t& p, float x) {
  return x < -p.clip ? -p.clip : x > p.clip ? p.clip : x;
}

DEVICE int64_t length_of(const rnn_memory_t& m, const rabbet_rnn_t& p,
                         int64_t sequence) {
  if (!m.lengths) return p.steps;
  return rabbet_rnn_length(&p, m.is_long
                                   ? ((const int64_t*)m.lengths)[sequence]
                                   : ((const int32_t*)m.lengths)[sequence]);
}

// ---- Products --------------------------------------------------------------

// Sums of gates FROM, FROM + 1, ... for ROWS sequences from `first` on; all
// lanes get them. `x` are vectors of [batch][hidden].
template <int FROM, int COUNT, int ROWS>
struct sums_t {
  float at[ROWS][COUNT];

  __device__ __forceinline__ sums_t(const rnn_memory_t& m,
                                    const rabbet_rnn_t& p, int32_t direction,
                                    int64_t unit, const float* x,
                                    int64_t first) {
    const T* weights =
        (const T*)m.weights +
        ((int64_t)direction * GATES + FROM) * p.hidden * p.hidden +
        unit * p.hidden;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int g = 0; g < COUNT; ++g) at[r][g] = 0.0f;
#pragma unroll 4
    for (int64_t k = threadIdx.x & 31; k < p.hidden; k += 32) {
      float w[COUNT];
#pragma unroll
      for (int g = 0; g < COUNT; ++g)
        w[g] = to_float(weights[g * p.hidden * p.hidden + k]);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        float h = first + r < p.batch ? x[(first + r) * p.hidden + k] : 0.0f;
#pragma unroll
        for (int g = 0; g < COUNT; ++g) at[r][g] += w[g] * h;
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int g = 0; g < COUNT; ++g)
#pragma unroll
        for (int flip = 16; flip > 0; flip /= 2)
          at[r][g] += __shfl_xor_sync(0xffffffffu, at[r][g], flip);
  }

  // Those of one sequence, with the bias.
  __device__ __forceinline__ void row(const rnn_memory_t& m,
                                      const rabbet_rnn_t& p, int32_t direction,
                                      int64_t unit, int row,
                                      float out[COUNT]) const {
    const T* bias = (const T*)m.bias;
#pragma unroll
    for (int g = 0; g < COUNT; ++g) {
      out[g] = 0.0f;
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (r == row) out[g] = at[r][g];
      if (bias)
        out[g] +=
            to_float(bias[(direction * GATES + FROM + g) * p.hidden + unit]);
    }
  }
};

// ---- Cells -----------------------------------------------------------------

// One hidden element of a sequence in a step.
struct element_t {
  const T* x;        // of its first gate
  int64_t state;     // its position among states
  int64_t position;  // of its output
  bool runs;         // the sequence has the step
};

DEVICE element_t element_of(const rnn_memory_t& m, const rabbet_rnn_t& p,
                            int32_t direction, int64_t unit, int64_t sequence,
                            int64_t i) {
  element_t e;
  int64_t length = length_of(m, p, sequence);
  e.runs = i < length;
  int64_t step = e.runs ? rabbet_rnn_step(&p, direction, i, length) : i;
  int64_t row = rabbet_rnn_row(&p, step, sequence) * p.directions + direction;
  e.x = (const T*)m.x + row * GATES * p.hidden + unit;
  e.position = row * p.hidden + unit;
  e.state = (direction * p.batch + sequence) * p.hidden + unit;
  return e;
}

DEVICE float input_of(const element_t& e, const rabbet_rnn_t& p, int gate) {
  return to_float(e.x[gate * p.hidden]);
}

// Sequences that have ended keep their state; their outputs are 0.
DEVICE void finish(const rnn_memory_t& m, const element_t& e, int64_t i,
                   float h) {
  m.h[(i + 1) & 1][e.state] = e.runs ? h : m.h[i & 1][e.state];
  if (m.y) ((T*)m.y)[e.position] = from_float<T>(e.runs ? h : 0.0f);
}

#if CELL == 2
DEVICE float cell_of(const rnn_memory_t& m, const rabbet_rnn_t& p,
                     int32_t direction, int64_t unit, const element_t& e,
                     float sums[FIRST]) {
  const rabbet_rnn_function_t* f = p.functions[direction];
  const T* peep = (const T*)m.peepholes;
  float c = m.c[e.state];
  if (peep) peep += direction * 3 * p.hidden + unit;
#pragma unroll
  for (int g = 0; g < 4; ++g) sums[g] += input_of(e, p, g);
  if (peep) {
    sums[0] += to_float(peep[0]) * c;
    sums[2] += to_float(peep[2 * p.hidden]) * c;
  }
  float in = apply(f[0], clipped(p, sums[0]));
  float forget = p.input_forget ? 1.0f - in : apply(f[0], clipped(p, sums[2]));
  c = forget * c + in * apply(f[1], clipped(p, sums[3]));
  if (peep) sums[1] += to_float(peep[p.hidden]) * c;
  if (e.runs) m.c[e.state] = c;
  return apply(f[0], clipped(p, sums[1])) * apply(f[2], c);
}
#elif CELL == 1
DEVICE float new_state(const rabbet_rnn_t& p, int32_t direction, float h,
                       float z, float sum) {
  float n = apply(p.functions[direction][1], clipped(p, sum));
  return (1.0f - z) * n + z * h;
}
#endif

// Results of the first product: a new state, or a GRU's gates.
DEVICE void first_cell(const rnn_memory_t& m, const rabbet_rnn_t& p,
                       int32_t direction, int64_t unit, const element_t& e,
                       int64_t i, float sums[FIRST]) {
  float h = 0.0f;
  if (e.runs) {
#if CELL == 2
    h = cell_of(m, p, direction, unit, e, sums);
#elif CELL == 1
    const rabbet_rnn_function_t& f = p.functions[direction][0];
    float z = apply(f, clipped(p, sums[0] + input_of(e, p, 0)));
    float r = apply(f, clipped(p, sums[1] + input_of(e, p, 1)));
    float before = m.h[i & 1][e.state];
#if LINEAR
    h = new_state(p, direction, before, z, input_of(e, p, 2) + r * sums[2]);
#else
    m.z[e.state] = z;
    m.reset[e.state] = r * before;
#endif
#else
    h = apply(p.functions[direction][0],
              clipped(p, sums[0] + input_of(e, p, 0)));
#endif
  }
  if (CELL != 1 || LINEAR) finish(m, e, i, h);
}

#if CELL == 1 && !LINEAR
DEVICE void second_cell(const rnn_memory_t& m, const rabbet_rnn_t& p,
                        int32_t direction, const element_t& e, int64_t i,
                        float sum) {
  float h = 0.0f;
  if (e.runs)
    h = new_state(p, direction, m.h[i & 1][e.state], m.z[e.state],
                  input_of(e, p, 2) + sum);
  finish(m, e, i, h);
}
#endif

// ---- Kernels ---------------------------------------------------------------

// x: hidden elements, y: sequences, z: directions.
template <int ROWS, bool SECOND>
DEVICE void step(const rnn_memory_t& m, const rabbet_rnn_t& p, int64_t i) {
  const int FROM = SECOND ? 2 : 0, COUNT = SECOND ? 1 : FIRST;
  int64_t unit = (int64_t)blockIdx.x * RNN_WARPS + (threadIdx.x >> 5);
  int32_t direction = (int32_t)blockIdx.z, lane = (int32_t)(threadIdx.x & 31);
  if (unit >= p.hidden) return;
  const float* x =
      (SECOND ? m.reset : m.h[i & 1]) + direction * p.batch * p.hidden;
  for (int64_t first = (int64_t)blockIdx.y * ROWS; first < p.batch;
       first += (int64_t)gridDim.y * ROWS) {
    sums_t<FROM, COUNT, ROWS> sums(m, p, direction, unit, x, first);
    if (lane >= ROWS || first + lane >= p.batch) continue;
    float own[COUNT];
    sums.row(m, p, direction, unit, lane, own);
    element_t e = element_of(m, p, direction, unit, first + lane, i);
#if CELL == 1 && !LINEAR
    if (SECOND)
      second_cell(m, p, direction, e, i, own[0]);
    else
      first_cell(m, p, direction, unit, e, i, own);
#else
    first_cell(m, p, direction, unit, e, i, own);
#endif
  }
}

#define STEP(name, rows, second)                                \
  extern "C" __global__ void __launch_bounds__(32 * RNN_WARPS)  \
      name(const __grid_constant__ rnn_memory_t m,              \
           const __grid_constant__ rabbet_rnn_t p, int64_t i) { \
    turn_t turn;                                                \
    step<rows, second>(m, p, i);                                \
  }
STEP(rnn_step_one, 1, false)
STEP(rnn_step_many, RNN_ROWS, false)
#if CELL == 1 && !LINEAR
STEP(rnn_new_one, 1, true)
STEP(rnn_new_many, RNN_ROWS, true)
#endif

// A thread for each hidden element of all sequences and directions; `at` is
// its position in the workspace, *out_given that in inputs and outputs.
DEVICE bool state_of(const rabbet_rnn_t& p, int64_t* at, int64_t* sequence,
                     int64_t* out_given) {
  *at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (*at >= p.directions * p.batch * p.hidden) return false;
  int64_t row = *at / p.hidden;
  *sequence = row % p.batch;
  *out_given =
      rabbet_rnn_state(&p, (int32_t)(row / p.batch), *sequence) * p.hidden +
      *at % p.hidden;
  return true;
}

extern "C" __global__ void __launch_bounds__(256)
    rnn_begin(const __grid_constant__ rnn_memory_t m,
              const __grid_constant__ rabbet_rnn_t p) {
  turn_t turn;
  int64_t at, sequence, given;
  if (!state_of(p, &at, &sequence, &given)) return;
  m.h[0][at] = m.hidden ? to_float(((const T*)m.hidden)[given]) : 0.0f;
  if (CELL == 2) m.c[at] = m.cell ? to_float(((const T*)m.cell)[given]) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256)
    rnn_end(const __grid_constant__ rnn_memory_t m,
            const __grid_constant__ rabbet_rnn_t p) {
  turn_t turn;
  int64_t at, sequence, given;
  if (!state_of(p, &at, &sequence, &given)) return;
  bool empty = length_of(m, p, sequence) == 0;
  if (m.last_hidden)
    ((T*)m.last_hidden)[given] =
        from_float<T>(empty ? 0.0f : m.h[p.steps & 1][at]);
  if (CELL == 2 && m.last_cell)
    ((T*)m.last_cell)[given] = from_float<T>(empty ? 0.0f : m.c[at]);
}
