// A stand-in for Triton Inference Server: the functions that it gives to a
// backend, and objects that tests fill and look at. It checks that the backend
// keeps the rules; a break of one ends the process with a message.
#ifndef RABBET_TESTS_TRITON_STAND_IN_SERVER_H_
#define RABBET_TESTS_TRITON_STAND_IN_SERVER_H_

#include <stdatomic.h>

#include "rabbet/types.h"
#include "triton/interface.h"

#define SERVER_MAX 8

// Calls of functions that can fail, so far; the call number `fail_at` (from 0)
// fails. -1: none.
extern struct server_faults_t {
  _Atomic int64_t calls;
  int64_t fail_at;
  _Atomic int errors;  // that nobody has deleted
  atomic_bool failed;
} server_faults;

// Memory of the GPU.
extern void* (*server_gpu_allocate)(size_t size);
extern void (*server_gpu_free)(void* memory);

typedef struct server_buffer_t {
  void* data;
  size_t size;
  TRITONSERVER_MemoryType type;
} server_buffer_t;

struct TRITONBACKEND_Input {
  const char* name;
  int64_t dims[RABBET_MAX_RANK];
  uint32_t rank;
  server_buffer_t buffers[2];
  uint32_t buffer_count;
};

// An output of a response, or the tensor of a state.
struct TRITONBACKEND_Output {
  struct TRITONBACKEND_Request* request;
  const char* name;
  TRITONSERVER_DataType type;
  int64_t dims[RABBET_MAX_RANK];
  uint32_t rank;
  server_buffer_t buffer;
};

struct TRITONBACKEND_State {
  struct TRITONBACKEND_Output tensor;
  bool is_borrowed;  // its memory is that of an input
  bool updated;
};

struct TRITONBACKEND_Response {
  struct TRITONBACKEND_Request* request;
  struct TRITONBACKEND_Output outputs[SERVER_MAX];
  uint32_t count;
};

struct TRITONBACKEND_Request {
  struct TRITONBACKEND_Input inputs[SERVER_MAX];
  uint32_t input_count;
  const char* wanted[SERVER_MAX];
  uint32_t wanted_count;
  bool cancelled;
  TRITONSERVER_MemoryType memory;  // of outputs and states
  size_t misaligned;               // bytes before each output
  const char* same_buffer;  // the input whose memory a state has; or NULL
  // What the backend did with it.
  struct TRITONBACKEND_Response response;
  struct TRITONBACKEND_State states[SERVER_MAX];
  uint32_t state_count;
  int sent, released, reported;
  bool success;
  TRITONSERVER_Error_Code code;
  char error[512];
};

struct TRITONBACKEND_Model {
  const char* folder;
  uint64_t version;
  char config[8192];
  bool complete;  // whether the backend may complete it
  void* state;
};

struct TRITONBACKEND_ModelInstance {
  struct TRITONBACKEND_Model* model;
  TRITONSERVER_InstanceGroupKind kind;
  int32_t gpu;
  void* state;
  int batches;
  uint64_t rows, largest;
};

struct TRITONBACKEND_BackendAttribute {
  int groups;
};

// Returns the input, to be given buffers.
struct TRITONBACKEND_Input* server_add_input(
    struct TRITONBACKEND_Request* request, const char* name, uint32_t rank,
    const int64_t* dims, void* data, size_t size);
// NULL: there is none.
const struct TRITONBACKEND_Output* server_output(
    const struct TRITONBACKEND_Request* request, const char* name);
struct TRITONBACKEND_State* server_state(struct TRITONBACKEND_Request* request,
                                         const char* name);
// Until all are released: the backend may answer on another thread.
void server_wait(struct TRITONBACKEND_Request* requests, size_t count);
// Frees what the server has made for it.
void server_forget(struct TRITONBACKEND_Request* request);
void server_set_version(uint32_t major, uint32_t minor);

#endif  // RABBET_TESTS_TRITON_STAND_IN_SERVER_H_
