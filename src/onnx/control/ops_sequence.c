// Sequences of tensors and optional values. Both exist at import alone, as
// lists.
#include <string.h>

#include "onnx/control/list.h"
#include "onnx/held.h"
#include "onnx/operators.h"

// ---- Lists -----------------------------------------------------------------

// Input `index`, which must be a sequence; NULL, failing, if it is not.
static const rabbet_onnx_list_t* onnx_sequence(rabbet_onnx_node_t* node,
                                               size_t index) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, index);
  const rabbet_onnx_list_t* list = rabbet_onnx_list(x);
  if (rabbet_onnx_ok(node) && (!list || list->is_optional))
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_INVALID_ARGUMENT,
        "input %zu ('%s') is %s; expected a sequence of tensors", index,
        node->proto->input[index],
        list ? "an optional value without an element" : "a tensor");
  return rabbet_onnx_ok(node) ? list : NULL;
}

// Input `index`, which must be a tensor.
static rabbet_tensor_t* onnx_item(rabbet_onnx_node_t* node, size_t index) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, index);
  if (rabbet_onnx_ok(node) && rabbet_onnx_list(x))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input %zu ('%s') is no tensor; expected one", index,
                     node->proto->input[index]);
  return rabbet_onnx_ok(node) ? x : NULL;
}

static void onnx_check_item(rabbet_onnx_node_t* node, rabbet_dtype_t dtype,
                            size_t index, rabbet_tensor_t* x) {
  rabbet_dtype_t found = rabbet_onnx_dtype_of(node, x);
  if (!rabbet_onnx_ok(node) || found == dtype) return;
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "input %zu ('%s') is %s; expected %s, the type of the "
                   "sequence's tensors",
                   index, node->proto->input[index], rabbet_dtype_name(found),
                   rabbet_dtype_name(dtype));
}

// The position that input `index` tells, which may count from the end;
// `fallback` without the input.
static rabbet_onnx_index_t onnx_position(rabbet_onnx_node_t* node, size_t index,
                                         int64_t fallback) {
  if (!rabbet_onnx_ok(node) || !rabbet_onnx_input(node, index))
    return rabbet_onnx_index(fallback);
  rabbet_tensor_t* x = onnx_item(node, index);
  rabbet_onnx_ints_t known = rabbet_onnx_try_ints(node, x);
  if (!rabbet_onnx_ok(node)) return rabbet_onnx_index(fallback);
  if (known.present && known.count != 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "position has %zu elements; expected one", known.count);
  if (known.present && known.count == 1)
    return rabbet_onnx_index(known.data[0]);
  return rabbet_onnx_element(node, x, 0);
}

// Whether the list and the position are known; *out_at is in [0, most] then.
static bool onnx_is_known(rabbet_onnx_node_t* node,
                          const rabbet_onnx_list_t* list,
                          rabbet_onnx_index_t at, size_t most, size_t* out_at) {
  if (!rabbet_onnx_list_is_known(list) || !rabbet_onnx_is_static(at))
    return false;
  int64_t place = at.value < 0 ? at.value + (int64_t)list->count : at.value;
  if (place < 0 || place > (int64_t)most)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_OUT_OF_RANGE,
                     "position is %lld; the sequence has %zu tensors",
                     (long long)at.value, list->count);
  *out_at = (size_t)place;
  return true;
}

// Fails if the sequence is known to have no tensors.
static void onnx_check_filled(rabbet_onnx_node_t* node,
                              const rabbet_onnx_list_t* list) {
  if (rabbet_onnx_ok(node) && rabbet_onnx_list_is_known(list) &&
      list->count == 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_OUT_OF_RANGE,
                     "input 0 ('%s') is an empty sequence",
                     node->proto->input[0]);
}

// ---- Sequences -------------------------------------------------------------

static void onnx_import_sequence_empty(rabbet_onnx_node_t* node) {
  rabbet_dtype_t dtype = RABBET_DTYPE_FLOAT;
  int32_t type = (int32_t)rabbet_onnx_attr_int(node, "dtype", 1);
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_onnx_node_dtype(node, type, &dtype, NULL));
  node->outputs[0] =
      rabbet_onnx_list_handle(rabbet_onnx_list_make(node, dtype, 0));
}

static void onnx_import_sequence_construct(rabbet_onnx_node_t* node) {
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, onnx_item(node, 0));
  rabbet_onnx_list_t* list =
      rabbet_onnx_list_make(node, dtype, node->input_count);
  for (size_t i = 0; list && i < list->count; ++i) {
    list->items[i] = onnx_item(node, i);
    onnx_check_item(node, dtype, i, list->items[i]);
  }
  node->outputs[0] = rabbet_onnx_list_handle(list);
}

// For the sequence that a loop carries, if it does.
static void onnx_note_inserted(rabbet_onnx_node_t* node,
                               rabbet_onnx_rest_t* rest,
                               rabbet_tensor_t* item) {
  rabbet_onnx_inserted_t* inserted = NULL;
  if (!rest || !rabbet_onnx_ok(node)) return;
  if (!rest->sample) rest->sample = item;
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(&node->importer->arena, 1,
                                        sizeof(*inserted), (void**)&inserted));
  if (!rabbet_onnx_ok(node)) return;
  *inserted = (rabbet_onnx_inserted_t){item, rest->inserted};
  rest->inserted = inserted;
}

static void onnx_import_sequence_insert(rabbet_onnx_node_t* node) {
  const rabbet_onnx_list_t* from = onnx_sequence(node, 0);
  rabbet_tensor_t* item = onnx_item(node, 1);
  if (!rabbet_onnx_ok(node)) return;
  onnx_check_item(node, from->dtype, 1, item);
  onnx_note_inserted(node, from->rest, item);
  bool at_end = !rabbet_onnx_input(node, 2);
  rabbet_onnx_index_t place = onnx_position(node, 2, (int64_t)from->count);
  size_t at = from->count;
  if (!rabbet_onnx_ok(node)) return;
  if (!at_end && !onnx_is_known(node, from, place, from->count, &at)) {
    node->outputs[0] = rabbet_onnx_list_handle(
        rabbet_onnx_list_change(node, from, place, item));
    return;
  }
  rabbet_onnx_list_t* list = rabbet_onnx_list_longer(node, from, 1);
  for (size_t i = at; list && i < list->count; ++i)
    list->items[i] = i == at ? item : from->items[i - 1];
  node->outputs[0] = rabbet_onnx_list_handle(list);
}

static void onnx_import_sequence_erase(rabbet_onnx_node_t* node) {
  const rabbet_onnx_list_t* from = onnx_sequence(node, 0);
  onnx_check_filled(node, from);
  rabbet_onnx_index_t place = onnx_position(node, 1, -1);
  if (!rabbet_onnx_ok(node)) return;
  size_t last = from->count ? from->count - 1 : 0, at = last;
  if (!onnx_is_known(node, from, place, last, &at) &&
      !(from->count > 0 && place.value == -1)) {
    node->outputs[0] = rabbet_onnx_list_handle(
        rabbet_onnx_list_change(node, from, place, NULL));
    return;
  }
  rabbet_onnx_list_t* list = rabbet_onnx_list_longer(node, from, 0);
  if (!list) return;
  list->count = last;
  for (size_t i = at; i < last; ++i)
    list->items[i] = from->items[i + 1];
  node->outputs[0] = rabbet_onnx_list_handle(list);
}

static void onnx_import_sequence_at(rabbet_onnx_node_t* node) {
  const rabbet_onnx_list_t* from = onnx_sequence(node, 0);
  rabbet_onnx_required(node, 1);
  onnx_check_filled(node, from);
  rabbet_onnx_index_t place = onnx_position(node, 1, 0);
  size_t at = 0;
  if (!rabbet_onnx_ok(node)) return;
  if (!onnx_is_known(node, from, place, from->count - 1, &at))
    node->outputs[0] = rabbet_onnx_list_at(node, from, place);
  else if (rabbet_onnx_ok(node))
    node->outputs[0] = from->items[at];
}

static void onnx_import_sequence_length(rabbet_onnx_node_t* node) {
  const rabbet_onnx_list_t* from = onnx_sequence(node, 0);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_index_t length = rabbet_onnx_list_length(node, from);
  node->outputs[0] = rabbet_onnx_is_static(length)
                         ? rabbet_onnx_number(node, RABBET_DTYPE_INT64, 0,
                                              (double)length.value)
                         : rabbet_onnx_squeeze(node, length.tensor, 1);
}

// ---- Splits and concatenation ----------------------------------------------

// Whether x is a vector of ones that a constant was spread to: torch writes
// such sizes where it splits an axis into its elements (repeat_interleave).
static bool onnx_is_ones(rabbet_onnx_node_t* node, const rabbet_tensor_t* x) {
  const rabbet_layer_t* layer = x ? x->producer : NULL;
  const rabbet_attr_t* mode = NULL;
  double number = 0;
  if (!layer || strcmp(layer->op->name, "slice") != 0) return false;
  rabbet_onnx_fail(node, rabbet_layer_attr(layer, "mode", &mode));
  return rabbet_onnx_ok(node) && mode->count == 1 &&
         *(const int64_t*)mode->data ==
             rabbet_onnx_enumerator(node, "slice", "mode", "STRICT_BOUNDS") &&
         rabbet_onnx_constant_number(node, layer->inputs[0], &number) &&
         number == 1;
}

// Parts of the axis, which a run alone tells unless they are known.
typedef struct onnx_parts_t {
  bool is_known;
  bool are_ones;              // each has an extent of 1
  size_t count;               // of known ones
  rabbet_onnx_index_t chunk;  // extent of all but the last, or
  rabbet_tensor_t* sizes;     // a vector of extents
} onnx_parts_t;

static onnx_parts_t onnx_parts(rabbet_onnx_node_t* node,
                               rabbet_onnx_index_t extent) {
  rabbet_tensor_t* split = rabbet_onnx_input(node, 1);
  rabbet_dims_t dims = rabbet_onnx_dims(node, split);
  onnx_parts_t parts = {.chunk = rabbet_onnx_index(1)};
  if (rabbet_onnx_ok(node) && split && dims.rank == 1) {
    parts.sizes = split;
    parts.is_known = dims.d[0] >= 0;
    parts.count = parts.is_known ? (size_t)dims.d[0] : 0;
    parts.are_ones = !parts.is_known && onnx_is_ones(node, split);
    return parts;
  }
  rabbet_onnx_check_rank(node, "input 1 ('split')", split, 0);
  if (split) parts.chunk = onnx_position(node, 1, 1);
  bool is_static = rabbet_onnx_is_static(parts.chunk);
  if (rabbet_onnx_ok(node) && is_static && parts.chunk.value < 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 1 ('split') is %lld; expected a positive number",
                     (long long)parts.chunk.value);
  parts.are_ones = is_static && parts.chunk.value == 1;
  parts.is_known =
      rabbet_onnx_ok(node) && is_static && rabbet_onnx_is_static(extent);
  if (parts.is_known)
    parts.count = (size_t)rabbet_onnx_ceil_div(node, extent, parts.chunk).value;
  return parts;
}

static rabbet_onnx_index_t onnx_part(rabbet_onnx_node_t* node,
                                     const onnx_parts_t* parts, size_t i,
                                     rabbet_onnx_index_t extent) {
  if (parts->sizes) return rabbet_onnx_element(node, parts->sizes, (int)i);
  int64_t chunk = parts->chunk.value, left = extent.value - (int64_t)i * chunk;
  return rabbet_onnx_index(left < chunk ? left : chunk);
}

// The run fails unless the sizes add up to the extent.
static void onnx_check_sum(rabbet_onnx_node_t* node, rabbet_onnx_index_t sum,
                           rabbet_onnx_index_t extent) {
  rabbet_onnx_index_t same = rabbet_onnx_index_op(node, "EQUAL", sum, extent);
  if (!rabbet_onnx_ok(node) || rabbet_onnx_is_static(same)) return;
  rabbet_onnx_assert(node,
                     rabbet_onnx_cast(node, same.tensor, RABBET_DTYPE_BOOL),
                     "the sizes of a split add up to the extent that is split");
}

// Each element of the axis is a part.
static rabbet_onnx_told_t onnx_split_stacked(rabbet_onnx_node_t* node,
                                             rabbet_tensor_t* x, int axis,
                                             bool keep) {
  int64_t perm[RABBET_MAX_RANK];
  int rank = rabbet_onnx_rank(node, x);
  for (int i = 0; i < rank; ++i)
    perm[i] = i == 0 ? axis : i <= axis ? i - 1 : i;
  if (axis > 0) x = rabbet_onnx_transpose(node, x, perm);
  if (keep) x = rabbet_onnx_unsqueeze(node, x, 1u << (axis + 1), rank + 1);
  return (rabbet_onnx_told_t){.tensor = x};
}

// Where each part ends.
static rabbet_tensor_t* onnx_split_ends(rabbet_onnx_node_t* node,
                                        const onnx_parts_t* parts,
                                        rabbet_onnx_index_t extent) {
  const rabbet_attr_t axis = RABBET_ONNX_INT("axis", 0);
  if (parts->sizes) {
    rabbet_tensor_t* sizes =
        rabbet_onnx_cast(node, parts->sizes, RABBET_DTYPE_INT64);
    rabbet_tensor_t* sum = rabbet_onnx_reduce(node, "SUM", sizes, 1, true);
    onnx_check_sum(node, (rabbet_onnx_index_t){.tensor = sum}, extent);
    return rabbet_onnx_layer(node, "cumulative", &sizes, 1, &axis, 1);
  }
  rabbet_onnx_index_t count = rabbet_onnx_ceil_div(node, extent, parts->chunk);
  rabbet_tensor_t* ends = rabbet_onnx_told_even_ends(node, count, parts->chunk);
  return rabbet_onnx_binary(node, "MIN", ends,
                            rabbet_onnx_index_vector(node, &extent, 1));
}

// Into as many parts as a run tells.
static rabbet_tensor_t* onnx_split_in_run(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* x, int axis,
                                          const onnx_parts_t* parts,
                                          rabbet_onnx_index_t extent,
                                          bool keep) {
  rabbet_onnx_told_t told = {.tensor = x, .axis = axis};
  if (parts->are_ones && parts->sizes)
    onnx_check_sum(node, rabbet_onnx_extent(node, parts->sizes, 0), extent);
  if (parts->are_ones)
    told = onnx_split_stacked(node, x, axis, keep);
  else
    told.ends = onnx_split_ends(node, parts, extent);
  rabbet_onnx_hold_like(node, told.tensor, x);
  return rabbet_onnx_list_handle(
      rabbet_onnx_list_of(node, rabbet_onnx_dtype_of(node, x), told));
}

static void onnx_import_split_to_sequence(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int axis = rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", 0),
                              rabbet_onnx_rank(node, x));
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_index_t extent = slice.size[axis], at = rabbet_onnx_index(0);
  onnx_parts_t parts = onnx_parts(node, extent);
  // As ONNX Runtime has it; ONNX ignores the attribute where parts are given,
  // but torch writes it for those of extent 1.
  bool keep = parts.sizes || !parts.are_ones ||
              rabbet_onnx_attr_int(node, "keepdims", 1) != 0;
  if (!parts.is_known) {
    node->outputs[0] = onnx_split_in_run(node, x, axis, &parts, extent, keep);
    return;
  }
  rabbet_onnx_list_t* list =
      rabbet_onnx_list_make(node, rabbet_onnx_dtype_of(node, x), parts.count);
  for (size_t i = 0; list && i < parts.count && rabbet_onnx_ok(node); ++i) {
    slice.start[axis] = at;
    slice.size[axis] = onnx_part(node, &parts, i, extent);
    at = rabbet_onnx_index_op(node, "SUM", at, slice.size[axis]);
    rabbet_tensor_t* part = rabbet_onnx_slice(node, x, &slice);
    list->items[i] = keep ? part : rabbet_onnx_squeeze(node, part, 1u << axis);
    rabbet_onnx_hold_like(node, list->items[i], x);
  }
  if (rabbet_onnx_ok(node) && rabbet_onnx_is_static(at) &&
      rabbet_onnx_is_static(extent) && at.value != extent.value)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the sizes of input 1 ('split') add up to %lld; expected "
                     "the extent of axis %d, %lld",
                     (long long)at.value, axis, (long long)extent.value);
  node->outputs[0] = rabbet_onnx_list_handle(list);
}

static void onnx_import_concat_from_sequence(rabbet_onnx_node_t* node) {
  const rabbet_onnx_list_t* list = onnx_sequence(node, 0);
  bool stack = rabbet_onnx_attr_int(node, "new_axis", 0) != 0;
  if (!rabbet_onnx_ok(node)) return;
  if (!rabbet_onnx_list_is_known(list)) {
    node->outputs[0] = rabbet_onnx_list_concat(
        node, list, rabbet_onnx_attr_int(node, "axis", 0), stack);
    return;
  }
  if (list->count == 0) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 ('%s') is an empty sequence; the result would "
                     "have no shape",
                     node->proto->input[0]);
    return;
  }
  int rank = rabbet_onnx_rank(node, list->items[0]) + stack;
  int axis =
      rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", 0), rank);
  rabbet_tensor_t** items = NULL;
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(&node->importer->arena, list->count,
                                        sizeof(*items), (void**)&items));
  for (size_t i = 0; i < list->count && rabbet_onnx_ok(node); ++i)
    items[i] =
        stack ? rabbet_onnx_unsqueeze(node, list->items[i], 1u << axis, rank)
              : list->items[i];
  if (!rabbet_onnx_ok(node)) return;
  node->outputs[0] = list->count == 1
                         ? items[0]
                         : rabbet_onnx_concat(node, items, list->count, axis);
  rabbet_onnx_hold_like(node, node->outputs[0], list->items[0]);
}

// ---- SequenceMap -----------------------------------------------------------

// The body for item `at`: its inputs are the sequences' items, and tensors as
// they are. Its outputs go to the items of `lists`.
static rabbet_status_t onnx_map_item(rabbet_onnx_node_t* node,
                                     const Onnx__GraphProto* body, size_t at,
                                     rabbet_onnx_scope_t* scope,
                                     rabbet_onnx_list_t** lists) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
      &node->importer->arena, &scope->prefix, "%s[%zu]/", node->name, at));
  RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_enter(scope, body));
  for (size_t i = 0; i < body->n_input; ++i) {
    const rabbet_onnx_list_t* list = rabbet_onnx_list(node->inputs[i]);
    rabbet_tensor_t* x = list ? list->items[at] : node->inputs[i];
    const char* name = body->input[i]->name;
    RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_bind(scope, name ? name : "", x));
  }
  RABBET_RETURN_IF_ERROR(rabbet_onnx_import_nodes(scope));
  for (size_t i = 0; i < node->output_count; ++i) {
    const char* name = body->output[i]->name;
    RABBET_RETURN_IF_ERROR(rabbet_onnx_scope_lookup(scope, name ? name : "",
                                                    &lists[i]->items[at]));
    if (rabbet_onnx_list(lists[i]->items[at]))
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "output %zu of the body is no tensor", i);
  }
  return rabbet_ok();
}

static rabbet_dtype_t onnx_declared_dtype(rabbet_onnx_node_t* node,
                                          const Onnx__ValueInfoProto* info) {
  const Onnx__TypeProto* type = info->type;
  rabbet_dtype_t dtype = RABBET_DTYPE_FLOAT;
  if (type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
    rabbet_onnx_fail(
        node, rabbet_onnx_node_dtype(node, type->tensor_type->elem_type, &dtype,
                                     NULL));
  return dtype;
}

static bool onnx_map_fits(rabbet_onnx_node_t* node,
                          const Onnx__GraphProto* body, size_t count) {
  if (!body || node->scope->depth >= RABBET_ONNX_MAX_SCOPES)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the body is missing, or nested over %d deep",
                     RABBET_ONNX_MAX_SCOPES);
  else if (body->n_input != node->input_count ||
           body->n_output < node->output_count)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the body has %zu inputs and %zu outputs; expected %zu "
                     "and %zu, as the node has",
                     body->n_input, body->n_output, node->input_count,
                     node->output_count);
  for (size_t i = 1; i < node->input_count && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_required(node, i);
    const rabbet_onnx_list_t* list = rabbet_onnx_list(node->inputs[i]);
    if (list && (list->is_optional || list->count != count))
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "input %zu ('%s') has %zu tensors; expected %zu, as "
                       "input 0 has",
                       i, node->proto->input[i], list->count, count);
  }
  return rabbet_onnx_ok(node);
}

static void onnx_import_sequence_map(rabbet_onnx_node_t* node) {
  const rabbet_onnx_list_t* first = onnx_sequence(node, 0);
  const Onnx__GraphProto* body = rabbet_onnx_attr_graph(node, "body");
  rabbet_onnx_list_t** lists = NULL;
  for (size_t i = 0; i < node->input_count && rabbet_onnx_ok(node); ++i) {
    const rabbet_onnx_list_t* list = rabbet_onnx_list(node->inputs[i]);
    if (list && !rabbet_onnx_list_is_known(list))
      RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                       "the length of input %zu ('%s') is known in a run alone",
                       i, node->proto->input[i]);
  }
  if (!rabbet_onnx_ok(node) || !onnx_map_fits(node, body, first->count)) return;
  rabbet_onnx_fail(node, rabbet_arena_allocate_array(
                             &node->importer->arena, node->output_count,
                             sizeof(*lists), (void**)&lists));
  for (size_t i = 0; i < node->output_count && rabbet_onnx_ok(node); ++i) {
    lists[i] = rabbet_onnx_list_make(
        node, onnx_declared_dtype(node, body->output[i]), first->count);
    node->outputs[i] = rabbet_onnx_list_handle(lists[i]);
  }
  for (size_t i = 0; i < first->count && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_scope_t scope;
    rabbet_onnx_scope_initialize(node->importer, node->scope, &scope);
    rabbet_status_t status = onnx_map_item(node, body, i, &scope, lists);
    rabbet_onnx_scope_deinitialize(&scope);
    rabbet_onnx_fail(node, RABBET_ANNOTATE(status, "item %zu", i));
  }
}

// ---- Optional values -------------------------------------------------------

static bool onnx_has_element(const rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_input(node, 0);
  const rabbet_onnx_list_t* list = rabbet_onnx_list(x);
  return x && !(list && list->is_optional);
}

// An optional value that exists is the tensor or list itself.
static void onnx_import_optional(rabbet_onnx_node_t* node) {
  node->outputs[0] = rabbet_onnx_input(node, 0);
  if (node->outputs[0]) return;
  rabbet_onnx_list_t* list = rabbet_onnx_list_make(node, RABBET_DTYPE_NONE, 0);
  if (list) list->is_optional = true;
  node->outputs[0] = rabbet_onnx_list_handle(list);
}

static void onnx_import_optional_has_element(rabbet_onnx_node_t* node) {
  node->outputs[0] =
      rabbet_onnx_number(node, RABBET_DTYPE_BOOL, 0, onnx_has_element(node));
}

static void onnx_import_optional_get_element(rabbet_onnx_node_t* node) {
  if (!onnx_has_element(node))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 is an optional value without an element");
  node->outputs[0] = rabbet_onnx_input(node, 0);
}

RABBET_ONNX_OPERATORS(sequence) = {
    RABBET_ONNX_LIST_OP(ConcatFromSequence, concat_from_sequence, "", 11),
    RABBET_ONNX_LIST_OP(Optional, optional, "", 15, 28),
    RABBET_ONNX_LIST_OP(OptionalGetElement, optional_get_element, "", 15, 18,
                        28),
    RABBET_ONNX_LIST_OP(OptionalHasElement, optional_has_element, "", 15, 18,
                        28),
    RABBET_ONNX_LIST_OP(SequenceAt, sequence_at, "", 11),
    RABBET_ONNX_LIST_OP(SequenceConstruct, sequence_construct, "", 11),
    RABBET_ONNX_OP(SequenceEmpty, sequence_empty, "", 11),
    RABBET_ONNX_LIST_OP(SequenceErase, sequence_erase, "", 11),
    RABBET_ONNX_LIST_OP(SequenceInsert, sequence_insert, "", 11),
    RABBET_ONNX_LIST_OP(SequenceLength, sequence_length, "", 11),
    RABBET_ONNX_LIST_OP(SequenceMap, sequence_map, "", 17),
    RABBET_ONNX_OP(SplitToSequence, split_to_sequence, "", 11, 24),
    {0},
};
