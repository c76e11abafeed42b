// Answers on other threads, while instances of a model serve random requests.
#include <pthread.h>

#include "triton_stand_in/sample.h"

enum { INSTANCES = 3, ROUNDS = 150, MOST = 24 };

// sum = x + x, product = x * x; x is [1 to 8, 1 to 4]
static void make_two(sample_net_t* net) {
  rabbet_tensor_t* x = sample_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(-1, -1));
  sample_output(net, sample_combine(net, x, x, 0), "sum");
  sample_output(net, sample_combine(net, x, x, 1), "product");
  sample_range(net, 0, "x", DIMS(1, 1), DIMS(4, 2), DIMS(8, 4));
}

typedef enum question_fault_t {
  QUESTION_FINE,
  QUESTION_CANCELLED,
  QUESTION_SHORT,   // too few bytes
  QUESTION_WIDE,    // outside of the profile
  QUESTION_OUTPUT,  // that the plan lacks
  QUESTION_FAULTS,
} question_fault_t;

typedef struct question_t {
  struct TRITONBACKEND_Request request;
  float x[8 * 5];
  int64_t rows, columns;
  question_fault_t fault;
} question_t;

static uint32_t random_below(uint64_t* state, uint32_t limit) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33) % limit;
}

static void question_make(question_t* question, uint64_t* random) {
  static const char* const outputs[] = {"sum", "product"};
  *question = (question_t){.rows = 1 + random_below(random, 3),
                           .columns = 1 + random_below(random, 2)};
  if (random_below(random, 8) == 0)
    question->fault = 1 + random_below(random, QUESTION_FAULTS - 1);
  if (question->fault == QUESTION_WIDE) question->columns = 5;
  struct TRITONBACKEND_Request* request = &question->request;
  size_t count = (size_t)(question->rows * question->columns);
  for (size_t i = 0; i < count; ++i)
    question->x[i] = (float)random_below(random, 100);
  request->wanted_count = 1 + random_below(random, 2);
  for (uint32_t i = 0; i < request->wanted_count; ++i)
    request->wanted[i] = outputs[i];
  if (question->fault == QUESTION_OUTPUT) request->wanted[0] = "none";
  request->cancelled = question->fault == QUESTION_CANCELLED;
  server_add_input(request, "x", 2,
                   (int64_t[]){question->rows, question->columns}, question->x,
                   count * sizeof(float) - (question->fault == QUESTION_SHORT));
}

static bool question_is_answered(const question_t* question) {
  const struct TRITONBACKEND_Request* request = &question->request;
  bool good = request->sent == 1 && request->released == 1 &&
              request->reported == 1 &&
              !*request->error == (question->fault == QUESTION_FINE);
  size_t count = (size_t)(question->rows * question->columns);
  for (uint32_t k = 0; k < request->wanted_count && good; ++k) {
    if (question->fault != QUESTION_FINE) break;
    const struct TRITONBACKEND_Output* output =
        server_output(request, request->wanted[k]);
    good = output && output->buffer.size == count * sizeof(float);
    for (size_t i = 0; i < count && good; ++i) {
      float x = question->x[i];
      good = ((const float*)output->buffer.data)[i] == (k ? x * x : x + x);
    }
  }
  return good;
}

typedef struct client_t {
  struct TRITONBACKEND_ModelInstance instance;
  uint64_t random;
  int wrong;
} client_t;

// The server calls an instance again while its last requests are answered.
static void* client_run(void* user_data) {
  client_t* client = user_data;
  question_t* questions = calloc(2 * MOST, sizeof(*questions));
  size_t counts[2] = {0};
  for (int round = 0; questions && round < ROUNDS; ++round) {
    int half = round % 2;
    question_t* ours = &questions[half * MOST];
    TRITONBACKEND_Request* list[MOST];
    for (size_t i = 0; i < counts[half]; ++i) {
      server_wait(&ours[i].request, 1);
      client->wrong += !question_is_answered(&ours[i]);
      server_forget(&ours[i].request);
    }
    counts[half] = 1 + random_below(&client->random, MOST);
    for (size_t i = 0; i < counts[half]; ++i) {
      question_make(&ours[i], &client->random);
      list[i] = &ours[i].request;
    }
    TRITONSERVER_Error* error = TRITONBACKEND_ModelInstanceExecute(
        &client->instance, list, (uint32_t)counts[half]);
    client->wrong += error != NULL;
  }
  // The instance may end before they are waited for.
  TRITONSERVER_Error* error =
      TRITONBACKEND_ModelInstanceFinalize(&client->instance);
  client->wrong += error != NULL || !questions;
  for (int k = 0; k < 2 * MOST && questions; ++k) {
    if ((size_t)(k % MOST) >= counts[k / MOST]) continue;
    client->wrong += !question_is_answered(&questions[k]);
    server_forget(&questions[k].request);
  }
  free(questions);
  return NULL;
}

static void under_load(void** state) {
  (void)state;
  static const char* const threads[] = {"0", "1", "3"};
  for (int k = 0; k < 3; ++k) {
    sample_t sample;
    client_t clients[INSTANCES];
    pthread_t started[INSTANCES];
    sample_answers_later = true;
    sample_build(&sample, "cpu", make_two);
    snprintf(sample.model.config, sizeof(sample.model.config),
             "{\"name\":\"sample\",\"parameters\":{\"answer_threads\":"
             "{\"string_value\":\"%s\"}}}",
             threads[k]);
    sample_load(&sample);
    for (int i = 0; i < INSTANCES; ++i) {
      clients[i] = (client_t){.instance = {.model = &sample.model},
                              .random = (uint64_t)(7 * k + i)};
      sample_expect_ok(
          TRITONBACKEND_ModelInstanceInitialize(&clients[i].instance));
      sample_set_answers(&clients[i].instance);
    }
    for (int i = 0; i < INSTANCES; ++i)
      assert_int_equal(
          pthread_create(&started[i], NULL, client_run, &clients[i]), 0);
    for (int i = 0; i < INSTANCES; ++i) {
      pthread_join(started[i], NULL);
      assert_int_equal(clients[i].wrong, 0);
    }
    sample_unload(&sample);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(under_load)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
