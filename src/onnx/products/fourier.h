// Fourier transforms of known lengths without a matrix of the whole transform.
#ifndef RABBET_SRC_ONNX_PRODUCTS_FOURIER_H_
#define RABBET_SRC_ONNX_PRODUCTS_FOURIER_H_

#include "onnx/index.h"

// The transform of x [rows, length, 2], complex numbers in FLOAT, along axis 1:
// sums of the elements times exp(-+2 pi i n k / length), not divided by the
// length. Its cost grows as length^1.5, for primes above 512 with a factor of
// some 8; constants are O(length).
rabbet_tensor_t* rabbet_onnx_fourier(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x,
                                     rabbet_onnx_index_t rows, int64_t length,
                                     bool inverse);

#endif  // RABBET_SRC_ONNX_PRODUCTS_FOURIER_H_
