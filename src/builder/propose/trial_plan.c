// Writes a question as a plan of one step, and so uses the code that writes,
// reads and checks plans. Weights are left out.
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "builder/emit/emit_plugin.h"
#include "builder/propose/trial_internal.h"
#include "core/view.h"

enum {
  TRIAL_INTEGERS = 64,  // elements of a list that is sent as it is
  // Bytes of a placeholder; larger constants become inputs, which kernels read
  // in the same way.
  TRIAL_PLACEHOLDER = 1 << 16,
};

typedef struct writer_t {
  const rabbet_question_t* question;
  int32_t tactic;
  rabbet_plan_t* plan;
  rabbet_plan_sequence_t* sequence;
  RABBET_VEC(rabbet_plan_blob_t) blobs;
  uint64_t weights;
} writer_t;

static rabbet_status_t trial_shape(const writer_t* writer,
                                   const rabbet_dims_t* dims,
                                   rabbet_shape_t* out_shape) {
  *out_shape = (rabbet_shape_t){.rank = dims->rank};
  for (int32_t i = 0; i < dims->rank; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_expr_constant(writer->sequence->graph,
                                                dims->d[i], &out_shape->d[i]));
  return rabbet_ok();
}

// ---- Constants --------------------------------------------------------------

static rabbet_status_t trial_constant_bytes(writer_t* writer,
                                            const rabbet_group_value_t* value,
                                            const rabbet_dims_t* dims,
                                            const int64_t* host_values,
                                            size_t bytes,
                                            const void** out_data) {
  int64_t count = 0;
  uint8_t* data = NULL;
  bool is_float = rabbet_dtype_is_float(value->dtype);
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(dims, &count));
  *out_data = value->constant;
  assert(value->constant || host_values);
  if (host_values) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate(&writer->plan->arena, bytes, (void**)&data));
    for (int64_t i = 0; i < count; ++i)
      rabbet_store_int64(value->dtype, data, i, host_values[i]);
    *out_data = data;
    return rabbet_ok();
  }
  if (value->format == RABBET_FORMAT_LINEAR &&
      count <= (is_float ? 1 : TRIAL_INTEGERS))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&writer->plan->arena, bytes, (void**)&data));
  memset(data, 0, bytes);
  int64_t places = (int64_t)(bytes * 8) / rabbet_dtype_bits(value->dtype);
  for (int64_t i = 0; is_float && i < places; ++i)
    rabbet_store_double(value->dtype, data, i, 1);
  *out_data = data;
  return rabbet_ok();
}

static rabbet_status_t trial_constant(writer_t* writer,
                                      const rabbet_group_value_t* value,
                                      const rabbet_dims_t* dims,
                                      const int64_t* host_values, size_t bytes,
                                      rabbet_plan_value_t* out) {
  rabbet_plan_blob_t blob = {.offset = writer->weights, .size = bytes};
  RABBET_RETURN_IF_ERROR(trial_constant_bytes(writer, value, dims, host_values,
                                              bytes, &blob.data));
  assert(blob.offset % RABBET_PLAN_ALIGNMENT == 0);
  out->storage = RABBET_PLAN_STORAGE_CONSTANT;
  out->offset = blob.offset;
  out->size = bytes;
  writer->weights += rabbet_align_up(bytes, RABBET_PLAN_ALIGNMENT);
  return RABBET_VEC_PUSH(writer->question->allocator, &writer->blobs, blob);
}

// ---- Values, inputs and outputs ---------------------------------------------

static rabbet_status_t trial_io(writer_t* writer, int32_t number,
                                bool is_input) {
  rabbet_plan_sequence_t* sequence = writer->sequence;
  assert(sequence->io_count < sequence->value_count);
  rabbet_plan_value_t* value = &sequence->values[number];
  value->storage = RABBET_PLAN_STORAGE_IO;
  value->io = (int32_t)sequence->io_count;
  sequence->ios[sequence->io_count++] = (rabbet_plan_io_t){.name = value->name,
                                                           .is_input = is_input,
                                                           .value = number,
                                                           .aliased_input = -1};
  sequence->input_count += is_input;
  return rabbet_ok();
}

static rabbet_status_t trial_value(writer_t* writer, size_t i) {
  const rabbet_question_t* question = writer->question;
  const rabbet_group_t* group = question->group;
  int32_t number = rabbet_group_boundary(group, i);
  assert(number >= 0 && (size_t)number < group->value_count);
  const rabbet_group_value_t* value = &group->values[number];
  const rabbet_dims_t* dims = &question->dims[number];
  rabbet_plan_value_t* out = &writer->sequence->values[i];
  bool is_input = i < group->input_count;
  size_t bytes = 0;
  *out = (rabbet_plan_value_t){
      .dtype = value->dtype, .format = value->format, .io = -1, .alias = -1};
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_printf(&writer->plan->arena, &out->name, "%zu", i));
  RABBET_RETURN_IF_ERROR(trial_shape(writer, dims, &out->shape));
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(value->dtype, value->format, dims, &bytes));
  const int64_t* host_values =
      question->host_values ? question->host_values[number] : NULL;
  return is_input && (value->constant || host_values) &&
                 bytes <= TRIAL_PLACEHOLDER
             ? trial_constant(writer, value, dims, host_values, bytes, out)
             : trial_io(writer, (int32_t)i, is_input);
}

static rabbet_status_t trial_values(writer_t* writer) {
  rabbet_plan_sequence_t* sequence = writer->sequence;
  const rabbet_group_t* group = writer->question->group;
  size_t count = group->input_count + group->output_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, count, sizeof(*sequence->values),
      (void**)&sequence->values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, count, sizeof(*sequence->ios),
      (void**)&sequence->ios));
  sequence->value_count = count;
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(trial_value(writer, i));
  return rabbet_ok();
}

static rabbet_status_t trial_profile(writer_t* writer) {
  rabbet_plan_sequence_t* sequence = writer->sequence;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, sequence->input_count,
      sizeof(*sequence->profiles), (void**)&sequence->profiles));
  for (size_t i = 0; i < sequence->input_count; ++i) {
    rabbet_dims_t dims = rabbet_shape_dims(
        sequence->graph, &sequence->values[sequence->ios[i].value].shape);
    sequence->profiles[i] =
        (rabbet_plan_range_t){.min = dims, .opt = dims, .max = dims};
  }
  return rabbet_ok();
}

// ---- The step ---------------------------------------------------------------

static rabbet_status_t trial_step(writer_t* writer) {
  rabbet_plan_sequence_t* sequence = writer->sequence;
  const rabbet_group_t* group = writer->question->group;
  rabbet_plan_step_t* step = NULL;
  int32_t* values = NULL;
  rabbet_shape_t* shapes = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(&sequence->plan->arena,
                                               sizeof(*step), (void**)&step));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&sequence->plan->arena, group->value_count,
                                  sizeof(*values), (void**)&values));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&sequence->plan->arena, group->value_count,
                                  sizeof(*shapes), (void**)&shapes));
  for (size_t i = 0; i < group->value_count; ++i) {
    values[i] = -1;
    RABBET_RETURN_IF_ERROR(
        trial_shape(writer, &writer->question->dims[i], &shapes[i]));
  }
  for (size_t i = 0; i < sequence->value_count; ++i) {
    values[rabbet_group_boundary(group, i)] = (int32_t)i;
    shapes[rabbet_group_boundary(group, i)].rank = -1;
  }
  *step = (rabbet_plan_step_t){.name = "trial",
                               .kernel = writer->question->kernel->name,
                               .tactic = writer->tactic,
                               .tactic_name = "",
                               .time_us = -1,
                               .group = *group,
                               .values = values,
                               .inner_shapes = shapes};
  sequence->steps = step;
  sequence->step_count = 1;
  for (size_t i = 0; i < group->node_count; ++i)
    if (group->nodes[i].plugin)
      RABBET_RETURN_IF_ERROR(rabbet_emit_plugin(
          sequence->plan, writer->question->allocator,
          &(rabbet_plugin_layer_t){group->nodes[i].plugin, &group->nodes[i],
                                   writer->question->device->kind},
          step));
  return rabbet_ok();
}

static rabbet_status_t trial_plan_fill(writer_t* writer) {
  rabbet_plan_t* plan = writer->plan;
  rabbet_device_t* device = writer->question->device;
  plan->name = "trial";
  plan->producer = "rabbet " RABBET_VERSION_STRING;
  plan->device = device->kind;
  plan->device_signature = device->vtable->signature(device);
  plan->threads = 1;
  RABBET_RETURN_IF_ERROR(rabbet_plan_make_sequences(plan, 1));
  writer->sequence = plan->sequences;
  RABBET_RETURN_IF_ERROR(trial_values(writer));
  RABBET_RETURN_IF_ERROR(trial_profile(writer));
  return trial_step(writer);
}

rabbet_status_t rabbet_trial_plan(const rabbet_question_t* question,
                                  int32_t tactic, rabbet_allocator_t allocator,
                                  void** out_data, size_t* out_size) {
  writer_t writer = {.question = question, .tactic = tactic};
  *out_data = NULL;
  *out_size = 0;
  RABBET_RETURN_IF_ERROR(rabbet_plan_create(question->allocator, &writer.plan));
  rabbet_status_t status = trial_plan_fill(&writer);
  if (rabbet_is_ok(status))
    status =
        rabbet_plan_write(writer.plan, writer.blobs.data, writer.blobs.count,
                          allocator, out_data, out_size);
  rabbet_vec_free(question->allocator, &writer.blobs);
  rabbet_plan_destroy(writer.plan);
  return status;
}
