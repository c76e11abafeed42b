// Takes times. Decides how many samples are taken, of how many calls, and which
// samples are taken again.
#include <assert.h>

#include "builder/measure/bench.h"
#include "builder/measure/replay.h"

#define BENCH_MAX_SAMPLES 64
// A first measurement includes the host's cost of enqueuing a call, which a
// recording avoids: at most this many microseconds.
#define BENCH_ASKING_US 20
// Disturbed samples are taken again until they took BENCH_RETAKE_NS nanoseconds
// more than BENCH_RETAKE_FACTOR times the wanted samples, or BENCH_RETAKE_MOST
// more than these, or until there are BENCH_RETAKES times as many samples as
// wanted.
#define BENCH_RETAKE_NS 30000000
#define BENCH_RETAKE_FACTOR 3
#define BENCH_RETAKE_MOST 100000000
#define BENCH_RETAKES 16
#define BENCH_MAX_LOOKS 16
// So many samples show that a call takes over BENCH_BEHIND of the best known
// time; others follow only if it does not.
#define BENCH_FIRST_SAMPLES 3
#define BENCH_BEHIND 1.3
// One undisturbed sample of so many nanoseconds shows that, too; else it shows
// what takes BENCH_FAR_BEHIND times as long.
#define BENCH_LONG_NS 5000000
#define BENCH_FAR_BEHIND 4

typedef struct bench_effort_t {
  int samples;
  int64_t batch_ns;
} bench_effort_t;

static bench_effort_t bench_effort(const rabbet_build_t* build) {
  int64_t wish = build->config->options[RABBET_BUILDER_OPTION_AVG_TIMING];
  int samples = (int)(wish < BENCH_MAX_SAMPLES ? wish : BENCH_MAX_SAMPLES);
  if (build->level <= 2)
    return (bench_effort_t){samples < 3 ? samples : 3, 100000};
  if (build->level <= 4) return (bench_effort_t){samples, 250000};
  return (bench_effort_t){samples, 1000000};
}

static rabbet_status_t bench_batch(rabbet_build_t* build,
                                   const rabbet_bench_body_t* body, int count,
                                   double* out_ns) {
  rabbet_device_t* device = build->device;
  int64_t total = 0;
  int runs = body->restore ? count : 1;
  for (int i = 0; i < runs; ++i) {
    int64_t ns = 0;
    RABBET_RETURN_IF_ERROR(rabbet_progress_check(build));
    if (body->restore) RABBET_RETURN_IF_ERROR(body->restore(body->context));
    RABBET_RETURN_IF_ERROR(device->vtable->time(device, NULL,
                                                body->restore ? 1 : count,
                                                body->run, body->context, &ns));
    total += ns;
  }
  *out_ns = (double)total / count;
  return rabbet_ok();
}

// Times of `samples` replays of a call that was recorded `count` times.
static rabbet_status_t bench_replay(rabbet_build_t* build,
                                    rabbet_replay_t* replay, int count,
                                    int samples, double out_ns[]) {
  rabbet_device_t* device = build->device;
  int64_t ns[RABBET_DEVICE_TIMES] = {0};
  assert(samples <= RABBET_DEVICE_TIMES);
  RABBET_RETURN_IF_ERROR(rabbet_progress_check(build));
  if (device->vtable->time_each)
    RABBET_RETURN_IF_ERROR(device->vtable->time_each(
        device, NULL, samples, rabbet_replay_run, replay, ns));
  for (int i = 0; !device->vtable->time_each && i < samples; ++i) {
    // The device is busy while the host enqueues the timed calls, so that
    // enqueuing is not timed.
    RABBET_RETURN_IF_ERROR(rabbet_replay_run(replay));
    RABBET_RETURN_IF_ERROR(device->vtable->time(
        device, NULL, 1, rabbet_replay_run, replay, &ns[i]));
  }
  for (int i = 0; i < samples; ++i)
    out_ns[i] = (double)ns[i] / count;
  return rabbet_ok();
}

void rabbet_bench_watch(rabbet_build_t* build, rabbet_watch_t* out_watch) {
  rabbet_watch_begin(build->device, build->pace, out_watch);
}

void rabbet_bench_unwatch(rabbet_build_t* build, const rabbet_watch_t* watch,
                          bool settled) {
  build->pace = rabbet_watch_end(watch, settled);
}

// Samples of one body.
typedef struct bench_sampler_t {
  rabbet_build_t* build;
  const rabbet_bench_body_t* body;
  rabbet_replay_t replay;
  int count;  // calls in a sample
  rabbet_watch_t watch;
  rabbet_samples_t samples;
  double spent_ns;
} bench_sampler_t;

// Takes `wish` samples of replays, else one.
static rabbet_status_t bench_sample(bench_sampler_t* sampler, int wish) {
  rabbet_build_t* build = sampler->build;
  double ns[RABBET_DEVICE_TIMES] = {0};
  int taken = !sampler->replay.graph       ? 1
              : wish > RABBET_DEVICE_TIMES ? RABBET_DEVICE_TIMES
                                           : wish;
  rabbet_watch_start(&sampler->watch);
  RABBET_RETURN_IF_ERROR(
      sampler->replay.graph
          ? bench_replay(build, &sampler->replay, sampler->count, taken, ns)
          : bench_batch(build, sampler->body, sampler->count, ns));
  for (int i = 0; i < taken; ++i)
    sampler->spent_ns += ns[i] * sampler->count;
  double whole_ns = ns[0] * sampler->count;
  bool disturbed = rabbet_watch_was_disturbed(
      &sampler->watch, sampler->replay.graph ? NULL : &whole_ns);
  if (!sampler->replay.graph) ns[0] = whole_ns / sampler->count;
  for (int i = 0; i < taken; ++i)
    rabbet_samples_add(&sampler->samples, ns[i], disturbed);
  return rabbet_ok();
}

// Whether another sample is worth its time, `wanted` being enough.
static bool bench_goes_on(const bench_sampler_t* sampler, int wanted) {
  const rabbet_samples_t* samples = &sampler->samples;
  if (samples->taken < wanted) return true;
  double usual_ns =
      wanted * sampler->count * rabbet_samples_least(&sampler->samples);
  double more_ns = (BENCH_RETAKE_FACTOR - 1) * usual_ns;
  if (more_ns > BENCH_RETAKE_MOST) more_ns = BENCH_RETAKE_MOST;
  return !rabbet_samples_settled(samples, wanted) &&
         samples->taken < BENCH_RETAKES * wanted &&
         sampler->spent_ns < BENCH_RETAKE_NS + usual_ns + more_ns;
}

// A first measurement, of one call; *out_slow: the body is clearly slower than
// the best known one.
static rabbet_status_t bench_look(bench_sampler_t* sampler, bool* out_slow) {
  const rabbet_bench_body_t* body = sampler->body;
  const rabbet_samples_t* samples = &sampler->samples;
  bool replayed = rabbet_replay_applies(sampler->build, body);
  double asking_us = replayed ? BENCH_ASKING_US : 0;
  int looks = replayed ? 3 : 1;
  double ns = 0;
  RABBET_RETURN_IF_ERROR(bench_batch(sampler->build, body, 1, &ns));
  do {
    RABBET_RETURN_IF_ERROR(bench_sample(sampler, 1));
    bool shows = samples->undisturbed > 0 && samples->least > BENCH_LONG_NS;
    double behind = shows ? BENCH_BEHIND : BENCH_FAR_BEHIND;
    *out_slow = body->best_us > 0 && rabbet_samples_least(samples) / 1000 >
                                         behind * body->best_us + asking_us;
  } while (samples->undisturbed < (*out_slow ? looks : 1) &&
           samples->taken < BENCH_MAX_LOOKS &&
           sampler->spent_ns < BENCH_RETAKE_NS);
  return rabbet_ok();
}

static int bench_count(const bench_effort_t* effort, double ns) {
  double wish = (double)effort->batch_ns / (ns > 1 ? ns : 1);
  return wish < 1 ? 1 : wish > 1000 ? 1000 : (int)wish;
}

// Records as many calls as fill a batch. A first replay gives their number: the
// time of a single call is mostly the cost of enqueuing if the kernel is short.
static rabbet_status_t bench_record(rabbet_build_t* build,
                                    const rabbet_bench_body_t* body,
                                    const bench_effort_t* effort, int* count,
                                    rabbet_replay_t* out_replay) {
  double ns = 0;
  rabbet_replay_initialize(build, body, *count, out_replay);
  if (!out_replay->graph) return rabbet_ok();
  rabbet_status_t status = bench_replay(build, out_replay, *count, 1, &ns);
  int wish = bench_count(effort, ns);
  if (!rabbet_is_ok(status) || wish < 2 * *count) return status;
  rabbet_replay_deinitialize(out_replay);
  *count = wish;
  rabbet_replay_initialize(build, body, *count, out_replay);
  return status;
}

// Lowers *wanted if these suffice to tell that the body is not the best.
static rabbet_status_t bench_first_samples(bench_sampler_t* sampler,
                                           int* wanted) {
  double best_us = sampler->body->best_us;
  if (!sampler->replay.graph || *wanted <= BENCH_FIRST_SAMPLES)
    return rabbet_ok();
  if (sampler->body->is_minor && sampler->build->level <= 3)
    *wanted = BENCH_FIRST_SAMPLES;
  if (best_us <= 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(bench_sample(sampler, BENCH_FIRST_SAMPLES));
  if (rabbet_samples_least(&sampler->samples) / 1000 > BENCH_BEHIND * best_us)
    *wanted = BENCH_FIRST_SAMPLES;
  return rabbet_ok();
}

// Other work on the machine only adds time: the least sample is nearest to the
// truth. `look_ns` is a call's time in the first measurement.
static rabbet_status_t bench_samples(bench_sampler_t* sampler, double look_ns,
                                     int* out_wanted) {
  rabbet_build_t* build = sampler->build;
  bench_effort_t effort = bench_effort(build);
  sampler->count = bench_count(&effort, look_ns);
  // A few samples of long runs suffice.
  double affordable =
      16.0 * (double)effort.batch_ns / (look_ns > 1 ? look_ns : 1);
  if (affordable < effort.samples)
    effort.samples = affordable > 2 ? (int)affordable : 2;
  *out_wanted = effort.samples;
  RABBET_RETURN_IF_ERROR(bench_record(build, sampler->body, &effort,
                                      &sampler->count, &sampler->replay));
  // The first measurement counts as a sample.
  if (sampler->replay.graph || sampler->count > 1)
    sampler->samples = (rabbet_samples_t){0};
  sampler->spent_ns = 0;
  rabbet_status_t status = bench_first_samples(sampler, out_wanted);
  while (rabbet_is_ok(status) && bench_goes_on(sampler, *out_wanted))
    status = bench_sample(sampler, *out_wanted - sampler->samples.taken > 1
                                       ? *out_wanted - sampler->samples.taken
                                       : 1);
  return status;
}

static rabbet_status_t bench_time(bench_sampler_t* sampler,
                                  rabbet_timing_t* out_timing) {
  const rabbet_samples_t* samples = &sampler->samples;
  bool slow = false;
  int wanted = 1;
  rabbet_bench_watch(sampler->build, &sampler->watch);
  rabbet_status_t status = bench_look(sampler, &slow);
  double look_ns = rabbet_samples_least(samples);
  if (rabbet_is_ok(status) && !slow)
    status = bench_samples(sampler, look_ns, &wanted);
  out_timing->us = rabbet_samples_least(samples) / 1000;
  out_timing->is_unsure = rabbet_samples_are_unsure(samples, wanted);
  rabbet_bench_unwatch(sampler->build, &sampler->watch,
                       rabbet_samples_settled(samples, wanted));
  rabbet_replay_deinitialize(&sampler->replay);
  return status;
}

rabbet_status_t rabbet_bench_time(rabbet_build_t* build,
                                  const rabbet_bench_body_t* body,
                                  rabbet_timing_t* out_timing) {
  rabbet_device_t* device = build->device;
  void* token = NULL;
  out_timing->us = -1;
  if (device->vtable->begin_run)
    RABBET_RETURN_IF_ERROR(
        device->vtable->begin_run(device, build->threads, &token));
  bench_sampler_t sampler = {.build = build, .body = body, .count = 1};
  rabbet_status_t status = bench_time(&sampler, out_timing);
  if (device->vtable->end_run) device->vtable->end_run(device, token);
  build->timings++;
  return status;
}
