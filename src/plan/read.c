// Bytes -> plan. Decoding checks only as much as building the plan safely
// needs; rabbet_plan_verify checks its meaning.
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "base/text.h"
#include "plan.pb-c.h"
#include "plan/check_shapes.h"
#include "plan/plan.h"
#include "plan/plan_file.h"
#include "plan/read.h"
#include "plan/verify.h"
#include "plan/wire_scan.h"

#define RABBET_META_MAX_DEPTH 8
#define RABBET_META_MAX_MEMORY ((size_t)1 << 30)

// ---- Helpers

rabbet_status_t rabbet_read_text(rabbet_plan_t* plan, const char* text,
                                 const char** out_text) {
  if (!rabbet_utf8_is_valid(text))
    return RABBET_DAMAGED("a name is not valid UTF-8");
  return rabbet_arena_strdup(&plan->arena, text, out_text);
}

rabbet_status_t rabbet_read_optional_text(rabbet_plan_t* plan, const char* text,
                                          const char** out_text) {
  *out_text = NULL;
  return *text ? rabbet_read_text(plan, text, out_text) : rabbet_ok();
}

rabbet_status_t rabbet_read_list(rabbet_plan_t* plan, const void* data,
                                 size_t count, size_t size,
                                 const void** out_copy) {
  // protobuf-c has allocated as much, so that this cannot overflow.
  return rabbet_arena_copy(&plan->arena, data, count * size,
                           (void**)(uintptr_t)out_copy);
}

rabbet_status_t rabbet_read_shape(const int32_t* dims, size_t count,
                                  rabbet_shape_t* out_shape) {
  if (count > RABBET_MAX_RANK)
    return RABBET_DAMAGED("rank %zu; at most %d is possible", count,
                          RABBET_MAX_RANK);
  assert(dims || count == 0);
  out_shape->rank = (int32_t)count;
  for (size_t i = 0; i < count; ++i)
    out_shape->d[i] = dims[i];
  return rabbet_ok();
}

// ---- Expressions

static rabbet_status_t read_symbol(rabbet_plan_sequence_t* sequence,
                                   const Rabbet__Plan__Sequence* message,
                                   const Rabbet__Plan__Expr* expr,
                                   rabbet_expr_t* out_expr) {
  size_t next = rabbet_expr_symbol_count(sequence->graph);
  if (expr->a < 0 || (size_t)expr->a != next || next >= message->n_symbols)
    return RABBET_DAMAGED("it is symbol %d; expected %zu of %zu", expr->a, next,
                          message->n_symbols);
  const Rabbet__Plan__Symbol* from = message->symbols[next];
  if (!rabbet_utf8_is_valid(from->name))
    return RABBET_DAMAGED("the name of symbol %zu is not valid UTF-8", next);
  rabbet_symbol_t symbol = {.kind = (rabbet_symbol_kind_t)from->kind,
                            .tensor = from->tensor,
                            .index = from->index,
                            .name = *from->name ? from->name : NULL,
                            .opt = from->opt,
                            .upper = from->upper};
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_of_symbol(sequence->graph, &symbol, out_expr));
  if (rabbet_expr_symbol_count(sequence->graph) != next + 1)
    return RABBET_DAMAGED("symbol %zu repeats an earlier one", next);
  return rabbet_ok();
}

static rabbet_status_t read_exprs(rabbet_plan_sequence_t* sequence,
                                  const Rabbet__Plan__Sequence* message) {
  for (size_t i = 0; i < message->n_exprs; ++i) {
    const Rabbet__Plan__Expr* from = message->exprs[i];
    rabbet_expr_t expr = RABBET_EXPR_NONE;
    rabbet_status_t status = rabbet_ok();
    if (from->op == RABBET_EXPR_SYMBOL) {
      status = read_symbol(sequence, message, from, &expr);
    } else {
      rabbet_expr_node_t node = {.op = (rabbet_expr_op_t)from->op,
                                 .a = from->a,
                                 .b = from->b,
                                 .value = from->value};
      status = rabbet_expr_append(sequence->graph, &node, &expr);
    }
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(status, "expression %zu", i));
  }
  if (rabbet_expr_symbol_count(sequence->graph) != message->n_symbols)
    return RABBET_DAMAGED("%zu of %zu symbols are used",
                          rabbet_expr_symbol_count(sequence->graph),
                          message->n_symbols);
  return rabbet_ok();
}

// ---- Values, inputs and outputs, profiles

static rabbet_status_t read_value(rabbet_plan_sequence_t* sequence,
                                  const Rabbet__Plan__Value* from,
                                  rabbet_plan_value_t* value) {
  value->dtype = (rabbet_dtype_t)from->dtype;
  value->format = (rabbet_format_t)from->format;
  value->storage = (rabbet_plan_storage_t)from->storage;
  value->io = from->io;
  value->offset = from->offset;
  value->size = from->size;
  value->alias = from->alias;
  RABBET_RETURN_IF_ERROR(
      rabbet_read_text(sequence->plan, from->name, &value->name));
  if (!from->has_host_values && from->n_host_values > 0)
    return RABBET_DAMAGED("value '%s' has host values although it has none",
                          value->name);
  if (from->has_host_values) {
    RABBET_RETURN_IF_ERROR(RABBET_READ_LIST(sequence->plan, from, host_values,
                                            &value->host_values));
    value->host_value_count = from->n_host_values;
  }
  return RABBET_ANNOTATE(
      rabbet_read_shape(from->shape, from->n_shape, &value->shape),
      "value '%s'", value->name);
}

static rabbet_status_t read_values(rabbet_plan_sequence_t* sequence,
                                   const Rabbet__Plan__Sequence* message) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, message->n_values, sizeof(*sequence->values),
      (void**)&sequence->values));
  sequence->value_count = message->n_values;
  for (size_t i = 0; i < message->n_values; ++i)
    RABBET_RETURN_IF_ERROR(
        read_value(sequence, message->values[i], &sequence->values[i]));
  return rabbet_ok();
}

static rabbet_status_t read_io(rabbet_plan_sequence_t* sequence,
                               const Rabbet__Plan__Io* from,
                               rabbet_plan_io_t* io) {
  io->is_input = from->is_input;
  io->is_shape_input = from->is_shape_input;
  io->value = from->value;
  io->aliased_input = from->aliased_input;
  io->is_debug = from->is_debug;
  RABBET_RETURN_IF_ERROR(
      rabbet_read_text(sequence->plan, from->name, &io->name));
  if (from->n_dim_names > RABBET_MAX_RANK)
    return RABBET_DAMAGED("'%s' has %zu names of dimensions", io->name,
                          from->n_dim_names);
  for (size_t i = 0; i < from->n_dim_names; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_read_optional_text(
        sequence->plan, from->dim_names[i], &io->dim_names[i]));
  return rabbet_ok();
}

static rabbet_status_t read_ios(rabbet_plan_sequence_t* sequence,
                                const Rabbet__Plan__Sequence* message) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, message->n_ios, sizeof(*sequence->ios),
      (void**)&sequence->ios));
  sequence->io_count = message->n_ios;
  if (message->input_count < 0 || (size_t)message->input_count > message->n_ios)
    return RABBET_DAMAGED("%d inputs among %zu inputs and outputs",
                          message->input_count, message->n_ios);
  sequence->input_count = (size_t)message->input_count;
  sequence->hidden_count = message->hidden_count;
  for (size_t i = 0; i < message->n_ios; ++i)
    RABBET_RETURN_IF_ERROR(
        read_io(sequence, message->ios[i], &sequence->ios[i]));
  return rabbet_ok();
}

static rabbet_status_t read_dims(const int64_t* data, size_t count,
                                 rabbet_dims_t* out_dims) {
  if (count > RABBET_MAX_RANK)
    return RABBET_DAMAGED("rank %zu; at most %d is possible", count,
                          RABBET_MAX_RANK);
  out_dims->rank = (int32_t)count;
  for (size_t i = 0; i < count; ++i)
    out_dims->d[i] = data[i];
  return rabbet_ok();
}

static rabbet_status_t read_range(rabbet_plan_t* plan,
                                  const Rabbet__Plan__Range* from,
                                  rabbet_plan_range_t* range) {
  RABBET_RETURN_IF_ERROR(read_dims(from->min, from->n_min, &range->min));
  RABBET_RETURN_IF_ERROR(read_dims(from->opt, from->n_opt, &range->opt));
  RABBET_RETURN_IF_ERROR(read_dims(from->max, from->n_max, &range->max));
  range->value_count = from->n_min_values;
  if (from->n_opt_values != from->n_min_values ||
      from->n_max_values != from->n_min_values)
    return RABBET_DAMAGED("a range has %zu, %zu and %zu values",
                          from->n_min_values, from->n_opt_values,
                          from->n_max_values);
  RABBET_RETURN_IF_ERROR(
      RABBET_READ_LIST(plan, from, min_values, &range->min_values));
  RABBET_RETURN_IF_ERROR(
      RABBET_READ_LIST(plan, from, opt_values, &range->opt_values));
  return RABBET_READ_LIST(plan, from, max_values, &range->max_values);
}

static rabbet_status_t read_profiles(rabbet_plan_sequence_t* sequence,
                                     const Rabbet__Plan__Sequence* message) {
  size_t count = 0, inputs = sequence->input_count;
  if (message->profile_count < 0)
    return RABBET_DAMAGED("it has %d profiles", message->profile_count);
  size_t profiles = message->profile_count > 0 ? (size_t)message->profile_count
                                               : sequence->plan->profile_count;
  sequence->profile_count = profiles;
  assert(inputs <= sequence->io_count);
  if (!rabbet_checked_mul(profiles, inputs, &count) ||
      count != message->n_ranges)
    return RABBET_DAMAGED("%zu profiles of %zu inputs have %zu ranges",
                          profiles, inputs, message->n_ranges);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, count, sizeof(*sequence->profiles),
      (void**)&sequence->profiles));
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        read_range(sequence->plan, message->ranges[i], &sequence->profiles[i]),
        "profile %zu, input '%s'", i / inputs, sequence->ios[i % inputs].name));
  return rabbet_ok();
}

// ---- Weights that can be refitted

static rabbet_status_t read_refits(rabbet_plan_t* plan,
                                   const Rabbet__Plan__Meta* meta) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, meta->n_weights, sizeof(*plan->refits),
      (void**)&plan->refits));
  plan->refit_count = meta->n_weights;
  plan->kept_size = meta->kept_size;
  plan->full_size = meta->full_size;
  for (size_t i = 0; i < meta->n_weights; ++i) {
    const Rabbet__Plan__Weights* from = meta->weights[i];
    rabbet_plan_weights_t* to = &plan->refits[i];
    to->role = from->role;
    to->dtype = (rabbet_dtype_t)from->dtype;
    to->value_count = from->n_values;
    RABBET_RETURN_IF_ERROR(rabbet_read_text(plan, from->name, &to->name));
    RABBET_RETURN_IF_ERROR(rabbet_read_text(plan, from->layer, &to->layer));
    RABBET_RETURN_IF_ERROR(RABBET_READ_LIST(plan, from, values, &to->values));
    if (from->n_bytes % 2 != 0)
      return RABBET_DAMAGED("weights '%s': %zu values are no pairs", to->name,
                            from->n_bytes);
    to->byte_count = from->n_bytes / 2;
    RABBET_RETURN_IF_ERROR(RABBET_READ_LIST(plan, from, bytes, &to->bytes));
  }
  return rabbet_ok();
}

static rabbet_status_t read_scales(rabbet_plan_t* plan,
                                   const Rabbet__Plan__Meta* meta) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, meta->n_scales, sizeof(*plan->scales),
      (void**)&plan->scales));
  plan->scale_count = meta->n_scales;
  for (size_t i = 0; i < meta->n_scales; ++i) {
    const Rabbet__Plan__Scale* from = meta->scales[i];
    rabbet_plan_scale_t* to = &plan->scales[i];
    to->value_count = from->n_values;
    RABBET_RETURN_IF_ERROR(rabbet_read_text(plan, from->tensor, &to->tensor));
    RABBET_RETURN_IF_ERROR(RABBET_READ_LIST(plan, from, values, &to->values));
  }
  return rabbet_ok();
}

static rabbet_status_t read_checks(rabbet_plan_sequence_t* sequence,
                                   const Rabbet__Plan__Sequence* message) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, message->n_checks, sizeof(*sequence->checks),
      (void**)&sequence->checks));
  sequence->check_count = message->n_checks;
  for (size_t i = 0; i < message->n_checks; ++i) {
    const Rabbet__Plan__Check* from = message->checks[i];
    rabbet_plan_check_t* to = &sequence->checks[i];
    to->io = from->io;
    to->index = from->index;
    RABBET_RETURN_IF_ERROR(
        rabbet_read_text(sequence->plan, from->layer, &to->layer));
    RABBET_RETURN_IF_ERROR(
        rabbet_read_text(sequence->plan, from->message, &to->message));
  }
  return rabbet_ok();
}

// ---- All

static rabbet_status_t read_sequence(rabbet_plan_sequence_t* sequence,
                                     const Rabbet__Plan__Sequence* message) {
  RABBET_RETURN_IF_ERROR(
      rabbet_read_text(sequence->plan, message->name, &sequence->name));
  RABBET_RETURN_IF_ERROR(read_exprs(sequence, message));
  RABBET_RETURN_IF_ERROR(read_values(sequence, message));
  RABBET_RETURN_IF_ERROR(read_ios(sequence, message));
  RABBET_RETURN_IF_ERROR(read_profiles(sequence, message));
  RABBET_RETURN_IF_ERROR(read_checks(sequence, message));
  return rabbet_read_steps(sequence, message);
}

static rabbet_status_t read_sequences(rabbet_plan_t* plan,
                                      const Rabbet__Plan__Meta* meta) {
  if (meta->n_sequences == 0 || meta->n_sequences > RABBET_PLAN_MAX_SEQUENCES)
    return RABBET_DAMAGED("the plan has %zu sequences; expected 1 to %d",
                          meta->n_sequences, RABBET_PLAN_MAX_SEQUENCES);
  RABBET_RETURN_IF_ERROR(rabbet_plan_make_sequences(plan, meta->n_sequences));
  plan->profile_count = (size_t)meta->profile_count;
  for (size_t i = 0; i < meta->n_sequences; ++i) {
    rabbet_status_t status =
        read_sequence(&plan->sequences[i], meta->sequences[i]);
    RABBET_RETURN_IF_ERROR(i == 0
                               ? status
                               : RABBET_ANNOTATE(status, "sequence %zu ('%s')",
                                                 i, meta->sequences[i]->name));
  }
  return rabbet_ok();
}

static rabbet_status_t read_entries(rabbet_plan_t* plan,
                                    const Rabbet__Plan__Meta* meta) {
  if (meta->n_entries > 0 && meta->n_entries != plan->profile_count)
    return RABBET_DAMAGED("%zu profiles have %zu entries", plan->profile_count,
                          meta->n_entries);
  return meta->n_entries > 0
             ? RABBET_READ_LIST(plan, meta, entries, &plan->entries)
             : rabbet_arena_allocate_array(&plan->arena, plan->profile_count,
                                           sizeof(*plan->entries),
                                           (void**)(uintptr_t)&plan->entries);
}

static rabbet_status_t read_meta(rabbet_plan_t* plan,
                                 const Rabbet__Plan__Meta* meta,
                                 const rabbet_plan_sections_t* sections) {
  plan->threads = meta->threads;
  if (meta->threads < 0)
    return RABBET_DAMAGED("the plan is for %d threads", meta->threads);
  if (meta->profile_count < 0 || meta->profile_count > RABBET_PLAN_MAX_PROFILES)
    return RABBET_DAMAGED("the plan has %d profiles; at most %d are possible",
                          meta->profile_count, RABBET_PLAN_MAX_PROFILES);
  plan->unfused_debug = meta->unfused_debug;
  RABBET_RETURN_IF_ERROR(rabbet_read_text(plan, meta->name, &plan->name));
  RABBET_RETURN_IF_ERROR(read_sequences(plan, meta));
  RABBET_RETURN_IF_ERROR(read_entries(plan, meta));
  RABBET_RETURN_IF_ERROR(rabbet_read_artifacts(
      plan, meta, sections->section[RABBET_PLAN_SECTION_KERNELS]));
  RABBET_RETURN_IF_ERROR(rabbet_read_carried(
      plan, meta, sections->section[RABBET_PLAN_SECTION_PLUGINS]));
  RABBET_RETURN_IF_ERROR(read_refits(plan, meta));
  return read_scales(plan, meta);
}

static rabbet_status_t unpack_meta(rabbet_plan_t* plan,
                                   const rabbet_plan_sections_t* sections) {
  rabbet_span_t section = sections->section[RABBET_PLAN_SECTION_META];
  RABBET_RETURN_IF_ERROR(rabbet_wire_scan(
      &rabbet__plan__meta__descriptor, section.data, section.size,
      RABBET_META_MAX_DEPTH, RABBET_META_MAX_MEMORY));
  rabbet_protobuf_memory_t memory;
  rabbet_protobuf_memory_initialize(plan->allocator, &memory);
  Rabbet__Plan__Meta* meta =
      rabbet__plan__meta__unpack(&memory.adapter, section.size, section.data);
  if (!meta) {
    // protobuf-c does not say why; well-formed bytes fail for want of memory,
    // or because a field has another wire type than its declaration.
    return memory.exhausted
               ? RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                               "no memory for %zu bytes of metadata",
                               section.size)
               : RABBET_DAMAGED("a field is not of the type that it should be");
  }
  rabbet_status_t status = read_meta(plan, meta, sections);
  rabbet__plan__meta__free_unpacked(meta, &memory.adapter);
  return status;
}

static rabbet_status_t read_device(rabbet_plan_t* plan, rabbet_span_t section) {
  char* text = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&plan->arena, section.size + 1, (void**)&text));
  memcpy(text, section.data, section.size);
  char* newline = memchr(text, '\n', section.size);
  if (!newline || strlen(text) != section.size || !rabbet_utf8_is_valid(text))
    return RABBET_DAMAGED("section DEVICE is not a kind and a signature");
  *newline = 0;
  plan->device = text;
  plan->device_signature = newline + 1;
  return rabbet_ok();
}

static bool plan_has_bytes(const rabbet_plan_t* plan,
                           const rabbet_plan_value_t* value) {
  return value->offset + value->size <= plan->weights_size;
}

static void sequence_link_constants(rabbet_plan_sequence_t* sequence) {
  const rabbet_plan_t* plan = sequence->plan;
  for (size_t s = 0; s < sequence->step_count; ++s) {
    rabbet_plan_step_t* step = &sequence->steps[s];
    for (size_t i = 0; i < step->group.value_count; ++i) {
      if (step->values[i] < 0) continue;
      const rabbet_plan_value_t* outer = &sequence->values[step->values[i]];
      assert(outer->storage != RABBET_PLAN_STORAGE_CONSTANT ||
             outer->offset % RABBET_PLAN_ALIGNMENT == 0);
      if (outer->storage == RABBET_PLAN_STORAGE_CONSTANT &&
          outer->format == RABBET_FORMAT_LINEAR)
        step->group.values[i].constant = plan_has_bytes(plan, outer)
                                             ? rabbet_plan_constant(plan, outer)
                                             : NULL;
    }
  }
}

void rabbet_plan_link_constants(rabbet_plan_t* plan) {
  for (size_t i = 0; i < plan->sequence_count; ++i)
    sequence_link_constants(&plan->sequences[i]);
}

// Sets derived fields: constants' addresses, and the dimensions that are known
// at load.
static void sequence_finish(rabbet_plan_sequence_t* sequence) {
  for (size_t s = 0; s < sequence->step_count; ++s) {
    rabbet_plan_step_t* step = &sequence->steps[s];
    for (size_t i = 0; i < step->group.value_count; ++i) {
      rabbet_group_value_t* value = &step->group.values[i];
      const rabbet_plan_value_t* outer =
          step->values[i] < 0 ? NULL : &sequence->values[step->values[i]];
      const rabbet_shape_t* shape =
          outer ? &outer->shape : &step->inner_shapes[i];
      assert(outer || shape->rank >= 0);
      value->dims = rabbet_shape_dims(sequence->graph, shape);
      value->min = value->max = value->dims;
    }
  }
  sequence_link_constants(sequence);
}

static rabbet_status_t read_into(const void* data, size_t size, bool is_own,
                                 rabbet_plan_t* plan) {
  rabbet_plan_sections_t sections;
  RABBET_RETURN_IF_ERROR(rabbet_plan_file_open(data, size, is_own, &sections));
  RABBET_RETURN_IF_ERROR(
      rabbet_read_text(plan, sections.producer, &plan->producer));
  const rabbet_span_t* weights = &sections.section[RABBET_PLAN_SECTION_WEIGHTS];
  plan->weights = weights->data;
  plan->weights_size = weights->size;
  assert((uintptr_t)plan->weights % RABBET_PLAN_ALIGNMENT == 0);
  RABBET_RETURN_IF_ERROR(
      read_device(plan, sections.section[RABBET_PLAN_SECTION_DEVICE]));
  RABBET_RETURN_IF_ERROR(
      RABBET_ANNOTATE(unpack_meta(plan, &sections), "section META"));
  if (plan->full_size > 0 && plan->weights_size != plan->full_size &&
      plan->weights_size != plan->kept_size)
    return RABBET_DAMAGED(
        "its weights are %zu bytes; expected %llu, or %llu if it was stripped",
        plan->weights_size, (unsigned long long)plan->full_size,
        (unsigned long long)plan->kept_size);
  RABBET_RETURN_IF_ERROR(rabbet_plan_verify(
      plan, plan->full_size > 0 ? plan->full_size : plan->weights_size));
  for (size_t i = 0; i < plan->sequence_count; ++i) {
    sequence_finish(&plan->sequences[i]);
    RABBET_RETURN_IF_ERROR(rabbet_plan_prove_shapes(&plan->sequences[i]));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_plan_read(const void* data, size_t size,
                                 rabbet_file_map_t* file,
                                 rabbet_allocator_t allocator,
                                 rabbet_plan_t** out_plan) {
  *out_plan = NULL;
  rabbet_plan_t* plan = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_plan_create(allocator, &plan));
  rabbet_status_t status = rabbet_plan_as_damage(
      read_into(data, size, file && rabbet_file_map_is_own(file), plan));
  if (!rabbet_is_ok(status)) {
    rabbet_plan_destroy(plan);
    return status;
  }
  if (file) rabbet_file_map_retain(file);
  plan->file = file;
  *out_plan = plan;
  return rabbet_ok();
}
