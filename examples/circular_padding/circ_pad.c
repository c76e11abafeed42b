// Circular padding of the last two axes, called through ctypes.
#include <stdint.h>
#include <string.h>

// src: [planes, h, w], dst: [planes, h + 2 pad, w + 2 pad], both row-major;
// 0 < pad <= h, w.
void circ_pad(const float* src, float* dst, int64_t planes, int64_t h,
              int64_t w, int64_t pad) {
  int64_t wide = w + 2 * pad;
  for (int64_t i = 0; i < planes; ++i, src += h * w) {
    for (int64_t y = 0; y < h + 2 * pad; ++y, dst += wide) {
      const float* row = src + (y + h - pad) % h * w;
      memcpy(dst, row + w - pad, (size_t)pad * sizeof(float));
      memcpy(dst + pad, row, (size_t)w * sizeof(float));
      memcpy(dst + pad + w, row, (size_t)pad * sizeof(float));
    }
  }
}
