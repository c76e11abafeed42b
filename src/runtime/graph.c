#include "runtime/graph.h"

#include <assert.h>
#include <string.h>

#include "runtime/call.h"

// Address sets that are kept: callers often take turns with a few buffers.
#define RABBET_RECORDINGS 4

// Runs [begin, end) of the segment; `graph` NULL: they run one by one.
typedef struct piece_t {
  size_t begin, end;
  void* graph;
} piece_t;

typedef struct recording_t {
  bool valid;
  piece_t* pieces;  // room for one for each run
  size_t piece_count;
  void** kept;  // [run]: object that its kernel keeps for the graph
  // The state that it was recorded for.
  void** slots;
  void* memory;
  uint64_t loops;                             // graphs_loops()
  uint64_t memory_generation, io_generation;  // of the context when last equal
  uint64_t used;
} recording_t;

struct rabbet_graphs_t {
  rabbet_recordable_t* recordable;  // [run]
  bool tried;      // there is no RABBET_RECORDABLE_UNKNOWN any more
  bool has_loops;  // among the steps that are recorded
  bool given_up;
  size_t slot_count;
  uint64_t seen[RABBET_RECORDINGS];  // hashes of addresses that came once
  size_t seen_next;
  uint64_t clock;
  recording_t recordings[RABBET_RECORDINGS];
};

// ---- Recording a step

rabbet_status_t rabbet_record_call(rabbet_frame_t* frame,
                                   const rabbet_run_t* run,
                                   rabbet_kernel_call_t call, void** out_kept) {
  rabbet_device_t* device = frame->context->engine->device;
  const rabbet_kernel_class_t* class = run->kernel->kernel_class;
  bool recording = true;
  *out_kept = NULL;
  rabbet_status_t status =
      class->record ? class->record(run->kernel, run->state, &call, out_kept)
                    : class->enqueue(run->kernel, run->state, &call);
  // Code of plugins may have ended the recording without an error.
  if (rabbet_is_ok(status) && class->recordable)
    status = device->vtable->is_recording(device, call.stream, &recording);
  if (rabbet_is_ok(status) && !recording)
    status = RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "it does something that cannot be recorded, such as "
                           "waiting for the device");
  return status;
}

void rabbet_release_recorded(const rabbet_run_t* run, void* kept) {
  if (kept)
    run->kernel->kernel_class->release_recorded(run->kernel, run->state, kept);
}

// Logs the reason once for each step and context.
static void graphs_exclude(rabbet_frame_t* frame, rabbet_prepared_t* prepared,
                           size_t run, const char* reason) {
  size_t step = prepared->runs[run].step;
  const rabbet_plan_step_t* at = &frame->sequence->plan->steps[step];
  assert(prepared->graphs->recordable[run] == RABBET_RECORDABLE_YES);
  prepared->graphs->recordable[run] = RABBET_RECORDABLE_NO;
  if (frame->graph_reported[step]) return;
  frame->graph_reported[step] = true;
  if (prepared->runs[run].is_loop)
    rabbet_log(frame->context->engine->logger, RABBET_SEVERITY_INFO,
               "loop '%s' is not recorded into a graph; the host decides on "
               "each iteration: %s",
               at->name, reason);
  else
    rabbet_log(frame->context->engine->logger, RABBET_SEVERITY_WARNING,
               "step '%s' (kernel '%s') is not recorded into a graph and runs "
               "without one: %s",
               at->name, at->kernel, reason);
}

static void graphs_give_up(rabbet_frame_t* frame, rabbet_prepared_t* prepared,
                           rabbet_status_t status) {
  rabbet_log(frame->context->engine->logger, RABBET_SEVERITY_WARNING,
             "segment %d is not recorded into graphs and runs without them: %s",
             prepared->segment, rabbet_status_message(status));
  rabbet_status_free(status);
  prepared->graphs->given_up = true;
}

// ---- Making and freeing

static void recording_clear(const rabbet_prepared_t* prepared,
                            recording_t* recording) {
  rabbet_device_t* device = prepared->sequence->engine->device;
  for (size_t i = 0; i < recording->piece_count; ++i) {
    if (recording->pieces[i].graph)
      device->vtable->destroy_graph(device, recording->pieces[i].graph);
  }
  for (size_t i = 0; recording->kept && i < prepared->run_count; ++i) {
    rabbet_release_recorded(&prepared->runs[i], recording->kept[i]);
    recording->kept[i] = NULL;
  }
  recording->piece_count = 0;
  recording->valid = false;
}

void rabbet_graphs_destroy(rabbet_prepared_t* prepared) {
  rabbet_device_t* device = prepared->sequence->engine->device;
  void* token = NULL;
  rabbet_status_t status = rabbet_ok();
  if (!prepared->graphs) return;
  // Plugins release kept data as they made it, with the device current.
  if (device->vtable->begin_run)
    status = device->vtable->begin_run(device, 1, &token);
  for (size_t i = 0; i < RABBET_RECORDINGS; ++i)
    recording_clear(prepared, &prepared->graphs->recordings[i]);
  if (rabbet_is_ok(status) && device->vtable->end_run)
    device->vtable->end_run(device, token);
  rabbet_status_free(status);
  prepared->graphs = NULL;
}

// Whether loops are recorded may change with what is prepared for their bodies.
static void graphs_check_loops(rabbet_frame_t* frame,
                               rabbet_prepared_t* prepared, void* stream) {
  rabbet_graphs_t* graphs = prepared->graphs;
  graphs->has_loops = false;
  for (size_t i = 0; i < prepared->run_count; ++i) {
    if (!prepared->runs[i].is_loop ||
        graphs->recordable[i] != RABBET_RECORDABLE_YES)
      continue;
    rabbet_status_t status =
        rabbet_loop_check_graph(frame, prepared, &prepared->runs[i], stream);
    if (rabbet_is_ok(status))
      graphs->has_loops = true;
    else
      graphs_exclude(frame, prepared, i, rabbet_status_message(status));
    rabbet_status_free(status);
  }
}

static rabbet_recordable_t run_recordable(const rabbet_device_t* device,
                                          const rabbet_run_t* run) {
  if (!run->kernel)
    return run->is_loop && device->vtable->record_loop ? RABBET_RECORDABLE_YES
                                                       : RABBET_RECORDABLE_NO;
  const rabbet_kernel_class_t* class = run->kernel->kernel_class;
  return class->recordable ? class->recordable(run->kernel, run->state)
                           : RABBET_RECORDABLE_YES;
}

// All in the segment's arena.
static rabbet_status_t graphs_create(rabbet_prepared_t* prepared) {
  const rabbet_device_t* device = prepared->sequence->engine->device;
  rabbet_arena_t* arena = &prepared->arena;
  rabbet_graphs_t* graphs = NULL;
  size_t begin = 0, end = 0;
  assert(!prepared->graphs && prepared->run_count > 0);
  rabbet_segment_slots(prepared->sequence, prepared->segment, &begin, &end);
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(arena, sizeof(*graphs), (void**)&graphs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, prepared->run_count, sizeof(*graphs->recordable),
      (void**)&graphs->recordable));
  graphs->slot_count = end - begin;
  graphs->tried = true;
  for (size_t i = 0; i < prepared->run_count; ++i) {
    graphs->recordable[i] = run_recordable(device, &prepared->runs[i]);
    graphs->tried &= graphs->recordable[i] != RABBET_RECORDABLE_UNKNOWN;
  }
  prepared->graphs = graphs;
  return rabbet_ok();
}

static rabbet_status_t recording_allocate(rabbet_prepared_t* prepared,
                                          recording_t* recording) {
  rabbet_arena_t* arena = &prepared->arena;
  if (recording->slots) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, prepared->run_count, sizeof(*recording->pieces),
      (void**)&recording->pieces));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(arena, prepared->run_count,
                                                     sizeof(*recording->kept),
                                                     (void**)&recording->kept));
  return rabbet_arena_allocate_array(arena, prepared->graphs->slot_count,
                                     sizeof(*recording->slots),
                                     (void**)&recording->slots);
}

// ---- Addresses

static void* graphs_memory(const rabbet_frame_t* frame,
                           const rabbet_prepared_t* prepared) {
  return frame->memory[prepared->segment];
}

// Of all that recorded loops depend on.
static uint64_t graphs_loops(const rabbet_frame_t* frame,
                             const rabbet_prepared_t* prepared) {
  const rabbet_graphs_t* graphs = prepared->graphs;
  uint64_t marks = 0;
  for (size_t i = 0; graphs->has_loops && i < prepared->run_count; ++i)
    if (prepared->runs[i].is_loop &&
        graphs->recordable[i] == RABBET_RECORDABLE_YES)
      marks = 31 * marks +
              rabbet_loop_graph_mark(frame, prepared, &prepared->runs[i]);
  return marks;
}

static recording_t* graphs_find(const rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared) {
  rabbet_graphs_t* graphs = prepared->graphs;
  uint64_t loops = graphs_loops(frame, prepared);
  size_t bytes = graphs->slot_count * sizeof(void*);
  for (size_t i = 0; i < RABBET_RECORDINGS; ++i) {
    recording_t* recording = &graphs->recordings[i];
    if (!recording->valid || recording->loops != loops) continue;
    bool same =
        recording->memory_generation == frame->context->memory_generation &&
        recording->io_generation == frame->io_generation;
    if (!same && (recording->memory != graphs_memory(frame, prepared) ||
                  memcmp(recording->slots, prepared->slots, bytes) != 0))
      continue;
    recording->memory_generation = frame->context->memory_generation;
    recording->io_generation = frame->io_generation;
    return recording;
  }
  return NULL;
}

// Whether these addresses were there before; notes them if not.
static bool graphs_seen(const rabbet_frame_t* frame,
                        const rabbet_prepared_t* prepared) {
  rabbet_graphs_t* graphs = prepared->graphs;
  uint64_t hash =
      rabbet_hash64(prepared->slots, graphs->slot_count * sizeof(void*)) ^
      (uint64_t)(uintptr_t)graphs_memory(frame, prepared);
  for (size_t i = 0; i < RABBET_RECORDINGS; ++i) {
    if (graphs->seen[i] == hash) return true;
  }
  graphs->seen[graphs->seen_next] = hash;
  graphs->seen_next = (graphs->seen_next + 1) % RABBET_RECORDINGS;
  return false;
}

// ---- Running

static rabbet_status_t run_range(rabbet_frame_t* frame,
                                 rabbet_prepared_t* prepared, size_t begin,
                                 size_t end, void* stream) {
  assert(begin <= end && end <= prepared->run_count);
  for (size_t i = begin; i < end; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_run_step(frame, prepared, &prepared->runs[i], stream));
  frame->context->graph_info.other_steps += end - begin;
  return rabbet_ok();
}

// A graph that cannot be launched is not tried again.
static rabbet_status_t run_piece(rabbet_frame_t* frame,
                                 rabbet_prepared_t* prepared,
                                 const piece_t* piece, void* stream) {
  rabbet_device_t* device = frame->context->engine->device;
  if (piece->graph && !prepared->graphs->given_up) {
    rabbet_status_t status =
        device->vtable->launch_graph(device, piece->graph, stream);
    if (rabbet_is_ok(status)) {
      frame->context->graph_info.graph_steps += piece->end - piece->begin;
      return status;
    }
    graphs_give_up(frame, prepared, status);
  }
  return run_range(frame, prepared, piece->begin, piece->end, stream);
}

static rabbet_status_t graphs_replay(rabbet_frame_t* frame,
                                     rabbet_prepared_t* prepared,
                                     recording_t* recording, void* stream) {
  assert(recording->valid && recording->piece_count > 0);
  recording->used = ++prepared->graphs->clock;
  ++frame->context->graph_info.replays;
  for (size_t i = 0; i < recording->piece_count; ++i)
    RABBET_RETURN_IF_ERROR(
        run_piece(frame, prepared, &recording->pieces[i], stream));
  return rabbet_ok();
}

// Runs all steps without a graph. A step that may or may not be recordable is
// first tried on memory of its own.
static rabbet_status_t graphs_try(rabbet_frame_t* frame,
                                  rabbet_prepared_t* prepared, void* stream) {
  rabbet_graphs_t* graphs = prepared->graphs;
  for (size_t i = 0; i < prepared->run_count; ++i) {
    if (graphs->recordable[i] == RABBET_RECORDABLE_UNKNOWN) {
      rabbet_status_t status =
          rabbet_graph_trial(frame, prepared, &prepared->runs[i], stream);
      graphs->recordable[i] = RABBET_RECORDABLE_YES;
      if (!rabbet_is_ok(status))
        graphs_exclude(frame, prepared, i, rabbet_status_message(status));
      rabbet_status_free(status);
    }
    RABBET_RETURN_IF_ERROR(run_range(frame, prepared, i, i + 1, stream));
  }
  graphs->tried = true;
  return rabbet_ok();
}

// ---- Recording

static size_t piece_end(const rabbet_prepared_t* prepared, size_t begin) {
  const rabbet_recordable_t* recordable = prepared->graphs->recordable;
  assert(begin < prepared->run_count);
  size_t end = begin + 1;
  while (end < prepared->run_count && recordable[end] == recordable[begin])
    ++end;
  return end;
}

// Blames the loops, else the steps with users' code, else all steps.
static void piece_blame(rabbet_frame_t* frame, rabbet_prepared_t* prepared,
                        size_t begin, size_t end, const char* reason) {
  bool found = false;
  for (int pass = 0; pass < 3 && !found; ++pass) {
    for (size_t i = begin; i < end; ++i) {
      const rabbet_run_t* run = &prepared->runs[i];
      if (pass == 0 && !run->is_loop) continue;
      if (pass == 1 && !run->kernel->kernel_class->recordable) continue;
      graphs_exclude(frame, prepared, i, reason);
      found = true;
    }
  }
  assert(found);  // or the piece would be recorded again and again
}

// On failure the steps to blame are no longer recordable, and there is no graph
// to free.
static bool piece_record(rabbet_frame_t* frame, rabbet_prepared_t* prepared,
                         size_t begin, size_t end, void** kept, void** graph) {
  rabbet_device_t* device = frame->context->engine->device;
  void* stream = frame->context->record_stream;
  assert(begin < end && end <= prepared->run_count && stream);
  size_t at = begin;
  rabbet_status_t status = device->vtable->record_begin(device, stream);
  bool begun = rabbet_is_ok(status);
  while (rabbet_is_ok(status) && at < end) {
    rabbet_run_t* run = &prepared->runs[at];
    rabbet_kernel_call_t call = run->call;
    call.stream = stream;
    call.communicator = frame->context->communicator;
    if (run->is_loop)
      status = rabbet_loop_record(frame, prepared, run, stream);
    else if (!rabbet_run_is_idle(run))
      status = rabbet_record_call(frame, run, call, &kept[at]);
    if (rabbet_is_ok(status)) ++at;
  }
  if (begun) {
    rabbet_status_t ended = device->vtable->record_end(
        device, stream, rabbet_is_ok(status) ? graph : NULL);
    status = rabbet_status_join(status, ended);
  }
  if (rabbet_is_ok(status)) return true;
  const char* reason = rabbet_status_message(status);
  if (begun && at < end)
    graphs_exclude(frame, prepared, at, reason);
  else
    piece_blame(frame, prepared, begin, end, reason);
  rabbet_status_free(status);
  for (size_t i = begin; i < end; ++i) {
    rabbet_release_recorded(&prepared->runs[i], kept[i]);
    kept[i] = NULL;
  }
  return false;
}

// A graph of the recording that was here before, for the driver to change in
// place; it is the caller's.
static void* recording_take(piece_t* old, size_t old_count, size_t begin,
                            size_t end) {
  for (size_t i = 0; i < old_count; ++i) {
    if (old[i].begin != begin || old[i].end != end) continue;
    void* graph = old[i].graph;
    old[i].graph = NULL;
    return graph;
  }
  return NULL;
}

static recording_t* recording_oldest(rabbet_graphs_t* graphs) {
  recording_t* oldest = &graphs->recordings[0];
  for (size_t i = 0; i < RABBET_RECORDINGS; ++i) {
    if (!graphs->recordings[i].valid) return &graphs->recordings[i];
    if (graphs->recordings[i].used < oldest->used)
      oldest = &graphs->recordings[i];
  }
  return oldest;
}

typedef struct replaced_t {
  piece_t* pieces;
  size_t piece_count;
  void** kept;
} replaced_t;

// Replaces the recording's contents. Graphs and memory may still be in use.
static rabbet_status_t recording_replace(rabbet_frame_t* frame,
                                         rabbet_prepared_t* prepared,
                                         recording_t* recording, void* stream,
                                         replaced_t* out_old) {
  rabbet_device_t* device = frame->context->engine->device;
  assert(recording->valid || recording->piece_count == 0);
  size_t pieces = recording->piece_count * sizeof(*recording->pieces);
  size_t kept = prepared->run_count * sizeof(*recording->kept);
  *out_old = (replaced_t){0};
  if (!recording->valid) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(device->vtable->synchronize(device, stream));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      frame->context->allocator, pieces + kept, (void**)&out_old->pieces));
  out_old->kept = (void**)(out_old->pieces + recording->piece_count);
  out_old->piece_count = recording->piece_count;
  memcpy(out_old->pieces, recording->pieces, pieces);
  memcpy(out_old->kept, recording->kept, kept);
  memset(recording->kept, 0, kept);
  recording->piece_count = 0;
  recording->valid = false;
  return rabbet_ok();
}

static void replaced_free(rabbet_frame_t* frame,
                          const rabbet_prepared_t* prepared, replaced_t* old) {
  rabbet_device_t* device = frame->context->engine->device;
  for (size_t i = 0; i < old->piece_count; ++i) {
    if (old->pieces[i].graph)
      device->vtable->destroy_graph(device, old->pieces[i].graph);
  }
  for (size_t i = 0; old->kept && i < prepared->run_count; ++i)
    rabbet_release_recorded(&prepared->runs[i], old->kept[i]);
  rabbet_free(frame->context->allocator, old->pieces);
}

// Records and runs, piece by piece.
static rabbet_status_t recording_fill(rabbet_frame_t* frame,
                                      rabbet_prepared_t* prepared,
                                      recording_t* recording, replaced_t* old,
                                      void* stream) {
  const rabbet_graphs_t* graphs = prepared->graphs;
  for (size_t begin = 0; begin < prepared->run_count;) {
    size_t end = piece_end(prepared, begin);
    piece_t piece = {begin, end, NULL};
    if (graphs->recordable[begin] == RABBET_RECORDABLE_YES) {
      piece.graph = recording_take(old->pieces, old->piece_count, begin, end);
      void* before = piece.graph;
      bool made = piece_record(frame, prepared, begin, end, recording->kept,
                               &piece.graph);
      if (!made && before)
        frame->context->engine->device->vtable->destroy_graph(
            frame->context->engine->device, before);
      if (!made) continue;  // with the steps that are still recordable
      ++frame->context->graph_info.recordings;
    }
    assert(recording->piece_count < prepared->run_count);
    recording->pieces[recording->piece_count++] = piece;
    RABBET_RETURN_IF_ERROR(run_piece(frame, prepared, &piece, stream));
    begin = end;
  }
  return rabbet_ok();
}

static rabbet_status_t graphs_record(rabbet_frame_t* frame,
                                     rabbet_prepared_t* prepared,
                                     void* stream) {
  rabbet_graphs_t* graphs = prepared->graphs;
  assert(graphs->tried && !graphs->given_up);
  recording_t* recording = recording_oldest(graphs);
  replaced_t old;
  RABBET_RETURN_IF_ERROR(recording_allocate(prepared, recording));
  graphs_check_loops(frame, prepared, stream);
  RABBET_RETURN_IF_ERROR(
      recording_replace(frame, prepared, recording, stream, &old));
  rabbet_status_t status =
      recording_fill(frame, prepared, recording, &old, stream);
  replaced_free(frame, prepared, &old);
  if (!rabbet_is_ok(status)) {
    // Work that was launched before the failure may still run.
    rabbet_device_t* device = frame->context->engine->device;
    status =
        rabbet_status_join(status, device->vtable->synchronize(device, stream));
    recording_clear(prepared, recording);
    return status;
  }
  assert(recording->pieces[recording->piece_count - 1].end ==
         prepared->run_count);
  memcpy(recording->slots, prepared->slots,
         graphs->slot_count * sizeof(*recording->slots));
  recording->memory = graphs_memory(frame, prepared);
  recording->loops = graphs_loops(frame, prepared);
  recording->memory_generation = frame->context->memory_generation;
  recording->io_generation = frame->io_generation;
  recording->used = ++graphs->clock;
  recording->valid = true;
  return rabbet_ok();
}

// ---- All

bool rabbet_graphs_wanted(const rabbet_context_t* context) {
  return context->use_graphs && !context->profiler.report &&
         !rabbet_context_shows_steps(context) &&
         context->engine->device->vtable->record_begin;
}

// A caller that records itself gets the kernels, not a graph of them.
static bool graphs_possible(rabbet_frame_t* frame, rabbet_prepared_t* prepared,
                            void* stream) {
  rabbet_device_t* device = frame->context->engine->device;
  bool recording = false;
  if (prepared->run_count == 0) return false;
  if (!stream) return true;  // the default stream cannot record
  rabbet_status_t status =
      device->vtable->is_recording(device, stream, &recording);
  bool known = rabbet_is_ok(status);
  rabbet_status_free(status);
  return known && !recording;
}

rabbet_status_t rabbet_graphs_run(rabbet_frame_t* frame,
                                  rabbet_prepared_t* prepared, void* stream) {
  rabbet_device_t* device = frame->context->engine->device;
  rabbet_graphs_t* graphs = prepared->graphs;
  size_t count = prepared->run_count;
  if (!graphs_possible(frame, prepared, stream) || (graphs && graphs->given_up))
    return run_range(frame, prepared, 0, count, stream);
  if (!graphs) {
    RABBET_RETURN_IF_ERROR(run_range(frame, prepared, 0, count, stream));
    RABBET_RETURN_IF_ERROR(graphs_create(prepared));
    graphs_seen(frame, prepared);
    return rabbet_ok();
  }
  recording_t* recording = graphs_find(frame, prepared);
  if (recording) return graphs_replay(frame, prepared, recording, stream);
  if (!frame->context->record_stream) {
    rabbet_status_t status =
        device->vtable->create_stream(device, &frame->context->record_stream);
    if (!rabbet_is_ok(status)) {
      graphs_give_up(frame, prepared, status);
      return run_range(frame, prepared, 0, count, stream);
    }
  }
  if (!graphs->tried) {
    graphs_seen(frame, prepared);
    return graphs_try(frame, prepared, stream);
  }
  if (!graphs_seen(frame, prepared))
    return run_range(frame, prepared, 0, count, stream);
  return graphs_record(frame, prepared, stream);
}
