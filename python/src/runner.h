// Declarations that the files of the short way (rabbet.Model) share.
#ifndef RABBET_PYTHON_SRC_RUNNER_H_
#define RABBET_PYTHON_SRC_RUNNER_H_

#include "python/src/dlpack.h"
#include "python/src/rabbet_py.h"

// An input of the call in progress. `set` is the shape that the context has.
typedef struct rabbet_py_input_t {
  PyObject* object;  // borrowed argument
  void* data;
  rabbet_dims_t dims, set;
  size_t bytes;    // of `set`
  bool bound;      // `set` is valid
  bool on_device;  // `data` is an address of the engine's GPU
  bool has_view;
  Py_buffer view;
  PyObject* held;  // capsule or converted array that owns `data`
} rabbet_py_input_t;

typedef struct rabbet_py_output_t {
  rabbet_dims_t dims;
  size_t bytes;          // of dims; 0 for a data-dependent shape
  bool data_dependent;   // its shape is data-dependent
  bool fresh;            // empty_args are for dims
  PyObject* empty_args;  // of numpy.empty
  // Keyword arguments of torch.empty for a tensor in the host's memory, and for
  // one on the engine's GPU.
  PyObject* torch_options[2];
  PyObject* array;  // of the call in progress
  bool has_view;
  bool on_device;
  Py_buffer view;
  void* data;
  // Memory of the run for an output with a data-dependent shape
  // (runner_data_dependent.c).
  rabbet_engine_t* engine;  // NULL: of the host, and kept
  void* scratch;
  size_t scratch_bytes, scratch_alignment;
  void* scratch_stream;
  rabbet_status_t scratch_status;  // why there was none
} rabbet_py_output_t;

// A context and what one call at a time needs.
typedef struct rabbet_py_lane_t {
  struct rabbet_py_lane_t* next;
  pthread_t owner;  // of the call in progress
  rabbet_context_t* context;
  rabbet_py_input_t* inputs;
  rabbet_py_output_t* outputs;
  bool ready;        // outputs' dims are those of the inputs' `set`
  PyObject* torch;   // borrowed: an input that is a torch tensor
  PyObject* finish;  // makes the caller's kind of array of a NumPy one, or NULL
  // Makes arrays on the GPU (rabbet._device_arrays); NULL: the inputs are not
  // such, or torch's.
  PyObject* maker;
  bool device_torch;  // a torch tensor on the GPU is among the inputs
  void* stream;       // that the producer of the first array on the GPU uses:
                      // torch's, if there is one of torch
  bool has_stream;
} rabbet_py_lane_t;

typedef struct rabbet_py_runner_t {
  PyObject_HEAD PyObject* engine_object;
  rabbet_engine_t* engine;  // borrowed from it
  size_t input_count, output_count;
  bool shape_inputs;
  rabbet_dl_device_t device;  // of the engine
  int threads;
  bool graphs;  // runs are recorded into graphs, where the device has them
  PyObject *empty, *dtypes, *results;
  // Guards what follows; no Python code runs while it is held.
  pthread_mutex_t mutex;
  pthread_cond_t freed;
  rabbet_py_lane_t *lanes, *busy;  // free ones, the one used last first
  int lane_count, lane_limit;      // 0: no limit
  PyObject* communicator;          // of all lanes, a capsule; NULL: none is set
} rabbet_py_runner_t;

// ---- Lanes (runner_lanes.c) ------------------------------------------------

void rabbet_py_lanes_initialize(rabbet_py_runner_t* runner, int limit);
void rabbet_py_lanes_deinitialize(rabbet_py_runner_t* runner);
// A lane for a call: a free one, a new one, or where there are as many as there
// may be, the next that another thread gives back. NULL with an exception.
rabbet_py_lane_t* rabbet_py_lane_take(rabbet_py_runner_t* runner);
void rabbet_py_lane_give(rabbet_py_runner_t* runner, rabbet_py_lane_t* lane);
// Sets the communicator, or None; from now on one call runs at a time, as ranks
// exchange in one order. -1 with an exception: a call is under way, or the
// communicator does not fit.
int rabbet_py_lanes_communicate(rabbet_py_runner_t* runner, PyObject* capsule);
// Ends the runs that are under way: those of the thread, or all where it is
// NULL. Whether there was one.
bool rabbet_py_lanes_cancel(rabbet_py_runner_t* runner,
                            const pthread_t* thread);
// Steps of the run before; recordings and replays of all runs.
rabbet_graph_info_t rabbet_py_lanes_graph_info(rabbet_py_runner_t* runner);

// Takes the first stream that it is given as the run's stream.
void rabbet_py_lane_stream(rabbet_py_lane_t* lane, void* stream);
// runner_input.c: finds an input's memory and shape; -1 with an exception.
int rabbet_py_input_open(PyObject* self, rabbet_py_lane_t* lane, size_t index);
// The fast half of it: false (and no exception) if the buffer of
// `input->object` does not do as it is.
bool rabbet_py_open_buffer(rabbet_py_input_t* input, rabbet_dtype_t dtype);
// torch.empty, borrowed; torch is imported then.
PyObject* rabbet_py_torch_empty(void);
// The handle of torch's current stream on a GPU; -1 with an exception.
int rabbet_py_torch_stream(int device, void** out_stream);
void rabbet_py_input_release(rabbet_py_input_t* input);
// runner.c: an array for an output of known dims, where the inputs are.
int rabbet_py_make_output(PyObject* self, rabbet_py_lane_t* lane, size_t index);
// runner_data_dependent.c: marks the output's shape as data-dependent.
rabbet_status_t rabbet_py_tell(rabbet_py_runner_t* runner,
                               rabbet_py_lane_t* lane, size_t index);
// Why runs had no memory for such outputs, once.
rabbet_status_t rabbet_py_data_dependent_status(
    const rabbet_py_runner_t* runner, rabbet_py_lane_t* lane);
// After the run: makes arrays of the shapes that it found.
int rabbet_py_data_dependent_outputs(PyObject* self, rabbet_py_lane_t* lane);
// The call is over; and the lane.
void rabbet_py_data_dependent_drop(rabbet_py_output_t* output);
void rabbet_py_data_dependent_clear(rabbet_py_output_t* output);
// Whether NumPy's buffers can hold the type.
bool rabbet_py_is_native(rabbet_dtype_t dtype);

#endif  // RABBET_PYTHON_SRC_RUNNER_H_
