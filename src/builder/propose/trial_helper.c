// Messages to and from the helper. If it ends early, the item that it worked on
// is taken as the cause.
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builder/propose/trial_internal.h"

#define HELPER_SECOND ((int64_t)1000000000)
#define HELPER_START_NS (60 * HELPER_SECOND)
#define HELPER_STEP_SECONDS 60
#define HELPER_MOST_SETTING 1e6
#define HELPER_GRACE_NS (2 * HELPER_SECOND)
enum { HELPER_ASKING = -1 };

void rabbet_trial_initialize(rabbet_allocator_t allocator,
                             rabbet_trial_t* trial) {
  *trial = (rabbet_trial_t){.asking = NULL};
  rabbet_arena_initialize(allocator, &trial->arena);
}

void rabbet_trial_deinitialize(rabbet_allocator_t allocator,
                               rabbet_trial_t* trial) {
  rabbet_vec_free(allocator, &trial->items);
  rabbet_arena_deinitialize(&trial->arena);
}

// ---- Starting and ending ----------------------------------------------------

double rabbet_trial_setting(const rabbet_logger_t* logger, const char* name,
                            double standard) {
  const char* text = getenv(name);
  char* end = NULL;
  if (!text || !*text) return standard;
  double number = strtod(text, &end);
  if (*end == 0 && number > 0 && number < HELPER_MOST_SETTING) return number;
  if (logger)
    rabbet_log(
        *logger, RABBET_SEVERITY_WARNING,
        "%s is '%s'; expected a number above 0 and below %g: %g is taken", name,
        text, HELPER_MOST_SETTING, standard);
  return standard;
}

double rabbet_trial_seconds(const rabbet_logger_t* logger) {
  return rabbet_trial_setting(logger, "RABBET_TRIAL_SECONDS",
                              HELPER_STEP_SECONDS);
}

void rabbet_trial_helper_initialize(rabbet_device_t* device,
                                    rabbet_allocator_t allocator,
                                    rabbet_logger_t logger,
                                    rabbet_trial_helper_t* helper) {
  *helper = (rabbet_trial_helper_t){.allocator = allocator,
                                    .device = device,
                                    .logger = logger,
                                    .may_start = true,
                                    .child = {.channel = -1}};
  helper->timeout_ns =
      (int64_t)(rabbet_trial_seconds(NULL) * (double)HELPER_SECOND);
  rabbet_strbuf_initialize(allocator, &helper->message);
}

void rabbet_trial_helper_deinitialize(rabbet_trial_helper_t* helper) {
  rabbet_child_stop(&helper->child, HELPER_GRACE_NS, NULL, 0);
  rabbet_strbuf_deinitialize(&helper->message);
}

// The helper lies beside the library with this code, unless the user sets its
// path.
static rabbet_status_t helper_path(char path[PATH_MAX]) {
  const char* asked = getenv("RABBET_TRIAL");
  Dl_info info;
  int size = -1;
  if (asked && *asked) {
    size = snprintf(path, PATH_MAX, "%s", asked);
  } else if (dladdr((const void*)(uintptr_t)&rabbet_trials_create, &info) &&
             info.dli_fname) {
    const char* slash = strrchr(info.dli_fname, '/');
    int folder = slash ? (int)(slash - info.dli_fname + 1) : 0;
    size = snprintf(path, PATH_MAX, "%.*srabbet-trial", folder, info.dli_fname);
  }
  if (size >= 0 && size < PATH_MAX) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                       "the path of the helper program is not known");
}

static rabbet_message_t helper_receive(rabbet_trial_helper_t* helper,
                                       int64_t timeout_ns, uint32_t* out_kind) {
  return rabbet_message_receive(helper->child.channel, timeout_ns, out_kind,
                                &helper->message);
}

// The text of a message, with any bytes that a broken helper has sent.
static const char* helper_text(rabbet_trial_helper_t* helper) {
  rabbet_strbuf_append(&helper->message, "", 1);
  return helper->message.data ? helper->message.data : "";
}

static rabbet_status_t helper_unavailable(rabbet_trial_helper_t* helper,
                                          const char* text) {
  rabbet_status_t status =
      RABBET_STATUS(RABBET_STATUS_UNAVAILABLE, "the helper program: %s", text);
  rabbet_child_stop(&helper->child, 0, NULL, 0);
  return status;
}

static rabbet_status_t helper_greet(rabbet_trial_helper_t* helper) {
  rabbet_device_t* device = helper->device;
  uint32_t kind = 0;
  char how[64];
  rabbet_message_t result = rabbet_message_send(
      helper->child.channel, RABBET_TRIAL_HELLO, device->name,
      strlen(device->name) + 1, HELPER_START_NS);
  if (result == RABBET_MESSAGE_OK)
    result = helper_receive(helper, HELPER_START_NS, &kind);
  if (result == RABBET_MESSAGE_LATE)
    return helper_unavailable(helper, "it did not open the device in time");
  if (result != RABBET_MESSAGE_OK) {
    rabbet_child_stop(&helper->child, HELPER_GRACE_NS, how, sizeof(how));
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "the helper program ended at its start with %s", how);
  }
  const char* text = helper_text(helper);
  if (kind != RABBET_TRIAL_READY) return helper_unavailable(helper, text);
  if (strcmp(text, device->vtable->signature(device)) == 0) return rabbet_ok();
  return helper_unavailable(helper, "it found another device");
}

static rabbet_status_t helper_start(rabbet_trial_helper_t* helper) {
  char path[PATH_MAX];
  if (helper->child.pid != 0) return rabbet_ok();
  rabbet_status_t status = helper_path(path);
  if (rabbet_is_ok(status))
    status = rabbet_child_start(path, RABBET_TRIAL_ARGUMENT, &helper->child);
  if (rabbet_is_ok(status)) status = helper_greet(helper);
  helper->may_start = rabbet_is_ok(status);
  return status;
}

// ---- One question -----------------------------------------------------------

typedef struct talk_t {
  rabbet_trial_helper_t* helper;
  const rabbet_trial_request_t* request;
  rabbet_trial_t* trial;
  RABBET_VEC(int32_t) numbers;  // item of each answer that this helper found
  int32_t current;  // the helper's current work: HELPER_ASKING, or an item
  bool done;
} talk_t;

static int32_t talk_passed(const talk_t* talk) {
  int32_t count = 0;
  for (size_t i = 0; i < talk->trial->items.count; ++i)
    count += talk->trial->items.data[i].verdict == RABBET_VERDICT_PASSED;
  return count;
}

static rabbet_status_t talk_write(const talk_t* talk, rabbet_strbuf_t* out) {
  rabbet_device_t* device = talk->helper->device;
  const rabbet_trial_request_t* request = talk->request;
  rabbet_trial_question_t head = {.tf32 = request->tf32,
                                  .wish = request->wish,
                                  .enough = request->enough - talk_passed(talk),
                                  .plan_size = request->plan_size};
  rabbet_strbuf_t settings;
  rabbet_strbuf_initialize(talk->helper->allocator, &settings);
  rabbet_status_t status = device->vtable->settings
                               ? device->vtable->settings(device, &settings)
                               : rabbet_ok();
  head.settings_size = settings.size;
  if (request->given) {
    head.is_given = 1;
    head.tactic = request->given->tactic;
    head.library_size = strlen(request->given->library) + 1;
  }
  for (size_t i = 0; i < talk->trial->items.count; ++i)
    head.known_count +=
        talk->trial->items.data[i].verdict != RABBET_VERDICT_NONE;
  assert(head.enough > 0);  // with enough answers no question is asked
  rabbet_strbuf_append(out, &head, sizeof(head));
  for (size_t i = 0; i < talk->trial->items.count; ++i) {
    const rabbet_trial_item_t* item = &talk->trial->items.data[i];
    if (item->verdict != RABBET_VERDICT_NONE)
      rabbet_strbuf_append(out, &item->answer.tactic,
                           sizeof(item->answer.tactic));
  }
  rabbet_strbuf_append(out, settings.data, settings.size);
  if (request->given)
    rabbet_strbuf_append(out, request->given->library,
                         (size_t)head.library_size);
  rabbet_strbuf_append(out, request->plan, request->plan_size);
  rabbet_strbuf_deinitialize(&settings);
  return rabbet_is_ok(status) ? rabbet_strbuf_status(out) : status;
}

static rabbet_status_t talk_send(talk_t* talk, rabbet_message_t* out_result) {
  rabbet_strbuf_t message;
  rabbet_strbuf_initialize(talk->helper->allocator, &message);
  rabbet_status_t status = talk_write(talk, &message);
  if (rabbet_is_ok(status))
    *out_result = rabbet_message_send(talk->helper->child.channel,
                                      RABBET_TRIAL_QUESTION, message.data,
                                      message.size, talk->helper->timeout_ns);
  rabbet_strbuf_deinitialize(&message);
  return status;
}

// The item of that tactic, or the number of items.
static size_t talk_item(const talk_t* talk, int32_t tactic) {
  size_t i = 0;
  while (i < talk->trial->items.count &&
         talk->trial->items.data[i].answer.tactic != tactic)
    ++i;
  return i;
}

static rabbet_status_t talk_add_item(talk_t* talk,
                                     const rabbet_trial_found_t* found,
                                     const void* data) {
  rabbet_trial_item_t item = {.answer = {.tactic = found->tactic}};
  rabbet_artifact_t* artifact = &item.answer.artifact;
  memcpy(item.answer.tactic_name, found->tactic_name,
         sizeof(found->tactic_name));
  artifact->size = (size_t)found->artifact_size;
  artifact->key = rabbet_hash128(data, artifact->size);
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
      &talk->trial->arena, found->artifact_name, &artifact->name));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      &talk->trial->arena, data, artifact->size, (void**)&artifact->data));
  return RABBET_VEC_PUSH(talk->helper->allocator, &talk->trial->items, item);
}

// A second helper repeats most answers of the first, in any order.
static rabbet_status_t talk_found(talk_t* talk, bool* out_good) {
  const rabbet_strbuf_t* message = &talk->helper->message;
  rabbet_trial_found_t found;
  *out_good = message->size >= sizeof(found);
  if (!*out_good) return rabbet_ok();
  memcpy(&found, message->data, sizeof(found));
  *out_good = found.artifact_size == message->size - sizeof(found) &&
              found.number == (int32_t)talk->numbers.count &&
              memchr(found.tactic_name, 0, sizeof(found.tactic_name)) &&
              memchr(found.artifact_name, 0, sizeof(found.artifact_name));
  if (!*out_good) return rabbet_ok();
  size_t item = talk_item(talk, found.tactic);
  if (item == talk->trial->items.count)
    RABBET_RETURN_IF_ERROR(
        talk_add_item(talk, &found, message->data + sizeof(found)));
  return RABBET_VEC_PUSH(talk->helper->allocator, &talk->numbers,
                         (int32_t)item);
}

// The item whose number was sent, or HELPER_ASKING.
static bool talk_number(const talk_t* talk, int32_t* out_item) {
  const rabbet_strbuf_t* message = &talk->helper->message;
  int32_t number = 0;
  if (message->size != sizeof(number)) return false;
  memcpy(&number, message->data, sizeof(number));
  if (number < HELPER_ASKING || number >= (int32_t)talk->numbers.count)
    return false;
  *out_item =
      number == HELPER_ASKING ? HELPER_ASKING : talk->numbers.data[number];
  return true;
}

static rabbet_status_t talk_blame(talk_t* talk, rabbet_verdict_t verdict,
                                  const char* reason) {
  const char* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(&talk->trial->arena, reason, &copy));
  if (talk->current == HELPER_ASKING) {
    talk->trial->asking = copy;
    talk->done = true;
    return rabbet_ok();
  }
  assert(talk->current >= 0 &&
         (size_t)talk->current < talk->trial->items.count);
  rabbet_trial_item_t* item = &talk->trial->items.data[talk->current];
  item->verdict = verdict;
  item->reason = verdict == RABBET_VERDICT_HARMFUL ? copy : NULL;
  return rabbet_ok();
}

static rabbet_status_t talk_failed(talk_t* talk, bool* out_good) {
  rabbet_trial_failed_t failed;
  *out_good = talk->helper->message.size == sizeof(failed) &&
              talk->current != HELPER_ASKING;
  if (!*out_good) return rabbet_ok();
  memcpy(&failed, talk->helper->message.data, sizeof(failed));
  failed.text[sizeof(failed.text) - 1] = 0;
  RABBET_RETURN_IF_ERROR(talk_blame(talk,
                                    failed.refused && !failed.sticky
                                        ? RABBET_VERDICT_REFUSED
                                        : RABBET_VERDICT_HARMFUL,
                                    failed.text));
  if (failed.sticky)
    rabbet_child_stop(&talk->helper->child, HELPER_GRACE_NS, NULL, 0);
  return rabbet_ok();
}

// Handles one message. *out_good false: the message is invalid.
static rabbet_status_t talk_message(talk_t* talk, uint32_t kind,
                                    bool* out_good) {
  *out_good = true;
  switch (kind) {
    case RABBET_TRIAL_BEGIN:
      *out_good = talk_number(talk, &talk->current);
      return rabbet_ok();
    case RABBET_TRIAL_FOUND:
      return talk_found(talk, out_good);
    case RABBET_TRIAL_PASSED:
      *out_good =
          talk_number(talk, &talk->current) && talk->current != HELPER_ASKING;
      if (*out_good)
        talk->trial->items.data[talk->current].verdict = RABBET_VERDICT_PASSED;
      return rabbet_ok();
    case RABBET_TRIAL_FAILED:
      return talk_failed(talk, out_good);
    case RABBET_TRIAL_DONE:
      talk->done = true;
      return rabbet_ok();
    case RABBET_TRIAL_WARNING:
      rabbet_log(talk->helper->logger, RABBET_SEVERITY_WARNING, "%s",
                 helper_text(talk->helper));
      return rabbet_ok();
    case RABBET_TRIAL_SHORT:
    case RABBET_TRIAL_ERROR:
      return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE, "the helper program: %s",
                           helper_text(talk->helper));
    default:
      *out_good = false;
      return rabbet_ok();
  }
}

// The helper ended, hangs, or sends invalid messages: its last item is the
// cause.
static rabbet_status_t talk_ended(talk_t* talk, rabbet_message_t result) {
  char how[64], reason[160];
  bool late = result == RABBET_MESSAGE_LATE;
  rabbet_child_stop(&talk->helper->child, late ? 0 : HELPER_GRACE_NS, how,
                    sizeof(how));
  if (late)
    snprintf(reason, sizeof(reason), "it did not end within %g s",
             (double)talk->helper->timeout_ns / (double)HELPER_SECOND);
  else
    snprintf(reason, sizeof(reason), "the helper program ended with %s", how);
  return talk_blame(talk, RABBET_VERDICT_HARMFUL, reason);
}

// Answers with one helper, until it ends.
static rabbet_status_t talk_once(talk_t* talk) {
  rabbet_message_t result = RABBET_MESSAGE_OK;
  RABBET_RETURN_IF_ERROR(helper_start(talk->helper));
  talk->current = HELPER_ASKING;
  talk->numbers.count = 0;
  RABBET_RETURN_IF_ERROR(talk_send(talk, &result));
  while (result == RABBET_MESSAGE_OK && !talk->done &&
         talk->helper->child.pid != 0) {
    uint32_t kind = 0;
    bool good = false;
    result = helper_receive(talk->helper, talk->helper->timeout_ns, &kind);
    if (result != RABBET_MESSAGE_OK) break;
    RABBET_RETURN_IF_ERROR(talk_message(talk, kind, &good));
    if (!good) result = RABBET_MESSAGE_CLOSED;
  }
  if (result == RABBET_MESSAGE_NO_MEMORY)
    return rabbet_strbuf_status(&talk->helper->message);
  return result == RABBET_MESSAGE_OK ? rabbet_ok() : talk_ended(talk, result);
}

static rabbet_status_t helper_cannot(rabbet_status_t why) {
  rabbet_status_t status =
      RABBET_STATUS(RABBET_STATUS_UNAVAILABLE, "there is no plan of it: %s",
                    rabbet_status_message(why));
  rabbet_status_ignore(why);
  return status;
}

rabbet_status_t rabbet_trial_request_initialize(
    const rabbet_question_t* question, const rabbet_given_t* given,
    rabbet_allocator_t allocator, rabbet_trial_request_t* request) {
  *request = (rabbet_trial_request_t){.tf32 = question->tf32,
                                      .wish = question->wish,
                                      .enough = question->enough,
                                      .given = given};
  rabbet_status_t status =
      rabbet_trial_plan(question, given ? given->tactic : 0, allocator,
                        &request->plan, &request->plan_size);
  // A plan can hold any group of a network, so no network has this group.
  return rabbet_is_ok(status) ||
                 rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY
             ? status
             : helper_cannot(status);
}

void rabbet_trial_request_deinitialize(rabbet_allocator_t allocator,
                                       rabbet_trial_request_t* request) {
  rabbet_free_aligned(allocator, request->plan, RABBET_PLAN_ALIGNMENT);
  request->plan = NULL;
}

rabbet_status_t rabbet_trial_helper_answer(
    rabbet_trial_helper_t* helper, const rabbet_trial_request_t* request,
    rabbet_trial_t* trial) {
  talk_t talk = {.helper = helper, .request = request, .trial = trial};
  rabbet_status_t status = rabbet_ok();
  // Each turn but the last ends with a verdict on one more item.
  while (rabbet_is_ok(status) && !talk.done)
    status = talk_once(&talk);
  rabbet_vec_free(helper->allocator, &talk.numbers);
  return status;
}

rabbet_status_t rabbet_trial_helper_ask(rabbet_trial_helper_t* helper,
                                        const rabbet_question_t* question,
                                        const rabbet_given_t* given,
                                        rabbet_trial_t* trial) {
  rabbet_trial_request_t request;
  rabbet_status_t status = rabbet_trial_request_initialize(
      question, given, helper->allocator, &request);
  if (rabbet_is_ok(status))
    status = rabbet_trial_helper_answer(helper, &request, trial);
  rabbet_trial_request_deinitialize(helper->allocator, &request);
  return status;
}
