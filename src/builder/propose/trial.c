#define _GNU_SOURCE
#include "builder/propose/trial.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "builder/propose/trial_internal.h"

struct rabbet_trials_t {
  rabbet_build_t* build;
  rabbet_asker_t asker;
  const char* layer;
  rabbet_trial_helper_t helper;
  bool in_process;     // no helper can be started; the user was warned
  bool is_collecting;  // questions wait in `ahead`
  bool has_guessed;    // a question got no answer of its own so far
  RABBET_VEC(rabbet_trial_ahead_t) ahead;
  RABBET_VEC(rabbet_culprit_t) culprits;
};

static rabbet_status_t trials_ask(void* context,
                                  const rabbet_question_t* question,
                                  rabbet_answer_sink_t sink);

static void trials_drop_ahead(rabbet_trials_t* trials) {
  rabbet_allocator_t allocator = trials->build->allocator;
  for (size_t i = 0; i < trials->ahead.count; ++i) {
    rabbet_trial_request_deinitialize(allocator,
                                      &trials->ahead.data[i].request);
    rabbet_trial_deinitialize(allocator, &trials->ahead.data[i].trial);
  }
  rabbet_vec_free(allocator, &trials->ahead);
}

rabbet_status_t rabbet_trials_create(rabbet_build_t* build) {
  rabbet_trials_t* trials = NULL;
  const char* asked = getenv("RABBET_TRIAL");
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(build->allocator, sizeof(*trials), (void**)&trials));
  trials->build = build;
  trials->asker = (rabbet_asker_t){trials, trials_ask};
  trials->in_process = asked && strcmp(asked, "none") == 0;
  // Once for a build, whatever asks for them later.
  (void)rabbet_trial_seconds(&build->logger);
  (void)rabbet_trial_helpers(&build->logger);
  rabbet_trial_helper_initialize(build->device, build->allocator, build->logger,
                                 &trials->helper);
  build->trials = trials;
  return rabbet_ok();
}

void rabbet_trials_destroy(rabbet_trials_t* trials) {
  if (!trials) return;
  rabbet_allocator_t allocator = trials->build->allocator;
  rabbet_trial_helper_deinitialize(&trials->helper);
  trials_drop_ahead(trials);
  rabbet_vec_free(allocator, &trials->culprits);
  rabbet_free(allocator, trials);
}

const rabbet_asker_t* rabbet_trials_asker(rabbet_trials_t* trials,
                                          const char* layer) {
  if (!trials) return NULL;
  trials->layer = layer;
  return &trials->asker;
}

const rabbet_culprit_t* rabbet_trials_culprits(const rabbet_trials_t* trials,
                                               size_t* out_count) {
  *out_count = trials ? trials->culprits.count : 0;
  return trials ? trials->culprits.data : NULL;
}

// ---- Answers in the timing cache -------------------------------------------

static bool trials_may_cache(const rabbet_trials_t* trials) {
  const rabbet_builder_config_t* config = trials->build->config;
  int64_t flags = config->options[RABBET_BUILDER_OPTION_FLAGS];
  return (flags >> RABBET_BUILDER_DISABLE_TIMING_CACHE & 1) == 0;
}

// The key has all that an answer depends on: GPU and driver, library, class,
// group.
static rabbet_status_t trials_key(const rabbet_trials_t* trials,
                                  const rabbet_question_t* question,
                                  rabbet_hash_t* out_key, bool* out_cacheable) {
  const rabbet_build_t* build = trials->build;
  const rabbet_kernel_class_t* kernel = question->kernel;
  rabbet_device_t* device = question->device;
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(build->allocator, &text);
  rabbet_strbuf_printf(&text, "answers\n%s\n%s %u\n%d %d %d\nlibrary %llu\n",
                       device->vtable->signature(device), kernel->name,
                       kernel->version, question->tf32, question->wish,
                       question->enough,
                       kernel->library_version
                           ? (unsigned long long)kernel->library_version(device)
                           : 0);
  rabbet_status_t status =
      rabbet_group_signature(question->group, out_cacheable, &text);
  if (rabbet_is_ok(status)) status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status)) *out_key = rabbet_hash128(text.data, text.size);
  rabbet_strbuf_deinitialize(&text);
  *out_cacheable = *out_cacheable && trials_may_cache(trials);
  return status;
}

static rabbet_status_t trials_find(const rabbet_trials_t* trials,
                                   rabbet_hash_t key, rabbet_trial_t* trial,
                                   bool* out_found) {
  rabbet_build_t* build = trials->build;
  void* data = NULL;
  size_t size = 0;
  *out_found = false;
  RABBET_RETURN_IF_ERROR(rabbet_timing_cache_find_answer(
      build->cache, key, build->allocator, &data, &size));
  if (!data) return rabbet_ok();
  *out_found = rabbet_trial_read(data, size, build->allocator, trial);
  rabbet_free(build->allocator, data);
  if (*out_found) return rabbet_ok();
  // Damaged bytes: the part that was already read is dropped.
  trial->items.count = 0;
  trial->asking = NULL;
  return rabbet_ok();
}

static rabbet_status_t trials_keep(const rabbet_trials_t* trials,
                                   rabbet_hash_t key,
                                   const rabbet_trial_t* trial) {
  rabbet_build_t* build = trials->build;
  rabbet_strbuf_t bytes;
  rabbet_strbuf_initialize(build->allocator, &bytes);
  rabbet_trial_write(trial, &bytes);
  rabbet_status_t status = rabbet_strbuf_status(&bytes);
  if (rabbet_is_ok(status))
    status = rabbet_timing_cache_put_answer(build->cache, key, bytes.data,
                                            bytes.size);
  rabbet_strbuf_deinitialize(&bytes);
  return status;
}

// ---- Culprits ---------------------------------------------------------------

static rabbet_status_t trials_blame(rabbet_trials_t* trials,
                                    const rabbet_question_t* question,
                                    const char* tactic_name,
                                    const char* reason) {
  assert(reason && tactic_name);
  rabbet_build_t* build = trials->build;
  rabbet_culprit_t culprit = {.kernel = question->kernel->name,
                              .layer = trials->layer};
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(&build->arena, tactic_name, &culprit.tactic_name));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(&build->arena, reason, &culprit.reason));
  rabbet_log(build->logger, RABBET_SEVERITY_WARNING,
             "layer '%s': %s %s is left out: %s", culprit.layer, culprit.kernel,
             *tactic_name ? tactic_name : "(asking for kernels)", reason);
  return RABBET_VEC_PUSH(build->allocator, &trials->culprits, culprit);
}

static rabbet_status_t trials_blame_all(rabbet_trials_t* trials,
                                        const rabbet_question_t* question,
                                        const rabbet_trial_t* trial) {
  if (trial->asking)
    RABBET_RETURN_IF_ERROR(trials_blame(trials, question, "", trial->asking));
  for (size_t i = 0; i < trial->items.count; ++i) {
    const rabbet_trial_item_t* item = &trial->items.data[i];
    if (item->verdict != RABBET_VERDICT_HARMFUL) continue;
    RABBET_RETURN_IF_ERROR(trials_blame(
        trials, question, item->answer.tactic_name,
        item->reason ? item->reason : "it failed when it was tried"));
  }
  return rabbet_ok();
}

static rabbet_status_t trials_pass(rabbet_trials_t* trials,
                                   const rabbet_question_t* question,
                                   const rabbet_trial_t* trial,
                                   rabbet_answer_sink_t sink) {
  RABBET_RETURN_IF_ERROR(trials_blame_all(trials, question, trial));
  for (size_t i = 0; i < trial->items.count; ++i)
    if (trial->items.data[i].verdict == RABBET_VERDICT_PASSED)
      RABBET_RETURN_IF_ERROR(
          sink.add(sink.context, &trial->items.data[i].answer));
  return rabbet_ok();
}

// ---- Asking -----------------------------------------------------------------

// Takes ownership of the status, which gives the cause.
static void trials_tell(rabbet_trials_t* trials, rabbet_status_t why) {
  assert(rabbet_status_code(why) == RABBET_STATUS_UNAVAILABLE);
  if (!trials->in_process)
    rabbet_log(trials->build->logger, RABBET_SEVERITY_WARNING,
               "kernels of libraries are tried in this process, which does not "
               "survive if one of them crashes: %s",
               rabbet_status_message(why));
  // If helpers may still start, only this question could not be asked in one
  // (too little memory, for example).
  trials->in_process = !trials->helper.may_start;
  rabbet_status_ignore(why);
}

// The question waits. One answer in its place shows which groups are asked
// about if libraries have kernels for all.
static rabbet_status_t trials_collect(rabbet_trials_t* trials,
                                      const rabbet_question_t* question,
                                      rabbet_hash_t key, bool cacheable,
                                      rabbet_answer_sink_t sink) {
  rabbet_allocator_t allocator = trials->build->allocator;
  const rabbet_answer_t guess = {.tactic_name = "guess"};
  bool known = !cacheable;
  for (size_t i = 0; i < trials->ahead.count && !known; ++i)
    known = trials->ahead.data[i].key.high == key.high &&
            trials->ahead.data[i].key.low == key.low;
  if (!known) {
    rabbet_trial_ahead_t item = {.key = key};
    RABBET_RETURN_IF_ERROR(RABBET_VEC_RESERVE(allocator, &trials->ahead, 1));
    rabbet_status_t status = rabbet_trial_request_initialize(
        question, NULL, allocator, &item.request);
    if (rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY)
      return status;
    // A question that no plan can hold is asked in its turn, which says so.
    if (rabbet_is_ok(status)) {
      rabbet_trial_initialize(allocator, &item.trial);
      trials->ahead.data[trials->ahead.count++] = item;
    }
    rabbet_status_ignore(status);
  }
  trials->has_guessed = true;
  return sink.add(sink.context, &guess);
}

static rabbet_status_t trials_ask_helper(rabbet_trials_t* trials,
                                         const rabbet_question_t* question,
                                         rabbet_answer_sink_t sink,
                                         rabbet_trial_t* trial) {
  rabbet_hash_t key = {0};
  bool cacheable = false, found = false;
  RABBET_RETURN_IF_ERROR(trials_key(trials, question, &key, &cacheable));
  if (cacheable)
    RABBET_RETURN_IF_ERROR(trials_find(trials, key, trial, &found));
  if (found) return trials_pass(trials, question, trial, sink);
  if (trials->is_collecting)
    return trials_collect(trials, question, key, cacheable, sink);
  if (trials->in_process) return rabbet_trial_ask_here(question, trial, sink);
  rabbet_status_t status =
      rabbet_trial_helper_ask(&trials->helper, question, NULL, trial);
  if (rabbet_status_code(status) == RABBET_STATUS_UNAVAILABLE) {
    trials_tell(trials, status);
    RABBET_RETURN_IF_ERROR(trials_blame_all(trials, question, trial));
    return rabbet_trial_ask_here(question, trial, sink);
  }
  RABBET_RETURN_IF_ERROR(status);
  if (cacheable) RABBET_RETURN_IF_ERROR(trials_keep(trials, key, trial));
  return trials_pass(trials, question, trial, sink);
}

static rabbet_status_t trials_ask(void* context,
                                  const rabbet_question_t* question,
                                  rabbet_answer_sink_t sink) {
  rabbet_trials_t* trials = context;
  rabbet_trial_t trial;
  rabbet_trial_initialize(trials->build->allocator, &trial);
  rabbet_phases_t* phases = trials->build->phases;
  rabbet_phase_t before = rabbet_phases_enter(phases, RABBET_PHASE_LIBRARIES);
  rabbet_status_t status = trials_ask_helper(trials, question, sink, &trial);
  rabbet_phases_enter(phases, before);
  rabbet_trial_deinitialize(trials->build->allocator, &trial);
  return status;
}

// ---- Asking ahead -----------------------------------------------------------

enum { TRIALS_FEW = 4 };  // questions that one helper has soon answered

static bool trials_has_libraries(const rabbet_trials_t* trials) {
  rabbet_device_t* device = trials->build->device;
  size_t count = 0;
  const rabbet_kernel_class_t* const* classes =
      device->vtable->kernel_classes(device, &count);
  for (size_t i = 0; i < count; ++i)
    if (classes[i]->ask) return true;
  return false;
}

bool rabbet_trials_collect(rabbet_trials_t* trials) {
  trials->is_collecting = !trials->in_process && trials_may_cache(trials) &&
                          rabbet_trial_helpers(NULL) > 1 &&
                          trials_has_libraries(trials);
  return trials->is_collecting;
}

bool rabbet_trials_is_collecting(const rabbet_trials_t* trials) {
  return trials && trials->is_collecting;
}

bool rabbet_trials_take_guess(rabbet_trials_t* trials) {
  if (!trials) return false;
  bool guessed = trials->has_guessed;
  trials->has_guessed = false;
  return guessed;
}

rabbet_status_t rabbet_trials_ask_collected(
    rabbet_trials_t* trials, rabbet_status_t (*meanwhile)(void* context),
    void* context) {
  rabbet_status_t status = rabbet_ok();
  trials->is_collecting = false;
  if (trials->ahead.count >= TRIALS_FEW)
    status = rabbet_trial_answer_ahead(trials->build, trials->ahead.data,
                                       trials->ahead.count, meanwhile, context);
  for (size_t i = 0; rabbet_is_ok(status) && i < trials->ahead.count; ++i)
    if (trials->ahead.data[i].is_answered)
      status = trials_keep(trials, trials->ahead.data[i].key,
                           &trials->ahead.data[i].trial);
  trials_drop_ahead(trials);
  return status;
}

// ---- Plugins that want it ---------------------------------------------------

// The library's file, or NULL: the plugin does not want to be isolated, or its
// code is in no file.
static const char* trials_plugin_library(const rabbet_group_t* group) {
  Dl_info info;
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_plugin_creator_t* creator =
        group->nodes[i].plugin ? rabbet_plugin_creator(group->nodes[i].plugin)
                               : NULL;
    if (creator && creator->isolate &&
        dladdr((const void*)(uintptr_t)creator->create, &info))
      return info.dli_fname;
  }
  return NULL;
}

// How the choice did harm; NULL: it did none.
static const char* trials_harm(const rabbet_trial_t* trial) {
  const char* reason = trial->asking;
  for (size_t i = 0; i < trial->items.count; ++i)
    if (trial->items.data[i].verdict == RABBET_VERDICT_HARMFUL)
      reason = trial->items.data[i].reason;
  return reason;
}

// The cache keeps the verdict of harmful choices only. Other choices have a
// time in it.
static rabbet_status_t trials_try(rabbet_trials_t* trials,
                                  const rabbet_question_t* question,
                                  const rabbet_choice_t* choice,
                                  const rabbet_given_t* given,
                                  rabbet_trial_t* trial, bool* out_harmful) {
  bool known = false;
  bool cacheable = choice->cacheable && trials_may_cache(trials);
  if (cacheable)
    RABBET_RETURN_IF_ERROR(trials_find(trials, choice->key, trial, &known));
  if (!known && trials->in_process) return rabbet_ok();
  rabbet_status_t status =
      known ? rabbet_ok()
            : rabbet_trial_helper_ask(&trials->helper, question, given, trial);
  if (rabbet_status_code(status) == RABBET_STATUS_UNAVAILABLE) {
    trials_tell(trials, status);
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(status);
  const char* reason = trials_harm(trial);
  *out_harmful = reason != NULL;
  if (!reason) return rabbet_ok();
  if (!known && cacheable)
    RABBET_RETURN_IF_ERROR(trials_keep(trials, choice->key, trial));
  return trials_blame(trials, question, choice->candidate.tactic_name, reason);
}

rabbet_status_t rabbet_trials_try(rabbet_trials_t* trials,
                                  const rabbet_unit_t* unit,
                                  const rabbet_choice_t* choice,
                                  bool* out_harmful) {
  const char* library = trials_plugin_library(&unit->group);
  rabbet_group_t group;
  rabbet_trial_t trial;
  *out_harmful = false;
  if (!library) return rabbet_ok();
  assert(choice->candidate.kernel);
  rabbet_build_t* build = trials->build;
  RABBET_RETURN_IF_ERROR(rabbet_unit_instantiate(build, unit, choice, &group));
  const rabbet_given_t given = {choice->candidate.tactic, library};
  const rabbet_question_t question = {.device = build->device,
                                      .kernel = choice->candidate.kernel,
                                      .group = &group,
                                      .dims = unit->dims,
                                      .host_values = unit->host_values,
                                      .wish = 1,
                                      .enough = 1,
                                      .allocator = build->allocator};
  trials->layer = unit->name;
  rabbet_trial_initialize(build->allocator, &trial);
  rabbet_status_t status =
      trials_try(trials, &question, choice, &given, &trial, out_harmful);
  rabbet_trial_deinitialize(build->allocator, &trial);
  return status;
}
