// Plugins written in Python: declarations that the adapting files share.
#ifndef RABBET_PYTHON_SRC_PLUGIN_ADAPTER_H_
#define RABBET_PYTHON_SRC_PLUGIN_ADAPTER_H_

#include "python/src/plugin_tensor.h"
#include "python/src/rabbet_py.h"

// An instance: an object of the package with the methods describe,
// combinations, tactics, timing_key, serialize, bind, kinds, launches, and for
// classes metadata. Immutable, as far as C can see.
typedef struct rabbet_py_plugin_t {
  PyObject* instance;
  PyObject* metadata;  // dict of every str that was given out
  int32_t output_count;
  bool is_class;  // run by plugin_class.c, else by plugin_call.c
  uint64_t shape_inputs;
} rabbet_py_plugin_t;

// Kinds of arguments of the function: the first item of each pair that `bind`
// gives. Second item: index of the input, or the value.
enum {
  RABBET_PY_ARG_INPUT = 0,
  RABBET_PY_ARG_VALUE = 1,
  RABBET_PY_ARG_OUTPUTS = 2,
  RABBET_PY_ARG_STREAM = 3,
  RABBET_PY_ARG_TACTIC = 4,
  RABBET_PY_ARG_THREADS = 5,
};

// plugin_call.c: vtable functions that run the plugin.
rabbet_status_t rabbet_py_plugin_prepare(void* self,
                                         const rabbet_plugin_call_t* call,
                                         size_t* out_workspace,
                                         void** out_state);
void rabbet_py_plugin_destroy_state(void* self, void* state);
rabbet_status_t rabbet_py_plugin_enqueue(void* self,
                                         const rabbet_plugin_call_t* call);
rabbet_plugin_capture_t rabbet_py_plugin_capture(
    void* self, const rabbet_plugin_call_t* call);
rabbet_status_t rabbet_py_plugin_enqueue_captured(
    void* self, const rabbet_plugin_call_t* call, void** out_kept);
void rabbet_py_plugin_release_captured(void* self, void* kept);

// One call of a prepared plugin, with the GIL. *out_kept: what replays of a
// recorded call need, or NULL.
typedef rabbet_status_t (*rabbet_py_call_fn_t)(const rabbet_plugin_call_t* call,
                                               bool recorded,
                                               PyObject** out_kept);
// `run` with the GIL taken: as it is, and in a recording, where what replays do
// not see, such as a garbage collection that frees what cannot be freed while a
// thread records, is held back.
static inline rabbet_status_t rabbet_py_enqueue(
    rabbet_py_call_fn_t run, const rabbet_plugin_call_t* call) {
  PyObject* kept = NULL;
  PyGILState_STATE gil = PyGILState_Ensure();
  rabbet_status_t status = run(call, false, &kept);
  PyGILState_Release(gil);
  return status;
}
rabbet_status_t rabbet_py_record(rabbet_py_call_fn_t run,
                                 const rabbet_plugin_call_t* call,
                                 void** out_kept);
// A recorded call that fails is made again without a recording, and only the
// error of that call is reported. Ctrl-C is kept and raised when the run is
// done.
void rabbet_py_keep_interrupt(PyObject* error);

// plugin_class.c: vtable functions that run plugins that are classes.
rabbet_status_t rabbet_py_class_prepare(void* self,
                                        const rabbet_plugin_call_t* call,
                                        size_t* out_workspace,
                                        void** out_state);
void rabbet_py_class_destroy_state(void* self, void* state);
rabbet_status_t rabbet_py_class_enqueue(void* self,
                                        const rabbet_plugin_call_t* call);
rabbet_plugin_capture_t rabbet_py_class_capture(
    void* self, const rabbet_plugin_call_t* call);
rabbet_status_t rabbet_py_class_enqueue_captured(
    void* self, const rabbet_plugin_call_t* call, void** out_kept);

// plugin_scope.c: other libraries around a call on a GPU.
typedef struct rabbet_py_scope_t {
  PyObject* undo;    // puts their streams back; NULL: nothing to be done
  PyObject* memory;  // what they allocate from in a recording, or NULL
} rabbet_py_scope_t;

// (GPU, stream) of a call, in place of the last one's; NULL on the CPU. Keeps
// the GPU's context until Python ends: what plugins load into it, and keep in
// their modules' variables, would go with the last engine. -1 with an
// exception.
int rabbet_py_scope_where(const char* device, void* stream, PyObject** where);
// The stream of `where` (GPU, stream) becomes current in torch and CuPy, as far
// as they are loaded; in a recording they allocate from memory of its own. -1
// with an exception set; to be left then, too.
int rabbet_py_scope_enter(rabbet_py_scope_t* scope, PyObject* where,
                          bool recorded);
// Leaves the scope with the call's result, NULL for an exception, which is
// kept; leaving may set one as well. *out_kept: what replays of a recording
// need, to be given to rabbet_py_scope_release, or NULL.
PyObject* rabbet_py_scope_end(rabbet_py_scope_t* scope, PyObject* take_result,
                              PyObject** out_kept);
void rabbet_py_scope_release(PyObject* take_kept);
// Calls a function in that scope, if there is a `where`. NULL with an
// exception.
PyObject* rabbet_py_scope_call(PyObject* where, bool recorded,
                               PyObject* function, PyObject* args,
                               PyObject* kwargs, PyObject** out_kept);

// plugin_aot_kernels.c: vtable functions for kernels made ahead of time.
uint32_t rabbet_py_plugin_kinds(void* self, const char* device);
rabbet_status_t rabbet_py_plugin_launches(void* self,
                                          rabbet_dim_builder_t* builder,
                                          const rabbet_plugin_query_t* query,
                                          int32_t tactic,
                                          const rabbet_plugin_input_t* inputs,
                                          const rabbet_plugin_output_t* outputs,
                                          rabbet_plugin_launch_sink_t sink);

// plugin_adapter.c, for plugin_aot_kernels.c: [(DataType, TensorFormat, dims,
// min, opt, max)], and a tuple of expression numbers.
PyObject* rabbet_py_query_tensors(const rabbet_plugin_query_t* query);
PyObject* rabbet_py_dim_tuple(const rabbet_dim_t* dims, size_t count);

#endif  // RABBET_PYTHON_SRC_PLUGIN_ADAPTER_H_
