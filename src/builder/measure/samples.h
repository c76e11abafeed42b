// Samples of one time, and whether other work on the machine disturbed them.
//
// A sample is disturbed if a thread that took part lost its processor, or if
// the processor was slower than it can be, as far as the device tells. Samples
// of milliseconds lose it on each busy machine: where the device tells for how
// long, that is subtracted. Disturbed samples are taken again, and so are
// samples that no other one confirms, until a budget of time is spent.
#ifndef RABBET_SRC_BUILDER_MEASURE_SAMPLES_H_
#define RABBET_SRC_BUILDER_MEASURE_SAMPLES_H_

#include "device/device.h"

// The state of the machine between samples.
typedef struct rabbet_watch_t {
  rabbet_device_t* device;
  int64_t pace;            // the least of the build: the processor at its best
  int64_t slow_pace;       // the least since the watch began; 0: none yet
  bool is_slow;            // the processor was, when the last sample ended
  uint64_t interruptions;  // when the sample began
  int64_t waited;          // likewise; negative: the device does not tell
} rabbet_watch_t;

// `pace`: the result of an earlier watch of this device, or 0.
RABBET_PRIVATE_API void rabbet_watch_begin(rabbet_device_t* device,
                                           int64_t pace,
                                           rabbet_watch_t* out_watch);
// Around each sample. *ns: its time, less that for which it waited if that
// makes up for it; NULL: several samples were taken.
RABBET_PRIVATE_API void rabbet_watch_start(rabbet_watch_t* watch);
RABBET_PRIVATE_API bool rabbet_watch_was_disturbed(rabbet_watch_t* watch,
                                                   double* ns);
// Whether a thread lost its processor since the sample began.
RABBET_PRIVATE_API bool rabbet_watch_is_interrupted(const rabbet_watch_t* watch,
                                                    double* ns);
// The pace to give the next watch. If no sample was `settled`, the processor is
// permanently slower, and its present pace becomes the base of comparison.
RABBET_PRIVATE_API int64_t rabbet_watch_end(const rabbet_watch_t* watch,
                                            bool settled);

typedef struct rabbet_samples_t {
  double least, next;  // of those that were not disturbed
  double least_of_all;
  int undisturbed, taken;
} rabbet_samples_t;

RABBET_PRIVATE_API void rabbet_samples_add(rabbet_samples_t* samples, double ns,
                                           bool disturbed);
// Whether `wanted` undisturbed samples are there and the two least are close.
RABBET_PRIVATE_API bool rabbet_samples_settled(const rabbet_samples_t* samples,
                                               int wanted);
// Whether the least may be far from the truth: no other undisturbed sample is
// near it. One alone is enough where no more were wanted.
RABBET_PRIVATE_API bool rabbet_samples_are_unsure(
    const rabbet_samples_t* samples, int wanted);
// Nanoseconds: of undisturbed samples if there are any; 0 without samples.
RABBET_PRIVATE_API double rabbet_samples_least(const rabbet_samples_t* samples);

#endif  // RABBET_SRC_BUILDER_MEASURE_SAMPLES_H_
