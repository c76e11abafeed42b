// rabbet._rabbet.Runner: what rabbet.Model calls. Binds arrays to a context of
// a pool, runs it, gives fresh arrays. Usual arrays (NumPy, torch, buffers of
// the right type, row-major) are bound here without a copy; everything else,
// and every error about an argument, is left to methods of the Python class.
#include "python/src/runner.h"

#include <string.h>

#include "python/src/plugin_tensor.h"

// ---- Arguments -------------------------------------------------------------

static int py_input_by_name(rabbet_py_runner_t* runner, PyObject* key) {
  const char* name = NULL;
  if (rabbet_py_to_text(key, "argument", false, &name)) return -1;
  for (size_t i = 0; i < runner->input_count; ++i) {
    if (strcmp(rabbet_engine_io(runner->engine, i)->name, name) == 0) {
      return (int)i;
    }
  }
  return -1;
}

// The Python class raises the error, with its message.
static int py_bad_arguments(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* result = PyObject_CallMethod(self, "_bad_arguments", "OO", args,
                                         kwargs ? kwargs : Py_None);
  if (result && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_TypeError, "wrong arguments");
  }
  Py_XDECREF(result);
  return -1;
}

// Borrowed references to the inputs, and `out`.
static int py_sort_arguments(PyObject* self, PyObject* args, PyObject* kwargs,
                             rabbet_py_lane_t* lane, PyObject** out) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  size_t given = (size_t)PyTuple_Size(args);
  *out = NULL;
  if (given > runner->input_count) {
    return py_bad_arguments(self, args, kwargs);
  }
  for (size_t i = 0; i < runner->input_count; ++i) {
    lane->inputs[i].object =
        i < given ? PyTuple_GetItem(args, (Py_ssize_t)i) : NULL;
  }
  PyObject *key = NULL, *value = NULL;
  Py_ssize_t position = 0;
  while (kwargs && PyDict_Next(kwargs, &position, &key, &value)) {
    int i = py_input_by_name(runner, key);
    if (i >= 0 && !lane->inputs[i].object) {
      lane->inputs[i].object = value;
    } else if (i < 0 && PyUnicode_CompareWithASCIIString(key, "out") == 0) {
      *out = value;
    } else {
      return py_bad_arguments(self, args, kwargs);
    }
  }
  for (size_t i = 0; i < runner->input_count; ++i) {
    if (!lane->inputs[i].object) {
      return py_bad_arguments(self, args, kwargs);
    }
  }
  return 0;
}

// ---- Binding ---------------------------------------------------------------

static bool py_same_dims(const rabbet_dims_t* a, const rabbet_dims_t* b) {
  return a->rank == b->rank &&
         memcmp(a->d, b->d, (size_t)a->rank * sizeof(a->d[0])) == 0;
}

static bool py_known(const rabbet_dims_t* dims) {
  for (int32_t i = 0; i < dims->rank; ++i) {
    if (dims->d[i] < 0) return false;
  }
  return true;
}

// A shape that inputs do not determine before the first run is known after
// each run; the context then answers with the shape of the run before.
static rabbet_status_t py_output_shape(rabbet_py_runner_t* runner,
                                       rabbet_py_lane_t* lane, size_t i) {
  rabbet_py_output_t* output = &lane->outputs[i];
  size_t io = runner->input_count + i;
  output->fresh = false;
  output->bytes = 0;
  rabbet_status_t status =
      rabbet_context_shape(lane->context, io, &output->dims);
  if (!rabbet_is_ok(status) || output->data_dependent) return status;
  if (!py_known(&output->dims)) return rabbet_py_tell(runner, lane, i);
  return rabbet_context_bytes(lane->context, io, &output->bytes);
}

// Sets shapes and addresses; finds the outputs' shapes when a shape or a value
// that determines shapes may have changed.
static rabbet_status_t py_bind_in_profile(rabbet_py_runner_t* runner,
                                          rabbet_py_lane_t* lane) {
  rabbet_status_t status = rabbet_ok();
  bool changed = !lane->ready || runner->shape_inputs;
  lane->ready = false;
  for (size_t i = 0; rabbet_is_ok(status) && i < runner->input_count; ++i) {
    rabbet_py_input_t* input = &lane->inputs[i];
    if (!input->bound || !py_same_dims(&input->dims, &input->set)) {
      changed = true;
      input->bound = false;
      status = rabbet_context_set_input_shape(lane->context, i, &input->dims);
      if (!rabbet_is_ok(status)) break;
      status = rabbet_context_bytes(lane->context, i, &input->bytes);
      if (!rabbet_is_ok(status)) break;
      input->set = input->dims;
      input->bound = true;
    }
    status =
        input->on_device
            ? rabbet_context_set_address(lane->context, i, input->data)
            : rabbet_context_set_host_address(lane->context, i, input->data);
  }
  if (rabbet_is_ok(status) && changed) {
    status = rabbet_context_infer_shapes(lane->context, NULL);
    for (size_t i = 0; rabbet_is_ok(status) && i < runner->output_count; ++i) {
      status = py_output_shape(runner, lane, i);
    }
  }
  lane->ready = rabbet_is_ok(status);
  return status;
}

static rabbet_status_t py_change_profile(rabbet_py_runner_t* runner,
                                         rabbet_py_lane_t* lane,
                                         size_t profile) {
  RABBET_RETURN_IF_ERROR(rabbet_context_set_profile(lane->context, profile));
  for (size_t i = 0; i < runner->input_count; ++i) {
    lane->inputs[i].bound = false;
  }
  lane->ready = false;
  return rabbet_ok();
}

static bool py_has_new_shapes(const rabbet_py_runner_t* runner,
                              const rabbet_py_lane_t* lane) {
  for (size_t i = 0; i < runner->input_count; ++i) {
    const rabbet_py_input_t* input = &lane->inputs[i];
    if (!input->bound || !py_same_dims(&input->dims, &input->set)) return true;
  }
  return false;
}

// Whether the profile allows the inputs' shapes. *out_span: how far its ranges
// reach.
static bool py_allows(const rabbet_py_runner_t* runner,
                      const rabbet_py_lane_t* lane, size_t profile,
                      double* out_span) {
  *out_span = 0;
  for (size_t i = 0; i < runner->input_count; ++i) {
    const rabbet_dims_t* dims = &lane->inputs[i].dims;
    rabbet_dims_t low, usual, high;
    rabbet_status_t status = rabbet_engine_profile_shape(
        runner->engine, profile, i, &low, &usual, &high);
    bool fits = rabbet_is_ok(status) && low.rank == dims->rank;
    rabbet_status_ignore(status);
    for (int32_t k = 0; fits && k < dims->rank; ++k) {
      fits = dims->d[k] >= low.d[k] && dims->d[k] <= high.d[k];
      *out_span += (double)(high.d[k] - low.d[k]);
    }
    if (!fits) return false;
  }
  return true;
}

// Of the profiles that allow new shapes the narrowest, whose kernels were timed
// nearest to them; of equal ones the lane's, then the first.
static rabbet_status_t py_choose_profile(rabbet_py_runner_t* runner,
                                         rabbet_py_lane_t* lane) {
  size_t count = rabbet_engine_profile_count(runner->engine);
  size_t present = rabbet_context_profile(lane->context), best = present;
  double least = 0, span = 0;
  if (count < 2 || !py_has_new_shapes(runner, lane)) return rabbet_ok();
  bool found = py_allows(runner, lane, present, &least);
  for (size_t profile = 0; profile < count; ++profile) {
    if (profile == present || !py_allows(runner, lane, profile, &span) ||
        (found && span >= least)) {
      continue;
    }
    found = true;
    best = profile;
    least = span;
  }
  return best == present ? rabbet_ok() : py_change_profile(runner, lane, best);
}

// In the best profile for the shapes, or else the first that allows the inputs.
static rabbet_status_t py_bind_inputs(rabbet_py_runner_t* runner,
                                      rabbet_py_lane_t* lane) {
  RABBET_RETURN_IF_ERROR(py_choose_profile(runner, lane));
  rabbet_status_t status = py_bind_in_profile(runner, lane);
  size_t count = rabbet_engine_profile_count(runner->engine);
  size_t before = rabbet_context_profile(lane->context);
  for (size_t profile = 0; profile < count; ++profile) {
    if (rabbet_status_code(status) != RABBET_STATUS_OUT_OF_RANGE) return status;
    if (profile == before) continue;
    rabbet_status_t other = py_change_profile(runner, lane, profile);
    if (rabbet_is_ok(other)) other = py_bind_in_profile(runner, lane);
    if (rabbet_status_code(other) == RABBET_STATUS_OUT_OF_RANGE) {
      rabbet_status_ignore(other);  // the first error is reported
      continue;
    }
    rabbet_status_ignore(status);
    status = other;
  }
  if (count < 2 || rabbet_status_code(status) != RABBET_STATUS_OUT_OF_RANGE) {
    return status;
  }
  return RABBET_ANNOTATE(status, "none of %zu profiles allows the inputs",
                         count);
}

// Arguments of numpy.empty and torch.empty, kept while the shape is the same.
static int py_empty_arguments(rabbet_py_runner_t* runner,
                              rabbet_py_output_t* output, size_t i) {
  if (output->fresh) return 0;
  PyObject* shape = rabbet_py_from_dims(&output->dims);
  PyObject* dtype = PyTuple_GetItem(runner->dtypes, (Py_ssize_t)i);
  Py_XDECREF(output->empty_args);
  output->empty_args = shape && dtype ? PyTuple_Pack(2, shape, dtype) : NULL;
  Py_XDECREF(shape);
  output->fresh = output->empty_args != NULL;
  return output->fresh ? 0 : -1;
}

static int py_numpy_output(rabbet_py_runner_t* runner,
                           rabbet_py_output_t* output, size_t i) {
  if (py_empty_arguments(runner, output, i)) return -1;
  output->array = PyObject_Call(runner->empty, output->empty_args, NULL);
  if (!output->array) return -1;
  if (PyObject_GetBuffer(output->array, &output->view, PyBUF_WRITABLE) < 0) {
    return -1;
  }
  output->has_view = true;
  output->data = output->view.buf;
  return 0;
}

// (array, address), or NULL with an exception.
static int py_take_output(rabbet_py_output_t* output, PyObject* take_pair) {
  unsigned long long address = 0;
  PyObject* array = NULL;
  if (take_pair && PyArg_ParseTuple(take_pair, "OK", &array, &address)) {
    output->array = Py_NewRef(array);
    output->data = (void*)(uintptr_t)address;
  }
  Py_XDECREF(take_pair);
  return output->array ? 0 : -1;
}

// By self._create(index, shape) -> (array, address).
static int py_other_output(PyObject* self, rabbet_py_output_t* output,
                           size_t i) {
  PyObject* shape = rabbet_py_from_dims(&output->dims);
  PyObject* pair =
      shape ? PyObject_CallMethod(self, "_create", "nO", (Py_ssize_t)i, shape)
            : NULL;
  Py_XDECREF(shape);
  return py_take_output(output, pair);
}

// torch.empty(shape, dtype=dtype, device=device); the keyword arguments come
// from the Python class once.
static int py_torch_output(PyObject* self, rabbet_py_lane_t* lane, size_t i) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  rabbet_py_output_t* output = &lane->outputs[i];
  PyObject* empty = rabbet_py_torch_empty();
  PyObject** options = &output->torch_options[output->on_device];
  if (!*options) {
    *options = PyObject_CallMethod(self, "_torch_options", "nO", (Py_ssize_t)i,
                                   output->on_device ? Py_True : Py_False);
    if (!*options) return -1;
  }
  if (!empty || py_empty_arguments(runner, output, i)) return -1;
  PyObject* shape = PyTuple_GetItem(output->empty_args, 0);
  PyObject* args = PyTuple_Pack(1, shape);
  PyObject* address = NULL;
  if (args) {
    output->array = PyObject_Call(empty, args, *options);
    Py_DECREF(args);
  }
  if (output->array) {
    address = PyObject_CallMethod(output->array, "data_ptr", NULL);
  }
  output->data = address ? PyLong_AsVoidPtr(address) : NULL;
  Py_XDECREF(address);
  return address ? 0 : -1;
}

// By maker.make(index, shape, stream) -> (array, address).
static int py_made_output(rabbet_py_lane_t* lane, size_t i) {
  rabbet_py_output_t* output = &lane->outputs[i];
  PyObject* shape = rabbet_py_from_dims(&output->dims);
  unsigned long long stream = (unsigned long long)(uintptr_t)lane->stream;
  PyObject* pair = shape ? PyObject_CallMethod(lane->maker, "make", "nOK",
                                               (Py_ssize_t)i, shape, stream)
                         : NULL;
  Py_XDECREF(shape);
  return py_take_output(output, pair);
}

// Outputs are made on the device of the inputs.
int rabbet_py_make_output(PyObject* self, rabbet_py_lane_t* lane, size_t i) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  rabbet_py_output_t* output = &lane->outputs[i];
  const rabbet_io_t* io =
      rabbet_engine_io(runner->engine, runner->input_count + i);
  lane->outputs[i].on_device = lane->device_torch || lane->maker;
  if (lane->maker) {
    return py_made_output(lane, i);
  }
  if (!lane->torch && rabbet_py_is_native(io->dtype)) {
    return py_numpy_output(runner, output, i);
  }
  if (lane->torch) return py_torch_output(self, lane, i);
  return py_other_output(self, output, i);
}

// A NumPy array for the only output that fits as it is.
static bool py_take_buffer(rabbet_py_runner_t* runner,
                           rabbet_py_output_t* output, PyObject* out) {
  const rabbet_io_t* io = rabbet_engine_io(runner->engine, runner->input_count);
  rabbet_py_input_t as_input = {.object = out};
  if (runner->output_count != 1 || output->data_dependent ||
      io->format != RABBET_FORMAT_LINEAR || !PyObject_CheckBuffer(out) ||
      !rabbet_py_open_buffer(&as_input, io->dtype)) {
    return false;
  }
  if (as_input.view.readonly || !py_same_dims(&as_input.dims, &output->dims)) {
    PyBuffer_Release(&as_input.view);
    return false;
  }
  // A Py_buffer may be moved, as everything it points to is elsewhere.
  output->view = as_input.view;
  output->has_view = true;
  output->data = as_input.data;
  output->array = Py_NewRef(out);
  return true;
}

static rabbet_status_t py_bind_output(rabbet_py_runner_t* runner,
                                      rabbet_py_lane_t* lane, size_t i) {
  const rabbet_py_output_t* output = &lane->outputs[i];
  size_t io = runner->input_count + i;
  return output->on_device
             ? rabbet_context_set_address(lane->context, io, output->data)
             : rabbet_context_set_host_address(lane->context, io, output->data);
}

// By self._out(out, index, shape) -> (array, address, on the GPU, stream).
static int py_take_out(PyObject* self, rabbet_py_lane_t* lane, PyObject* out) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  if (py_take_buffer(runner, &lane->outputs[0], out)) {
    lane->outputs[0].on_device = false;
    rabbet_status_t status = py_bind_output(runner, lane, 0);
    return rabbet_is_ok(status) ? 0 : rabbet_py_raise_int(status);
  }
  for (size_t i = 0; i < runner->output_count; ++i) {
    rabbet_py_output_t* output = &lane->outputs[i];
    rabbet_dims_t unknown = {.rank = 1, .d = {-1}};
    PyObject* shape =
        rabbet_py_from_dims(output->data_dependent ? &unknown : &output->dims);
    PyObject* pair = shape ? PyObject_CallMethod(self, "_out", "OnO", out,
                                                 (Py_ssize_t)i, shape)
                           : NULL;
    unsigned long long address = 0, stream = 0;
    int on_device = 0;
    PyObject* array = NULL;
    if (pair &&
        PyArg_ParseTuple(pair, "OKpK", &array, &address, &on_device, &stream)) {
      output->array = Py_NewRef(array);
      output->data = (void*)(uintptr_t)address;
      output->on_device = on_device != 0;
      if (on_device) rabbet_py_lane_stream(lane, (void*)(uintptr_t)stream);
    }
    Py_XDECREF(shape);
    Py_XDECREF(pair);
    if (!output->array) return -1;
    rabbet_status_t status = py_bind_output(runner, lane, i);
    if (!rabbet_is_ok(status)) return rabbet_py_raise_int(status);
  }
  return 0;
}

static int py_bind_outputs(PyObject* self, rabbet_py_lane_t* lane) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  for (size_t i = 0; i < runner->output_count; ++i) {
    rabbet_py_output_t* output = &lane->outputs[i];
    if (output->data_dependent) continue;
    if (rabbet_py_make_output(self, lane, i)) return -1;
    rabbet_status_t status = py_bind_output(runner, lane, i);
    if (!rabbet_is_ok(status)) return rabbet_py_raise_int(status);
  }
  return 0;
}

// ---- Results ---------------------------------------------------------------

static PyObject* py_one_result(rabbet_py_lane_t* lane, size_t i) {
  PyObject* array = Py_NewRef(lane->outputs[i].array);
  if (lane->maker) {
    PyObject* result =
        lane->outputs[i].on_device
            ? PyObject_CallMethod(lane->maker, "finish", "O", array)
            : Py_NewRef(array);
    Py_DECREF(array);
    return result;
  }
  if (!lane->finish) return array;
  PyObject* result = PyObject_CallFunctionObjArgs(lane->finish, array, NULL);
  Py_DECREF(array);
  return result;
}

static PyObject* py_results(rabbet_py_runner_t* runner,
                            rabbet_py_lane_t* lane) {
  if (runner->output_count == 1) return py_one_result(lane, 0);
  PyObject* tuple = PyTuple_New((Py_ssize_t)runner->output_count);
  for (size_t i = 0; tuple && i < runner->output_count; ++i) {
    PyObject* item = py_one_result(lane, i);
    if (!item || PyTuple_SetItem(tuple, (Py_ssize_t)i, item) < 0) {
      Py_CLEAR(tuple);
    }
  }
  if (!tuple) return NULL;
  PyObject* named = PyObject_CallFunctionObjArgs(runner->results, tuple, NULL);
  Py_DECREF(tuple);
  return named;
}

// ---- The call --------------------------------------------------------------

#define RABBET_PY_HELD 16

static rabbet_status_t py_execute(PyObject* self, PyObject* args,
                                  PyObject* kwargs, rabbet_py_lane_t* lane) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  PyObject* held[RABBET_PY_HELD] = {self, args, kwargs};
  size_t count = 3;
  // Arrays that were made in this call; more than fit are the caller's anyway.
  for (size_t i = 0; i < runner->input_count && count < RABBET_PY_HELD; ++i) {
    if (lane->inputs[i].held) held[count++] = lane->inputs[i].held;
  }
  for (size_t i = 0; i < runner->output_count && count < RABBET_PY_HELD; ++i) {
    if (lane->outputs[i].array) held[count++] = lane->outputs[i].array;
  }
  rabbet_py_run_t run = {held, count};
  const rabbet_py_run_t* outer = rabbet_py_run;
  rabbet_py_run = &run;
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      rabbet_context_execute(lane->context, lane->stream);
  Py_END_ALLOW_THREADS rabbet_py_run = outer;
  return status;
}

// For libraries of which nothing is known but where their arrays lie.
static int py_wait(rabbet_py_lane_t* lane) {
  unsigned long long stream = (unsigned long long)(uintptr_t)lane->stream;
  PyObject* done = PyObject_CallMethod(lane->maker, "wait", "K", stream);
  Py_XDECREF(done);
  return done ? 0 : -1;
}

static PyObject* py_run_lane(PyObject* self, PyObject* args, PyObject* kwargs,
                             rabbet_py_lane_t* lane) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  PyObject* out = NULL;
  lane->torch = NULL;
  lane->device_torch = false;
  lane->stream = NULL;
  lane->has_stream = false;
  if (py_sort_arguments(self, args, kwargs, lane, &out)) return NULL;
  for (size_t i = 0; i < runner->input_count; ++i) {
    if (rabbet_py_input_open(self, lane, i)) return NULL;
  }
  if (lane->device_torch) {
    if (rabbet_py_torch_stream(runner->device.id, &lane->stream)) return NULL;
    lane->has_stream = true;
  }
  rabbet_status_t status = py_bind_inputs(runner, lane);
  if (!rabbet_is_ok(status)) return rabbet_py_raise(status);
  bool given = out && !Py_IsNone(out);
  if (given ? py_take_out(self, lane, out) : py_bind_outputs(self, lane)) {
    return NULL;
  }
  status = py_execute(self, args, kwargs, lane);
  status =
      rabbet_status_join(rabbet_py_data_dependent_status(runner, lane), status);
  if (!rabbet_is_ok(status) || rabbet_py_callback_error) {
    return rabbet_py_run_result(status);
  }
  if (!given && rabbet_py_data_dependent_outputs(self, lane)) return NULL;
  if (lane->maker && py_wait(lane)) return NULL;
  if (given) return Py_NewRef(out);
  return py_results(runner, lane);
}

static PyObject* py_runner_call(PyObject* self, PyObject* args,
                                PyObject* kwargs) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  if (!runner->engine) {
    PyErr_SetString(PyExc_ValueError, "this Model holds no engine");
    return NULL;
  }
  rabbet_py_lane_t* lane = rabbet_py_lane_take(runner);
  if (!lane) return NULL;
  PyObject* result = py_run_lane(self, args, kwargs, lane);
  rabbet_py_lane_give(runner, lane);
  return result;
}

// _profiled(profiler, args, kwargs): a run that reports to the profiler.
static PyObject* py_runner_profiled(PyObject* self, PyObject* all) {
  PyObject *profiler, *args, *kwargs;
  if (!PyArg_ParseTuple(all, "OO!O!", &profiler, &PyTuple_Type, &args,
                        &PyDict_Type, &kwargs)) {
    return NULL;
  }
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  rabbet_py_lane_t* lane = rabbet_py_lane_take(runner);
  if (!lane) return NULL;
  PyObject* result = NULL;
  rabbet_status_t status =
      rabbet_context_set_profiler(lane->context, rabbet_py_profiler(profiler));
  if (rabbet_is_ok(status)) {
    result = py_run_lane(self, args, kwargs, lane);
    status = rabbet_context_set_profiler(lane->context, (rabbet_profiler_t){0});
  }
  rabbet_py_lane_give(runner, lane);
  if (rabbet_is_ok(status)) return result;
  Py_XDECREF(result);
  return rabbet_py_raise(status);
}

// _checked(args, kwargs): a run that looks for infinities and NaN.
static PyObject* py_runner_checked(PyObject* self, PyObject* all) {
  PyObject *args, *kwargs;
  if (!PyArg_ParseTuple(all, "O!O!", &PyTuple_Type, &args, &PyDict_Type,
                        &kwargs)) {
    return NULL;
  }
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  rabbet_py_lane_t* lane = rabbet_py_lane_take(runner);
  if (!lane) return NULL;
  rabbet_status_t status = rabbet_context_set_check_finite(lane->context, true);
  PyObject* result = rabbet_is_ok(status)
                         ? py_run_lane(self, args, kwargs, lane)
                         : rabbet_py_raise(status);
  rabbet_status_ignore(rabbet_context_set_check_finite(lane->context, false));
  rabbet_py_lane_give(runner, lane);
  return result;
}

// Of the run before, as far as steps are counted; of all runs otherwise.
static PyObject* py_runner_graph_info(PyObject* self, PyObject* none) {
  (void)none;
  rabbet_graph_info_t all =
      rabbet_py_lanes_graph_info((rabbet_py_runner_t*)self);
  return rabbet_py_from_graph_info(&all);
}

// _cancel(thread): the runs of a thread (threading.get_ident()), or of all for
// None.
static PyObject* py_runner_cancel(PyObject* self, PyObject* thread) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  bool all = Py_IsNone(thread);
  unsigned long ident = all ? 0 : PyLong_AsUnsignedLong(thread);
  if (PyErr_Occurred()) return NULL;
  // CPython's number of a thread, too.
  pthread_t owner = (pthread_t)ident;
  return PyBool_FromLong(rabbet_py_lanes_cancel(runner, all ? NULL : &owner));
}

// ---- The type --------------------------------------------------------------

// Runner(engine, threads, graphs, contexts, numpy.empty, dtypes of the outputs,
// results): results makes what a call returns of a tuple of arrays.
static PyObject* py_runner_new(PyTypeObject* type, PyObject* args,
                               PyObject* kwargs) {
  (void)kwargs;
  PyObject *engine, *empty, *dtypes, *results;
  int threads = 0, graphs = 0, contexts = 0;
  if (!PyArg_ParseTuple(args, "OipiOO!O", &engine, &threads, &graphs, &contexts,
                        &empty, &PyTuple_Type, &dtypes, &results)) {
    return NULL;
  }
  rabbet_engine_t* pointer =
      rabbet_py_handle_get(engine, rabbet_py_types.engine);
  if (!pointer) return NULL;
  allocfunc tp_alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  rabbet_py_runner_t* self = (rabbet_py_runner_t*)tp_alloc(type, 0);
  if (!self) return NULL;
  self->engine = pointer;
  self->device = rabbet_py_dl_device(rabbet_engine_device(pointer));
  self->engine_object = Py_NewRef(engine);
  self->threads = threads;
  self->graphs = graphs != 0;
  rabbet_py_lanes_initialize(self, contexts);
  self->empty = Py_NewRef(empty);
  self->dtypes = Py_NewRef(dtypes);
  self->results = Py_NewRef(results);
  size_t count = rabbet_engine_io_count(pointer);
  for (size_t i = 0; i < count; ++i) {
    const rabbet_io_t* io = rabbet_engine_io(pointer, i);
    self->input_count += io->is_input;
    self->shape_inputs |= io->is_shape_input;
  }
  self->output_count = count - self->input_count;
  return (PyObject*)self;
}

static int py_runner_visit(PyObject* object, visitproc visit, void* arg) {
  rabbet_py_runner_t* self = (rabbet_py_runner_t*)object;
  Py_VISIT(self->engine_object);
  Py_VISIT(self->empty);
  Py_VISIT(self->dtypes);
  Py_VISIT(self->results);
  Py_VISIT(self->communicator);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

static void py_runner_dealloc(PyObject* object) {
  rabbet_py_runner_t* self = (rabbet_py_runner_t*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self->engine) rabbet_py_lanes_deinitialize(self);
  Py_CLEAR(self->engine_object);
  Py_CLEAR(self->empty);
  Py_CLEAR(self->dtypes);
  Py_CLEAR(self->results);
  Py_CLEAR(self->communicator);
  freefunc tp_free = (freefunc)PyType_GetSlot(type, Py_tp_free);
  tp_free(object);
  Py_DECREF(type);
}

static PyObject* py_runner_set_communicator(PyObject* self, PyObject* object) {
  if (rabbet_py_lanes_communicate((rabbet_py_runner_t*)self, object))
    return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef py_runner_methods[] = {
    {"_set_communicator", py_runner_set_communicator, METH_O, NULL},
    {"_profiled", py_runner_profiled, METH_VARARGS, NULL},
    {"_checked", py_runner_checked, METH_VARARGS, NULL},
    {"_cancel", py_runner_cancel, METH_O, NULL},
    {"_graph_info", py_runner_graph_info, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot py_runner_slots[] = {
    {Py_tp_new, py_runner_new},         {Py_tp_dealloc, py_runner_dealloc},
    {Py_tp_traverse, py_runner_visit},  {Py_tp_call, py_runner_call},
    {Py_tp_methods, py_runner_methods}, {0, NULL},
};

static PyType_Spec py_runner_spec = {
    .name = "rabbet._rabbet.Runner",
    .basicsize = sizeof(rabbet_py_runner_t),
    .flags = RABBET_PY_HANDLE_FLAGS,
    .slots = py_runner_slots,
};

int rabbet_py_add_runner(PyObject* module) {
  return rabbet_py_add_type(module, "Runner", &py_runner_spec,
                            &rabbet_py_types.runner);
}
