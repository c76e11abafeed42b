#include "builder/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "builder/propose/trial.h"

#define REPORT_ALTERNATIVES 16
#define REPORT_UNSURE 8  // names of steps
#define REPORT_NEAR 1.25

struct rabbet_build_report_t {
  rabbet_allocator_t allocator;
  rabbet_strbuf_t text;
  rabbet_strbuf_t json;
};

void rabbet_build_report_destroy(rabbet_build_report_t* report) {
  if (!report) return;
  rabbet_strbuf_deinitialize(&report->text);
  rabbet_strbuf_deinitialize(&report->json);
  rabbet_free(report->allocator, report);
}

const char* rabbet_build_report_text(rabbet_build_report_t* report) {
  return rabbet_strbuf_text(&report->text);
}

const char* rabbet_build_report_json(rabbet_build_report_t* report) {
  return rabbet_strbuf_text(&report->json);
}

// printf takes most of a report's time: what is written for each choice does
// without it.
static void report_append(rabbet_strbuf_t* out, const char* text) {
  rabbet_strbuf_append(out, text, strlen(text));
}

// "12.3" or "12.300": tenths of a microsecond, or thousandths.
static void report_microseconds(rabbet_strbuf_t* out, double us,
                                bool is_exact) {
  int64_t unit = is_exact ? 1000 : 10;
  if (!(us < 1e12)) {
    rabbet_strbuf_printf(out, "%.*f", is_exact ? 3 : 1, us);
    return;
  }
  int64_t count = llrint(us * (double)unit);
  rabbet_strbuf_integer(out, count / unit);
  char digits[8] = ".";
  count %= unit;
  for (int at = is_exact ? 3 : 1; at > 0; --at, count /= 10)
    digits[at] = (char)('0' + count % 10);
  report_append(out, digits);
}

// Most texts need no escapes.
static void report_string(rabbet_strbuf_t* json, const char* text) {
  size_t size = 0;
  while (text[size] >= ' ' && text[size] <= '~' && text[size] != '"' &&
         text[size] != '\\')
    ++size;
  if (text[size]) {
    rabbet_strbuf_json_string(json, text);
    return;
  }
  rabbet_strbuf_append(json, "\"", 1);
  rabbet_strbuf_append(json, text, size);
  rabbet_strbuf_append(json, "\"", 1);
}

// ---- Choices ----------------------------------------------------------------

static int choice_compare(const void* a, const void* b) {
  const rabbet_choice_t* x = *(const rabbet_choice_t* const*)a;
  const rabbet_choice_t* y = *(const rabbet_choice_t* const*)b;
  if (x->us != y->us) return x->us < y->us ? -1 : 1;
  return (x > y) - (x < y);
}

// The unit's other timed choices, cheapest first.
static size_t report_others(const rabbet_pick_t* pick,
                            const rabbet_choice_t** out, size_t capacity,
                            const rabbet_choice_t** scratch) {
  size_t count = 0;
  for (size_t i = 0; i < pick->unit->choice_count; ++i)
    if (&pick->unit->choices[i] != pick->choice)
      scratch[count++] = &pick->unit->choices[i];
  if (count > 0) qsort(scratch, count, sizeof(*scratch), choice_compare);
  if (count > capacity) count = capacity;
  if (count > 0) memcpy(out, scratch, count * sizeof(*out));
  return count;
}

// "FLOAT -> FLOAT" or, with formats, "FLOAT HWC -> FLOAT HWC"; constants left
// out.
static void report_types(const rabbet_unit_t* unit,
                         const rabbet_choice_t* choice, bool types,
                         bool formats, rabbet_strbuf_t* text) {
  const rabbet_group_t* group = &unit->group;
  size_t boundary = group->input_count + group->output_count;
  const char* gap = "";
  for (size_t i = 0; i < boundary; ++i) {
    bool is_constant = group->values[rabbet_group_boundary(group, i)].constant;
    if (i == group->input_count) gap = *gap ? " -> " : "-> ";
    if (i < group->input_count && is_constant) continue;
    const rabbet_type_format_t* type = &choice->candidate.tensors[i];
    report_append(text, gap);
    if (types) report_append(text, rabbet_dtype_name(type->dtype));
    if (types && formats) report_append(text, " ");
    if (formats) report_append(text, rabbet_format_name(type->format));
    gap = ", ";
  }
}

static const char* report_kernel(const rabbet_choice_t* choice) {
  return choice->candidate.kernel ? choice->candidate.kernel->name : "view";
}

static void report_time(double us, rabbet_strbuf_t* json) {
  if (us >= 0)
    report_microseconds(json, us, true);
  else
    report_append(json, "null");
}

static void report_choice_json(const rabbet_unit_t* unit,
                               const rabbet_choice_t* choice,
                               rabbet_strbuf_t* json) {
  report_append(json, "\"kernel\": ");
  report_string(json, report_kernel(choice));
  report_append(json, ", \"tactic\": ");
  rabbet_strbuf_integer(json, choice->candidate.tactic);
  report_append(json, ", \"tactic_name\": ");
  report_string(json, choice->candidate.tactic_name);
  report_append(json, ", \"types\": \"");
  report_types(unit, choice, true, true, json);
  report_append(json, "\", \"time_us\": ");
  report_time(choice->us, json);
  report_append(json, ", \"workspace\": ");
  rabbet_strbuf_integer(json, (int64_t)choice->workspace);
  if (choice->is_unsure) report_append(json, ", \"unsure\": true");
}

static rabbet_status_t report_alternatives_json(const rabbet_build_t* build,
                                                const rabbet_pick_t* pick,
                                                rabbet_strbuf_t* json) {
  const rabbet_choice_t* others[REPORT_ALTERNATIVES];
  const rabbet_choice_t** scratch = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      build->allocator, (pick->unit->choice_count + 1) * sizeof(*scratch),
      (void**)&scratch));
  size_t count = report_others(pick, others, REPORT_ALTERNATIVES, scratch);
  rabbet_free(build->allocator, scratch);
  report_append(json, "[");
  for (size_t i = 0; i < count; ++i) {
    report_append(json, i ? ", {" : "{");
    report_choice_json(pick->unit, others[i], json);
    report_append(json, "}");
  }
  report_append(json, "]");
  return rabbet_ok();
}

rabbet_status_t rabbet_report_alternatives(const rabbet_build_t* build,
                                           const rabbet_pick_t* pick,
                                           rabbet_arena_t* arena,
                                           const char** out_json) {
  rabbet_strbuf_t json;
  rabbet_strbuf_initialize(build->allocator, &json);
  rabbet_status_t status = report_alternatives_json(build, pick, &json);
  if (rabbet_is_ok(status)) status = rabbet_strbuf_status(&json);
  if (rabbet_is_ok(status))
    status = rabbet_arena_strdup(arena, rabbet_strbuf_text(&json), out_json);
  rabbet_strbuf_deinitialize(&json);
  return status;
}

// ---- Times to doubt ---------------------------------------------------------

// Whether the unit might have another choice if the machine had been quiet: an
// unsure time is the chosen one's, or near it.
static bool report_is_unsure(const rabbet_pick_t* pick) {
  for (size_t i = 0; i < pick->unit->choice_count; ++i) {
    const rabbet_choice_t* choice = &pick->unit->choices[i];
    if (choice->is_unsure &&
        (choice == pick->choice || choice->us < REPORT_NEAR * pick->choice->us))
      return true;
  }
  return false;
}

// ---- All sequences ----------------------------------------------------------

// The steps of all sequences, numbered through.
static size_t report_step_count(const rabbet_report_t* report) {
  size_t count = 0;
  for (size_t i = 0; i < report->count; ++i)
    count += report->sequences[i].layout->steps.count;
  return count;
}

static const rabbet_pick_t* report_step(
    const rabbet_report_t* report, size_t number,
    const rabbet_report_sequence_t** out_sequence) {
  const rabbet_report_sequence_t* sequence = report->sequences;
  for (; number >= sequence->layout->steps.count; ++sequence)
    number -= sequence->layout->steps.count;
  *out_sequence = sequence;
  return &sequence->layout->steps.data[number].pick;
}

static size_t report_timings(const rabbet_report_t* report) {
  size_t count = 0;
  for (size_t i = 0; i < report->count; ++i)
    count += report->sequences[i].build->timings;
  return count;
}

// Seconds of each phase so far.
static void report_phases_json(const rabbet_build_t* build,
                               rabbet_strbuf_t* json) {
  for (int i = 0; build->phases && i < RABBET_PHASE_COUNT; ++i)
    rabbet_strbuf_printf(json, "%s\"%s\": %.3f", i > 0 ? ", " : "",
                         rabbet_phase_name((rabbet_phase_t)i),
                         (double)build->phases->ns[i] * 1e-9);
  rabbet_strbuf_printf(json, "}, ");
}

static void report_unsure_json(const rabbet_report_t* report,
                               rabbet_strbuf_t* json) {
  const rabbet_report_sequence_t* sequence = NULL;
  const char* gap = "";
  rabbet_strbuf_printf(json, "\"whole_unsure\": %s, \"unsure\": [",
                       report->totals->whole.is_unsure ? "true" : "false");
  for (size_t i = 0; i < report_step_count(report); ++i) {
    const rabbet_pick_t* pick = report_step(report, i, &sequence);
    if (!report_is_unsure(pick)) continue;
    rabbet_strbuf_printf(json, "%s", gap);
    report_string(json, pick->unit->name);
    gap = ", ";
  }
  rabbet_strbuf_printf(json, "], ");
}

static void report_unsure_text(const rabbet_report_t* report,
                               rabbet_strbuf_t* out) {
  const rabbet_report_sequence_t* sequence = NULL;
  size_t count = 0;
  for (size_t i = 0; i < report_step_count(report); ++i) {
    const rabbet_pick_t* pick = report_step(report, i, &sequence);
    if (!report_is_unsure(pick)) continue;
    if (count++ < REPORT_UNSURE)
      rabbet_strbuf_printf(out, "%s'%s'",
                           count == 1
                               ? "the machine was busy while these steps "
                                 "were timed, their kernels may not be "
                                 "the quickest: "
                               : ", ",
                           pick->unit->name);
  }
  if (count > REPORT_UNSURE)
    rabbet_strbuf_printf(out, " and %zu more", count - REPORT_UNSURE);
  if (count > 0) rabbet_strbuf_printf(out, "\n");
  if (report->totals->whole.is_unsure)
    rabbet_strbuf_printf(out,
                         "the machine was busy while whole plans were timed\n");
}

// ---- JSON -------------------------------------------------------------------

static rabbet_status_t report_step_json(
    const rabbet_report_sequence_t* sequence, const rabbet_pick_t* pick,
    rabbet_strbuf_t* json) {
  const rabbet_unit_t* unit = pick->unit;
  report_append(json, "{\"name\": ");
  report_string(json, unit->name);
  if (*sequence->name) {
    report_append(json, ", \"sequence\": ");
    report_string(json, sequence->name);
  }
  report_append(json, ", \"layers\": [");
  for (size_t i = 0; i < unit->group.node_count; ++i) {
    if (i > 0) report_append(json, ", ");
    report_string(json, unit->group.nodes[i].name);
  }
  report_append(json, "], ");
  report_choice_json(unit, pick->choice, json);
  report_append(json, ", \"alternatives\": ");
  RABBET_RETURN_IF_ERROR(report_alternatives_json(sequence->build, pick, json));
  report_append(json, "}");
  return rabbet_ok();
}

// Kernels that did harm when they were tried.
static void report_culprits_json(const rabbet_report_sequence_t* sequence,
                                 const char** gap, rabbet_strbuf_t* json) {
  size_t count = 0;
  const rabbet_culprit_t* culprits =
      rabbet_trials_culprits(sequence->build->trials, &count);
  for (size_t i = 0; i < count; ++i) {
    const struct {
      const char *name, *text;
    } fields[] = {{"layer", culprits[i].layer},
                  {"kernel", culprits[i].kernel},
                  {"tactic_name", culprits[i].tactic_name},
                  {"reason", culprits[i].reason}};
    for (size_t k = 0; k < sizeof(fields) / sizeof(fields[0]); ++k) {
      rabbet_strbuf_printf(json, "%s\"%s\": ", k > 0 ? ", " : *gap,
                           fields[k].name);
      report_string(json, fields[k].text);
    }
    rabbet_strbuf_printf(json, "}");
    *gap = ",\n{";
  }
}

static rabbet_status_t report_json(const rabbet_report_t* report,
                                   rabbet_strbuf_t* json) {
  const rabbet_build_t* build = report->sequences[0].build;
  const rabbet_solution_t* solution = report->sequences[0].solution;
  const rabbet_report_totals_t* totals = report->totals;
  const rabbet_report_sequence_t* sequence = NULL;
  const char* gap = "\n{";
  size_t doubtful = 0;
  uint64_t search_steps = 0;
  for (size_t i = 0; i < report->count; ++i) {
    doubtful += report->sequences[i].build->doubtful;
    search_steps += report->sequences[i].build->search_steps;
  }
  rabbet_strbuf_printf(json, "{\"device\": ");
  report_string(json, build->device->name);
  rabbet_strbuf_printf(json, ", \"threads\": %d, \"optimization_level\": %d",
                       build->threads, build->level);
  rabbet_strbuf_printf(json,
                       ", \"layers\": %zu, \"sum_us\": ", totals->layer_count);
  report_time(solution->us, json);
  rabbet_strbuf_printf(json, ", \"exact\": %s, \"whole_us\": ",
                       solution->exact ? "true" : "false");
  report_time(totals->whole.us, json);
  rabbet_strbuf_printf(
      json,
      ", \"memory\": %zu, \"weights\": %zu, \"plan\": %zu, \"timings\": %zu, "
      "\"doubtful\": %zu, \"search_steps\": %llu, "
      "\"tactic_memory\": %zu, \"peak_resident\": %llu, "
      "\"seconds\": %.3f, \"phases\": {",
      totals->memory, totals->weights, (size_t)totals->plan,
      report_timings(report), doubtful, (unsigned long long)search_steps,
      totals->tactics, (unsigned long long)rabbet_peak_resident(),
      totals->seconds);
  report_phases_json(build, json);
  report_unsure_json(report, json);
  rabbet_strbuf_printf(json, "\"steps\": [");
  for (size_t i = 0; i < report_step_count(report); ++i) {
    const rabbet_pick_t* pick = report_step(report, i, &sequence);
    rabbet_strbuf_printf(json, "%s\n", i ? "," : "");
    RABBET_RETURN_IF_ERROR(report_step_json(sequence, pick, json));
  }
  rabbet_strbuf_printf(json, "], \"left_out\": [");
  for (size_t i = 0; i < report->count; ++i)
    report_culprits_json(&report->sequences[i], &gap, json);
  rabbet_strbuf_printf(json, "]}\n");
  return rabbet_strbuf_status(json);
}

// ---- Text -------------------------------------------------------------------

typedef enum report_column_t {
  COLUMN_LAYER,
  COLUMN_TYPES,
  COLUMN_FORMATS,
  COLUMN_TACTIC,
  COLUMN_TIME,
  COLUMN_OTHERS,
  COLUMN_COUNT,
} report_column_t;

static const struct {
  const char* title;
  size_t limit;  // longer text is cut
} report_columns[COLUMN_COUNT] = {
    {"layer", 44},  {"types", 28},   {"formats", 28},
    {"tactic", 36}, {"time us", 10}, {"alternatives", 72},
};

typedef struct report_row_t {
  rabbet_strbuf_t cells[COLUMN_COUNT];
} report_row_t;

static void report_row_initialize(rabbet_allocator_t allocator,
                                  report_row_t* row) {
  for (int i = 0; i < COLUMN_COUNT; ++i)
    rabbet_strbuf_initialize(allocator, &row->cells[i]);
}

static void report_row_deinitialize(report_row_t* row) {
  for (int i = 0; i < COLUMN_COUNT; ++i)
    rabbet_strbuf_deinitialize(&row->cells[i]);
}

static rabbet_status_t report_others_text(const rabbet_build_t* build,
                                          const rabbet_pick_t* pick,
                                          rabbet_strbuf_t* text) {
  const rabbet_choice_t* others[3];
  const rabbet_choice_t** scratch = NULL;
  size_t total = pick->unit->choice_count;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      build->allocator, (total + 1) * sizeof(*scratch), (void**)&scratch));
  size_t count = report_others(pick, others, 3, scratch);
  rabbet_free(build->allocator, scratch);
  for (size_t i = 0; i < count; ++i) {
    const rabbet_candidate_t* other = &others[i]->candidate;
    // The class is said where it is another than the chosen one's.
    bool same =
        !other->kernel || other->kernel == pick->choice->candidate.kernel;
    if (i > 0) report_append(text, ", ");
    if (!same) report_append(text, other->kernel->name);
    if (!same) report_append(text, " ");
    report_append(text, other->tactic_name);
    if (others[i]->us < 0) continue;
    report_append(text, " ");
    report_microseconds(text, others[i]->us, false);
  }
  if (total > count + 1)
    rabbet_strbuf_printf(text, " and %zu more", total - count - 1);
  return rabbet_ok();
}

static rabbet_status_t report_row(const rabbet_report_sequence_t* sequence,
                                  const rabbet_pick_t* pick,
                                  report_row_t* row) {
  const rabbet_choice_t* choice = pick->choice;
  if (*sequence->name) {
    rabbet_strbuf_line(&row->cells[COLUMN_LAYER], sequence->name);
    report_append(&row->cells[COLUMN_LAYER], ": ");
  }
  rabbet_strbuf_line(&row->cells[COLUMN_LAYER], pick->unit->name);
  report_types(pick->unit, choice, true, false, &row->cells[COLUMN_TYPES]);
  report_types(pick->unit, choice, false, true, &row->cells[COLUMN_FORMATS]);
  report_append(&row->cells[COLUMN_TACTIC], report_kernel(choice));
  if (choice->candidate.kernel) {
    report_append(&row->cells[COLUMN_TACTIC], " ");
    report_append(&row->cells[COLUMN_TACTIC], choice->candidate.tactic_name);
  }
  if (choice->candidate.kernel && choice->us >= 0)
    report_microseconds(&row->cells[COLUMN_TIME], choice->us, false);
  else
    report_append(&row->cells[COLUMN_TIME],
                  choice->candidate.kernel ? "-" : "0");
  RABBET_RETURN_IF_ERROR(
      report_others_text(sequence->build, pick, &row->cells[COLUMN_OTHERS]));
  for (int i = 0; i < COLUMN_COUNT; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_strbuf_status(&row->cells[i]));
  return rabbet_ok();
}

static size_t report_width(const report_row_t* rows, size_t count, int column) {
  size_t width = strlen(report_columns[column].title);
  for (size_t i = 0; i < count; ++i)
    if (rows[i].cells[column].size > width) width = rows[i].cells[column].size;
  size_t limit = report_columns[column].limit;
  return width < limit ? width : limit;
}

static void report_spaces(rabbet_strbuf_t* out, size_t count) {
  for (; count > 0; --count)
    rabbet_strbuf_append(out, " ", 1);
}

static void report_cell(const char* text, size_t width, int column,
                        rabbet_strbuf_t* out) {
  size_t size = strlen(text);
  size_t gap = size < width ? width - size : 0;
  if (column > 0) report_append(out, "  ");
  if (size > width) {
    size_t cut = width - 3;
    while (cut > 0 && (text[cut] & 0xc0) == 0x80)
      --cut;  // between characters of UTF-8
    rabbet_strbuf_append(out, text, cut);
    report_append(out, "...");
    return;
  }
  if (column == COLUMN_TIME) report_spaces(out, gap);
  rabbet_strbuf_append(out, text, size);
  if (column != COLUMN_TIME && column != COLUMN_COUNT - 1)
    report_spaces(out, gap);
}

static void report_table(const report_row_t* rows, size_t count,
                         rabbet_strbuf_t* out) {
  size_t widths[COLUMN_COUNT];
  for (int c = 0; c < COLUMN_COUNT; ++c) {
    widths[c] = report_width(rows, count, c);
    report_cell(report_columns[c].title, widths[c], c, out);
  }
  rabbet_strbuf_printf(out, "\n");
  for (size_t i = 0; i < count; ++i) {
    for (int c = 0; c < COLUMN_COUNT; ++c)
      report_cell(rabbet_strbuf_text(&rows[i].cells[c]), widths[c], c, out);
    rabbet_strbuf_printf(out, "\n");
  }
}

static void report_totals(const rabbet_report_t* report, size_t steps,
                          rabbet_strbuf_t* out) {
  const rabbet_build_t* build = report->sequences[0].build;
  const rabbet_solution_t* solution = report->sequences[0].solution;
  const rabbet_report_totals_t* totals = report->totals;
  size_t timings = report_timings(report);
  rabbet_strbuf_printf(
      out, "\n%zu layer%s became %zu step%s on %s with %d thread%s; ",
      totals->layer_count, rabbet_plural(totals->layer_count), steps,
      rabbet_plural(steps), build->device->name, build->threads,
      rabbet_plural((size_t)build->threads));
  if (solution->us > 0)
    rabbet_strbuf_printf(out, "the sum of their times is %.1f us",
                         solution->us);
  else if (build->level > 0)
    rabbet_strbuf_printf(out, "there was nothing to choose, nothing was timed");
  else
    rabbet_strbuf_printf(out, "nothing was timed (optimization level 0)");
  if (totals->whole.us >= 0)
    rabbet_strbuf_printf(out, ", the whole takes %.1f us", totals->whole.us);
  rabbet_strbuf_printf(out,
                       ".\nintermediate tensors %.1f KiB, constants %.1f KiB, "
                       "plan %.1f KiB; %zu measurement%s, %.2f s\n",
                       (double)totals->memory / 1024,
                       (double)totals->weights / 1024,
                       (double)totals->plan / 1024, timings,
                       rabbet_plural(timings), totals->seconds);
  rabbet_strbuf_printf(
      out, "measurements held at most %.1f MiB; the process, %.1f MiB\n",
      (double)totals->tactics / (1 << 20),
      (double)rabbet_peak_resident() / (1 << 20));
}

static void report_culprits(const rabbet_build_t* build, rabbet_strbuf_t* out) {
  size_t count = 0;
  const rabbet_culprit_t* culprits =
      rabbet_trials_culprits(build->trials, &count);
  for (size_t i = 0; i < count; ++i)
    rabbet_strbuf_printf(
        out, "left out for '%s': %s %s: %s\n", culprits[i].layer,
        culprits[i].kernel,
        *culprits[i].tactic_name ? culprits[i].tactic_name : "(asking)",
        culprits[i].reason);
}

static rabbet_status_t report_text(const rabbet_report_t* report,
                                   rabbet_strbuf_t* out) {
  rabbet_allocator_t allocator = report->sequences[0].build->allocator;
  const rabbet_report_sequence_t* sequence = NULL;
  size_t count = report_step_count(report), steps = 0;
  report_row_t* rows = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, (count + 1) * sizeof(*rows), (void**)&rows));
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < count; ++i) {
    const rabbet_pick_t* pick = report_step(report, i, &sequence);
    report_row_initialize(allocator, &rows[i]);
    if (rabbet_is_ok(status)) status = report_row(sequence, pick, &rows[i]);
    steps += pick->choice->candidate.kernel != NULL;
  }
  if (rabbet_is_ok(status)) {
    report_table(rows, count, out);
    report_totals(report, steps, out);
    report_unsure_text(report, out);
    for (size_t i = 0; i < report->count; ++i)
      report_culprits(report->sequences[i].build, out);
    rabbet_strbuf_escape(out);
    status = rabbet_strbuf_status(out);
  }
  for (size_t i = 0; i < count; ++i)
    report_row_deinitialize(&rows[i]);
  rabbet_free(allocator, rows);
  return status;
}

rabbet_status_t rabbet_report_create(const rabbet_report_t* from,
                                     rabbet_allocator_t allocator,
                                     rabbet_build_report_t** out_report) {
  *out_report = NULL;
  rabbet_build_report_t* report = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*report), (void**)&report));
  report->allocator = allocator;
  rabbet_strbuf_initialize(allocator, &report->text);
  rabbet_strbuf_initialize(allocator, &report->json);
  rabbet_status_t status = report_text(from, &report->text);
  if (rabbet_is_ok(status)) status = report_json(from, &report->json);
  if (rabbet_is_ok(status))
    *out_report = report;
  else
    rabbet_build_report_destroy(report);
  return status;
}
