// Deconvolutions of any window, LINEAR (-DELEMENT, -DHAS_BIAS; strides
// -DSTRIDE_D, _H, _W, likewise DILATION), for those that cuDNN rejects. Bound
// by arithmetic, which does not use tensor cores, and by loads.
#include "device/cuda/programs/number.cuh"

#include "device/cuda/image/deconvolution_params.h"

typedef ELEMENT T;

template <int A, int B>
struct common_factor {
  enum { IS = common_factor<B, A % B>::IS };
};
template <int A>
struct common_factor<A, 0> {
  enum { IS = A };
};

// The taps of an axis that read anything for an output position: of a window
// as long as its stride, one.
template <int STRIDE, int DILATION>
struct taps_t {
  enum { STEP = STRIDE / common_factor<STRIDE, DILATION>::IS };
  int32_t place, in, end;

  __device__ __forceinline__ taps_t(const deconvolution_t& p, int axis,
                                    int32_t at)
      : place(at + p.pre[axis]), in(p.in[axis]), end(p.window[axis]) {}
  __device__ __forceinline__ int32_t first() const {
    if (DILATION == 1) return place % STRIDE;
    int32_t tap = 0;
    while (tap < STEP && (place - tap * DILATION) % STRIDE != 0) ++tap;
    return tap < STEP ? tap : end;
  }
  // The input position that such a tap reads; -1: none.
  __device__ __forceinline__ int32_t source(int32_t tap) const {
    int32_t from = place - tap * DILATION;
    return from >= 0 && from / STRIDE < in ? from / STRIDE : -1;
  }
};

// Adds the products of one tap, over all channels, to the sums of MAPS maps.
template <int MAPS>
DEVICE void add_tap(const deconvolution_t& p, const T* x, const T* w,
                    int64_t taps, float* sums) {
  int64_t plane = (int64_t)p.in[0] * p.in[1] * p.in[2];
#pragma unroll 4
  for (int32_t c = 0; c < p.channels; ++c) {
    float from = to_float(x[c * plane]);
#pragma unroll
    for (int m = 0; m < MAPS; ++m)
      sums[m] += from * to_float(w[((int64_t)c * p.maps + m) * taps]);
  }
}

// A thread computes one position in MAPS neighbouring maps. The blocks along
// the grid's y share the planes.
template <int MAPS>
DEVICE void make_planes(const T* x, const T* w, const T* bias, T* y,
                        const deconvolution_t& p) {
  int32_t size = p.out[0] * p.out[1] * p.out[2];
  int32_t position = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
  if (position >= size) return;
  int32_t row = divide(position, p.out_width);
  int32_t at_w = position - row * p.out[2];
  int32_t at_d = divide(row, p.out_height);
  int32_t at_h = row - at_d * p.out[1];
  int64_t in_size = (int64_t)p.in[0] * p.in[1] * p.in[2];
  int64_t taps = (int64_t)p.window[0] * p.window[1] * p.window[2];
  int32_t sets = p.maps / MAPS * p.groups;
  const taps_t<STRIDE_D, DILATION_D> down(p, 0, at_d);
  const taps_t<STRIDE_H, DILATION_H> along(p, 1, at_h);
  const taps_t<STRIDE_W, DILATION_W> across(p, 2, at_w);
  for (int64_t plane = blockIdx.y; plane < p.planes; plane += gridDim.y) {
    int64_t batch = plane / sets;
    int32_t map = (int32_t)(plane - batch * sets) * MAPS;
    int32_t group = map / p.maps;
    int64_t channel = (int64_t)group * p.channels;
    const T* from = x + (batch * p.groups * p.channels + channel) * in_size;
    const T* weights = w + (channel * p.maps + (map - group * p.maps)) * taps;
    float sums[MAPS];
#pragma unroll
    for (int m = 0; m < MAPS; ++m)
      sums[m] = HAS_BIAS ? to_float(bias[map + m]) : 0.0f;
#pragma unroll 1
    for (int d = down.first(); d < down.end; d += down.STEP) {
      int32_t z = down.source(d);
      if (z < 0) continue;
#pragma unroll 1
      for (int h = along.first(); h < along.end; h += along.STEP) {
        int32_t i = along.source(h);
        if (i < 0) continue;
#pragma unroll 1
        for (int v = across.first(); v < across.end; v += across.STEP) {
          int32_t k = across.source(v);
          if (k < 0) continue;
          int64_t tap = ((int64_t)d * p.window[1] + h) * p.window[2] + v;
          add_tap<MAPS>(p, from + ((int64_t)z * p.in[1] + i) * p.in[2] + k,
                        weights + tap, taps, sums);
        }
      }
    }
    T* to = y + (batch * p.groups * p.maps + map) * (int64_t)size + position;
#pragma unroll
    for (int m = 0; m < MAPS; ++m)
      to[(int64_t)m * size] = from_float<T>(sums[m]);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    deconvolution(const T* x, const T* w, const T* bias, T* y,
                  const __grid_constant__ deconvolution_t p) {
  turn_t turn;
  make_planes<1>(x, w, bias, y, p);
}

extern "C" __global__ void __launch_bounds__(256)
    deconvolution_maps(const T* x, const T* w, const T* bias, T* y,
                       const __grid_constant__ deconvolution_t p) {
  turn_t turn;
  make_planes<4>(x, w, bias, y, p);
}
