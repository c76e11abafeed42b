#include "builder/propose/propose.h"

#include <assert.h>
#include <string.h>

#include "base/strbuf.h"
#include "builder/emit/concatenations.h"
#include "builder/propose/kept_proposals.h"
#include "builder/propose/trial.h"
#include "core/view.h"
#include "ops/collective/dist_collective.h"

typedef struct proposer_t {
  rabbet_build_t* build;
  rabbet_unit_t* unit;
  const rabbet_kernel_class_t* kernel_class;
  const rabbet_type_format_t* fixed;
  RABBET_VEC(rabbet_choice_t) choices;
  // Candidates that were offered but may not be used, for the error message.
  rabbet_strbuf_t* rejected;
  int rejected_count;
  const rabbet_hash_t* known_key;  // of the candidate that comes; or NULL
  // The bytes of the candidates to keep; NULL once they cannot be kept.
  rabbet_strbuf_t* keeps;
  const rabbet_asked_classes_t* classes;
} proposer_t;

// ---- Types that the network allows -----------------------------------------

static bool propose_dtype_allowed(const proposer_t* p,
                                  const rabbet_ir_value_t* value,
                                  const rabbet_type_format_t* type,
                                  bool is_output) {
  // A network output is converted if necessary.
  if (is_output && value->wished != RABBET_DTYPE_NONE && value->output < 0)
    return type->dtype == value->wished;
  if (type->dtype == value->dtype) return true;
  if (p->build->ir.strongly_typed || value->values) return false;
  return rabbet_dtype_is_float(type->dtype) &&
         rabbet_dtype_is_float(value->dtype) &&
         type->dtype != RABBET_DTYPE_DOUBLE &&
         value->dtype != RABBET_DTYPE_DOUBLE;
}

// Whether the unit works element by element and broadcasts this input: it is
// read in its own type, for any type of the arithmetic.
static bool propose_is_spread(const proposer_t* p,
                              const rabbet_ir_value_t* value) {
  assert(p->unit->group.output_count > 0);
  const rabbet_ir_t* ir = &p->build->ir;
  const rabbet_unit_t* unit = p->unit;
  for (size_t i = 0; i < unit->node_count; ++i)
    if (!(unit->nodes[i]->op->flags & RABBET_OP_POINTWISE)) return false;
  const rabbet_ir_value_t* output =
      rabbet_ir_value(ir, unit->values[unit->group.outputs[0]]);
  return !rabbet_ir_shape_equal(&value->shape, &output->shape);
}

// A layer of a set precision gets its floating-point inputs in that type.
static bool propose_precision_allowed(const proposer_t* p,
                                      const rabbet_ir_value_t* value,
                                      const rabbet_type_format_t* type,
                                      bool is_output) {
  if (is_output || value->constant || !rabbet_dtype_is_float(value->dtype) ||
      propose_is_spread(p, value))
    return true;
  for (size_t i = 0; i < p->unit->node_count; ++i) {
    rabbet_dtype_t precision = p->unit->nodes[i]->precision;
    if (precision != RABBET_DTYPE_NONE && precision != type->dtype)
      return false;
  }
  return true;
}

static bool propose_allowed(const proposer_t* p,
                            const rabbet_candidate_t* candidate) {
  const rabbet_group_t* group = &p->unit->group;
  size_t boundary = group->input_count + group->output_count;
  if (p->fixed)
    return memcmp(p->fixed, candidate->tensors, boundary * sizeof(*p->fixed)) ==
           0;
  for (size_t i = 0; i < boundary; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_value(
        &p->build->ir, p->unit->values[rabbet_group_boundary(group, i)]);
    const rabbet_type_format_t* type = &candidate->tensors[i];
    bool is_output = i >= group->input_count;
    if (!propose_dtype_allowed(p, value, type, is_output) ||
        !propose_precision_allowed(p, value, type, is_output))
      return false;
    // A value that the host knows is written row-major, and converted for
    // readers of other formats.
    if (is_output && value->values && type->format != RABBET_FORMAT_LINEAR)
      return false;
  }
  return true;
}

// ---- Collecting -------------------------------------------------------------

static rabbet_status_t propose_key(proposer_t* p, rabbet_choice_t* choice) {
  rabbet_build_t* build = p->build;
  if (p->known_key) {
    choice->key = *p->known_key;
    choice->cacheable = true;
    return rabbet_ok();
  }
  rabbet_group_t group;
  RABBET_RETURN_IF_ERROR(rabbet_unit_set_types(build, p->unit, choice, &group));
  const rabbet_kernel_class_t* kernel = choice->candidate.kernel;
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(build->allocator, &text);
  rabbet_strbuf_printf(&text, "%s\n%s %u %d\nthreads %d\n",
                       build->device->vtable->signature(build->device),
                       kernel->name, kernel->version, choice->candidate.tactic,
                       build->threads);
  if (build->has_cold_weights)
    rabbet_strbuf_printf(&text, "weights from memory\n");
  if (kernel->library_version)
    rabbet_strbuf_printf(
        &text, "library %llu\n",
        (unsigned long long)kernel->library_version(build->device));
  rabbet_status_t status =
      rabbet_group_signature(&group, &choice->cacheable, &text);
  if (rabbet_is_ok(status)) status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status)) choice->key = rabbet_hash128(text.data, text.size);
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static rabbet_status_t propose_copy(proposer_t* p,
                                    const rabbet_candidate_t* candidate,
                                    rabbet_choice_t* out_choice) {
  rabbet_arena_t* arena = &p->build->arena;
  const rabbet_group_t* group = &p->unit->group;
  *out_choice = (rabbet_choice_t){.candidate = *candidate, .us = -1};
  rabbet_candidate_t* copy = &out_choice->candidate;
  copy->tactic_name[sizeof(copy->tactic_name) - 1] = '\0';
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      arena, candidate->tensors,
      (group->input_count + group->output_count) * sizeof(*copy->tensors),
      (void**)&copy->tensors));
  size_t bytes = group->output_count * sizeof(int32_t);
  if (candidate->in_place)
    RABBET_RETURN_IF_ERROR(rabbet_arena_copy(arena, candidate->in_place, bytes,
                                             (void**)&copy->in_place));
  if (candidate->aliased)
    RABBET_RETURN_IF_ERROR(rabbet_arena_copy(arena, candidate->aliased, bytes,
                                             (void**)&copy->aliased));
  if (candidate->artifact.size > 0) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(arena, candidate->artifact.name,
                                               &copy->artifact.name));
    RABBET_RETURN_IF_ERROR(rabbet_arena_copy(arena, candidate->artifact.data,
                                             candidate->artifact.size,
                                             (void**)&copy->artifact.data));
  }
  return propose_key(p, out_choice);
}

static void propose_note(proposer_t* p, const rabbet_candidate_t* candidate) {
  if (!p->rejected || ++p->rejected_count > 4) return;
  const rabbet_group_t* group = &p->unit->group;
  size_t boundary = group->input_count + group->output_count;
  rabbet_strbuf_printf(p->rejected, "%s%s (", p->rejected_count > 1 ? "; " : "",
                       candidate->kernel->name);
  for (size_t i = 0; i < boundary; ++i)
    rabbet_strbuf_printf(p->rejected, "%s%s %s",
                         i == 0                    ? ""
                         : i == group->input_count ? " -> "
                                                   : ", ",
                         rabbet_dtype_name(candidate->tensors[i].dtype),
                         rabbet_format_name(candidate->tensors[i].format));
  rabbet_strbuf_printf(p->rejected, ")");
}

static rabbet_status_t propose_add(void* context,
                                   const rabbet_candidate_t* candidate) {
  proposer_t* p = context;
  rabbet_candidate_t named = *candidate;
  if (!named.kernel) named.kernel = p->kernel_class;
  int64_t cap = p->build->config->options[RABBET_BUILDER_OPTION_MAX_TACTICS];
  if (!propose_allowed(p, &named)) {
    propose_note(p, &named);
    return rabbet_ok();
  }
  if (cap >= 0 && (int64_t)p->choices.count >= (cap > 0 ? cap : 1))
    return rabbet_ok();
  assert(named.tensors && named.kernel);
  rabbet_choice_t choice;
  RABBET_RETURN_IF_ERROR(propose_copy(p, &named, &choice));
  return RABBET_VEC_PUSH(p->build->allocator, &p->choices, choice);
}

// The same memory costs nothing for any type.
static rabbet_status_t propose_view_of(proposer_t* p, rabbet_dtype_t dtype,
                                       rabbet_format_t from,
                                       rabbet_format_t to) {
  const rabbet_group_t* group = &p->unit->group;
  size_t boundary = group->input_count + group->output_count;
  rabbet_choice_t choice = {.candidate = {.tactic_name = "view"}, .us = 0};
  rabbet_type_format_t* tensors = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &p->build->arena, boundary, sizeof(*tensors), (void**)&tensors));
  for (size_t i = 0; i < boundary; ++i)
    tensors[i] = (rabbet_type_format_t){
        group->values[rabbet_group_boundary(group, i)].dtype,
        RABBET_FORMAT_LINEAR};
  assert(group->output_count == 1);
  tensors[0].dtype = tensors[boundary - 1].dtype = dtype;
  tensors[0].format = from;
  tensors[boundary - 1].format = to;
  choice.candidate.tensors = tensors;
  if (!propose_allowed(p, &choice.candidate)) return rabbet_ok();
  return RABBET_VEC_PUSH(p->build->allocator, &p->choices, choice);
}

// A conversion that never changes memory, for any shape. A conversion to the
// same format is a copy, which is intended.
static bool propose_is_nothing(const proposer_t* p) {
  const rabbet_group_t* group = &p->unit->group;
  if (!p->fixed || p->unit->node_count > 0 || group->input_count != 1 ||
      group->output_count != 1 || p->fixed[0].dtype != p->fixed[1].dtype ||
      p->fixed[0].format == p->fixed[1].format)
    return false;
  const rabbet_group_value_t* value = &group->values[group->inputs[0]];
  rabbet_dims_t dims = value->dims;
  for (int i = 0; i < dims.rank; ++i)
    if (value->min.d[i] != value->max.d[i]) dims.d[i] = -1;
  return rabbet_format_lies_alike(&dims, p->fixed[0].format,
                                  p->fixed[1].format);
}

static rabbet_status_t propose_nothing(proposer_t* p) {
  assert(p->fixed[0].dtype == p->fixed[1].dtype);
  rabbet_choice_t choice = {
      .candidate = {.tactic_name = "view", .tensors = p->fixed}, .us = 0};
  rabbet_type_format_t* tensors = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      &p->build->arena, p->fixed, 2 * sizeof(*tensors), (void**)&tensors));
  choice.candidate.tensors = tensors;
  return RABBET_VEC_PUSH(p->build->allocator, &p->choices, choice);
}

// Whether a view has the shape of its input, and may so be in any format.
static bool propose_keeps_shape(const proposer_t* p) {
  const rabbet_ir_t* ir = &p->build->ir;
  const rabbet_ir_node_t* node = p->unit->nodes[0];
  return rabbet_ir_shape_equal(&rabbet_ir_input(ir, node, 0)->shape,
                               &rabbet_ir_output(ir, node, 0)->shape);
}

// Whether the value has memory of the context's, as far as is known.
static bool propose_is_inner(const rabbet_ir_t* ir,
                             const rabbet_ir_value_t* value) {
  while (value->producer && !value->constant &&
         (rabbet_ir_is_view(ir, value->producer) ||
          rabbet_op_is(value->producer->op, RABBET_OP_SLICE)))
    value = rabbet_ir_input(ir, value->producer, 0);
  return value->producer && value->input < 0 && !value->constant &&
         !value->values;
}

// Whether the node is a slice that is a part of its input's memory, which
// begins at an aligned address in any type that the network allows.
static bool propose_is_part(const proposer_t* p) {
  const rabbet_ir_t* ir = &p->build->ir;
  const rabbet_ir_node_t* node = p->unit->nodes[0];
  int64_t first = 0;
  if (!rabbet_ir_is_part(ir, node, &first) ||
      rabbet_ir_output(ir, node, 0)->output >= 0 ||
      !propose_is_inner(ir, rabbet_ir_input(ir, node, 0)))
    return false;
  uint32_t dtypes =
      p->build->extra_dtypes | 1u << rabbet_ir_output(ir, node, 0)->dtype;
  for (int dtype = 0; dtype < RABBET_DTYPE_COUNT; ++dtype) {
    int64_t bits = rabbet_dtype_bits((rabbet_dtype_t)dtype);
    if ((dtypes >> dtype & 1) != 0 &&
        (bits < 8 || first * bits / 8 % RABBET_LAYOUT_PART_ALIGNMENT != 0))
      return false;
  }
  return true;
}

// A view in each type that the network allows.
static rabbet_status_t propose_view_types(proposer_t* p, rabbet_format_t from,
                                          rabbet_format_t to) {
  const rabbet_group_t* group = &p->unit->group;
  rabbet_dtype_t own = group->values[group->inputs[0]].dtype;
  RABBET_RETURN_IF_ERROR(propose_view_of(p, own, from, to));
  for (int dtype = 0; dtype < RABBET_DTYPE_COUNT; ++dtype)
    if (dtype != (int)own && (p->build->extra_dtypes >> dtype & 1) != 0)
      RABBET_RETURN_IF_ERROR(
          propose_view_of(p, (rabbet_dtype_t)dtype, from, to));
  return rabbet_ok();
}

// Transposes of images are views from one format to another, beside kernels for
// the formats of those around them.
static rabbet_status_t propose_turned_views(proposer_t* p) {
  if (p->fixed || p->unit->node_count != 1 || p->build->level == 0 ||
      !rabbet_op_is(p->unit->nodes[0]->op, RABBET_OP_SHUFFLE))
    return rabbet_ok();
  static const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR,
                                            RABBET_FORMAT_HWC};
  const rabbet_group_t* group = &p->unit->group;
  const rabbet_ir_node_t* node = p->unit->nodes[0];
  const int32_t least = rabbet_format_info(RABBET_FORMAT_HWC)->min_rank;
  int32_t ranks[2] = {group->values[group->inputs[0]].dims.rank,
                      group->values[group->outputs[0]].dims.rank};
  if (rabbet_ir_is_view(&p->build->ir, node) && propose_keeps_shape(p))
    return rabbet_ok();  // in any format
  for (int i = 1; i < 4; ++i) {
    int from = i / 2, to = i % 2;
    if ((from && ranks[0] < least) || (to && ranks[1] < least) ||
        !rabbet_ir_is_view_between(&p->build->ir, node, formats[from],
                                   formats[to]))
      continue;
    RABBET_RETURN_IF_ERROR(propose_view_types(p, formats[from], formats[to]));
  }
  return rabbet_ok();
}

static rabbet_status_t propose_views(proposer_t* p) {
  const rabbet_unit_t* unit = p->unit;
  if (p->fixed || unit->node_count != 1 ||
      (!rabbet_ir_is_view(&p->build->ir, unit->nodes[0]) &&
       !propose_is_part(p)))
    return rabbet_ok();
  uint64_t formats = UINT64_C(1) << RABBET_FORMAT_LINEAR;
  if (propose_keeps_shape(p)) formats |= p->build->formats;
  int32_t rank = unit->group.values[unit->group.inputs[0]].dims.rank;
  for (int format = 0; format < 64; ++format) {
    const rabbet_format_info_t* info =
        rabbet_format_info((rabbet_format_t)format);
    if (!(formats >> format & 1) || !info || rank < info->min_rank ||
        (info->block > 1 && rank >= RABBET_MAX_RANK))
      continue;
    RABBET_RETURN_IF_ERROR(propose_view_types(p, (rabbet_format_t)format,
                                              (rabbet_format_t)format));
  }
  return rabbet_ok();
}

// A concatenation in each type that a kernel offers for all its tensors.
static rabbet_status_t propose_joins(proposer_t* p) {
  const rabbet_group_t* group = &p->unit->group;
  size_t boundary = group->input_count + group->output_count;
  size_t offered = p->fixed ? 0 : p->choices.count;
  for (size_t i = 0; i < offered; ++i) {
    const rabbet_type_format_t* types = p->choices.data[i].candidate.tensors;
    bool wanted = rabbet_concatenation_can_be_view(p->build, p->unit, types[0]);
    for (size_t k = 1; wanted && k < boundary; ++k)
      wanted = memcmp(&types[k], &types[0], sizeof(*types)) == 0;
    for (size_t k = offered; wanted && k < p->choices.count; ++k)
      wanted = memcmp(p->choices.data[k].candidate.tensors, types,
                      sizeof(*types)) != 0;
    if (!wanted) continue;
    rabbet_choice_t choice = {
        .candidate = {.tactic_name = "view", .tensors = types}, .us = 0};
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_PUSH(p->build->allocator, &p->choices, choice));
  }
  return rabbet_ok();
}

// ---- Nodes that may be left out ---------------------------------------------

// The tensor of a floating type that the node reads or makes.
static size_t propose_real(const proposer_t* p) {
  assert(rabbet_op_is(p->unit->nodes[0]->op, RABBET_OP_QUANTIZE) ||
         rabbet_op_is(p->unit->nodes[0]->op, RABBET_OP_DEQUANTIZE));
  return rabbet_op_is(p->unit->nodes[0]->op, RABBET_OP_QUANTIZE)
             ? 0
             : p->unit->group.input_count;
}

static bool propose_has_left_out(const proposer_t* p,
                                 rabbet_type_format_t type) {
  for (size_t i = 0; i < p->choices.count; ++i) {
    const rabbet_candidate_t* candidate = &p->choices.data[i].candidate;
    if (!candidate->kernel &&
        memcmp(&candidate->tensors[0], &type, sizeof(type)) == 0)
      return true;
  }
  return false;
}

// Offers each type and format in which a kernel takes the original numbers.
static rabbet_status_t propose_left_out(proposer_t* p) {
  const rabbet_group_t* group = &p->unit->group;
  size_t boundary = group->input_count + group->output_count;
  if (p->fixed || p->unit->node_count != 1 || !p->unit->nodes[0]->is_optional)
    return rabbet_ok();
  size_t offered = p->choices.count, real = propose_real(p);
  for (size_t i = 0; i < offered; ++i) {
    rabbet_type_format_t type = p->choices.data[i].candidate.tensors[real];
    if (propose_has_left_out(p, type)) continue;
    rabbet_type_format_t* tensors = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
        &p->build->arena, p->choices.data[i].candidate.tensors,
        boundary * sizeof(*tensors), (void**)&tensors));
    tensors[0] = tensors[group->input_count] = type;
    rabbet_choice_t choice = {
        .candidate = {.tactic_name = "view", .tensors = tensors}, .us = 0};
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_PUSH(p->build->allocator, &p->choices, choice));
  }
  return rabbet_ok();
}

// Whether the user allows the library that the kernels come from.
static bool propose_has_source(const proposer_t* p,
                               const rabbet_kernel_class_t* kernel) {
  int64_t allowed =
      p->build->config->options[RABBET_BUILDER_OPTION_TACTIC_SOURCES];
  return kernel->tactic_sources == 0 ||
         (kernel->tactic_sources & (uint64_t)allowed) != 0;
}

// A candidate that a class offers, which is noted.
static rabbet_status_t propose_add_fresh(void* context,
                                         const rabbet_candidate_t* candidate) {
  proposer_t* p = context;
  size_t before = p->choices.count;
  RABBET_RETURN_IF_ERROR(propose_add(p, candidate));
  if (!p->keeps) return rabbet_ok();
  rabbet_kept_candidate_t kept = {.candidate = *candidate};
  if (!kept.candidate.kernel) kept.candidate.kernel = p->kernel_class;
  if (p->choices.count > before) {
    const rabbet_choice_t* choice = &p->choices.data[before];
    kept.key = choice->key;
    kept.has_key = choice->cacheable;
  }
  if (!rabbet_kept_proposals_add(p->keeps, &p->unit->group, p->classes, &kept))
    p->keeps = NULL;
  return rabbet_ok();
}

static rabbet_status_t propose_ask_classes(proposer_t* p,
                                           const rabbet_propose_t* question) {
  rabbet_candidate_sink_t sink = {p, propose_add_fresh};
  const rabbet_asked_classes_t* classes = p->classes;
  for (size_t i = 0; i < classes->count; ++i) {
    const rabbet_kernel_class_t* kernel = classes->list[i];
    if ((kernel->flags & RABBET_KERNEL_FALLBACK) != classes->flag ||
        propose_has_source(p, kernel) != classes->allowed ||
        !rabbet_kernel_may_take(kernel, &p->unit->group))
      continue;
    p->kernel_class = kernel;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(kernel->propose(question, sink),
                                           "layer '%s'", p->unit->name));
  }
  return rabbet_ok();
}

// The classes' offers, from the timing cache if it has them.
static rabbet_status_t propose_ask_kept(proposer_t* p,
                                        const rabbet_propose_t* question) {
  rabbet_build_t* build = p->build;
  rabbet_hash_t key;
  rabbet_kept_candidate_t* kept = NULL;
  size_t count = 0;
  bool keeps = false, found = false;
  RABBET_RETURN_IF_ERROR(
      rabbet_kept_proposals_key(build, question, p->classes, &key, &keeps));
  if (!keeps) return propose_ask_classes(p, question);
  RABBET_RETURN_IF_ERROR(rabbet_kept_proposals_find(
      build, key, question->group, p->classes, &kept, &count, &found));
  for (size_t i = 0; found && i < count; ++i) {
    p->known_key = kept[i].has_key ? &kept[i].key : NULL;
    rabbet_status_t status = propose_add(p, &kept[i].candidate);
    p->known_key = NULL;
    RABBET_RETURN_IF_ERROR(status);
  }
  if (found) return rabbet_ok();
  rabbet_strbuf_t bytes;
  rabbet_strbuf_initialize(build->allocator, &bytes);
  p->keeps = &bytes;
  rabbet_status_t status = propose_ask_classes(p, question);
  if (rabbet_is_ok(status) && p->keeps)
    status = rabbet_kept_proposals_put(build, key, &bytes);
  p->keeps = NULL;
  rabbet_strbuf_deinitialize(&bytes);
  return status;
}

// Classes with the flag, of libraries that are allowed or (`allowed` false) of
// the others.
static rabbet_status_t propose_ask(proposer_t* p, uint32_t flag, bool allowed) {
  rabbet_build_t* build = p->build;
  const int64_t* options = build->config->options;
  rabbet_asked_classes_t classes = {
      .flag = flag,
      .allowed = allowed,
      .sources = options[RABBET_BUILDER_OPTION_TACTIC_SOURCES]};
  classes.list =
      build->device->vtable->kernel_classes(build->device, &classes.count);
  rabbet_propose_t question = {
      .device = build->device,
      .group = &p->unit->group,
      .extra_dtypes = build->extra_dtypes,
      .tf32 = (options[RABBET_BUILDER_OPTION_FLAGS] >> RABBET_BUILDER_TF32 &
               1) != 0,
      .fixed = p->fixed,
      .formats = build->formats,
      .threads = build->threads,
      .optimization_level = build->level,
      .allocator = build->allocator,
      .asker = rabbet_trials_asker(build->trials, p->unit->name),
  };
  for (size_t i = 0; i < p->unit->node_count; ++i) {
    rabbet_dtype_t precision = p->unit->nodes[i]->precision;
    if (precision != RABBET_DTYPE_NONE)
      question.extra_dtypes |= 1u << precision;
  }
  p->classes = &classes;
  rabbet_status_t status = propose_ask_kept(p, &question);
  p->classes = NULL;
  return status;
}

// Fallbacks are offered for groups of several nodes only on a device that has
// nothing else. On other devices one slow kernel for many nodes would replace
// fast kernels for each.
static bool propose_may_fall_back(const proposer_t* p) {
  if (p->unit->node_count <= 1) return true;
  size_t count = 0;
  const rabbet_kernel_class_t* const* classes =
      p->build->device->vtable->kernel_classes(p->build->device, &count);
  for (size_t i = 0; i < count; ++i)
    if ((classes[i]->flags & RABBET_KERNEL_FALLBACK) == 0 &&
        classes[i] != &rabbet_plugin_kernel_class)
      return false;
  return true;
}

// If no other class computes the group, libraries that were left out do.
static rabbet_status_t propose_other_sources(proposer_t* p) {
  RABBET_RETURN_IF_ERROR(propose_ask(p, 0, false));
  if (p->choices.count > 0)
    rabbet_log(p->build->logger, RABBET_SEVERITY_WARNING,
               "layer '%s' is computed by %s: no kernel of the tactic sources "
               "that are allowed computes it",
               p->unit->name, p->choices.data[0].candidate.kernel->name);
  return rabbet_ok();
}

const rabbet_kernel_class_t rabbet_call_class = {.name = "sequences"};

// One way: in the types of the network, which the sequences have.
static rabbet_status_t propose_call(proposer_t* p) {
  const rabbet_group_t* group = &p->unit->group;
  size_t count = group->input_count + group->output_count;
  rabbet_type_format_t* tensors = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &p->build->arena, count, sizeof(*tensors), (void**)&tensors));
  for (size_t i = 0; i < count; ++i)
    tensors[i] = (rabbet_type_format_t){
        group->values[rabbet_group_boundary(group, i)].dtype,
        RABBET_FORMAT_LINEAR};
  const rabbet_choice_t choice = {.candidate = {.kernel = &rabbet_call_class,
                                                .tactic_name = "",
                                                .tensors = tensors}};
  return RABBET_VEC_PUSH(p->build->allocator, &p->choices, choice);
}

static rabbet_status_t propose_all(proposer_t* p) {
  if (p->unit->node_count == 1 && p->unit->nodes[0]->bodies)
    return propose_call(p);
  if (propose_is_nothing(p)) return propose_nothing(p);
  RABBET_RETURN_IF_ERROR(propose_views(p));
  if (p->choices.count > 0 && p->build->level == 0) return rabbet_ok();
  // Empty tensors need no fast kernel, and libraries reject them.
  if (p->unit->node_count > 0 && rabbet_group_makes_nothing(&p->unit->group)) {
    if (p->unit->node_count == 1)
      RABBET_RETURN_IF_ERROR(propose_ask(p, RABBET_KERNEL_FALLBACK, true));
    if (p->choices.count > 0 || p->unit->node_count > 1) return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(propose_ask(p, 0, true));
  if (p->choices.count == 0 && propose_may_fall_back(p))
    RABBET_RETURN_IF_ERROR(propose_ask(p, RABBET_KERNEL_FALLBACK, true));
  if (p->choices.count == 0 && p->unit->node_count <= 1)
    RABBET_RETURN_IF_ERROR(propose_other_sources(p));
  RABBET_RETURN_IF_ERROR(propose_turned_views(p));
  RABBET_RETURN_IF_ERROR(propose_left_out(p));
  return propose_joins(p);
}

rabbet_status_t rabbet_unit_propose(rabbet_build_t* build, rabbet_unit_t* unit,
                                    const rabbet_type_format_t* fixed) {
  if (unit->proposed) return rabbet_ok();
  proposer_t p = {.build = build, .unit = unit, .fixed = fixed};
  rabbet_status_t status = propose_all(&p);
  if (rabbet_is_ok(status))
    status = rabbet_arena_copy(&build->arena, p.choices.data,
                               p.choices.count * sizeof(*p.choices.data),
                               (void**)&unit->choices);
  if (rabbet_is_ok(status)) {
    unit->choice_count = p.choices.count;
    unit->proposed = true;
    unit->is_guess = rabbet_trials_take_guess(build->trials);
  }
  rabbet_vec_free(build->allocator, &p.choices);
  return status;
}

// ---- The error --------------------------------------------------------------

static void propose_print_tensors(const rabbet_unit_t* unit,
                                  rabbet_strbuf_t* text) {
  const rabbet_group_t* group = &unit->group;
  size_t boundary = group->input_count + group->output_count;
  char dims[160];
  for (size_t i = 0; i < boundary; ++i) {
    const rabbet_group_value_t* value =
        &group->values[rabbet_group_boundary(group, i)];
    rabbet_strbuf_printf(text, "%s%s %s",
                         i == group->input_count ? " -> "
                         : i > 0                 ? ", "
                                                 : "",
                         rabbet_dtype_name(value->dtype),
                         rabbet_dims_print(&value->dims, dims, sizeof(dims)));
  }
}

static bool propose_has_double(const proposer_t* p) {
  const rabbet_group_t* group = &p->unit->group;
  for (size_t i = 0; i < group->value_count; ++i)
    if (group->values[i].dtype == RABBET_DTYPE_DOUBLE) return true;
  return false;
}

static rabbet_status_t propose_explain(proposer_t* p, rabbet_strbuf_t* tensors,
                                       rabbet_strbuf_t* offers) {
  rabbet_build_t* build = p->build;
  propose_print_tensors(p->unit, tensors);
  p->rejected = offers;
  RABBET_RETURN_IF_ERROR(propose_ask(p, 0, true));
  RABBET_RETURN_IF_ERROR(propose_ask(p, RABBET_KERNEL_FALLBACK, true));
  RABBET_RETURN_IF_ERROR(rabbet_strbuf_status(tensors));
  RABBET_RETURN_IF_ERROR(rabbet_strbuf_status(offers));
  const rabbet_ir_node_t* node = p->unit->nodes[0];
  const char* why =
      p->rejected_count == 0
          ? propose_has_double(p)
                ? "none of its kernels takes DOUBLE, which the CPU computes"
            : rabbet_collective_exchanges(node->op, node->attrs)
                ? "it exchanges nothing with other ranks; build for 'cuda'"
                : "none of its kernels takes them"
      : build->ir.strongly_typed
          ? "the network is strongly typed, which rules out its candidates"
          : "the types asked for rule out its candidates";
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "layer '%s' (%s): device '%s' has no kernel for %s: %s%s%s", node->name,
      node->op->name, build->device->name, rabbet_strbuf_text(tensors), why,
      p->rejected_count ? ": " : "", rabbet_strbuf_text(offers));
}

rabbet_status_t rabbet_unit_unsupported(rabbet_build_t* build,
                                        rabbet_unit_t* unit) {
  rabbet_strbuf_t tensors, offers;
  rabbet_strbuf_initialize(build->allocator, &tensors);
  rabbet_strbuf_initialize(build->allocator, &offers);
  proposer_t p = {.build = build, .unit = unit};
  rabbet_status_t status = propose_explain(&p, &tensors, &offers);
  rabbet_vec_free(build->allocator, &p.choices);
  rabbet_strbuf_deinitialize(&tensors);
  rabbet_strbuf_deinitialize(&offers);
  return status;
}
