// Products of matrices of DOUBLE, from factors that are read by functions.
#ifndef RABBET_SRC_DEVICE_CPU_DOUBLES_PRODUCT_H_
#define RABBET_SRC_DEVICE_CPU_DOUBLES_PRODUCT_H_

#include <stddef.h>
#include <stdint.h>

// A part of a factor: elements k, `depth` from `begin` on, of `count` rows (or
// columns) from `first` on.
typedef struct rabbet_double_part_t {
  int64_t begin, depth, first, count;
} rabbet_double_part_t;

// Writes panel[k][i], `width` numbers for each k, of which those from
// part.count on are zeros.
typedef void (*rabbet_double_pack_t)(const void* factor,
                                     const rabbet_double_part_t* part,
                                     int64_t width, double* panel);

// y[m][n] = bias[m] + sum over k of a[m][k] b[k][n].
typedef struct rabbet_double_product_t {
  int64_t m, n, k;
  rabbet_double_pack_t pack_a, pack_b;
  const void *a, *b;
  const double* bias;  // or NULL
  double* y;
} rabbet_double_product_t;

// The blocks that threads share, of a product of these sizes.
int64_t rabbet_double_blocks(int64_t m, int64_t n);
// Bytes of memory for a thread.
size_t rabbet_double_room(void);
void rabbet_double_block(const rabbet_double_product_t* product, int64_t block,
                         void* room);

#endif  // RABBET_SRC_DEVICE_CPU_DOUBLES_PRODUCT_H_
