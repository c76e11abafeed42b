#define _GNU_SOURCE
#include "device/cpu/team.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { MOST_SHARES = 5, JOBS = 2000 };

typedef struct counts_t {
  atomic_int of[MOST_SHARES];
  atomic_int wrong;
} counts_t;

static void count(void* data) {
  counts_t* counts = data;
  atomic_fetch_add(&counts->of[rabbet_team_share()], 1);
}

static void each_share_runs_once(void** state) {
  (void)state;
  for (int shares = 1; shares <= MOST_SHARES; ++shares) {
    counts_t counts = {0};
    for (int i = 0; i < JOBS; ++i)
      rabbet_team_run(count, &counts, shares);
    for (int i = 0; i < MOST_SHARES; ++i)
      assert_int_equal(counts.of[i], i < shares ? JOBS : 0);
    assert_true(rabbet_team_size() >= shares);
  }
  assert_false(rabbet_team_is_inside());
  rabbet_team_end();
  assert_int_equal(rabbet_team_size(), 1);
}

static void meet(void* data) {
  counts_t* counts = data;
  int shares = rabbet_team_shares();
  for (int round = 1; round <= 3; ++round) {
    atomic_fetch_add(&counts->of[rabbet_team_share()], 1);
    rabbet_team_barrier();
    for (int i = 0; i < shares; ++i)
      if (counts->of[i] != round) counts->wrong = 1;
    rabbet_team_barrier();
  }
}

static void expect_meetings(int shares) {
  for (int i = 0; i < 50; ++i) {
    counts_t counts = {0};
    rabbet_team_run(meet, &counts, shares);
    assert_int_equal(counts.wrong, 0);
  }
}

static void shares_wait_for_each_other(void** state) {
  (void)state;
  for (int shares = 1; shares <= MOST_SHARES; ++shares)
    expect_meetings(shares);
  rabbet_team_end();
}

// The helper holds its share while the owner waits, as if another program had
// its processor.
static void hold_up(void* data) {
  atomic_int* begun = data;
  if (rabbet_team_share() == 1) {
    const struct timespec pause = {.tv_nsec = 5000000};
    *begun = 1;
    nanosleep(&pause, NULL);
  }
  while (*begun == 0)
    sched_yield();
}

static void owners_that_were_held_up(void** state) {
  (void)state;
  for (int i = 0; i < 3; ++i) {
    atomic_int begun = 0;
    counts_t counts = {0};
    rabbet_team_run(hold_up, &begun, 2);
    rabbet_team_run(count, &counts, 2);
    assert_int_equal(counts.of[0], 1);
    assert_int_equal(counts.of[1], 1);
    rabbet_team_run(meet, &counts, 1);
    expect_meetings(2);
  }
  rabbet_team_end();
}

static void run_inside(void* data) {
  counts_t* counts = data;
  if (!rabbet_team_is_inside()) counts->wrong = 1;
  rabbet_team_run(count, data, 3);
}

static void runs_in_shares_are_single(void** state) {
  (void)state;
  counts_t counts = {0};
  rabbet_team_run(run_inside, &counts, 4);
  assert_int_equal(counts.wrong, 0);
  assert_int_equal(counts.of[0], 4);
  assert_int_equal(counts.of[1], 0);
  rabbet_team_end();
}

static void children_have_helpers_of_their_own(void** state) {
  (void)state;
  counts_t counts = {0};
  rabbet_team_run(count, &counts, 3);
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    counts_t own = {0};
    rabbet_team_run(meet, &own, 3);
    _exit(own.wrong == 0 && own.of[2] == 3 ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  rabbet_team_end();
}

// Threads' ends: keys are destroyed in the order in which they were created.
static pthread_key_t later_key;
static counts_t at_end;

static void run_at_end(void* unused) {
  (void)unused;
  at_end.wrong = rabbet_team_size() != 1;
  rabbet_team_run(meet, &at_end, 3);
}

static void* end_with_a_run(void* unused) {
  (void)unused;
  rabbet_team_run(count, &(counts_t){0}, 2);
  assert_int_equal(pthread_key_create(&later_key, run_at_end), 0);
  assert_int_equal(pthread_setspecific(later_key, &later_key), 0);
  return NULL;
}

static void runs_after_the_end_of_a_team(void** state) {
  (void)state;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, end_with_a_run, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(pthread_key_delete(later_key), 0);
  assert_int_equal(at_end.wrong, 0);
  assert_int_equal(at_end.of[2], 3);
}

static void* run_canceled(void* data) {
  atomic_int begun = 0;
  if (!rabbet_is_ok(rabbet_team_begin(2))) return NULL;
  pthread_cancel(pthread_self());
  rabbet_team_run(hold_up, &begun, 2);
  *(atomic_int*)data = 1;
  rabbet_team_end();
  *(atomic_int*)data = 2;
  pthread_testcancel();
  return NULL;
}

static void runs_are_no_points_of_cancellation(void** state) {
  (void)state;
  atomic_int reached = 0;
  pthread_t thread;
  void* result = NULL;
  assert_int_equal(pthread_create(&thread, NULL, run_canceled, &reached), 0);
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, PTHREAD_CANCELED);
  assert_int_equal(reached, 2);
}

static _Thread_local volatile sig_atomic_t caught;

static void catch_fault(int signal) {
  caught = signal;
}

static void fault(void* data) {
  counts_t* counts = data;
  pthread_kill(pthread_self(), SIGSEGV);
  if (caught != SIGSEGV) ++counts->wrong;
  rabbet_team_barrier();
}

static void helpers_take_faults(void** state) {
  (void)state;
  counts_t counts = {0};
  struct sigaction before, action = {.sa_handler = catch_fault};
  sigemptyset(&action.sa_mask);
  assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
  rabbet_team_run(fault, &counts, 3);
  rabbet_team_end();
  assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
  assert_int_equal(counts.wrong, 0);
}

// Threads that the system still starts.
static int threads_left = INT_MAX;

int pthread_create(pthread_t* out_thread, const pthread_attr_t* attributes,
                   void* (*run)(void*), void* data) {
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  *(void**)&create = dlsym(RTLD_NEXT, "pthread_create");
  if (threads_left == 0) return EAGAIN;
  --threads_left;
  return create(out_thread, attributes, run, data);
}

static void work_has_fewer_shares_without_threads(void** state) {
  (void)state;
  for (int helpers = 0; helpers < MOST_SHARES - 1; ++helpers) {
    counts_t counts = {0};
    char started[32];
    threads_left = helpers;
    snprintf(started, sizeof(started), "%d of %d", helpers + 1, MOST_SHARES);
    RABBET_EXPECT_ERROR(rabbet_team_begin(MOST_SHARES),
                        RABBET_STATUS_OUT_OF_MEMORY, started);
    assert_int_equal(rabbet_team_size(), helpers + 1);
    rabbet_team_run(meet, &counts, MOST_SHARES);
    assert_int_equal(counts.wrong, 0);
    for (int i = 0; i < MOST_SHARES; ++i)
      assert_int_equal(counts.of[i], i <= helpers ? 3 : 0);
    threads_left = INT_MAX;
    expect_meetings(MOST_SHARES);
    assert_int_equal(rabbet_team_size(), MOST_SHARES);
    rabbet_team_end();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_share_runs_once),
      cmocka_unit_test(shares_wait_for_each_other),
      cmocka_unit_test(owners_that_were_held_up),
      cmocka_unit_test(runs_in_shares_are_single),
      cmocka_unit_test(children_have_helpers_of_their_own),
      cmocka_unit_test(runs_after_the_end_of_a_team),
      cmocka_unit_test(runs_are_no_points_of_cancellation),
      cmocka_unit_test(helpers_take_faults),
      cmocka_unit_test(work_has_fewer_shares_without_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
