// Prints an engine's parts, for people and for tools.
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "runtime/call.h"

// Tools search for these words.
static const char* inspect_dtype(rabbet_dtype_t dtype) {
  switch (dtype) {
    case RABBET_DTYPE_FLOAT:
      return "FP32";
    case RABBET_DTYPE_HALF:
      return "FP16";
    case RABBET_DTYPE_BF16:
      return "BFLOAT16";
    case RABBET_DTYPE_DOUBLE:
      return "FP64";
    default:
      return rabbet_dtype_name(dtype);
  }
}

// With a context whose inputs are set, its shapes; else the plan's.
static const rabbet_prepared_t* inspect_shapes(
    const rabbet_context_t* context) {
  if (!context) return NULL;
  return context->main->last ? context->main->last : context->main->current;
}

static rabbet_dims_t inspect_dims(const rabbet_sequence_t* sequence,
                                  const rabbet_prepared_t* shapes,
                                  int32_t value) {
  if (shapes) return shapes->dims[value];
  return rabbet_shape_dims(sequence->plan->graph,
                           &sequence->plan->values[value].shape);
}

// "CONVOLUTION + ACTIVATION"
static void inspect_type(const rabbet_plan_step_t* step, rabbet_strbuf_t* out) {
  for (size_t i = 0; i < step->group.node_count; ++i)
    rabbet_strbuf_printf(out, "%s%s", i ? " + " : "",
                         step->group.nodes[i].op->layer_type);
}

// ---- JSON

static void json_member(rabbet_strbuf_t* out, const char* name,
                        const char* text) {
  rabbet_strbuf_printf(out, "\"%s\": ", name);
  rabbet_strbuf_json_string(out, text);
}

static void json_tensor(const rabbet_sequence_t* sequence,
                        const rabbet_prepared_t* shapes, int32_t v,
                        rabbet_strbuf_t* out) {
  const rabbet_plan_value_t* value = &sequence->plan->values[v];
  rabbet_dims_t dims = inspect_dims(sequence, shapes, v);
  rabbet_strbuf_printf(out, "{");
  json_member(out, "Name", value->name);
  rabbet_strbuf_printf(out, ", \"Dimensions\": [");
  for (int32_t i = 0; i < dims.rank; ++i)
    rabbet_strbuf_printf(out, "%s%lld", i ? ", " : "", (long long)dims.d[i]);
  rabbet_strbuf_printf(out, "], \"Format/Datatype\": \"%s %s\"}",
                       rabbet_format_name(value->format),
                       inspect_dtype(value->dtype));
}

static void json_tensors(const rabbet_sequence_t* sequence,
                         const rabbet_prepared_t* shapes, const char* name,
                         const rabbet_plan_step_t* step, const int32_t* list,
                         size_t count, rabbet_strbuf_t* out) {
  rabbet_strbuf_printf(out, ", \"%s\": [", name);
  for (size_t i = 0; i < count; ++i) {
    if (i) rabbet_strbuf_printf(out, ", ");
    json_tensor(sequence, shapes, step->values[list[i]], out);
  }
  rabbet_strbuf_printf(out, "]");
}

static void json_layers(const rabbet_plan_step_t* step, rabbet_strbuf_t* out) {
  rabbet_strbuf_printf(out, ", \"Layers\": [");
  for (size_t i = 0; i < step->group.node_count; ++i) {
    rabbet_strbuf_printf(out, "%s{", i ? ", " : "");
    json_member(out, "Name", step->group.nodes[i].name);
    rabbet_strbuf_printf(out, ", ");
    json_member(out, "Operator", step->group.nodes[i].op->name);
    rabbet_strbuf_printf(out, "}");
  }
  rabbet_strbuf_printf(out, "]");
}

// Those of a step, or all of them.
static void json_artifacts(const rabbet_plan_t* plan, const int32_t* list,
                           size_t count, rabbet_strbuf_t* out) {
  rabbet_strbuf_printf(out, "\"Artifacts\": [");
  for (size_t i = 0; i < count; ++i) {
    const rabbet_artifact_t* artifact =
        &plan->artifacts[list ? (size_t)list[i] : i];
    char key[33];
    rabbet_hash_print(artifact->key, key);
    rabbet_strbuf_printf(out, "%s{", i ? ", " : "");
    json_member(out, "Name", artifact->name);
    rabbet_strbuf_printf(out, ", \"Key\": \"%s\", \"Bytes\": %zu}", key,
                         artifact->size);
  }
  rabbet_strbuf_printf(out, "]");
}

static void json_step(const rabbet_sequence_t* sequence,
                      const rabbet_prepared_t* shapes,
                      const rabbet_plan_step_t* step, rabbet_strbuf_t* out);

// Loops of which a GPU may decide on each iteration, and why it does not.
static bool inspect_loop(const rabbet_sequence_t* sequence,
                         const rabbet_plan_step_t* step,
                         const char** out_reason) {
  rabbet_loop_wiring_t wiring;
  *out_reason = NULL;
  if (strncmp(sequence->engine->plan->device, "cuda", 4) != 0 ||
      !rabbet_step_loop(step, &wiring))
    return false;
  *out_reason = rabbet_loop_host_reason(sequence, step);
  return true;
}

static void json_loop(const rabbet_sequence_t* sequence,
                      const rabbet_plan_step_t* step, rabbet_strbuf_t* out) {
  const char* reason = NULL;
  if (!inspect_loop(sequence, step, &reason)) return;
  rabbet_strbuf_printf(out, ", \"HostDecides\": ");
  if (reason)
    rabbet_strbuf_json_string(out, reason);
  else
    rabbet_strbuf_printf(out, "null");
}

// The shapes of a sequence that is called are those of the plan.
static void json_calls(const rabbet_sequence_t* sequence,
                       const rabbet_plan_step_t* step, rabbet_strbuf_t* out) {
  if (step->call_count == 0) return;
  rabbet_strbuf_printf(out, ", \"Sequences\": [");
  for (size_t i = 0; i < step->call_count; ++i) {
    const rabbet_sequence_t* callee =
        &sequence->engine->sequences[step->calls[i].sequence];
    rabbet_strbuf_printf(out, "%s{", i ? ", " : "");
    json_member(out, "Name", callee->plan->name);
    rabbet_strbuf_printf(out, ", \"Layers\": [");
    for (size_t s = 0; s < callee->plan->step_count; ++s) {
      if (s) rabbet_strbuf_printf(out, ", ");
      json_step(callee, NULL, &callee->plan->steps[s], out);
    }
    rabbet_strbuf_printf(out, "]}");
  }
  rabbet_strbuf_printf(out, "]");
}

static void json_step(const rabbet_sequence_t* sequence,
                      const rabbet_prepared_t* shapes,
                      const rabbet_plan_step_t* step, rabbet_strbuf_t* out) {
  rabbet_strbuf_printf(out, "{");
  json_member(out, "Name", step->name);
  rabbet_strbuf_printf(out, ", \"LayerType\": \"");
  inspect_type(step, out);
  rabbet_strbuf_printf(out, "\"");
  json_tensors(sequence, shapes, "Inputs", step, step->group.inputs,
               step->group.input_count, out);
  json_tensors(sequence, shapes, "Outputs", step, step->group.outputs,
               step->group.output_count, out);
  rabbet_strbuf_printf(out, ", ");
  json_member(out, "Origin", step->plugin_origin ? step->plugin_origin : "");
  rabbet_strbuf_printf(out, ", ");
  // An engine that is only looked at has no steps.
  rabbet_plugin_t* plugin =
      sequence->steps ? sequence->steps[step - sequence->plan->steps].plugin
                      : NULL;
  json_member(out, "Metadata", plugin ? rabbet_plugin_metadata(plugin) : "");
  rabbet_strbuf_printf(out, ", ");
  json_member(out, "TacticName", step->tactic_name);
  rabbet_strbuf_printf(out, ", \"TacticValue\": \"0x%08x\", ",
                       (unsigned)step->tactic);
  json_member(out, "Kernel", step->kernel);
  // JSON has no infinity, and a time that was not measured is negative.
  if (step->time_us >= 0 && step->time_us < 1e30f)
    rabbet_strbuf_printf(out, ", \"TimeUs\": %.3f", (double)step->time_us);
  else
    rabbet_strbuf_printf(out, ", \"TimeUs\": null");
  json_layers(step, out);
  rabbet_strbuf_printf(out, ", \"HostReads\": [");
  for (size_t i = 0; i < step->host_read_count; ++i) {
    if (i) rabbet_strbuf_printf(out, ", ");
    rabbet_strbuf_json_string(out,
                              sequence->plan->values[step->host_reads[i]].name);
  }
  rabbet_strbuf_printf(out, "], ");
  json_artifacts(sequence->engine->plan, step->artifacts, step->artifact_count,
                 out);
  rabbet_strbuf_printf(out, ", \"Alternatives\": %s",
                       step->report_json ? step->report_json : "[]");
  json_loop(sequence, step, out);
  json_calls(sequence, step, out);
  rabbet_strbuf_printf(out, "}");
}

static void json_steps(const rabbet_sequence_t* sequence,
                       const rabbet_prepared_t* shapes, rabbet_strbuf_t* out) {
  rabbet_strbuf_printf(out, "\"Layers\": [");
  for (size_t s = 0; s < sequence->plan->step_count; ++s) {
    rabbet_strbuf_printf(out, "%s\n  ", s ? "," : "");
    json_step(sequence, shapes, &sequence->plan->steps[s], out);
  }
  rabbet_strbuf_printf(out, "\n]");
}

static const char* carried_kind(const rabbet_carried_t* carried) {
  return carried->kind == RABBET_CARRIED_LIBRARY ? "library" : "source";
}

static void json_carried(const rabbet_plan_t* plan, rabbet_strbuf_t* out) {
  rabbet_strbuf_printf(out, ", \"Carried\": [");
  for (size_t i = 0; i < plan->carried_count; ++i) {
    const rabbet_carried_t* carried = &plan->carried[i];
    rabbet_strbuf_printf(out, "%s{", i ? ", " : "");
    json_member(out, "Kind", carried_kind(carried));
    rabbet_strbuf_printf(out, ", ");
    json_member(out, "Name", carried->name);
    rabbet_strbuf_printf(out, ", \"Bytes\": %zu, \"Requirements\": [",
                         carried->size);
    for (size_t k = 0; k < carried->requirement_count; ++k) {
      if (k) rabbet_strbuf_printf(out, ", ");
      rabbet_strbuf_json_string(out, carried->requirements[k]);
    }
    rabbet_strbuf_printf(out, "]}");
  }
  rabbet_strbuf_printf(out, "]");
}

static void json_profiles(const rabbet_plan_t* plan, size_t entry,
                          rabbet_strbuf_t* out) {
  const char* separator = "";
  rabbet_strbuf_printf(out, "\"Profiles\": [");
  for (size_t p = 0; p < plan->profile_count; ++p) {
    if ((size_t)plan->entries[p] != entry) continue;
    rabbet_strbuf_printf(out, "%s%zu", separator, p);
    separator = ", ";
  }
  rabbet_strbuf_printf(out, "]");
}

// The steps of the profiles that do not run `sequence`.
static void json_other_entries(const rabbet_sequence_t* sequence,
                               rabbet_strbuf_t* out) {
  const rabbet_plan_t* plan = sequence->engine->plan;
  const char* separator = ", \"OtherProfiles\": [";
  for (size_t e = 0; e < plan->sequence_count; ++e) {
    const rabbet_sequence_t* entry = &sequence->engine->sequences[e];
    if (entry == sequence || !rabbet_plan_is_entry(plan, e)) continue;
    rabbet_strbuf_printf(out, "%s{", separator);
    separator = ", ";
    json_profiles(plan, e, out);
    rabbet_strbuf_printf(out, ", ");
    json_steps(entry, NULL, out);
    rabbet_strbuf_printf(out, "}");
  }
  if (strcmp(separator, ", ") == 0) rabbet_strbuf_printf(out, "]");
}

static void json_engine(const rabbet_sequence_t* sequence,
                        const rabbet_prepared_t* shapes, rabbet_strbuf_t* out) {
  const rabbet_engine_t* engine = sequence->engine;
  const rabbet_plan_t* plan = engine->plan;
  rabbet_strbuf_printf(out, "{");
  json_member(out, "Name", plan->name);
  rabbet_strbuf_printf(out, ", ");
  json_member(out, "Producer", plan->producer);
  rabbet_strbuf_printf(out, ", ");
  json_member(out, "Device", plan->device);
  rabbet_strbuf_printf(out, ", ");
  json_member(out, "DeviceSignature", plan->device_signature);
  rabbet_strbuf_printf(out, ", \"Threads\": %d, ", plan->threads);
  json_steps(sequence, shapes, out);
  rabbet_strbuf_printf(out, ", \"Bindings\": [");
  for (size_t i = 0; i < rabbet_engine_io_count(engine); ++i) {
    if (i) rabbet_strbuf_printf(out, ", ");
    rabbet_strbuf_json_string(out, sequence->plan->ios[i].name);
  }
  rabbet_strbuf_printf(out, "], ");
  json_artifacts(plan, NULL, plan->artifact_count, out);
  json_carried(plan, out);
  json_other_entries(sequence, out);
  rabbet_strbuf_printf(out, "}\n");
}

// ---- Text

#define RABBET_INSPECT_COLUMNS 6
#define RABBET_INSPECT_WIDEST 48

typedef struct inspect_table_t {
  rabbet_strbuf_t cells;  // NUL after each
  size_t widths[RABBET_INSPECT_COLUMNS];
  size_t column, start;
} inspect_table_t;

// Columns count characters, not bytes of UTF-8.
static size_t text_width(const char* text) {
  size_t width = 0;
  for (; *text; ++text)
    width += (*text & 0xc0) != 0x80;
  return width;
}

static void table_end_cell(inspect_table_t* table) {
  rabbet_strbuf_append(&table->cells, "", 1);
  if (!table->cells.failed) {
    size_t width = text_width(table->cells.data + table->start);
    if (width > RABBET_INSPECT_WIDEST) width = RABBET_INSPECT_WIDEST;
    if (width > table->widths[table->column])
      table->widths[table->column] = width;
  }
  table->start = table->cells.size;
  table->column = (table->column + 1) % RABBET_INSPECT_COLUMNS;
}

// Type, shape and format of each tensor, constants left out.
static void text_tensors(const rabbet_sequence_t* sequence,
                         const rabbet_prepared_t* shapes,
                         const rabbet_plan_step_t* step, const int32_t* list,
                         size_t count, rabbet_strbuf_t* out) {
  const char* separator = "";
  for (size_t i = 0; i < count; ++i) {
    int32_t v = step->values[list[i]];
    const rabbet_plan_value_t* value = &sequence->plan->values[v];
    if (value->storage == RABBET_PLAN_STORAGE_CONSTANT) continue;
    rabbet_dims_t dims = inspect_dims(sequence, shapes, v);
    char text[192];
    rabbet_strbuf_printf(out, "%s%s %s %s", separator,
                         inspect_dtype(value->dtype),
                         rabbet_dims_print(&dims, text, sizeof(text)),
                         rabbet_format_name(value->format));
    separator = ", ";
  }
}

static void table_step(const rabbet_sequence_t* sequence,
                       const rabbet_prepared_t* shapes,
                       const rabbet_plan_step_t* step, inspect_table_t* table) {
  const char* within = sequence->plan->name;
  if (*within) {
    rabbet_strbuf_line(&table->cells, within);
    rabbet_strbuf_printf(&table->cells, ": ");
  }
  rabbet_strbuf_line(&table->cells, step->name);
  table_end_cell(table);
  rabbet_strbuf_line(&table->cells,
                     step->call_count > 0 ? "sequences" : step->kernel);
  table_end_cell(table);
  rabbet_strbuf_line(&table->cells, step->tactic_name);
  table_end_cell(table);
  if (step->time_us >= 0)
    rabbet_strbuf_printf(&table->cells, "%.1f", (double)step->time_us);
  else
    rabbet_strbuf_printf(&table->cells, "-");
  table_end_cell(table);
  text_tensors(sequence, shapes, step, step->group.inputs,
               step->group.input_count, &table->cells);
  table_end_cell(table);
  text_tensors(sequence, shapes, step, step->group.outputs,
               step->group.output_count, &table->cells);
  table_end_cell(table);
}

// Steps of sequences that a step calls come behind it.
static void table_steps(const rabbet_sequence_t* sequence,
                        const rabbet_prepared_t* shapes,
                        inspect_table_t* table) {
  for (size_t s = 0; s < sequence->plan->step_count; ++s) {
    const rabbet_plan_step_t* step = &sequence->plan->steps[s];
    table_step(sequence, shapes, step, table);
    for (size_t i = 0; i < step->call_count; ++i)
      table_steps(&sequence->engine->sequences[step->calls[i].sequence], NULL,
                  table);
  }
}

static void table_print(const inspect_table_t* table, rabbet_strbuf_t* out) {
  const char* at = table->cells.data;
  const char* end = at + table->cells.size;
  for (size_t column = 0; at < end; at += strlen(at) + 1) {
    bool last = column + 1 == RABBET_INSPECT_COLUMNS;
    size_t width = text_width(at);
    size_t pad = table->widths[column] > width && !last
                     ? table->widths[column] - width
                     : 0;
    // Times stand to the right.
    rabbet_strbuf_printf(out, "%*s%s%*s%s", column == 3 ? (int)pad : 0, "", at,
                         column == 3 ? 0 : (int)pad, "", last ? "\n" : "  ");
    column = last ? 0 : column + 1;
  }
}

static void text_loops(const rabbet_sequence_t* sequence,
                       rabbet_strbuf_t* out) {
  for (size_t s = 0; s < sequence->plan->step_count; ++s) {
    const char* reason = NULL;
    const rabbet_plan_step_t* step = &sequence->plan->steps[s];
    if (inspect_loop(sequence, step, &reason) && reason)
      rabbet_strbuf_printf(out, "waits in each iteration of %s: %s\n",
                           step->name, reason);
  }
}

static void text_engine(const rabbet_sequence_t* sequence,
                        const rabbet_prepared_t* shapes, rabbet_strbuf_t* out) {
  const rabbet_engine_t* engine = sequence->engine;
  const rabbet_plan_t* plan = engine->plan;
  rabbet_strbuf_printf(out, "%s: %zu step%s for %s (%s), %d thread%s, by %s\n",
                       *plan->name ? plan->name : "plan",
                       sequence->plan->step_count,
                       rabbet_plural(sequence->plan->step_count), plan->device,
                       plan->device_signature, plan->threads,
                       rabbet_plural((size_t)plan->threads), plan->producer);
  for (size_t i = 0; i < rabbet_engine_io_count(engine); ++i) {
    char text[192];
    rabbet_dims_t dims =
        inspect_dims(sequence, shapes, sequence->plan->ios[i].value);
    rabbet_strbuf_printf(out, "%-6s %s: %s %s %s\n",
                         sequence->plan->ios[i].is_input ? "input" : "output",
                         sequence->plan->ios[i].name,
                         inspect_dtype(sequence->ios[i].dtype),
                         rabbet_dims_print(&dims, text, sizeof(text)),
                         rabbet_format_name(sequence->ios[i].format));
  }
  for (size_t s = 0; s < sequence->plan->step_count; ++s)
    for (size_t i = 0; i < sequence->plan->steps[s].host_read_count; ++i)
      rabbet_strbuf_printf(
          out, "waits for %s, of which sizes are made\n",
          sequence->plan->values[sequence->plan->steps[s].host_reads[i]].name);
  text_loops(sequence, out);
  for (size_t i = 0; i < plan->artifact_count; ++i)
    rabbet_strbuf_printf(out, "keeps  %s: %zu bytes\n", plan->artifacts[i].name,
                         plan->artifacts[i].size);
  for (size_t i = 0; i < plan->carried_count; ++i)
    rabbet_strbuf_printf(out, "carries %s %s: %zu bytes\n",
                         carried_kind(&plan->carried[i]), plan->carried[i].name,
                         plan->carried[i].size);
  rabbet_strbuf_printf(out, "\n");
}

static void text_step(const rabbet_sequence_t* sequence,
                      const rabbet_prepared_t* shapes,
                      const rabbet_plan_step_t* step, rabbet_strbuf_t* out) {
  rabbet_strbuf_printf(out, "%s: %s, %s, ", step->name, step->kernel,
                       step->tactic_name);
  if (step->time_us >= 0)
    rabbet_strbuf_printf(out, "%.1f us: ", (double)step->time_us);
  else
    rabbet_strbuf_printf(out, "not timed: ");
  text_tensors(sequence, shapes, step, step->group.inputs,
               step->group.input_count, out);
  rabbet_strbuf_printf(out, " -> ");
  text_tensors(sequence, shapes, step, step->group.outputs,
               step->group.output_count, out);
  rabbet_strbuf_printf(out, "\n");
}

static void inspect_text(const rabbet_sequence_t* sequence,
                         const rabbet_prepared_t* shapes,
                         rabbet_strbuf_t* out) {
  const rabbet_plan_t* plan = sequence->engine->plan;
  static const char* const heads[RABBET_INSPECT_COLUMNS] = {
      "Layer", "Kernel", "Tactic", "us", "Inputs", "Outputs"};
  inspect_table_t table = {0};
  rabbet_strbuf_initialize(out->allocator, &table.cells);
  text_engine(sequence, shapes, out);
  for (size_t i = 0; i < RABBET_INSPECT_COLUMNS; ++i) {
    rabbet_strbuf_printf(&table.cells, "%s", heads[i]);
    table_end_cell(&table);
  }
  table_steps(sequence, shapes, &table);
  for (size_t e = 0; e < plan->sequence_count; ++e)
    if (rabbet_plan_is_entry(plan, e) &&
        &sequence->engine->sequences[e] != sequence)
      table_steps(&sequence->engine->sequences[e], NULL, &table);
  if (table.cells.failed)
    out->failed = true;
  else
    table_print(&table, out);
  rabbet_strbuf_deinitialize(&table.cells);
}

rabbet_status_t rabbet_engine_inspect(const rabbet_engine_t* engine,
                                      const rabbet_context_t* context,
                                      int32_t layer,
                                      rabbet_inspect_format_t format,
                                      rabbet_allocator_t allocator,
                                      char** out_text) {
  const rabbet_sequence_t* sequence =
      context ? context->main->sequence : rabbet_engine_main(engine);
  *out_text = NULL;
  if (context && context->engine != engine)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the context belongs to another engine");
  if (layer < -1 || layer >= (int64_t)sequence->plan->step_count)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer %d does not exist; the plan has %zu", layer,
                         sequence->plan->step_count);
  const rabbet_prepared_t* shapes = inspect_shapes(context);
  rabbet_strbuf_t out;
  rabbet_strbuf_initialize(allocator, &out);
  if (format == RABBET_INSPECT_TEXT && layer >= 0)
    text_step(sequence, shapes, &sequence->plan->steps[layer], &out);
  else if (format == RABBET_INSPECT_TEXT)
    inspect_text(sequence, shapes, &out);
  else if (layer >= 0)
    json_step(sequence, shapes, &sequence->plan->steps[layer], &out);
  else
    json_engine(sequence, shapes, &out);
  if (format == RABBET_INSPECT_TEXT) rabbet_strbuf_escape(&out);
  rabbet_status_t status = rabbet_strbuf_status(&out);
  if (rabbet_is_ok(status))
    *out_text = out.data;
  else
    rabbet_strbuf_deinitialize(&out);
  return status;
}
