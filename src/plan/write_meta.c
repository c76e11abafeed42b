// Plan -> protobuf messages, which borrow all that they can from the plan.
#include "base/hash.h"
#include "base/math.h"
#include "plan/stream.h"

typedef struct plan_writer_t {
  const rabbet_plan_t* plan;
  rabbet_arena_t* arena;
} plan_writer_t;

// An array of `count` messages and the pointers to them that protobuf-c wants.
static rabbet_status_t write_messages(plan_writer_t* writer, size_t count,
                                      size_t size,
                                      void (*initialize)(void* message),
                                      size_t* out_count, void*** out_pointers) {
  *out_count = count;
  uint8_t* messages = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      writer->arena, count, sizeof(void*), (void**)out_pointers));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(writer->arena, count, size,
                                                     (void**)&messages));
  for (size_t i = 0; i < count; ++i) {
    (*out_pointers)[i] = messages + i * size;
    initialize((*out_pointers)[i]);
  }
  return rabbet_ok();
}

#define RABBET_WRITER_INIT(Type, type)            \
  static void rabbet_init_##type(void* message) { \
    rabbet__plan__##type##__init((Type*)message); \
  }
RABBET_WRITER_INIT(Rabbet__Plan__Expr, expr)
RABBET_WRITER_INIT(Rabbet__Plan__Symbol, symbol)
RABBET_WRITER_INIT(Rabbet__Plan__Value, value)
RABBET_WRITER_INIT(Rabbet__Plan__Io, io)
RABBET_WRITER_INIT(Rabbet__Plan__Attr, attr)
RABBET_WRITER_INIT(Rabbet__Plan__GroupValue, group_value)
RABBET_WRITER_INIT(Rabbet__Plan__Node, node)
RABBET_WRITER_INIT(Rabbet__Plan__Step, step)
RABBET_WRITER_INIT(Rabbet__Plan__Carried, carried)
RABBET_WRITER_INIT(Rabbet__Plan__Range, range)
RABBET_WRITER_INIT(Rabbet__Plan__Scale, scale)
RABBET_WRITER_INIT(Rabbet__Plan__Artifact, artifact)
RABBET_WRITER_INIT(Rabbet__Plan__Weights, weights)
RABBET_WRITER_INIT(Rabbet__Plan__Check, check)
RABBET_WRITER_INIT(Rabbet__Plan__Call, call)
RABBET_WRITER_INIT(Rabbet__Plan__Sequence, sequence)
#undef RABBET_WRITER_INIT

#define RABBET_WRITE_MESSAGES(writer, count, Type, type, out_count, out) \
  write_messages((writer), (count), sizeof(Type), rabbet_init_##type,    \
                 (out_count), (void***)(out))

// protobuf-c takes mutable pointers but only reads.
static char* write_text(const char* text) {
  return (char*)(uintptr_t)(text ? text : "");
}

#define RABBET_WRITE_LIST(message, field, data, count)            \
  do {                                                            \
    (message)->n_##field = (count);                               \
    (message)->field = (count) ? (void*)(uintptr_t)(data) : NULL; \
  } while (0)

// ---- Expressions, values, inputs and outputs

static rabbet_status_t write_graph(plan_writer_t* writer,
                                   const rabbet_plan_sequence_t* sequence,
                                   Rabbet__Plan__Sequence* to) {
  const rabbet_expr_graph_t* graph = sequence->graph;
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(
      writer, rabbet_expr_node_count(graph), Rabbet__Plan__Expr, expr,
      &to->n_exprs, &to->exprs));
  for (size_t i = 0; i < to->n_exprs; ++i) {
    const rabbet_expr_node_t* node = rabbet_expr_node(graph, (rabbet_expr_t)i);
    Rabbet__Plan__Expr* expr = to->exprs[i];
    bool constant = node->op == RABBET_EXPR_CONSTANT;
    // Readers append expressions in this order, operands first.
    assert(constant || node->op == RABBET_EXPR_SYMBOL ||
           (node->a < (int32_t)i && node->b < (int32_t)i));
    expr->op = (int32_t)node->op;
    expr->a = constant ? 0 : node->a;
    expr->b = constant || node->op == RABBET_EXPR_SYMBOL ? 0 : node->b;
    expr->value = constant ? node->value : 0;
  }
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(
      writer, rabbet_expr_symbol_count(graph), Rabbet__Plan__Symbol, symbol,
      &to->n_symbols, &to->symbols));
  for (size_t i = 0; i < to->n_symbols; ++i) {
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(graph, i);
    Rabbet__Plan__Symbol* message = to->symbols[i];
    message->kind = (int32_t)symbol->kind;
    message->tensor = symbol->tensor;
    message->index = symbol->index;
    message->name = write_text(symbol->name);
    message->opt = symbol->opt;
    message->upper = symbol->upper;
  }
  return rabbet_ok();
}

static rabbet_status_t write_values(plan_writer_t* writer,
                                    const rabbet_plan_sequence_t* sequence,
                                    Rabbet__Plan__Sequence* to) {
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(writer, sequence->value_count,
                                               Rabbet__Plan__Value, value,
                                               &to->n_values, &to->values));
  for (size_t i = 0; i < to->n_values; ++i) {
    const rabbet_plan_value_t* value = &sequence->values[i];
    Rabbet__Plan__Value* message = to->values[i];
    message->name = write_text(value->name);
    message->dtype = (int32_t)value->dtype;
    message->format = (int32_t)value->format;
    RABBET_WRITE_LIST(message, shape, value->shape.d,
                      (size_t)value->shape.rank);
    message->storage = (int32_t)value->storage;
    if (value->storage == RABBET_PLAN_STORAGE_IO) message->io = value->io;
    message->offset = value->offset;
    if (value->storage == RABBET_PLAN_STORAGE_CONSTANT)
      message->size = value->size;
    message->alias = value->alias;
    message->has_host_values = value->host_values != NULL;
    if (value->host_values)
      RABBET_WRITE_LIST(message, host_values, value->host_values,
                        value->host_value_count);
  }
  return rabbet_ok();
}

static rabbet_status_t write_ios(plan_writer_t* writer,
                                 const rabbet_plan_sequence_t* sequence,
                                 Rabbet__Plan__Sequence* to) {
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(
      writer, sequence->io_count, Rabbet__Plan__Io, io, &to->n_ios, &to->ios));
  to->input_count = (int32_t)sequence->input_count;
  to->hidden_count = (uint32_t)sequence->hidden_count;
  for (size_t i = 0; i < to->n_ios; ++i) {
    const rabbet_plan_io_t* io = &sequence->ios[i];
    Rabbet__Plan__Io* message = to->ios[i];
    assert(io->is_input == (i < sequence->input_count));
    message->name = write_text(io->name);
    message->is_input = io->is_input;
    message->is_shape_input = io->is_shape_input;
    message->value = io->value;
    message->aliased_input = io->aliased_input;
    message->is_debug = io->is_debug;
    size_t rank = (size_t)sequence->values[io->value].shape.rank;
    bool named = false;
    for (size_t axis = 0; axis < rank; ++axis)
      named |= io->dim_names[axis] != NULL;
    if (!named) continue;
    message->n_dim_names = rank;
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        writer->arena, rank, sizeof(char*), (void**)&message->dim_names));
    for (size_t axis = 0; axis < rank; ++axis)
      message->dim_names[axis] = write_text(io->dim_names[axis]);
  }
  return rabbet_ok();
}

// ---- Steps

static rabbet_status_t write_attr(plan_writer_t* writer,
                                  const rabbet_attr_t* attr,
                                  Rabbet__Plan__Attr* message) {
  message->name = write_text(attr->name);
  message->type = (int32_t)attr->type;
  switch (attr->type) {
    case RABBET_ATTR_INT:
    case RABBET_ATTR_BOOL:
    case RABBET_ATTR_INTS:
    case RABBET_ATTR_BOOLS:
      RABBET_WRITE_LIST(message, ints, attr->data, attr->count);
      return rabbet_ok();
    case RABBET_ATTR_FLOAT:
    case RABBET_ATTR_FLOATS:
      RABBET_WRITE_LIST(message, floats, attr->data, attr->count);
      return rabbet_ok();
    case RABBET_ATTR_TENSOR: {
      message->dtype = (int32_t)attr->dtype;
      int64_t* dims = NULL;
      RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
          writer->arena, attr->dims.d,
          (size_t)attr->dims.rank * sizeof(int64_t), (void**)&dims));
      RABBET_WRITE_LIST(message, dims, dims, (size_t)attr->dims.rank);
      break;
    }
    default:
      break;
  }
  message->count = attr->count;
  message->data.len = rabbet_attr_bytes(attr);
  message->data.data = (uint8_t*)(uintptr_t)attr->data;
  return rabbet_ok();
}

static rabbet_status_t write_attrs(plan_writer_t* writer,
                                   const rabbet_attr_t* attrs, size_t count,
                                   size_t* out_count,
                                   Rabbet__Plan__Attr*** out_messages) {
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(
      writer, count, Rabbet__Plan__Attr, attr, out_count, out_messages));
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(write_attr(writer, &attrs[i], (*out_messages)[i]));
  return rabbet_ok();
}

static rabbet_status_t write_group_values(plan_writer_t* writer,
                                          const rabbet_plan_step_t* step,
                                          Rabbet__Plan__Step* message) {
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(
      writer, step->group.value_count, Rabbet__Plan__GroupValue, group_value,
      &message->n_values, &message->values));
  for (size_t i = 0; i < message->n_values; ++i) {
    Rabbet__Plan__GroupValue* value = message->values[i];
    value->value = step->values[i];
    if (value->value >= 0) continue;
    assert(step->inner_shapes[i].rank >= 0);
    value->dtype = (int32_t)step->group.values[i].dtype;
    value->format = (int32_t)step->group.values[i].format;
    RABBET_WRITE_LIST(value, shape, step->inner_shapes[i].d,
                      (size_t)step->inner_shapes[i].rank);
  }
  return rabbet_ok();
}

static rabbet_status_t write_nodes(plan_writer_t* writer,
                                   const rabbet_group_t* group,
                                   Rabbet__Plan__Step* message) {
  RABBET_RETURN_IF_ERROR(
      RABBET_WRITE_MESSAGES(writer, group->node_count, Rabbet__Plan__Node, node,
                            &message->n_nodes, &message->nodes));
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    Rabbet__Plan__Node* out = message->nodes[i];
    out->op = write_text(node->op->name);
    out->name = write_text(node->name);
    RABBET_WRITE_LIST(out, inputs, node->inputs, node->input_count);
    RABBET_WRITE_LIST(out, outputs, node->outputs, node->output_count);
    if (node->aliased)
      RABBET_WRITE_LIST(out, aliased, node->aliased, node->output_count);
    assert(node->attrs || node->op->attr_count == 0);
    RABBET_RETURN_IF_ERROR(write_attrs(
        writer, node->attrs, node->op->attr_count, &out->n_attrs, &out->attrs));
  }
  return rabbet_ok();
}

static rabbet_status_t write_calls(plan_writer_t* writer,
                                   const rabbet_plan_step_t* step,
                                   Rabbet__Plan__Step* message) {
  RABBET_RETURN_IF_ERROR(
      RABBET_WRITE_MESSAGES(writer, step->call_count, Rabbet__Plan__Call, call,
                            &message->n_calls, &message->calls));
  for (size_t i = 0; i < step->call_count; ++i) {
    assert(step->calls[i].sequence >
           0);  // the first has no caller but the user
    message->calls[i]->sequence = step->calls[i].sequence;
    RABBET_WRITE_LIST(message->calls[i], inputs, step->calls[i].inputs,
                      step->calls[i].input_count);
  }
  return rabbet_ok();
}

static rabbet_status_t write_step(plan_writer_t* writer,
                                  const rabbet_plan_step_t* step,
                                  Rabbet__Plan__Step* message) {
  message->name = write_text(step->name);
  message->kernel = write_text(step->kernel);
  message->tactic = step->tactic;
  message->tactic_name = write_text(step->tactic_name);
  message->time_us = step->time_us;
  message->plugin_name = write_text(step->plugin_name);
  message->plugin_version = write_text(step->plugin_version);
  message->plugin_namespace = write_text(step->plugin_namespace);
  message->plugin_origin = write_text(step->plugin_origin);
  message->report_json = write_text(step->report_json);
  RABBET_WRITE_LIST(message, inputs, step->group.inputs,
                    step->group.input_count);
  RABBET_WRITE_LIST(message, outputs, step->group.outputs,
                    step->group.output_count);
  RABBET_WRITE_LIST(message, host_reads, step->host_reads,
                    step->host_read_count);
  RABBET_WRITE_LIST(message, artifacts, step->artifacts, step->artifact_count);
  RABBET_RETURN_IF_ERROR(write_calls(writer, step, message));
  RABBET_RETURN_IF_ERROR(write_group_values(writer, step, message));
  RABBET_RETURN_IF_ERROR(write_nodes(writer, &step->group, message));
  return write_attrs(writer, step->plugin_attrs, step->plugin_attr_count,
                     &message->n_plugin_attrs, &message->plugin_attrs);
}

static rabbet_status_t write_steps(plan_writer_t* writer,
                                   const rabbet_plan_sequence_t* sequence,
                                   Rabbet__Plan__Sequence* to) {
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(writer, sequence->step_count,
                                               Rabbet__Plan__Step, step,
                                               &to->n_steps, &to->steps));
  for (size_t i = 0; i < to->n_steps; ++i)
    RABBET_RETURN_IF_ERROR(
        write_step(writer, &sequence->steps[i], to->steps[i]));
  return rabbet_ok();
}

static rabbet_status_t write_profiles(plan_writer_t* writer,
                                      const rabbet_plan_sequence_t* sequence,
                                      Rabbet__Plan__Sequence* to) {
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(
      writer, sequence->profile_count * sequence->input_count,
      Rabbet__Plan__Range, range, &to->n_ranges, &to->ranges));
  for (size_t i = 0; i < to->n_ranges; ++i) {
    const rabbet_plan_range_t* range = &sequence->profiles[i];
    Rabbet__Plan__Range* message = to->ranges[i];
    assert(range->min.rank == range->opt.rank &&
           range->opt.rank == range->max.rank);
    RABBET_WRITE_LIST(message, min, range->min.d, (size_t)range->min.rank);
    RABBET_WRITE_LIST(message, opt, range->opt.d, (size_t)range->opt.rank);
    RABBET_WRITE_LIST(message, max, range->max.d, (size_t)range->max.rank);
    RABBET_WRITE_LIST(message, min_values, range->min_values,
                      range->value_count);
    RABBET_WRITE_LIST(message, opt_values, range->opt_values,
                      range->value_count);
    RABBET_WRITE_LIST(message, max_values, range->max_values,
                      range->value_count);
  }
  return rabbet_ok();
}

static rabbet_status_t write_artifacts(plan_writer_t* writer,
                                       Rabbet__Plan__Meta* meta) {
  const rabbet_plan_t* plan = writer->plan;
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(
      writer, plan->artifact_count, Rabbet__Plan__Artifact, artifact,
      &meta->n_artifacts, &meta->artifacts));
  uint64_t at = 0;
  for (size_t i = 0; i < meta->n_artifacts; ++i) {
    const rabbet_artifact_t* artifact = &plan->artifacts[i];
    Rabbet__Plan__Artifact* message = meta->artifacts[i];
    assert(i == 0 || rabbet_hash_compare(artifact[-1].key, artifact->key) < 0);
    message->key_high = artifact->key.high;
    message->key_low = artifact->key.low;
    message->name = write_text(artifact->name);
    message->offset = rabbet_align_up(at, RABBET_PLAN_ALIGNMENT);
    message->size = artifact->size;
    if (!rabbet_checked_add(message->offset, message->size, &at) ||
        at > INT64_MAX / 2)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "the kernels' bytes are too large for a plan");
  }
  return rabbet_ok();
}

static rabbet_status_t write_carried(plan_writer_t* writer,
                                     Rabbet__Plan__Meta* meta) {
  const rabbet_plan_t* plan = writer->plan;
  RABBET_RETURN_IF_ERROR(
      RABBET_WRITE_MESSAGES(writer, plan->carried_count, Rabbet__Plan__Carried,
                            carried, &meta->n_carried, &meta->carried));
  uint64_t at = 0;
  for (size_t i = 0; i < meta->n_carried; ++i) {
    const rabbet_carried_t* from = &plan->carried[i];
    Rabbet__Plan__Carried* message = meta->carried[i];
    assert(i == 0 || from[-1].kind <= from->kind);
    message->kind = (int32_t)from->kind;
    message->name = write_text(from->name);
    message->is_package = from->is_package;
    message->n_requirements = from->requirement_count;
    message->requirements = (char**)(uintptr_t)from->requirements;
    message->offset = rabbet_align_up(at, RABBET_PLAN_ALIGNMENT);
    message->size = from->size;
    if (!rabbet_checked_add(message->offset, message->size, &at) ||
        at > INT64_MAX / 2)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "the plugins' code is too large for a plan");
  }
  return rabbet_ok();
}

static rabbet_status_t write_refits(plan_writer_t* writer,
                                    Rabbet__Plan__Meta* meta) {
  const rabbet_plan_t* plan = writer->plan;
  RABBET_RETURN_IF_ERROR(
      RABBET_WRITE_MESSAGES(writer, plan->refit_count, Rabbet__Plan__Weights,
                            weights, &meta->n_weights, &meta->weights));
  meta->kept_size = plan->full_size > 0 ? plan->kept_size : 0;
  meta->full_size = plan->full_size;
  for (size_t i = 0; i < meta->n_weights; ++i) {
    const rabbet_plan_weights_t* from = &plan->refits[i];
    Rabbet__Plan__Weights* message = meta->weights[i];
    message->name = write_text(from->name);
    message->layer = write_text(from->layer);
    message->role = from->role;
    message->dtype = (int32_t)from->dtype;
    RABBET_WRITE_LIST(message, values, from->values, from->value_count);
    size_t bytes = 2 * from->byte_count;
    RABBET_WRITE_LIST(message, bytes, from->bytes, bytes);
  }
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(writer, plan->scale_count,
                                               Rabbet__Plan__Scale, scale,
                                               &meta->n_scales, &meta->scales));
  for (size_t i = 0; i < meta->n_scales; ++i) {
    const rabbet_plan_scale_t* from = &plan->scales[i];
    meta->scales[i]->tensor = write_text(from->tensor);
    RABBET_WRITE_LIST(meta->scales[i], values, from->values, from->value_count);
  }
  return rabbet_ok();
}

static rabbet_status_t write_checks(plan_writer_t* writer,
                                    const rabbet_plan_sequence_t* sequence,
                                    Rabbet__Plan__Sequence* to) {
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(writer, sequence->check_count,
                                               Rabbet__Plan__Check, check,
                                               &to->n_checks, &to->checks));
  for (size_t i = 0; i < to->n_checks; ++i) {
    to->checks[i]->layer = write_text(sequence->checks[i].layer);
    to->checks[i]->message = write_text(sequence->checks[i].message);
    to->checks[i]->io = sequence->checks[i].io;
    to->checks[i]->index = sequence->checks[i].index;
  }
  return rabbet_ok();
}

static rabbet_status_t write_sequence(plan_writer_t* writer,
                                      const rabbet_plan_sequence_t* sequence,
                                      Rabbet__Plan__Sequence* to) {
  to->name = write_text(sequence->name);
  if (sequence->profile_count != sequence->plan->profile_count)
    to->profile_count = (int32_t)sequence->profile_count;
  RABBET_RETURN_IF_ERROR(write_graph(writer, sequence, to));
  RABBET_RETURN_IF_ERROR(write_values(writer, sequence, to));
  RABBET_RETURN_IF_ERROR(write_ios(writer, sequence, to));
  RABBET_RETURN_IF_ERROR(write_profiles(writer, sequence, to));
  RABBET_RETURN_IF_ERROR(write_steps(writer, sequence, to));
  return write_checks(writer, sequence, to);
}

// Leaves only the parts that running the sequence needs.
static void keep_essence(Rabbet__Plan__Sequence* message, int32_t first) {
  message->name = write_text("");
  message->profile_count = 0;
  message->n_ranges = 0;
  for (size_t i = 0; i < message->n_steps; ++i) {
    Rabbet__Plan__Step* step = message->steps[i];
    step->time_us = 0;
    step->report_json = write_text("");
    for (size_t k = 0; k < step->n_calls; ++k)
      step->calls[k]->sequence -= first;
  }
}

static rabbet_status_t hash_message(plan_writer_t* writer,
                                    const Rabbet__Plan__Sequence* message,
                                    rabbet_hash_t* out_hash) {
  size_t size = rabbet__plan__sequence__get_packed_size(message);
  uint8_t* bytes = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(writer->arena, size + 1, (void**)&bytes));
  rabbet__plan__sequence__pack(message, bytes);
  *out_hash = rabbet_hash128(bytes, size);
  return rabbet_ok();
}

rabbet_status_t rabbet_plan_hash_sequence(const rabbet_plan_t* plan,
                                          size_t sequence, size_t first,
                                          rabbet_hash_t* out_hash) {
  rabbet_arena_t arena;
  plan_writer_t writer = {.plan = plan, .arena = &arena};
  Rabbet__Plan__Sequence message;
  *out_hash = (rabbet_hash_t){0};
  rabbet__plan__sequence__init(&message);
  rabbet_arena_initialize(plan->allocator, &arena);
  rabbet_status_t status =
      write_sequence(&writer, &plan->sequences[sequence], &message);
  if (rabbet_is_ok(status)) {
    keep_essence(&message, (int32_t)first);
    status = hash_message(&writer, &message, out_hash);
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}

static bool plan_has_entries(const rabbet_plan_t* plan) {
  for (size_t i = 0; i < plan->profile_count; ++i)
    if (plan->entries[i] != 0) return true;
  return false;
}

rabbet_status_t rabbet_plan_write_meta(const rabbet_plan_t* plan,
                                       rabbet_arena_t* arena,
                                       Rabbet__Plan__Meta* meta) {
  plan_writer_t writer = {.plan = plan, .arena = arena};
  rabbet__plan__meta__init(meta);
  meta->name = write_text(plan->name);
  meta->threads = plan->threads;
  meta->profile_count = (int32_t)plan->profile_count;
  if (plan_has_entries(plan))
    RABBET_WRITE_LIST(meta, entries, plan->entries, plan->profile_count);
  meta->unfused_debug = plan->unfused_debug;
  RABBET_RETURN_IF_ERROR(RABBET_WRITE_MESSAGES(
      &writer, plan->sequence_count, Rabbet__Plan__Sequence, sequence,
      &meta->n_sequences, &meta->sequences));
  for (size_t i = 0; i < plan->sequence_count; ++i)
    RABBET_RETURN_IF_ERROR(
        write_sequence(&writer, &plan->sequences[i], meta->sequences[i]));
  RABBET_RETURN_IF_ERROR(write_artifacts(&writer, meta));
  RABBET_RETURN_IF_ERROR(write_refits(&writer, meta));
  return write_carried(&writer, meta);
}
