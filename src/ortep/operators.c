#include "ortep/operators.h"

#include <pthread.h>
#include <string.h>

#include "base/arena.h"
#include "base/vec.h"
#include "ortep/infer.h"
#include "rabbet/onnx.h"
#include "rabbet/plugin.h"

// Domains in which models have plugins of any namespace: ONNX's own, as
// exporters for TensorRT write them, and the one that its tools name.
static const char* const operators_shared[] = {"", "trt.plugins"};
enum { OPERATORS_SHARED = sizeof(operators_shared) / sizeof(char*) };

// Attributes that are for the importer.
static const char* const operators_common[] = {
    "plugin_version", "plugin_namespace",
    "tensorrt_plugin_shape_input_indices"};
enum { OPERATORS_COMMON = sizeof(operators_common) / sizeof(char*) };

typedef struct operators_op_t {
  OrtCustomOp base;
  const char* name;
  const char* domain;
  const char** attributes;
  size_t attribute_count;
} operators_op_t;

typedef struct operators_domain_t {
  const char* name;
  OrtCustomOpDomain* handle;
} operators_domain_t;

typedef struct rabbet_ort_domains_t {
  struct rabbet_ort_domains_t* older;
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;
  RABBET_VEC(operators_domain_t) list;
  RABBET_VEC(operators_op_t*) ops;
} rabbet_ort_domains_t;

// ---- An operator

static const char* operators_name(const OrtCustomOp* self) {
  return ((const operators_op_t*)self)->name;
}
// So that nothing else looks for a kernel of it.
static const char* operators_provider(const OrtCustomOp* self) {
  (void)self;
  return RABBET_ORT_EP_NAME;
}
static ONNXTensorElementDataType operators_any_type(const OrtCustomOp* self,
                                                    size_t index) {
  (void)self, (void)index;
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}
// One that stands for any number, of any types.
static size_t operators_one(const OrtCustomOp* self) {
  (void)self;
  return 1;
}
static OrtCustomOpInputOutputCharacteristic operators_variadic(
    const OrtCustomOp* self, size_t index) {
  (void)self, (void)index;
  return INPUT_OUTPUT_VARIADIC;
}
static int operators_memory(const OrtCustomOp* self, size_t index) {
  (void)self, (void)index;
  return 0;
}
static int operators_none(const OrtCustomOp* self) {
  (void)self;
  return 0;
}
static int operators_at_least_one(const OrtCustomOp* self) {
  (void)self;
  return 1;
}
static int operators_last_version(const OrtCustomOp* self) {
  (void)self;
  return INT32_MAX;
}

static OrtStatus* operators_create_kernel(const OrtCustomOp* self,
                                          const OrtApi* api,
                                          const OrtKernelInfo* info,
                                          void** out_kernel) {
  const operators_op_t* op = (const operators_op_t*)self;
  (void)api, (void)info;
  *out_kernel = NULL;
  return rabbet_ort_error(
      RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                    "operator '%s' runs within " RABBET_ORT_EP_NAME
                    ", which has not taken the node; its verbose log says why",
                    op->name));
}
static OrtStatus* operators_compute(void* kernel, OrtKernelContext* context) {
  (void)kernel, (void)context;
  return rabbet_ort_error(
      RABBET_STATUS(RABBET_STATUS_INTERNAL, "a custom operator was run"));
}
static void operators_destroy_kernel(void* kernel) {
  (void)kernel;
}
static OrtStatus* operators_infer(const OrtCustomOp* self,
                                  OrtShapeInferContext* context) {
  const operators_op_t* op = (const operators_op_t*)self;
  return rabbet_ort_error(rabbet_ort_infer(op->name, op->domain, op->attributes,
                                           op->attribute_count, context));
}

static const OrtCustomOp operators_functions = {
    .version = ORT_INTERFACE_VERSION,
    .GetName = operators_name,
    .GetExecutionProviderType = operators_provider,
    .GetInputType = operators_any_type,
    .GetInputTypeCount = operators_one,
    .GetOutputType = operators_any_type,
    .GetOutputTypeCount = operators_one,
    .KernelDestroy = operators_destroy_kernel,
    .GetInputCharacteristic = operators_variadic,
    .GetOutputCharacteristic = operators_variadic,
    .GetInputMemoryType = operators_memory,
    .GetVariadicInputMinArity = operators_none,
    .GetVariadicInputHomogeneity = operators_none,
    .GetVariadicOutputMinArity = operators_at_least_one,
    .GetVariadicOutputHomogeneity = operators_none,
    .CreateKernelV2 = operators_create_kernel,
    .KernelComputeV2 = operators_compute,
    .InferOutputShapeFn = operators_infer,
    .GetStartVersion = operators_at_least_one,
    .GetEndVersion = operators_last_version,
};

// ---- Domains

static rabbet_status_t operators_find_domain(rabbet_ort_domains_t* domains,
                                             const char* name,
                                             operators_domain_t** out_domain) {
  operators_domain_t domain = {0};
  for (size_t i = 0; i < domains->list.count; ++i) {
    *out_domain = &domains->list.data[i];
    if (strcmp((*out_domain)->name, name) == 0) return rabbet_ok();
  }
  *out_domain = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(&domains->arena, name, &domain.name));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(domains->allocator, &domains->list, 1));
  RABBET_RETURN_IF_ERROR(
      ORT(CreateCustomOpDomain, domain.name, &domain.handle));
  domains->list.data[domains->list.count++] = domain;
  *out_domain = &domains->list.data[domains->list.count - 1];
  return rabbet_ok();
}

static rabbet_status_t operators_read_attributes(
    rabbet_ort_domains_t* domains, const rabbet_plugin_creator_t* creator,
    operators_op_t* op) {
  op->attribute_count = creator->field_count + OPERATORS_COMMON;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &domains->arena, op->attribute_count, sizeof(*op->attributes),
      (void**)&op->attributes));
  for (size_t i = 0; i < creator->field_count; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
        &domains->arena, creator->fields[i].name, &op->attributes[i]));
  memcpy(op->attributes + creator->field_count, operators_common,
         sizeof(operators_common));
  return rabbet_ok();
}

// Once in a domain, whatever the versions of the plugin.
static rabbet_status_t operators_add_to(rabbet_ort_domains_t* domains,
                                        const rabbet_plugin_creator_t* creator,
                                        const char* name) {
  operators_domain_t* domain = NULL;
  operators_op_t* op = NULL;
  // ONNX's own operators stay what they are.
  if (rabbet_onnx_supports(name, creator->name)) return rabbet_ok();
  for (size_t i = 0; i < domains->ops.count; ++i)
    if (strcmp(domains->ops.data[i]->name, creator->name) == 0 &&
        strcmp(domains->ops.data[i]->domain, name) == 0)
      return rabbet_ok();
  RABBET_RETURN_IF_ERROR(operators_find_domain(domains, name, &domain));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&domains->arena, sizeof(*op), (void**)&op));
  op->base = operators_functions;
  op->domain = domain->name;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(&domains->arena, creator->name, &op->name));
  RABBET_RETURN_IF_ERROR(operators_read_attributes(domains, creator, op));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(domains->allocator, &domains->ops, op));
  return ORT(CustomOpDomain_Add, domain->handle, &op->base);
}

static rabbet_status_t operators_add(void* context,
                                     const rabbet_plugin_creator_t* creator) {
  const char* own = creator->plugin_namespace ? creator->plugin_namespace : "";
  RABBET_RETURN_IF_ERROR(operators_add_to(context, creator, own));
  for (int i = 0; i < OPERATORS_SHARED; ++i)
    RABBET_RETURN_IF_ERROR(
        operators_add_to(context, creator, operators_shared[i]));
  return rabbet_ok();
}

static void operators_destroy(rabbet_ort_domains_t* domains) {
  for (size_t i = 0; i < domains->list.count; ++i)
    rabbet_ort.api->ReleaseCustomOpDomain(domains->list.data[i].handle);
  rabbet_vec_free(domains->allocator, &domains->list);
  rabbet_vec_free(domains->allocator, &domains->ops);
  rabbet_arena_deinitialize(&domains->arena);
  rabbet_free(domains->allocator, domains);
}

static bool operators_are_equal(const rabbet_ort_domains_t* a,
                                const rabbet_ort_domains_t* b) {
  if (a->ops.count != b->ops.count) return false;
  for (size_t i = 0; i < a->ops.count; ++i) {
    const operators_op_t *x = a->ops.data[i], *y = b->ops.data[i];
    if (strcmp(x->name, y->name) != 0 || strcmp(x->domain, y->domain) != 0 ||
        x->attribute_count != y->attribute_count)
      return false;
    for (size_t j = 0; j < x->attribute_count; ++j)
      if (strcmp(x->attributes[j], y->attributes[j]) != 0) return false;
  }
  return true;
}

// ---- The process's

static struct {
  pthread_mutex_t lock;
  rabbet_ort_domains_t* newest;
} operators = {.lock = PTHREAD_MUTEX_INITIALIZER};

static rabbet_status_t operators_update(void) {
  const rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_ort_domains_t* domains = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*domains), (void**)&domains));
  domains->allocator = allocator;
  rabbet_arena_initialize(allocator, &domains->arena);
  rabbet_status_t status = rabbet_plugin_visit(operators_add, domains);
  if (!rabbet_is_ok(status) ||
      (operators.newest && operators_are_equal(operators.newest, domains))) {
    operators_destroy(domains);
    return status;
  }
  domains->older = operators.newest;
  operators.newest = domains;
  return rabbet_ok();
}

rabbet_status_t rabbet_ort_operators_count(size_t* out_count) {
  *out_count = 0;
  pthread_mutex_lock(&operators.lock);
  rabbet_status_t status = operators_update();
  if (rabbet_is_ok(status)) *out_count = operators.newest->list.count;
  pthread_mutex_unlock(&operators.lock);
  return status;
}

// Another thread may have registered more in between: then an older list has
// that number of domains.
rabbet_status_t rabbet_ort_operators_get(OrtCustomOpDomain** out_domains,
                                         size_t count) {
  pthread_mutex_lock(&operators.lock);
  const rabbet_ort_domains_t* domains = operators.newest;
  while (domains && domains->list.count != count)
    domains = domains->older;
  for (size_t i = 0; domains && i < count; ++i)
    out_domains[i] = domains->list.data[i].handle;
  pthread_mutex_unlock(&operators.lock);
  if (domains) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "%zu domains of operators were asked for", count);
}

rabbet_status_t rabbet_ort_operators_add(OrtSessionOptions* options) {
  pthread_mutex_lock(&operators.lock);
  rabbet_status_t status = operators_update();
  const rabbet_ort_domains_t* domains = operators.newest;
  for (size_t i = 0; rabbet_is_ok(status) && i < domains->list.count; ++i)
    status = ORT(AddCustomOpDomain, options, domains->list.data[i].handle);
  pthread_mutex_unlock(&operators.lock);
  return status;
}
