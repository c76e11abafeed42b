// Rotations of a part of a tensor, between others that a concatenation leaves
// as they are, become one rotation:
//   concatenation(x[:first], rotation(x[first:end]), x[end:])
// Vision transformers leave out tokens so, class tokens and registers, and
// decoders elements of each head. What is left out has the cosine 1 and the
// sine 0 in the tables, except elements behind the rotated ones, for which a
// rotation has none.

#include "builder/ir/passes.h"

typedef struct places_t {
  rabbet_ir_node_t* rotation;
  rabbet_ir_value_t* x;
  int32_t axis;
  int64_t before, size, behind;  // places: left out, rotated, left out
  bool of_rows;                  // the axis is the last one
} places_t;

// The rotation among the inputs of a concatenation, whose input is a part.
static rabbet_ir_node_t* places_rotation(const rabbet_ir_t* ir,
                                         const rabbet_ir_value_t* value,
                                         int32_t axis, rabbet_ir_part_t* out) {
  rabbet_ir_node_t* rotation =
      rabbet_ir_sole_producer(ir, value, RABBET_OP_ROTATION);
  return rotation &&
                 rabbet_ir_part(ir, rabbet_ir_input(ir, rotation, 0), axis, out)
             ? rotation
             : NULL;
}

// Whether the concatenation's inputs are all parts of one tensor in their
// order, one of them rotated. The rotated part's extent may be any number if it
// is the last one.
static bool places_match(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                         places_t* out) {
  const rabbet_ir_value_t* y = rabbet_ir_output(ir, node, 0);
  int64_t axis = rabbet_ir_int(node, "axis"), at = 0;
  *out = (places_t){.axis = (int32_t)(axis < 0 ? axis + y->shape.rank : axis)};
  out->of_rows = out->axis == y->shape.rank - 1;
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, i);
    rabbet_ir_part_t part;
    rabbet_ir_node_t* rotation = places_rotation(ir, value, out->axis, &part);
    if ((!rotation && !rabbet_ir_part(ir, value, out->axis, &part)) ||
        (rotation && out->rotation) || (out->x && part.x != out->x) ||
        part.start != at || part.stride != 1 ||
        (part.size < 0 && i + 1 < node->input_count))
      return false;
    out->x = part.x;
    if (rotation) {
      out->rotation = rotation;
      out->size = part.size;
    } else if (out->rotation) {
      out->behind += part.size;
    } else {
      out->before += part.size;
    }
    at += part.size;
  }
  return out->rotation && out->behind >= 0 &&
         rabbet_ir_shape_equal(&out->x->shape, &y->shape);
}

// Elements of a row are rotated with those half of the rotated ones apart, or
// with their neighbours: then elements before them can be rotated, too.
static bool places_are_pairs(const places_t* found) {
  int64_t size = rabbet_ir_int(found->rotation, "size");
  return (size == 0 || size == found->size) && found->size > 0 &&
         (found->before == 0 ||
          (rabbet_ir_int(found->rotation, "interleaved") &&
           found->before % 2 == 0));
}

// Whether numbers for the places left out can be put beside the table's: it has
// one for each rotated place, or pair of elements.
static bool places_can_extend(const rabbet_ir_t* ir, const places_t* found,
                              const rabbet_ir_value_t* table) {
  const rabbet_ir_value_t* part = rabbet_ir_input(ir, found->rotation, 0);
  rabbet_dims_t dims = rabbet_ir_dims(ir, table);
  if (found->of_rows && found->before == 0) return true;
  if (!found->of_rows &&
      table->shape.d[found->axis] != part->shape.d[found->axis])
    return false;
  for (int32_t i = 0; i < dims.rank; ++i)
    if (i != found->axis && dims.d[i] <= 0) return false;
  return true;
}

static rabbet_status_t places_extend(rabbet_build_t* build,
                                     const rabbet_ir_node_t* node,
                                     const places_t* found,
                                     const rabbet_ir_value_t* table,
                                     double number, int32_t* out_table) {
  const int64_t axis = found->axis;
  int64_t left_out[] = {found->before, found->behind};
  const rabbet_attr_t attr = {
      .name = "axis", .type = RABBET_ATTR_INT, .data = &axis, .count = 1};
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, table);
  rabbet_ir_node_t* made = NULL;
  int32_t inputs[3];
  size_t count = 0;
  if (found->of_rows) {
    left_out[0] /= dims.d[axis] == found->size ? 1 : 2;
    left_out[1] = 0;
  }
  for (int i = 0; i < 2; ++i) {
    if (i == 1) inputs[count++] = table->id;
    if (left_out[i] == 0) continue;
    dims.d[axis] = left_out[i];
    RABBET_RETURN_IF_ERROR(rabbet_ir_filled(build, table->name, table->dtype,
                                            &dims, number, &inputs[count++]));
  }
  *out_table = table->id;
  if (count == 1) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(&build->ir, RABBET_OP_CONCATENATION,
                                            table->name, &attr, 1, inputs,
                                            count, node, &made));
  *out_table = made->outputs[0];
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_rotated_part(rabbet_build_t* build,
                                         rabbet_ir_node_t* node,
                                         bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t* made = NULL;
  places_t found;
  if (rabbet_ir_has_wishes(ir, node) || !places_match(ir, node, &found) ||
      (found.of_rows && !places_are_pairs(&found)))
    return rabbet_ok();
  int32_t inputs[3] = {found.x->id};
  for (size_t i = 1; i < 3; ++i)
    if (!places_can_extend(ir, &found, rabbet_ir_input(ir, found.rotation, i)))
      return rabbet_ok();
  for (size_t i = 1; i < 3; ++i)
    RABBET_RETURN_IF_ERROR(places_extend(build, node, &found,
                                         rabbet_ir_input(ir, found.rotation, i),
                                         i == 1 ? 1.0 : 0.0, &inputs[i]));
  const int64_t size = found.of_rows ? found.before + found.size
                                     : rabbet_ir_int(found.rotation, "size");
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_rotation(
      build, node, found.rotation->name, inputs, size,
      rabbet_ir_int(found.rotation, "interleaved") != 0, &made));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, made);
  return rabbet_ok();
}
