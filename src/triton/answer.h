// Answers of requests: outputs are given to them, responses sent, requests
// released. What a server does for a response (making JSON, for one) takes as
// long as a small network, so threads of the instance's own do it while the
// next batch is computed.
#ifndef RABBET_SRC_TRITON_ANSWER_H_
#define RABBET_SRC_TRITON_ANSWER_H_

#include <pthread.h>

#include "triton/call.h"

struct rabbet_triton_instance_t;

typedef struct rabbet_triton_answers_t {
  pthread_mutex_t lock;
  pthread_cond_t some;                 // requests to answer, or the end
  pthread_cond_t free;                 // a call
  rabbet_triton_call_t *first, *last;  // that have requests nobody has taken
  // The shortest computation for which a thread is woken, in nanoseconds.
  uint64_t worth;
  bool is_initialized, ends;
  pthread_t* threads;
  size_t thread_count;
} rabbet_triton_answers_t;

// Starts the threads that the model's configuration asks for.
rabbet_status_t rabbet_triton_answers_initialize(
    struct rabbet_triton_instance_t* instance);
// Answers what is left. Zeros are fine.
void rabbet_triton_answers_deinitialize(
    struct rabbet_triton_instance_t* instance);

// A call that is free. Until there is one, this thread answers, too.
rabbet_triton_call_t* rabbet_triton_answers_take_call(
    struct rabbet_triton_instance_t* instance);
// Gives back a call, none of whose requests were taken over.
void rabbet_triton_answers_free_call(struct rabbet_triton_instance_t* instance,
                                     rabbet_triton_call_t* call);
// Answers a call's requests and frees it; on other threads, if that pays.
void rabbet_triton_answers_give(struct rabbet_triton_instance_t* instance,
                                rabbet_triton_call_t* call);

#endif  // RABBET_SRC_TRITON_ANSWER_H_
