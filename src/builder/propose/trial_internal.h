// Declarations that the files of trials share.
#ifndef RABBET_SRC_BUILDER_PROPOSE_TRIAL_INTERNAL_H_
#define RABBET_SRC_BUILDER_PROPOSE_TRIAL_INTERNAL_H_

#include "base/child.h"
#include "base/vec.h"
#include "builder/propose/trial.h"
#include "device/trial.h"

typedef enum rabbet_verdict_t {
  RABBET_VERDICT_NONE = 0,  // not tried: others were enough
  RABBET_VERDICT_PASSED = 1,
  RABBET_VERDICT_REFUSED = 2,  // the library itself cannot do it
  RABBET_VERDICT_HARMFUL = 3,
} rabbet_verdict_t;

// An answer and its verdict.
typedef struct rabbet_trial_item_t {
  rabbet_answer_t answer;  // its artifact in the arena
  rabbet_verdict_t verdict;
  const char* reason;  // HARMFUL
} rabbet_trial_item_t;

// All that is known of a question.
typedef struct rabbet_trial_t {
  rabbet_arena_t arena;
  RABBET_VEC(rabbet_trial_item_t) items;
  const char* asking;  // why asking did harm; NULL: it did none
} rabbet_trial_t;

void rabbet_trial_initialize(rabbet_allocator_t allocator,
                             rabbet_trial_t* trial);
void rabbet_trial_deinitialize(rabbet_allocator_t allocator,
                               rabbet_trial_t* trial);

// ---- The question as a plan of one step (trial_plan.c) ----------------------

// Constants but numbers and small lists of integers are placeholders. Caller
// frees with rabbet_free_aligned(allocator, data, 64).
// `tactic`: of a plugin, which may keep something for it; else 0.
rabbet_status_t rabbet_trial_plan(const rabbet_question_t* question,
                                  int32_t tactic, rabbet_allocator_t allocator,
                                  void** out_data, size_t* out_size);

// ---- The helper (trial_helper.c) --------------------------------------------

typedef struct rabbet_trial_helper_t {
  rabbet_allocator_t allocator;
  rabbet_device_t* device;
  rabbet_logger_t logger;
  int64_t timeout_ns;  // of a step of the helper
  bool may_start;      // false once it could not be started
  rabbet_child_t child;
  rabbet_strbuf_t message;
} rabbet_trial_helper_t;

// The number that an environment variable has. One that is none is a warning,
// if there is a logger, and `standard` is taken.
double rabbet_trial_setting(const rabbet_logger_t* logger, const char* name,
                            double standard);
// RABBET_TRIAL_SECONDS
double rabbet_trial_seconds(const rabbet_logger_t* logger);
void rabbet_trial_helper_initialize(rabbet_device_t* device,
                                    rabbet_allocator_t allocator,
                                    rabbet_logger_t logger,
                                    rabbet_trial_helper_t* helper);
void rabbet_trial_helper_deinitialize(rabbet_trial_helper_t* helper);
// One tactic that is to be run without asking the library for its kernels.
typedef struct rabbet_given_t {
  int32_t tactic;
  const char* library;  // of the plugin
} rabbet_given_t;

// A question as it is sent.
typedef struct rabbet_trial_request_t {
  int32_t tf32, wish, enough;
  const rabbet_given_t* given;
  void* plan;  // rabbet_trial_plan
  size_t plan_size;
} rabbet_trial_request_t;

// UNAVAILABLE: no plan can hold the question. `given` may be NULL, and must
// live as long as the request.
rabbet_status_t rabbet_trial_request_initialize(
    const rabbet_question_t* question, const rabbet_given_t* given,
    rabbet_allocator_t allocator, rabbet_trial_request_t* request);
void rabbet_trial_request_deinitialize(rabbet_allocator_t allocator,
                                       rabbet_trial_request_t* request);
// Answers the request into `trial` with as many helpers as needed. UNAVAILABLE:
// no helper can be started, or it cannot do this; the message says why. Threads
// may do so at the same time, each with a helper of its own.
rabbet_status_t rabbet_trial_helper_answer(
    rabbet_trial_helper_t* helper, const rabbet_trial_request_t* request,
    rabbet_trial_t* trial);
// The same of a question.
rabbet_status_t rabbet_trial_helper_ask(rabbet_trial_helper_t* helper,
                                        const rabbet_question_t* question,
                                        const rabbet_given_t* given,
                                        rabbet_trial_t* trial);

// ---- Several questions at the same time (trial_ahead.c)
// ----------------------

// A request that waits for its answer.
typedef struct rabbet_trial_ahead_t {
  rabbet_hash_t key;
  rabbet_trial_request_t request;
  rabbet_trial_t trial;
  bool is_answered;
} rabbet_trial_ahead_t;

// How many helpers may work at the same time: RABBET_TRIAL_HELPERS, else one
// for two processors, at most 8 (16 if it is set).
size_t rabbet_trial_helpers(const rabbet_logger_t* logger);
// Answers as many as it can with that many helpers. CANCELLED if the user asked
// to stop; other failures leave requests without an answer.
rabbet_status_t rabbet_trial_answer_ahead(const rabbet_build_t* build,
                                          rabbet_trial_ahead_t* items,
                                          size_t count,
                                          rabbet_status_t (*meanwhile)(void*),
                                          void* context);

// ---- Without a helper (trial_in_process.c) ----------------------------------

// Leaves out kernels that already did harm in a helper.
rabbet_status_t rabbet_trial_ask_here(const rabbet_question_t* question,
                                      const rabbet_trial_t* known,
                                      rabbet_answer_sink_t sink);

// ---- As bytes, for the timing cache (trial_answer.c) ------------------------

void rabbet_trial_write(const rabbet_trial_t* trial, rabbet_strbuf_t* out);
// False if the bytes are not of the function above.
bool rabbet_trial_read(const void* data, size_t size,
                       rabbet_allocator_t allocator, rabbet_trial_t* trial);

#endif  // RABBET_SRC_BUILDER_PROPOSE_TRIAL_INTERNAL_H_
