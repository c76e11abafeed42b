// Outputs of rabbet.Model with data-dependent shapes: the run gets memory for
// the upper bound of their size, on the device that writes it; afterwards an
// array of the right size is made. On a GPU that memory is taken and given back
// in the order of the run's stream, so that a loop of calls has it at the same
// address, without asking the driver for more.
#include <string.h>

#include "python/src/runner.h"

// ---- During the run, without the GIL ---------------------------------------

// Kept from run to run, and grown.
static rabbet_status_t py_data_dependent_host(rabbet_py_output_t* output,
                                              size_t size, size_t alignment) {
  if (output->scratch && size <= output->scratch_bytes) return rabbet_ok();
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_free_aligned(allocator, output->scratch, output->scratch_alignment);
  output->scratch = NULL;
  output->scratch_alignment = alignment < 64 ? 64 : alignment;
  rabbet_status_t status = rabbet_allocate_aligned(
      allocator, size ? size : 1, output->scratch_alignment, &output->scratch);
  output->scratch_bytes = rabbet_is_ok(status) ? size : 0;
  return status;
}

static void* py_data_dependent_memory(void* user_data, const char* name,
                                      void* current, size_t size,
                                      size_t alignment, void* stream) {
  (void)name, (void)current;
  rabbet_py_output_t* output = user_data;
  rabbet_status_ignore(output->scratch_status);
  output->scratch_stream = stream;
  output->scratch_status =
      output->engine ? rabbet_engine_allocate_async(output->engine, size,
                                                    stream, &output->scratch)
                     : py_data_dependent_host(output, size, alignment);
  return rabbet_is_ok(output->scratch_status) ? output->scratch : NULL;
}

static void py_data_dependent_shape(void* user_data, const char* name,
                                    const rabbet_dims_t* dims) {
  (void)name;
  ((rabbet_py_output_t*)user_data)->dims = *dims;
}

rabbet_status_t rabbet_py_tell(rabbet_py_runner_t* runner,
                               rabbet_py_lane_t* lane, size_t i) {
  rabbet_py_output_t* output = &lane->outputs[i];
  bool host = runner->device.type == RABBET_DL_CPU;
  rabbet_output_allocator_t allocator = {
      .user_data = output,
      .reallocate = py_data_dependent_memory,
      .notify_shape = py_data_dependent_shape,
      .host = host,
  };
  output->data_dependent = true;
  output->engine = host ? NULL : runner->engine;
  return rabbet_context_set_output_allocator(
      lane->context, runner->input_count + i, allocator);
}

// ---- After it --------------------------------------------------------------

rabbet_status_t rabbet_py_data_dependent_status(
    const rabbet_py_runner_t* runner, rabbet_py_lane_t* lane) {
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < runner->output_count; ++i) {
    status = rabbet_status_join(status, lane->outputs[i].scratch_status);
    lane->outputs[i].scratch_status = rabbet_ok();
  }
  return status;
}

// Nothing but the run, and copies behind it on its stream, has used the memory.
void rabbet_py_data_dependent_drop(rabbet_py_output_t* output) {
  if (!output->engine || !output->scratch) return;
  rabbet_engine_free_async(output->engine, output->scratch,
                           output->scratch_stream);
  output->scratch = NULL;
}

void rabbet_py_data_dependent_clear(rabbet_py_output_t* output) {
  rabbet_py_data_dependent_drop(output);
  rabbet_free_aligned(rabbet_allocator_system(), output->scratch,
                      output->scratch_alignment);
}

static rabbet_status_t py_data_dependent_copy(const rabbet_py_output_t* output,
                                              size_t bytes) {
  if (bytes == 0) return rabbet_ok();
  if (!output->engine) {
    memcpy(output->data, output->scratch, bytes);
    return rabbet_ok();
  }
  rabbet_status_t status;
  Py_BEGIN_ALLOW_THREADS status =
      output->on_device
          ? rabbet_engine_copy(output->engine, output->data, output->scratch,
                               bytes, output->scratch_stream)
          : rabbet_engine_copy_to_host(output->engine, output->data,
                                       output->scratch, bytes,
                                       output->scratch_stream);
  Py_END_ALLOW_THREADS return status;
}

static int py_data_dependent_output(PyObject* self, rabbet_py_lane_t* lane,
                                    size_t i) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  rabbet_py_output_t* output = &lane->outputs[i];
  size_t io = runner->input_count + i, bytes = 0;
  const rabbet_io_t* info = rabbet_engine_io(runner->engine, io);
  rabbet_status_t status =
      rabbet_context_shape(lane->context, io, &output->dims);
  if (rabbet_is_ok(status)) {
    status =
        rabbet_tensor_bytes(info->dtype, info->format, &output->dims, &bytes);
  }
  if (!rabbet_is_ok(status)) return rabbet_py_raise_int(status);
  output->fresh = false;
  if (rabbet_py_make_output(self, lane, i)) return -1;
  status = py_data_dependent_copy(output, bytes);
  return rabbet_is_ok(status) ? 0 : rabbet_py_raise_int(status);
}

int rabbet_py_data_dependent_outputs(PyObject* self, rabbet_py_lane_t* lane) {
  rabbet_py_runner_t* runner = (rabbet_py_runner_t*)self;
  for (size_t i = 0; i < runner->output_count; ++i) {
    if (lane->outputs[i].data_dependent &&
        py_data_dependent_output(self, lane, i))
      return -1;
  }
  return 0;
}
