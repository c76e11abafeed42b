// Non-maximum suppression (-DBOX, -DSCORE, -DIOU, -DLEAST: types of the boxes,
// the scores and the thresholds; -DMOST: of the number of boxes).
//
// Keys order boxes by score, then by index. For each class of each batch a
// block lists the keys of scores above the threshold, in the order of boxes. If
// there is a limit, a block per batch finds the lowest score within it. Then a
// block per list repeatedly takes the best remaining box and removes the boxes
// that overlap it. One block computes where each list's rows begin. Finally
// warps write the rows; a row's place is found by binary search in the lists of
// the other classes. The result does not depend on the order of threads. Bound
// by latency: a few steps for each box that is taken, in all lists at once.
#include "device/cuda/selection/nms_params.h"
#include "device/cuda/programs/number.cuh"
#include "device/cuda/programs/warps.cuh"

enum { WARPS = NMS_THREADS / 32 };

// ---- Scores

// Larger for higher scores, and for lower indices of equal scores. Never 0.
DEVICE uint64_t key_of(float score, int64_t index) {
  uint32_t bits = bits_of(score + 0.0f);  // -0 is 0
  bits = bits >> 31 ? ~bits : bits | 0x80000000u;
  return (uint64_t)bits << 32 | (uint32_t) ~(uint32_t)index;
}
DEVICE int64_t index_of(uint64_t key) { return (uint32_t) ~(uint32_t)key; }
DEVICE uint32_t score_of(uint64_t key) { return (uint32_t)(key >> 32); }

// ---- Threads together

// The number of lower threads with `set`; *all: the number in the whole block.
DEVICE int32_t count_before(bool set, int32_t* all) {
  uint32_t word = __ballot_sync(0xffffffffu, set);
  int32_t before = add_up<WARPS, int32_t>(__popc(word), all);
  return before + __popc(word & ((1u << (threadIdx.x & 31)) - 1));
}

DEVICE int32_t warp_sum(int32_t x) {
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, flip);
  return x;
}

DEVICE uint64_t largest(uint64_t key) {
  __shared__ uint64_t keys[WARPS];
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2) {
    uint64_t other = __shfl_xor_sync(0xffffffffu, key, flip);
    key = other > key ? other : key;
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) keys[threadIdx.x >> 5] = key;
  __syncthreads();
  key = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) key = keys[w] > key ? keys[w] : key;
  return key;
}

// ---- Candidates

extern "C" __global__ void __launch_bounds__(NMS_THREADS)
    nms_collect(const SCORE* scores, const LEAST* least, uint64_t* keys,
                int32_t* counts, const __grid_constant__ nms_t p) {
  turn_t turn;
  float threshold = least ? to_float(*least) : 0;
  for (int64_t list = blockIdx.x; list < p.lists; list += gridDim.x) {
    int64_t batch = list / p.classes;
    const SCORE* from = scores + batch * p.score_batch +
                        (list - batch * p.classes) * p.score_class;
    uint64_t* to = keys + list * p.boxes;
    int32_t found = 0;
    for (int64_t first = 0; first < p.boxes; first += NMS_THREADS) {
      int64_t i = first + threadIdx.x;
      float score = i < p.boxes ? to_float(from[i * p.score_box]) : 0;
      bool good = i < p.boxes && score > threshold;
      int32_t all = 0, before = count_before(good, &all);
      if (good) to[found + before] = key_of(score, i);
      found += all;
    }
    if (threadIdx.x == 0) counts[list] = found;
  }
}

// ---- The limit

// For a batch with more candidates than the limit: cuts[batch] gets the lowest
// score within the limit, and ties[list] how many candidates of exactly this
// score the list keeps; lower classes and lower boxes come first. cuts[batch]
// is 0 if all candidates are within the limit.
extern "C" __global__ void __launch_bounds__(NMS_THREADS)
    nms_cut(const uint64_t* keys, const int32_t* counts, uint32_t* cuts,
            int32_t* ties, const __grid_constant__ nms_t p) {
  turn_t turn;
  __shared__ uint32_t digits[256];
  __shared__ uint32_t found_digit;
  __shared__ int64_t found_rank;
  int64_t first = (int64_t)blockIdx.x * p.classes, total = 0;
  for (int64_t i = 0; i < p.classes; ++i) total += counts[first + i];
  if (total <= p.limit) {
    if (threadIdx.x == 0) cuts[blockIdx.x] = 0;
    return;
  }
  uint32_t cut = 0;
  int64_t rank = p.limit;
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    digits[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t list = first; list < first + p.classes; ++list) {
      for (int64_t i = threadIdx.x; i < counts[list]; i += NMS_THREADS) {
        uint32_t score = score_of(keys[list * p.boxes + i]);
        if (((uint64_t)(score ^ cut) >> (shift + 8)) == 0)
          atomicAdd(&digits[score >> shift & 255], 1u);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t digit = 255;
      for (; digit > 0 && (int64_t)digits[digit] < rank; --digit)
        rank -= digits[digit];
      found_digit = digit;
      found_rank = rank;
    }
    __syncthreads();
    cut |= found_digit << shift;
    rank = found_rank;
  }
  for (int64_t list = first; list < first + p.classes; ++list) {
    int32_t own = 0, all = 0;
    for (int64_t i = threadIdx.x; i < counts[list]; i += NMS_THREADS)
      own += score_of(keys[list * p.boxes + i]) == cut;
    add_up<WARPS, int32_t>(warp_sum(own), &all);
    int64_t kept = all < rank ? all : rank;
    if (threadIdx.x == 0) ties[list] = (int32_t)kept;
    rank -= kept;
  }
  if (threadIdx.x == 0) cuts[blockIdx.x] = cut;
}

// Removes (zeroes) the keys beyond the limit.
DEVICE void strike_worst(uint64_t* keys, int32_t count, uint32_t cut,
                         int32_t ties) {
  int32_t seen = 0;
  for (int32_t first = 0; first < count; first += NMS_THREADS) {
    int32_t i = first + (int32_t)threadIdx.x, all = 0;
    uint64_t key = i < count ? keys[i] : 0;
    bool tie = i < count && score_of(key) == cut;
    int32_t before = seen + count_before(tie, &all);
    if (i < count && (score_of(key) < cut || (tie && before >= ties)))
      keys[i] = 0;
    seen += all;
  }
}

// ---- Choosing

struct box_t {
  float low[2], high[2];
};

DEVICE box_t load_box(const BOX* boxes, const nms_t& p, int64_t from,
                      uint64_t key) {
  const BOX* at = boxes + from + index_of(key) * p.box_box;
  box_t box;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float a = to_float(at[i]), b = to_float(at[i + 2]);
    if (p.center) {
      float half = __fdiv_rn(b, 2.0f);
      b = __fadd_rn(a, half);
      a = __fsub_rn(a, half);
    }
    box.low[i] = p.center || a < b ? a : b;
    box.high[i] = p.center || a < b ? b : a;
  }
  return box;
}

DEVICE float area(const box_t& box) {
  return __fmul_rn(__fsub_rn(box.high[0], box.low[0]),
                   __fsub_rn(box.high[1], box.low[1]));
}

// No fused multiply-adds, so that all devices get the same result.
DEVICE bool overlap(const box_t& a, const box_t& b, float threshold) {
  float side[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float low = a.low[i] > b.low[i] ? a.low[i] : b.low[i];
    float high = a.high[i] < b.high[i] ? a.high[i] : b.high[i];
    if (high <= low) return false;
    side[i] = __fsub_rn(high, low);
  }
  float shared = __fmul_rn(side[0], side[1]);
  float area_a = area(a), area_b = area(b);
  float both = __fsub_rn(__fadd_rn(area_a, area_b), shared);
  if (shared <= 0 || area_a <= 0 || area_b <= 0 || both <= 0) return false;
  return __fdiv_rn(shared, both) > threshold;
}

// Writes the chosen keys of a list to `taken`, best first. `counts` is the
// number of candidates before, the number of chosen keys after.
extern "C" __global__ void __launch_bounds__(NMS_THREADS)
    nms_choose(const BOX* boxes, const IOU* iou, const MOST* most,
               uint64_t* keys, int32_t* counts, const uint32_t* cuts,
               const int32_t* ties, uint64_t* taken,
               const __grid_constant__ nms_t p) {
  turn_t turn;
  float threshold = iou ? to_float(*iou) : 0;
  int64_t wanted = (int64_t)*most;
  if (wanted > p.most) wanted = p.most;
  for (int64_t list = blockIdx.x; list < p.lists; list += gridDim.x) {
    int64_t batch = list / p.classes;
    int64_t from =
        batch * p.box_batch + (list - batch * p.classes) * p.box_class;
    uint64_t* own = keys + list * p.boxes;
    uint64_t* to = taken + list * p.most;
    int32_t count = counts[list];
    if (cuts && cuts[batch] != 0)
      strike_worst(own, count, cuts[batch], ties[list]);
    int64_t kept = 0;
    uint64_t last = 0;
    box_t box = {{0, 0}, {0, 0}};
    while (kept < wanted) {
      uint64_t best = 0;
      for (int32_t i = (int32_t)threadIdx.x; i < count; i += NMS_THREADS) {
        uint64_t key = own[i];
        if (key == 0) continue;
        if (last != 0) {
          box_t other = load_box(boxes, p, from, key);
          if (key == last || overlap(other, box, threshold)) {
            own[i] = 0;
            continue;
          }
        }
        best = key > best ? key : best;
      }
      last = largest(best);
      if (last == 0) break;
      box = load_box(boxes, p, from, last);
      if (threadIdx.x == 0) to[kept] = last;
      ++kept;
    }
    __syncthreads();  // until all threads have read the count
    if (threadIdx.x == 0) counts[list] = (int32_t)kept;
  }
}

// ---- Writing

// begins[i]: the number of rows before list i. Launched with one block.
extern "C" __global__ void __launch_bounds__(NMS_THREADS)
    nms_add_up(const int32_t* counts, int32_t* begins, int32_t* total,
               const __grid_constant__ nms_t p) {
  turn_t turn;
  int lane = (int)(threadIdx.x & 31);
  int32_t before = 0;
  for (int64_t first = 0; first < p.lists; first += NMS_THREADS) {
    int64_t i = first + threadIdx.x;
    int32_t own = i < p.lists ? counts[i] : 0, sum = own, all = 0;
    for (int by = 1; by < 32; by *= 2) {
      int32_t other = __shfl_up_sync(0xffffffffu, sum, (unsigned)by);
      if (lane >= by) sum += other;
    }
    int32_t warp = __shfl_sync(0xffffffffu, sum, 31);
    int32_t place = before + add_up<WARPS, int32_t>(warp, &all) + sum - own;
    if (i < p.lists) begins[i] = place;
    before += all;
  }
  if (threadIdx.x == 0) *total = before;
}

// The number of keys in a list that come before `key` of another list: larger
// ones, and equal ones if the list is of a lower class.
DEVICE int32_t rank_in(const uint64_t* taken, int32_t count, uint64_t key,
                       bool lower) {
  int32_t low = 0, high = count;
  while (low < high) {
    int32_t middle = (low + high) / 2;
    uint32_t score = score_of(taken[middle]);
    if (score > score_of(key) || (lower && score == score_of(key)))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

extern "C" __global__ void __launch_bounds__(NMS_THREADS)
    nms_write(const uint64_t* taken, const int32_t* counts,
              const int32_t* begins, void* rows,
              const __grid_constant__ nms_t p) {
  turn_t turn;
  int lane = (int)(threadIdx.x & 31);
  for (int64_t list = blockIdx.x; list < p.lists; list += gridDim.x) {
    int64_t batch = list / p.classes, own = list - batch * p.classes;
    for (int32_t i = (int32_t)(threadIdx.x >> 5); i < counts[list];
         i += WARPS) {
      uint64_t key = taken[list * p.most + i];
      int32_t row = begins[list] + i;
      if (!p.by_class) {
        int32_t before = 0;
        for (int64_t c = lane; c < p.classes; c += 32) {
          int64_t other = batch * p.classes + c;
          before += c == own ? i
                             : rank_in(taken + other * p.most, counts[other],
                                       key, c < own);
        }
        row = begins[batch * p.classes] + warp_sum(before);
      }
      if (lane >= 3) continue;
      int64_t number = lane == 0 ? batch : lane == 1 ? own : index_of(key);
      if (p.is_long)
        ((int64_t*)rows)[3 * (int64_t)row + lane] = number;
      else
        ((int32_t*)rows)[3 * (int64_t)row + lane] = (int32_t)number;
    }
  }
}
