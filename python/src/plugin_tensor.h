// Tensors handed to plugins, and shapes.
#ifndef RABBET_PYTHON_SRC_PLUGIN_TENSOR_H_
#define RABBET_PYTHON_SRC_PLUGIN_TENSOR_H_

#include "python/src/dlpack.h"
#include "python/src/rabbet_py.h"

// rabbet.plugin.Tensor. `extent` and `strides` describe what the protocols
// export: the logical shape where strides can express the format, else the
// blocks as they lie in memory.
typedef struct rabbet_py_tensor_t {
  PyObject_HEAD void* data;
  rabbet_dtype_t dtype;
  rabbet_format_t format;
  rabbet_dims_t dims;                // logical; -1: told by a size tensor
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

// rabbet.plugin.Shape
PyObject* rabbet_py_shape_new(const rabbet_dims_t* dims);

#endif  // RABBET_PYTHON_SRC_PLUGIN_TENSOR_H_
