// The backend under a stand-in for the server, on the CPU and on the stand-in
// GPU.
#include "triton/instance.h"

#include "faults/fault_allocator.h"
#include "triton_stand_in/sample.h"

// ---- Operators

static int32_t one_output(void* self) {
  (void)self;
  return 1;
}

static rabbet_status_t describe_like(void* self, rabbet_dim_builder_t* builder,
                                     const rabbet_plugin_input_t* inputs,
                                     size_t count,
                                     rabbet_plugin_output_t* outputs) {
  (void)builder, (void)count;
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].rank = inputs[0].rank;
  memcpy(outputs[0].dims, inputs[0].dims, sizeof(outputs[0].dims));
  if (self) outputs[0].aliased_input = 0;
  return rabbet_ok();
}

static int64_t count_of(const rabbet_plugin_call_t* call) {
  int64_t count = 0;
  RABBET_EXPECT_OK(rabbet_dims_count(&call->inputs[0].dims, &count));
  return count;
}

// Equal to its input, where that has nothing below 0; else fails.
static rabbet_status_t run_positive(void* self,
                                    const rabbet_plugin_call_t* call) {
  const float* x = call->inputs[0].data;
  (void)self;
  for (int64_t i = 0; i < count_of(call); ++i) {
    if (x[i] < 0)
      return RABBET_STATUS(RABBET_STATUS_PLUGIN, "element %lld is %g",
                           (long long)i, (double)x[i]);
    ((float*)call->outputs[0].data)[i] = x[i];
  }
  return rabbet_ok();
}

// One more, in its input's place.
static rabbet_status_t run_bump(void* self, const rabbet_plugin_call_t* call) {
  (void)self;
  for (int64_t i = 0; i < count_of(call); ++i)
    ((float*)call->outputs[0].data)[i] =
        ((const float*)call->inputs[0].data)[i] + 1;
  return rabbet_ok();
}

static rabbet_status_t create_plugin(void* user_data,
                                     const rabbet_plugin_create_t* args,
                                     rabbet_plugin_instance_t* out_instance) {
  static const rabbet_plugin_vtable_t positive = {
      .struct_size = sizeof(positive),
      .output_count = one_output,
      .describe = describe_like,
      .enqueue = run_positive};
  static const rabbet_plugin_vtable_t bump = {.struct_size = sizeof(bump),
                                              .output_count = one_output,
                                              .describe = describe_like,
                                              .enqueue = run_bump};
  (void)args;
  *out_instance =
      (rabbet_plugin_instance_t){user_data ? &bump : &positive, user_data};
  return rabbet_ok();
}

static int register_plugins(void** state) {
  static int aliased;
  (void)state;
  rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                     .name = "positive",
                                     .plugin_namespace = "test",
                                     .create = create_plugin,
                                     .input_count = 1};
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  creator.name = "bump";
  creator.user_data = &aliased;
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  return 0;
}

// ---- Networks

// sum = x + x, product = x * x; x is [1 to 8, 2 to 3]
static void make_two(sample_net_t* net) {
  rabbet_tensor_t* x = sample_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(-1, -1));
  sample_output(net, sample_combine(net, x, x, 0), "sum");
  sample_output(net, sample_combine(net, x, x, 1), "product");
  sample_range(net, 0, "x", DIMS(1, 2), DIMS(4, 2), DIMS(8, 3));
}

// Columns may be none at all.
static void make_empty(sample_net_t* net) {
  rabbet_tensor_t* x = sample_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(-1, -1));
  sample_output(net, sample_combine(net, x, x, 0), "sum");
  sample_range(net, 0, "x", DIMS(1, 0), DIMS(4, 2), DIMS(8, 3));
}

static void make_two_profiles(sample_net_t* net) {
  make_two(net);
  sample_range(net, 1, "x", DIMS(1, 100), DIMS(1, 100), DIMS(2, 200));
}

static void make_smallest_batch_two(sample_net_t* net) {
  rabbet_tensor_t* x = sample_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 2));
  sample_output(net, sample_combine(net, x, x, 0), "sum");
  sample_range(net, 0, "x", DIMS(2, 2), DIMS(4, 2), DIMS(8, 2));
}

static void make_fixed(sample_net_t* net) {
  rabbet_tensor_t* x = sample_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 2));
  rabbet_tensor_t* k = sample_input(net, "k", RABBET_DTYPE_FLOAT, DIMS(1, 1));
  sample_output(net, sample_combine(net, x, k, 1), "y");
}

// Of one dimension, the batch: the server has scalars.
static void make_scalars(sample_net_t* net) {
  rabbet_tensor_t* x = sample_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(-1));
  sample_output(net, sample_combine(net, x, x, 0), "sum");
  sample_range(net, 0, "x", DIMS(1), DIMS(4), DIMS(8));
}

static void make_positive(sample_net_t* net) {
  rabbet_tensor_t* x = sample_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 2));
  sample_output(net, sample_plugin(net, "positive", x), "y");
  sample_range(net, 0, "x", DIMS(1, 2), DIMS(4, 2), DIMS(8, 2));
}

// Positions of what is not 0.
static void make_positions(sample_net_t* net) {
  rabbet_layer_t* layer = NULL;
  rabbet_tensor_t* x = sample_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(-1));
  RABBET_EXPECT_OK(rabbet_network_add_layer(net->network, "non_zero", NULL, &x,
                                            1, NULL, 0, &layer));
  sample_output(net, rabbet_layer_output(layer, 0), "positions");
  sample_range(net, 0, "x", DIMS(1), DIMS(4), DIMS(8));
}

// y = total = kept + x; y is for the client, total for the next request.
static void make_total(sample_net_t* net) {
  rabbet_tensor_t* x = sample_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 2));
  rabbet_tensor_t* kept =
      sample_input(net, "kept", RABBET_DTYPE_FLOAT, DIMS(-1, 2));
  rabbet_tensor_t* total = sample_combine(net, kept, x, 0);
  sample_output(net, sample_combine(net, total, total, 0), "twice");
  sample_output(net, total, "total");
  sample_range(net, 0, "x", DIMS(1, 2), DIMS(4, 2), DIMS(8, 2));
  sample_range(net, 0, "kept", DIMS(1, 2), DIMS(4, 2), DIMS(8, 2));
}

static void make_counter(sample_net_t* net) {
  rabbet_tensor_t* kept =
      sample_input(net, "kept", RABBET_DTYPE_FLOAT, DIMS(-1, 2));
  sample_output(net, sample_plugin(net, "bump", kept), "next");
  sample_range(net, 0, "kept", DIMS(1, 2), DIMS(4, 2), DIMS(8, 2));
}

// ---- Configurations

static void completed(void** state) {
  (void)state;
  sample_t sample;
  sample_build(&sample, "cpu", make_two);
  sample_load(&sample);
  assert_string_equal(
      sample.model.config,
      "{\"name\":\"sample\",\"max_batch_size\":8,\"input\":[{\"name\":"
      "\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":[-1]}],\"output\":"
      "[{\"name\":\"sum\",\"data_type\":\"TYPE_FP32\",\"dims\":[-1]},"
      "{\"name\":\"product\",\"data_type\":\"TYPE_FP32\",\"dims\":[-1]}],"
      "\"dynamic_batching\":{}}");
  sample_unload(&sample);
}

static void configurations(void** state) {
  (void)state;
  static const sample_config_t cases[] = {
      // What is given stays, and other fields of it.
      {make_two, "\"max_batch_size\":4", "\"max_batch_size\":4", 0},
      {make_two,
       "\"output\":[{\"name\":\"product\",\"data_type\":\"TYPE_INVALID\","
       "\"dims\":[],\"label_filename\":\"l.txt\"}]",
       "\"output\":[{\"name\":\"product\",\"data_type\":\"TYPE_FP32\",\"dims\":"
       "[-1],\"label_filename\":\"l.txt\"}]",
       0},
      {make_two, "\"dynamic_batching\":{\"max_queue_delay_microseconds\":100}",
       "\"dynamic_batching\":{\"max_queue_delay_microseconds\":100}", 0},
      {make_two,
       "\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":[3]}]",
       "\"TYPE_FP32\",\"dims\":[3]}],\"max_batch_size\":8", 0},
      // All dimensions given: no batch is meant.
      {make_two,
       "\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_FP32\","
       "\"dims\":[-1,2]}]",
       "\"max_batch_size\":0", 0},
      {make_fixed, "\"max_batch_size\":0",
       "\"max_batch_size\":0,\"input\":[{\"name\":\"x\",\"data_type\":"
       "\"TYPE_FP32\",\"dims\":[2,2]},{\"name\":\"k\"",
       0},
      {make_scalars, "\"max_batch_size\":0",
       "\"dims\":[1],\"reshape\":{\"shape\":[]}", 0},
      {make_positions, "\"max_batch_size\":0",
       "\"name\":\"positions\",\"data_type\":\"TYPE_INT32\",\"dims\":[1,"
       "-1]",
       0},
      {make_smallest_batch_two, "\"max_batch_size\":0",
       "\"max_batch_size\":0,\"input\":[{\"name\":\"x\",\"data_type\":"
       "\"TYPE_FP32\",\"dims\":[-1,2]}]",
       0},
      // States and controls are no inputs of requests.
      {make_total,
       "\"sequence_batching\":{\"state\":[{\"input_name\":\"kept\","
       "\"output_name\":\"total\"}],\"control_input\":[]}",
       "\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":"
       "[2]}],\"output\":[{\"name\":\"twice\",\"data_type\":"
       "\"TYPE_FP32\",\"dims\":[2]}]",
       0},
      {make_total,
       "\"sequence_batching\":{\"control_input\":[{\"name\":\"kept\"}]}",
       "\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":"
       "[2]}],\"output\":[{\"name\":\"twice\"",
       0},

      {make_two, "\"max_batch_size\":16",
       "max_batch_size is 16; the plan's profiles allow up to 8",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_fixed, "\"max_batch_size\":4",
       "the first dimensions of inputs 'x' and 'k' have other ranges",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_positions, "\"max_batch_size\":4",
       "output 'positions' has no batch dimension",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_smallest_batch_two, "\"max_batch_size\":4",
       "the smallest batch that it takes is 2", TRITONSERVER_ERROR_INVALID_ARG},
      {make_two, "\"input\":[{\"name\":\"z\"}]",
       "input 'z' is not of the plan, which has 'x'",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_two, "\"output\":[{\"name\":\"x\"}]",
       "output 'x' is not of the plan, which has 'sum', 'product'",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_two,
       "\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_STRING\","
       "\"dims\":[-1]}]",
       "input 'x' is TYPE_STRING: plans have no strings, and this input is "
       "TYPE_FP32",
       TRITONSERVER_ERROR_UNSUPPORTED},
      {make_two,
       "\"output\":[{\"name\":\"sum\",\"data_type\":\"TYPE_INT64\","
       "\"dims\":[-1]}]",
       "output 'sum' is TYPE_INT64 in the configuration; the plan's is "
       "TYPE_FP32",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_total,
       "\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":[3]}]",
       "input 'x' has shape (-1, 3) in the configuration, batch included; the "
       "plan's is (-1, 2)",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_two, "\"parameters\":{\"threads\":{\"string_value\":\"many\"}}",
       "parameter 'threads' is 'many'", TRITONSERVER_ERROR_INVALID_ARG},
      {make_two, "\"parameters\":{\"cuda_graphs\":{\"string_value\":\"1\"}}",
       "parameter 'cuda_graphs' is '1'; expected true or false",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_two, "\"parameters\":{\"plugins\":{\"string_value\":\"no.so\"}}",
       "has a file 'no.so'", TRITONSERVER_ERROR_NOT_FOUND},
      {make_two, "\"default_model_filename\":\"other.plan\"",
       "has a file 'other.plan'", TRITONSERVER_ERROR_NOT_FOUND},
      // Numbers of 64 bits, as the server writes them.
      {make_two,
       "\"max_batch_size\":\"4\",\"input\":[{\"name\":\"x\",\"data_type\":"
       "\"TYPE_FP32\",\"dims\":[\"3\"]}]",
       "\"max_batch_size\":4", 0},
      {make_total,
       "\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":["
       "\"9223372036854775807\"]}]",
       "input 'x' has shape (-1, 9223372036854775807) in the configuration",
       TRITONSERVER_ERROR_INVALID_ARG},
      // Lists and names that are none.
      {make_two, "\"input\":7,\"output\":\"y\",\"parameters\":[1,null]",
       "\"input\":[{\"name\":\"x\"", 0},
      {make_two, "\"input\":[1]", "input '' is not of the plan",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_two, "\"max_batch_size\":-1", "max_batch_size is -1",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_two,
       "\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":[-1],"
       "\"allow_ragged_batch\":true}]",
       "\"allow_ragged_batch\":true}],\"max_batch_size\":8", 0},
      {make_two, "\"max_batch_size\":", "JSON, byte 34",
       TRITONSERVER_ERROR_INVALID_ARG},
  };
  sample_expect_configurations(cases, sizeof(cases) / sizeof(*cases));
}

// Where the server forbids it, nothing is completed, and all is checked.
static void not_completed(void** state) {
  (void)state;
  sample_t sample;
  sample_build(&sample, "cpu", make_two);
  sample.model.complete = false;
  sample_expect_error(TRITONBACKEND_ModelInitialize(&sample.model),
                      TRITONSERVER_ERROR_INVALID_ARG,
                      "the configuration has no input 'x'");
  sample_end(&sample);
}

static void bad_plans(void** state) {
  (void)state;
  sample_t sample;
  sample_begin(&sample);
  sample_expect_error(TRITONBACKEND_ModelInitialize(&sample.model),
                      TRITONSERVER_ERROR_NOT_FOUND, "has a file 'model.plan'");
  sample_write(&sample, "model.plan", "nonsense", 8);
  sample_expect_error(TRITONBACKEND_ModelInitialize(&sample.model),
                      TRITONSERVER_ERROR_INVALID_ARG, "model 'sample': ");
  sample_end(&sample);
}

static void server_versions(void** state) {
  (void)state;
  struct TRITONBACKEND_BackendAttribute attribute = {0};
  sample_expect_ok(TRITONBACKEND_Initialize(NULL));
  server_set_version(1, 18);
  sample_expect_error(TRITONBACKEND_Initialize(NULL),
                      TRITONSERVER_ERROR_UNSUPPORTED, "is 1.18; Rabbet needs");
  server_set_version(2, 19);
  sample_expect_error(TRITONBACKEND_Initialize(NULL),
                      TRITONSERVER_ERROR_UNSUPPORTED, "is 2.19");
  server_set_version(1, 20);
  sample_expect_ok(TRITONBACKEND_Initialize(NULL));
  server_set_version(1, 19);
  sample_expect_ok(TRITONBACKEND_GetBackendAttribute(NULL, &attribute));
  assert_int_equal(attribute.groups, 2);
}

// ---- Requests

#define WANTS(...)         \
  .wanted = {__VA_ARGS__}, \
  .wanted_count = sizeof((const char*[]){__VA_ARGS__}) / sizeof(char*)

static void one_request(void** state) {
  (void)state;
  sample_t sample;
  float x[6] = {1, 2, 3, 4, 5, 6};
  const float sum[6] = {2, 4, 6, 8, 10, 12};
  const float product[6] = {1, 4, 9, 16, 25, 36};
  sample_build(&sample, "cpu", make_two);
  sample_load(&sample);
  // Memory that is not aligned is copied; outputs nobody asks for are not made.
  for (size_t misaligned = 0; misaligned < 3; ++misaligned) {
    struct TRITONBACKEND_Request request = {WANTS("product"),
                                            .misaligned = misaligned};
    char shifted[sizeof(x) + 2];
    memcpy(shifted + misaligned, x, sizeof(x));
    server_add_input(&request, "x", 2, (int64_t[]){2, 3}, shifted + misaligned,
                     sizeof(x));
    sample_serve(&sample, &request, 1);
    assert_string_equal(request.error, "");
    assert_null(server_output(&request, "sum"));
    sample_expect_floats(server_output(&request, "product"), DIMS(2, 3),
                         product);
    server_forget(&request);
  }
  // An input in two parts.
  struct TRITONBACKEND_Request request = {WANTS("product", "sum")};
  struct TRITONBACKEND_Input* input =
      server_add_input(&request, "x", 2, (int64_t[]){3, 2}, x, 4);
  input->buffers[1] = (server_buffer_t){x + 1, 20, TRITONSERVER_MEMORY_CPU};
  input->buffer_count = 2;
  sample_serve(&sample, &request, 1);
  sample_expect_floats(server_output(&request, "sum"), DIMS(3, 2), sum);
  sample_expect_floats(server_output(&request, "product"), DIMS(3, 2), product);
  server_forget(&request);
  sample_unload(&sample);
}

static void batches(void** state) {
  (void)state;
  sample_t sample;
  float x[4][6] = {{1, 2}, {3, 4, 5, 6}, {7, 8, 9}, {10, 11}};
  const int64_t dims[4][2] = {{1, 2}, {2, 2}, {1, 3}, {1, 2}};
  struct TRITONBACKEND_Request requests[4] = {0};
  sample_build(&sample, "cpu", make_two);
  sample_load(&sample);
  for (int i = 0; i < 4; ++i) {
    requests[i].wanted[requests[i].wanted_count++] = "sum";
    if (i == 1) requests[i].wanted[requests[i].wanted_count++] = "product";
    server_add_input(&requests[i], "x", 2, dims[i], x[i],
                     (size_t)(dims[i][0] * dims[i][1]) * sizeof(float));
  }
  sample_serve(&sample, requests, 4);
  // Those of two columns are one batch, that of three columns another.
  assert_int_equal(sample.instance.batches, 2);
  assert_int_equal(sample.instance.rows, 5);
  assert_int_equal(sample.instance.largest, 4);
  for (int i = 0; i < 4; ++i) {
    float sum[6];
    for (int k = 0; k < 6; ++k)
      sum[k] = 2 * x[i][k];
    sample_expect_floats(server_output(&requests[i], "sum"),
                         DIMS(dims[i][0], dims[i][1]), sum);
  }
  const float product[4] = {9, 16, 25, 36};
  sample_expect_floats(server_output(&requests[1], "product"), DIMS(2, 2),
                       product);
  assert_null(server_output(&requests[0], "product"));
  for (int i = 0; i < 4; ++i)
    server_forget(&requests[i]);
  sample_unload(&sample);
}

// Tensors without elements, of which the server has no memory.
static void empty_tensors(void** state) {
  (void)state;
  sample_t sample;
  sample_build(&sample, "cpu", make_empty);
  sample_load(&sample);
  for (uint32_t count = 1; count <= 2; ++count) {
    struct TRITONBACKEND_Request requests[2];
    for (uint32_t i = 0; i < count; ++i) {
      requests[i] = (struct TRITONBACKEND_Request){WANTS("sum")};
      server_add_input(&requests[i], "x", 2, (int64_t[]){2, 0}, NULL, 0)
          ->buffer_count = i ? 0 : 1;
    }
    sample_serve(&sample, requests, count);
    for (uint32_t i = 0; i < count; ++i) {
      assert_string_equal(requests[i].error, "");
      assert_int_equal(server_output(&requests[i], "sum")->dims[1], 0);
      server_forget(&requests[i]);
    }
  }
  sample_unload(&sample);
}

// More than the largest batch are several.
static void large_batches(void** state) {
  (void)state;
  sample_t sample;
  float x[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  struct TRITONBACKEND_Request requests[3] = {0};
  sample_build(&sample, "cpu", make_two);
  sample_load(&sample);
  for (int i = 0; i < 3; ++i) {
    requests[i] = (struct TRITONBACKEND_Request){WANTS("sum")};
    server_add_input(&requests[i], "x", 2, (int64_t[]){5, 2}, x, sizeof(x));
  }
  sample_serve(&sample, requests, 3);
  assert_int_equal(sample.instance.batches, 3);
  assert_int_equal(sample.instance.largest, 5);
  for (int i = 0; i < 3; ++i)
    server_forget(&requests[i]);
  sample_unload(&sample);
}

// A failure is that of one request, with its reason; the others are served.
static void failures(void** state) {
  (void)state;
  sample_t sample;
  float x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  struct TRITONBACKEND_Request requests[8] = {0};
  static const struct {
    const char* error;
    TRITONSERVER_Error_Code code;
  } expected[8] = {
      {"", 0},
      {"no input 'x'", TRITONSERVER_ERROR_INVALID_ARG},
      {"input 'x' has 12 bytes; FLOAT of shape (2, 2) has 16",
       TRITONSERVER_ERROR_INVALID_ARG},
      {"input 'x' has 1 dimensions; expected 2",
       TRITONSERVER_ERROR_INVALID_ARG},
      {"the request was cancelled", TRITONSERVER_ERROR_CANCELLED},
      {"the plan has no output 'x'", TRITONSERVER_ERROR_NOT_FOUND},
      {"dimension 1 of input 'x'", TRITONSERVER_ERROR_INVALID_ARG},
      {"", 0},
  };
  sample_build(&sample, "cpu", make_two);
  sample_load(&sample);
  for (int i = 0; i < 8; ++i) {
    requests[i] = (struct TRITONBACKEND_Request){WANTS("sum")};
    if (i != 1)
      server_add_input(&requests[i], "x", 2, (int64_t[]){2, 2}, x, 16);
  }
  requests[2].inputs[0].buffers[0].size = 12;
  requests[3].inputs[0].rank = 1;
  requests[4].cancelled = true;
  requests[5].wanted[0] = "x";
  requests[6].inputs[0].dims[1] = 6;
  requests[6].inputs[0].buffers[0].size = 48;
  sample_serve(&sample, requests, 8);
  for (int i = 0; i < 8; ++i) {
    if (!strstr(requests[i].error, expected[i].error))
      print_error("%d: '%s'\n", i, requests[i].error);
    assert_non_null(strstr(requests[i].error, expected[i].error));
    assert_int_equal(!*requests[i].error, !*expected[i].error);
    assert_int_equal(requests[i].code, expected[i].code);
    server_forget(&requests[i]);
  }
  assert_int_equal(sample.instance.rows, 4);
  sample_unload(&sample);
}

// The run of a batch fails because of one request.
static void failure_in_a_batch(void** state) {
  (void)state;
  sample_t sample;
  float x[3][2] = {{1, 2}, {3, -4}, {5, 6}};
  struct TRITONBACKEND_Request requests[3] = {0};
  sample_build(&sample, "cpu", make_positive);
  sample_load(&sample);
  for (int i = 0; i < 3; ++i) {
    requests[i] = (struct TRITONBACKEND_Request){WANTS("y")};
    server_add_input(&requests[i], "x", 2, (int64_t[]){1, 2}, x[i], 8);
  }
  sample_serve(&sample, requests, 3);
  assert_non_null(strstr(requests[1].error, "element 1 is -4"));
  assert_int_equal(requests[1].code, TRITONSERVER_ERROR_INTERNAL);
  for (int i = 0; i < 3; ++i) {
    if (i != 1)
      sample_expect_floats(server_output(&requests[i], "y"), DIMS(1, 2), x[i]);
    server_forget(&requests[i]);
  }
  assert_int_equal(sample.instance.batches, 2);
  sample_unload(&sample);
}

static void data_dependent(void** state) {
  (void)state;
  sample_t sample;
  float x[2][5] = {{0, 1, 0, 0, 2}, {0, 0, 0, 0, 0}};
  sample_build(&sample, "cpu", make_positions);
  sample_load(&sample);
  for (int i = 0; i < 2; ++i) {
    struct TRITONBACKEND_Request request = {WANTS("positions")};
    server_add_input(&request, "x", 1, (int64_t[]){5}, x[i], sizeof(x[i]));
    sample_serve(&sample, &request, 1);
    const struct TRITONBACKEND_Output* output =
        server_output(&request, "positions");
    assert_non_null(output);
    assert_int_equal(output->type, TRITONSERVER_TYPE_INT32);
    assert_int_equal(output->rank, 2);
    assert_int_equal(output->dims[0], 1);
    assert_int_equal(output->dims[1], i ? 0 : 2);
    if (i == 0)
      assert_memory_equal(output->buffer.data, ((int32_t[]){1, 4}), 8);
    server_forget(&request);
  }
  sample_unload(&sample);
}

// Shapes choose the profile.
static void profiles(void** state) {
  (void)state;
  sample_t sample;
  float x[300];
  for (int i = 0; i < 300; ++i)
    x[i] = (float)i;
  sample_build(&sample, "cpu", make_two_profiles);
  sample_load(&sample);
  assert_non_null(strstr(sample.model.config, "\"max_batch_size\":8"));
  for (int i = 0; i < 4; ++i) {
    struct TRITONBACKEND_Request request = {WANTS("sum")};
    int64_t dims[2] = {i % 2 ? 2 : 8, i % 2 ? 150 : 3};
    server_add_input(&request, "x", 2, dims, x,
                     (size_t)(dims[0] * dims[1]) * sizeof(float));
    sample_serve(&sample, &request, 1);
    assert_string_equal(request.error, "");
    const float* sum = server_output(&request, "sum")->buffer.data;
    assert_true(sum[23] == 46);
    server_forget(&request);
  }
  struct TRITONBACKEND_Request request = {WANTS("sum")};
  server_add_input(&request, "x", 2, (int64_t[]){3, 100}, x, 1200);
  sample_serve(&sample, &request, 1);
  assert_non_null(strstr(request.error, "dimension 1 of input 'x'"));
  server_forget(&request);
  sample_unload(&sample);
}

static void instances_share_an_engine(void** state) {
  (void)state;
  sample_t sample;
  sample_build(&sample, "cpu", make_two);
  sample_load(&sample);
  // A plan for the CPU is the same on each GPU's instance.
  struct TRITONBACKEND_ModelInstance other = {
      .model = &sample.model,
      .kind = TRITONSERVER_INSTANCEGROUPKIND_GPU,
      .gpu = 1};
  sample_expect_ok(TRITONBACKEND_ModelInstanceInitialize(&other));
  const rabbet_triton_instance_t* a = sample.instance.state;
  const rabbet_triton_instance_t* b = other.state;
  assert_ptr_equal(a->engine, b->engine);
  assert_int_equal(a->model->engine_count, 1);
  sample_expect_ok(TRITONBACKEND_ModelInstanceFinalize(&other));
  sample_unload(&sample);
}

static void gpu_memory_for_the_cpu(void** state) {
  (void)state;
  sample_t sample;
  float x[2] = {1, 2};
  sample_build(&sample, "cpu", make_two);
  sample_load(&sample);
  struct TRITONBACKEND_Request request = {WANTS("sum")};
  server_add_input(&request, "x", 2, (int64_t[]){1, 2}, x, 8)->buffers[0].type =
      TRITONSERVER_MEMORY_GPU;
  sample_serve(&sample, &request, 1);
  assert_non_null(strstr(request.error,
                         "input 'x' is in memory of GPU 0, and the plan is for "
                         "the device 'cpu"));
  server_forget(&request);
  sample_unload(&sample);
}

// ---- Sequences

#define TOTAL_CONFIG                                                  \
  "{\"name\":\"sample\",\"max_batch_size\":8,\"sequence_batching\":{" \
  "\"state\":[{\"input_name\":\"kept\",\"output_name\":\"total\"}]}}"

static void states(void** state) {
  (void)state;
  sample_t sample;
  float x[2][2] = {{1, 2}, {3, 4}}, kept[2][2] = {{10, 20}, {30, 40}};
  const float totals[2][2] = {{11, 22}, {33, 44}};
  const float twice[2][2] = {{22, 44}, {66, 88}};
  sample_build(&sample, "cpu", make_total);
  strcpy(sample.model.config, TOTAL_CONFIG);
  sample_load(&sample);
  // One sequence, then two in a batch.
  for (uint32_t count = 1; count <= 2; ++count) {
    struct TRITONBACKEND_Request requests[2];
    for (uint32_t i = 0; i < count; ++i) {
      requests[i] = (struct TRITONBACKEND_Request){WANTS("twice")};
      server_add_input(&requests[i], "x", 2, (int64_t[]){1, 2}, x[i], 8);
      server_add_input(&requests[i], "kept", 2, (int64_t[]){1, 2}, kept[i], 8);
    }
    sample_serve(&sample, requests, count);
    for (uint32_t i = 0; i < count; ++i) {
      const struct TRITONBACKEND_State* total =
          server_state(&requests[i], "total");
      assert_string_equal(requests[i].error, "");
      sample_expect_floats(&total->tensor, DIMS(1, 2), totals[i]);
      assert_true(total->updated);
      sample_expect_floats(server_output(&requests[i], "twice"), DIMS(1, 2),
                           twice[i]);
      assert_null(server_output(&requests[i], "total"));
      server_forget(&requests[i]);
    }
  }
  sample_unload(&sample);
}

// A state that is an output as well, of one that is updated in its place.
static void state_in_place(void** state) {
  (void)state;
  sample_t sample;
  float kept[2] = {5, 6};
  sample_build(&sample, "cpu", make_counter);
  strcpy(sample.model.config,
         "{\"name\":\"sample\",\"max_batch_size\":0,\"output\":[{\"name\":"
         "\"next\"}],\"sequence_batching\":{\"state\":[{\"input_name\":"
         "\"kept\",\"output_name\":\"next\"}]}}");
  sample_load(&sample);
  for (int i = 0; i < 4; ++i) {
    struct TRITONBACKEND_Request request = {.same_buffer = "kept"};
    if (i == 2) request.wanted[request.wanted_count++] = "next";
    server_add_input(&request, "kept", 2, (int64_t[]){1, 2}, kept, 8);
    sample_serve(&sample, &request, 1);
    assert_string_equal(request.error, "");
    assert_true(server_state(&request, "next")->updated);
    assert_true(kept[0] == (float)(6 + i) && kept[1] == (float)(7 + i));
    if (i == 2)
      sample_expect_floats(server_output(&request, "next"), DIMS(1, 2), kept);
    server_forget(&request);
  }
  sample_unload(&sample);
}

// ---- The GPU

#ifdef RABBET_TEST_CUDA
static rabbet_engine_t* gpu_engine;  // whose memory the server gives

static void* gpu_allocate(size_t size) {
  void* memory = NULL;
  RABBET_EXPECT_OK(rabbet_engine_allocate(gpu_engine, size, &memory));
  return memory;
}

static void gpu_free(void* memory) {
  rabbet_engine_free(gpu_engine, memory);
}

static void gpu_put(struct TRITONBACKEND_Input* input) {
  server_buffer_t* buffer = &input->buffers[0];
  void* memory = gpu_allocate(buffer->size);
  RABBET_EXPECT_OK(rabbet_engine_copy_to_device(
      gpu_engine, memory, buffer->data, buffer->size, NULL));
  buffer->data = memory;
  buffer->type = TRITONSERVER_MEMORY_GPU;
}

static void expect_gpu_floats(const struct TRITONBACKEND_Output* output,
                              rabbet_dims_t dims, const float* expected) {
  float found[16];
  assert_non_null(output);
  struct TRITONBACKEND_Output copy = *output;
  if (output->buffer.type == TRITONSERVER_MEMORY_GPU) {
    RABBET_EXPECT_OK(rabbet_engine_copy_to_host(
        gpu_engine, found, output->buffer.data, output->buffer.size, NULL));
    copy.buffer.data = found;
  }
  sample_expect_floats(&copy, dims, expected);
}

// Each combination of places of inputs and outputs, one request and two.
static void gpu_places(void** state) {
  (void)state;
  sample_t sample;
  float x[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  sample_build(&sample, "cuda", make_two);
  sample.instance.kind = TRITONSERVER_INSTANCEGROUPKIND_GPU;
  sample_load(&sample);
  rabbet_triton_instance_t* instance = sample.instance.state;
  gpu_engine = instance->engine;
  assert_int_equal(instance->gpu, 0);
  assert_non_null(instance->stream);
  server_gpu_allocate = gpu_allocate;
  server_gpu_free = gpu_free;
  for (int places = 0; places < 16; ++places) {
    uint32_t count = 1 + (places >> 3 & 1);
    struct TRITONBACKEND_Request requests[2];
    for (uint32_t i = 0; i < count; ++i) {
      requests[i] = (struct TRITONBACKEND_Request){WANTS("sum")};
      struct TRITONBACKEND_Input* input =
          server_add_input(&requests[i], "x", 2, (int64_t[]){2, 2}, x[i], 16);
      if (places >> i & 1) gpu_put(input);
      if (places >> 2 & 1) requests[i].memory = TRITONSERVER_MEMORY_GPU;
    }
    sample_serve(&sample, requests, count);
    for (uint32_t i = 0; i < count; ++i) {
      float sum[4];
      for (int k = 0; k < 4; ++k)
        sum[k] = 2 * x[i][k];
      assert_string_equal(requests[i].error, "");
      expect_gpu_floats(server_output(&requests[i], "sum"), DIMS(2, 2), sum);
      if (places >> i & 1) gpu_free(requests[i].inputs[0].buffers[0].data);
      server_forget(&requests[i]);
    }
  }
  sample_unload(&sample);
}

// States stay on the GPU, also those of a batch.
static void gpu_states(void** state) {
  (void)state;
  sample_t sample;
  float x[2][2] = {{1, 2}, {3, 4}}, kept[2][2] = {{10, 20}, {30, 40}};
  const float totals[2][2] = {{11, 22}, {33, 44}};
  sample_build(&sample, "cuda", make_total);
  strcpy(sample.model.config, TOTAL_CONFIG);
  sample.instance.kind = TRITONSERVER_INSTANCEGROUPKIND_GPU;
  sample_load(&sample);
  gpu_engine = ((rabbet_triton_instance_t*)sample.instance.state)->engine;
  server_gpu_allocate = gpu_allocate;
  server_gpu_free = gpu_free;
  for (uint32_t count = 1; count <= 2; ++count) {
    struct TRITONBACKEND_Request requests[2];
    for (uint32_t i = 0; i < count; ++i) {
      requests[i] =
          (struct TRITONBACKEND_Request){.memory = TRITONSERVER_MEMORY_GPU};
      server_add_input(&requests[i], "x", 2, (int64_t[]){1, 2}, x[i], 8);
      gpu_put(server_add_input(&requests[i], "kept", 2, (int64_t[]){1, 2},
                               kept[i], 8));
    }
    sample_serve(&sample, requests, count);
    for (uint32_t i = 0; i < count; ++i) {
      const struct TRITONBACKEND_State* total =
          server_state(&requests[i], "total");
      assert_string_equal(requests[i].error, "");
      assert_int_equal(total->tensor.buffer.type, TRITONSERVER_MEMORY_GPU);
      expect_gpu_floats(&total->tensor, DIMS(1, 2), totals[i]);
      gpu_free(requests[i].inputs[1].buffers[0].data);
      server_forget(&requests[i]);
    }
  }
  sample_unload(&sample);
}

#endif

// ---- Faults

// Each call of the server fails in turn: while a model is loaded, that is
// refused; afterwards each request is still answered and released.
static void server_failures(void** state) {
  (void)state;
  float x[2] = {1, 2}, kept[2] = {3, 4};
  sample_t sample;
  sample_build(&sample, "cpu", make_total);
  for (int64_t at = 0, failed = 1; failed; ++at) {
    TRITONBACKEND_Request* list[2];
    struct TRITONBACKEND_Request requests[2];
    strcpy(sample.model.config, TOTAL_CONFIG);
    sample.model.state = sample.instance.state = NULL;
    server_faults.calls = 0;
    server_faults.failed = false;
    server_faults.fail_at = at;
    TRITONSERVER_Error* error = TRITONBACKEND_ModelInitialize(&sample.model);
    if (!error) error = TRITONBACKEND_ModelInstanceInitialize(&sample.instance);
    bool loaded = !error;
    if (loaded) sample_set_answers(&sample.instance);
    assert_true(loaded || server_faults.failed);
    if (error) TRITONSERVER_ErrorDelete(error);
    for (int i = 0; i < 2 && loaded; ++i) {
      requests[i] = (struct TRITONBACKEND_Request){WANTS("twice", "total")};
      server_add_input(&requests[i], "x", 2, (int64_t[]){1, 2}, x, 8);
      server_add_input(&requests[i], "kept", 2, (int64_t[]){1, 2}, kept, 8);
      list[i] = &requests[i];
    }
    if (loaded) {
      sample_expect_ok(
          TRITONBACKEND_ModelInstanceExecute(&sample.instance, list, 2));
      server_wait(requests, 2);
    }
    failed = server_faults.failed;
    server_faults.fail_at = -1;
    for (int i = 0; i < 2 && loaded; ++i) {
      assert_int_equal(requests[i].released, 1);
      // Only a request without a response has no answer.
      assert_true(requests[i].sent == 1 || failed);
      if (requests[i].success) {
        assert_non_null(server_output(&requests[i], "twice"));
        assert_true(server_state(&requests[i], "total")->updated);
      }
      server_forget(&requests[i]);
    }
    if (sample.instance.state)
      sample_expect_ok(TRITONBACKEND_ModelInstanceFinalize(&sample.instance));
    sample_expect_ok(TRITONBACKEND_ModelFinalize(&sample.model));
    assert_int_equal(server_faults.errors, 0);
  }
  sample_end(&sample);
}

static rabbet_status_t load_and_serve(rabbet_allocator_t allocator,
                                      void* user_data) {
  sample_t* sample = user_data;
  float x[2] = {1, 2}, kept[2] = {3, 4};
  rabbet_triton_model_t* model = NULL;
  rabbet_triton_instance_t* instance = NULL;
  strcpy(sample->model.config, TOTAL_CONFIG);
  rabbet_status_t status =
      rabbet_triton_model_create(&sample->model, allocator, &model);
  if (rabbet_is_ok(status))
    status = rabbet_triton_instance_create(model, &sample->instance, &instance);
  if (rabbet_is_ok(status)) {
    if (sample_answers_later) instance->answers.worth = 0;
    struct TRITONBACKEND_Request requests[2];
    TRITONBACKEND_Request* list[2];
    for (int i = 0; i < 2; ++i) {
      requests[i] = (struct TRITONBACKEND_Request){WANTS("twice")};
      server_add_input(&requests[i], "x", 2, (int64_t[]){1, 2}, x, 8);
      server_add_input(&requests[i], "kept", 2, (int64_t[]){1, 2}, kept, 8);
      list[i] = &requests[i];
    }
    status = rabbet_triton_instance_serve(instance, list, 2);
    if (rabbet_is_ok(status)) server_wait(requests, 2);
    for (int i = 0; i < 2; ++i) {
      assert_int_equal(requests[i].released, rabbet_is_ok(status));
      server_forget(&requests[i]);
    }
  }
  rabbet_triton_instance_destroy(instance);
  rabbet_triton_model_destroy(model);
  return status;
}

static void allocation_failures(void** state) {
  (void)state;
  sample_t sample;
  sample_build(&sample, "cpu", make_total);
  assert_true(rabbet_fault_run_tolerant(load_and_serve, &sample) > 10);
  sample_end(&sample);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(completed),
      cmocka_unit_test(configurations),
      cmocka_unit_test(not_completed),
      cmocka_unit_test(bad_plans),
      cmocka_unit_test(server_versions),
      cmocka_unit_test(one_request),
      cmocka_unit_test(batches),
      cmocka_unit_test(large_batches),
      cmocka_unit_test(empty_tensors),
      cmocka_unit_test(failures),
      cmocka_unit_test(failure_in_a_batch),
      cmocka_unit_test(data_dependent),
      cmocka_unit_test(profiles),
      cmocka_unit_test(instances_share_an_engine),
      cmocka_unit_test(gpu_memory_for_the_cpu),
      cmocka_unit_test(states),
      cmocka_unit_test(state_in_place),
#ifdef RABBET_TEST_CUDA
      cmocka_unit_test(gpu_places),
      cmocka_unit_test(gpu_states),
#endif
      cmocka_unit_test(server_failures),
      cmocka_unit_test(allocation_failures),
  };
  int failed = cmocka_run_group_tests(tests, register_plugins, NULL);
  // Once more with batches answered on another thread, however short they are.
  sample_answers_later = true;
  return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
