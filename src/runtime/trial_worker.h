// The inside of the helper program that tries kernels for a build.
#ifndef RABBET_SRC_RUNTIME_TRIAL_WORKER_H_
#define RABBET_SRC_RUNTIME_TRIAL_WORKER_H_

#include "rabbet/allocator.h"

// setenv, which libraries do not call: the environment is the program's.
typedef int (*rabbet_set_variable_t)(const char* name, const char* value,
                                     int overwrite);

// Answers on the channel (base/child.h, device/trial.h) until the other side
// closes it. The build's settings become variables of the environment.
RABBET_PRIVATE_API void rabbet_trial_serve(int channel,
                                           rabbet_set_variable_t set_variable,
                                           rabbet_allocator_t allocator);

#endif  // RABBET_SRC_RUNTIME_TRIAL_WORKER_H_
