#include "builder/measure/samples.h"

#include <assert.h>

// A sample is disturbed if the pace is longer than the best one by this factor.
// Wide vector instructions slow a processor down by less.
#define WATCH_SLOW 1.15
// A sample of at least WATCH_LONG_NS is what remains of it without the waits,
// unless filling the caches again after each, some WATCH_REFILL_NS, is more
// than a WATCH_REFILLS-th of it.
#define WATCH_LONG_NS 5000000
#define WATCH_REFILL_NS 100000
#define WATCH_REFILLS 20
// Two samples agree if they differ by at most SAMPLES_AGREE. A time is unsure
// if no other sample is within SAMPLES_UNSURE.
#define SAMPLES_AGREE 1.05
#define SAMPLES_UNSURE 1.1

// ---- The machine ------------------------------------------------------------

static uint64_t watch_interruptions(const rabbet_watch_t* watch) {
  rabbet_device_t* device = watch->device;
  return device->vtable->interruptions ? device->vtable->interruptions(device)
                                       : 0;
}

static void watch_pace(rabbet_watch_t* watch) {
  rabbet_device_t* device = watch->device;
  if (!device->vtable->pace) return;
  int64_t pace = device->vtable->pace(device);
  if (watch->pace == 0 || pace < watch->pace) watch->pace = pace;
  if (watch->slow_pace == 0 || pace < watch->slow_pace) watch->slow_pace = pace;
  assert(watch->pace <= pace);
  watch->is_slow = (double)pace > WATCH_SLOW * (double)watch->pace;
}

void rabbet_watch_begin(rabbet_device_t* device, int64_t pace,
                        rabbet_watch_t* out_watch) {
  *out_watch = (rabbet_watch_t){.device = device, .pace = pace};
  watch_pace(out_watch);
}

static int64_t watch_waited(const rabbet_watch_t* watch) {
  rabbet_device_t* device = watch->device;
  return device->vtable->waited ? device->vtable->waited(device) : -1;
}

void rabbet_watch_start(rabbet_watch_t* watch) {
  watch->interruptions = watch_interruptions(watch);
  watch->waited = watch_waited(watch);
}

bool rabbet_watch_is_interrupted(const rabbet_watch_t* watch, double* ns) {
  uint64_t times = watch_interruptions(watch) - watch->interruptions;
  if (times == 0 || !ns || *ns < WATCH_LONG_NS || watch->waited < 0)
    return times != 0;
  double ran = *ns - (double)(watch_waited(watch) - watch->waited);
  if ((double)times * WATCH_REFILL_NS * WATCH_REFILLS > ran) return true;
  if (ran < *ns) *ns = ran;
  return false;
}

bool rabbet_watch_was_disturbed(rabbet_watch_t* watch, double* ns) {
  bool interrupted = rabbet_watch_is_interrupted(watch, ns);
  bool was_slow = watch->is_slow;
  watch_pace(watch);
  return interrupted || was_slow || watch->is_slow;
}

int64_t rabbet_watch_end(const rabbet_watch_t* watch, bool settled) {
  return settled ? watch->pace : watch->slow_pace;
}

// ---- Samples ----------------------------------------------------------------

void rabbet_samples_add(rabbet_samples_t* samples, double ns, bool disturbed) {
  assert(samples->undisturbed <= samples->taken);
  if (samples->taken++ == 0 || ns < samples->least_of_all)
    samples->least_of_all = ns;
  if (disturbed) return;
  if (samples->undisturbed++ == 0) {
    samples->least = ns;
  } else if (ns < samples->least) {
    samples->next = samples->least;
    samples->least = ns;
  } else if (samples->undisturbed == 2 || ns < samples->next) {
    samples->next = ns;
  }
  assert(samples->undisturbed < 2 || samples->least <= samples->next);
  assert(samples->least_of_all <= samples->least);
}

static bool samples_confirm(const rabbet_samples_t* samples, double factor) {
  return samples->undisturbed >= 2 && samples->next <= factor * samples->least;
}

bool rabbet_samples_settled(const rabbet_samples_t* samples, int wanted) {
  return samples->undisturbed >= wanted &&
         (wanted < 2 || samples_confirm(samples, SAMPLES_AGREE));
}

bool rabbet_samples_are_unsure(const rabbet_samples_t* samples, int wanted) {
  return wanted < 2 ? samples->undisturbed == 0
                    : !samples_confirm(samples, SAMPLES_UNSURE);
}

double rabbet_samples_least(const rabbet_samples_t* samples) {
  return samples->undisturbed > 0 ? samples->least : samples->least_of_all;
}
