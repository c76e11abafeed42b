#include "network/network.h"

#include "check.h"
#include "core/view.h"
#include "ops/collective/dist_collective.h"

static int setup(void** state) {
  rabbet_network_t* network = NULL;
  RABBET_EXPECT_OK(rabbet_network_create(RABBET_NETWORK_STRONGLY_TYPED,
                                         rabbet_allocator_system(),
                                         (rabbet_logger_t){0}, &network));
  *state = network;
  return 0;
}

static int teardown(void** state) {
  rabbet_network_release(*state);
  return 0;
}

#define DIMS(...)                                                      \
  (rabbet_dims_t) {                                                    \
    .rank = sizeof((int64_t[]){__VA_ARGS__}) / 8, .d = { __VA_ARGS__ } \
  }

static rabbet_tensor_t* add_input(rabbet_network_t* network, const char* name,
                                  rabbet_dtype_t dtype, rabbet_dims_t dims) {
  rabbet_tensor_t* tensor = NULL;
  RABBET_EXPECT_OK(
      rabbet_network_add_input(network, name, dtype, &dims, &tensor));
  return tensor;
}

static rabbet_tensor_t* add_ints(rabbet_network_t* network, const char* name,
                                 const int64_t* values, int64_t count) {
  rabbet_tensor_t* tensor = NULL;
  rabbet_weights_t weights = {RABBET_DTYPE_INT64, values, count};
  RABBET_EXPECT_OK(rabbet_network_add_weights(network, name, weights,
                                              &DIMS(count), true, &tensor));
  return tensor;
}

static rabbet_attr_t int_attr(const char* name, const int64_t* value) {
  return (rabbet_attr_t){
      .name = name, .type = RABBET_ATTR_INT, .data = value, .count = 1};
}

static rabbet_attr_t ints_attr(const char* name, const int64_t* values,
                               size_t count) {
  return (rabbet_attr_t){
      .name = name, .type = RABBET_ATTR_INTS, .data = values, .count = count};
}

static rabbet_layer_t* add_layer(rabbet_network_t* network, const char* op,
                                 const char* name, rabbet_tensor_t** inputs,
                                 size_t input_count, const rabbet_attr_t* attrs,
                                 size_t attr_count) {
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_layer(
      network, op, name, inputs, input_count, attrs, attr_count, &layer));
  return layer;
}

static rabbet_tensor_t* add_op(rabbet_network_t* network, const char* op,
                               const char* name, rabbet_tensor_t** inputs,
                               size_t input_count, const char* attr,
                               int64_t value) {
  rabbet_attr_t attrs[1];
  if (attr) attrs[0] = int_attr(attr, &value);
  return rabbet_layer_output(
      add_layer(network, op, name, inputs, input_count, attrs, attr != NULL),
      0);
}

static void expect_dims(rabbet_tensor_t* tensor, const char* expected) {
  rabbet_dims_t dims;
  char text[128];
  RABBET_EXPECT_OK(rabbet_tensor_dims(tensor, &dims));
  assert_string_equal(rabbet_dims_print(&dims, text, sizeof text), expected);
}

static void expect_expr(rabbet_tensor_t* tensor, int axis,
                        const char* expected) {
  rabbet_network_t* network = tensor->network;
  char* text = NULL;
  RABBET_EXPECT_OK(rabbet_network_infer(network));
  RABBET_EXPECT_OK(rabbet_expr_print(network->graph, tensor->shape.d[axis],
                                     rabbet_allocator_system(), &text));
  assert_string_equal(text, expected);
  rabbet_free(rabbet_allocator_system(), text);
}

// ---- Names, membership -----------------------------------------------------

static void names_are_unique(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  rabbet_tensor_t* other = NULL;
  RABBET_EXPECT_ERROR(rabbet_network_add_input(network, "x", RABBET_DTYPE_FLOAT,
                                               &DIMS(1), &other),
                      RABBET_STATUS_ALREADY_EXISTS, "'x'");
  assert_null(other);
  rabbet_tensor_t* a = add_op(network, "unary", "u", &x, 1, "op", 0);
  rabbet_tensor_t* b = add_op(network, "unary", NULL, &x, 1, "op", 0);
  assert_string_equal(rabbet_tensor_name(a), "u_output");
  RABBET_EXPECT_ERROR(rabbet_tensor_set_name(a, "x"),
                      RABBET_STATUS_ALREADY_EXISTS, "'x'");
  // A given name takes precedence over one made up.
  RABBET_EXPECT_OK(rabbet_tensor_set_name(b, "u_output"));
  assert_string_equal(rabbet_tensor_name(b), "u_output");
  assert_string_not_equal(rabbet_tensor_name(a), "u_output");
  assert_ptr_equal(rabbet_map_get_string(&network->tensor_names, "u_output"),
                   b);
  assert_ptr_equal(
      rabbet_map_get_string(&network->tensor_names, rabbet_tensor_name(a)), a);
  rabbet_layer_t* layer = NULL;
  int64_t op = 0;
  rabbet_attr_t attr = int_attr("op", &op);
  RABBET_EXPECT_ERROR(
      rabbet_network_add_layer(network, "unary", "u", &x, 1, &attr, 1, &layer),
      RABBET_STATUS_ALREADY_EXISTS, "'u'");
  RABBET_EXPECT_ERROR(rabbet_layer_set_name(b->producer, "u"),
                      RABBET_STATUS_ALREADY_EXISTS, "'u'");
}

static void names_are_utf8(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t *x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(2, -1)),
                  *other = NULL;
  rabbet_tensor_t* y = add_op(network, "unary", "u", &x, 1, "op", 0);
  rabbet_layer_t* layer = NULL;
  rabbet_loop_t* loop = NULL;
  int64_t op = 0;
  rabbet_attr_t attr = int_attr("op", &op);
#define EXPECT_UTF8(call)                                   \
  RABBET_EXPECT_ERROR(call, RABBET_STATUS_INVALID_ARGUMENT, \
                      "'b\\xff', is not UTF-8 from byte 1 on")
  EXPECT_UTF8(rabbet_network_set_name(network, "b\xff"));
  EXPECT_UTF8(rabbet_network_add_input(network, "b\xff", RABBET_DTYPE_FLOAT,
                                       &DIMS(1), &other));
  EXPECT_UTF8(rabbet_network_add_layer(network, "unary", "b\xff", &x, 1, &attr,
                                       1, &layer));
  EXPECT_UTF8(rabbet_layer_set_name(y->producer, "b\xff"));
  EXPECT_UTF8(rabbet_layer_set_metadata(y->producer, "b\xff"));
  EXPECT_UTF8(rabbet_tensor_set_name(y, "b\xff"));
  EXPECT_UTF8(rabbet_tensor_set_dim_name(x, 1, "b\xff"));
  EXPECT_UTF8(rabbet_network_add_loop(network, "b\xff", &loop));
#undef EXPECT_UTF8
  RABBET_EXPECT_OK(rabbet_tensor_set_name(y, "\xc3\xa9"));
}

static void wrong_layers_are_refused(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_ERROR(rabbet_network_add_layer(network, "convolutoin", NULL, &x,
                                               1, NULL, 0, &layer),
                      RABBET_STATUS_NOT_FOUND, "did you mean 'convolution'");
  RABBET_EXPECT_ERROR(rabbet_network_add_layer(network, "activation", "act", &x,
                                               1, NULL, 0, &layer),
                      RABBET_STATUS_INVALID_ARGUMENT, "needs attribute 'type'");
  int64_t type = 77;
  rabbet_attr_t attr = int_attr("type", &type);
  RABBET_EXPECT_ERROR(rabbet_network_add_layer(network, "activation", "act", &x,
                                               1, &attr, 1, &layer),
                      RABBET_STATUS_INVALID_ARGUMENT, "SIGMOID");
  attr.name = "tpye";
  RABBET_EXPECT_ERROR(rabbet_network_add_layer(network, "activation", "act", &x,
                                               1, &attr, 1, &layer),
                      RABBET_STATUS_NOT_FOUND, "did you mean 'type'");
  assert_int_equal(rabbet_network_layer_count(network), 0);
  assert_null(layer);
}

static void tensors_of_other_networks_are_refused(void** state) {
  rabbet_network_t* network = *state;
  rabbet_network_t* other = NULL;
  RABBET_EXPECT_OK(rabbet_network_create(0, rabbet_allocator_system(),
                                         (rabbet_logger_t){0}, &other));
  rabbet_tensor_t* x = add_input(other, "x", RABBET_DTYPE_FLOAT, DIMS(2));
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_ERROR(rabbet_network_add_layer(network, "identity", "id", &x, 1,
                                               NULL, 0, &layer),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "belongs to another network");
  rabbet_network_release(other);
}

// ---- Inference -------------------------------------------------------------

static void a_mutation_is_inferred_again(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x =
      add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 3, 8, 8));
  float kernel[4 * 3 * 3 * 3] = {0};
  rabbet_tensor_t* w = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_weights(
      network, "w", (rabbet_weights_t){RABBET_DTYPE_FLOAT, kernel, 108},
      &DIMS(4, 3, 3, 3), false, &w));
  rabbet_layer_t* conv = add_layer(network, "convolution", "conv",
                                   (rabbet_tensor_t*[]){x, w}, 2, NULL, 0);
  rabbet_tensor_t* y = rabbet_layer_output(conv, 0);
  expect_dims(y, "(-1, 4, 6, 6)");
  rabbet_tensor_t* z = add_op(network, "activation", "act", &y, 1, "type", 0);
  assert_int_equal(network->inferred, 1);
  expect_dims(z, "(-1, 4, 6, 6)");
  const int64_t two[] = {2, 2};
  rabbet_attr_t stride = ints_attr("stride_nd", two, 2);
  for (int i = 0; i < 100; ++i) {
    RABBET_EXPECT_OK(rabbet_layer_set_attr(conv, &stride));
  }
  assert_int_equal(network->inferred, 0);
  expect_dims(z, "(-1, 4, 3, 3)");
  const rabbet_attr_t* read = NULL;
  RABBET_EXPECT_OK(rabbet_layer_attr(conv, "stride_nd", &read));
  assert_int_equal(read->count, 2);
  assert_int_equal(((const int64_t*)read->data)[1], 2);
  RABBET_EXPECT_OK(rabbet_tensor_set_dims(x, &DIMS(5, 3, 9, 8)));
  expect_dims(z, "(5, 4, 4, 3)");
}

static void errors_name_layer_and_operand(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  rabbet_tensor_t* y = add_input(network, "y", RABBET_DTYPE_HALF, DIMS(2, 3));
  rabbet_tensor_t* good = add_op(network, "unary", "good", &x, 1, "op", 4);
  rabbet_tensor_t* sum = add_op(network, "elementwise", "sum",
                                (rabbet_tensor_t*[]){x, y}, 2, "op", 0);
  RABBET_EXPECT_OK(rabbet_network_mark_output(network, sum));
  RABBET_EXPECT_ERROR(rabbet_network_validate(network),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "layer 'sum' (elementwise): input 1 ('input2') has type "
                      "HALF");
  // Tensors before the mistake can still be asked about.
  expect_dims(good, "(2, 3)");
  RABBET_EXPECT_OK(rabbet_layer_set_input(sum->producer, 1, good));
  RABBET_EXPECT_OK(rabbet_network_validate(network));
}

static void names_of_dimensions_are_shared(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 4));
  rabbet_tensor_t* y = add_input(network, "y", RABBET_DTYPE_FLOAT, DIMS(-1, 4));
  rabbet_tensor_t* sum = add_op(network, "elementwise", "sum",
                                (rabbet_tensor_t*[]){x, y}, 2, "op", 0);
  expect_expr(sum, 0, "broadcast(tensor0.dim0, tensor1.dim0)");
  RABBET_EXPECT_OK(rabbet_tensor_set_dim_name(x, 0, "batch"));
  RABBET_EXPECT_OK(rabbet_tensor_set_dim_name(y, 0, "batch"));
  expect_expr(sum, 0, "batch");
  RABBET_EXPECT_OK(rabbet_tensor_set_dim_name(x, 1, "width"));
  RABBET_EXPECT_OK(rabbet_tensor_set_dim_name(y, 1, "width"));
  RABBET_EXPECT_OK(rabbet_tensor_set_dims(y, &DIMS(-1, 1)));
  RABBET_EXPECT_ERROR(rabbet_network_infer(network),
                      RABBET_STATUS_INVALID_ARGUMENT, "'width'");
}

// Shape -> Gather -> Concatenation -> Reshape, as exporters write it.
static void shape_arithmetic_becomes_expressions(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x =
      add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 3, 64));
  RABBET_EXPECT_OK(rabbet_tensor_set_dim_name(x, 0, "batch"));
  rabbet_tensor_t* zero = add_ints(network, "zero", (int64_t[]){0}, 1);
  rabbet_tensor_t* rest = add_ints(network, "rest", (int64_t[]){-1, 32}, 2);
  rabbet_tensor_t* shape = add_op(network, "shape", "s", &x, 1, NULL, 0);
  rabbet_tensor_t* batch = add_op(
      network, "gather", "g", (rabbet_tensor_t*[]){shape, zero}, 2, "axis", 0);
  rabbet_tensor_t* target =
      add_op(network, "concatenation", "c", (rabbet_tensor_t*[]){batch, rest},
             2, "axis", 0);
  rabbet_tensor_t* y = add_op(network, "shuffle", "r",
                              (rabbet_tensor_t*[]){x, target}, 2, NULL, 0);
  expect_expr(y, 0, "batch");
  expect_dims(y, "(-1, 6, 32)");
  bool is_shape = false;
  RABBET_EXPECT_OK(rabbet_tensor_is_shape_tensor(batch, &is_shape));
  assert_true(is_shape);
  RABBET_EXPECT_OK(rabbet_tensor_is_shape_tensor(x, &is_shape));
  assert_false(is_shape);
  assert_false(target->is_host_read);
}

static void flattening_keeps_the_batch(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x =
      add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 4, 16));
  RABBET_EXPECT_OK(rabbet_tensor_set_dim_name(x, 0, "batch"));
  const int64_t flat[] = {-1, 64}, folded[] = {-1};
  rabbet_attr_t attr = ints_attr("reshape_dims", flat, 2);
  rabbet_layer_t* a = add_layer(network, "shuffle", "a", &x, 1, &attr, 1);
  expect_expr(rabbet_layer_output(a, 0), 0, "batch");
  attr = ints_attr("reshape_dims", folded, 1);
  rabbet_layer_t* b =
      add_layer(network, "shuffle", "b", a->outputs, 1, &attr, 1);
  attr = ints_attr("reshape_dims", flat, 2);
  rabbet_layer_t* c =
      add_layer(network, "shuffle", "c", b->outputs, 1, &attr, 1);
  expect_expr(rabbet_layer_output(c, 0), 0, "batch");
}

// ---- Host-read values ------------------------------------------------------

static void integer_inputs_become_shape_inputs(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(24));
  rabbet_tensor_t* n = add_input(network, "n", RABBET_DTYPE_INT64, DIMS(1));
  rabbet_tensor_t* six = add_ints(network, "six", (int64_t[]){6}, 1);
  rabbet_tensor_t* target = add_op(network, "concatenation", "c",
                                   (rabbet_tensor_t*[]){n, six}, 2, "axis", 0);
  rabbet_tensor_t* y = add_op(network, "shuffle", "r",
                              (rabbet_tensor_t*[]){x, target}, 2, NULL, 0);
  expect_dims(y, "(-1, 6)");
  assert_true(n->is_host_read);
  assert_true(n->is_shape_tensor);
  assert_false(target->is_host_read);
  assert_true(target->is_shape_tensor);
  expect_expr(y, 0, "tensor1[0]");
}

// The number that non_zero finds is an output that the layer does not show.
static void sizes_are_read_by_the_host(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(4, -1));
  rabbet_layer_t* layer =
      add_layer(network, "non_zero", "found", &x, 1, NULL, 0);
  rabbet_tensor_t* y = rabbet_layer_output(layer, 0);
  assert_int_equal(rabbet_layer_output_count(layer), 1);
  assert_null(rabbet_layer_output(layer, 1));
  assert_string_equal(rabbet_tensor_name(y), "found_output");
  expect_dims(y, "(2, -1)");
  expect_expr(y, 1, "tensor2[0]");
  assert_true(layer->outputs[1]->is_host_read);
  assert_false(y->is_host_read);
  rabbet_tensor_t* shape = add_op(network, "shape", "shape", &y, 1, NULL, 0);
  expect_dims(add_op(network, "shuffle", "again",
                     (rabbet_tensor_t*[]){y, shape}, 2, NULL, 0),
              "(2, -1)");
  assert_false(shape->is_host_read);
}

// A value that floating-point data decides: read from the operand itself.
static void computed_values_are_read_by_the_host(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(24));
  rabbet_tensor_t* f = add_input(network, "f", RABBET_DTYPE_FLOAT, DIMS(2));
  rabbet_tensor_t* target =
      add_op(network, "cast", "cast", &f, 1, "to_type", RABBET_DTYPE_INT64);
  rabbet_tensor_t* y = add_op(network, "shuffle", "r",
                              (rabbet_tensor_t*[]){x, target}, 2, NULL, 0);
  expect_dims(y, "(-1, -1)");
  assert_true(target->is_host_read);
  assert_false(f->is_shape_tensor);
  rabbet_tensor_t* g = add_input(network, "g", RABBET_DTYPE_INT64, DIMS(-1));
  rabbet_tensor_t* bad =
      add_op(network, "shuffle", "bad", (rabbet_tensor_t*[]){x, g}, 2, NULL, 0);
  rabbet_dims_t dims;
  RABBET_EXPECT_ERROR(rabbet_tensor_dims(bad, &dims), RABBET_STATUS_UNSUPPORTED,
                      "layer 'bad' (shuffle): input 1 ('shape')");
}

// ---- Edits -----------------------------------------------------------------

static void later_tensors_can_be_wired_in(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  rabbet_tensor_t* a = add_op(network, "unary", "a", &x, 1, "op", 0);
  rabbet_tensor_t* b = add_op(network, "unary", "b", &a, 1, "op", 0);
  rabbet_tensor_t* c = add_op(network, "unary", "c", &x, 1, "op", 0);
  rabbet_tensor_t* d = add_op(network, "unary", "d", &c, 1, "op", 0);
  RABBET_EXPECT_ERROR(rabbet_layer_set_input(a->producer, 0, b),
                      RABBET_STATUS_INVALID_ARGUMENT, "cycle");
  RABBET_EXPECT_OK(rabbet_layer_set_input(a->producer, 0, d));
  const char* order[] = {"c", "d", "a", "b"};
  for (size_t i = 0; i < 4; ++i) {
    assert_string_equal(rabbet_layer_name(rabbet_network_layer(network, i)),
                        order[i]);
    assert_int_equal(rabbet_network_layer(network, i)->index, i);
  }
  RABBET_EXPECT_ERROR(rabbet_layer_set_input(a->producer, 1, d),
                      RABBET_STATUS_OUT_OF_RANGE, "no input 1");
  RABBET_EXPECT_OK(rabbet_network_infer(network));
}

static void removal_keeps_numbers_in_order(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  rabbet_tensor_t* a = add_op(network, "unary", "a", &x, 1, "op", 0);
  rabbet_tensor_t* b = add_op(network, "unary", "b", &x, 1, "op", 0);
  rabbet_tensor_t* c = add_op(network, "unary", "c", &a, 1, "op", 0);
  RABBET_EXPECT_OK(rabbet_network_mark_output(network, b));
  RABBET_EXPECT_OK(rabbet_network_infer(network));
  RABBET_EXPECT_ERROR(rabbet_network_remove_tensor(network, a),
                      RABBET_STATUS_FAILED_PRECONDITION, "layer 'c'");
  RABBET_EXPECT_ERROR(rabbet_network_remove_tensor(network, b),
                      RABBET_STATUS_FAILED_PRECONDITION, "network output");
  RABBET_EXPECT_OK(rabbet_network_remove_tensor(network, c));
  RABBET_EXPECT_OK(rabbet_network_remove_tensor(network, a));
  assert_int_equal(rabbet_network_layer_count(network), 1);
  for (size_t i = 0; i < network->tensors.count; ++i) {
    assert_int_equal(network->tensors.data[i]->id, i);
  }
  RABBET_EXPECT_ERROR(rabbet_network_mark_output(network, a),
                      RABBET_STATUS_INVALID_ARGUMENT, "was removed");
  // Its name is free again.
  RABBET_EXPECT_OK(rabbet_tensor_set_name(b, "a_output"));
  RABBET_EXPECT_OK(rabbet_network_unmark_output(network, b));
  RABBET_EXPECT_ERROR(rabbet_network_validate(network),
                      RABBET_STATUS_FAILED_PRECONDITION, "no outputs");
}

// A rank of a pipeline may do nothing but send.
static void exchanges_are_results(void** state) {
  rabbet_network_t* network = *state;
  int64_t root = 0, pair[] = {0, 1}, broadcast = RABBET_COLLECTIVE_BROADCAST;
  int64_t one[] = {0};
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  rabbet_attr_t attrs[] = {int_attr("operation", &broadcast),
                           int_attr("root", &root),
                           ints_attr("groups", one, 1)};
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_layer(network, "dist_collective", "alone",
                                            &x, 1, attrs, 3, &layer));
  RABBET_EXPECT_ERROR(rabbet_network_validate(network),
                      RABBET_STATUS_FAILED_PRECONDITION, "no outputs");
  attrs[2] = ints_attr("groups", pair, 2);
  RABBET_EXPECT_OK(rabbet_network_add_layer(network, "dist_collective", "sent",
                                            &x, 1, attrs, 3, &layer));
  RABBET_EXPECT_OK(rabbet_network_validate(network));
}

static void weak_types_are_wishes(void** state) {
  (void)state;
  rabbet_network_t* network = NULL;
  RABBET_EXPECT_OK(rabbet_network_create(0, rabbet_allocator_system(),
                                         (rabbet_logger_t){0}, &network));
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  rabbet_tensor_t* a = add_op(network, "identity", "a", &x, 1, NULL, 0);
  RABBET_EXPECT_OK(rabbet_tensor_set_dtype(a, RABBET_DTYPE_INT32));
  rabbet_tensor_t* b = add_op(network, "identity", "b", &a, 1, NULL, 0);
  rabbet_dtype_t dtype;
  RABBET_EXPECT_OK(rabbet_tensor_dtype(b, &dtype));
  assert_int_equal(dtype, RABBET_DTYPE_INT32);
  RABBET_EXPECT_OK(rabbet_layer_set_precision(a->producer, RABBET_DTYPE_HALF));
  assert_int_equal(rabbet_layer_precision(a->producer), RABBET_DTYPE_HALF);
  rabbet_network_release(network);
}

static void strong_types_are_fixed(void** state) {
  rabbet_network_t* network = *state;
  rabbet_tensor_t* x = add_input(network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3));
  rabbet_tensor_t* a = add_op(network, "identity", "a", &x, 1, NULL, 0);
  RABBET_EXPECT_ERROR(rabbet_tensor_set_dtype(a, RABBET_DTYPE_HALF),
                      RABBET_STATUS_FAILED_PRECONDITION, "strongly typed");
  RABBET_EXPECT_ERROR(
      rabbet_layer_set_precision(a->producer, RABBET_DTYPE_HALF),
      RABBET_STATUS_FAILED_PRECONDITION, "strongly typed");
  RABBET_EXPECT_OK(rabbet_tensor_set_dtype(x, RABBET_DTYPE_HALF));
  rabbet_dtype_t dtype;
  RABBET_EXPECT_OK(rabbet_tensor_dtype(a, &dtype));
  assert_int_equal(dtype, RABBET_DTYPE_HALF);
}

static void count_destroyed(void* owner) {
  ++*(int*)owner;
}

static void owners_are_destroyed_with_the_network(void** state) {
  (void)state;
  int destroyed = 0;
  rabbet_network_t* network = NULL;
  RABBET_EXPECT_OK(rabbet_network_create(0, rabbet_allocator_system(),
                                         (rabbet_logger_t){0}, &network));
  RABBET_EXPECT_OK(
      rabbet_network_take_owner(network, &destroyed, count_destroyed));
  rabbet_network_retain(network);
  rabbet_network_release(network);
  assert_int_equal(destroyed, 0);
  rabbet_network_release(network);
  assert_int_equal(destroyed, 1);
}

static void unnamed_weights_give_way(void** state) {
  rabbet_network_t* network = *state;
  int64_t value = 7;
  rabbet_tensor_t* first = add_ints(network, NULL, &value, 1);
  rabbet_tensor_t* second = add_ints(network, NULL, &value, 1);
  assert_string_not_equal(rabbet_tensor_name(first),
                          rabbet_tensor_name(second));
  char name[64];
  snprintf(name, sizeof name, "%s", rabbet_tensor_name(second));
  rabbet_tensor_t* named = add_ints(network, name, &value, 1);
  assert_string_equal(rabbet_tensor_name(named), name);
  assert_string_not_equal(rabbet_tensor_name(second), name);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(names_are_unique),
      TEST(names_are_utf8),
      TEST(unnamed_weights_give_way),
      TEST(wrong_layers_are_refused),
      TEST(tensors_of_other_networks_are_refused),
      TEST(a_mutation_is_inferred_again),
      TEST(errors_name_layer_and_operand),
      TEST(names_of_dimensions_are_shared),
      TEST(shape_arithmetic_becomes_expressions),
      TEST(flattening_keeps_the_batch),
      TEST(integer_inputs_become_shape_inputs),
      TEST(sizes_are_read_by_the_host),
      TEST(computed_values_are_read_by_the_host),
      TEST(later_tensors_can_be_wired_in),
      TEST(removal_keeps_numbers_in_order),
      TEST(exchanges_are_results),
      TEST(weak_types_are_wishes),
      TEST(strong_types_are_fixed),
      TEST(owners_are_destroyed_with_the_network),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
