// Streams, events and graphs of the device "far".
#include <stdlib.h>
#include <string.h>

#include "far.h"

// A piece of work in the queue; the arguments follow.
typedef struct far_work_t {
  struct far_work_t* next;
  void (*work)(const void* args);
  size_t size;
  _Alignas(16) uint8_t args[];
} far_work_t;

typedef struct far_list_t {
  far_work_t *first, **end;
} far_list_t;

typedef struct far_stream_t {
  bool recording, spoilt;
  far_list_t recorded;
} far_stream_t;

typedef struct far_graph_t {
  far_list_t list;
} far_graph_t;

typedef struct far_event_t {
  int64_t ns;
} far_event_t;

static far_counts_t counts;
static bool lazy;
static int failing;
static far_list_t queue = {NULL, &queue.first};
static int64_t clock_ns;
static far_machine_t* machine;

far_counts_t* far_counts(void) {
  return &counts;
}

void far_set_machine(far_machine_t* given) {
  machine = given;
}

far_machine_t* far_machine(void) {
  return machine;
}

void far_set_lazy(bool on) {
  far_flush();
  lazy = on;
}

void far_fail_recording(int n) {
  failing = n;
}

static rabbet_status_t far_may_fail(const char* what) {
  if (failing > 0 && --failing == 0)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "%s was made to fail", what);
  return rabbet_ok();
}

// ---- Lists of work

static void far_append(far_list_t* list, void (*work)(const void* args),
                       const void* args, size_t size) {
  far_work_t* item = malloc(sizeof(*item) + size);
  if (!item) abort();
  item->next = NULL;
  item->work = work;
  item->size = size;
  if (size > 0) memcpy(item->args, args, size);
  *list->end = item;
  list->end = &item->next;
}

static void far_clear(far_list_t* list) {
  while (list->first) {
    far_work_t* next = list->first->next;
    free(list->first);
    list->first = next;
  }
  list->end = &list->first;
}

// Every piece of work takes a microsecond of the device's clock.
static void far_do(void (*work)(const void* args), const void* args) {
  far_open_memory();
  work(args);
  far_close_memory();
  ++counts.done;
  clock_ns += 1000;
  if (machine) machine->now += 1000;
}

void far_flush(void) {
  for (far_work_t* item = queue.first; item; item = item->next)
    far_do(item->work, item->args);
  far_clear(&queue);
}

bool far_is_recording(void* stream) {
  return stream && ((far_stream_t*)stream)->recording;
}

rabbet_status_t far_launch(void* stream, void (*work)(const void* args),
                           const void* args, size_t size) {
  if (far_is_recording(stream))
    far_append(&((far_stream_t*)stream)->recorded, work, args, size);
  else if (lazy)
    far_append(&queue, work, args, size);
  else
    far_do(work, args);
  return rabbet_ok();
}

// ---- Streams and events

static rabbet_status_t far_synchronize(rabbet_device_t* device, void* stream) {
  (void)device;
  if (far_is_recording(stream)) {
    ((far_stream_t*)stream)->spoilt = true;
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "nobody can wait for a stream that records");
  }
  ++counts.synchronized;
  far_flush();
  return rabbet_ok();
}

static rabbet_status_t far_create_stream(rabbet_device_t* device,
                                         void** out_stream) {
  far_stream_t* stream = NULL;
  *out_stream = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(device->allocator, sizeof(*stream), (void**)&stream));
  stream->recorded.end = &stream->recorded.first;
  *out_stream = stream;
  return rabbet_ok();
}

static void far_destroy_stream(rabbet_device_t* device, void* stream) {
  far_clear(&((far_stream_t*)stream)->recorded);
  rabbet_free(device->allocator, stream);
}

static rabbet_status_t far_create_event(rabbet_device_t* device,
                                        void** out_event) {
  *out_event = NULL;
  return rabbet_allocate(device->allocator, sizeof(far_event_t), out_event);
}

static void far_destroy_event(rabbet_device_t* device, void* event) {
  rabbet_free(device->allocator, event);
}

static void far_stamp(const void* args) {
  (*(far_event_t* const*)args)->ns = clock_ns;
}

static rabbet_status_t far_record_event(rabbet_device_t* device, void* event,
                                        void* stream) {
  (void)device;
  return far_launch(stream, far_stamp, &event, sizeof(event));
}

static rabbet_status_t far_elapsed(rabbet_device_t* device, void* begin,
                                   void* end, int64_t* out_ns) {
  (void)device;
  far_flush();
  // The stamp that `begin` is takes its own microsecond.
  *out_ns = ((far_event_t*)end)->ns - ((far_event_t*)begin)->ns - 1000;
  return rabbet_ok();
}

// ---- Graphs

static rabbet_status_t far_record_begin(rabbet_device_t* device, void* stream) {
  (void)device;
  far_stream_t* at = stream;
  if (!at || at->recording)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "the stream cannot record");
  RABBET_RETURN_IF_ERROR(far_may_fail("record_begin"));
  ++counts.recordings;
  at->recording = true;
  at->spoilt = false;
  return rabbet_ok();
}

static rabbet_status_t far_stream_is_recording(rabbet_device_t* device,
                                               void* stream,
                                               bool* out_recording) {
  (void)device;
  *out_recording = far_is_recording(stream) && !((far_stream_t*)stream)->spoilt;
  return rabbet_ok();
}

static rabbet_status_t far_keep(rabbet_device_t* device, far_list_t* recorded,
                                void** graph) {
  far_graph_t* kept = *graph;
  RABBET_RETURN_IF_ERROR(far_may_fail("record_end"));
  if (!kept) {
    RABBET_RETURN_IF_ERROR(
        rabbet_allocate(device->allocator, sizeof(*kept), (void**)&kept));
    kept->list.end = &kept->list.first;
    ++counts.graphs;
  } else {
    ++counts.updates;
  }
  far_clear(&kept->list);
  for (far_work_t* item = recorded->first; item; item = item->next)
    far_append(&kept->list, item->work, item->args, item->size);
  *graph = kept;
  return rabbet_ok();
}

static rabbet_status_t far_record_end(rabbet_device_t* device, void* stream,
                                      void** graph) {
  far_stream_t* at = stream;
  rabbet_status_t status = rabbet_ok();
  if (!at->recording)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "the stream does not record");
  at->recording = false;
  if (at->spoilt && graph)
    status = RABBET_STATUS(RABBET_STATUS_INTERNAL, "the recording is spoilt");
  else if (graph)
    status = far_keep(device, &at->recorded, graph);
  far_clear(&at->recorded);
  return status;
}

static rabbet_status_t far_launch_graph(rabbet_device_t* device, void* graph,
                                        void* stream) {
  (void)device;
  RABBET_RETURN_IF_ERROR(far_may_fail("launch_graph"));
  ++counts.launches;
  const far_list_t* list = &((const far_graph_t*)graph)->list;
  rabbet_status_t status = rabbet_ok();
  far_open_memory();  // once for all
  for (const far_work_t* item = list->first; item && rabbet_is_ok(status);
       item = item->next)
    status = far_launch(stream, item->work, item->args, item->size);
  far_close_memory();
  return status;
}

static void far_destroy_graph(rabbet_device_t* device, void* graph) {
  if (!graph) return;
  far_clear(&((far_graph_t*)graph)->list);
  --counts.graphs;
  rabbet_free(device->allocator, graph);
}

void far_stream_vtable(rabbet_device_vtable_t* vtable) {
  vtable->synchronize = far_synchronize;
  vtable->create_stream = far_create_stream;
  vtable->destroy_stream = far_destroy_stream;
  vtable->create_event = far_create_event;
  vtable->destroy_event = far_destroy_event;
  vtable->record_event = far_record_event;
  vtable->elapsed = far_elapsed;
  vtable->record_begin = far_record_begin;
  vtable->is_recording = far_stream_is_recording;
  vtable->record_end = far_record_end;
  vtable->launch_graph = far_launch_graph;
  vtable->destroy_graph = far_destroy_graph;
}
