// Messages between a build and the helper program that tries kernels for it.
// Both have the same version: the helper lies beside the libraries.
//
// The build sends HELLO once, then QUESTIONs, and waits for each one's DONE,
// SHORT or ERROR. BEGIN precedes every action that may crash or hang: if no
// message follows, its subject is to blame.
#ifndef RABBET_SRC_DEVICE_TRIAL_H_
#define RABBET_SRC_DEVICE_TRIAL_H_

#include "device/kernel.h"

#define RABBET_TRIAL_ARGUMENT "trial-2"  // changes with all that follows

typedef enum rabbet_trial_kind_t {
  // To the helper.
  RABBET_TRIAL_HELLO = 1,     // the device's name
  RABBET_TRIAL_QUESTION = 2,  // rabbet_trial_question_t and its counts
  // From it.
  RABBET_TRIAL_READY = 10,   // the device's signature
  RABBET_TRIAL_BEGIN = 11,   // int32_t: the answer's number, -1: the asking
  RABBET_TRIAL_FOUND = 12,   // rabbet_trial_found_t, then the artifact
  RABBET_TRIAL_PASSED = 13,  // int32_t: the answer's number
  RABBET_TRIAL_FAILED = 14,  // rabbet_trial_failed_t
  RABBET_TRIAL_DONE = 15,
  RABBET_TRIAL_SHORT = 16,    // text: memory did not do
  RABBET_TRIAL_ERROR = 17,    // text: the helper cannot answer this at all
  RABBET_TRIAL_WARNING = 18,  // text for the build's log
} rabbet_trial_kind_t;

// Followed by the known tactics (int32_t), NAME=VALUE texts with a NUL each,
// the path of the plugin's library, and a plan of one step: the group, with
// placeholders for weights. The class of its kernel is asked; or none is asked,
// and one tactic is tried (plugins).
typedef struct rabbet_trial_question_t {
  int32_t tf32, wish, enough;
  int32_t is_given, tactic;
  uint32_t known_count;
  uint64_t settings_size, library_size, plan_size;
} rabbet_trial_question_t;

typedef struct rabbet_trial_found_t {
  int32_t number, tactic;
  char tactic_name[48];
  char artifact_name[32];
  uint64_t artifact_size;
} rabbet_trial_found_t;

typedef struct rabbet_trial_failed_t {
  int32_t number;
  int32_t sticky;   // the helper's context is broken: it ends
  int32_t refused;  // the library says itself that it cannot
  char text[500];
} rabbet_trial_failed_t;

#endif  // RABBET_SRC_DEVICE_TRIAL_H_
