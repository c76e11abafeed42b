// The inside of the helper program that tries kernels for a build.
#ifndef RABBET_SRC_TRIAL_WORKER_H_
#define RABBET_SRC_TRIAL_WORKER_H_

#include "rabbet/allocator.h"

// Answers on the channel (base/child.h, device/trial.h) until the other side
// closes it. The build's settings become variables of the environment.
void rabbet_trial_serve(int channel, rabbet_allocator_t allocator);

#endif  // RABBET_SRC_TRIAL_WORKER_H_
