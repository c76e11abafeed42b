// Files, written as the C library writes them, and folders of caches.
#include <unistd.h>

#include "base/cache_folder.h"
#include "base/file.h"
#include "python/src/rabbet_py.h"

PyObject* rabbet_py_with_path(PyObject* path, void* object,
                              rabbet_status_t (*call)(const char* path,
                                                      void* object)) {
  PyObject* bytes = NULL;
  if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
  const char* name = PyBytes_AsString(bytes);
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS;
  status = call(name, object);
  Py_END_ALLOW_THREADS;
  Py_DECREF(bytes);
  return rabbet_py_none_or_raise(status);
}

static rabbet_status_t py_write_span(const char* path, void* span) {
  return rabbet_file_write(path, span, 1);
}

// write_file(path, bytes or another buffer)
static PyObject* py_write_file(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* path = NULL;
  Py_buffer data;
  if (!PyArg_ParseTuple(args, "Oy*", &path, &data)) return NULL;
  rabbet_span_t span = {data.buf, (size_t)data.len};
  PyObject* result = rabbet_py_with_path(path, &span, py_write_span);
  PyBuffer_Release(&data);
  return result;
}

// cache_folder(variable, name, variable of the limit, its default in MiB,
// logger) -> (path | None, why | None, limit): as rabbet_cache_folder_open.
static PyObject* py_cache_folder(PyObject* module, PyObject* args) {
  (void)module;
  const char *variable, *name, *limit;
  int mib;
  PyObject* logger;
  if (!PyArg_ParseTuple(args, "sssiO", &variable, &name, &limit, &mib,
                        &logger)) {
    return NULL;
  }
  rabbet_cache_folder_t folder;
  rabbet_cache_folder_open(variable, name, &folder);
  unsigned long long bytes =
      rabbet_cache_limit(limit, mib, rabbet_py_logger(logger));
  bool is_open = folder.file >= 0;
  if (is_open) close(folder.file);
  PyObject* path = is_open || folder.reason
                       ? PyUnicode_DecodeFSDefault(folder.path)
                       : Py_NewRef(Py_None);
  PyObject* reason = path ? rabbet_py_text_or_none(folder.reason) : NULL;
  if (!reason) {
    Py_XDECREF(path);
    return NULL;
  }
  return Py_BuildValue("(NNK)", path, reason, bytes);
}

int rabbet_py_add_files(PyObject* module) {
  static PyMethodDef functions[] = {
      {"cache_folder", py_cache_folder, METH_VARARGS, NULL},
      {"write_file", py_write_file, METH_VARARGS, NULL},
      {NULL},
  };
  return PyModule_AddFunctions(module, functions);
}
