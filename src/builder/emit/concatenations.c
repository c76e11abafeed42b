// Concatenations without copies: if the parts are contiguous in the result's
// memory, the steps that compute the parts write them there.
#include "builder/emit/concatenations.h"

#include <assert.h>

// ---- Conditions -------------------------------------------------------------

static bool concatenation_is_alone(const rabbet_unit_t* unit) {
  return unit->node_count == 1 &&
         rabbet_op_is(unit->nodes[0]->op, RABBET_OP_CONCATENATION);
}

// Whether parts along `axis` are contiguous in a result of `dims` in `format`.
static bool concatenation_is_contiguous(const rabbet_dims_t* dims, int32_t axis,
                                        rabbet_format_t format) {
  assert(axis >= 0 && axis < dims->rank);
  const rabbet_format_info_t* info = rabbet_format_info(format);
  for (int32_t i = 0; i < axis; ++i)
    if (dims->d[i] != 1) return false;
  if (format == RABBET_FORMAT_LINEAR) return true;
  return !info->channels_last && axis == 1 && dims->rank >= info->min_rank;
}

// Whether the part may have any memory, and its end is aligned for the next
// part.
static bool concatenation_part_fits(const rabbet_build_t* build,
                                    const rabbet_ir_value_t* part,
                                    rabbet_type_format_t type) {
  if (part->constant || part->values || part->input >= 0 || part->output >= 0)
    return false;
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, part);
  int64_t block = rabbet_format_info(type.format)->block;
  size_t bytes = 0;
  for (int32_t i = 0; i < dims.rank; ++i)
    if (dims.d[i] < 0) return false;
  if (type.format != RABBET_FORMAT_LINEAR && dims.d[1] % block != 0)
    return false;
  rabbet_status_t status =
      rabbet_tensor_bytes(type.dtype, type.format, &dims, &bytes);
  bool fits = rabbet_is_ok(status) && bytes % RABBET_LAYOUT_PART_ALIGNMENT == 0;
  rabbet_status_ignore(status);
  return fits;
}

bool rabbet_concatenation_can_be_view(const rabbet_build_t* build,
                                      const rabbet_unit_t* unit,
                                      rabbet_type_format_t type) {
  // A part that occurs twice is one input of the group.
  if (!concatenation_is_alone(unit) ||
      unit->group.input_count != unit->nodes[0]->input_count)
    return false;
  const rabbet_ir_node_t* node = unit->nodes[0];
  const rabbet_ir_value_t* result = rabbet_ir_output(&build->ir, node, 0);
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, result);
  int64_t axis = rabbet_attr_int(node->attrs, node->op->attr_count, "axis", 0);
  if (axis < 0) axis += dims.rank;
  assert(axis >= 0 && axis < dims.rank);
  if (result->values ||
      !concatenation_is_contiguous(&dims, (int32_t)axis, type.format))
    return false;
  for (size_t i = 0; i < node->input_count; ++i)
    if (!concatenation_part_fits(build, rabbet_ir_input(&build->ir, node, i),
                                 type))
      return false;
  return true;
}

// ---- Placing ----------------------------------------------------------------

bool rabbet_concatenation_is_view(const rabbet_layout_step_t* step) {
  return !step->pick.choice->candidate.kernel &&
         concatenation_is_alone(step->pick.unit);
}

// Whether the slot's memory can become a part of another: it is the whole of a
// memory that the context owns.
static bool concatenation_may_move(const rabbet_layout_t* layout, int32_t slot,
                                   int32_t result) {
  int32_t root = rabbet_layout_root(layout, slot);
  return root != result && !rabbet_layout_is_part(layout, slot) &&
         !layout->uses.data[root].is_fixed;
}

rabbet_status_t rabbet_layout_alias_parts(rabbet_build_t* build,
                                          rabbet_layout_t* layout,
                                          size_t* step) {
  size_t count = layout->steps.data[*step].pick.unit->group.input_count;
  int32_t* slots = layout->steps.data[*step].slots;
  int32_t result = slots[count];
  uint64_t offset = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!concatenation_may_move(layout, slots[i], result)) {
      int32_t copy = -1;
      RABBET_RETURN_IF_ERROR(
          rabbet_layout_insert_copy(build, layout, *step, slots[i], &copy));
      slots[i] = copy;
      ++*step;
    }
    rabbet_slot_t* root =
        &layout->slots.data[rabbet_layout_root(layout, slots[i])];
    const rabbet_slot_t* part = &layout->slots.data[slots[i]];
    rabbet_dims_t dims =
        rabbet_ir_dims(&build->ir, rabbet_ir_value(&build->ir, part->value));
    size_t bytes = 0;
    RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
        part->type.dtype, part->type.format, &dims, &bytes));
    assert(offset % RABBET_LAYOUT_PART_ALIGNMENT == 0);
    assert(root->alias < 0 && !root->is_part);
    root->is_part = true;
    root->offset = offset;
    rabbet_layout_alias_slot(layout, (int32_t)(root - layout->slots.data),
                             result);
    offset += bytes;
  }
  return rabbet_ok();
}
