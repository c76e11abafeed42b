#include "device/cpu/doubles/product.h"

#include <assert.h>

#include "base/math.h"
#include "device/cpu/vectors/vectors.h"

// Elements of a block: its panels stay in the second-level cache.
enum {
  ROWS = 40 * RABBET_DOUBLE_ROWS,
  COLUMNS = 6 * RABBET_DOUBLE_COLUMNS,
  DEPTH = 256,
};

int64_t rabbet_double_blocks(int64_t m, int64_t n) {
  return rabbet_ceildiv(m, (int64_t)ROWS) * rabbet_ceildiv(n, (int64_t)COLUMNS);
}

size_t rabbet_double_room(void) {
  return (size_t)(ROWS + COLUMNS) * DEPTH * sizeof(double);
}

// Adds a tile to y; the first one begins with the bias.
static void double_store(const rabbet_double_product_t* p, const double* sums,
                         int64_t width, int64_t m, int64_t n, bool is_first) {
  int64_t rows = rabbet_min_i64(RABBET_DOUBLE_ROWS, p->m - m);
  int64_t columns = rabbet_min_i64(width, p->n - n);
  for (int64_t r = 0; r < rows; ++r) {
    double* y = p->y + (m + r) * p->n + n;
    double bias = p->bias ? p->bias[m + r] : 0;
    for (int64_t c = 0; c < columns; ++c)
      y[c] = (is_first ? bias : y[c]) + sums[r * width + c];
  }
}

static void double_pack(rabbet_double_pack_t pack, const void* factor,
                        rabbet_double_part_t part, int64_t end, int64_t width,
                        double* panels) {
  for (; part.first < end; part.first += width) {
    part.count = rabbet_min_i64(width, end - part.first);
    pack(factor, &part, width, panels);
    panels += part.depth * width;
  }
}

void rabbet_double_block(const rabbet_double_product_t* p, int64_t block,
                         void* room) {
  const rabbet_vectors_t* vectors = rabbet_vectors();
  const int64_t width = vectors->double_columns;
  int64_t across = rabbet_ceildiv(p->n, (int64_t)COLUMNS);
  int64_t m = block / across * ROWS, n = block % across * COLUMNS;
  int64_t m_end = rabbet_min_i64(m + ROWS, p->m);
  int64_t n_end = rabbet_min_i64(n + COLUMNS, p->n);
  double *a = room, *b = a + (int64_t)ROWS * DEPTH;
  double sums[RABBET_DOUBLE_ROWS * RABBET_DOUBLE_COLUMNS];
  assert(width <= RABBET_DOUBLE_COLUMNS && COLUMNS % width == 0);
  int64_t k = 0;
  do {
    int64_t depth = rabbet_min_i64(DEPTH, p->k - k);
    double_pack(p->pack_a, p->a, (rabbet_double_part_t){k, depth, m, 0}, m_end,
                RABBET_DOUBLE_ROWS, a);
    double_pack(p->pack_b, p->b, (rabbet_double_part_t){k, depth, n, 0}, n_end,
                width, b);
    for (int64_t j = n; j < n_end; j += width)
      for (int64_t i = m; i < m_end; i += RABBET_DOUBLE_ROWS) {
        vectors->double_tile(a + (i - m) * depth, b + (j - n) * depth, depth,
                             sums);
        double_store(p, sums, width, i, j, k == 0);
      }
    k += DEPTH;
  } while (k < p->k);
}
