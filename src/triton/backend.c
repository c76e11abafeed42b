// The functions that the server calls.
#include "triton/instance.h"
#include "triton/report.h"

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  uint32_t major = 0, minor = 0;
  (void)backend;
  rabbet_status_t status =
      rabbet_triton_status(TRITONBACKEND_ApiVersion(&major, &minor));
  if (rabbet_is_ok(status) && (major != TRITONBACKEND_API_VERSION_MAJOR ||
                               minor < TRITONBACKEND_API_VERSION_MINOR))
    status = RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "the server's interface for backends is %u.%u; "
                           "Rabbet needs %d.%d or a later %d.x",
                           major, minor, TRITONBACKEND_API_VERSION_MAJOR,
                           TRITONBACKEND_API_VERSION_MINOR,
                           TRITONBACKEND_API_VERSION_MAJOR);
  return rabbet_triton_error(status);
}

// An instance for each GPU, else one on the CPU: a plan for the CPU runs on
// several threads by itself.
TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_BackendAttribute* attribute) {
  static const TRITONSERVER_InstanceGroupKind kinds[] = {
      TRITONSERVER_INSTANCEGROUPKIND_GPU, TRITONSERVER_INSTANCEGROUPKIND_CPU};
  TRITONSERVER_Error* error = NULL;
  (void)backend;
  for (int i = 0; i < 2 && !error; ++i)
    error = TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attribute, kinds[i], 1, NULL, 0);
  return error;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  rabbet_triton_model_t* made = NULL;
  rabbet_status_t status =
      rabbet_triton_model_create(model, rabbet_allocator_system(), &made);
  if (rabbet_is_ok(status))
    status = rabbet_triton_status(TRITONBACKEND_ModelSetState(model, made));
  if (!rabbet_is_ok(status)) rabbet_triton_model_destroy(made);
  return rabbet_triton_error(status);
}

// The server calls it also for a model that could not be initialized.
TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  void* made = NULL;
  TRITONSERVER_Error* error = TRITONBACKEND_ModelState(model, &made);
  if (!error) rabbet_triton_model_destroy(made);
  return error;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(
    TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model = NULL;
  void* made = NULL;
  rabbet_triton_instance_t* out = NULL;
  rabbet_status_t status =
      rabbet_triton_status(TRITONBACKEND_ModelInstanceModel(instance, &model));
  if (rabbet_is_ok(status))
    status = rabbet_triton_status(TRITONBACKEND_ModelState(model, &made));
  if (rabbet_is_ok(status))
    status = rabbet_triton_instance_create(made, instance, &out);
  if (rabbet_is_ok(status))
    status = rabbet_triton_status(
        TRITONBACKEND_ModelInstanceSetState(instance, out));
  if (!rabbet_is_ok(status)) rabbet_triton_instance_destroy(out);
  return rabbet_triton_error(status);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(
    TRITONBACKEND_ModelInstance* instance) {
  void* made = NULL;
  TRITONSERVER_Error* error = TRITONBACKEND_ModelInstanceState(instance, &made);
  if (!error) rabbet_triton_instance_destroy(made);
  return error;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
    uint32_t count) {
  void* made = NULL;
  rabbet_status_t status =
      rabbet_triton_status(TRITONBACKEND_ModelInstanceState(instance, &made));
  if (rabbet_is_ok(status))
    status = rabbet_triton_instance_serve(made, requests, count);
  return rabbet_triton_error(status);
}
