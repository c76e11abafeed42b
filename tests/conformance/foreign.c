// foreign DEVICE: plans whose steps name a kernel that is not for their layer,
// as damage and hands can make them. Each class of the device gets each layer;
// those that do not compute it refuse it when the plan is loaded.
#include <stdlib.h>

#include "device/device.h"
#include "plan_maker.h"
#include "rabbet/engine.h"

#define SYSTEM rabbet_allocator_system()

static rabbet_device_t* device;

typedef struct layer_t {
  const char* name;
  rabbet_op_id_t op;
  rabbet_attr_t attr;
  rabbet_format_t format;
  const char* takers[6];  // parts of names of classes that compute it
} layer_t;

// Of FLOAT (2, 8, 3) to the same.
static const layer_t layers[] = {
    {"relu",
     RABBET_OP_ACTIVATION,
     MAKER_INT("type", 0),
     RABBET_FORMAT_LINEAR,
     {"pointwise", "reference"}},
    {"relu of blocks",
     RABBET_OP_ACTIVATION,
     MAKER_INT("type", 0),
     RABBET_FORMAT_CHW4,
     {"pointwise"}},
    {"softmax",
     RABBET_OP_SOFTMAX,
     MAKER_INT("axes", 4),
     RABBET_FORMAT_LINEAR,
     {"softmax", "reference"}},
    {"cumulative",
     RABBET_OP_CUMULATIVE,
     MAKER_INT("axis", 1),
     RABBET_FORMAT_LINEAR,
     {"cumulative", "reference"}},
    {"cumulative of blocks",
     RABBET_OP_CUMULATIVE,
     MAKER_INT("axis", 1),
     RABBET_FORMAT_CHW4,
     {NULL}},
    {"identity",
     RABBET_OP_IDENTITY,
     {0},
     RABBET_FORMAT_LINEAR,
     {"cast", "reorder", "convert", "reference", "pointwise"}},
};

static bool may_take(const layer_t* layer, const char* kernel) {
  for (size_t i = 0; i < 6 && layer->takers[i]; ++i)
    if (strstr(kernel, layer->takers[i])) return true;
  return false;
}

static void make_plan(maker_t* m, const layer_t* layer, const char* kernel) {
  static const int64_t dims[] = {2, 8, 3};
  rabbet_shape_t shape = maker_shape(m, 3, dims);
  m->plan->device = device->kind;
  m->plan->device_signature = device->vtable->signature(device);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  m->values[x].format = m->values[y].format = layer->format;
  maker_step(m, &(maker_step_t){.name = layer->name,
                                .op = layer->op,
                                .kernel = kernel,
                                .attrs = {layer->attr},
                                .attr_count = layer->attr.name ? 1 : 0,
                                .inputs = {x},
                                .input_count = 1,
                                .outputs = {y},
                                .output_count = 1});
}

static void load(const layer_t* layer, const char* kernel) {
  maker_t maker;
  void* data = NULL;
  size_t size = 0;
  rabbet_engine_t* engine = NULL;
  maker_begin(&maker, SYSTEM);
  make_plan(&maker, layer, kernel);
  maker_write(&maker, SYSTEM, &data, &size);
  maker_end(&maker);
  rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                     .device = device->name};
  rabbet_status_t status =
      rabbet_engine_deserialize(data, size, &options, SYSTEM, &engine);
  if (rabbet_is_ok(status) && !may_take(layer, kernel))
    fail_msg("'%s' takes the layer '%s'", kernel, layer->name);
  if (!rabbet_is_ok(status) && !strstr(rabbet_status_message(status), kernel))
    fail_msg("'%s', layer '%s': %s", kernel, layer->name,
             rabbet_status_message(status));
  rabbet_status_ignore(status);
  rabbet_engine_release(engine);
  rabbet_free_aligned(SYSTEM, data, RABBET_PLAN_ALIGNMENT);
}

static void foreign_kernels(void** state) {
  (void)state;
  size_t count = 0;
  const rabbet_kernel_class_t* const* classes =
      device->vtable->kernel_classes(device, &count);
  for (size_t i = 0; i < count; ++i) {
    // It makes nothing, whatever the layer, and is refused where there is
    // something to make.
    if (strcmp(classes[i]->name, "empty") == 0) continue;
    for (size_t k = 0; k < sizeof(layers) / sizeof(layers[0]); ++k)
      load(&layers[k], classes[i]->name);
  }
}

int main(int argc, char** argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(foreign_kernels)};
  if (argc != 2) return 2;
  RABBET_EXPECT_OK(rabbet_device_create(argv[1], SYSTEM, &device));
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  rabbet_device_release(device);
  return failed;
}
