// A helper program asks libraries for kernels and runs them for the first time:
// a kernel that crashes, hangs or breaks the context there is left out and
// reported, and the build goes on (device/trial.h has the messages).
#ifndef RABBET_SRC_BUILDER_PROPOSE_TRIAL_H_
#define RABBET_SRC_BUILDER_PROPOSE_TRIAL_H_

#include "builder/choose/unit.h"

// A kernel that did harm, or a request for kernels that did.
typedef struct rabbet_culprit_t {
  const char* kernel;       // class
  const char* tactic_name;  // "": the asking
  const char* layer;
  const char* reason;
} rabbet_culprit_t;

typedef struct rabbet_trials_t rabbet_trials_t;

// Starts no helper yet. rabbet_trials_asker gives the asker of propose_t. Names
// of layers are for messages.
RABBET_PRIVATE_API rabbet_status_t rabbet_trials_create(rabbet_build_t* build);
// Ends the helper.
RABBET_PRIVATE_API void rabbet_trials_destroy(rabbet_trials_t* trials);
RABBET_PRIVATE_API const rabbet_asker_t* rabbet_trials_asker(
    rabbet_trials_t* trials, const char* layer);
// Asking ahead: until rabbet_trials_ask_collected, questions without a known
// answer wait and get a guess. Then several helpers answer them, and whoever
// asks again gets the answer. False, and nothing waits, where that is not worth
// it.
RABBET_PRIVATE_API bool rabbet_trials_collect(rabbet_trials_t* trials);
RABBET_PRIVATE_API bool rabbet_trials_is_collecting(
    const rabbet_trials_t* trials);
// `meanwhile` is called once while helpers work, if they do.
RABBET_PRIVATE_API rabbet_status_t rabbet_trials_ask_collected(
    rabbet_trials_t* trials, rabbet_status_t (*meanwhile)(void* context),
    void* context);
// Whether there was a guess since the last call.
RABBET_PRIVATE_API bool rabbet_trials_take_guess(rabbet_trials_t* trials);
// Runs once a choice of a plugin that wants to be isolated. *out_harmful: the
// choice did harm, which was reported, and must be left out.
RABBET_PRIVATE_API rabbet_status_t
rabbet_trials_try(rabbet_trials_t* trials, const rabbet_unit_t* unit,
                  const rabbet_choice_t* choice, bool* out_harmful);
// In the order in which they were found. The trials own the list, the build's
// arena its texts.
RABBET_PRIVATE_API const rabbet_culprit_t* rabbet_trials_culprits(
    const rabbet_trials_t* trials, size_t* out_count);

#endif  // RABBET_SRC_BUILDER_PROPOSE_TRIAL_H_
