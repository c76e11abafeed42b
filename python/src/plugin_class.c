// Running plugins that are classes: enqueue(input_desc, output_desc, inputs,
// outputs, workspace, stream) with addresses as int. The arguments are made
// once for each prepared shape, and reused while addresses and the lists' items
// stay the same. An argument that the plugin kept is never changed.
#include <string.h>

#include "python/src/plugin_adapter.h"

#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030C0000
// Of the stable interface since 3.12; 3.11 exports the same.
PyAPI_FUNC(PyObject*)
    PyObject_Vectorcall(PyObject* callable, PyObject* const* args, size_t count,
                        PyObject* names);
#endif

// Steps of nearly every call are inlined into one function; rare ones are not.
#define RABBET_PY_USUAL __attribute__((always_inline)) static inline
#define RABBET_PY_UNUSUAL __attribute__((noinline)) static

// A list among the arguments.
typedef struct py_list_t {
  PyObject* list;    // NULL: to be made
  PyObject** items;  // owned; its items, unless the plugin changed it. Part
                     // of the state's block
  size_t count;
  Py_ssize_t references;  // of the list when nobody kept it
} py_list_t;

enum {
  RABBET_PY_INPUT_DESCS = 0,
  RABBET_PY_OUTPUT_DESCS = 1,
  RABBET_PY_INPUTS = 2,
  RABBET_PY_OUTPUTS = 3,
  RABBET_PY_LISTS = 4,
};

typedef struct py_class_state_t {
  PyObject* function;
  PyObject* first;    // tuple: arguments in front (self)
  PyObject* extra;    // tuple: arguments between outputs and stream, or NULL
  PyObject* release;  // called when the state goes, or None
  PyObject* label;    // str: class and method, for errors
  PyObject** args;    // owned; a row for vectorcall. Part of `block`
  size_t arg_count;   // 0: to be made
  bool is_quick;      // they are made, and where lists have items is known
  py_list_t lists[RABBET_PY_LISTS];
  size_t* inputs;    // in bytes from call->inputs: those that the plugin sees
  void** addresses;  // in `lists`: inputs, then outputs
  void* block;  // of addresses, items, args, inputs: few lines of the cache
  void* workspace;
  void* stream;
  PyObject* where;  // (GPU, stream); NULL on the CPU
  const char* device;
  rabbet_plugin_capture_t capture;
} py_class_state_t;

// ---- Lists -----------------------------------------------------------------

static void py_list_free(py_list_t* list) {
  for (size_t i = 0; list->items && i < list->count; ++i)
    Py_XDECREF(list->items[i]);
}

static int py_list_make(py_list_t* list) {
  PyObject* made = PyList_New((Py_ssize_t)list->count);
  for (size_t i = 0; made && i < list->count; ++i) {
    if (PyList_SetItem(made, (Py_ssize_t)i, Py_NewRef(list->items[i])) < 0)
      Py_CLEAR(made);
  }
  rabbet_py_replace(&list->list, made);
  return made ? 0 : -1;
}

// The stable interface has no quick look at a list's items, and the calls would
// be a tenth of a plugin call. Every CPython so far keeps their address behind
// the head; whether this one does is found out once, before it is relied on.
static PyObject* const* py_list_items(PyObject* list) {
  return *(PyObject* const* const*)((const char*)list + sizeof(PyVarObject));
}

enum { RABBET_PY_UNKNOWN, RABBET_PY_SEEN, RABBET_PY_HIDDEN };
static atomic_int py_list_layout = RABBET_PY_UNKNOWN;

static int py_find_layout(void) {
  if (py_list_layout != RABBET_PY_UNKNOWN) return 0;
  PyObject* list = Py_BuildValue("[OOO]", Py_True, Py_False, Py_None);
  if (!list) return -1;
  // Only a word that is not the size or the capacity can be an address.
  size_t word = (size_t)py_list_items(list);
  bool seen = Py_SIZE(list) == 3 && word > 4096 && word % sizeof(void*) == 0;
  for (Py_ssize_t i = 0; seen && i < 3; ++i)
    seen = py_list_items(list)[i] == PyList_GetItem(list, i);
  py_list_layout = seen ? RABBET_PY_SEEN : RABBET_PY_HIDDEN;
  Py_DECREF(list);
  return 0;
}

// Whether the list has the items that it was made with.
RABBET_PY_USUAL bool rabbet_py_list_is_as_made(const py_list_t* list) {
  PyObject* const* items = py_list_items(list->list);
  if (Py_SIZE(list->list) != (Py_ssize_t)list->count) return false;
  for (size_t i = 0; i < list->count; ++i)
    if (items[i] != list->items[i]) return false;
  return true;
}

// The same by the stable interface; also whether the plugin kept no reference.
static bool py_list_is_ours(const py_list_t* list) {
  if (Py_REFCNT(list->list) != list->references ||
      Py_SIZE(list->list) != (Py_ssize_t)list->count)
    return false;
  for (size_t i = 0; i < list->count; ++i)
    if (PyList_GetItem(list->list, (Py_ssize_t)i) != list->items[i])
      return false;
  return true;
}

// An address in a list that may be made already.
static int py_list_set(py_list_t* list, size_t index, void* address) {
  PyObject* number = PyLong_FromVoidPtr(address);
  if (!number) return -1;
  rabbet_py_replace(&list->items[index], number);
  return list->list
             ? PyList_SetItem(list->list, (Py_ssize_t)index, Py_NewRef(number))
             : 0;
}

// ---- Arguments -------------------------------------------------------------

static void py_class_clear(py_class_state_t* state) {
  size_t count = state->arg_count;
  state->arg_count = 0;
  state->is_quick = false;
  for (size_t i = 0; i < count; ++i)
    Py_CLEAR(state->args[i]);
  for (int i = 0; i < RABBET_PY_LISTS; ++i)
    Py_CLEAR(state->lists[i].list);
}

// Puts an argument behind those that are there; false with an exception set.
static bool py_class_push(py_class_state_t* state, PyObject* take_item) {
  if (take_item) state->args[state->arg_count++] = take_item;
  return take_item != NULL;
}

static void py_class_push_all(py_class_state_t* state, PyObject* tuple) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); ++i)
    py_class_push(state, Py_NewRef(PyTuple_GetItem(tuple, i)));
}

// first..., input descriptors, output descriptors, inputs, outputs, then the
// extra arguments or the workspace, then the stream.
static int py_class_make(py_class_state_t* state) {
  py_class_clear(state);
  if (py_find_layout() ||
      rabbet_py_scope_where(state->device, state->stream, &state->where))
    return -1;
  py_class_push_all(state, state->first);
  bool fine = true;
  for (int i = 0; fine && i < RABBET_PY_LISTS; ++i) {
    py_list_t* list = &state->lists[i];
    fine =
        py_list_make(list) == 0 && py_class_push(state, Py_NewRef(list->list));
  }
  if (fine && state->extra)
    py_class_push_all(state, state->extra);
  else if (fine)
    fine = py_class_push(state, PyLong_FromVoidPtr(state->workspace));
  if (!fine || !py_class_push(state, PyLong_FromVoidPtr(state->stream))) {
    py_class_clear(state);
    return -1;
  }
  for (int i = 0; i < RABBET_PY_LISTS; ++i)
    state->lists[i].references = Py_REFCNT(state->lists[i].list);
  state->is_quick = py_list_layout == RABBET_PY_SEEN;
  return 0;
}

// Whether addresses may be put into the lists that there are.
static bool py_class_is_ours(const py_class_state_t* state) {
  for (int i = 0; i < RABBET_PY_LISTS; ++i)
    if (!py_list_is_ours(&state->lists[i])) return false;
  return true;
}

// The address of an input that the plugin sees.
static inline void* py_class_input(const py_class_state_t* state,
                                   const rabbet_plugin_call_t* call,
                                   size_t index) {
  const char* views = (const char*)call->inputs;
  return ((const rabbet_plugin_view_t*)(views + state->inputs[index]))->data;
}

// Whether the arguments are those of this call.
RABBET_PY_USUAL bool rabbet_py_class_is_current(
    const py_class_state_t* state, const rabbet_plugin_call_t* call) {
  if (!state->is_quick || state->stream != call->stream ||
      state->workspace != call->workspace)
    return false;
  const py_list_t* lists = state->lists;
  void* const* address = state->addresses;
  for (size_t i = 0; i < lists[RABBET_PY_INPUTS].count; ++i)
    if (py_class_input(state, call, i) != *address++) return false;
  for (size_t i = 0; i < lists[RABBET_PY_OUTPUTS].count; ++i)
    if (call->outputs[i].data != *address++) return false;
  return rabbet_py_list_is_as_made(&lists[0]) &&
         rabbet_py_list_is_as_made(&lists[1]) &&
         rabbet_py_list_is_as_made(&lists[2]) &&
         rabbet_py_list_is_as_made(&lists[3]);
}

RABBET_PY_UNUSUAL int rabbet_py_class_refresh(
    py_class_state_t* state, const rabbet_plugin_call_t* call) {
  py_list_t* inputs = &state->lists[RABBET_PY_INPUTS];
  py_list_t* outputs = &state->lists[RABBET_PY_OUTPUTS];
  if (state->arg_count > 0 && !py_class_is_ours(state)) py_class_clear(state);
  for (size_t i = 0; i < inputs->count; ++i) {
    void* data = py_class_input(state, call, i);
    if (data == state->addresses[i]) continue;
    if (py_list_set(inputs, i, data)) return -1;
    state->addresses[i] = data;
  }
  void** addresses = state->addresses + inputs->count;
  for (size_t i = 0; i < outputs->count; ++i) {
    void* data = call->outputs[i].data;
    if (data == addresses[i]) continue;
    if (py_list_set(outputs, i, data)) return -1;
    addresses[i] = data;
  }
  if (state->arg_count > 0 && state->stream == call->stream &&
      state->workspace == call->workspace)
    return 0;
  state->stream = call->stream;
  state->workspace = call->workspace;
  return py_class_make(state);
}

// ---- Preparing -------------------------------------------------------------

static void py_class_state_destroy(py_class_state_t* state) {
  PyObject* error = rabbet_py_error_take();
  if (state->release && !Py_IsNone(state->release)) {
    PyObject* result = PyObject_CallNoArgs(state->release);
    if (!result) PyErr_WriteUnraisable(state->release);  // nobody waits for it
    Py_XDECREF(result);
  }
  if (state->block) py_class_clear(state);
  for (int i = 0; i < RABBET_PY_LISTS; ++i)
    py_list_free(&state->lists[i]);
  Py_XDECREF(state->function);
  Py_XDECREF(state->first);
  Py_XDECREF(state->extra);
  Py_XDECREF(state->release);
  Py_XDECREF(state->label);
  Py_XDECREF(state->where);
  PyMem_Free(state->block);
  PyMem_Free(state);
  rabbet_py_error_restore(error);
}

void rabbet_py_class_destroy_state(void* self, void* state) {
  (void)self;
  if (!state || !Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  py_class_state_destroy(state);
  PyGILState_Release(gil);
}

// [(DataType, TensorFormat, dims)]
static PyObject* py_class_tensors(const rabbet_plugin_view_t* views,
                                  size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* item = Py_BuildValue("(NNN)", rabbet_py_dtype(views[i].dtype),
                                   rabbet_py_format(views[i].format),
                                   rabbet_py_from_dims(&views[i].dims));
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
  }
  return list;
}

// One block for all that a call looks at.
static int py_class_allocate(py_class_state_t* state,
                             const size_t counts[RABBET_PY_LISTS]) {
  size_t inputs = counts[RABBET_PY_INPUTS];
  size_t addresses = inputs + counts[RABBET_PY_OUTPUTS], items = 0;
  size_t args = (size_t)PyTuple_Size(state->first) + RABBET_PY_LISTS + 1 +
                (state->extra ? (size_t)PyTuple_Size(state->extra) : 1);
  for (int i = 0; i < RABBET_PY_LISTS; ++i)
    items += counts[i];
  state->block = PyMem_Calloc(items + addresses + inputs + args, sizeof(void*));
  if (!state->block) {
    PyErr_NoMemory();
    return -1;
  }
  state->addresses = state->block;
  // Of no memory: the first call makes all items.
  memset(state->addresses, 0xff, addresses * sizeof(*state->addresses));
  PyObject** next = (PyObject**)state->block + addresses;
  for (int i = 0; i < RABBET_PY_LISTS; ++i) {
    state->lists[i].items = next;
    state->lists[i].count = counts[i];
    next += counts[i];
  }
  state->args = next;
  state->inputs = (size_t*)(state->args + args);
  return 0;
}

static void py_class_descs(py_list_t* list, PyObject* descs) {
  for (size_t i = 0; i < list->count; ++i)
    list->items[i] = Py_NewRef(PyTuple_GetItem(descs, (Py_ssize_t)i));
}

// (function, first, input descriptors, output descriptors, numbers of inputs,
// extra | None, release | None, label, capture, workspace)
static int py_class_bound(py_class_state_t* state,
                          const rabbet_plugin_call_t* call, PyObject* bound,
                          size_t* out_workspace) {
  PyObject *function, *first, *inputs, *outputs, *numbers, *extra, *release;
  PyObject* label;
  int capture = RABBET_PLUGIN_CAPTURE_TRIAL;
  Py_ssize_t workspace = 0;
  if (!PyArg_ParseTuple(bound, "OO!O!O!O!OOUin", &function, &PyTuple_Type,
                        &first, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs,
                        &PyTuple_Type, &numbers, &extra, &release, &label,
                        &capture, &workspace))
    return -1;
  state->release = Py_NewRef(release);
  state->function = Py_NewRef(function);
  state->first = Py_NewRef(first);
  state->extra = Py_IsNone(extra) ? NULL : Py_NewRef(extra);
  state->label = Py_NewRef(label);
  state->capture = (rabbet_plugin_capture_t)capture;
  *out_workspace = (size_t)workspace;
  size_t count = (size_t)PyTuple_Size(numbers);
  const size_t counts[RABBET_PY_LISTS] = {
      [RABBET_PY_INPUT_DESCS] = (size_t)PyTuple_Size(inputs),
      [RABBET_PY_OUTPUT_DESCS] = (size_t)PyTuple_Size(outputs),
      [RABBET_PY_INPUTS] = count,
      [RABBET_PY_OUTPUTS] = call->output_count,
  };
  if (py_class_allocate(state, counts)) return -1;
  py_class_descs(&state->lists[RABBET_PY_INPUT_DESCS], inputs);
  py_class_descs(&state->lists[RABBET_PY_OUTPUT_DESCS], outputs);
  for (size_t i = 0; i < count; ++i) {
    PyObject* number = PyTuple_GetItem(numbers, (Py_ssize_t)i);
    size_t input = PyLong_AsSize_t(number);
    if (PyErr_Occurred()) return -1;
    if (input >= call->input_count) {
      PyErr_Format(PyExc_IndexError, "input %S of %zu", number,
                   call->input_count);
      return -1;
    }
    state->inputs[i] = input * sizeof(call->inputs[0]);
  }
  return 0;
}

// The device's context and GPU are current, as in enqueue: plugins may compile
// or allocate when they learn the shapes.
rabbet_status_t rabbet_py_class_prepare(void* self,
                                        const rabbet_plugin_call_t* call,
                                        size_t* out_workspace,
                                        void** out_state) {
  *out_workspace = 0;
  *out_state = NULL;
  rabbet_py_plugin_t* plugin = self;
  rabbet_status_t status = rabbet_ok();
  PyGILState_STATE gil = PyGILState_Ensure();
  py_class_state_t* state = PyMem_Calloc(1, sizeof(*state));
  if (!state) PyErr_NoMemory();
  PyObject* inputs =
      state ? py_class_tensors(call->inputs, call->input_count) : NULL;
  PyObject* outputs =
      inputs ? py_class_tensors(call->outputs, call->output_count) : NULL;
  PyObject* bound =
      outputs
          ? PyObject_CallMethod(plugin->instance, "bind", "siOO", call->device,
                                (int)call->tactic, inputs, outputs)
          : NULL;
  if (bound) {
    state->device = call->device;  // lives as long as the device
    py_class_bound(state, call, bound, out_workspace);
  }
  Py_XDECREF(inputs);
  Py_XDECREF(outputs);
  Py_XDECREF(bound);
  if (PyErr_Occurred()) {
    status = rabbet_py_status_from_exception();
    if (state) py_class_state_destroy(state);
    state = NULL;
  }
  PyGILState_Release(gil);
  *out_state = state;
  return status;
}

// ---- Calls -----------------------------------------------------------------

static rabbet_status_t py_class_failed(py_class_state_t* state, bool recorded) {
  PyObject* error = rabbet_py_error_take();
  if (recorded) rabbet_py_keep_interrupt(error);
  rabbet_py_error_restore(error);
  const char* label = PyUnicode_AsUTF8AndSize(state->label, NULL);
  return RABBET_ANNOTATE(rabbet_py_status_from_exception(), "%s",
                         label ? label : "enqueue");
}

static PyObject* py_class_call(const py_class_state_t* state) {
  return PyObject_Vectorcall(state->function, state->args, state->arg_count,
                             NULL);
}

RABBET_PY_UNUSUAL PyObject* rabbet_py_class_call_there(
    const py_class_state_t* state, bool recorded, PyObject** out_kept) {
  rabbet_py_scope_t scope;
  PyObject* result = NULL;
  if (rabbet_py_scope_enter(&scope, state->where, recorded) == 0)
    result = py_class_call(state);
  return rabbet_py_scope_end(&scope, result, out_kept);
}

// With an attached thread. *out_kept: what replays of a recorded call need, or
// NULL.
RABBET_PY_USUAL rabbet_status_t rabbet_py_class_run(
    const rabbet_plugin_call_t* call, bool recorded, PyObject** out_kept) {
  py_class_state_t* state = call->state;
  PyObject* result = NULL;
  if (rabbet_py_class_is_current(state, call) ||
      rabbet_py_class_refresh(state, call) == 0)
    result = state->where
                 ? rabbet_py_class_call_there(state, recorded, out_kept)
                 : py_class_call(state);
  if (!result) return py_class_failed(state, recorded);
  Py_DECREF(result);
  return rabbet_ok();
}

rabbet_status_t rabbet_py_class_enqueue(void* self,
                                        const rabbet_plugin_call_t* call) {
  (void)self;
  return rabbet_py_enqueue(rabbet_py_class_run, call);
}

rabbet_plugin_capture_t rabbet_py_class_capture(
    void* self, const rabbet_plugin_call_t* call) {
  (void)self;
  return ((const py_class_state_t*)call->state)->capture;
}

rabbet_status_t rabbet_py_class_enqueue_captured(
    void* self, const rabbet_plugin_call_t* call, void** out_kept) {
  (void)self;
  return rabbet_py_record(rabbet_py_class_run, call, out_kept);
}
