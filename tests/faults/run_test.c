// Loading a plan and running it while allocations fail.
#include "faults/fault_allocator.h"
#include "plan_samples.h"
#include "rabbet/engine.h"
#include "test_plugins.h"

#define SYSTEM rabbet_allocator_system()

typedef struct plan_under_test_t {
  void* data;
  size_t size;
} plan_under_test_t;

static void* give_room(void* user_data, const char* name, void* current,
                       size_t size, size_t alignment, void* stream) {
  (void)name, (void)current, (void)alignment, (void)stream;
  return size <= 256 ? user_data : NULL;
}

static rabbet_status_t set_input(rabbet_context_t* context, size_t i,
                                 int64_t dim, void* data) {
  const rabbet_io_t* io = rabbet_engine_io(rabbet_context_engine(context), i);
  rabbet_dims_t dims = io->dims;
  for (int32_t axis = 0; axis < dims.rank; ++axis) {
    if (dims.d[axis] < 0) dims.d[axis] = dim;
  }
  for (int k = 0; k < 8 && !io->is_shape_input; ++k)
    ((float*)data)[k] = (float)((k + 2) % 5);
  if (io->is_shape_input) *(int32_t*)data = (int32_t)dim;
  RABBET_RETURN_IF_ERROR(rabbet_context_set_input_shape(context, i, &dims));
  return rabbet_context_set_address(context, i, data);
}

static rabbet_status_t run_once(rabbet_context_t* context, int64_t dim) {
  _Alignas(64) static uint8_t rooms[8][256];
  const rabbet_engine_t* engine = rabbet_context_engine(context);
  size_t inputs = 0;
  for (size_t i = 0; i < rabbet_engine_io_count(engine); ++i) {
    if (rabbet_engine_io(engine, i)->is_input) {
      RABBET_RETURN_IF_ERROR(set_input(context, i, dim, rooms[inputs++]));
      continue;
    }
    rabbet_output_allocator_t allocator = {.user_data = rooms[i],
                                           .reallocate = give_room};
    RABBET_RETURN_IF_ERROR(
        rabbet_context_set_output_allocator(context, i, allocator));
    RABBET_RETURN_IF_ERROR(rabbet_context_set_address(context, i, rooms[i]));
  }
  return rabbet_context_execute(context, NULL);
}

static rabbet_status_t use_context(rabbet_context_t* context) {
  size_t bytes = 0;
  rabbet_dims_t dims;
  rabbet_engine_t* engine = rabbet_context_engine(context);
  RABBET_RETURN_IF_ERROR(run_once(context, 5));
  RABBET_RETURN_IF_ERROR(run_once(context, 3));
  RABBET_RETURN_IF_ERROR(run_once(context, 5));
  RABBET_RETURN_IF_ERROR(
      rabbet_context_shape(context, rabbet_engine_io_count(engine) - 1, &dims));
  return rabbet_engine_context_bytes(engine, 0, &bytes);
}

static rabbet_status_t load_and_run(rabbet_allocator_t allocator,
                                    void* user_data) {
  const plan_under_test_t* plan = user_data;
  rabbet_engine_t* engine = NULL;
  rabbet_context_t* context = NULL;
  char* text = NULL;
  rabbet_status_t status = rabbet_engine_deserialize(plan->data, plan->size,
                                                     NULL, allocator, &engine);
  if (rabbet_is_ok(status))
    status = rabbet_context_create(engine, allocator, &context);
  if (rabbet_is_ok(status)) status = use_context(context);
  for (int format = 0; format < 2 && rabbet_is_ok(status); ++format) {
    status = rabbet_engine_inspect(
        engine, context, -1, (rabbet_inspect_format_t)format, allocator, &text);
    rabbet_free(allocator, text);
    text = NULL;
  }
  rabbet_context_destroy(context);
  rabbet_engine_release(engine);
  return status;
}

static void loading_and_running(void** state) {
  (void)state;
  for (size_t s = 0; s < SAMPLE_COUNT; ++s) {
    plan_under_test_t plan;
    maker_bytes(samples[s].make, SYSTEM, &plan.data, &plan.size);
    int64_t count = rabbet_fault_run(load_and_run, &plan);
    print_message("%s: %lld allocations\n", samples[s].name, (long long)count);
    rabbet_free_aligned(SYSTEM, plan.data, RABBET_PLAN_ALIGNMENT);
  }
}

// A context in which a run failed for want of memory still works.
static void running_on_after_failure(void** state) {
  (void)state;
  void* data = NULL;
  size_t size = 0;
  maker_bytes(sample_reads, SYSTEM, &data, &size);
  bool failed = true;
  for (int64_t fail_at = 0; failed; ++fail_at) {
    rabbet_fault_allocator_t fault;
    rabbet_engine_t* engine = NULL;
    rabbet_context_t* context = NULL;
    rabbet_fault_initialize(-1, false, &fault);
    rabbet_allocator_t allocator = rabbet_fault_allocator(&fault);
    RABBET_EXPECT_OK(
        rabbet_engine_deserialize(data, size, NULL, allocator, &engine));
    RABBET_EXPECT_OK(rabbet_context_create(engine, allocator, &context));
    fault.fail_at = fault.calls + fail_at;
    rabbet_status_t status = run_once(context, 5);
    failed = fault.failed > 0;
    assert_int_equal(rabbet_status_code(status),
                     failed ? RABBET_STATUS_OUT_OF_MEMORY : RABBET_STATUS_OK);
    rabbet_status_ignore(status);
    fault.fail_at = -1;
    RABBET_EXPECT_OK(run_once(context, 5));
    rabbet_dims_t dims;
    RABBET_EXPECT_OK(rabbet_context_shape(context, 1, &dims));
    assert_int_equal(dims.d[0], 4);
    rabbet_context_destroy(context);
    rabbet_engine_release(engine);
    rabbet_fault_deinitialize(&fault);
  }
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
}

// Runs whose shapes and host reads came up before allocate nothing.
static void steady_state(void** state) {
  (void)state;
  for (size_t s = 0; s < SAMPLE_COUNT; ++s) {
    void* data = NULL;
    size_t size = 0;
    rabbet_fault_allocator_t fault;
    rabbet_engine_t* engine = NULL;
    rabbet_context_t* context = NULL;
    maker_bytes(samples[s].make, SYSTEM, &data, &size);
    rabbet_fault_initialize(-1, false, &fault);
    rabbet_allocator_t allocator = rabbet_fault_allocator(&fault);
    RABBET_EXPECT_OK(
        rabbet_engine_deserialize(data, size, NULL, allocator, &engine));
    RABBET_EXPECT_OK(rabbet_context_create(engine, allocator, &context));
    for (int64_t dim = 2; dim < 7; ++dim)
      RABBET_EXPECT_OK(run_once(context, dim));
    int64_t before = fault.calls;
    for (int i = 0; i < 20; ++i)
      RABBET_EXPECT_OK(run_once(context, 2 + i % 5));
    assert_int_equal(fault.calls, before);
    rabbet_context_destroy(context);
    rabbet_engine_release(engine);
    rabbet_fault_deinitialize(&fault);
    rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
  }
}

static rabbet_status_t write_plan(rabbet_allocator_t allocator,
                                  void* user_data) {
  const maker_t* maker = user_data;
  void* data = NULL;
  size_t size = 0;
  rabbet_status_t status = rabbet_plan_write(
      maker->plan, maker->blobs, maker->blob_count, allocator, &data, &size);
  rabbet_free_aligned(allocator, data, RABBET_PLAN_ALIGNMENT);
  return status;
}

static void writing(void** state) {
  (void)state;
  for (size_t s = 0; s < SAMPLE_COUNT; ++s) {
    maker_t maker;
    maker_begin(&maker, SYSTEM);
    samples[s].make(&maker);
    assert_true(rabbet_fault_run(write_plan, &maker) > 0);
    maker_end(&maker);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loading_and_running),
      cmocka_unit_test(running_on_after_failure),
      cmocka_unit_test(steady_state),
      cmocka_unit_test(writing),
  };
  return cmocka_run_group_tests(tests, test_plugins_setup,
                                test_plugins_teardown);
}
