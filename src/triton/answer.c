#include "triton/answer.h"

#include <string.h>

#include "triton/batch.h"
#include "triton/report.h"

// Requests that a thread takes at once: few enough that several threads have
// work, enough that the first client does not ask again meanwhile.
enum { ANSWER_SHARE = 8 };
// A computation as short as waking a thread is not worth one.
enum { ANSWER_WORTH = 50000 };

// ---- Requests

static void answer_send(rabbet_triton_request_t* request) {
  rabbet_status_t made = rabbet_triton_batch_response(request);
  if (!rabbet_is_ok(made)) {
    request->status = rabbet_status_join(request->status, made);
    return;
  }
  // The status stays for the statistics.
  rabbet_status_t copy = rabbet_status_clone(request->status);
  TRITONSERVER_Error* error = rabbet_triton_error(copy);
  rabbet_triton_log_failure(rabbet_triton_status(TRITONBACKEND_ResponseSend(
      request->response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error)));
  if (error) TRITONSERVER_ErrorDelete(error);
}

static void answer_release(rabbet_triton_instance_t* instance, uint64_t begin,
                           uint64_t end, rabbet_triton_request_t* request) {
  rabbet_triton_log_failure(
      rabbet_triton_status(TRITONBACKEND_ModelInstanceReportStatistics(
          instance->handle, request->handle, rabbet_is_ok(request->status),
          begin, request->compute_begin, request->compute_end, end)));
  rabbet_triton_log_failure(rabbet_triton_status(TRITONBACKEND_RequestRelease(
      request->handle, TRITONSERVER_REQUEST_RELEASE_ALL)));
  if (!request->response)
    rabbet_triton_log_failure(request->status);
  else
    rabbet_status_free(request->status);
}

// ---- Shares of calls

typedef struct answer_share_t {
  rabbet_triton_call_t* call;
  size_t begin, end;
} answer_share_t;

// With the lock. An empty share: there is nothing to do.
static answer_share_t answer_take(rabbet_triton_answers_t* answers) {
  rabbet_triton_call_t* call = answers->first;
  if (!call) return (answer_share_t){0};
  answer_share_t share = {call, call->taken, call->taken + ANSWER_SHARE};
  if (share.end >= call->count) {
    share.end = call->count;
    answers->first = call->next;
    if (!answers->first) answers->last = NULL;
  }
  call->taken = share.end;
  return share;
}

// The server wants a batch's statistics while it has requests of it.
static void answer_divide(rabbet_triton_instance_t* instance,
                          answer_share_t share) {
  rabbet_triton_call_t* call = share.call;
  rabbet_triton_batch_divide(instance, call, share.begin, share.end);
  pthread_mutex_lock(&instance->answers.lock);
  call->divided += share.end - share.begin;
  bool is_last = call->divided == call->count;
  pthread_mutex_unlock(&instance->answers.lock);
  if (is_last)
    rabbet_triton_batch_report(instance, call, call->group, call->group_count);
}

static void answer_share(rabbet_triton_instance_t* instance,
                         answer_share_t share) {
  rabbet_triton_call_t* call = share.call;
  if (call->is_undivided) answer_divide(instance, share);
  for (size_t i = share.begin; i < share.end; ++i)
    answer_send(&call->requests[i]);
  uint64_t end = rabbet_triton_now();
  for (size_t i = share.begin; i < share.end; ++i)
    answer_release(instance, call->begin, end, &call->requests[i]);
  pthread_mutex_lock(&instance->answers.lock);
  call->left -= share.end - share.begin;
  if (call->left == 0) {
    call->is_free = true;
    pthread_cond_signal(&instance->answers.free);
  }
  pthread_mutex_unlock(&instance->answers.lock);
}

// ---- Threads

static void* answer_run(void* user_data) {
  rabbet_triton_instance_t* instance = user_data;
  rabbet_triton_answers_t* answers = &instance->answers;
  for (;;) {
    pthread_mutex_lock(&answers->lock);
    while (!answers->first && !answers->ends)
      pthread_cond_wait(&answers->some, &answers->lock);
    answer_share_t share = answer_take(answers);
    pthread_mutex_unlock(&answers->lock);
    if (!share.call) return NULL;
    answer_share(instance, share);
  }
}

rabbet_status_t rabbet_triton_answers_initialize(
    rabbet_triton_instance_t* instance) {
  rabbet_triton_answers_t* answers = &instance->answers;
  size_t count = (size_t)instance->model->config.answer_threads;
  pthread_mutex_init(&answers->lock, NULL);
  pthread_cond_init(&answers->some, NULL);
  pthread_cond_init(&answers->free, NULL);
  answers->worth = ANSWER_WORTH;
  answers->is_initialized = true;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(instance->model->allocator,
                                         count * sizeof(*answers->threads),
                                         (void**)&answers->threads));
  for (size_t i = 0; i < count; ++i) {
    int code = pthread_create(&answers->threads[i], NULL, answer_run, instance);
    if (code != 0)
      return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                           "no thread for answers: %s", strerror(code));
    ++answers->thread_count;
  }
  return rabbet_ok();
}

void rabbet_triton_answers_deinitialize(rabbet_triton_instance_t* instance) {
  rabbet_triton_answers_t* answers = &instance->answers;
  if (!answers->is_initialized) return;
  pthread_mutex_lock(&answers->lock);
  answers->ends = true;
  pthread_cond_broadcast(&answers->some);
  pthread_mutex_unlock(&answers->lock);
  for (size_t i = 0; i < answers->thread_count; ++i)
    pthread_join(answers->threads[i], NULL);
  rabbet_free(instance->model->allocator, answers->threads);
  pthread_cond_destroy(&answers->free);
  pthread_cond_destroy(&answers->some);
  pthread_mutex_destroy(&answers->lock);
}

// ---- Calls

rabbet_triton_call_t* rabbet_triton_answers_take_call(
    rabbet_triton_instance_t* instance) {
  rabbet_triton_answers_t* answers = &instance->answers;
  rabbet_triton_call_t* found = NULL;
  pthread_mutex_lock(&answers->lock);
  while (!found) {
    for (int i = 0; i < RABBET_TRITON_CALLS && !found; ++i)
      if (instance->calls[i].is_free) found = &instance->calls[i];
    if (found) break;
    answer_share_t share = answer_take(answers);
    if (share.call) {
      pthread_mutex_unlock(&answers->lock);
      answer_share(instance, share);
      pthread_mutex_lock(&answers->lock);
    } else {
      pthread_cond_wait(&answers->free, &answers->lock);
    }
  }
  found->is_free = false;
  found->is_undivided = false;
  found->taken = found->divided = found->left = 0;
  found->next = NULL;
  pthread_mutex_unlock(&answers->lock);
  return found;
}

void rabbet_triton_answers_free_call(rabbet_triton_instance_t* instance,
                                     rabbet_triton_call_t* call) {
  pthread_mutex_lock(&instance->answers.lock);
  call->is_free = true;
  pthread_mutex_unlock(&instance->answers.lock);
}

// Whether the next batch takes long enough for other threads to answer
// meanwhile. A single request's client is waiting for nothing else.
static bool answer_pays(const rabbet_triton_answers_t* answers,
                        const rabbet_triton_call_t* call) {
  uint64_t longest = 0;
  if (call->count == 1 || answers->thread_count == 0) return false;
  for (size_t i = 0; i < call->count; ++i) {
    const rabbet_triton_request_t* request = &call->requests[i];
    uint64_t time = request->compute_end - request->compute_begin;
    if (time > longest) longest = time;
  }
  return longest >= answers->worth;
}

void rabbet_triton_answers_give(rabbet_triton_instance_t* instance,
                                rabbet_triton_call_t* call) {
  rabbet_triton_answers_t* answers = &instance->answers;
  call->left = call->count;
  if (!answer_pays(answers, call)) {
    answer_share(instance, (answer_share_t){call, 0, call->count});
    return;
  }
  pthread_mutex_lock(&answers->lock);
  if (answers->last)
    answers->last->next = call;
  else
    answers->first = call;
  answers->last = call;
  if (call->count > ANSWER_SHARE)
    pthread_cond_broadcast(&answers->some);
  else
    pthread_cond_signal(&answers->some);
  pthread_mutex_unlock(&answers->lock);
}
