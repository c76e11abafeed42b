// Running a Python plugin. The arguments are made once for each prepared shape
// and refreshed in place; made anew only after a call that kept some of them.
#include <string.h>

#include "python/src/plugin_adapter.h"

_Thread_local const rabbet_py_run_t* rabbet_py_run;

typedef struct py_state_t {
  PyObject* function;
  PyObject* positional;  // pairs (RABBET_PY_ARG_*, value)
  PyObject* named;       // dict of such pairs; may be empty
  size_t input_count, output_count;
  rabbet_plugin_view_t* views;   // inputs, then outputs
  rabbet_py_tensor_t** tensors;  // made of the views
  Py_ssize_t* references;        // of the tensors, when nobody kept one
  PyObject* outputs;             // list
  Py_ssize_t outputs_references;
  PyObject* args;    // NULL: to be made
  PyObject* kwargs;  // NULL: none
  const char* device;
  PyObject* where;  // (GPU, stream); NULL on the CPU
  rabbet_plugin_capture_t capture;
  bool keeps;  // a call has kept tensors
  void* stream;
  int32_t tactic, threads;
} py_state_t;

// ---- Arguments -------------------------------------------------------------

static void py_state_clear(py_state_t* state) {
  Py_CLEAR(state->args);
  Py_CLEAR(state->kwargs);
  Py_CLEAR(state->outputs);
  size_t count = state->input_count + state->output_count;
  for (size_t i = 0; i < count; ++i) {
    PyObject* tensor = (PyObject*)state->tensors[i];
    state->tensors[i] = NULL;
    Py_XDECREF(tensor);
  }
}

// An input may be written only if an output is declared to be in its place.
static bool py_is_target(const py_state_t* state, size_t input) {
  for (size_t i = 0; i < state->output_count; ++i) {
    const rabbet_plugin_view_t* view = &state->views[state->input_count + i];
    if (view->aliased_input == (int32_t)input) return true;
  }
  return false;
}

static int py_state_tensors(py_state_t* state) {
  rabbet_dl_device_t cpu = {RABBET_DL_CPU, 0};
  rabbet_dl_device_t device = rabbet_py_dl_device(state->device);
  for (size_t i = 0; i < state->input_count; ++i) {
    const rabbet_plugin_view_t* view = &state->views[i];
    state->tensors[i] =
        rabbet_py_tensor_new(view, view->is_shape_input ? cpu : device,
                             py_is_target(state, i), NULL);
    if (!state->tensors[i]) return -1;
  }
  state->outputs = PyList_New((Py_ssize_t)state->output_count);
  if (!state->outputs) return -1;
  for (size_t i = 0; i < state->output_count; ++i) {
    size_t at = state->input_count + i;
    const rabbet_plugin_view_t* view = &state->views[at];
    PyObject* target = view->aliased_input < 0
                           ? NULL
                           : (PyObject*)state->tensors[view->aliased_input];
    state->tensors[at] = rabbet_py_tensor_new(view, device, true, target);
    if (!state->tensors[at]) return -1;
    PyObject* item = Py_NewRef((PyObject*)state->tensors[at]);
    if (PyList_SetItem(state->outputs, (Py_ssize_t)i, item) < 0) return -1;
  }
  return 0;
}

// A new reference to what a pair stands for.
static PyObject* py_argument(const py_state_t* state, PyObject* pair) {
  long kind = PyLong_AsLong(PyTuple_GetItem(pair, 0));
  PyObject* value = PyTuple_GetItem(pair, 1);
  switch (kind) {
    case RABBET_PY_ARG_INPUT: {
      size_t index = PyLong_AsSize_t(value);
      if (PyErr_Occurred()) return NULL;
      if (index >= state->input_count) {
        return PyErr_Format(PyExc_TypeError,
                            "the plugin takes input %zu, but the layer has %zu",
                            index, state->input_count);
      }
      return Py_NewRef((PyObject*)state->tensors[index]);
    }
    case RABBET_PY_ARG_OUTPUTS:
      return Py_NewRef(state->outputs);
    case RABBET_PY_ARG_STREAM:
      return PyLong_FromVoidPtr(state->stream);
    case RABBET_PY_ARG_TACTIC:
      return PyLong_FromLong(state->tactic);
    case RABBET_PY_ARG_THREADS:
      return PyLong_FromLong(state->threads);
    default:
      return Py_NewRef(value);
  }
}

static int py_state_args(py_state_t* state) {
  Py_ssize_t count = PyTuple_Size(state->positional);
  state->args = PyTuple_New(count);
  for (Py_ssize_t i = 0; state->args && i < count; ++i) {
    PyObject* item = py_argument(state, PyTuple_GetItem(state->positional, i));
    if (!item || PyTuple_SetItem(state->args, i, item) < 0) return -1;
  }
  if (!state->args) return -1;
  if (PyDict_Size(state->named) == 0) return 0;
  state->kwargs = PyDict_New();
  if (!state->kwargs) return -1;
  PyObject *name = NULL, *pair = NULL;
  Py_ssize_t position = 0;
  while (PyDict_Next(state->named, &position, &name, &pair)) {
    PyObject* item = py_argument(state, pair);
    int failed = item ? PyDict_SetItem(state->kwargs, name, item) : -1;
    Py_XDECREF(item);
    if (failed) return -1;
  }
  return 0;
}

static int py_state_make(py_state_t* state) {
  py_state_clear(state);
  if (rabbet_py_scope_where(state->device, state->stream, &state->where) ||
      py_state_tensors(state) || py_state_args(state)) {
    py_state_clear(state);
    return -1;
  }
  size_t count = state->input_count + state->output_count;
  for (size_t i = 0; i < count; ++i) {
    state->tensors[i]->lends = true;
    state->references[i] = Py_REFCNT((PyObject*)state->tensors[i]);
  }
  state->outputs_references = Py_REFCNT(state->outputs);
  return 0;
}

// ---- What a call kept ------------------------------------------------------

static bool py_is_output(const py_state_t* state, PyObject* item) {
  for (size_t i = 0; i < state->output_count; ++i) {
    if (item == (PyObject*)state->tensors[state->input_count + i]) return true;
  }
  return false;
}

// Whether the plugin replaced items of the list of outputs. Results that are
// put into the list, and not written into its tensors, would be lost.
static bool py_list_replaced(const py_state_t* state) {
  for (Py_ssize_t i = 0; i < PyList_Size(state->outputs); ++i) {
    if (!py_is_output(state, PyList_GetItem(state->outputs, i))) {
      return true;
    }
  }
  return false;
}

// Whether it is to be made anew for the next call.
static bool py_list_touched(const py_state_t* state) {
  if (Py_REFCNT(state->outputs) != state->outputs_references) return true;
  if (PyList_Size(state->outputs) != (Py_ssize_t)state->output_count) {
    return true;
  }
  for (size_t i = 0; i < state->output_count; ++i) {
    PyObject* tensor = (PyObject*)state->tensors[state->input_count + i];
    if (PyList_GetItem(state->outputs, (Py_ssize_t)i) != tensor) return true;
  }
  return false;
}

static bool py_tensors_kept(const py_state_t* state) {
  size_t count = state->input_count + state->output_count;
  for (size_t i = 0; i < count; ++i) {
    if (Py_REFCNT((PyObject*)state->tensors[i]) != state->references[i] ||
        rabbet_py_lent_is_kept(&state->tensors[i]->lent)) {
      return true;
    }
  }
  return false;
}

// The objects that hold the memory of the present run, as one; NULL: none do.
static PyObject* py_run_owner(void) {
  const rabbet_py_run_t* run = rabbet_py_run;
  if (!run) return NULL;
  PyObject* owner = PyTuple_New((Py_ssize_t)run->count);
  for (size_t i = 0; owner && i < run->count; ++i) {
    PyObject* item = Py_NewRef(run->held[i] ? run->held[i] : Py_None);
    if (PyTuple_SetItem(owner, (Py_ssize_t)i, item) < 0) Py_CLEAR(owner);
  }
  return owner;
}

// After a call that kept tensors: they hold the run's memory from now on.
// Nothing can hold that of a timing run, or of a recording on trial, so there
// it is an error.
static int py_state_give_up(py_state_t* state, bool recorded) {
  PyObject* owner = recorded ? NULL : py_run_owner();
  if (!owner && PyErr_Occurred()) return -1;
  size_t count = state->input_count + state->output_count;
  Py_CLEAR(state->args);
  Py_CLEAR(state->kwargs);
  Py_CLEAR(state->outputs);
  if (!owner) PyGC_Collect();  // cycles are not what we look for
  bool kept = false;
  for (size_t i = count; i-- > 0;) {  // outputs may hold inputs
    rabbet_py_tensor_t* tensor = state->tensors[i];
    state->tensors[i] = NULL;
    if (!tensor) continue;
    if (rabbet_py_lent_give_up(tensor, owner) && !owner) kept = true;
    bool shared = Py_REFCNT((PyObject*)tensor) > 1;
    if (shared && owner) tensor->keep = Py_NewRef(owner);
    if (shared && !owner) tensor->expired = kept = true;
    Py_DECREF((PyObject*)tensor);
  }
  Py_XDECREF(owner);
  if (!kept) return 0;
  PyErr_SetString(
      PyExc_RuntimeError,
      "the function kept a Tensor, or an array made from one without a copy, "
      "after it returned. While a model is tuned that memory is gone then: "
      "copy what is to be kept");
  return -1;
}

// ---- The plugin's functions ------------------------------------------------

static py_state_t* py_state_new(const rabbet_plugin_call_t* call) {
  size_t count = call->input_count + call->output_count;
  py_state_t* state = PyMem_Calloc(1, sizeof(*state));
  if (!state) return NULL;
  state->input_count = call->input_count;
  state->output_count = call->output_count;
  state->views = PyMem_Calloc(count + 1, sizeof(*state->views));
  state->tensors = PyMem_Calloc(count + 1, sizeof(*state->tensors));
  state->references = PyMem_Calloc(count + 1, sizeof(*state->references));
  if (!state->views || !state->tensors || !state->references) {
    PyMem_Free(state->views);
    PyMem_Free(state->tensors);
    PyMem_Free(state->references);
    PyMem_Free(state);
    return NULL;
  }
  memcpy(state->views, call->inputs, call->input_count * sizeof(*state->views));
  memcpy(state->views + call->input_count, call->outputs,
         call->output_count * sizeof(*state->views));
  state->device = call->device;  // lives as long as the device
  state->stream = call->stream;
  state->tactic = call->tactic;
  state->threads = call->threads;
  return state;
}

static void py_state_destroy(py_state_t* state) {
  py_state_clear(state);
  Py_XDECREF(state->function);
  Py_XDECREF(state->positional);
  Py_XDECREF(state->named);
  Py_XDECREF(state->where);
  PyMem_Free(state->views);
  PyMem_Free(state->tensors);
  PyMem_Free(state->references);
  PyMem_Free(state);
}

void rabbet_py_plugin_destroy_state(void* self, void* state) {
  (void)self;
  if (!state || !Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  py_state_destroy(state);
  PyGILState_Release(gil);
}

rabbet_status_t rabbet_py_plugin_prepare(void* self,
                                         const rabbet_plugin_call_t* call,
                                         size_t* out_workspace,
                                         void** out_state) {
  *out_workspace = 0;
  *out_state = NULL;
  rabbet_py_plugin_t* plugin = self;
  rabbet_status_t status = rabbet_ok();
  PyGILState_STATE gil = PyGILState_Ensure();
  py_state_t* state = py_state_new(call);
  if (!state) {
    PyErr_NoMemory();
  } else {
    PyObject* bound =
        PyObject_CallMethod(plugin->instance, "bind", "sin", call->device,
                            (int)call->tactic, (Py_ssize_t)call->input_count);
    int capture = RABBET_PLUGIN_CAPTURE_TRIAL;
    if (bound && PyArg_ParseTuple(bound, "OO!O!i", &state->function,
                                  &PyTuple_Type, &state->positional,
                                  &PyDict_Type, &state->named, &capture)) {
      state->capture = (rabbet_plugin_capture_t)capture;
      Py_INCREF(state->function);
      Py_INCREF(state->positional);
      Py_INCREF(state->named);
      py_state_make(state);
    }
    Py_XDECREF(bound);
  }
  if (PyErr_Occurred()) {
    status = rabbet_py_status_from_exception();
    if (state) py_state_destroy(state);
    state = NULL;
  }
  PyGILState_Release(gil);
  *out_state = state;
  return status;
}

static int py_call_refresh(py_state_t* state,
                           const rabbet_plugin_call_t* call) {
  bool same = state->args && state->stream == call->stream &&
              state->threads == call->threads;
  if (!same) {
    state->stream = call->stream;
    state->threads = call->threads;
    if (py_state_make(state)) return -1;
  }
  rabbet_py_tensor_t** tensors = state->tensors;
  for (size_t i = 0; i < call->input_count; ++i) {
    tensors[i]->data = call->inputs[i].data;
  }
  tensors += call->input_count;
  for (size_t i = 0; i < call->output_count; ++i) {
    tensors[i]->data = call->outputs[i].data;
  }
  return 0;
}

// ---- Calls -----------------------------------------------------------------

static void py_reject_result(PyObject* result) {
  PyErr_Format(PyExc_TypeError,
               "the function returned %R; it must write its results into "
               "`outputs` and return nothing",
               result);
}

static void py_reject_replaced(void) {
  PyErr_SetString(PyExc_TypeError,
                  "the function replaced items of the list `outputs`; results "
                  "are written into the tensors that are there: "
                  "numpy.from_dlpack(outputs[0])[...] = result");
}

// Replays would not see what a recorded call keeps.
static void py_reject_kept(void) {
  PyErr_SetString(PyExc_RuntimeError,
                  "the function kept a Tensor, or an array made from one "
                  "without a copy, after it returned");
}

void rabbet_py_keep_interrupt(PyObject* error) {
  if (error && !rabbet_py_callback_error &&
      PyErr_GivenExceptionMatches(error, PyExc_KeyboardInterrupt)) {
    rabbet_py_callback_error = Py_NewRef(error);
  }
}

// The traceback's frames hold the tensors: they get an owner as well.
static rabbet_status_t py_call_failed(py_state_t* state, bool recorded) {
  PyObject* error = rabbet_py_error_take();
  if (recorded) rabbet_py_keep_interrupt(error);
  if (state->args && py_state_give_up(state, recorded)) PyErr_Clear();
  rabbet_py_error_restore(error);
  return rabbet_py_status_from_exception();
}

// With an attached thread. *out_kept: what replays of a recorded call need, or
// NULL.
static rabbet_status_t py_plugin_run(const rabbet_plugin_call_t* call,
                                     bool recorded, PyObject** out_kept) {
  py_state_t* state = call->state;
  PyObject* result = NULL;
  if (recorded && state->keeps) {
    py_reject_kept();
  } else if (py_call_refresh(state, call) == 0) {
    result = rabbet_py_scope_call(state->where, recorded, state->function,
                                  state->args, state->kwargs, out_kept);
  }
  bool fine = result && Py_IsNone(result);
  if (fine && py_list_replaced(state)) {
    Py_CLEAR(result);
    py_reject_replaced();
    fine = false;
  }
  bool kept = fine && (py_tensors_kept(state) || py_list_touched(state));
  if (fine && !kept) {
    Py_DECREF(result);
    return rabbet_ok();
  }
  if (result && !fine) py_reject_result(result);
  if (kept) state->keeps = true;
  if (kept && recorded) py_reject_kept();
  Py_XDECREF(result);
  if (PyErr_Occurred()) return py_call_failed(state, recorded);
  return py_state_give_up(state, false) ? rabbet_py_status_from_exception()
                                        : rabbet_ok();
}

rabbet_status_t rabbet_py_plugin_enqueue(void* self,
                                         const rabbet_plugin_call_t* call) {
  (void)self;
  return rabbet_py_enqueue(py_plugin_run, call);
}

// ---- Graphs ----------------------------------------------------------------

rabbet_plugin_capture_t rabbet_py_plugin_capture(
    void* self, const rabbet_plugin_call_t* call) {
  (void)self;
  return ((const py_state_t*)call->state)->capture;
}

static void py_hold_collector(bool hold) {
  static int holders, collects;
  RABBET_PY_LOCK(rabbet_py_types.plugin_tensor);
  if (hold && holders++ == 0) collects = PyGC_Disable();
  if (!hold && --holders == 0 && collects) PyGC_Enable();
}

rabbet_status_t rabbet_py_record(rabbet_py_call_fn_t run,
                                 const rabbet_plugin_call_t* call,
                                 void** out_kept) {
  PyObject* kept = NULL;
  PyGILState_STATE gil = PyGILState_Ensure();
  py_hold_collector(true);
  rabbet_status_t status = run(call, true, &kept);
  py_hold_collector(false);
  PyGILState_Release(gil);
  *out_kept = kept;
  return status;
}

rabbet_status_t rabbet_py_plugin_enqueue_captured(
    void* self, const rabbet_plugin_call_t* call, void** out_kept) {
  (void)self;
  return rabbet_py_record(py_plugin_run, call, out_kept);
}

void rabbet_py_plugin_release_captured(void* self, void* kept) {
  (void)self;
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  rabbet_py_scope_release(kept);
  PyGILState_Release(gil);
}
