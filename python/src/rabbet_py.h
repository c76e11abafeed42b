// Declarations that the files of the extension share.
//
// Everything here needs an attached thread (the GIL, where Python has one)
// unless it says otherwise. Functions that return an object return NULL with a
// Python exception set on failure.
//
// Free-threaded Python has no GIL. RABBET_PY_LOCK takes its place: it guards
// the C object behind a handle, and shared objects. A run's objects belong to
// its context, and a context to one thread at a time.
#ifndef RABBET_PYTHON_SRC_RABBET_PY_H_
#define RABBET_PYTHON_SRC_RABBET_PY_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>

#include "rabbet/rabbet.h"
#include "runtime/share.h"

// ---- Threads ---------------------------------------------------------------

// Until the end of the block, no other thread is in a block that is locked by
// the same object; a callback into Python, a wait and Py_BEGIN_ALLOW_THREADS
// let others in, as they do with a GIL. Nothing to be done where there is one.
#ifdef Py_GIL_DISABLED
static inline void rabbet_py_unlock(PyCriticalSection* section) {
  PyCriticalSection_End(section);
}
#define RABBET_PY_LOCK(object)                       \
  __attribute__((cleanup(rabbet_py_unlock), unused)) \
  PyCriticalSection rabbet_py_section;               \
  PyCriticalSection_Begin(&rabbet_py_section, (PyObject*)(object))
#else
#define RABBET_PY_LOCK(object) (void)(object)
#endif

// An object that all threads use once it is found. NULL: not yet.
typedef _Atomic(PyObject*) rabbet_py_cache_t;
// Keeps an object in an empty place; another thread's, if that was first. What
// is kept, borrowed.
PyObject* rabbet_py_cache(rabbet_py_cache_t* place, PyObject* take_object);
// sys.modules[module].name, kept in `place`; borrowed. NULL without an
// exception if the module is not imported or has no such name (yet).
PyObject* rabbet_py_cache_loaded(rabbet_py_cache_t* place, const char* module,
                                 const char* name);
// Same, but the module is imported; NULL with an exception.
PyObject* rabbet_py_cache_import(rabbet_py_cache_t* place, const char* module,
                                 const char* name);

// ---- Errors (errors.c) -----------------------------------------------------

// Sets the exception for a failure and returns NULL; takes the status. An
// exception that a plugin raised is set again as the same object, with a note.
void* rabbet_py_raise(rabbet_status_t status);
// Same for functions that return an int: -1.
int rabbet_py_raise_int(rabbet_status_t status);
// Puts "text: " before the message of the current exception, if it is `type`.
void rabbet_py_prefix_error(PyObject* type, const char* format, ...);
// The current exception as one object with its traceback, no longer set; NULL
// if there is none. And back.
PyObject* rabbet_py_error_take(void);
void rabbet_py_error_restore(PyObject* take_error);
// None when OK.
PyObject* rabbet_py_none_or_raise(rabbet_status_t status);
// The current Python exception as a status that carries it; clears it.
rabbet_status_t rabbet_py_status_from_exception(void);
// The exception of a status as an object, without raising it. Takes the status.
PyObject* rabbet_py_exception_from_status(rabbet_status_t status);

// ---- Objects that wrap one pointer (handle.c) ------------------------------

// A C object and what must outlive it. `release` gives the pointer back; NULL
// for pointers that `keep` owns.
typedef struct rabbet_py_handle_t {
  PyObject_HEAD void* pointer;
  PyObject* keep;
  void (*release)(void* pointer);
  bool busy;               // in a call that lets other threads in
  pthread_mutex_t* mutex;  // of networks and their like, else NULL
} rabbet_py_handle_t;

// Slots that every handle type has; append to a PyType_Slot table.
#define RABBET_PY_HANDLE_SLOTS                        \
  {Py_tp_dealloc, (void*)rabbet_py_handle_dealloc}, { \
    Py_tp_traverse, (void*)rabbet_py_handle_visit     \
  }
#define RABBET_PY_HANDLE_FLAGS \
  (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC)
// Defines id_spec of a type of handles with id_methods; flags and slots of its
// own follow.
#define RABBET_PY_HANDLE_SPEC(id, type_name, more_flags, ...)       \
  static PyType_Slot id##_slots[] = {RABBET_PY_HANDLE_SLOTS,        \
                                     {Py_tp_methods, id##_methods}, \
                                     ##__VA_ARGS__,                 \
                                     {0, NULL}};                    \
  static PyType_Spec id##_spec = {                                  \
      .name = "rabbet._rabbet." type_name,                          \
      .basicsize = sizeof(rabbet_py_handle_t),                      \
      .flags = RABBET_PY_HANDLE_FLAGS | (more_flags),               \
      .slots = id##_slots}

void rabbet_py_handle_dealloc(PyObject* self);
int rabbet_py_handle_visit(PyObject* self, visitproc visit, void* arg);
// Slots that compare and hash by address.
PyObject* rabbet_py_handle_compare(PyObject* a, PyObject* b, int op);
Py_hash_t rabbet_py_handle_hash(PyObject* self);
// A new object of `type` that holds `pointer`; on failure the pointer is
// released.
PyObject* rabbet_py_handle_new(PyTypeObject* type, void* pointer,
                               PyObject* keep, void (*release)(void* pointer));
// An IHostMemory of bytes that `release` frees, also on failure, or that belong
// to `keep` (release NULL).
PyObject* rabbet_py_host_memory(void* data, size_t size, PyObject* keep,
                                void (*release)(void* data));
// The same of a map, which is taken.
struct rabbet_file_map_t;
PyObject* rabbet_py_host_memory_take_map(struct rabbet_file_map_t* map);
// Borrowed; NULL: the object has none.
struct rabbet_file_map_t* rabbet_py_host_memory_map(PyObject* object);
// The pointer of an object of (a subtype of) `type`; TypeError otherwise, or if
// its __init__ was never run.
// The pointer of a PyCapsule "ncclComm_t", NULL for None; -1 with an exception.
int rabbet_py_to_communicator(PyObject* object, void** out_communicator);
void* rabbet_py_handle_get(PyObject* object, PyTypeObject* type);
// Invalidates the object: its pointer is released.
void rabbet_py_handle_close(PyObject* self);

// Networks, configurations and refitters are held by one thread at a time, also
// while that runs a plugin's Python code or builds; others wait. Gives the
// object, with a mutex, or NULL with an exception set.
PyObject* rabbet_py_guarded(PyObject* take_handle);
PyObject* rabbet_py_hold(PyObject* handle);
void rabbet_py_drop(PyObject** handle);
// Until the end of the block.
#define RABBET_PY_HOLD(handle)                                               \
  __attribute__((cleanup(rabbet_py_drop), unused)) PyObject* RABBET_PY_NAME( \
      rabbet_py_held_, __LINE__) = rabbet_py_hold(handle)
#define RABBET_PY_NAME(a, b) RABBET_PY_JOINED(a, b)
#define RABBET_PY_JOINED(a, b) a##b

// Marks the held object as busy during a call, so that callbacks cannot change
// it. -1 with an exception, which names it by `what`, if it is busy already.
int rabbet_py_check_idle(PyObject* self, const char* what);
int rabbet_py_begin(PyObject* self, const char* what);
void rabbet_py_end(PyObject* self);
static inline void* rabbet_py_pointer(PyObject* self) {
  return ((rabbet_py_handle_t*)self)->pointer;
}

// ---- Types and module state ------------------------------------------------

enum { RABBET_PY_FORMATS = 128 };  // more than there are numbers of formats

typedef struct rabbet_py_types_t {
  PyTypeObject *network, *tensor, *layer;
  PyTypeObject *profile, *timing_cache, *config, *host_memory;
  PyTypeObject *engine, *context, *runner;
  PyTypeObject *dim_builder, *plugin_tensor, *shape;
  // Classes of the package, given by rabbet_py_configure; kept for good.
  rabbet_py_cache_t status_errors;  // tuple by status code
  rabbet_py_cache_t tensor_class;   // what tensors of networks are made as
  rabbet_py_cache_t layer_classes;  // operator name -> class
  rabbet_py_cache_t layer_class;  // of operators that are not in layer_classes
  rabbet_py_cache_t dtypes;       // tuple: DataType by number
  rabbet_py_cache_t formats[RABBET_PY_FORMATS];  // TensorFormat by number
} rabbet_py_types_t;
extern rabbet_py_types_t rabbet_py_types;

// A new reference to dict[key], or NULL, with an exception only if one was
// raised.
PyObject* rabbet_py_dict_get(PyObject* dict, PyObject* key);
// Puts a reference (or NULL) in the place of another.
void rabbet_py_replace(PyObject** slot, PyObject* take_value);
int rabbet_py_add_type(PyObject* module, const char* name, PyType_Spec* spec,
                       PyTypeObject** out_type);
// Each adds its file's types and functions to the module.
int rabbet_py_add_network(PyObject* module);
int rabbet_py_add_network_tensor(PyObject* module);
int rabbet_py_add_network_layer(PyObject* module);
int rabbet_py_add_builder(PyObject* module);
int rabbet_py_add_build(PyObject* module);
int rabbet_py_add_onnx(PyObject* module);
int rabbet_py_add_engine(PyObject* module);
int rabbet_py_add_context(PyObject* module);
int rabbet_py_add_refitter(PyObject* module);
int rabbet_py_add_runner(PyObject* module);
int rabbet_py_add_device_array(PyObject* module);
int rabbet_py_add_command(PyObject* module);
int rabbet_py_add_source_host(PyObject* module);
int rabbet_py_add_files(PyObject* module);
int rabbet_py_add_numbers(PyObject* module);
int rabbet_py_add_dim_builder(PyObject* module);
int rabbet_py_add_shape(PyObject* module);
int rabbet_py_add_tensor(PyObject* module);
int rabbet_py_add_plugin(PyObject* module);

// ---- Networks (network.c) --------------------------------------------------

// A tensor or layer as an object of the package's class that keeps the network;
// NULL gives None.
PyObject* rabbet_py_wrap_tensor(rabbet_tensor_t* tensor, PyObject* network);
PyObject* rabbet_py_wrap_layer(rabbet_layer_t* layer, PyObject* network);
// Tensors of a sequence, None for NULL; the caller frees the array.
int rabbet_py_to_tensors(PyObject* sequence, rabbet_tensor_t*** out,
                         size_t* out_count);

// Methods of networks, tensors and layers (network_copy.c).
PyObject* rabbet_py_network_copy_empty(PyObject* self, PyObject* none);
PyObject* rabbet_py_network_copy_source(PyObject* self, PyObject* object);
PyObject* rabbet_py_network_copy_layer(PyObject* self, PyObject* args);
PyObject* rabbet_py_network_evaluate(PyObject* self, PyObject* numbers);
PyObject* rabbet_py_network_expressions(PyObject* self, PyObject* none);
PyObject* rabbet_py_tensor_extents(PyObject* self, PyObject* none);
PyObject* rabbet_py_tensor_values(PyObject* self, PyObject* none);
PyObject* rabbet_py_tensor_weights_at(PyObject* self, PyObject* none);
PyObject* rabbet_py_layer_next(PyObject* self, PyObject* none);
static inline PyObject* rabbet_py_network_of(PyObject* self) {
  return ((rabbet_py_handle_t*)self)->keep;
}

// ---- Conversions (convert.c) -----------------------------------------------

// Any sequence of integers; `what` names it in errors.
int rabbet_py_to_dims(PyObject* object, const char* what,
                      rabbet_dims_t* out_dims);
PyObject* rabbet_py_from_dims(const rabbet_dims_t* dims);  // tuple
// TypeError: "what: expected ..., got ..."; gives -1.
int rabbet_py_raise_wrong(const char* what, const char* expected,
                          PyObject* object);
int rabbet_py_to_int64(PyObject* object, const char* what, int64_t* out_value);
// IndexError if it is negative.
int rabbet_py_to_index(PyObject* object, const char* what, size_t* out_index);
// Borrowed from the str; None gives NULL if `none_ok`.
int rabbet_py_to_text(PyObject* object, const char* what, bool none_ok,
                      const char** out_text);
PyObject* rabbet_py_text_or_none(const char* text);
// DataType and TensorFormat members, new references.
PyObject* rabbet_py_dtype(rabbet_dtype_t dtype);
PyObject* rabbet_py_format(rabbet_format_t format);
// call(path, object) without the GIL; `path` is a str, bytes or os.PathLike and
// need not be UTF-8.
PyObject* rabbet_py_with_path(PyObject* path, void* object,
                              rabbet_status_t (*call)(const char* path,
                                                      void* object));
// A str as a terminal may be shown it (base/text.h); a function of the module.
PyObject* rabbet_py_shown(PyObject* module, PyObject* text);
// A str that is not necessarily UTF-8 (messages, paths): never fails on bytes.
PyObject* rabbet_py_message(const char* text);

// Attributes: int, float, bool, str, bytes, lists of int, float, bool, str.
PyObject* rabbet_py_from_attr(const rabbet_attr_t* attr);
PyObject* rabbet_py_from_attrs(const rabbet_attr_t* attrs, size_t count);
// Attributes made of a dict {name: value}; a change of the
// dict does not matter.
typedef struct rabbet_py_attrs_t {
  rabbet_attr_t* attrs;
  Py_buffer* views;  // of attributes whose data are a buffer's
  size_t count;
  PyObject* dict;  // a copy, which holds the strings
} rabbet_py_attrs_t;
int rabbet_py_to_attrs(PyObject* dict, rabbet_py_attrs_t* out_attrs);
void rabbet_py_attrs_free(rabbet_py_attrs_t* attrs);

// ---- Callbacks (callbacks.c) -----------------------------------------------

// Calls logger._rabbet_log(severity, message); {0} for None. Borrows the
// object.
rabbet_logger_t rabbet_py_logger(PyObject* logger);
rabbet_profiler_t rabbet_py_profiler(PyObject* profiler);
rabbet_output_allocator_t rabbet_py_output_allocator(PyObject* allocator);
rabbet_device_allocator_t rabbet_py_device_allocator(PyObject* allocator);
rabbet_debug_listener_t rabbet_py_debug_listener(PyObject* listener);

// How long a thread waits before it looks for Ctrl-C.
#define RABBET_PY_WAIT_NS 50000000
// Looks for it in a run.
rabbet_interrupt_t rabbet_py_interrupt(void);

// An exception that a callback of the thread's current run raised: the C
// interface has no place for it. Owned; taken by rabbet_py_run_result.
extern _Thread_local PyObject* rabbet_py_callback_error;
// None, or the exception: the callback's, else the status'. Takes the status.
PyObject* rabbet_py_run_result(rabbet_status_t status);
// (steps by graphs, other steps, recordings, replays)
PyObject* rabbet_py_from_graph_info(const rabbet_graph_info_t* info);

// Checks for Ctrl-C at each step, and reports progress to a monitor if there is
// one.
typedef struct rabbet_py_progress_t {
  PyObject* monitor;  // borrowed; None: none
  PyObject* error;    // first exception; owned
} rabbet_py_progress_t;
rabbet_progress_t rabbet_py_progress(rabbet_py_progress_t* progress);

// ---- Plugins (plugin_adapter.c) --------------------------------------------

// A layer of an instance that Python made; `key` holds name, version, namespace
// and origin of its creator.
rabbet_status_t rabbet_py_add_instance(
    rabbet_network_t* network, PyObject* instance, rabbet_plugin_creator_t* key,
    const char* name, rabbet_tensor_t* const* inputs, size_t count,
    rabbet_layer_t** out_layer);
// The instance of a plugin layer, borrowed; NULL if it is not of Python.
PyObject* rabbet_py_layer_instance(const rabbet_layer_t* layer);

// ---- Runs (plugin_call.c) --------------------------------------------------

// The thread's current run: what must stay alive while anything that a plugin
// kept of it does. NULL: nobody can keep the memory alive (a timing run of a
// build).
typedef struct rabbet_py_run_t {
  PyObject* const* held;  // borrowed; NULLs are skipped
  size_t count;
} rabbet_py_run_t;
extern _Thread_local const rabbet_py_run_t* rabbet_py_run;

#endif  // RABBET_PYTHON_SRC_RABBET_PY_H_
