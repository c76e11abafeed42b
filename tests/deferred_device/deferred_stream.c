// Streams, events and graphs of the device "defer".
#include <stdlib.h>
#include <string.h>

#include "deferred_device.h"

// A piece of work in the queue; the arguments follow.
typedef struct deferred_work_t {
  struct deferred_work_t* next;
  void (*work)(const void* args);
  size_t size;
  _Alignas(16) uint8_t args[];
} deferred_work_t;

typedef struct deferred_list_t {
  deferred_work_t *first, **end;
} deferred_list_t;

typedef struct deferred_stream_t {
  bool recording, spoilt;
  deferred_list_t recorded;
} deferred_stream_t;

typedef struct deferred_graph_t {
  deferred_list_t list;
} deferred_graph_t;

typedef struct deferred_event_t {
  int64_t ns;
} deferred_event_t;

static deferred_counts_t counts;
static bool lazy;
static int failing;
static deferred_list_t queue = {NULL, &queue.first};
static int64_t clock_ns;
static deferred_machine_t* machine;

deferred_counts_t* deferred_counts(void) {
  return &counts;
}

void deferred_set_machine(deferred_machine_t* given) {
  machine = given;
}

deferred_machine_t* deferred_machine(void) {
  return machine;
}

void deferred_set_lazy(bool on) {
  deferred_flush();
  lazy = on;
}

void deferred_fail_recording(int n) {
  failing = n;
}

static rabbet_status_t deferred_may_fail(const char* what) {
  if (failing > 0 && --failing == 0)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "%s was made to fail", what);
  return rabbet_ok();
}

// ---- Lists of work

static void deferred_append(deferred_list_t* list,
                            void (*work)(const void* args), const void* args,
                            size_t size) {
  deferred_work_t* item = malloc(sizeof(*item) + size);
  if (!item) abort();
  item->next = NULL;
  item->work = work;
  item->size = size;
  if (size > 0) memcpy(item->args, args, size);
  *list->end = item;
  list->end = &item->next;
}

static void deferred_clear(deferred_list_t* list) {
  while (list->first) {
    deferred_work_t* next = list->first->next;
    free(list->first);
    list->first = next;
  }
  list->end = &list->first;
}

// Every piece of work takes a microsecond of the device's clock.
static void deferred_do(void (*work)(const void* args), const void* args) {
  deferred_open_memory();
  work(args);
  deferred_close_memory();
  ++counts.done;
  clock_ns += 1000;
  if (machine) machine->now += 1000;
}

void deferred_flush(void) {
  for (deferred_work_t* item = queue.first; item; item = item->next)
    deferred_do(item->work, item->args);
  deferred_clear(&queue);
}

bool deferred_is_recording(void* stream) {
  return stream && ((deferred_stream_t*)stream)->recording;
}

rabbet_status_t deferred_launch(void* stream, void (*work)(const void* args),
                                const void* args, size_t size) {
  if (deferred_is_recording(stream))
    deferred_append(&((deferred_stream_t*)stream)->recorded, work, args, size);
  else if (lazy)
    deferred_append(&queue, work, args, size);
  else
    deferred_do(work, args);
  return rabbet_ok();
}

// ---- Streams and events

static rabbet_status_t deferred_synchronize(rabbet_device_t* device,
                                            void* stream) {
  (void)device;
  if (deferred_is_recording(stream)) {
    ((deferred_stream_t*)stream)->spoilt = true;
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "nobody can wait for a stream that records");
  }
  ++counts.synchronized;
  deferred_flush();
  return rabbet_ok();
}

static rabbet_status_t deferred_create_stream(rabbet_device_t* device,
                                              void** out_stream) {
  deferred_stream_t* stream = NULL;
  *out_stream = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(device->allocator, sizeof(*stream), (void**)&stream));
  stream->recorded.end = &stream->recorded.first;
  *out_stream = stream;
  return rabbet_ok();
}

static void deferred_destroy_stream(rabbet_device_t* device, void* stream) {
  deferred_clear(&((deferred_stream_t*)stream)->recorded);
  rabbet_free(device->allocator, stream);
}

static rabbet_status_t deferred_create_event(rabbet_device_t* device,
                                             void** out_event) {
  *out_event = NULL;
  return rabbet_allocate(device->allocator, sizeof(deferred_event_t),
                         out_event);
}

static void deferred_destroy_event(rabbet_device_t* device, void* event) {
  rabbet_free(device->allocator, event);
}

static void deferred_stamp(const void* args) {
  (*(deferred_event_t* const*)args)->ns = clock_ns;
}

static rabbet_status_t deferred_record_event(rabbet_device_t* device,
                                             void* event, void* stream) {
  (void)device;
  return deferred_launch(stream, deferred_stamp, &event, sizeof(event));
}

static rabbet_status_t deferred_elapsed(rabbet_device_t* device, void* begin,
                                        void* end, int64_t* out_ns) {
  (void)device;
  deferred_flush();
  // The stamp that `begin` is takes its own microsecond.
  *out_ns =
      ((deferred_event_t*)end)->ns - ((deferred_event_t*)begin)->ns - 1000;
  return rabbet_ok();
}

// ---- Graphs

static rabbet_status_t deferred_record_begin(rabbet_device_t* device,
                                             void* stream) {
  (void)device;
  deferred_stream_t* at = stream;
  if (!at || at->recording)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "the stream cannot record");
  RABBET_RETURN_IF_ERROR(deferred_may_fail("record_begin"));
  ++counts.recordings;
  at->recording = true;
  at->spoilt = false;
  return rabbet_ok();
}

static rabbet_status_t deferred_stream_is_recording(rabbet_device_t* device,
                                                    void* stream,
                                                    bool* out_recording) {
  (void)device;
  *out_recording =
      deferred_is_recording(stream) && !((deferred_stream_t*)stream)->spoilt;
  return rabbet_ok();
}

static rabbet_status_t deferred_keep(rabbet_device_t* device,
                                     deferred_list_t* recorded, void** graph) {
  deferred_graph_t* kept = *graph;
  RABBET_RETURN_IF_ERROR(deferred_may_fail("record_end"));
  if (!kept) {
    RABBET_RETURN_IF_ERROR(
        rabbet_allocate(device->allocator, sizeof(*kept), (void**)&kept));
    kept->list.end = &kept->list.first;
    ++counts.graphs;
  } else {
    ++counts.updates;
  }
  deferred_clear(&kept->list);
  for (deferred_work_t* item = recorded->first; item; item = item->next)
    deferred_append(&kept->list, item->work, item->args, item->size);
  *graph = kept;
  return rabbet_ok();
}

static rabbet_status_t deferred_record_end(rabbet_device_t* device,
                                           void* stream, void** graph) {
  deferred_stream_t* at = stream;
  rabbet_status_t status = rabbet_ok();
  if (!at->recording)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "the stream does not record");
  at->recording = false;
  if (at->spoilt && graph)
    status = RABBET_STATUS(RABBET_STATUS_INTERNAL, "the recording is spoilt");
  else if (graph)
    status = deferred_keep(device, &at->recorded, graph);
  deferred_clear(&at->recorded);
  return status;
}

static rabbet_status_t deferred_launch_graph(rabbet_device_t* device,
                                             void* graph, void* stream) {
  (void)device;
  RABBET_RETURN_IF_ERROR(deferred_may_fail("launch_graph"));
  ++counts.launches;
  const deferred_list_t* list = &((const deferred_graph_t*)graph)->list;
  rabbet_status_t status = rabbet_ok();
  deferred_open_memory();  // once for all
  for (const deferred_work_t* item = list->first; item && rabbet_is_ok(status);
       item = item->next)
    status = deferred_launch(stream, item->work, item->args, item->size);
  deferred_close_memory();
  return status;
}

static void deferred_destroy_graph(rabbet_device_t* device, void* graph) {
  if (!graph) return;
  deferred_clear(&((deferred_graph_t*)graph)->list);
  --counts.graphs;
  rabbet_free(device->allocator, graph);
}

void deferred_stream_vtable(rabbet_device_vtable_t* vtable) {
  vtable->synchronize = deferred_synchronize;
  vtable->create_stream = deferred_create_stream;
  vtable->destroy_stream = deferred_destroy_stream;
  vtable->create_event = deferred_create_event;
  vtable->destroy_event = deferred_destroy_event;
  vtable->record_event = deferred_record_event;
  vtable->elapsed = deferred_elapsed;
  vtable->record_begin = deferred_record_begin;
  vtable->is_recording = deferred_stream_is_recording;
  vtable->record_end = deferred_record_end;
  vtable->launch_graph = deferred_launch_graph;
  vtable->destroy_graph = deferred_destroy_graph;
}
