// 8-bit groups: two dequantized tensors, their product or convolution, an
// element-wise epilogue, and optionally a quantization of the result.
#ifndef RABBET_SRC_DEVICE_COMMON_QUANTIZED_H_
#define RABBET_SRC_DEVICE_COMMON_QUANTIZED_H_

#include "core/view.h"
#include "device/common/propose.h"

enum { RABBET_QUANTIZED_NODES = 16, RABBET_QUANTIZED_INPUTS = 24 };

// A tensor of 8 bits that the group dequantizes with one scale, to add it to
// the result.
typedef struct rabbet_quantized_operand_t {
  int32_t real;  // the dequantized value
  int32_t value;
  double scale;
} rabbet_quantized_operand_t;

typedef struct rabbet_quantized_t {
  int32_t x, w;  // factors: boundary inputs of 8 bits
  double x_scale;
  int32_t x_zero;  // x = (number - x_zero) x_scale
  // One number, or one per channel or column of the result.
  const rabbet_group_value_t* w_scale;
  int64_t w_count;
  rabbet_quantized_operand_t operand;  // value -1: none
  double scale;                        // of the result; 0: it is not quantized
  int32_t zero;
  int32_t result;  // the group's output
  // The group without quantization: nodes[0] is the product of x and w, the
  // output is the input of the quantization, and operand.real is an input. Its
  // values are those of the whole group.
  rabbet_group_t plain;
  rabbet_group_node_t nodes[RABBET_QUANTIZED_NODES];
  int32_t product_inputs[3];
  int32_t inputs[RABBET_QUANTIZED_INPUTS];
  int32_t output;
} rabbet_quantized_t;

// False unless the group has this form. Only x and the result may have zero
// points; scales and zero points must be constants; scales of the result and of
// an added tensor must be scalars; at most one dequantized tensor is added.
// `op` is CONVOLUTION or MATRIX_MULTIPLY. *out_quantized has pointers into
// itself and the group: it must not be moved.
bool rabbet_quantized_parse(const rabbet_group_t* group, rabbet_op_id_t op,
                            rabbet_quantized_t* out_quantized);

// ---- Its parts, for classes that read groups of other forms -----------------

// The only node of the operator; NULL if there are several, or if a node has
// several results.
const rabbet_group_node_t* rabbet_quantized_product(const rabbet_group_t* group,
                                                    rabbet_op_id_t op);
// Sets x, w and their scales; false unless the group dequantizes both.
bool rabbet_quantized_factors(const rabbet_group_t* group,
                              const rabbet_group_node_t* product,
                              rabbet_quantized_t* q);
// The node that dequantizes a boundary input of 8 bits to the value, or NULL.
const rabbet_group_node_t* rabbet_quantized_maker(const rabbet_group_t* group,
                                                  int32_t value);
// The scalar that a scale is; false if it is not a constant of one element, or
// not positive.
bool rabbet_quantized_number(const rabbet_group_t* group, int32_t value,
                             double* out_number);
// The zero point of a node if it is a constant scalar, or 0 if there is none;
// otherwise false.
bool rabbet_quantized_zero(const rabbet_group_t* group,
                           const rabbet_group_node_t* node, int32_t* out_zero);
static inline double rabbet_quantized_w_scale(const rabbet_quantized_t* q,
                                              int64_t channel) {
  return rabbet_load_double(q->w_scale->dtype, q->w_scale->constant,
                            q->w_count == 1 ? 0 : channel);
}

#endif  // RABBET_SRC_DEVICE_COMMON_QUANTIZED_H_
