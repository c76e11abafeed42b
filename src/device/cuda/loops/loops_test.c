// Loops in recordings on the stand-in GPU.
#include "device/cuda/loops/loops.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_stand_in/device.h"

enum { PLACES = 8 };

// Device memory: the loop's state, the condition and its source, elements, and
// a stack of them.
typedef struct memory_t {
  int64_t state[2];
  uint8_t condition[8], source[8];
  uint8_t elements[PLACES][8], stack[PLACES][8];
} memory_t;

typedef struct fixture_t {
  rabbet_device_t* base;
  const rabbet_device_vtable_t* v;
  void* streams[3];
  memory_t* memory;  // of the device
  void* graph;
  bool has_condition;
  int turns;  // that were recorded
} fixture_t;

// Turn 0 copies an element, turn 1 fills; both end by what `source` says.
static rabbet_status_t enqueue(void* user_data, int turn, void* stream) {
  fixture_t* f = user_data;
  memory_t* m = f->memory;
  rabbet_device_loop_copy_t copy = {.state = m->state,
                                    .target = m->stack,
                                    .source = m->elements,
                                    .bytes = 8,
                                    .target_stride = 8,
                                    .source_stride = 8,
                                    .turn = -1};
  rabbet_device_loop_copy_t look = {.state = m->state,
                                    .target = m->condition,
                                    .source = m->source,
                                    .bytes = 1,
                                    .source_stride = 1,
                                    .turn = turn};
  ++f->turns;
  if (turn == 1)
    RABBET_RETURN_IF_ERROR(f->v->fill(f->base, m->elements, 99, 8, stream));
  RABBET_RETURN_IF_ERROR(f->v->copy_in_loop(f->base, &copy, stream));
  return f->v->copy_in_loop(f->base, &look, stream);
}

static rabbet_status_t record(fixture_t* f, int64_t limit) {
  memory_t* m = f->memory;
  const void* condition = f->has_condition ? m->condition : NULL;
  rabbet_device_loop_t loop = {.state = m->state,
                               .streams = {f->streams[1], f->streams[2]},
                               .limit = limit,
                               .conditions = {condition, condition},
                               .enqueue = enqueue,
                               .user_data = f};
  rabbet_device_loop_copy_t odd = {.state = m->state,
                                   .target = m->source,
                                   .source = m->elements,
                                   .bytes = 8,
                                   .turn = 1};
  RABBET_RETURN_IF_ERROR(f->v->prepare_loops(f->base, NULL, 0));
  RABBET_RETURN_IF_ERROR(f->v->record_begin(f->base, f->streams[0]));
  rabbet_status_t status = f->v->record_loop(f->base, &loop, f->streams[0]);
  if (rabbet_is_ok(status))
    status = f->v->copy_in_loop(f->base, &odd, f->streams[0]);
  if (rabbet_is_ok(status))
    return f->v->record_end(f->base, f->streams[0], &f->graph);
  rabbet_status_ignore(f->v->record_end(f->base, f->streams[0], NULL));
  return status;
}

static rabbet_status_t launch(fixture_t* f, memory_t* host) {
  RABBET_RETURN_IF_ERROR(f->v->copy_to_device(f->base, f->memory, host,
                                              sizeof(*host), f->streams[0]));
  RABBET_RETURN_IF_ERROR(f->v->launch_graph(f->base, f->graph, f->streams[0]));
  RABBET_RETURN_IF_ERROR(f->v->copy_to_host(f->base, host, f->memory,
                                            sizeof(*host), f->streams[0]));
  return f->v->synchronize(f->base, f->streams[0]);
}

static rabbet_status_t open(fixture_t* f) {
  RABBET_RETURN_IF_ERROR(
      rabbet_device_open(0, rabbet_allocator_system(), &f->base));
  f->v = f->base->vtable;
  for (int i = 0; i < 3; ++i)
    RABBET_RETURN_IF_ERROR(f->v->create_stream(f->base, &f->streams[i]));
  return f->v->allocate(f->base, sizeof(memory_t), (void**)&f->memory);
}

static void close(fixture_t* f) {
  if (!f->base) return;
  f->v->destroy_graph(f->base, f->graph);
  f->v->free(f->base, f->memory);
  for (int i = 0; i < 3; ++i)
    f->v->destroy_stream(f->base, f->streams[i]);
  f->v->destroy(f->base);
}

static memory_t begin(void) {
  memory_t host = {.condition = {1}};
  for (int i = 0; i < PLACES; ++i) {
    host.source[i] = 1;
    memset(host.elements[i], i + 1, 8);
  }
  return host;
}

// The results of so many iterations.
static void check(const memory_t* found, const memory_t* given, int done) {
  assert_int_equal(found->state[0], done);
  assert_int_equal(found->state[1], 0);
  for (int i = 0; i < PLACES; ++i)
    assert_int_equal(found->stack[i][7], i < done ? i + 1 : 0);
  // An odd number of iterations copies behind the loop.
  if (done % 2)
    assert_memory_equal(found->source, found->elements[0], 8);
  else
    assert_memory_equal(found->source, given->source, 8);
  assert_int_equal(found->elements[0][0], done > 1 ? 99 : 1);
}

static void run(fixture_t* f, const memory_t* given, int done) {
  memory_t found = *given;
  RABBET_EXPECT_OK(launch(f, &found));
  check(&found, given, done);
}

static void limits(void** state) {
  (void)state;
  for (int limit = 0; limit < 5; ++limit) {
    void* token = NULL;
    fixture_t f = {0};
    memory_t given = begin();
    RABBET_EXPECT_OK(open(&f));
    RABBET_EXPECT_OK(f.v->begin_run(f.base, 1, &token));
    RABBET_EXPECT_OK(record(&f, limit));
    assert_int_equal(f.turns, 2);
    run(&f, &given, limit);
    run(&f, &given, limit);
    f.v->end_run(f.base, token);
    close(&f);
    stand_in_expect_clean();
  }
}

// One recording serves all numbers of iterations.
static void conditions(void** state) {
  (void)state;
  void* token = NULL;
  fixture_t f = {.has_condition = true};
  RABBET_EXPECT_OK(open(&f));
  RABBET_EXPECT_OK(f.v->begin_run(f.base, 1, &token));
  RABBET_EXPECT_OK(record(&f, PLACES));
  stand_in()->clear_log();
  for (int ends = 0; ends <= PLACES; ++ends) {
    memory_t given = begin();
    given.condition[0] = ends > 0;
    if (ends > 0) given.source[ends - 1] = 0;
    run(&f, &given, ends);
  }
  assert_int_equal(stand_in()->calls("cuGraphLaunch"), PLACES + 1);
  assert_int_equal(stand_in()->calls("cuLaunchKernelEx"), 0);
  // A recording with a loop replaces a graph by a new one.
  stand_in()->clear_log();
  RABBET_EXPECT_OK(record(&f, 3));
  assert_int_equal(stand_in()->calls("cuGraphExecUpdate"), 0);
  memory_t given = begin();
  run(&f, &given, 3);
  f.v->end_run(f.base, token);
  close(&f);
  stand_in_expect_clean();
}

static rabbet_status_t use_loop(void* context) {
  (void)context;
  void* token = NULL;
  fixture_t f = {.has_condition = true};
  memory_t host = begin();
  rabbet_status_t status = open(&f);
  if (rabbet_is_ok(status)) status = f.v->begin_run(f.base, 1, &token);
  if (rabbet_is_ok(status)) {
    status = record(&f, 3);
    if (rabbet_is_ok(status)) status = launch(&f, &host);
    f.v->end_run(f.base, token);
  }
  close(&f);
  return status;
}

static void every_call_fails(void** state) {
  (void)state;
  assert_true(stand_in_fail_each(use_loop, NULL) > 40);
}

static void loops_are_refused(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_cuda_driver_t driver = *device->driver;
  device->driver = &driver;
  setenv("RABBET_CUDA_LOOPS", "0", 1);
  RABBET_EXPECT_ERROR(rabbet_cuda_prepare_loops(&device->base, NULL, 0),
                      RABBET_STATUS_UNSUPPORTED, "RABBET_CUDA_LOOPS is 0");
  unsetenv("RABBET_CUDA_LOOPS");
  driver.version = 12030;
  RABBET_EXPECT_ERROR(rabbet_cuda_prepare_loops(&device->base, NULL, 0),
                      RABBET_STATUS_UNSUPPORTED,
                      "the driver supports CUDA 12.3; conditional nodes of "
                      "graphs need 12.4");
  driver.version = 12040;
  driver.cuGraphAddNode = NULL;
  RABBET_EXPECT_ERROR(rabbet_cuda_prepare_loops(&device->base, NULL, 0),
                      RABBET_STATUS_UNSUPPORTED, "need 12.4");
  stand_in_device_close(device);
  stand_in_expect_clean();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(limits),
      cmocka_unit_test(conditions),
      cmocka_unit_test(every_call_fails),
      cmocka_unit_test(loops_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
