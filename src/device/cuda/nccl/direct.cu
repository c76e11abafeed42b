// Exchanges of few bytes between GPUs that reach each other's memory: each rank
// writes its data to all others, and reads what these wrote.
//
// Data goes in lines of two words with a flag behind each, the exchange's
// number: a line that has both flags is there, so that nothing else needs to be
// told (the protocol "LL" of NCCL). A half with its flag is one access of 8
// bytes, which is never seen in parts. Lines are in two sets, for even and odd
// exchanges.
//
// A thread exchanges with the threads of its number in the other ranks and
// with no others: it counts its exchanges itself, so that blocks need no
// barrier and no atomic operation, which the next kernel would wait for. All
// threads t take part in the same exchanges, as ranks have the same sizes. One
// that is in exchange e + 2 has ended e + 1, for which all others have ended e:
// the lines of e may be overwritten. Hence each waits for all others in each
// exchange, or for a thread that has.
//
// Options: RANKS; GATHER, or ELEMENT and REDUCE (rabbet_reduce_t); BLOCKS: x
// has a block of d.bytes for each rank, else all are given the same.
#include "device/cuda/programs/number.cuh"

#include "device/cuda/nccl/direct_params.h"

// A look at the host's memory takes as long as many tries. On the stand-in,
// where threads come one after the other, each has to see it.
#ifdef RABBET_STAND_IN
extern "C" int usleep(unsigned);
enum { TRIES_OF_A_LOOK = 1 };
#else
enum { TRIES_OF_A_LOOK = 4096 };
#endif

DEVICE void line_write(char* line, uint64_t data, uint32_t flag) {
  uint64_t first = (uint64_t)flag << 32 | (uint32_t)data;
  uint64_t second = (uint64_t)flag << 32 | data >> 32;
#ifdef RABBET_STAND_IN
  // Other ranks are other processes.
  __atomic_store_n((uint64_t*)line, first, __ATOMIC_RELEASE);
  __atomic_store_n((uint64_t*)line + 1, second, __ATOMIC_RELEASE);
#else
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(
                   __cvta_generic_to_global(line)),
               "l"(first), "l"(second)
               : "memory");
#endif
}

struct line_t {
  uint64_t first, second;
};

DEVICE line_t line_read(const char* line) {
  line_t read;
#ifdef RABBET_STAND_IN
  read.first = __atomic_load_n((const uint64_t*)line, __ATOMIC_ACQUIRE);
  read.second = __atomic_load_n((const uint64_t*)line + 1, __ATOMIC_ACQUIRE);
#else
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(read.first), "=l"(read.second)
               : "l"(__cvta_generic_to_global(line))
               : "memory");
#endif
  return read;
}

DEVICE bool line_is_there(line_t line, uint32_t flag) {
  return (uint32_t)(line.first >> 32) == flag &
         (uint32_t)(line.second >> 32) == flag;
}

DEVICE uint64_t line_data(line_t line) {
  return (line.first & 0xffffffffu) | line.second << 32;
}

// In an area, line i of what rank `from` gives to an exchange. Lines of a
// second step are DIRECT_CAPACITY(RANKS) behind.
DEVICE char* line_of(char* area, uint32_t number, int from, int32_t i) {
  int32_t set = i / DIRECT_CHUNK * 2 + (int32_t)(number & 1);
  int32_t at = (set * RANKS + from) * DIRECT_CHUNK + i % DIRECT_CHUNK;
  return area + DIRECT_COUNTERS + at * DIRECT_LINE;
}

// The rank `step` places behind the own in the ring.
DEVICE int rank_behind(const direct_t& d, int step) {
  int rank = d.rank + step;
  return rank < RANKS ? rank : rank - RANKS;
}

// ---- A thread's exchanges ---------------------------------------------------

DEVICE int32_t thread_of() {
  return (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
}

DEVICE volatile uint32_t* counter_of(const direct_t& d) {
  return (volatile uint32_t*)d.areas[0] + thread_of();
}

// 0 is no number, since lines begin with it, and even and odd take turns.
DEVICE uint32_t number_after(uint32_t last) {
  return last == 0xffffffffu ? 2 : last + 1;
}

// Numbers come again after 2^32 exchanges. So a set's lines lose theirs now and
// then, while no rank writes to them: all have come, and no other rank is in
// the exchange after the next.
DEVICE void clean(const direct_t& d, uint32_t number) {
  if ((number >> 1) % (1 << 19) != 0) return;
  for (int r = 0; r < RANKS * DIRECT_STEPS(RANKS); ++r)
    for (int32_t i = thread_of(); i < DIRECT_CAPACITY(RANKS);
         i += DIRECT_CHANNELS)
      line_write(line_of(d.areas[0], number, r % RANKS,
                         i + r / RANKS * DIRECT_CAPACITY(RANKS)),
                 0, 0);
}

#ifdef RABBET_STAND_IN
// Ranks are processes that share few cores: the block's other threads go on
// first (a barrier does not wait for those that ended), and once all have
// tried, the processes that they wait for.
DEVICE void give_way() {
  static unsigned tries;
  __syncthreads();
  if (++tries % DIRECT_THREADS == 0) usleep(50);
}
#endif

// Waits for line i of the ranks before `ranks`; the own has `own` instead. All
// are read at once. What they have does not matter once the exchange is given
// up.
DEVICE void await(const direct_t& d, uint32_t number, int32_t i, int ranks,
                  uint64_t own, uint64_t data[RANKS]) {
  for (unsigned tries = 1;; ++tries) {
    line_t lines[RANKS];
    bool there = true;
#pragma unroll
    for (int r = 0; r < RANKS; ++r)
      lines[r] = line_read(line_of(d.areas[0], number, r, i));
#pragma unroll
    for (int r = 0; r < RANKS; ++r) {
      there &= r == d.rank || r >= ranks || line_is_there(lines[r], number);
      data[r] = r == d.rank ? own : line_data(lines[r]);
    }
    if (there ||
        (tries % TRIES_OF_A_LOOK == 0 && *(const volatile int32_t*)d.given_up))
      return;
#ifdef RABBET_STAND_IN
    give_way();
#endif
  }
}

// ---- Data -------------------------------------------------------------------

// Blocks lie one behind the other, and need not be aligned. Lines that are not
// whole are few: their loops stay small, as the code comes from memory, too.
DEVICE bool is_whole(const char* address, int32_t left, bool aligned) {
  return left >= DIRECT_DATA &&
         (aligned || (uint64_t)address % DIRECT_DATA == 0);
}

DEVICE uint64_t load(const char* x, int32_t left) {
  if (is_whole(x, left, !BLOCKS)) return *(const uint64_t*)x;
  uint64_t data = 0;
#pragma unroll 1
  for (int i = 0; i < DIRECT_DATA && i < left; ++i)
    data |= (uint64_t)(uint8_t)x[i] << (8 * i);
  return data;
}

DEVICE void store(char* y, uint64_t data, int32_t left) {
  if (is_whole(y, left, !GATHER)) {
    *(uint64_t*)y = data;
    return;
  }
#pragma unroll 1
  for (int i = 0; i < DIRECT_DATA && i < left; ++i)
    y[i] = (char)(data >> (8 * i));
}

#if !GATHER
enum { PER_LINE = DIRECT_DATA / sizeof(ELEMENT) };

// Of the numbers of rabbet_reduce_t: SUM, PROD, MAX, MIN, AVG. The greater of a
// number and NaN is the number, as NCCL has it.
DEVICE float combine(float sum, float x) {
  if (REDUCE == 1) return sum * x;
  if (REDUCE == 2) return fmaxf(sum, x);
  if (REDUCE == 3) return fminf(sum, x);
  return sum + x;
}

// In the ranks' order, so that all have the same.
DEVICE uint64_t reduced(const uint64_t data[RANKS]) {
  float sums[PER_LINE];
#pragma unroll
  for (int r = 0; r < RANKS; ++r) {
    const ELEMENT* x = (const ELEMENT*)&data[r];
    for (int i = 0; i < PER_LINE; ++i)
      sums[i] = r == 0 ? to_float(x[i]) : combine(sums[i], to_float(x[i]));
  }
  uint64_t made = 0;
  for (int i = 0; i < PER_LINE; ++i)
    ((ELEMENT*)&made)[i] =
        from_float<ELEMENT>(REDUCE == 4 ? sums[i] * (1.0f / RANKS) : sums[i]);
  return made;
}
#endif

// ---- One step ---------------------------------------------------------------

// Line i of what rank `to` is given; 0 behind its end.
DEVICE uint64_t given(const direct_t& d, const char* x, int to, int32_t i) {
  int32_t at = i * DIRECT_DATA;
  return load(x + (BLOCKS ? to * d.bytes : 0) + at, d.bytes - at);
}

// `own` is line i of what all are given.
DEVICE void send(const direct_t& d, const char* x, uint64_t own,
                 uint32_t number, int32_t i) {
#pragma unroll
  for (int step = 1; step < RANKS; ++step)
    line_write(line_of(d.areas[step], number, d.rank, i),
               BLOCKS ? given(d, x, rank_behind(d, step), i) : own, number);
}

DEVICE void receive(const direct_t& d, const char* x, char* y, uint32_t number,
                    int32_t i) {
  uint64_t data[RANKS], own = given(d, x, d.rank, i);
  int32_t at = i * DIRECT_DATA, left = d.bytes - at;
  await(d, number, i, RANKS, own, data);
#if GATHER
#pragma unroll
  for (int r = 0; r < RANKS; ++r) store(y + r * d.bytes + at, data[r], left);
#else
  store(y + at, reduced(data), left);
#endif
}

extern "C" __global__ void __launch_bounds__(DIRECT_THREADS)
    direct(const char* x, char* y, direct_t d) {
  turn_t turn;
  int32_t lines = (d.bytes + DIRECT_DATA - 1) / DIRECT_DATA;
  if (thread_of() >= lines) return;
  // Before the counter is needed, so that both are read at once.
  uint64_t own = given(d, x, d.rank, thread_of());
  uint32_t number = number_after(*counter_of(d));
  for (int32_t i = thread_of(); i < lines; i += DIRECT_CHANNELS) {
    send(d, x, own, number, i);
    own = given(d, x, d.rank, i + DIRECT_CHANNELS);
  }
  *counter_of(d) = number;
  for (int32_t i = thread_of(); i < lines; i += DIRECT_CHANNELS)
    receive(d, x, y, number, i);
  clean(d, number);
}

// ---- Two steps --------------------------------------------------------------

#if !GATHER && !BLOCKS && RANKS > 2
// Lines of x in shares, rank r has share r: it receives the share's lines from
// all, and sends the sums to all. So a rank sends 2 / RANKS of what it sends in
// one step, and waits twice. Thread j has line j of each share. There are more
// threads than lines: DIRECT_CHANNELS * 3 * DIRECT_DATA > DIRECT_BYTES.
struct share_t {
  int32_t lines;  // of each
  int ranks;      // the first ones, which have a line j in their shares
};

DEVICE share_t share_of(const direct_t& d, int32_t j) {
  int32_t all = (d.bytes + DIRECT_DATA - 1) / DIRECT_DATA;
  int32_t lines = (all + RANKS - 1) / RANKS;
  return {lines, (all - j + lines - 1) / lines};
}

// Of line j of a rank's share, in x and y.
DEVICE int32_t offset_of(const share_t& s, int rank, int32_t j) {
  return (rank * s.lines + j) * DIRECT_DATA;
}

DEVICE void send_shares(const direct_t& d, const share_t& s, const char* x,
                        uint32_t number, int32_t j) {
#pragma unroll
  for (int step = 1; step < RANKS; ++step) {
    int to = rank_behind(d, step);
    int32_t at = offset_of(s, to, j);
    if (to < s.ranks)
      line_write(line_of(d.areas[step], number, d.rank, j),
                 load(x + at, d.bytes - at), number);
  }
}

DEVICE void sum_share(const direct_t& d, const share_t& s, const char* x,
                      char* y, uint32_t number, int32_t j) {
  int32_t at = offset_of(s, d.rank, j), left = d.bytes - at;
  uint64_t data[RANKS];
  await(d, number, j, RANKS, load(x + at, left), data);
  uint64_t sum = reduced(data);
#pragma unroll
  for (int step = 1; step < RANKS; ++step)
    line_write(
        line_of(d.areas[step], number, d.rank, DIRECT_CAPACITY(RANKS) + j), sum,
        number);
  store(y + at, sum, left);
}

DEVICE void receive_sums(const direct_t& d, const share_t& s, char* y,
                         uint32_t number, int32_t j) {
  uint64_t data[RANKS];
  await(d, number, DIRECT_CAPACITY(RANKS) + j, s.ranks, 0, data);
#pragma unroll
  for (int r = 0; r < RANKS; ++r) {
    int32_t at = offset_of(s, r, j);
    if (r != d.rank && r < s.ranks) store(y + at, data[r], d.bytes - at);
  }
}

extern "C" __global__ void __launch_bounds__(DIRECT_THREADS)
    direct_two_steps(const char* x, char* y, direct_t d) {
  turn_t turn;
  int32_t j = thread_of();
  share_t s = share_of(d, j);
  if (j >= s.lines) return;
  uint32_t number = number_after(*counter_of(d));
  send_shares(d, s, x, number, j);
  *counter_of(d) = number;
  if (d.rank < s.ranks) sum_share(d, s, x, y, number, j);
  receive_sums(d, s, y, number, j);
  clean(d, number);
}
#endif
