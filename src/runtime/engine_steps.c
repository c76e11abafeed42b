// Plugins and kernels of an engine's steps.
#include <assert.h>
#include <string.h>

#include "base/strbuf.h"
#include "runtime/runtime.h"

static rabbet_status_t step_create_plugin(rabbet_sequence_t* sequence,
                                          const rabbet_plan_step_t* step,
                                          rabbet_plugin_t** out_plugin) {
  rabbet_engine_t* engine = sequence->engine;
  const char* layer = rabbet_step_plugin_node(step)->name;
  rabbet_plugin_create_t args = {.layer_name = layer,
                                 .phase = RABBET_PLUGIN_PHASE_RUNTIME,
                                 .attrs = step->plugin_attrs,
                                 .attr_count = step->plugin_attr_count};
  const rabbet_plugin_creator_t* creator = NULL;
  rabbet_status_t status = rabbet_engine_find_plugin(engine, step, &creator);
  if (rabbet_is_ok(status)) {
    status =
        rabbet_plugin_create_by(creator, &args, engine->allocator, out_plugin);
    if (rabbet_is_ok(status))
      status = rabbet_step_check_plugin(sequence, step, *out_plugin);
    rabbet_plugin_creator_release(creator);
    return status;
  }
  if (rabbet_status_code(status) != RABBET_STATUS_NOT_FOUND) return status;
  rabbet_strbuf_t origins;
  rabbet_strbuf_initialize(engine->allocator, &origins);
  rabbet_engine_print_origins(engine->plan, &origins);
  status = rabbet_status_annotate(
      status,
      "needs the plugin '%s%s%s', version '%s', which was defined "
      "in '%s' when the plan was built; give that file to plugins= (the "
      "command: "
      "--plugins), or import or load it before loading the plan%s%s",
      step->plugin_namespace, *step->plugin_namespace ? "::" : "",
      step->plugin_name, step->plugin_version,
      step->plugin_origin ? step->plugin_origin : "an unknown place",
      engine->source_run ? " (the source that the plan carries was run and did "
                           "not register it)"
                         : "",
      rabbet_strbuf_text(&origins));
  rabbet_strbuf_deinitialize(&origins);
  return status;
}

static rabbet_status_t step_no_kernel(rabbet_engine_t* engine,
                                      const char* kernel) {
  size_t count = 0;
  const rabbet_kernel_class_t* const* classes =
      engine->device->vtable->kernel_classes(engine->device, &count);
  rabbet_strbuf_t list;
  rabbet_strbuf_initialize(engine->allocator, &list);
  for (size_t i = 0; i < count; ++i)
    rabbet_strbuf_printf(&list, "%s%s", i ? ", " : "", classes[i]->name);
  rabbet_status_t status =
      RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                    "device '%s' has no kernel '%s'; it has %s. The plan was "
                    "written by '%s', this is rabbet %s: build it again",
                    engine->device->name, kernel, rabbet_strbuf_text(&list),
                    engine->plan->producer, rabbet_version());
  rabbet_strbuf_deinitialize(&list);
  return status;
}

rabbet_status_t rabbet_step_artifacts(const rabbet_engine_t* engine,
                                      const rabbet_plan_step_t* step,
                                      rabbet_artifact_t** out_artifacts,
                                      size_t* out_count) {
  size_t count = engine->untrusted ? 0 : step->artifact_count;
  *out_count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(engine->allocator,
                                         count * sizeof(**out_artifacts),
                                         (void**)out_artifacts));
  for (size_t i = 0; i < count; ++i) {
    assert((size_t)step->artifacts[i] < engine->plan->artifact_count);
    (*out_artifacts)[i] = engine->plan->artifacts[step->artifacts[i]];
  }
  *out_count = count;
  return rabbet_ok();
}

static rabbet_status_t step_create_kernel(rabbet_engine_t* engine,
                                          const rabbet_plan_step_t* step,
                                          const rabbet_kernel_class_t* kernel,
                                          rabbet_kernel_t** out_kernel) {
  rabbet_artifact_t* artifacts = NULL;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_step_artifacts(engine, step, &artifacts, &count));
  rabbet_kernel_spec_t spec = {.device = engine->device,
                               .group = &step->group,
                               .tactic = step->tactic,
                               .allocator = engine->allocator,
                               .artifacts = artifacts,
                               .artifact_count = count};
  rabbet_status_t status = rabbet_kernel_create(kernel, &spec, out_kernel);
  rabbet_free(engine->allocator, artifacts);
  return RABBET_ANNOTATE(status, "kernel '%s', tactic %d", step->kernel,
                         step->tactic);
}

// Whether the plan's artifacts suffice without the plugin.
static bool step_has_kernel(const rabbet_engine_t* engine,
                            const rabbet_kernel_class_t* kernel) {
  return kernel->flags & RABBET_KERNEL_WITHOUT_PLUGIN && !engine->untrusted;
}

static rabbet_status_t step_create(rabbet_sequence_t* sequence, size_t s) {
  rabbet_engine_t* engine = sequence->engine;
  rabbet_plan_step_t* step = &sequence->plan->steps[s];
  rabbet_engine_step_t* out = &sequence->steps[s];
  if (step->call_count > 0) return rabbet_ok();
  assert(!out->kernel && !out->plugin);
  const rabbet_kernel_class_t* kernel =
      rabbet_device_find_kernel(engine->device, step->kernel);
  if (!kernel) return step_no_kernel(engine, step->kernel);
  if (step->plugin_name && !step_has_kernel(engine, kernel)) {
    RABBET_RETURN_IF_ERROR(step_create_plugin(sequence, step, &out->plugin));
    for (size_t i = 0; i < step->group.node_count; ++i) {
      rabbet_group_node_t* node = &step->group.nodes[i];
      if (rabbet_op_is(node->op, RABBET_OP_PLUGIN)) node->plugin = out->plugin;
    }
  }
  RABBET_RETURN_IF_ERROR(
      step_create_kernel(engine, step, kernel, &out->kernel));
  if (out->kernel->exchanges && !engine->exchange) engine->exchange = step;
  return rabbet_ok();
}

static void step_align_ios(rabbet_sequence_t* sequence, size_t step) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  const rabbet_group_t* group = &plan->steps[step].group;
  const rabbet_kernel_t* kernel = sequence->steps[step].kernel;
  const int32_t* slots =
      sequence->slot_values + sequence->steps[step].first_slot;
  size_t count = group->input_count + group->output_count;
  for (size_t i = 0; kernel && i < count; ++i) {
    const rabbet_plan_value_t* value = &plan->values[slots[i]];
    assert((kernel->alignment & (kernel->alignment - 1)) == 0);
    if (value->storage == RABBET_PLAN_STORAGE_IO &&
        sequence->io_alignments[value->io] < kernel->alignment)
      sequence->io_alignments[value->io] = kernel->alignment;
  }
}

// Shape inputs lie in the host's memory.
static void sequence_align_ios(rabbet_sequence_t* sequence) {
  for (size_t i = 0; i < sequence->plan->io_count; ++i)
    sequence->io_alignments[i] = 1;
  for (size_t s = 0; s < sequence->plan->step_count; ++s)
    step_align_ios(sequence, s);
  for (size_t i = 0; i < sequence->plan->io_count; ++i)
    if (sequence->ios[i].is_shape_input) sequence->io_alignments[i] = 1;
}

static rabbet_status_t sequence_create_steps(rabbet_sequence_t* sequence) {
  for (size_t s = 0; s < sequence->plan->step_count; ++s)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        step_create(sequence, s), "step '%s'", sequence->plan->steps[s].name));
  sequence_align_ios(sequence);
  return rabbet_ok();
}

rabbet_status_t rabbet_engine_create_steps(rabbet_engine_t* engine) {
  for (size_t i = 0; i < engine->plan->sequence_count; ++i)
    RABBET_RETURN_IF_ERROR(sequence_create_steps(&engine->sequences[i]));
  return rabbet_ok();
}

static void sequence_destroy_steps(rabbet_sequence_t* sequence) {
  if (!sequence->steps) return;
  for (size_t s = 0; s < sequence->plan->step_count; ++s) {
    rabbet_engine_step_t* step = &sequence->steps[s];
    if (step->kernel) step->kernel->kernel_class->destroy(step->kernel);
    rabbet_plugin_release(step->plugin);
    step->kernel = NULL;
    step->plugin = NULL;
  }
}

void rabbet_engine_destroy_steps(rabbet_engine_t* engine) {
  for (size_t i = 0; engine->sequences && i < engine->plan->sequence_count; ++i)
    sequence_destroy_steps(&engine->sequences[i]);
}
