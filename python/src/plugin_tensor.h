// Tensors handed to plugins, and shapes.
#ifndef RABBET_PYTHON_SRC_PLUGIN_TENSOR_H_
#define RABBET_PYTHON_SRC_PLUGIN_TENSOR_H_

#include "python/src/dlpack.h"
#include "python/src/rabbet_py.h"

// An array that is lent to a plugin's calls, the objects between it and its
// Tensor, and the Tensor, each with its number of references while no one else
// keeps it.
enum {
  RABBET_PY_LENT_ARRAY = 0,
  RABBET_PY_LENT_BASE = 1,
  RABBET_PY_LENT_TENSOR = 2,
  RABBET_PY_LENT = 3,
};
typedef struct rabbet_py_lent_t {
  PyObject* objects[RABBET_PY_LENT];  // NULL: to be made
  Py_ssize_t references[RABBET_PY_LENT];
  void* data;  // that the array shows
} rabbet_py_lent_t;

// rabbet.plugin.Tensor. `extent` and `strides` describe what the protocols
// export: the logical shape where strides can express the format, else the
// blocks as they lie in memory.
typedef struct rabbet_py_tensor_t {
  PyObject_HEAD void* data;
  rabbet_dtype_t dtype;
  rabbet_format_t format;
  rabbet_dims_t dims;                // logical; -1: data-dependent
  rabbet_dims_t extent;              // rank -1: cannot be exported
  int64_t strides[RABBET_MAX_RANK];  // in elements, of extent
  Py_ssize_t byte_strides[RABBET_MAX_RANK];
  Py_ssize_t item, length;  // bytes of an element, of extent
  bool row_major;           // extent's strides
  rabbet_dl_device_t device;
  bool logical;  // extent is the logical shape
  bool writable;
  size_t bytes;         // of the memory if dims do not tell; 0: not known
  atomic_bool expired;  // its memory is gone
  PyObject* aliased;    // Tensor whose memory it shares, or NULL
  PyObject* keep;       // what holds the memory once a plugin kept the tensor
  bool lends;  // whoever calls the plugin looks after `lent` after each call
  rabbet_py_lent_t lent;
} rabbet_py_tensor_t;

// A tensor without data yet.
rabbet_py_tensor_t* rabbet_py_tensor_new(const rabbet_plugin_view_t* view,
                                         rabbet_dl_device_t device,
                                         bool writable, PyObject* aliased);
// "cpu" and "cuda" to DLPack's numbers.
rabbet_dl_device_t rabbet_py_dl_device(const char* name);

// plugin_protocols.c
PyObject* rabbet_py_tensor_dlpack(PyObject* self, PyObject* args,
                                  PyObject* kwargs);
PyObject* rabbet_py_tensor_dlpack_device(PyObject* self, PyObject* none);
PyObject* rabbet_py_tensor_array_interface(PyObject* self, void* closure);
PyObject* rabbet_py_tensor_cuda_interface(PyObject* self, void* closure);
int rabbet_py_tensor_get_buffer(PyObject* self, Py_buffer* view, int flags);
// False with an exception set if nothing can be exported now.
bool rabbet_py_tensor_usable(rabbet_py_tensor_t* self);

// A new DLPack capsule, unversioned.
PyObject* rabbet_py_tensor_capsule(rabbet_py_tensor_t* self);

// plugin_arrays.c
PyObject* rabbet_py_tensor_numpy(PyObject* self, PyObject* none);
PyObject* rabbet_py_tensor_torch(PyObject* self, PyObject* none);
void rabbet_py_lent_clear(rabbet_py_lent_t* lent);
bool rabbet_py_lent_is_kept(const rabbet_py_lent_t* lent);
// Nothing more is lent. Whether a call kept something: it holds `owner` from
// now on, or without one is invalid.
bool rabbet_py_lent_give_up(rabbet_py_tensor_t* self, PyObject* owner);

// rabbet.plugin.Shape
PyObject* rabbet_py_shape_new(const rabbet_dims_t* dims);

#endif  // RABBET_PYTHON_SRC_PLUGIN_TENSOR_H_
