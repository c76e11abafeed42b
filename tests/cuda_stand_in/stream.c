// Streams and events. Work is queued and done as late as the rules allow: when
// somebody waits for it, or for what comes after it. Whoever forgot to wait
// reads what was there before.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_stand_in/internal.h"

static struct {
  struct CUstream_st legacy;
  CUstream* streams;
  size_t stream_count;
  CUevent* events;
  size_t event_count;
  uint64_t sequence;
} work;

// ---- Handles ---------------------------------------------------------------

static CUstream stream_find(CUstream stream) {
  if (!stream || stream == CU_STREAM_LEGACY) return &work.legacy;
  for (size_t i = 0; i < work.stream_count; ++i)
    if (work.streams[i] == stream && stream->live) return stream;
  return NULL;
}

// NULL for one that is gone, with which a driver may well end the process.
CUstream stream_resolve(CUstream stream) {
  CUstream found = stream_find(stream);
  if (!found) misuse("stream %p is gone, or never was", (void*)stream);
  return found;
}

static CUevent event_resolve(CUevent event) {
  for (size_t i = 0; i < work.event_count; ++i)
    if (work.events[i] == event && event->live) return event;
  return NULL;
}

int stream_number(CUstream stream) {
  stream = stream_find(stream);
  return stream ? stream->number : -1;
}

bool stream_is_current(CUstream stream) {
  stream = stream_find(stream);
  return !stream || !stream->context || stream->context == context_current;
}

static int event_number(CUevent event) {
  event = event_resolve(event);
  return event ? event->number : -1;
}

int stream_count(void) {
  int count = 0;
  for (size_t i = 0; i < work.stream_count; ++i)
    count += work.streams[i]->live;
  return count;
}

int event_count(void) {
  int count = 0;
  for (size_t i = 0; i < work.event_count; ++i)
    count += work.events[i]->live;
  return count;
}

static bool stream_is_legacy(const struct CUstream_st* stream) {
  return stream == &work.legacy;
}
static bool stream_is_blocking(const struct CUstream_st* stream) {
  return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

// ---- Executing -------------------------------------------------------------

void op_release(op_t* op) {
  free(op->launch);
  free(op->snapshot);
  if (op->graph) graph_release(op->graph);
  *op = (op_t){.type = OP_WAIT};
}

static void context_break(CUresult result) {
  CUcontext context = context_current ? context_current : context_of_device(0);
  if (context && context->broken == CUDA_SUCCESS) context->broken = result;
}

// Memory of either kind that the driver knows, all of it.
bool op_may_access(const void* address, size_t size, copy_kind_t kind,
                   const char* what) {
  if (kind == KIND_PAGEABLE || memory_find(address, size)) return true;
  misuse("%s %zu bytes at %s", what, size, memory_describe(address));
  context_break(CUDA_ERROR_ILLEGAL_ADDRESS);
  return false;
}

static void op_copy(op_t* op) {
  const void* source = op->snapshot ? op->snapshot : op->source;
  if (op_may_access(op->target, op->size, op->target_kind, "a copy writes") &&
      (op->snapshot ||
       op_may_access(op->source, op->size, op->source_kind, "a copy reads")))
    memmove(op->target, source, op->size);
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void op_execute(op_t* op) {
  CUcontext context = context_current ? context_current : context_of_device(0);
  bool broken = context && context->broken != CUDA_SUCCESS;
  switch (op->type) {
    case OP_KERNEL: {
      CUresult result = broken ? CUDA_SUCCESS : grid_run(op->launch);
      if (result != CUDA_SUCCESS) context_break(result);
      break;
    }
    case OP_COPY:
      if (!broken) op_copy(op);
      break;
    case OP_FILL:
      if (!broken &&
          op_may_access(op->target, op->size, op->target_kind, "a fill writes"))
        memset(op->target, op->byte, op->size);
      break;
    case OP_RECORD:
      if (op->event->recorded == op->sequence) {
        op->event->pending = false;
        op->event->nanoseconds = now();
      }
      break;
    case OP_FREE:
      pool_free_done(op->target, op->size);
      break;
    case OP_GRAPH:
      if (!broken) graph_execute(op->graph);
      break;
    case OP_CONDITIONAL:
      if (!broken) conditional_execute(op);
      break;
    case OP_HOST:
      if (!broken) op->run(op->snapshot);
      break;
    case OP_WAIT:
    case OP_NONE:
      break;
  }
}

// Does the work that must precede this operation of that stream: only as much
// as the rules demand, so that nothing else is done by luck.
static void stream_drain_until(CUstream stream, uint64_t until);
static void op_satisfy(CUstream stream, const op_t* op) {
  if (op->type == OP_WAIT && op->other)
    stream_drain_until(op->other, op->until);
  if (stream_is_legacy(stream)) {
    for (size_t i = 0; i < work.stream_count; ++i)
      if (stream_is_blocking(work.streams[i]))
        stream_drain_until(work.streams[i], op->sequence - 1);
  } else if (stream_is_blocking(stream)) {
    stream_drain_until(&work.legacy, op->sequence - 1);
  }
}

static void stream_step(CUstream stream) {
  op_satisfy(stream, &stream->ops[stream->first]);
  op_t op = stream->ops[stream->first++];
  if (--stream->count == 0) stream->first = 0;
  op_execute(&op);
  op_release(&op);
}

static void stream_drain_until(CUstream stream, uint64_t until) {
  while (stream->count > 0 && stream->ops[stream->first].sequence <= until)
    stream_step(stream);
}

CUresult stream_drain(CUstream stream) {
  stream_drain_until(stream, UINT64_MAX);
  return context_current ? context_current->broken : CUDA_SUCCESS;
}

void stream_drain_all(void) {
  stream_drain(&work.legacy);
  for (size_t i = 0; i < work.stream_count; ++i)
    stream_drain(work.streams[i]);
}

static bool queue_uses(CUstream stream, const struct CUmod_st* module) {
  for (size_t i = 0; i < stream->count; ++i) {
    const op_t* op = &stream->ops[stream->first + i];
    if (op->type == OP_KERNEL && op->launch->function->module == module)
      return true;
  }
  return false;
}

bool stream_uses(const struct CUmod_st* module) {
  for (size_t i = 0; i < work.stream_count; ++i)
    if (queue_uses(work.streams[i], module)) return true;
  return queue_uses(&work.legacy, module);
}

int stream_pending(void) {
  size_t count = work.legacy.count;
  for (size_t i = 0; i < work.stream_count; ++i)
    count += work.streams[i]->count;
  return (int)count;
}

// ---- Queueing --------------------------------------------------------------

static bool stream_is_eager(void) {
  const char* text = getenv("RABBET_STAND_IN_EAGER");
  return text && *text;
}

static CUresult stream_push(CUstream stream, op_t* op) {
  if (stream->first + stream->count == stream->room) {
    if (stream->count > 0)
      memmove(stream->ops, stream->ops + stream->first,
              stream->count * sizeof(*op));
    stream->first = 0;
    if (2 * stream->count >= stream->room) {
      size_t room = 2 * stream->room + 16;
      op_t* ops = realloc(stream->ops, room * sizeof(*ops));
      if (!ops) return CUDA_ERROR_OUT_OF_MEMORY;
      stream->ops = ops;
      stream->room = room;
    }
  }
  op->sequence = ++work.sequence;
  stream->ops[stream->first + stream->count++] = *op;
  if (stream_is_eager()) stream_drain(stream);
  return CUDA_SUCCESS;
}

// The legacy stream would have to wait for a stream that captures.
static CUresult stream_check_legacy(CUstream stream) {
  capture_t* capture = stream_is_legacy(stream) ? capture_of_blocking() : NULL;
  if (!capture) return CUDA_SUCCESS;
  capture_invalidate(capture);
  return ERROR_CAPTURE_IMPLICIT;
}

// cuDNN's engines that do not wait for their inputs were seen on GPUs of
// compute capability 9.
//
// A kernel of another thread is of another run, whose memory is its own.
static void stream_check_early(const struct CUstream_st* stream) {
  bool follows = stream->capture
                     ? capture_ends_in(stream, OP_KERNEL)
                     : stream->last == OP_KERNEL &&
                           pthread_equal(stream->last_by, pthread_self());
  if (follows && context_major >= 9)
    misuse(
        "cuDNN's work follows a kernel in stream %d and may begin before "
        "that ends",
        stream->number);
}

CUresult stream_submit(CUstream handle, op_t* op) {
  CUstream stream = stream_resolve(handle);
  CUresult result = stream ? stream_check_legacy(stream) : ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS && op->is_early) stream_check_early(stream);
  if (result == CUDA_SUCCESS && !stream->capture) {
    stream->last = op->type;
    stream->last_by = pthread_self();
  }
  if (result == CUDA_SUCCESS)
    result =
        stream->capture ? capture_add(stream, op) : stream_push(stream, op);
  if (result != CUDA_SUCCESS) op_release(op);
  return result;
}

// ---- Copies ----------------------------------------------------------------

static copy_kind_t host_kind(const void* address, size_t size) {
  const allocation_t* a = memory_find(address, size);
  return a && a->host ? KIND_PINNED : KIND_PAGEABLE;
}

// Of the device (or of pinned memory, which it reaches, too).
static bool is_device(CUdeviceptr address, size_t size) {
  const allocation_t* a = memory_find((const void*)(uintptr_t)address, size);
  if (a && a->freed)
    misuse("new work uses %s", memory_describe((void*)(uintptr_t)address));
  return a && !a->freed;
}

// Pageable memory cannot be part of a graph.
static CUresult copy_check(const op_t* op, CUstream handle) {
  CUstream stream = stream_resolve(handle);
  if (!stream) return ERROR_INVALID_HANDLE;
  if (!stream->capture ||
      (op->source_kind != KIND_PAGEABLE && op->target_kind != KIND_PAGEABLE))
    return CUDA_SUCCESS;
  capture_invalidate(stream->capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

// Memory of the device is no place of the host's.
static bool is_host(const void* address) {
  const allocation_t* a = memory_find(address, 1);
  if (a && !a->host)
    misuse("a copy takes for the host's %s", memory_describe(address));
  return address && (!a || a->host);
}

static CUresult copy_in(CUdeviceptr target, const void* source, size_t size,
                        CUstream stream) {
  if (!is_device(target, size) || !is_host(source))
    return CUDA_ERROR_INVALID_VALUE;
  op_t op = {.type = OP_COPY,
             .target = (void*)(uintptr_t)target,
             .source = source,
             .source_kind = host_kind(source, size),
             .size = size};
  CUresult result = copy_check(&op, stream);
  if (result != CUDA_SUCCESS) return result;
  // The source may be reused when the call is back.
  if (op.source_kind == KIND_PAGEABLE) {
    op.snapshot = malloc(size > 0 ? size : 1);
    if (!op.snapshot) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(op.snapshot, source, size);
  }
  return stream_submit(stream, &op);
}

CUresult stand_in_cuMemcpyHtoDAsync(CUdeviceptr target, const void* source,
                                    size_t size, CUstream stream) {
  ENTRY(cuMemcpyHtoDAsync, NEEDS_CONTEXT,
        ("%p from %p, size %zu, stream %d", (void*)(uintptr_t)target, source,
         size, stream_number(stream)),
        copy_in(target, source, size, stream));
}

static CUresult copy_out(void* target, CUdeviceptr source, size_t size,
                         CUstream stream) {
  if (!is_device(source, size) || !is_host(target))
    return CUDA_ERROR_INVALID_VALUE;
  op_t op = {.type = OP_COPY,
             .target = target,
             .target_kind = host_kind(target, size),
             .source = (const void*)(uintptr_t)source,
             .size = size};
  bool waits = op.target_kind == KIND_PAGEABLE;
  CUresult result = copy_check(&op, stream);
  if (result == CUDA_SUCCESS) result = stream_submit(stream, &op);
  if (result == CUDA_SUCCESS && waits)
    result = stream_drain(stream_resolve(stream));
  return result;
}

CUresult stand_in_cuMemcpyDtoHAsync(void* target, CUdeviceptr source,
                                    size_t size, CUstream stream) {
  ENTRY(cuMemcpyDtoHAsync, NEEDS_CONTEXT,
        ("%p from %p, size %zu, stream %d", target, (void*)(uintptr_t)source,
         size, stream_number(stream)),
        copy_out(target, source, size, stream));
}

static CUresult copy_inside(CUdeviceptr target, CUdeviceptr source, size_t size,
                            CUstream stream) {
  if (!is_device(source, size) || !is_device(target, size))
    return CUDA_ERROR_INVALID_VALUE;
  op_t op = {.type = OP_COPY,
             .target = (void*)(uintptr_t)target,
             .source = (const void*)(uintptr_t)source,
             .size = size};
  return stream_submit(stream, &op);
}

CUresult stand_in_cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source,
                                    size_t size, CUstream stream) {
  ENTRY(cuMemcpyDtoDAsync, NEEDS_CONTEXT,
        ("%p from %p, size %zu, stream %d", (void*)(uintptr_t)target,
         (void*)(uintptr_t)source, size, stream_number(stream)),
        copy_inside(target, source, size, stream));
}

static CUresult fill(CUdeviceptr target, unsigned char byte, size_t size,
                     CUstream stream) {
  if (!is_device(target, size)) return CUDA_ERROR_INVALID_VALUE;
  op_t op = {.type = OP_FILL,
             .target = (void*)(uintptr_t)target,
             .byte = byte,
             .size = size};
  return stream_submit(stream, &op);
}

CUresult stand_in_cuMemsetD8Async(CUdeviceptr target, unsigned char byte,
                                  size_t size, CUstream stream) {
  ENTRY(cuMemsetD8Async, NEEDS_CONTEXT,
        ("%p, byte %d, size %zu, stream %d", (void*)(uintptr_t)target, byte,
         size, stream_number(stream)),
        fill(target, byte, size, stream));
}

// ---- Streams ---------------------------------------------------------------

// Handles are not given again, so that the use of a destroyed one is found.
static bool handles_add(void* list, size_t* count, void* handle) {
  void*** handles = list;
  if (*count % 64 == 0) {
    void** more = realloc(*handles, (*count + 64) * sizeof(void*));
    if (!more) return false;
    *handles = more;
  }
  (*handles)[(*count)++] = handle;
  return true;
}

static CUresult stream_create(CUstream* out_stream, unsigned flags) {
  if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
    return CUDA_ERROR_INVALID_VALUE;
  CUstream stream = calloc(1, sizeof(*stream));
  if (!stream || !handles_add(&work.streams, &work.stream_count, stream)) {
    free(stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  stream->context = context_current;
  stream->flags = flags;
  stream->live = true;
  stream->number = (int)work.stream_count;
  *out_stream = stream;
  log_add(", stream %d", stream->number);
  return CUDA_SUCCESS;
}

CUresult stand_in_cuStreamCreate(CUstream* stream, unsigned flags) {
  ENTRY(cuStreamCreate, NEEDS_CONTEXT, ("flags %u", flags),
        stream_create(stream, flags));
}

static CUresult stream_destroy(CUstream handle) {
  CUstream stream = stream_resolve(handle);
  if (!stream || stream_is_legacy(stream)) {
    misuse("destroying what is no stream: %p", (void*)handle);
    return ERROR_INVALID_HANDLE;
  }
  if (stream->capture) capture_invalidate(stream->capture);
  stream->live = false;  // its work is done all the same
  return CUDA_SUCCESS;
}

CUresult stand_in_cuStreamDestroy(CUstream stream) {
  ENTRY(cuStreamDestroy, NEEDS_CONTEXT | RELEASES,
        ("stream %d", stream_number(stream)), stream_destroy(stream));
}

static CUresult stream_synchronize(CUstream handle) {
  CUstream stream = stream_resolve(handle);
  if (!stream) return ERROR_INVALID_HANDLE;
  CUresult result = stream_check_legacy(stream);
  if (result != CUDA_SUCCESS) return result;
  if (!stream->capture) {
    result = stream_drain(stream);
    pool_waited();
    return result;
  }
  capture_invalidate(stream->capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult context_synchronize(void) {
  stream_drain_all();
  pool_waited();
  return context_current->broken;
}

CUresult stand_in_cuCtxSynchronize(void) {
  ENTRY(cuCtxSynchronize, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE, (" "),
        context_synchronize());
}

CUresult stand_in_cuStreamSynchronize(CUstream stream) {
  ENTRY(cuStreamSynchronize, NEEDS_CONTEXT,
        ("stream %d", stream_number(stream)), stream_synchronize(stream));
}

static CUresult stream_wait(CUstream handle, CUevent event) {
  CUstream stream = stream_resolve(handle);
  if (!stream || !event_resolve(event)) return ERROR_INVALID_HANDLE;
  CUresult result = stream_check_legacy(stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture || event->capture) return capture_wait(stream, event);
  if (!event->stream) return CUDA_SUCCESS;  // never recorded
  op_t op = {.type = OP_WAIT, .other = event->stream, .until = event->recorded};
  return stream_push(stream, &op);
}

CUresult stand_in_cuStreamWaitEvent(CUstream stream, CUevent event,
                                    unsigned flags) {
  ENTRY(cuStreamWaitEvent, NEEDS_CONTEXT,
        ("stream %d, event %d, flags %u", stream_number(stream),
         event_number(event), flags),
        stream_wait(stream, event));
}

// ---- Events ----------------------------------------------------------------

void capture_forget(const capture_t* capture) {
  for (size_t i = 0; i < work.event_count; ++i) {
    if (work.events[i]->capture != capture) continue;
    work.events[i]->capture = NULL;
    work.events[i]->stream = NULL;
  }
}

static CUresult event_create(CUevent* out_event, unsigned flags) {
  CUevent event = calloc(1, sizeof(*event));
  if (!event || !handles_add(&work.events, &work.event_count, event)) {
    free(event);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  event->context = context_current;
  event->flags = flags;
  event->live = true;
  event->number = (int)work.event_count;
  *out_event = event;
  log_add(", event %d", event->number);
  return CUDA_SUCCESS;
}

CUresult stand_in_cuEventCreate(CUevent* event, unsigned flags) {
  ENTRY(cuEventCreate, NEEDS_CONTEXT, ("flags %u", flags),
        event_create(event, flags));
}

static CUresult event_destroy(CUevent event) {
  if (!event_resolve(event)) {
    misuse("destroying what is no event: %p", (void*)event);
    return ERROR_INVALID_HANDLE;
  }
  event->live = false;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuEventDestroy(CUevent event) {
  ENTRY(cuEventDestroy, NEEDS_CONTEXT | RELEASES,
        ("event %d", event_number(event)), event_destroy(event));
}

void stream_drop(CUcontext context) {
  for (size_t i = 0; i < work.stream_count; ++i)
    if (work.streams[i]->context == context) work.streams[i]->live = false;
  for (size_t i = 0; i < work.event_count; ++i)
    if (work.events[i]->context == context) work.events[i]->live = false;
}

static CUresult event_record(CUevent event, CUstream handle) {
  CUstream stream = stream_resolve(handle);
  if (!stream || !event_resolve(event)) return ERROR_INVALID_HANDLE;
  CUresult result = stream_check_legacy(stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture) return capture_record(stream, event);
  event->capture = NULL;
  event->stream = stream;
  event->pending = true;
  event->recorded = work.sequence + 1;  // the one that it is given now
  op_t op = {.type = OP_RECORD, .event = event};
  return stream_push(stream, &op);
}

CUresult stand_in_cuEventRecord(CUevent event, CUstream stream) {
  ENTRY(cuEventRecord, NEEDS_CONTEXT,
        ("event %d, stream %d", event_number(event), stream_number(stream)),
        event_record(event, stream));
}

static CUresult event_check(CUevent event) {
  if (!event_resolve(event)) return ERROR_INVALID_HANDLE;
  if (!event->capture) return CUDA_SUCCESS;
  capture_invalidate(event->capture);
  return ERROR_CAPTURED_EVENT;
}

// Asking again and again gets there: each question lets one operation run.
static CUresult event_query(CUevent event) {
  CUresult result = event_check(event);
  if (result != CUDA_SUCCESS || !event->pending) return result;
  stream_step(event->stream);
  if (context_current->broken) return context_current->broken;
  return CUDA_ERROR_NOT_READY;
}

CUresult stand_in_cuEventQuery(CUevent event) {
  ENTRY(cuEventQuery, NEEDS_CONTEXT, ("event %d", event_number(event)),
        event_query(event));
}

static CUresult event_synchronize(CUevent event) {
  CUresult result = event_check(event);
  if (result == CUDA_SUCCESS && event->pending)
    stream_drain_until(event->stream, event->recorded);
  return result != CUDA_SUCCESS ? result : context_current->broken;
}

CUresult stand_in_cuEventSynchronize(CUevent event) {
  ENTRY(cuEventSynchronize, NEEDS_CONTEXT, ("event %d", event_number(event)),
        event_synchronize(event));
}

static CUresult event_elapsed(float* milliseconds, CUevent begin, CUevent end) {
  if (!event_resolve(begin) || !event_resolve(end) ||
      (begin->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !begin->stream ||
      !end->stream)
    return ERROR_INVALID_HANDLE;
  if (begin->capture || end->capture) return ERROR_CAPTURED_EVENT;
  if (begin->pending || end->pending) return CUDA_ERROR_NOT_READY;
  *milliseconds =
      (float)((double)(end->nanoseconds - begin->nanoseconds) / 1e6);
  return CUDA_SUCCESS;
}

CUresult stand_in_cuEventElapsedTime(float* milliseconds, CUevent begin,
                                     CUevent end) {
  ENTRY(cuEventElapsedTime, NEEDS_CONTEXT,
        ("event %d, event %d", event_number(begin), event_number(end)),
        event_elapsed(milliseconds, begin, end));
}

// ---- The end of the process ------------------------------------------------

__attribute__((destructor(200))) static void stream_end(void) {
  for (size_t i = 0; i < work.stream_count; ++i) {
    for (size_t k = 0; k < work.streams[i]->count; ++k)
      op_release(&work.streams[i]->ops[work.streams[i]->first + k]);
    free(work.streams[i]->ops);
    free(work.streams[i]->ends);
    free(work.streams[i]->nodes);
    free(work.streams[i]);
  }
  for (size_t i = 0; i < work.event_count; ++i) {
    free(work.events[i]->ends);
    free(work.events[i]);
  }
  for (size_t k = 0; k < work.legacy.count; ++k)
    op_release(&work.legacy.ops[work.legacy.first + k]);
  free(work.legacy.ops);
  free(work.streams);
  free(work.events);
  work.stream_count = work.event_count = 0;
}
