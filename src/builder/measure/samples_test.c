// Which samples count, and when they say enough.
#include "builder/measure/samples.h"

#include "check.h"

static rabbet_samples_t samples_of(const double* ns, const bool* disturbed,
                                   int count) {
  rabbet_samples_t samples = {0};
  for (int i = 0; i < count; ++i)
    rabbet_samples_add(&samples, ns[i], disturbed && disturbed[i]);
  return samples;
}

// A disturbed sample counts only where there is no other, even if it is less.
static void disturbed_ones_are_left_out(void** state) {
  (void)state;
  const double ns[] = {90, 110, 100, 5000};
  const bool some[] = {true, false, false, true};
  const bool all[] = {true, true, true, true};
  rabbet_samples_t samples = samples_of(ns, some, 4);
  assert_float_equal(rabbet_samples_least(&samples), 100, 0);
  assert_float_equal(samples.next, 110, 0);
  assert_int_equal(samples.undisturbed, 2);
  samples = samples_of(ns, all, 4);
  assert_float_equal(rabbet_samples_least(&samples), 90, 0);
  assert_true(rabbet_samples_are_unsure(&samples, 1));
  assert_false(rabbet_samples_settled(&samples, 1));
}

static void two_least_must_agree(void** state) {
  (void)state;
  static const struct {
    double ns[4];
    int wanted;
    bool settled, unsure;
  } cases[] = {
      {{100, 104, 300, 200}, 4, true, false},
      {{300, 104, 200, 100}, 4, true, false},
      {{100, 108, 300, 200}, 4, false, false},  // near, but worth another
      {{100, 150, 300, 200}, 4, false, true},
      {{100, 104, 300, 200}, 5, false, false},  // too few
      {{100, 150, 300, 200}, 1, true, false},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    rabbet_samples_t samples = samples_of(cases[i].ns, NULL, 4);
    assert_int_equal(rabbet_samples_settled(&samples, cases[i].wanted),
                     cases[i].settled);
    assert_int_equal(rabbet_samples_are_unsure(&samples, cases[i].wanted),
                     cases[i].unsure);
  }
}

// ---- The machine ------------------------------------------------------------

static uint64_t interruptions;
static int64_t pace;

static uint64_t tell_interruptions(rabbet_device_t* device) {
  (void)device;
  return interruptions;
}

static int64_t tell_pace(rabbet_device_t* device) {
  (void)device;
  return pace;
}

static bool sample_is_disturbed(rabbet_watch_t* watch, int lost, int64_t now) {
  rabbet_watch_start(watch);
  interruptions += (uint64_t)lost;
  pace = now;
  return rabbet_watch_was_disturbed(watch, NULL);
}

static void the_machine_is_watched(void** state) {
  (void)state;
  const rabbet_device_vtable_t vtable = {.interruptions = tell_interruptions,
                                         .pace = tell_pace};
  rabbet_device_t device = {.vtable = &vtable};
  rabbet_watch_t watch;
  pace = 1000;
  rabbet_watch_begin(&device, 0, &watch);
  assert_false(sample_is_disturbed(&watch, 0, 1000));
  assert_true(sample_is_disturbed(&watch, 2, 1000));
  assert_false(sample_is_disturbed(&watch, 0, 1100));
  // Slow when the sample ended, and when the next one began.
  assert_true(sample_is_disturbed(&watch, 0, 1300));
  assert_true(sample_is_disturbed(&watch, 0, 1000));
  assert_false(sample_is_disturbed(&watch, 0, 1000));
  assert_int_equal(rabbet_watch_end(&watch, true), 1000);
  // Slow for a whole measurement: so it is now.
  pace = 1400;
  rabbet_watch_begin(&device, 1000, &watch);
  assert_true(sample_is_disturbed(&watch, 0, 1500));
  int64_t usual = rabbet_watch_end(&watch, false);
  assert_int_equal(usual, 1400);
  rabbet_watch_begin(&device, usual, &watch);
  assert_false(sample_is_disturbed(&watch, 0, 1400));
}

static int64_t waited;

static int64_t tell_waited(rabbet_device_t* device) {
  (void)device;
  return waited;
}

// Where the device tells how long its thread waited, long samples count without
// that: unless they lost the processor so often that the caches were cold.
static void waits_are_subtracted(void** state) {
  (void)state;
  static const struct {
    double ns;
    int64_t before, waited;
    int times;
    bool disturbed;
    double left;
  } cases[] = {
      {80e6, 0, 30000000, 10, false, 50e6},
      {80e6, 0, 30000000, 26, true, 80e6},
      {80e6, 0, 30000000, 0, false, 80e6},  // the clocks were read apart
      {80e6, 0, -100, 1, false, 80e6},
      {4e6, 0, 2000000, 1, true, 4e6},  // it is short
      {80e6, -1, -1, 1, true, 80e6},    // several threads
  };
  const rabbet_device_vtable_t vtable = {.interruptions = tell_interruptions,
                                         .waited = tell_waited};
  rabbet_device_t device = {.vtable = &vtable};
  rabbet_watch_t watch;
  rabbet_watch_begin(&device, 0, &watch);
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    double ns = cases[i].ns;
    waited = cases[i].before;
    rabbet_watch_start(&watch);
    interruptions += (uint64_t)cases[i].times;
    waited = cases[i].waited;
    assert_int_equal(rabbet_watch_was_disturbed(&watch, &ns),
                     cases[i].disturbed);
    assert_float_equal(ns, cases[i].left, 1);
  }
}

// On a device without these functions every sample counts.
static void silent_devices(void** state) {
  (void)state;
  const rabbet_device_vtable_t vtable = {0};
  rabbet_device_t device = {.vtable = &vtable};
  rabbet_watch_t watch;
  rabbet_watch_begin(&device, 0, &watch);
  assert_false(sample_is_disturbed(&watch, 1, 9000));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(disturbed_ones_are_left_out),
      cmocka_unit_test(two_least_must_agree),
      cmocka_unit_test(the_machine_is_watched),
      cmocka_unit_test(waits_are_subtracted),
      cmocka_unit_test(silent_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
