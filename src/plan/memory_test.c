#include <stdlib.h>

#include "check.h"
#include "plan/plan.h"

#define SYSTEM rabbet_allocator_system()
#define MOST 40

static bool overlap(const rabbet_memory_request_t* a,
                    const rabbet_memory_request_t* b) {
  return a->size > 0 && b->size > 0 && a->first <= b->last &&
         b->first <= a->last && a->offset < b->offset + b->size &&
         b->offset < a->offset + a->size;
}

// The largest sum of live bytes at one step: no plan can need less.
static size_t least(const rabbet_memory_request_t* requests, size_t count) {
  size_t most = 0;
  for (int32_t step = 0; step < 64; ++step) {
    size_t sum = 0;
    for (size_t i = 0; i < count; ++i) {
      if (requests[i].first <= step && step <= requests[i].last)
        sum += (requests[i].size + 255) / 256 * 256;
    }
    if (sum > most) most = sum;
  }
  return most;
}

static void random_requests(void** state) {
  (void)state;
  const char* text = getenv("RABBET_TEST_SEED");
  unsigned seed = text ? (unsigned)atoi(text) : 42;
  double worst = 1;
  print_message("seed %u\n", seed);
  for (int round = 0; round < 2000; ++round) {
    rabbet_memory_request_t requests[MOST] = {0};
    size_t count = (size_t)rand_r(&seed) % MOST, total = 0;
    for (size_t i = 0; i < count; ++i) {
      requests[i].size = (size_t)rand_r(&seed) % 5000;
      requests[i].first = rand_r(&seed) % 50;
      requests[i].last = requests[i].first + rand_r(&seed) % 10;
    }
    RABBET_EXPECT_OK(rabbet_plan_memory(requests, count, SYSTEM, &total));
    for (size_t i = 0; i < count; ++i) {
      assert_int_equal(requests[i].offset % 256, 0);
      assert_true(requests[i].size == 0 ||
                  requests[i].offset + requests[i].size <= total);
      for (size_t k = 0; k < i; ++k)
        assert_false(overlap(&requests[i], &requests[k]));
    }
    size_t bound = least(requests, count);
    assert_true(total >= bound);
    if (bound > 0 && (double)total / (double)bound > worst)
      worst = (double)total / (double)bound;
  }
  // Greedy by size is known to stay near the bound.
  assert_true(worst < 1.6);
}

// A chain needs room for its two largest neighbours alone.
static void a_chain(void** state) {
  (void)state;
  rabbet_memory_request_t requests[] = {
      {.size = 1024, .first = 0, .last = 1},
      {.size = 2048, .first = 1, .last = 2},
      {.size = 4096, .first = 2, .last = 3},
      {.size = 512, .first = 3, .last = 4},
      {.size = 0, .first = 0, .last = 4},
  };
  size_t total = 0;
  RABBET_EXPECT_OK(rabbet_plan_memory(requests, 5, SYSTEM, &total));
  assert_int_equal(total, 2048 + 4096);
  assert_int_equal(requests[4].offset, 0);
}

static void too_large(void** state) {
  (void)state;
  rabbet_memory_request_t requests[] = {
      {.size = PTRDIFF_MAX - 4096, .first = 0, .last = 1},
      {.size = PTRDIFF_MAX - 4096, .first = 1, .last = 1},
  };
  size_t total = 0;
  RABBET_EXPECT_ERROR(rabbet_plan_memory(requests, 2, SYSTEM, &total),
                      RABBET_STATUS_OUT_OF_RANGE, "more memory than");
  requests[0].size = SIZE_MAX;
  RABBET_EXPECT_ERROR(rabbet_plan_memory(requests, 1, SYSTEM, &total),
                      RABBET_STATUS_OUT_OF_RANGE, "too large");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_requests),
      cmocka_unit_test(a_chain),
      cmocka_unit_test(too_large),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
