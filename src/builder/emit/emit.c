#include "builder/emit/emitter.h"

#include <assert.h>
#include <string.h>

#include "builder/emit/artifacts.h"

rabbet_status_t rabbet_emit_each(
    rabbet_emitter_t* emitters, size_t count,
    rabbet_status_t (*emit)(rabbet_emitter_t* emitter)) {
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(emit(&emitters[i]));
  return rabbet_ok();
}

static rabbet_status_t emit_io(rabbet_emitter_t* emitter, size_t number,
                               int32_t slot) {
  const rabbet_ir_t* ir = &emitter->build->ir;
  const rabbet_ir_value_t* value =
      rabbet_ir_value(ir, emitter->layout->slots.data[slot].value);
  assert(number < emitter->sequence->io_count && slot >= 0);
  rabbet_plan_io_t* io = &emitter->sequence->ios[number];
  io->is_input = number < ir->input_count;
  io->value = emitter->values[slot];
  io->is_shape_input =
      io->is_input && rabbet_emit_is_read(emitter, emitter->values[slot]);
  io->aliased_input =
      io->is_input ? -1
                   : emitter->layout->aliased_inputs[number - ir->input_count];
  for (int i = 0; value->dim_names && i < RABBET_MAX_RANK; ++i)
    if (value->dim_names[i])
      RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
          &emitter->plan->arena, value->dim_names[i], &io->dim_names[i]));
  return rabbet_arena_strdup(&emitter->plan->arena, value->name, &io->name);
}

static rabbet_status_t emit_ios(rabbet_emitter_t* emitter) {
  const rabbet_ir_t* ir = &emitter->build->ir;
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  sequence->input_count = ir->input_count;
  sequence->io_count = ir->input_count + ir->output_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, sequence->io_count, sizeof(rabbet_plan_io_t),
      (void**)&sequence->ios));
  // Slots of network inputs are the first ones.
  for (size_t i = 0; i < ir->input_count; ++i) {
    assert(emitter->layout->slots.data[i].input == (int32_t)i);
    RABBET_RETURN_IF_ERROR(emit_io(emitter, i, (int32_t)i));
  }
  for (size_t i = 0; i < ir->output_count; ++i)
    RABBET_RETURN_IF_ERROR(
        emit_io(emitter, ir->input_count + i, emitter->layout->outputs[i]));
  sequence->hidden_count = ir->debug_count + ir->check_count;
  return rabbet_ok();
}

static void emit_debug(rabbet_emitter_t* emitter,
                       const rabbet_network_t* network) {
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  size_t inputs = network->inputs.count, outputs = network->outputs.count;
  size_t checks = emitter->build->ir.check_count;
  for (size_t i = 0; i < sequence->io_count; ++i)
    sequence->ios[i].is_debug =
        i < inputs             ? network->inputs.data[i]->is_debug
        : i < inputs + outputs ? network->outputs.data[i - inputs]->is_debug
                               : i + checks < sequence->io_count;
}

static rabbet_status_t emit_checks(rabbet_emitter_t* emitter,
                                   const rabbet_network_t* network) {
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  size_t io = sequence->io_count - emitter->build->ir.check_count;
  sequence->check_count = network->checks.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, sequence->check_count, sizeof(*sequence->checks),
      (void**)&sequence->checks));
  for (size_t i = 0; i < sequence->check_count; ++i) {
    const rabbet_network_check_t* from = &network->checks.data[i];
    rabbet_plan_check_t* to = &sequence->checks[i];
    to->io = (int32_t)(from->index <= 0 ? io++ : io - 1);
    to->index = from->index;
    assert((size_t)to->io < sequence->io_count);
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(&sequence->plan->arena, from->layer, &to->layer));
    RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(&sequence->plan->arena,
                                               from->message, &to->message));
  }
  return rabbet_ok();
}

static rabbet_status_t emit_profiles(rabbet_emitter_t* emitter) {
  const rabbet_ranges_t* ranges = &emitter->build->ranges;
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  sequence->profile_count = ranges->profile_count;
  size_t count = sequence->profile_count * sequence->input_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      &sequence->plan->arena, ranges->profiles,
      count * sizeof(rabbet_plan_range_t), (void**)&sequence->profiles));
  for (size_t i = 0; i < count; ++i) {
    rabbet_plan_range_t* range = &sequence->profiles[i];
    const int64_t** values[] = {&range->min_values, &range->opt_values,
                                &range->max_values};
    // A shape input on which no shape depends any more has no range.
    if (!sequence->ios[i % sequence->input_count].is_shape_input)
      range->value_count = 0;
    for (size_t k = 0; k < 3 && range->value_count > 0; ++k)
      RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
          &sequence->plan->arena, *values[k],
          range->value_count * sizeof(int64_t), (void**)values[k]));
  }
  return rabbet_ok();
}

static rabbet_status_t emit_header(rabbet_emitter_t* emitter) {
  rabbet_build_t* build = emitter->build;
  rabbet_plan_t* plan = emitter->plan;
  rabbet_arena_t* arena = &plan->arena;
  const char* name = emitter->from->network->name;
  plan->threads = build->threads;
  plan->unfused_debug = emitter->from->network->unfused_debug;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(arena, name ? name : "", &plan->name));
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
      arena, "rabbet " RABBET_VERSION_STRING, &plan->producer));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(arena, build->device->kind, &plan->device));
  plan->carried = build->carried.data;
  plan->carried_count = build->carried.count;
  return rabbet_arena_strdup(arena,
                             build->device->vtable->signature(build->device),
                             &plan->device_signature);
}

static rabbet_status_t emit_steps_and_ios(rabbet_emitter_t* emitter) {
  RABBET_RETURN_IF_ERROR(rabbet_emit_steps(emitter));
  RABBET_RETURN_IF_ERROR(emit_ios(emitter));
  emit_debug(emitter, emitter->from->network);
  RABBET_RETURN_IF_ERROR(emit_checks(emitter, emitter->from->network));
  return emit_profiles(emitter);
}

static rabbet_status_t emit_all(rabbet_emitter_t* emitters, size_t count) {
  rabbet_emit_shared_t* shared = emitters[0].shared;
  rabbet_plan_t* plan = emitters[0].plan;
  RABBET_RETURN_IF_ERROR(emit_header(&emitters[0]));
  RABBET_RETURN_IF_ERROR(
      rabbet_emit_each(emitters, count, rabbet_emit_kept_values));
  // Weights that can be refitted lie behind the others, where a plan can be
  // cut.
  shared->out->kept_blobs = shared->out->blobs.count;
  plan->kept_size = shared->weights_size;
  RABBET_RETURN_IF_ERROR(
      rabbet_emit_each(emitters, count, rabbet_emit_refittable_values));
  RABBET_RETURN_IF_ERROR(rabbet_emit_each(emitters, count, emit_steps_and_ios));
  RABBET_RETURN_IF_ERROR(rabbet_emit_entries(emitters, count));
  RABBET_RETURN_IF_ERROR(
      rabbet_artifacts_collect(emitters[0].from, count, plan));
  RABBET_RETURN_IF_ERROR(rabbet_emit_join_entries(emitters, &count));
  return rabbet_emit_refits(emitters, count);
}

static rabbet_status_t emit_sequences(const rabbet_emit_sequence_t* sequences,
                                      size_t count,
                                      rabbet_emit_shared_t* shared) {
  rabbet_build_t* build = sequences[0].build;
  rabbet_plan_t* plan = shared->out->plan;
  rabbet_emitter_t* emitters = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_plan_make_sequences(plan, count));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, count, sizeof(*emitters), (void**)&emitters));
  for (size_t i = 0; i < count; ++i)
    emitters[i] = (rabbet_emitter_t){.shared = shared,
                                     .from = &sequences[i],
                                     .build = sequences[i].build,
                                     .layout = sequences[i].layout,
                                     .plan = plan,
                                     .sequence = &plan->sequences[i]};
  return emit_all(emitters, count);
}

int32_t rabbet_emit_find(const rabbet_emit_sequence_t* caller,
                         const rabbet_network_t* network) {
  const rabbet_emit_sequence_t* at = caller;
  while (at->network != network)
    ++at;
  return caller->number + (int32_t)(at - caller);
}

rabbet_status_t rabbet_emit(const rabbet_emit_sequence_t* sequences,
                            size_t count, rabbet_emitted_t* out_emitted) {
  rabbet_build_t* build = sequences[0].build;
  memset(out_emitted, 0, sizeof(*out_emitted));
  RABBET_RETURN_IF_ERROR(
      rabbet_plan_create(build->allocator, &out_emitted->plan));
  rabbet_emit_shared_t shared = {.out = out_emitted};
  rabbet_map_initialize(build->allocator, &shared.constants);
  rabbet_status_t status = emit_sequences(sequences, count, &shared);
  rabbet_map_deinitialize(&shared.constants);
  if (!rabbet_is_ok(status)) rabbet_emitted_deinitialize(build, out_emitted);
  return status;
}

// The blob before is not read any more.
static rabbet_status_t emitted_make(void* context, size_t blob,
                                    const void** out_data) {
  const rabbet_emitted_t* emitted = context;
  const rabbet_emit_constant_t* constant = &emitted->constants.data[blob];
  size_t bytes = 0;
  rabbet_constant_trim(constant->build);
  RABBET_RETURN_IF_ERROR(rabbet_constant_convert(
      constant->build, constant->value, constant->type, out_data, &bytes));
  assert(bytes == emitted->blobs.data[blob].size);
  return rabbet_ok();
}

rabbet_plan_contents_t rabbet_emitted_contents(rabbet_emitted_t* emitted,
                                               size_t blob_count) {
  assert(blob_count <= emitted->blobs.count);
  return (rabbet_plan_contents_t){
      .plan = emitted->plan,
      .blobs = emitted->blobs.data,
      .blob_count = blob_count,
      .maker = {.context = emitted, .make = emitted_make}};
}

void rabbet_emitted_deinitialize(rabbet_build_t* build,
                                 rabbet_emitted_t* emitted) {
  rabbet_vec_free(build->allocator, &emitted->blobs);
  rabbet_vec_free(build->allocator, &emitted->constants);
  rabbet_plan_destroy(emitted->plan);
  emitted->plan = NULL;
}
