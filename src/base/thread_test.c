#define _GNU_SOURCE
#include "base/thread.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static void test_refcount(void** state) {
  (void)state;
  rabbet_refcount_t count;
  rabbet_refcount_initialize(&count);
  rabbet_refcount_retain(&count);
  assert_false(rabbet_refcount_release(&count));
  assert_true(rabbet_refcount_release(&count));
}

#define THREADS 4
#define ROUNDS 20000
static rabbet_refcount_t shared;
static atomic_int last_releases;

static void* retain_and_release(void* user_data) {
  (void)user_data;
  for (int i = 0; i < ROUNDS; ++i) {
    rabbet_refcount_retain(&shared);
    if (rabbet_refcount_release(&shared)) atomic_fetch_add(&last_releases, 1);
  }
  if (rabbet_refcount_release(&shared)) atomic_fetch_add(&last_releases, 1);
  return NULL;
}

static void test_refcount_of_threads(void** state) {
  (void)state;
  pthread_t threads[THREADS];
  rabbet_refcount_initialize(&shared);
  for (int i = 1; i < THREADS; ++i)
    rabbet_refcount_retain(&shared);
  for (int i = 0; i < THREADS; ++i)
    assert_int_equal(
        pthread_create(&threads[i], NULL, retain_and_release, NULL), 0);
  for (int i = 0; i < THREADS; ++i)
    pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&last_releases), 1);
}

static void test_time_goes_on(void** state) {
  (void)state;
  int64_t before = rabbet_time_ns();
  nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  assert_true(rabbet_time_ns() - before >= 2000000);
}

static void test_cpu_count_follows_affinity(void** state) {
  (void)state;
  cpu_set_t before, one;
  assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
  int count = rabbet_cpu_count();
  assert_in_range(count, 1, CPU_COUNT(&before));
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before))
    ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
  assert_int_equal(rabbet_cpu_count(), 1);
  assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
  assert_int_equal(rabbet_cpu_count(), count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refcount),
      cmocka_unit_test(test_refcount_of_threads),
      cmocka_unit_test(test_time_goes_on),
      cmocka_unit_test(test_cpu_count_follows_affinity),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
