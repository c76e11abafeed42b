// The conformance suite: cases made once, at random, and run on every device.
//
// A family makes groups of one operator or a few. Every candidate that a device
// offers for a group is run as kernel_case_check does it and compared with the
// operators' reference kernels.
#ifndef RABBET_TESTS_CONFORMANCE_CONFORMANCE_H_
#define RABBET_TESTS_CONFORMANCE_CONFORMANCE_H_

#include "conformance/kernel_case.h"

typedef struct conformance_t {
  kernel_case_t c;
  uint64_t random;
  int64_t turn;    // of conformance_in_turn: which case of the family it is
  bool large;      // tensors large enough for several threads
  bool is_double;  // in the place of other types of real numbers
  int joined;      // functions that the group has side by side
  // Only candidates with exactly these boundary types and formats.
  bool is_fixed;
  rabbet_type_format_t fixed[2];
} conformance_t;

typedef struct conformance_family_t {
  const char* name;
  int cases;
  // Makes a group from the test's random numbers, outputs included.
  void (*make)(conformance_t* t);
} conformance_family_t;

// Lists end with a family without a name.
extern const conformance_family_t conformance_moves[];
extern const conformance_family_t conformance_rows[];
extern const conformance_family_t conformance_pointwise[];
extern const conformance_family_t conformance_products[];
extern const conformance_family_t conformance_convolution[];
extern const conformance_family_t conformance_attention[];
extern const conformance_family_t conformance_recurrent[];
extern const conformance_family_t conformance_quantized[];
extern const conformance_family_t conformance_sampling[];
extern const conformance_family_t conformance_sizes[];
extern const conformance_family_t conformance_weight_only[];

// Why a device lacks a kernel of its own.
typedef enum conformance_lack_t {
  CONFORMANCE_NEVER,    // not how the device works
  CONFORMANCE_NOT_YET,  // a gap; that it is closed is reported
} conformance_lack_t;

// ---- For families ----------------------------------------------------------

// In [0, below).
int64_t conformance_random(conformance_t* t, int64_t below);
static inline bool conformance_chance(conformance_t* t, int64_t of) {
  return conformance_random(t, of) == 0;
}
static inline int64_t conformance_one_of(conformance_t* t,
                                         const int64_t* values, int64_t count) {
  return values[conformance_random(t, count)];
}
// In [0, below): as many cases draw each number once. Of several draws, so many
// cases as there are combinations draw each of these once.
int64_t conformance_in_turn(conformance_t* t, int64_t below);
// Between `least` and `most` axes, of some thousand elements at most (a hundred
// thousand if the case is large).
rabbet_dims_t conformance_dims(conformance_t* t, int32_t least, int32_t most);
// One of the types in a mask of bits 1 << dtype.
rabbet_dtype_t conformance_type(conformance_t* t, uint32_t types);
rabbet_dtype_t conformance_type_in_turn(conformance_t* t, uint32_t types);
#define CONFORMANCE_REALS \
  (1u << RABBET_DTYPE_FLOAT | 1u << RABBET_DTYPE_HALF | 1u << RABBET_DTYPE_BF16)
#define CONFORMANCE_INTEGERS                            \
  (1u << RABBET_DTYPE_INT8 | 1u << RABBET_DTYPE_UINT8 | \
   1u << RABBET_DTYPE_INT32 | 1u << RABBET_DTYPE_INT64)
#define CONFORMANCE_ALL                                                 \
  (CONFORMANCE_REALS | CONFORMANCE_INTEGERS | 1u << RABBET_DTYPE_BOOL | \
   1u << RABBET_DTYPE_FP8)
// Sets the case's type and the range that random inputs are taken from.
void conformance_set_type(conformance_t* t, rabbet_dtype_t dtype);
// Where an attribute list is put together at run time.
rabbet_attr_t conformance_ints(conformance_t* t, const char* name,
                               const int64_t* data, size_t count);
rabbet_attr_t conformance_int(conformance_t* t, const char* name,
                              int64_t value);
rabbet_attr_t conformance_bool(conformance_t* t, const char* name, bool value);
// A random order of the axes.
void conformance_permutation(conformance_t* t, int32_t rank, int64_t* out_axes);

// ---- For products and convolutions (products.c) ----------------------------

// Sets a type of real numbers, their range and the tolerance.
void conformance_begin_product(conformance_t* t);
// A sum with a residual and an activation, as networks have them.
int32_t conformance_epilogue(conformance_t* t, int32_t value);
// Some algorithms of cuBLASLt and engines of cuDNN round a product before they
// add a bias or a residual.
void conformance_round_layers(conformance_t* t);

#endif  // RABBET_TESTS_CONFORMANCE_CONFORMANCE_H_
