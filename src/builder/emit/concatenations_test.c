// Concatenations whose parts are made in place, and slices that are parts of
// their input: the same numbers, fewer steps.
#include "build_check.h"
#include "test_plugins.h"

typedef struct concatenation_case_t {
  net_t net;
  rabbet_tensor_t *x, *a, *b;  // x[1,16,2,2]; a and b are computed from it
} concatenation_case_t;

static rabbet_tensor_t* relu(net_t* net, const char* name, rabbet_tensor_t* x) {
  return net_activation(net, name, "RELU", x);
}

// A plugin's outputs are never fused.
static rabbet_tensor_t* softmax(net_t* net, const char* name,
                                rabbet_tensor_t* x) {
  return net_add(net, name,
                 (net_layer_t){.op = "softmax",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {INT_ATTR("axes", 2)},
                               .attr_count = 1});
}

static rabbet_tensor_t* flat(net_t* net, const char* name, rabbet_tensor_t* x,
                             int64_t count) {
  return net_add(net, name,
                 (net_layer_t){.op = "shuffle",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {INTS_ATTR("reshape_dims", count)},
                               .attr_count = 1});
}

static concatenation_case_t case_begin_with(int64_t batch, int64_t channels) {
  concatenation_case_t j = {.net = net_begin(0, rabbet_allocator_system())};
  j.x = net_input(&j.net, "x", RABBET_DTYPE_FLOAT, DIMS(batch, channels, 2, 2));
  j.a = softmax(&j.net, "a", j.x);
  j.b = softmax(&j.net, "b", j.a);
  return j;
}

static concatenation_case_t case_begin(void) {
  return case_begin_with(1, 16);
}

// All levels agree with the reference; `steps` is the number of steps at level
// 0 on a device with reference kernels only, a conversion counting one.
static void case_end(concatenation_case_t* j, size_t steps) {
  for (int level = 0; level <= 5; ++level) {
    size_t found = check_network(&j->net, level, 1e-5);
    if (level == 0) EXPECT_STEPS(found, steps);
  }
  net_end(&j->net);
}

static void two_parts(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  net_output(&j.net,
             softmax(&j.net, "y", net_concatenate(&j.net, "c", j.a, j.b, 1)),
             "y");
  case_end(&j, 3);
}

static void last_axis_of_many(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  net_output(&j.net,
             softmax(&j.net, "y", net_concatenate(&j.net, "c", j.a, j.b, 3)),
             "y");
  case_end(&j, 4);
}

static void several_images(void** state) {
  (void)state;
  concatenation_case_t j = case_begin_with(2, 16);
  net_output(&j.net,
             softmax(&j.net, "y", net_concatenate(&j.net, "c", j.a, j.b, 1)),
             "y");
  case_end(&j, 4);
}

// Parts that end in the middle of 64 bytes.
static void crooked_parts(void** state) {
  (void)state;
  concatenation_case_t j = case_begin_with(1, 3);
  net_output(&j.net,
             softmax(&j.net, "y", net_concatenate(&j.net, "c", j.a, j.b, 1)),
             "y");
  case_end(&j, 4);
}

static void into_an_output(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  net_output(&j.net, net_concatenate(&j.net, "c", j.a, j.b, 1), "y");
  case_end(&j, 2);
}

// As in a dense block: each result is read, and a part of the next.
static void parts_of_parts(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  rabbet_tensor_t* c = net_concatenate(&j.net, "c", j.a, j.b, 1);
  rabbet_tensor_t* d =
      net_concatenate(&j.net, "d", c, softmax(&j.net, "more", c), 1);
  rabbet_tensor_t* e =
      net_concatenate(&j.net, "e", d, softmax(&j.net, "yet more", d), 1);
  net_output(&j.net, softmax(&j.net, "y", e), "y");
  case_end(&j, 5);
}

// Only one of both can have the part.
static void part_of_two(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  rabbet_tensor_t* c = net_concatenate(&j.net, "c", j.a, j.b, 1);
  rabbet_tensor_t* d = net_concatenate(&j.net, "d", j.b, j.a, 1);
  net_output(&j.net, net_binary(&j.net, "y", "SUB", c, d), "y");
  case_end(&j, 5);
}

static void part_twice(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  net_output(&j.net,
             softmax(&j.net, "y", net_concatenate(&j.net, "c", j.b, j.b, 1)),
             "y");
  case_end(&j, 4);
}

static void part_that_is_an_output(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  net_output(&j.net,
             softmax(&j.net, "y", net_concatenate(&j.net, "c", j.a, j.b, 1)),
             "y");
  net_output(&j.net, j.b, "b");
  case_end(&j, 4);
}

static void part_that_is_an_input(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  net_output(&j.net,
             softmax(&j.net, "y", net_concatenate(&j.net, "c", j.x, j.b, 1)),
             "y");
  case_end(&j, 4);
}

static void part_that_is_constant(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  rabbet_tensor_t* w = WEIGHTS(&j.net, 1, 16, 2, 2);
  net_output(&j.net,
             softmax(&j.net, "y", net_concatenate(&j.net, "c", w, j.b, 1)),
             "y");
  case_end(&j, 4);
}

// A view of the second part is an output, and not all of its memory.
static void view_of_a_part_is_an_output(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  rabbet_tensor_t* view = flat(&j.net, "view", j.b, 64);
  net_output(&j.net,
             softmax(&j.net, "y", net_concatenate(&j.net, "c", j.a, j.b, 1)),
             "y");
  net_output(&j.net, view, "v");
  case_end(&j, 4);
}

static void view_of_a_result_is_an_output(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  rabbet_tensor_t* c = net_concatenate(&j.net, "c", j.a, j.b, 1);
  net_output(&j.net, flat(&j.net, "view", c, 128), "v");
  net_output(&j.net, softmax(&j.net, "y", c), "y");
  case_end(&j, 3);
}

static void views_are_parts(void** state) {
  (void)state;
  concatenation_case_t j = case_begin();
  rabbet_tensor_t* c = net_concatenate(&j.net, "c", flat(&j.net, "fa", j.a, 64),
                                       flat(&j.net, "fb", j.b, 64), 0);
  net_output(&j.net, relu(&j.net, "y", c), "y");
  case_end(&j, 3);
}

// ---- Operators that work in place -------------------------------------------

// The reference knows no plugins: each half of output i is x plus added[].
static void end_bumped(concatenation_case_t* j, const double* added,
                       size_t outputs) {
  for (int level = 0; level <= 5; ++level) {
    rabbet_builder_config_t* config = check_config(level);
    built_t built = check_build(j->net.network, config);
    rabbet_context_t* context = NULL;
    float x[64], y[4][128];
    for (int i = 0; i < 64; ++i)
      x[i] = (float)(i % 7) - 3;
    RABBET_EXPECT_OK(rabbet_context_create(
        built.engine, rabbet_allocator_system(), &context));
    RABBET_EXPECT_OK(rabbet_context_set_address(context, 0, x));
    for (size_t i = 0; i < outputs; ++i)
      RABBET_EXPECT_OK(rabbet_context_set_address(context, 1 + i, y[i]));
    RABBET_EXPECT_OK(rabbet_context_execute(context, NULL));
    for (size_t i = 0; i < outputs; ++i)
      for (int k = 0; k < 128; ++k) {
        double expected = x[k % 64] + added[2 * i + (k >= 64)];
        if (y[i][k] != (float)expected)
          fail_msg("level %d output %zu element %d: %g instead of %g", level, i,
                   k, y[i][k], expected);
      }
    assert_int_equal(rabbet_engine_io(built.engine, 1)->aliased_input, -1);
    rabbet_context_destroy(context);
    check_built_end(&built);
    rabbet_builder_config_release(config);
  }
  net_end(&j->net);
}

static concatenation_case_t bumped_begin(void) {
  concatenation_case_t j = {.net = net_begin(0, rabbet_allocator_system())};
  j.x = net_input(&j.net, "x", RABBET_DTYPE_FLOAT, DIMS(1, 16, 2, 2));
  j.a = net_plugin(&j.net, "bump", "a", j.x);
  j.b = net_plugin(&j.net, "bump", "b", j.a);
  return j;
}

static void parts_made_in_place(void** state) {
  (void)state;
  concatenation_case_t j = bumped_begin();
  net_output(&j.net, net_concatenate(&j.net, "c", j.a, j.b, 1), "y");
  end_bumped(&j, (double[]){1, 2}, 1);
}

static void result_worked_on(void** state) {
  (void)state;
  concatenation_case_t j = bumped_begin();
  rabbet_tensor_t* c = net_concatenate(&j.net, "c", j.a, j.b, 1);
  net_output(&j.net, net_plugin(&j.net, "bump", "d", c), "y");
  net_output(&j.net, net_concatenate(&j.net, "e", j.b, j.a, 1), "z");
  end_bumped(&j, (double[]){2, 3, 2, 1}, 2);
}

// After the concatenation one of its parts is worked on in place.
static void part_worked_on(void** state) {
  (void)state;
  concatenation_case_t j = bumped_begin();
  rabbet_tensor_t* c = net_concatenate(&j.net, "c", j.a, j.b, 1);
  rabbet_tensor_t* d = net_plugin(&j.net, "bump", "d", j.b);
  net_output(
      &j.net,
      net_concatenate(&j.net, "e", d, net_plugin(&j.net, "bump", "f", d), 1),
      "y");
  net_output(&j.net, c, "z");
  end_bumped(&j, (double[]){3, 4, 1, 2}, 2);
}

// ---- Slices -----------------------------------------------------------------

// Images [first, first + count) of 16 channels.
static rabbet_tensor_t* images(net_t* net, const char* name, rabbet_tensor_t* x,
                               int64_t first, int64_t count) {
  return net_add(net, name,
                 (net_layer_t){.op = "slice",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {INTS_ATTR("start", first, 0, 0, 0),
                                         INTS_ATTR("shape", count, 16, 2, 2),
                                         INTS_ATTR("stride", 1, 1, 1, 1)},
                               .attr_count = 3});
}

static void slices_are_parts(void** state) {
  (void)state;
  concatenation_case_t j = case_begin_with(3, 16);
  net_output(&j.net, softmax(&j.net, "y", images(&j.net, "s", j.b, 1, 2)), "y");
  net_output(&j.net, softmax(&j.net, "z", images(&j.net, "t", j.b, 0, 1)), "z");
  case_end(&j, 4);
}

static void slice_of_a_slice(void** state) {
  (void)state;
  concatenation_case_t j = case_begin_with(4, 16);
  rabbet_tensor_t* s = images(&j.net, "s", j.b, 1, 3);
  net_output(&j.net, softmax(&j.net, "y", images(&j.net, "u", s, 1, 1)), "y");
  net_output(&j.net, softmax(&j.net, "z", s), "z");
  case_end(&j, 4);
}

// Memory of the caller, and results that are outputs, need copies.
static void slices_of_others(void** state) {
  (void)state;
  concatenation_case_t j = case_begin_with(3, 16);
  net_output(&j.net, softmax(&j.net, "y", images(&j.net, "s", j.x, 1, 1)), "y");
  net_output(&j.net, images(&j.net, "t", j.b, 2, 1), "z");
  case_end(&j, 5);
}

static void slices_that_overlap(void** state) {
  (void)state;
  concatenation_case_t j = case_begin_with(3, 16);
  rabbet_tensor_t* s = relu(&j.net, "r", images(&j.net, "s", j.b, 0, 2));
  net_output(&j.net, softmax(&j.net, "y", s), "y");
  net_output(&j.net, softmax(&j.net, "z", images(&j.net, "t", j.b, 1, 2)), "z");
  case_end(&j, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_parts),
      cmocka_unit_test(last_axis_of_many),
      cmocka_unit_test(several_images),
      cmocka_unit_test(crooked_parts),
      cmocka_unit_test(into_an_output),
      cmocka_unit_test(parts_of_parts),
      cmocka_unit_test(part_of_two),
      cmocka_unit_test(part_twice),
      cmocka_unit_test(part_that_is_an_output),
      cmocka_unit_test(part_that_is_an_input),
      cmocka_unit_test(part_that_is_constant),
      cmocka_unit_test(view_of_a_part_is_an_output),
      cmocka_unit_test(view_of_a_result_is_an_output),
      cmocka_unit_test(views_are_parts),
      cmocka_unit_test(parts_made_in_place),
      cmocka_unit_test(result_worked_on),
      cmocka_unit_test(part_worked_on),
      cmocka_unit_test(slices_are_parts),
      cmocka_unit_test(slice_of_a_slice),
      cmocka_unit_test(slices_of_others),
      cmocka_unit_test(slices_that_overlap),
  };
  test_plugins_register();
  int failed = cmocka_run_group_tests_name("join", tests, NULL, NULL);
  test_plugins_deregister();
  return failed;
}
