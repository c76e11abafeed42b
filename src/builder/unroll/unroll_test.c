// Loops are unrolled: structure and names. Their results are tested through the
// package.
#include "builder/unroll/unroll.h"

#include "builder/unroll/branches.h"

#include "build_check.h"
#include "faults/fault_allocator.h"

static rabbet_tensor_t* number(net_t* net, int64_t value) {
  rabbet_tensor_t* tensor = NULL;
  const rabbet_dims_t scalar = {.rank = 0};
  RABBET_EXPECT_OK(rabbet_network_add_weights(
      net->network, NULL, (rabbet_weights_t){RABBET_DTYPE_INT64, &value, 1},
      &scalar, true, &tensor));
  return tensor;
}

static rabbet_loop_t* loop_of(net_t* net, const char* name, int64_t trips) {
  rabbet_loop_t* loop = NULL;
  rabbet_layer_t* limit = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_loop(net->network, name, &loop));
  RABBET_EXPECT_OK(rabbet_loop_add_trip_limit(loop, number(net, trips),
                                              RABBET_TRIP_LIMIT_COUNT, &limit));
  return loop;
}

static rabbet_layer_t* state_of(rabbet_loop_t* loop, rabbet_tensor_t* initial) {
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_OK(rabbet_loop_add_recurrence(loop, initial, &layer));
  return layer;
}

static rabbet_tensor_t* output_of(rabbet_loop_t* loop, rabbet_tensor_t* tensor,
                                  rabbet_loop_output_t kind) {
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_OK(rabbet_loop_add_output(loop, tensor, kind, 0, &layer));
  return rabbet_layer_output(layer, 0);
}

// In each of two rows' iterations, three additions of the row.
static net_t nested(void) {
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 4));
  rabbet_loop_t* rows = loop_of(&net, "rows", 2);
  rabbet_layer_t* row = NULL;
  RABBET_EXPECT_OK(rabbet_loop_add_iterator(rows, x, 0, true, &row));
  rabbet_loop_t* steps = loop_of(&net, "steps", 3);
  rabbet_layer_t* sum = state_of(steps, rabbet_layer_output(row, 0));
  RABBET_EXPECT_OK(rabbet_layer_set_input(
      sum, 1,
      net_binary(&net, "add", "SUM", rabbet_layer_output(sum, 0),
                 rabbet_layer_output(row, 0))));
  rabbet_tensor_t* last = output_of(steps, rabbet_layer_output(sum, 0),
                                    RABBET_LOOP_OUTPUT_LAST_VALUE);
  net_output(&net, output_of(rows, last, RABBET_LOOP_OUTPUT_CONCATENATE), "y");
  return net;
}

static const rabbet_layer_t* layer_named(const rabbet_network_t* network,
                                         const char* name) {
  for (size_t i = 0; i < rabbet_network_layer_count(network); ++i) {
    const rabbet_layer_t* layer = rabbet_network_layer(network, i);
    if (strcmp(rabbet_layer_name(layer), name) == 0) return layer;
  }
  return NULL;
}

static void names_tell_loop_and_iteration(void** state) {
  (void)state;
  net_t net = nested();
  rabbet_network_t* flat = NULL;
  RABBET_EXPECT_OK(
      rabbet_network_unroll(net.network, rabbet_allocator_system(), &flat));
  assert_int_equal(rabbet_network_loop_count(flat), 0);
  assert_non_null(layer_named(flat, "rows[0]/steps[0]/add"));
  assert_non_null(layer_named(flat, "rows[1]/steps[2]/add"));
  assert_null(layer_named(flat, "rows[1]/steps[3]/add"));
  assert_null(layer_named(flat, "rows[2]/steps[0]/add"));
  rabbet_dims_t dims;
  RABBET_EXPECT_OK(rabbet_tensor_dims(rabbet_network_output(flat, 0), &dims));
  assert_int_equal(dims.rank, 2);
  assert_int_equal(dims.d[0], 2);
  assert_string_equal(rabbet_tensor_name(rabbet_network_output(flat, 0)), "y");
  rabbet_network_release(flat);
  net_end(&net);
}

// It keeps the network alive whose weights it shares.
static void a_network_without_loops_is_itself(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  net_output(&net,
             net_unary(&net, "e", "EXP",
                       net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2))),
             "y");
  rabbet_network_t* flat = NULL;
  RABBET_EXPECT_OK(
      rabbet_network_unroll(net.network, rabbet_allocator_system(), &flat));
  assert_ptr_equal(flat, net.network);
  rabbet_network_release(flat);
  net_end(&net);
}

static void removed_layers_leave_their_loop(void** state) {
  (void)state;
  net_t net = nested();
  rabbet_loop_t* rows = rabbet_network_loop(net.network, 0);
  rabbet_layer_t* extra = state_of(rows, number(&net, 1));
  RABBET_EXPECT_ERROR(rabbet_network_validate(net.network),
                      RABBET_STATUS_INVALID_ARGUMENT, "has no next value");
  rabbet_tensor_t* tensor = rabbet_layer_output(extra, 0);
  RABBET_EXPECT_OK(rabbet_layer_set_input(extra, 1, tensor));
  RABBET_EXPECT_ERROR(rabbet_network_remove_tensor(net.network, tensor),
                      RABBET_STATUS_FAILED_PRECONDITION, "is read by layer");
  RABBET_EXPECT_OK(rabbet_layer_set_input(extra, 1, number(&net, 2)));
  RABBET_EXPECT_OK(rabbet_network_remove_tensor(net.network, tensor));
  RABBET_EXPECT_OK(rabbet_network_validate(net.network));
  assert_ptr_equal(rabbet_layer_loop(extra), NULL);
  net_end(&net);
}

static void layers_of_loops_need_a_loop(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2));
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_ERROR(rabbet_network_add_layer(net.network, "recurrence", NULL,
                                               &x, 1, NULL, 0, &layer),
                      RABBET_STATUS_INVALID_ARGUMENT, "rabbet_loop_add_");
  net_end(&net);
}

static void demand_below(net_t* net, const char* name, rabbet_tensor_t* x,
                         rabbet_tensor_t* limit) {
  rabbet_layer_t* layer = NULL;
  rabbet_tensor_t* holds = net_binary(net, name, "LESS", x, limit);
  const rabbet_attr_t message = {.name = "message",
                                 .type = RABBET_ATTR_STRING,
                                 .data = "too large",
                                 .count = 9};
  RABBET_EXPECT_OK(rabbet_network_add_layer(net->network, "assertion", NULL,
                                            &holds, 1, &message, 1, &layer));
}

// One of each kind: constants, shapes, data.
static net_t asserting(int64_t least) {
  net_t net = nested();
  rabbet_tensor_t* x = rabbet_network_input(net.network, 0);
  rabbet_tensor_t* n = net_input(&net, "n", RABBET_DTYPE_INT64, DIMS(1));
  rabbet_tensor_t* ten =
      net_weights(&net, RABBET_DTYPE_INT64, DIMS(1), (const double[]){10});
  double low = (double)least;
  demand_below(&net, "known",
               net_weights(&net, RABBET_DTYPE_INT64, DIMS(1), &low), ten);
  demand_below(&net, "data", x, WEIGHTS(&net, 1, 1));
  rabbet_tensor_t* inputs[] = {x, n};
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_layer(net.network, "shuffle", NULL,
                                            inputs, 2, NULL, 0, &layer));
  demand_below(&net, "shape", n, ten);
  net_output(&net, rabbet_layer_output(layer, 0), "z");
  return net;
}

// Without loops, conditionals and assertions.
static rabbet_status_t flatten(rabbet_network_t* network,
                               rabbet_network_t** out_flat) {
  rabbet_network_t* unrolled = NULL;
  RABBET_EXPECT_OK(
      rabbet_network_unroll(network, rabbet_allocator_system(), &unrolled));
  rabbet_status_t status = rabbet_network_split_branches(
      unrolled, rabbet_allocator_system(), out_flat);
  rabbet_network_release(unrolled);
  return status;
}

static void assertions_become_checks(void** state) {
  (void)state;
  net_t net = asserting(5);
  rabbet_network_t* flat = NULL;
  RABBET_EXPECT_OK(flatten(net.network, &flat));
  // The check that is known to hold is gone.
  assert_int_equal(flat->checks.count, 2);
  assert_int_equal(flat->checks.data[0].index, -1);
  assert_int_equal(flat->checks.data[1].index, 0);
  assert_int_equal(flat->checks.data[1].tensor->dtype, RABBET_DTYPE_INT32);
  rabbet_network_release(flat);
  net_end(&net);
  net = asserting(11);
  RABBET_EXPECT_ERROR(flatten(net.network, &flat),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "never holds: too large");
  net_end(&net);
}

static rabbet_status_t unroll(rabbet_allocator_t allocator, void* network) {
  rabbet_network_t* flat = NULL;
  rabbet_status_t status = rabbet_network_unroll(network, allocator, &flat);
  rabbet_network_release(flat);
  return status;
}

static void every_allocation_may_fail(void** state) {
  (void)state;
  net_t net = asserting(5);
  RABBET_EXPECT_OK(rabbet_network_validate(net.network));
  assert_true(rabbet_fault_run(unroll, net.network) > 10);
  net_end(&net);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_tell_loop_and_iteration),
      cmocka_unit_test(a_network_without_loops_is_itself),
      cmocka_unit_test(removed_layers_leave_their_loop),
      cmocka_unit_test(assertions_become_checks),
      cmocka_unit_test(layers_of_loops_need_a_loop),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("unroll", tests, NULL, NULL);
}
