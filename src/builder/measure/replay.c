#include "builder/measure/replay.h"

#include <assert.h>

static rabbet_status_t replay_record(rabbet_replay_t* replay,
                                     const rabbet_bench_body_t* body, int count,
                                     void* stream) {
  assert(count > 0 && stream && !replay->graph);
  rabbet_device_t* device = replay->device;
  RABBET_RETURN_IF_ERROR(device->vtable->record_begin(device, stream));
  rabbet_status_t status = rabbet_ok();
  body->set_stream(body->context, stream);
  for (int i = 0; i < count && rabbet_is_ok(status); ++i)
    status = body->run(body->context);
  body->set_stream(body->context, NULL);
  rabbet_status_t ended = device->vtable->record_end(
      device, stream, rabbet_is_ok(status) ? &replay->graph : NULL);
  return rabbet_status_join(status, ended);
}

bool rabbet_replay_applies(const rabbet_build_t* build,
                           const rabbet_bench_body_t* body) {
  return body->set_stream && !body->restore &&
         build->device->vtable->record_begin;
}

void rabbet_replay_initialize(rabbet_build_t* build,
                              const rabbet_bench_body_t* body, int count,
                              rabbet_replay_t* out_replay) {
  rabbet_device_t* device = build->device;
  *out_replay = (rabbet_replay_t){.device = device};
  if (!rabbet_replay_applies(build, body)) return;
  void* stream = NULL;
  rabbet_status_t status = rabbet_bench_stream(build, &stream);
  if (rabbet_is_ok(status))
    status = replay_record(out_replay, body, count, stream);
  if (!rabbet_is_ok(status))
    rabbet_log(build->logger, RABBET_SEVERITY_VERBOSE,
               "calls are timed without a graph: %s",
               rabbet_status_message(status));
  rabbet_status_free(status);
}

void rabbet_replay_deinitialize(rabbet_replay_t* replay) {
  if (replay->graph)
    replay->device->vtable->destroy_graph(replay->device, replay->graph);
  replay->graph = NULL;
}

rabbet_status_t rabbet_replay_run(void* context) {
  const rabbet_replay_t* replay = context;
  assert(replay->graph);
  return replay->device->vtable->launch_graph(replay->device, replay->graph,
                                              NULL);
}
