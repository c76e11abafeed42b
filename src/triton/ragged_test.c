// Requests of different shapes as one batch: what batch inputs hold, how
// outputs are divided, and configurations that do not fit.
#include "triton/ragged.h"

#include "triton_stand_in/sample.h"

// sum = x + x, of all requests; twice = n + n, of what the server tells of
// them.
static void make(sample_net_t* net, rabbet_dtype_t dtype, int32_t rank) {
  rabbet_dims_t any = rank == 2 ? DIMS(-1, -1) : DIMS(-1);
  rabbet_dims_t least = rank == 2 ? DIMS(1, 1) : DIMS(1);
  rabbet_dims_t most = rank == 2 ? DIMS(8, 4) : DIMS(9);
  rabbet_tensor_t* x = sample_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(-1));
  rabbet_tensor_t* n = sample_input(net, "n", dtype, any);
  sample_output(net, sample_combine(net, x, x, 0), "sum");
  sample_output(net, sample_combine(net, n, n, 0), "twice");
  sample_range(net, 0, "x", DIMS(1), DIMS(8), DIMS(24));
  sample_range(net, 0, "n", least, most, most);
}

static void make_int32(sample_net_t* net) {
  make(net, RABBET_DTYPE_INT32, 1);
}
static void make_int64(sample_net_t* net) {
  make(net, RABBET_DTYPE_INT64, 1);
}
static void make_float(sample_net_t* net) {
  make(net, RABBET_DTYPE_FLOAT, 1);
}
static void make_half(sample_net_t* net) {
  make(net, RABBET_DTYPE_HALF, 1);
}
static void make_shapes(sample_net_t* net) {
  make(net, RABBET_DTYPE_INT32, 2);
}

// `dims`: of the input x in requests, without the batch.
static void configure(sample_t* sample, const char* kind, const char* type,
                      const char* dims, const char* more) {
  snprintf(sample->model.config, sizeof(sample->model.config),
           "{\"name\":\"sample\",\"max_batch_size\":8,\"input\":[{\"name\":"
           "\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":[%s],"
           "\"allow_ragged_batch\":true}],\"batch_input\":[{\"kind\":\"%s\","
           "\"target_name\":[\"n\"],\"data_type\":\"%s\",\"source_input\":"
           "[\"x\"]}]%s}",
           dims, kind, type, more);
}

// ---- Values

typedef struct values_case_t {
  void (*make)(sample_net_t* net);
  const char *kind, *type, *dims;
  rabbet_dims_t shape;  // of the batch input
  double expected[8];
} values_case_t;

// Two requests: two rows of shape (3, 1), one of (2, 2).
static void values(void** state) {
  (void)state;
  const values_case_t cases[] = {
      {make_int32,
       "BATCH_ELEMENT_COUNT",
       "TYPE_INT32",
       "-1,-1",
       DIMS(2),
       {6, 4}},
      {make_int64,
       "BATCH_ELEMENT_COUNT",
       "TYPE_INT32",
       "-1,-1",
       DIMS(2),
       {6, 4}},
      {make_float,
       "BATCH_ACCUMULATED_ELEMENT_COUNT",
       "TYPE_FP32",
       "-1,-1",
       DIMS(2),
       {6, 10}},
      {make_int32,
       "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
       "TYPE_INT32",
       "-1,-1",
       DIMS(3),
       {0, 6, 10}},
      {make_int32,
       "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
       "TYPE_INT32",
       "-1,-1",
       DIMS(6),
       {0}},
      {make_shapes,
       "BATCH_ITEM_SHAPE",
       "TYPE_INT32",
       "-1,-1",
       DIMS(3, 2),
       {3, 1, 3, 1, 2, 2}},
      {make_float,
       "BATCH_ITEM_SHAPE_FLATTEN",
       "TYPE_FP32",
       "-1,-1",
       DIMS(6),
       {3, 1, 3, 1, 2, 2}},
  };
  for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); ++k) {
    sample_t sample;
    rabbet_dims_t dims;
    rabbet_triton_call_t call;
    int64_t data[8] = {0};
    const uint32_t group[2] = {1, 0};
    sample_build(&sample, "cpu", cases[k].make);
    configure(&sample, cases[k].kind, cases[k].type, cases[k].dims, "");
    sample_load(&sample);
    const rabbet_triton_model_t* model = sample.model.state;
    RABBET_EXPECT_OK(rabbet_triton_call_initialize(
        SAMPLE_ALLOCATOR, model->plan.io_count, &call));
    RABBET_EXPECT_OK(rabbet_triton_call_reserve(SAMPLE_ALLOCATOR, 2, &call));
    call.requests[1].rows = 2;
    rabbet_triton_call_tensor(&call, 1, 0)->dims = DIMS(2, 3, 1);
    call.requests[0].rows = 1;
    rabbet_triton_call_tensor(&call, 0, 0)->dims = DIMS(1, 2, 2);
    rabbet_triton_joined_dims(model, &call, group, 2, 0, &dims);
    assert_int_equal(dims.rank, 1);
    assert_int_equal(dims.d[0], 10);
    rabbet_triton_joined_dims(model, &call, group, 2, 1, &dims);
    assert_int_equal(dims.rank, cases[k].shape.rank);
    assert_memory_equal(dims.d, cases[k].shape.d,
                        (size_t)dims.rank * sizeof(*dims.d));
    RABBET_EXPECT_OK(
        rabbet_triton_ragged_fill(model, &call, group, 2, 1, data));
    for (int i = 0; i < 8; ++i) {
      double found = cases[k].make == make_int64   ? (double)data[i]
                     : cases[k].make == make_float ? ((float*)data)[i]
                                                   : ((int32_t*)data)[i];
      assert_true(found == cases[k].expected[i]);
      if (cases[k].make != make_int64 && i == 7) break;
    }
    // More elements than the type can count.
    rabbet_triton_call_tensor(&call, 0, 0)->dims = DIMS(1, 1 << 20, 1 << 20);
    bool shape_only = strstr(cases[k].kind, "SHAPE") != NULL;
    rabbet_status_t status =
        rabbet_triton_ragged_fill(model, &call, group, 2, 1, data);
    if (shape_only || cases[k].make == make_int64)
      RABBET_EXPECT_OK(status);
    else
      RABBET_EXPECT_ERROR(status, RABBET_STATUS_OUT_OF_RANGE,
                          "batch_input 'n' would hold");
    rabbet_triton_call_deinitialize(SAMPLE_ALLOCATOR, &call);
    sample_unload(&sample);
  }
}

// ---- Requests

// Outputs are divided by an input's shapes, or by rows; what the profile does
// not allow together is run apart, what it does not allow at all is refused.
static void divided(void** state) {
  (void)state;
  sample_t sample;
  static const int64_t sizes[] = {3, 1, 20, 4, 25, 2};
  float x[6][25];
  struct TRITONBACKEND_Request requests[6];
  sample_build(&sample, "cpu", make_float);
  configure(&sample, "BATCH_ELEMENT_COUNT", "TYPE_FP32", "-1",
            ",\"batch_output\":[{\"kind\":\"BATCH_SCATTER_WITH_INPUT_SHAPE\","
            "\"target_name\":[\"sum\"],\"source_input\":[\"x\"]}]");
  sample_load(&sample);
  for (int i = 0; i < 6; ++i) {
    requests[i] = (struct TRITONBACKEND_Request){.wanted = {"sum", "twice"},
                                                 .wanted_count = 2};
    for (int k = 0; k < 25; ++k)
      x[i][k] = (float)(100 * i + k);
    server_add_input(&requests[i], "x", 2, (int64_t[]){1, sizes[i]}, x[i],
                     (size_t)sizes[i] * sizeof(float));
  }
  sample_serve(&sample, requests, 6);
  // 3 + 1 + 20, then 4 + 2.
  assert_int_equal(sample.instance.batches, 2);
  assert_int_equal(sample.instance.largest, 3);
  for (int i = 0; i < 6; ++i) {
    float sum[25], twice = (float)(2 * sizes[i]);
    for (int k = 0; k < 25; ++k)
      sum[k] = 2 * x[i][k];
    if (sizes[i] == 25) {
      assert_non_null(strstr(requests[i].error, "input 'x'"));
    } else {
      assert_string_equal(requests[i].error, "");
      sample_expect_floats(server_output(&requests[i], "sum"),
                           DIMS(1, sizes[i]), sum);
      sample_expect_floats(server_output(&requests[i], "twice"), DIMS(1),
                           &twice);
    }
    server_forget(&requests[i]);
  }
  sample_unload(&sample);
}

// An output that has neither a row for each row nor the elements of the input.
static void not_divided(void** state) {
  (void)state;
  static const char* const more[] = {
      "",
      ",\"batch_output\":[{\"target_name\":[\"twice\"],\"source_input\":"
      "[\"x\"]}],\"output\":[{\"name\":\"twice\",\"data_type\":\"TYPE_FP32\","
      "\"dims\":[-1]},{\"name\":\"sum\"}]"};
  for (int k = 0; k < 2; ++k) {
    for (uint32_t count = 1; count <= 2; ++count) {
      sample_t sample;
      float x[5] = {1, 2, 3, 4, 5};
      struct TRITONBACKEND_Request requests[2];
      sample_build(&sample, "cpu", make_float);
      configure(&sample, "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
                "TYPE_FP32", "-1", more[k]);
      sample_load(&sample);
      for (uint32_t i = 0; i < count; ++i) {
        requests[i] = (struct TRITONBACKEND_Request){.wanted = {"twice"},
                                                     .wanted_count = 1};
        server_add_input(&requests[i], "x", 2, (int64_t[]){1, 5}, x, 20);
      }
      sample_serve(&sample, requests, count);
      for (uint32_t i = 0; i < count; ++i) {
        assert_non_null(strstr(requests[i].error, "output 'twice' has shape"));
        server_forget(&requests[i]);
      }
      sample_unload(&sample);
    }
  }
}

// ---- Configurations

#define COUNT_OF_X                                             \
  "{\"kind\":\"BATCH_ELEMENT_COUNT\",\"target_name\":[\"n\"]," \
  "\"data_type\":\"TYPE_INT32\",\"source_input\":[\"x\"]}"

static void configurations(void** state) {
  (void)state;
  static const sample_config_t cases[] = {
      // The profile has room for nine counts.
      {make_int32, "\"batch_input\":[" COUNT_OF_X "]",
       "\"max_batch_size\":9,\"input\":[{\"name\":\"x\",\"allow_ragged_batch\""
       ":true,\"data_type\":\"TYPE_FP32\",\"dims\":[-1]}]",
       0},
      {make_int32,
       "\"max_batch_size\":4,\"batch_input\":[" COUNT_OF_X
       "],\"batch_output\":[{\"target_name\":[\"sum\"],\"source_input\":"
       "[\"x\"]}]",
       "\"output\":[{\"name\":\"sum\",\"data_type\":\"TYPE_FP32\",\"dims\":"
       "[-1]}",
       0},
      {make_int32,
       "\"batch_input\":[{\"kind\":\"BATCH_MAX_ELEMENT_COUNT_AS_SHAPE\","
       "\"target_name\":[\"n\"],\"data_type\":\"TYPE_INT32\","
       "\"source_input\":[\"x\"]}]",
       "has batch_input or batch_output, and no max_batch_size",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_int32,
       "\"batch_input\":[{\"kind\":\"BATCH_LENGTH\",\"target_name\":[\"n\"],"
       "\"data_type\":\"TYPE_INT32\",\"source_input\":[\"x\"]}],"
       "\"max_batch_size\":4",
       "batch_input has the unknown kind 'BATCH_LENGTH'",
       TRITONSERVER_ERROR_UNSUPPORTED},
      {make_half, "\"batch_input\":[" COUNT_OF_X "]",
       "batch_input 'n' is HALF in the plan; expected INT32, INT64 or FLOAT",
       TRITONSERVER_ERROR_UNSUPPORTED},
      {make_float, "\"batch_input\":[" COUNT_OF_X "]",
       "batch_input 'n' is TYPE_INT32 in the configuration; the plan's FLOAT "
       "wants TYPE_FP32",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_shapes, "\"batch_input\":[" COUNT_OF_X "]",
       "batch_input 'n' has 2 dimensions in the plan; BATCH_ELEMENT_COUNT has "
       "1",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_int32,
       "\"max_batch_size\":4,\"batch_input\":[{\"target_name\":[\"n\"],"
       "\"data_type\":\"TYPE_INT32\",\"source_input\":[\"n\"]}]",
       "source_input 'n' is no input of requests",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_int32,
       "\"max_batch_size\":4,\"batch_input\":[{\"target_name\":[\"n\"],"
       "\"data_type\":\"TYPE_INT32\",\"source_input\":[]}]",
       "source_input has 0 names; expected one",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_int32,
       "\"max_batch_size\":4,\"batch_input\":[" COUNT_OF_X
       "],\"batch_output\":[{\"target_name\":[\"x\"],\"source_input\":"
       "[\"x\"]}]",
       "batch_output: target_name 'x' is no output of the plan",
       TRITONSERVER_ERROR_INVALID_ARG},
      {make_int32,
       "\"max_batch_size\":4,\"batch_input\":[" COUNT_OF_X
       "],\"batch_output\":[{\"kind\":\"SPREAD\",\"target_name\":[\"sum\"],"
       "\"source_input\":[\"x\"]}]",
       "batch_output has the unknown kind 'SPREAD'",
       TRITONSERVER_ERROR_UNSUPPORTED},
      {make_int32,
       "\"max_batch_size\":4,\"batch_input\":[" COUNT_OF_X
       "],\"batch_output\":[{\"target_name\":[\"sum\"],\"source_input\":"
       "[\"x\"]}],\"output\":[{\"name\":\"sum\",\"data_type\":\"TYPE_FP32\","
       "\"dims\":[1,-1]}]",
       "batch_output 'sum': dimension 2 is -1, and source_input 'x' has 2 "
       "dimensions, batch included",
       TRITONSERVER_ERROR_INVALID_ARG},
      // Lists that are none.
      {make_int32, "\"max_batch_size\":4,\"batch_input\":[3]",
       "source_input has 0 names", TRITONSERVER_ERROR_INVALID_ARG},
      {make_int32, "\"max_batch_size\":4,\"batch_output\":{\"a\":{}}", "",
       TRITONSERVER_ERROR_INVALID_ARG},
  };
  sample_expect_configurations(cases, sizeof(cases) / sizeof(*cases));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values),
      cmocka_unit_test(divided),
      cmocka_unit_test(not_divided),
      cmocka_unit_test(configurations),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  sample_answers_later = true;
  return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
