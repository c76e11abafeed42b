// Builds a network through the C interface with an operator written in C, tunes
// it, and runs it.
//
//   cc swish_network.c -lrabbet -lrabbet_runtime -lm -o swish && ./swish
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <rabbet/rabbet.h>

// ---- The operator: y = x * sigmoid(beta * x), element by element -----------

typedef struct swish_t {
  double beta;
} swish_t;

static void swish_destroy(void* self) {
  rabbet_free(rabbet_allocator_system(), self);
}

static int32_t swish_output_count(void* self) {
  (void)self;
  return 1;
}

static rabbet_status_t swish_describe(void* self, rabbet_dim_builder_t* builder,
                                      const rabbet_plugin_input_t* inputs,
                                      size_t input_count,
                                      rabbet_plugin_output_t* outputs) {
  (void)self;
  (void)builder;
  (void)input_count;
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].rank = inputs[0].rank;
  memcpy(outputs[0].dims, inputs[0].dims, sizeof(inputs[0].dims));
  return rabbet_ok();
}

static rabbet_status_t swish_serialize(void* self,
                                       rabbet_plugin_attr_sink_t sink) {
  rabbet_attr_t beta = {.name = "beta",
                        .type = RABBET_ATTR_FLOAT,
                        .data = &((swish_t*)self)->beta,
                        .count = 1};
  return sink.add(sink.context, &beta);
}

static rabbet_status_t swish_enqueue(void* self,
                                     const rabbet_plugin_call_t* call) {
  float beta = (float)((swish_t*)self)->beta;
  const float* x = call->inputs[0].data;
  float* y = call->outputs[0].data;
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&call->inputs[0].dims, &count));
  for (int64_t i = 0; i < count; ++i)
    y[i] = x[i] / (1 + expf(-beta * x[i]));
  return rabbet_ok();
}

static const rabbet_plugin_vtable_t swish_vtable = {
    .struct_size = sizeof(rabbet_plugin_vtable_t),
    .destroy = swish_destroy,
    .output_count = swish_output_count,
    .describe = swish_describe,
    .timing_key = swish_serialize,  // beta does not change the speed, but may
    .serialize = swish_serialize,
    .enqueue = swish_enqueue,
};

static rabbet_status_t swish_create(void* user_data,
                                    const rabbet_plugin_create_t* args,
                                    rabbet_plugin_instance_t* out_instance) {
  (void)user_data;
  const rabbet_attr_t* beta =
      rabbet_attr_find(args->attrs, args->attr_count, "beta");
  swish_t* self = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(rabbet_allocator_system(), sizeof(*self), (void**)&self));
  self->beta = *(const double*)beta->data;  // required: checked before
  *out_instance = (rabbet_plugin_instance_t){&swish_vtable, self};
  return rabbet_ok();
}

static rabbet_status_t swish_register(void) {
  static const rabbet_plugin_field_t fields[] = {
      {.name = "beta", .type = RABBET_ATTR_FLOAT, .required = true}};
  rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                     .name = "Swish",
                                     .plugin_namespace = "example",
                                     .origin = "swish_network.c",
                                     .fields = fields,
                                     .field_count = 1,
                                     .field_size = sizeof(*fields),
                                     .create = swish_create,
                                     .input_count = 1};
  return rabbet_plugin_register(&creator);
}

// ---- The network: y = Swish(x + 1) -----------------------------------------

static rabbet_status_t make_network(rabbet_network_t* network) {
  static const float one = 1;
  const rabbet_dims_t dims = {.rank = 2, .d = {4, 8}};
  const rabbet_dims_t scalar = {.rank = 2, .d = {1, 1}};
  rabbet_tensor_t *x = NULL, *bias = NULL;
  rabbet_layer_t *sum = NULL, *swish = NULL;
  int64_t operation = 0;  // ElementWiseOperation SUM
  double beta = 1;
  rabbet_attr_t op_attr = {
      .name = "op", .type = RABBET_ATTR_INT, .data = &operation, .count = 1};
  rabbet_attr_t beta_attr = {
      .name = "beta", .type = RABBET_ATTR_FLOAT, .data = &beta, .count = 1};
  RABBET_RETURN_IF_ERROR(
      rabbet_network_add_input(network, "x", RABBET_DTYPE_FLOAT, &dims, &x));
  RABBET_RETURN_IF_ERROR(rabbet_network_add_weights(
      network, "one", (rabbet_weights_t){RABBET_DTYPE_FLOAT, &one, 1}, &scalar,
      true, &bias));
  RABBET_RETURN_IF_ERROR(rabbet_network_add_layer(network, "elementwise", "add",
                                                  (rabbet_tensor_t*[]){x, bias},
                                                  2, &op_attr, 1, &sum));
  rabbet_tensor_t* inner = rabbet_layer_output(sum, 0);
  RABBET_RETURN_IF_ERROR(rabbet_network_add_plugin(network, "Swish", "1",
                                                   "example", "swish", &inner,
                                                   1, &beta_attr, 1, &swish));
  rabbet_tensor_t* y = rabbet_layer_output(swish, 0);
  RABBET_RETURN_IF_ERROR(rabbet_tensor_set_name(y, "y"));
  return rabbet_network_mark_output(network, y);
}

static rabbet_status_t build(void** out_plan, size_t* out_size) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_logger_t logger = rabbet_logger_stderr(RABBET_SEVERITY_WARNING);
  rabbet_network_t* network = NULL;
  rabbet_builder_config_t* config = NULL;
  rabbet_build_report_t* report = NULL;
  rabbet_status_t status = rabbet_network_create(RABBET_NETWORK_STRONGLY_TYPED,
                                                 allocator, logger, &network);
  if (rabbet_is_ok(status)) status = make_network(network);
  if (rabbet_is_ok(status)) {
    status = rabbet_builder_config_create(allocator, &config);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_build_plan(network, config, allocator, out_plan, out_size,
                               &report);
  }
  if (rabbet_is_ok(status)) printf("%s", rabbet_build_report_text(report));
  rabbet_build_report_destroy(report);
  rabbet_builder_config_release(config);
  rabbet_network_release(network);
  return status;
}

// ---- Running it ------------------------------------------------------------

static rabbet_status_t run(const void* plan, size_t size) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_engine_t* engine = NULL;
  rabbet_context_t* context = NULL;
  float x[32], y[32];
  for (int i = 0; i < 32; ++i)
    x[i] = (float)i / 8 - 2;
  rabbet_status_t status =
      rabbet_engine_deserialize(plan, size, NULL, allocator, &engine);
  if (rabbet_is_ok(status)) {
    status = rabbet_context_create(engine, allocator, &context);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_context_set_address(context, 0, x);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_context_set_address(context, 1, y);
  }
  if (rabbet_is_ok(status)) status = rabbet_context_execute(context, NULL);
  for (int i = 0; rabbet_is_ok(status) && i < 32; ++i) {
    float z = x[i] + 1, expected = z / (1 + expf(-z));
    if (fabsf(y[i] - expected) > 1e-6f) {
      status = RABBET_STATUS(RABBET_STATUS_INTERNAL, "y[%d] = %g, expected %g",
                             i, (double)y[i], (double)expected);
    }
  }
  rabbet_context_destroy(context);
  rabbet_engine_release(engine);
  return status;
}

int main(void) {
  void* plan = NULL;
  size_t size = 0;
  rabbet_status_t status = swish_register();
  if (rabbet_is_ok(status)) status = build(&plan, &size);
  if (rabbet_is_ok(status)) status = run(plan, size);
  if (rabbet_is_ok(status)) {
    printf("32 values, all as expected\n");
  } else {
    fprintf(stderr, "swish: %s\n", rabbet_status_message(status));
  }
  int code = rabbet_is_ok(status) ? 0 : 1;
  rabbet_status_free(status);
  rabbet_free_aligned(rabbet_allocator_system(), plan, 64);
  return code;
}
