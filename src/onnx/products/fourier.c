// A length with factors is a transform of each factor (Cooley and Tukey); one
// with a large prime is a convolution, by transforms of a power of two
// (Bluestein). Small lengths are products with the matrix of the transform.
#include "onnx/products/fourier.h"

#include <math.h>

#include "core/view.h"

static const double fourier_two_pi = 6.283185307179586476925286766559;

// Longest transform that is one product. Two of them make 2^16.
enum { FOURIER_DIRECT = 256, FOURIER_PRIME = 512 };

typedef struct fourier_t {
  rabbet_onnx_node_t* node;
  bool inverse;
  rabbet_dtype_t dtype;  // FLOAT or DOUBLE
} fourier_t;

// ---- Numbers ---------------------------------------------------------------

typedef struct fourier_number_t {
  double re, im;
} fourier_number_t;

// exp(-+2 pi i turns / length)
static fourier_number_t fourier_root(const fourier_t* f, int64_t turns,
                                     int64_t length) {
  double angle = fourier_two_pi * (double)(turns % length) / (double)length;
  return (fourier_number_t){cos(angle), f->inverse ? sin(angle) : -sin(angle)};
}

// A constant of `count` complex numbers, in the shape `dims`.
static rabbet_tensor_t* fourier_constant(
    const fourier_t* f, rabbet_dims_t dims,
    fourier_number_t (*number)(const fourier_t* f, const int64_t* dims,
                               int64_t at)) {
  int64_t count;
  void* data = rabbet_onnx_weights_room(f->node, f->dtype, &dims, &count);
  for (int64_t i = 0; data && i < count / 2; ++i) {
    fourier_number_t found = number(f, dims.d, i);
    rabbet_store_double(f->dtype, data, 2 * i, found.re);
    rabbet_store_double(f->dtype, data, 2 * i + 1, found.im);
  }
  return rabbet_onnx_weights(f->node, f->dtype, data, &dims);
}

static rabbet_tensor_t* fourier_part(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, int64_t part) {
  int last = rabbet_onnx_rank(node, x) - 1;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  if (!rabbet_onnx_ok(node)) return NULL;
  slice.start[last] = rabbet_onnx_index(part);
  slice.size[last] = rabbet_onnx_index(1);
  return rabbet_onnx_slice(node, x, &slice);
}

// The product of complex numbers; `factor` is broadcast.
static rabbet_tensor_t* fourier_multiply(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x,
                                         rabbet_tensor_t* factor) {
  rabbet_tensor_t* a[] = {fourier_part(node, x, 0), fourier_part(node, x, 1)};
  rabbet_tensor_t* b[] = {fourier_part(node, factor, 0),
                          fourier_part(node, factor, 1)};
  rabbet_tensor_t* parts[] = {
      rabbet_onnx_binary(node, "SUB",
                         rabbet_onnx_binary(node, "PROD", a[0], b[0]),
                         rabbet_onnx_binary(node, "PROD", a[1], b[1])),
      rabbet_onnx_binary(node, "SUM",
                         rabbet_onnx_binary(node, "PROD", a[0], b[1]),
                         rabbet_onnx_binary(node, "PROD", a[1], b[0]))};
  return rabbet_onnx_concat(node, parts, 2, rabbet_onnx_rank(node, x) - 1);
}

// ---- One product -----------------------------------------------------------

static rabbet_tensor_t* fourier_direct(const fourier_t* f, rabbet_tensor_t* x,
                                       rabbet_onnx_index_t rows,
                                       int64_t length) {
  rabbet_onnx_node_t* node = f->node;
  rabbet_dims_t dims = {.rank = 2, .d = {2 * length, 2 * length}};
  int64_t count;
  void* data = rabbet_onnx_weights_room(node, f->dtype, &dims, &count);
  for (int64_t n = 0; data && n < length; ++n)
    for (int64_t k = 0; k < length; ++k) {
      fourier_number_t root = fourier_root(f, n * k, length);
      int64_t re = 2 * n * 2 * length + 2 * k, im = re + 2 * length;
      rabbet_store_double(f->dtype, data, re, root.re);
      rabbet_store_double(f->dtype, data, re + 1, root.im);
      rabbet_store_double(f->dtype, data, im, -root.im);
      rabbet_store_double(f->dtype, data, im + 1, root.re);
    }
  const rabbet_onnx_index_t flat[] = {rows, rabbet_onnx_index(2 * length)};
  const rabbet_onnx_index_t whole[] = {rows, rabbet_onnx_index(length),
                                       rabbet_onnx_index(2)};
  rabbet_tensor_t* y = rabbet_onnx_matmul(
      node, rabbet_onnx_reshape(node, x, flat, 2), "NONE",
      rabbet_onnx_weights(node, f->dtype, data, &dims), "NONE");
  return rabbet_onnx_reshape(node, y, whole, 3);
}

static rabbet_tensor_t* fourier_any(const fourier_t* f, rabbet_tensor_t* x,
                                    rabbet_onnx_index_t rows, int64_t length);

// ---- Factors ---------------------------------------------------------------

// Element (j, k) of [b, a, 2]: the root of j * k among a * b.
static fourier_number_t fourier_twiddle(const fourier_t* f, const int64_t* dims,
                                        int64_t at) {
  return fourier_root(f, at / dims[1] * (at % dims[1]), dims[0] * dims[1]);
}

// Swaps axes 1 and 2 of x seen as [rows, a, b, 2]; the result is [rows * b, a,
// 2] for `outer` b, or [rows, a * b, 2] for 1.
static rabbet_tensor_t* fourier_swap(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x,
                                     rabbet_onnx_index_t rows, int64_t a,
                                     int64_t b, int64_t outer) {
  static const int64_t order[] = {0, 2, 1, 3};
  const rabbet_onnx_index_t apart[] = {
      rows, rabbet_onnx_index(a), rabbet_onnx_index(b), rabbet_onnx_index(2)};
  const rabbet_onnx_index_t joined[] = {
      rabbet_onnx_index_op(node, "PROD", rows, rabbet_onnx_index(outer)),
      rabbet_onnx_index(a * b / outer), rabbet_onnx_index(2)};
  x = rabbet_onnx_transpose(node, rabbet_onnx_reshape(node, x, apart, 4),
                            order);
  return rabbet_onnx_reshape(node, x, joined, 3);
}

// length = a * b: transforms of length a over every b-th element, a factor for
// each result, transforms of length b.
static rabbet_tensor_t* fourier_factors(const fourier_t* f, rabbet_tensor_t* x,
                                        rabbet_onnx_index_t rows, int64_t a,
                                        int64_t b) {
  rabbet_onnx_node_t* node = f->node;
  rabbet_onnx_index_t rows_a =
      rabbet_onnx_index_op(node, "PROD", rows, rabbet_onnx_index(b));
  rabbet_onnx_index_t rows_b =
      rabbet_onnx_index_op(node, "PROD", rows, rabbet_onnx_index(a));
  rabbet_tensor_t* y = fourier_swap(node, x, rows, a, b, b);
  y = fourier_any(f, y, rows_a, a);
  const rabbet_onnx_index_t apart[] = {
      rows, rabbet_onnx_index(b), rabbet_onnx_index(a), rabbet_onnx_index(2)};
  rabbet_tensor_t* twiddles = fourier_constant(
      f, (rabbet_dims_t){.rank = 3, .d = {b, a, 2}}, fourier_twiddle);
  y = fourier_multiply(node, rabbet_onnx_reshape(node, y, apart, 4),
                       rabbet_onnx_to_rank(node, twiddles, 4));
  y = fourier_swap(node, y, rows, b, a, a);
  y = fourier_any(f, y, rows_b, b);
  return fourier_swap(node, y, rows, a, b, 1);
}

// ---- Large primes ----------------------------------------------------------

// Element n of the chirp [length, 2]: exp(-+pi i n^2 / length).
static fourier_number_t fourier_chirp(const fourier_t* f, const int64_t* dims,
                                      int64_t at) {
  return fourier_root(f, at * at % (2 * dims[0]), 2 * dims[0]);
}

// x [rows, from, 2] with `to` elements: cut, or with zeros behind.
static rabbet_tensor_t* fourier_resize(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x, int64_t to) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.mode = "FILL";
  slice.size[1] = rabbet_onnx_index(to);
  return rabbet_onnx_slice(node, x, &slice);
}

// The conjugate chirp of `length` elements, around a circle of `size`: [1,
// size, 2].
static rabbet_tensor_t* fourier_circle(const fourier_t* f, int64_t length,
                                       int64_t size) {
  rabbet_dims_t dims = {.rank = 3, .d = {1, size, 2}};
  int64_t count;
  void* data = rabbet_onnx_weights_room(f->node, f->dtype, &dims, &count);
  for (int64_t i = 0; data && i < length; ++i) {
    fourier_number_t root = fourier_chirp(f, &length, i);
    int64_t places[] = {i, i == 0 ? 0 : size - i};
    for (int k = 0; k < 2; ++k) {
      rabbet_store_double(f->dtype, data, 2 * places[k], root.re);
      rabbet_store_double(f->dtype, data, 2 * places[k] + 1, -root.im);
    }
  }
  return rabbet_onnx_weights(f->node, f->dtype, data, &dims);
}

// n k = (n^2 + k^2 - (k - n)^2) / 2: a convolution with a chirp, as a product
// of transforms of a power of two.
static rabbet_tensor_t* fourier_prime(const fourier_t* f, rabbet_tensor_t* x,
                                      rabbet_onnx_index_t rows,
                                      int64_t length) {
  const fourier_t forth = {f->node, false, f->dtype};
  const fourier_t back = {f->node, true, f->dtype};
  rabbet_onnx_node_t* node = f->node;
  int64_t size = 1;
  while (size < 2 * length - 1)
    size *= 2;
  rabbet_tensor_t* chirp = fourier_constant(
      f, (rabbet_dims_t){.rank = 2, .d = {length, 2}}, fourier_chirp);
  chirp = rabbet_onnx_to_rank(node, chirp, 3);
  rabbet_tensor_t* y = fourier_multiply(node, x, chirp);
  y = fourier_any(&forth, fourier_resize(node, y, size), rows, size);
  rabbet_tensor_t* filter = fourier_any(&forth, fourier_circle(f, length, size),
                                        rabbet_onnx_index(1), size);
  filter = rabbet_onnx_with_number(node, "PROD", filter, 1 / (double)size);
  y = fourier_any(&back, fourier_multiply(node, y, filter), rows, size);
  return fourier_multiply(node, fourier_resize(node, y, length), chirp);
}

// ---- Any length ------------------------------------------------------------

static int64_t fourier_largest_prime(int64_t length) {
  int64_t largest = 1;
  for (int64_t p = 2; p * p <= length; ++p)
    while (length % p == 0) {
      largest = p;
      length /= p;
    }
  return length > largest ? length : largest;
}

static rabbet_tensor_t* fourier_any(const fourier_t* f, rabbet_tensor_t* x,
                                    rabbet_onnx_index_t rows, int64_t length) {
  int64_t prime = fourier_largest_prime(length);
  if (!rabbet_onnx_ok(f->node)) return NULL;
  if (length <= FOURIER_DIRECT || (prime == length && prime <= FOURIER_PRIME))
    return fourier_direct(f, x, rows, length);
  if (prime > FOURIER_PRIME) return fourier_prime(f, x, rows, length);
  int64_t a = (int64_t)sqrt((double)length);
  while (length % a != 0)
    --a;
  return fourier_factors(f, x, rows, a, length / a);
}

rabbet_tensor_t* rabbet_onnx_fourier(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x,
                                     rabbet_onnx_index_t rows, int64_t length,
                                     bool inverse) {
  const fourier_t f = {node, inverse, rabbet_onnx_dtype_of(node, x)};
  return fourier_any(&f, x, rows, length);
}
