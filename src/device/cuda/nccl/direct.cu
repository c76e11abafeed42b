// Exchanges of few bytes between GPUs that reach each other's memory: each rank
// writes its data to all others, and reads what these wrote.
//
// Data goes in lines of two words with a flag behind each, the exchange's
// number: a line that has both flags is there, so that nothing else needs to be
// told (the protocol "LL" of NCCL). Lines are in two sets, for even and odd
// exchanges. A rank that is in exchange e + 2 has ended e + 1, for which all
// others have ended e: the lines of e may be overwritten.
#include "device/cuda/programs/number.cuh"

#include "device/cuda/nccl/direct_params.h"

#ifdef RABBET_STAND_IN
extern "C" int sched_yield(void);
#endif

struct words_t {
  uint32_t a, b;
};

DEVICE void line_write(char* line, words_t data, uint32_t flag) {
#ifdef RABBET_STAND_IN
  // Other ranks are other processes.
  unsigned long long* halves = (unsigned long long*)line;
  unsigned long long high = (unsigned long long)flag << 32;
  __atomic_store_n(halves, high | data.a, __ATOMIC_RELEASE);
  __atomic_store_n(halves + 1, high | data.b, __ATOMIC_RELEASE);
#else
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                   __cvta_generic_to_global(line)),
               "r"(data.a), "r"(flag), "r"(data.b), "r"(flag)
               : "memory");
#endif
}

DEVICE bool line_read(const char* line, uint32_t flag, words_t* data) {
#ifdef RABBET_STAND_IN
  const unsigned long long* halves = (const unsigned long long*)line;
  unsigned long long first = __atomic_load_n(halves, __ATOMIC_ACQUIRE);
  unsigned long long second = __atomic_load_n(halves + 1, __ATOMIC_ACQUIRE);
  *data = {(uint32_t)first, (uint32_t)second};
  return first >> 32 == flag && second >> 32 == flag;
#else
  uint32_t first, second;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(data->a), "=r"(first), "=r"(data->b), "=r"(second)
               : "l"(__cvta_generic_to_global(line))
               : "memory");
  return first == flag && second == flag;
#endif
}

// Waits for a line. What it has does not matter once the exchange is given up.
DEVICE words_t line_await(const char* line, uint32_t flag,
                          const volatile int32_t* given_up) {
  words_t data = {0, 0};
  for (unsigned tries = 1; !line_read(line, flag, &data); ++tries) {
    // A look at the host's memory takes as long as many tries.
    if (tries % 4096 == 0 && *given_up) break;
#ifdef RABBET_STAND_IN
    sched_yield();
#endif
  }
  return data;
}

DEVICE words_t load(const char* x, int64_t left) {
  words_t data = {0, 0};
  if (left >= DIRECT_DATA) return *(const words_t*)x;
  for (int i = 0; i < (int)left; ++i) ((char*)&data)[i] = x[i];
  return data;
}

// Gathered blocks lie one behind the other, and need not be aligned.
DEVICE void store(char* y, words_t data, int64_t left) {
  if (left >= DIRECT_DATA && (uint64_t)y % DIRECT_DATA == 0) {
    *(words_t*)y = data;
    return;
  }
  for (int i = 0; i < DIRECT_DATA && i < left; ++i)
    y[i] = ((const char*)&data)[i];
}

#if !GATHER
enum { PER_LINE = DIRECT_DATA / sizeof(ELEMENT) };

// Of the numbers of rabbet_reduce_t: SUM, PROD, MAX, MIN, AVG.
DEVICE float combine(float sum, float x, int32_t reduce) {
  if (reduce == 1) return sum * x;
  if (reduce == 2) return sum > x || sum != sum ? sum : x;
  if (reduce == 3) return sum < x || sum != sum ? sum : x;
  return sum + x;
}

DEVICE void add(float sums[], words_t data, bool first, int32_t reduce) {
  const ELEMENT* x = (const ELEMENT*)&data;
  for (int i = 0; i < PER_LINE; ++i)
    sums[i] = first ? to_float(x[i]) : combine(sums[i], to_float(x[i]), reduce);
}

DEVICE words_t narrowed(const float sums[], float factor) {
  words_t data;
  ELEMENT* y = (ELEMENT*)&data;
  for (int i = 0; i < PER_LINE; ++i)
    y[i] = from_float<ELEMENT>(sums[i] * factor);
  return data;
}
#endif

// In an area, line i of what rank `from` gives to an exchange.
DEVICE char* line_of(char* area, const direct_t& d, uint64_t number, int from,
                     int64_t i) {
  int64_t set = (int64_t)(number & 1) * DIRECT_RANKS + from;
  return area + DIRECT_STATE + (set * DIRECT_LINES + i) * DIRECT_LINE;
}

// Sums are taken in the ranks' order, so that all have the same.
DEVICE void receive(const direct_t& d, uint64_t number, uint32_t flag,
                    int64_t i, words_t own, char* y) {
  int64_t left = d.bytes - i * DIRECT_DATA;
#if !GATHER
  float sums[PER_LINE];
#endif
  for (int r = 0; r < d.ranks; ++r) {
    words_t data = own;
    if (r != d.rank)
      data = line_await(line_of(d.areas[d.rank], d, number, r, i), flag,
                        d.given_up);
#if GATHER
    store(y + r * d.bytes + i * DIRECT_DATA, data, left);
#else
    add(sums, data, r == 0, d.reduce);
#endif
  }
#if !GATHER
  float factor = d.reduce == 4 ? 1.0f / (float)d.ranks : 1.0f;
  store(y + i * DIRECT_DATA, narrowed(sums, factor), left);
#endif
}

// Flags come again after 2^32 exchanges. So lines that exchanges have not used
// for long lose theirs now and then.
DEVICE void clean(const direct_t& d, uint64_t number, int64_t lines) {
  int64_t first = lines + (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if ((number >> 1) % (1 << 19) != 0) return;
  for (int r = 0; r < d.ranks; ++r)
    for (int64_t i = first; i < DIRECT_LINES;
         i += (int64_t)gridDim.x * blockDim.x)
      line_write(line_of(d.areas[d.rank], d, number, r, i), {0, 0}, 0);
}

// All blocks have read state->done when they arrive.
DEVICE void finish(direct_state_t* state, uint64_t number) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (atomicAdd(&state->arrived, 1u) + 1 != gridDim.x) return;
  state->arrived = 0;
  state->done = number;
}

extern "C" __global__ void __launch_bounds__(DIRECT_THREADS)
    direct(const char* x, char* y, direct_t d) {
  turn_t turn;
  int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  int64_t threads = (int64_t)gridDim.x * blockDim.x;
  int64_t lines = (d.bytes + DIRECT_DATA - 1) / DIRECT_DATA;
  direct_state_t* state = (direct_state_t*)d.areas[d.rank];
  uint64_t number = *(const volatile uint64_t*)&state->done + 1;
  uint32_t flag = (uint32_t)(number % 0xffffffffu) + 1;
  for (int64_t i = thread; i < lines; i += threads) {
    words_t own = load(x + i * DIRECT_DATA, d.bytes - i * DIRECT_DATA);
    for (int step = 1; step < d.ranks; ++step) {
      int to = (d.rank + step) % d.ranks;
      line_write(line_of(d.areas[to], d, number, d.rank, i), own, flag);
    }
  }
  for (int64_t i = thread; i < lines; i += threads) {
    words_t own = load(x + i * DIRECT_DATA, d.bytes - i * DIRECT_DATA);
    receive(d, number, flag, i, own, y);
  }
  clean(d, number, lines);
  finish(state, number);
}
