// Plugins: where they come from, and the code that a plan carries for them.
#include <string.h>

#include "plugin/registry.h"
#include "plugin/source_host.h"
#include "runtime/runtime.h"

static bool step_has_new_origin(const rabbet_plan_t* plan, size_t s) {
  const char* origin = rabbet_plan_step(plan, s)->plugin_origin;
  if (!rabbet_plan_step(plan, s)->plugin_name || !origin || !*origin)
    return false;
  for (size_t i = 0; i < s; ++i) {
    const rabbet_plan_step_t* other = rabbet_plan_step(plan, i);
    if (other->plugin_name && other->plugin_origin &&
        strcmp(other->plugin_origin, origin) == 0)
      return false;
  }
  return true;
}

void rabbet_engine_print_origins(const rabbet_plan_t* plan,
                                 rabbet_strbuf_t* out) {
  size_t count = 0;
  for (size_t s = 0; s < rabbet_plan_step_count(plan); ++s)
    count += step_has_new_origin(plan, s);
  if (count < 2) return;
  const char* between = "; all that it was built with: ";
  for (size_t s = 0; s < rabbet_plan_step_count(plan); ++s) {
    if (!step_has_new_origin(plan, s)) continue;
    rabbet_strbuf_printf(out, "%s'%s'", between,
                         rabbet_plan_step(plan, s)->plugin_origin);
    between = ", ";
  }
}

rabbet_status_t rabbet_engine_find_plugin(
    const rabbet_engine_t* engine, const rabbet_plan_step_t* step,
    const rabbet_plugin_creator_t** out_creator) {
  *out_creator = NULL;
  for (size_t i = 0; i < engine->library_count; ++i) {
    const rabbet_plugin_creator_t* creator = rabbet_plugin_library_find(
        engine->libraries[i], step->plugin_name, step->plugin_version,
        step->plugin_namespace);
    if (!creator) continue;
    rabbet_creator_retain(creator);
    *out_creator = creator;
    return rabbet_ok();
  }
  return rabbet_plugin_find(step->plugin_name, step->plugin_version,
                            step->plugin_namespace, out_creator);
}

// ---- Libraries

static rabbet_status_t carried_refused(const rabbet_carried_t* carried) {
  return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                       "the plan carries the plugin library '%s', native code "
                       "that runs when it is loaded: allow that if you trust "
                       "who made the plan, by host_code_allowed (C), "
                       "engine_host_code_allowed (Python) or --allow-host-code",
                       carried->name);
}

static rabbet_status_t engine_open_libraries(
    rabbet_engine_t* engine, const rabbet_engine_options_t* options) {
  const rabbet_plan_t* plan = engine->plan;
  const rabbet_library_files_t files = {
      .directory = options->temporary_directory,
      .no_memory_files = options->no_memory_files,
      .no_temporary_files = options->no_temporary_files};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &engine->arena, plan->carried_count, sizeof(*engine->libraries),
      (void**)&engine->libraries));
  for (size_t i = 0; i < plan->carried_count; ++i) {
    const rabbet_carried_t* carried = &plan->carried[i];
    if (carried->kind != RABBET_CARRIED_LIBRARY) continue;
    if (!options->host_code_allowed) return carried_refused(carried);
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_plugin_library_open(carried->name, carried->data, carried->size,
                                   &files, engine->allocator,
                                   &engine->libraries[engine->library_count]),
        "carried by the plan"));
    ++engine->library_count;
  }
  return rabbet_ok();
}

// ---- Source

// The first step whose plugin is not registered yet, or NULL.
static rabbet_status_t engine_first_unknown(
    const rabbet_engine_t* engine, const rabbet_plan_step_t** out_step) {
  *out_step = NULL;
  for (size_t s = 0; s < rabbet_plan_step_count(engine->plan) && !*out_step;
       ++s) {
    const rabbet_plan_step_t* step = rabbet_plan_step(engine->plan, s);
    const rabbet_kernel_class_t* kernel =
        rabbet_device_find_kernel(engine->device, step->kernel);
    if (!step->plugin_name || !kernel ||
        kernel->flags & RABBET_KERNEL_WITHOUT_PLUGIN)
      continue;
    const rabbet_plugin_creator_t* creator = NULL;
    rabbet_status_t status = rabbet_engine_find_plugin(engine, step, &creator);
    rabbet_plugin_creator_release(creator);
    if (rabbet_status_code(status) == RABBET_STATUS_NOT_FOUND) {
      rabbet_status_free(status);
      *out_step = step;
    } else {
      RABBET_RETURN_IF_ERROR(status);
    }
  }
  return rabbet_ok();
}

static rabbet_status_t source_refused(const rabbet_plan_step_t* step,
                                      const rabbet_carried_t* module) {
  return RABBET_STATUS(
      RABBET_STATUS_FAILED_PRECONDITION,
      "step '%s' needs the plugin '%s%s%s', version '%s', which is not "
      "registered here. The plan carries its source (module '%s'), which is "
      "not run unless you allow it: if you trust who made the plan, do so by "
      "host_code_allowed (C), engine_host_code_allowed (Python) or "
      "--allow-host-code; or import or load '%s' before loading the plan",
      step->name, step->plugin_namespace, *step->plugin_namespace ? "::" : "",
      step->plugin_name, step->plugin_version, module->name,
      step->plugin_origin ? step->plugin_origin : module->name);
}

static rabbet_status_t engine_run_source(
    rabbet_engine_t* engine, const rabbet_engine_options_t* options) {
  const rabbet_plan_t* plan = engine->plan;
  const rabbet_plan_step_t* step = NULL;
  size_t first = 0;
  while (first < plan->carried_count &&
         plan->carried[first].kind != RABBET_CARRIED_PYTHON)
    ++first;
  if (first == plan->carried_count) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(engine_first_unknown(engine, &step));
  if (!step) return rabbet_ok();
  const rabbet_carried_t* modules = &plan->carried[first];
  if (!options->host_code_allowed) return source_refused(step, modules);
  engine->source_run = true;
  return RABBET_ANNOTATE(
      rabbet_source_host_run(modules, plan->carried_count - first),
      "running the plan's source for the plugin '%s%s%s'",
      step->plugin_namespace, *step->plugin_namespace ? "::" : "",
      step->plugin_name);
}

rabbet_status_t rabbet_engine_open_carried(
    rabbet_engine_t* engine, const rabbet_engine_options_t* options) {
  RABBET_RETURN_IF_ERROR(engine_open_libraries(engine, options));
  return engine_run_source(engine, options);
}

void rabbet_engine_close_carried(rabbet_engine_t* engine) {
  while (engine->library_count > 0)
    rabbet_plugin_library_close(engine->libraries[--engine->library_count]);
}
