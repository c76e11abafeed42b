// Weights of 4 or 8 bits that a product of floating-point numbers dequantizes:
// kernels read them as they are. The node that dequantizes stays beside the
// product, and its result is computed at build only where a kernel reads that
// instead.

#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/enums.h"

static bool packed_is_operand(const rabbet_ir_value_t* value) {
  return value->constant || value->is_refittable;
}

// Whether the node dequantizes a matrix, or several, with known operands.
static bool packed_is_matrix(const rabbet_ir_t* ir,
                             const rabbet_ir_node_t* node) {
  if (!ir->reads_packed || node->dead ||
      !rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE) ||
      rabbet_ir_has_wishes(ir, node))
    return false;
  const rabbet_ir_value_t* weights = rabbet_ir_input(ir, node, 0);
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, i);
    if (value && !packed_is_operand(value)) return false;
  }
  return weights->shape.rank >= 2 && rabbet_dtype_bits(weights->dtype) <= 8;
}

// Whether a product may read the value through this node.
static bool packed_is_reader(const rabbet_ir_t* ir,
                             const rabbet_ir_node_t* reader, size_t input) {
  if (rabbet_op_is(reader->op, RABBET_OP_MATRIX_MULTIPLY))
    return input == 1 && !rabbet_ir_dequantizer(ir, reader, 0);
  // The product may take a transpose as an attribute later, and the weights the
  // type of a cast.
  return input == 0 && (rabbet_op_is(reader->op, RABBET_OP_SHUFFLE) ||
                        rabbet_op_is(reader->op, RABBET_OP_CAST));
}

bool rabbet_ir_is_packed(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  if (!packed_is_matrix(ir, node)) return false;
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, node, 0);
  int32_t found = 0;
  if (value->output >= 0) return false;
  for (size_t i = 0; i < ir->nodes.count && found < value->uses; ++i) {
    const rabbet_ir_node_t* reader = ir->nodes.data[i];
    if (reader->dead) continue;
    for (size_t k = 0; k < reader->input_count; ++k) {
      if (reader->inputs[k] != value->id) continue;
      if (!packed_is_reader(ir, reader, k)) return false;
      ++found;
    }
  }
  return found > 0;
}

// Whether all axes before the last two have one element, so that there is one
// matrix.
static bool packed_is_single(const rabbet_ir_t* ir,
                             const rabbet_ir_value_t* weights) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, weights);
  for (int32_t i = 0; i < dims.rank - 2; ++i)
    if (dims.d[i] != 1) return false;
  return dims.d[dims.rank - 2] > 0 && dims.d[dims.rank - 1] > 0;
}

rabbet_ir_node_t* rabbet_ir_packed_factor(const rabbet_ir_t* ir,
                                          const rabbet_ir_node_t* node) {
  if (node->dead || !rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY))
    return NULL;
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, 1);
  rabbet_ir_node_t* maker = value->producer;
  int64_t op0 = rabbet_ir_int(node, "op0"), op1 = rabbet_ir_int(node, "op1");
  if (!maker || value->uses != 1 || value->output >= 0 ||
      op0 == RABBET_MATRIX_TRANSPOSE || op1 == RABBET_MATRIX_VECTOR ||
      !packed_is_reader(ir, node, 1) || !packed_is_matrix(ir, maker) ||
      !packed_is_single(ir, rabbet_ir_input(ir, maker, 0)))
    return NULL;
  return maker;
}

// ---- Other extents ----------------------------------------------------------

rabbet_status_t rabbet_ir_reshape_constant(rabbet_ir_t* ir,
                                           const rabbet_ir_value_t* value,
                                           const rabbet_dims_t* dims,
                                           int32_t* out_value) {
  rabbet_ir_value_t* shaped = NULL;
  assert(packed_is_operand(value));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_constant(
      ir, value->name, value->dtype, dims, value->constant, &shaped));
  *out_value = shaped->id;
  if (!value->is_refittable) return rabbet_ok();
  shaped->is_refittable = true;
  shaped->refit_data = value->refit_data;
  shaped->copy_of = value->copy_of >= 0 ? value->copy_of : value->id;
  return rabbet_ok();
}

// ---- Transposing ------------------------------------------------------------

enum { PACKED_TILE = 64 };

static inline void packed_turn_elements(const uint8_t* from, int64_t rows,
                                        int64_t columns, size_t size,
                                        uint8_t* to) {
  for (int64_t r0 = 0; r0 < rows; r0 += PACKED_TILE)
    for (int64_t c0 = 0; c0 < columns; c0 += PACKED_TILE)
      for (int64_t c = c0; c < rabbet_min_i64(c0 + PACKED_TILE, columns); ++c)
        for (int64_t r = r0; r < rabbet_min_i64(r0 + PACKED_TILE, rows); ++r)
          memcpy(to + (size_t)(c * rows + r) * size,
                 from + (size_t)(r * columns + c) * size, size);
}

// Copies of a constant size are single instructions.
static void packed_turn_bytes(const uint8_t* from, int64_t rows,
                              int64_t columns, size_t size, uint8_t* to) {
  if (size == 2)
    packed_turn_elements(from, rows, columns, 2, to);
  else if (size == 4)
    packed_turn_elements(from, rows, columns, 4, to);
  else
    packed_turn_elements(from, rows, columns, size, to);
}

static void packed_turn_nibbles(const uint8_t* from, int64_t rows,
                                int64_t columns, uint8_t* to) {
  memset(to, 0, (size_t)(rows * columns + 1) / 2);
  for (int64_t r0 = 0; r0 < rows; r0 += PACKED_TILE)
    for (int64_t c0 = 0; c0 < columns; c0 += PACKED_TILE)
      for (int64_t c = c0; c < rabbet_min_i64(c0 + PACKED_TILE, columns); ++c)
        for (int64_t r = r0; r < rabbet_min_i64(r0 + PACKED_TILE, rows); ++r) {
          int64_t i = r * columns + c, k = c * rows + r;
          int nibble = from[i / 2] >> i % 2 * 4 & 15;
          to[k / 2] = (uint8_t)(to[k / 2] | nibble << k % 2 * 4);
        }
}

rabbet_status_t rabbet_ir_turn_constant(rabbet_build_t* build,
                                        const rabbet_ir_value_t* value,
                                        int32_t* out_value) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  int64_t rows = dims.d[dims.rank - 2], columns = dims.d[dims.rank - 1];
  int64_t matrices = 1;
  size_t bytes = 0;
  uint8_t* data = NULL;
  rabbet_ir_value_t* turned = NULL;
  int bits = rabbet_dtype_bits(value->dtype);
  assert(value->constant && dims.rank >= 2);
  for (int32_t i = 0; i < dims.rank - 2; ++i)
    matrices *= dims.d[i];
  assert(bits >= 8 || matrices == 1);
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(value->dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, bytes + 1, (void**)&data));
  if (bits < 8) packed_turn_nibbles(value->constant, rows, columns, data);
  size_t matrix = (size_t)(rows * columns) * (size_t)bits / 8;
  for (int64_t m = 0; bits >= 8 && m < matrices; ++m)
    packed_turn_bytes((const uint8_t*)value->constant + (size_t)m * matrix,
                      rows, columns, (size_t)bits / 8,
                      data + (size_t)m * matrix);
  dims.d[dims.rank - 2] = columns;
  dims.d[dims.rank - 1] = rows;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_constant(ir, value->name, value->dtype,
                                                &dims, data, &turned));
  *out_value = turned->id;
  return rabbet_ok();
}

// ---- Narrower types ---------------------------------------------------------

enum { PACKED_WEIGHTS = 0, PACKED_ZERO_POINT = 2, INT4_MIDDLE = 8 };

// Whether all elements, less the offset, are numbers of INT4.
static bool packed_is_narrow(const rabbet_ir_t* ir,
                             const rabbet_ir_value_t* value, int64_t offset) {
  int64_t count = rabbet_ir_count(ir, value);
  if (!value->constant ||
      (value->dtype != RABBET_DTYPE_INT8 && value->dtype != RABBET_DTYPE_UINT8))
    return false;
  for (int64_t i = 0; i < count; ++i) {
    int64_t number = rabbet_load_int64(value->dtype, value->constant, i);
    if (number - offset < -INT4_MIDDLE || number - offset >= INT4_MIDDLE)
      return false;
  }
  return true;
}

static rabbet_status_t packed_narrow(rabbet_build_t* build,
                                     rabbet_ir_node_t* node, size_t input,
                                     int64_t offset) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  int64_t count = rabbet_ir_count(ir, value);
  rabbet_ir_value_t* narrow = NULL;
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, (size_t)(count + 1) / 2 + 1, &data));
  for (int64_t i = 0; i < count; ++i)
    rabbet_store_int64(
        RABBET_DTYPE_INT4, data, i,
        rabbet_load_int64(value->dtype, value->constant, i) - offset);
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_constant(
      ir, value->name, RABBET_DTYPE_INT4, &dims, data, &narrow));
  rabbet_ir_set_input(ir, node, input, narrow->id);
  return rabbet_ok();
}

rabbet_status_t rabbet_ir_narrow(rabbet_build_t* build,
                                 rabbet_ir_node_t* node) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* weights = rabbet_ir_input(ir, node, PACKED_WEIGHTS);
  const rabbet_ir_value_t* zero = rabbet_ir_input(ir, node, PACKED_ZERO_POINT);
  int64_t offset = weights->dtype == RABBET_DTYPE_UINT8 ? INT4_MIDDLE : 0;
  // Without a zero point UINT8 has numbers from 0 to 15, which INT4 has not.
  if (!rabbet_ir_is_packed(ir, node) ||
      !packed_is_narrow(ir, weights, offset) ||
      (zero ? !packed_is_narrow(ir, zero, offset) : offset != 0))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(packed_narrow(build, node, PACKED_WEIGHTS, offset));
  if (!zero) return rabbet_ok();
  if (rabbet_ir_is_number(ir, zero, (double)offset)) {
    rabbet_ir_set_input(ir, node, PACKED_ZERO_POINT, -1);
    return rabbet_ok();
  }
  return packed_narrow(build, node, PACKED_ZERO_POINT, offset);
}

// ---- Casts ------------------------------------------------------------------

rabbet_status_t rabbet_rule_packed_cast(rabbet_build_t* build,
                                        rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* value = rabbet_ir_input(ir, node, 0);
  const rabbet_ir_value_t* cast = rabbet_ir_output(ir, node, 0);
  rabbet_ir_node_t* maker =
      rabbet_ir_sole_producer(ir, value, RABBET_OP_DEQUANTIZE);
  // Numbers of FLOAT are rounded once either way.
  if (!maker || !rabbet_ir_is_packed(ir, maker) ||
      value->dtype != RABBET_DTYPE_FLOAT ||
      (cast->dtype != RABBET_DTYPE_HALF && cast->dtype != RABBET_DTYPE_BF16) ||
      rabbet_ir_has_wishes(ir, node) || cast->output >= 0 ||
      cast->is_read_by_host)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_set_int(build, maker, "to_type", cast->dtype));
  value->dtype = cast->dtype;
  bool bypassed = rabbet_ir_bypass(ir, node, value);
  assert(bypassed);
  *changed = bypassed;
  return rabbet_ok();
}
