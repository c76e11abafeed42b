// Tensor cores: ldmatrix.x4, mma.m16n8k16 and mma.m16n8k8 on the values of a
// warp's lanes, as the PTX manual places them.
#include "cuda_stand_in/internal.h"
#include "cuda_stand_in/numbers.h"

// Lane 8 i + r hands in the address of row r of matrix i, and gets of each
// matrix two elements of row lane / 4; of a column if `turned`.
bool tensor_load(bool turned, const uint8_t* const in[WARP],
                 uint8_t* const out[WARP]) {
  const uint16_t* rows[WARP];
  for (unsigned i = 0; i < WARP; ++i) {
    memcpy(&rows[i], in[i], sizeof(rows[i]));
    if ((uintptr_t)rows[i] % 16 != 0) return false;
  }
  for (unsigned i = 0; i < WARP; ++i) {
    unsigned g = i / 4, t = i % 4 * 2;
    uint16_t words[8];
    for (unsigned m = 0; m < 8; ++m) {
      const uint16_t* const* matrix = rows + m / 2 * 8;
      words[m] = turned ? matrix[t + m % 2][g] : matrix[g][t + m % 2];
    }
    memcpy(out[i], words, sizeof(words));
  }
  return true;
}

static float tensor_element(int op, unsigned word, unsigned place) {
  uint16_t bits = (uint16_t)(word >> 16 * place);
  return op == STAND_IN_WARP_MMA_TF32   ? number_of_bits(word)
         : op == STAND_IN_WARP_MMA_HALF ? number_from_half(bits)
                                        : number_from_bf16(bits);
}

// Lane 4 g + t has rows g and g + 8 of a, column g of b, and the sums of
// columns 2 t and 2 t + 1 of both rows. Each word has elements that follow
// along k.
void tensor_multiply(int op, const uint8_t* const in[WARP],
                     uint8_t* const out[WARP]) {
  float a[16][16], b[8][16];
  struct stand_in_product p;
  unsigned wide = op == STAND_IN_WARP_MMA_TF32 ? 1 : 2;
  for (unsigned i = 0; i < WARP; ++i) {
    memcpy(&p, in[i], sizeof(p));
    for (unsigned e = 0; e < 2 * wide; ++e) {
      unsigned half = e / wide, k = (4 * half + i % 4) * wide + e % wide;
      a[i / 4][k] = tensor_element(op, p.a[2 * half], e % wide);
      a[i / 4 + 8][k] = tensor_element(op, p.a[2 * half + 1], e % wide);
      b[i / 4][k] = tensor_element(op, p.b[half], e % wide);
    }
  }
  for (unsigned i = 0; i < WARP; ++i) {
    memcpy(&p, in[i], sizeof(p));
    for (unsigned s = 0; s < 4; ++s) {
      const float *x = a[i / 4 + s / 2 * 8], *y = b[i % 4 * 2 + s % 2];
      for (unsigned k = 0; k < 8 * wide; ++k)
        p.sums[s] += x[k] * y[k];
    }
    memcpy(out[i], p.sums, sizeof(p.sums));
  }
}
