// The lanes of a runner: each call in progress has one of its own.
#include <time.h>

#include "python/src/runner.h"

void rabbet_py_lane_stream(rabbet_py_lane_t* lane, void* stream) {
  if (!lane->has_stream) lane->stream = stream;
  lane->has_stream = true;
}

void rabbet_py_lanes_initialize(rabbet_py_runner_t* runner, int limit) {
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&runner->freed, &clock);
  pthread_condattr_destroy(&clock);
  pthread_mutex_init(&runner->mutex, NULL);
  runner->lane_limit = limit;
}

static void py_lane_destroy(rabbet_py_runner_t* runner,
                            rabbet_py_lane_t* lane) {
  if (!lane) return;
  // A thread of the context may log, which takes the GIL.
  Py_BEGIN_ALLOW_THREADS rabbet_context_destroy(lane->context);
  Py_END_ALLOW_THREADS for (size_t i = 0;
                            lane->outputs && i < runner->output_count; ++i) {
    Py_XDECREF(lane->outputs[i].empty_args);
    Py_XDECREF(lane->outputs[i].torch_options[0]);
    Py_XDECREF(lane->outputs[i].torch_options[1]);
    rabbet_py_data_dependent_clear(&lane->outputs[i]);
  }
  PyMem_Free(lane->inputs);
  PyMem_Free(lane->outputs);
  PyMem_Free(lane);
}

void rabbet_py_lanes_deinitialize(rabbet_py_runner_t* runner) {
  while (runner->lanes) {
    rabbet_py_lane_t* lane = runner->lanes;
    runner->lanes = lane->next;
    py_lane_destroy(runner, lane);
  }
  pthread_cond_destroy(&runner->freed);
  pthread_mutex_destroy(&runner->mutex);
}

static rabbet_status_t py_lane_create_context(const rabbet_py_runner_t* runner,
                                              void* communicator,
                                              rabbet_context_t** out_context) {
  RABBET_RETURN_IF_ERROR(rabbet_context_create(
      runner->engine, rabbet_allocator_system(), out_context));
  if (runner->threads > 0)
    RABBET_RETURN_IF_ERROR(
        rabbet_context_set_threads(*out_context, runner->threads));
  return communicator
             ? rabbet_context_set_communicator(*out_context, communicator)
             : rabbet_ok();
}

static rabbet_py_lane_t* py_lane_new(rabbet_py_runner_t* runner) {
  void* communicator = NULL;
  if (runner->communicator &&
      rabbet_py_to_communicator(runner->communicator, &communicator))
    return NULL;
  rabbet_py_lane_t* lane = PyMem_Calloc(1, sizeof(*lane));
  if (!lane) return (rabbet_py_lane_t*)PyErr_NoMemory();
  lane->inputs = PyMem_Calloc(runner->input_count + 1, sizeof(*lane->inputs));
  lane->outputs =
      PyMem_Calloc(runner->output_count + 1, sizeof(*lane->outputs));
  if (!lane->inputs || !lane->outputs) {
    py_lane_destroy(runner, lane);
    return (rabbet_py_lane_t*)PyErr_NoMemory();
  }
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      py_lane_create_context(runner, communicator, &lane->context);
  Py_END_ALLOW_THREADS if (rabbet_is_ok(status)) {
    rabbet_context_set_graphs(lane->context, runner->graphs);
    rabbet_context_set_interrupt(lane->context, rabbet_py_interrupt());
    return lane;
  }
  py_lane_destroy(runner, lane);
  return rabbet_py_raise(status);
}

// ---- Taking and giving back ------------------------------------------------

static bool py_lanes_exhausted(const rabbet_py_runner_t* runner) {
  return !runner->lanes && runner->lane_limit > 0 &&
         runner->lane_count >= runner->lane_limit;
}

// The mutex is held.
static void py_lane_occupy(rabbet_py_runner_t* runner, rabbet_py_lane_t* lane) {
  lane->owner = pthread_self();
  lane->next = runner->busy;
  runner->busy = lane;
}

// Whether this thread is in a call already: an operator that calls the model
// that it belongs to. The mutex is held.
static bool py_lanes_are_mine(const rabbet_py_runner_t* runner) {
  for (const rabbet_py_lane_t* lane = runner->busy; lane; lane = lane->next) {
    if (pthread_equal(lane->owner, pthread_self())) return true;
  }
  return false;
}

// For a while at most; another thread may be quicker.
static void py_lanes_wait(rabbet_py_runner_t* runner) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += RABBET_PY_WAIT_NS;
  if (until.tv_nsec >= 1000000000) {
    until.tv_nsec -= 1000000000;
    until.tv_sec += 1;
  }
  int failed = 0;
  pthread_mutex_lock(&runner->mutex);
  while (py_lanes_exhausted(runner) && failed == 0)
    failed = pthread_cond_timedwait(&runner->freed, &runner->mutex, &until);
  pthread_mutex_unlock(&runner->mutex);
}

// A free lane, occupied, or NULL where a new one may be made, which is counted.
// False where all are in use; *out_mine says whether one is of this thread.
static bool py_lane_find(rabbet_py_runner_t* runner,
                         rabbet_py_lane_t** out_lane, bool* out_mine) {
  pthread_mutex_lock(&runner->mutex);
  bool exhausted = py_lanes_exhausted(runner);
  *out_mine = exhausted && py_lanes_are_mine(runner);
  *out_lane = runner->lanes;
  if (*out_lane) {
    runner->lanes = (*out_lane)->next;
    py_lane_occupy(runner, *out_lane);
  } else if (!exhausted) {
    ++runner->lane_count;
  }
  pthread_mutex_unlock(&runner->mutex);
  return !exhausted;
}

rabbet_py_lane_t* rabbet_py_lane_take(rabbet_py_runner_t* runner) {
  rabbet_py_lane_t* lane = NULL;
  bool mine = false;
  while (!py_lane_find(runner, &lane, &mine)) {
    if (mine) {
      return (rabbet_py_lane_t*)PyErr_Format(
          PyExc_RuntimeError,
          "an operator calls the model that it belongs to, and all of the "
          "model's contexts (%d) are in use: it would wait for itself; allow "
          "more (contexts=)",
          runner->lane_limit);
    }
    Py_BEGIN_ALLOW_THREADS;
    py_lanes_wait(runner);
    Py_END_ALLOW_THREADS;
    if (PyErr_CheckSignals()) return NULL;
  }
  if (lane) return lane;
  lane = py_lane_new(runner);
  pthread_mutex_lock(&runner->mutex);
  if (lane) {
    py_lane_occupy(runner, lane);
  } else {
    --runner->lane_count;
    pthread_cond_signal(&runner->freed);
  }
  pthread_mutex_unlock(&runner->mutex);
  return lane;
}

static void py_lane_push(rabbet_py_runner_t* runner, rabbet_py_lane_t* lane) {
  pthread_mutex_lock(&runner->mutex);
  rabbet_py_lane_t** place = &runner->busy;
  while (*place != lane)
    place = &(*place)->next;
  *place = lane->next;
  lane->next = runner->lanes;
  runner->lanes = lane;
  pthread_cond_signal(&runner->freed);
  pthread_mutex_unlock(&runner->mutex);
}

void rabbet_py_lane_give(rabbet_py_runner_t* runner, rabbet_py_lane_t* lane) {
  for (size_t i = 0; i < runner->input_count; ++i) {
    rabbet_py_input_release(&lane->inputs[i]);
  }
  for (size_t i = 0; i < runner->output_count; ++i) {
    rabbet_py_output_t* output = &lane->outputs[i];
    if (output->has_view) PyBuffer_Release(&output->view);
    output->has_view = false;
    Py_CLEAR(output->array);
    rabbet_py_data_dependent_drop(output);
  }
  Py_CLEAR(lane->finish);
  Py_CLEAR(lane->maker);
  py_lane_push(runner, lane);
}

// All lanes, if no call is under way.
static bool py_lanes_take_all(rabbet_py_runner_t* runner,
                              rabbet_py_lane_t** out_lanes) {
  pthread_mutex_lock(&runner->mutex);
  bool idle = !runner->busy;
  *out_lanes = idle ? runner->lanes : NULL;
  if (idle) {
    runner->lanes = NULL;
    runner->lane_count = 0;
    runner->lane_limit = 1;
  }
  pthread_mutex_unlock(&runner->mutex);
  return idle;
}

int rabbet_py_lanes_communicate(rabbet_py_runner_t* runner, PyObject* capsule) {
  rabbet_py_lane_t *lane = NULL, *lanes = NULL;
  void* communicator = NULL;
  if (rabbet_py_to_communicator(capsule, &communicator)) return -1;
  if (!py_lanes_take_all(runner, &lanes)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "a call of the model is under way: set its communicator "
                    "before");
    return -1;
  }
  while (lanes) {
    lane = lanes;
    lanes = lane->next;
    py_lane_destroy(runner, lane);
  }
  Py_XDECREF(runner->communicator);
  runner->communicator = Py_NewRef(capsule);
  lane = rabbet_py_lane_take(runner);
  if (!lane) {
    Py_CLEAR(runner->communicator);
    return -1;
  }
  py_lane_push(runner, lane);
  return 0;
}

bool rabbet_py_lanes_cancel(rabbet_py_runner_t* runner,
                            const pthread_t* thread) {
  bool found = false;
  pthread_mutex_lock(&runner->mutex);
  for (rabbet_py_lane_t* lane = runner->busy; lane; lane = lane->next) {
    if (!thread || pthread_equal(lane->owner, *thread))
      found |= rabbet_context_cancel(lane->context);
  }
  pthread_mutex_unlock(&runner->mutex);
  return found;
}

rabbet_graph_info_t rabbet_py_lanes_graph_info(rabbet_py_runner_t* runner) {
  rabbet_graph_info_t all = {.struct_size = sizeof(all)};
  pthread_mutex_lock(&runner->mutex);
  for (rabbet_py_lane_t* lane = runner->lanes; lane; lane = lane->next) {
    rabbet_graph_info_t info = {.struct_size = sizeof(info)};
    rabbet_context_graph_info(lane->context, &info);
    if (lane == runner->lanes) {
      all.graph_steps = info.graph_steps;
      all.other_steps = info.other_steps;
    }
    all.recordings += info.recordings;
    all.replays += info.replays;
  }
  pthread_mutex_unlock(&runner->mutex);
  return all;
}
