// Builds with helpers that end early, answer in another order, or have no
// memory. The helper is this program again, with a script.
#include <signal.h>
#include <unistd.h>

#include "base/child.h"
#include "builder/propose/trial_internal.h"
#include "check.h"

#define SYSTEM rabbet_allocator_system()
#define SCRIPT "RABBET_TRIAL_TEST_SCRIPT"
enum { ANSWERS = 3 };

// ---- The helper -------------------------------------------------------------

static void send_number(rabbet_trial_kind_t kind, int32_t number) {
  rabbet_message_send(RABBET_CHILD_CHANNEL, kind, &number, sizeof(number), -1);
}

static void send_text(rabbet_trial_kind_t kind, const char* text) {
  rabbet_message_send(RABBET_CHILD_CHANNEL, kind, text, strlen(text) + 1, -1);
}

static void send_found(int32_t number, int32_t tactic) {
  rabbet_trial_found_t found = {.number = number, .tactic = tactic};
  snprintf(found.tactic_name, sizeof(found.tactic_name), "t%d", tactic);
  rabbet_message_send(RABBET_CHILD_CHANNEL, RABBET_TRIAL_FOUND, &found,
                      sizeof(found), -1);
}

// Finds tactics 1, 2, 3 and passes the first; the second ends the helper. The
// next helper finds them the other way round.
static void answer_in_another_order(uint32_t known) {
  for (int32_t i = 0; i < ANSWERS; ++i)
    send_found(i, known == 0 ? i + 1 : ANSWERS - i);
  send_number(RABBET_TRIAL_BEGIN, 0);
  send_number(RABBET_TRIAL_PASSED, 0);
  if (known == 0) {
    send_number(RABBET_TRIAL_BEGIN, 1);
    raise(SIGKILL);
  }
  send_text(RABBET_TRIAL_DONE, "");
}

// The first tactic ends the helper, and the next helper has no memory.
static void answer_until_short(uint32_t known) {
  if (known > 0) {
    send_text(RABBET_TRIAL_SHORT, "no memory");
    return;
  }
  for (int32_t i = 0; i < ANSWERS; ++i)
    send_found(i, i + 1);
  send_number(RABBET_TRIAL_BEGIN, 0);
  raise(SIGKILL);
}

static void answer_one(uint32_t known) {
  (void)known;
  send_found(0, 1);
  send_number(RABBET_TRIAL_BEGIN, 0);
  send_number(RABBET_TRIAL_PASSED, 0);
  send_text(RABBET_TRIAL_DONE, "");
}

static const struct {
  const char* name;
  void (*answer)(uint32_t known);
} scripts[] = {{"order", answer_in_another_order},
               {"short", answer_until_short},
               {"one", answer_one}};

static int helper_main(void) {
  rabbet_strbuf_t data;
  rabbet_device_t* device = NULL;
  uint32_t kind = 0;
  rabbet_child_begin();
  rabbet_strbuf_initialize(SYSTEM, &data);
  RABBET_EXPECT_OK(rabbet_device_create("null", SYSTEM, &device));
  while (rabbet_message_receive(RABBET_CHILD_CHANNEL, -1, &kind, &data) ==
         RABBET_MESSAGE_OK) {
    rabbet_trial_question_t question;
    if (kind == RABBET_TRIAL_HELLO)
      send_text(RABBET_TRIAL_READY, device->vtable->signature(device));
    if (kind != RABBET_TRIAL_QUESTION) continue;
    memcpy(&question, data.data, sizeof(question));
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); ++i)
      if (strcmp(scripts[i].name, getenv(SCRIPT)) == 0)
        scripts[i].answer(question.known_count);
  }
  rabbet_device_release(device);
  rabbet_strbuf_deinitialize(&data);
  return 0;
}

// ---- A build that asks ------------------------------------------------------

static int asked_here;

static rabbet_status_t ask_here(const rabbet_question_t* question,
                                rabbet_answer_sink_t sink) {
  (void)question;
  ++asked_here;
  for (int32_t i = 1; i <= ANSWERS; ++i) {
    rabbet_answer_t answer = {.tactic = i};
    snprintf(answer.tactic_name, sizeof(answer.tactic_name), "t%d", i);
    RABBET_RETURN_IF_ERROR(sink.add(sink.context, &answer));
  }
  return rabbet_ok();
}

static const rabbet_kernel_class_t library = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "library",
    .ask = ask_here};

// The tactics of the answers as digits: 13 for 1 and 3.
static rabbet_status_t collect(void* context, const rabbet_answer_t* answer) {
  int* digits = context;
  *digits = *digits * 10 + answer->tactic;
  assert_true(answer->artifact.size == 0 || answer->artifact.name);
  return rabbet_ok();
}

static void build_begin(const char* script, rabbet_build_t* build) {
  rabbet_builder_config_t* config = NULL;
  RABBET_EXPECT_OK(rabbet_builder_config_create(SYSTEM, &config));
  *build = (rabbet_build_t){.allocator = SYSTEM, .config = config};
  rabbet_arena_initialize(SYSTEM, &build->arena);
  RABBET_EXPECT_OK(rabbet_device_create("null", SYSTEM, &build->device));
  RABBET_EXPECT_OK(rabbet_timing_cache_create(NULL, 0, SYSTEM, &build->cache));
  RABBET_EXPECT_OK(rabbet_trials_create(build));
  setenv(SCRIPT, script, 1);
  asked_here = 0;
}

static void build_end(rabbet_build_t* build) {
  rabbet_trials_destroy(build->trials);
  rabbet_timing_cache_release(build->cache);
  rabbet_device_release(build->device);
  rabbet_arena_deinitialize(&build->arena);
  rabbet_builder_config_release((rabbet_builder_config_t*)build->config);
}

// Asks about a copy of `extent` numbers.
static int ask(rabbet_build_t* build, int64_t extent) {
  rabbet_dims_t dims[2] = {{1, {extent}}, {1, {extent}}};
  rabbet_group_value_t values[2];
  const int32_t in = 0, out = 1;
  int digits = 0;
  for (int i = 0; i < 2; ++i)
    values[i] = (rabbet_group_value_t){.dtype = RABBET_DTYPE_FLOAT,
                                       .dims = dims[i],
                                       .min = dims[i],
                                       .max = dims[i]};
  rabbet_group_node_t node = {.op = rabbet_op_get(RABBET_OP_IDENTITY),
                              .name = "copy",
                              .inputs = &in,
                              .input_count = 1,
                              .outputs = &out,
                              .output_count = 1};
  const rabbet_group_t group = {.values = values,
                                .value_count = 2,
                                .inputs = &in,
                                .input_count = 1,
                                .outputs = &out,
                                .output_count = 1,
                                .nodes = &node,
                                .node_count = 1};
  const rabbet_question_t question = {.device = build->device,
                                      .kernel = &library,
                                      .group = &group,
                                      .dims = dims,
                                      .wish = 8,
                                      .enough = 8,
                                      .allocator = SYSTEM};
  const rabbet_asker_t* asker = rabbet_trials_asker(build->trials, "layer");
  RABBET_EXPECT_OK(asker->ask(asker->context, &question,
                              (rabbet_answer_sink_t){&digits, collect}));
  return digits;
}

static void expect_culprit(const rabbet_build_t* build, const char* tactic) {
  size_t count = 0;
  const rabbet_culprit_t* culprits =
      rabbet_trials_culprits(build->trials, &count);
  assert_int_equal(count, 1);
  assert_string_equal(culprits[0].tactic_name, tactic);
  assert_string_equal(culprits[0].layer, "layer");
  assert_non_null(strstr(culprits[0].reason, "signal 9"));
}

// ---- Tests ------------------------------------------------------------------

// Numbers of answers hold for one helper.
static void answers_in_another_order(void** state) {
  (void)state;
  rabbet_build_t build;
  build_begin("order", &build);
  assert_int_equal(ask(&build, 4), 13);
  expect_culprit(&build, "t2");
  assert_int_equal(asked_here, 0);
  build_end(&build);
}

// A kernel that ended a helper is not run in the build's process when memory
// runs out.
static void harm_is_known_without_a_helper(void** state) {
  (void)state;
  rabbet_build_t build;
  build_begin("short", &build);
  assert_int_equal(ask(&build, 4), 23);
  expect_culprit(&build, "t1");
  assert_int_equal(asked_here, 1);
  build_end(&build);
}

// A question that no plan can say is asked here; others still have the helper.
static void one_question_without_a_plan(void** state) {
  (void)state;
  rabbet_build_t build;
  build_begin("order", &build);
  assert_int_equal(ask(&build, -1), 123);
  assert_int_equal(asked_here, 1);
  assert_int_equal(ask(&build, 4), 13);
  assert_int_equal(asked_here, 1);
  build_end(&build);
}

// The only answer in the cache, and its key. Released by the caller.
static char* cached_answer(rabbet_timing_cache_t* cache, rabbet_hash_t* out_key,
                           size_t* out_size) {
  char *data = NULL, *answer = NULL;
  size_t size = 0;
  RABBET_EXPECT_OK(
      rabbet_timing_cache_serialize(cache, SYSTEM, (void**)&data, &size));
  assert_int_equal(rabbet_timing_cache_count(cache), 0);
  memcpy(out_key, data + 32 + sizeof(uint64_t), sizeof(*out_key));
  rabbet_free(SYSTEM, data);
  RABBET_EXPECT_OK(rabbet_timing_cache_find_answer(cache, *out_key, SYSTEM,
                                                   (void**)&answer, out_size));
  assert_non_null(answer);
  return answer;
}

static void put_and_ask(rabbet_build_t* build, rabbet_hash_t key,
                        const char* changed, size_t size) {
  RABBET_EXPECT_OK(
      rabbet_timing_cache_put_answer(build->cache, key, changed, size));
  ask(build, 4);
}

// Bytes that no build wrote: one changed bit, or two changed numbers, which may
// be the lengths of two fields. Kernels get no half-read answers.
static void damaged_answers(void** state) {
  enum { MORE = 4, MOST = 256 };
  (void)state;
  rabbet_build_t build;
  build_begin("one", &build);
  rabbet_hash_t key;
  size_t size = 0;
  assert_int_equal(ask(&build, 4), 1);
  char *answer = cached_answer(build.cache, &key, &size), changed[MOST] = {0};
  assert_true(size + MORE <= MOST);
  for (size_t bit = 0; bit < 8 * size; ++bit) {
    memcpy(changed, answer, size);
    changed[bit / 8] ^= (char)(1 << bit % 8);
    put_and_ask(&build, key, changed, size);
  }
  for (size_t i = 0; i + MORE <= size; i += MORE)
    for (size_t k = 0; k + MORE <= size; k += MORE) {
      memcpy(changed, answer, size);
      memset(changed + i, 0, MORE);
      memcpy(changed + k, &(int32_t){MORE + 1}, MORE);
      put_and_ask(&build, key, changed, size + MORE);
    }
  rabbet_free(SYSTEM, answer);
  build_end(&build);
}

static int setup(void** state) {
  static char path[4096];
  (void)state;
  ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
  path[size > 0 ? size : 0] = 0;
  return setenv("RABBET_TRIAL", path, 1);
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], RABBET_TRIAL_ARGUMENT) == 0)
    return helper_main();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_in_another_order),
      cmocka_unit_test(harm_is_known_without_a_helper),
      cmocka_unit_test(one_question_without_a_plan),
      cmocka_unit_test(damaged_answers),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
