// Products by gathered matrices: which become layers of experts, and that their
// numbers stay.
#include "build_check.h"

enum { ROWS = 5, GROUPS = 3, K = 32, N = 48 };

// How a product is written.
typedef struct form_t {
  bool row_first;  // x W instead of W x
  bool turned;     // matrices are stored the other way round, and transposed
  bool is_vector;  // the row is a vector, not a matrix with one row
  bool negative;   // indices count from the end, too
} form_t;

// Names of layers differ.
static const char* numbered(net_t* net, const char* name, char text[32]) {
  snprintf(text, 32, "%s %u", name, net->weights++);
  return text;
}

static rabbet_tensor_t* gather(net_t* net, const char* name,
                               rabbet_tensor_t* data, rabbet_tensor_t* index) {
  char text[32];
  return net_add(net, numbered(net, name, text),
                 (net_layer_t){.op = "gather",
                               .inputs = {data, index},
                               .input_count = 2,
                               .attrs = {INT_ATTR("axis", 0)},
                               .attr_count = 1});
}

static rabbet_tensor_t* reshape(net_t* net, const char* name,
                                rabbet_tensor_t* x, int64_t a, int64_t b,
                                int64_t c) {
  char text[32];
  return net_add(net, numbered(net, name, text),
                 (net_layer_t){.op = "shuffle",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {{.name = "reshape_dims",
                                          .type = RABBET_ATTR_INTS,
                                          .data = (int64_t[]){a, b, c},
                                          .count = c > 0 ? 3 : 2}},
                               .attr_count = 1});
}

static rabbet_tensor_t* columns(net_t* net, const char* name,
                                rabbet_tensor_t* x, int64_t start,
                                int64_t stride, int64_t size) {
  return net_add(net, name,
                 (net_layer_t){.op = "slice",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {INTS_ATTR("start", 0, start),
                                         INTS_ATTR("shape", ROWS, size),
                                         INTS_ATTR("stride", 1, stride)},
                               .attr_count = 3});
}

// The numbers of the matrices: 0 to 3, of which 3 does not exist, or -2 to 1.
static rabbet_tensor_t* indices(net_t* net, const form_t* form) {
  rabbet_tensor_t* index =
      net_input(net, "index", RABBET_DTYPE_INT64, DIMS(ROWS));
  double two = 2;
  if (!form->negative) return index;
  return net_binary(net, "shifted", "SUB", index,
                    net_weights(net, RABBET_DTYPE_INT64, DIMS(1), &two));
}

// x [rows, k] times a matrix [k, n] for each row, written so.
static rabbet_tensor_t* product(net_t* net, const char* name,
                                const form_t* form, rabbet_tensor_t* x,
                                rabbet_tensor_t* index, int64_t k, int64_t n) {
  bool transposed = form->row_first == form->turned;
  rabbet_tensor_t* data =
      form->turned ? WEIGHTS(net, GROUPS, n, k) : WEIGHTS(net, GROUPS, k, n);
  rabbet_tensor_t* taken = gather(net, "taken", data, index);
  rabbet_tensor_t* row = form->is_vector   ? x
                         : form->row_first ? reshape(net, "row", x, ROWS, 1, k)
                                           : reshape(net, "row", x, ROWS, k, 1);
  const char* matrix = transposed ? "TRANSPOSE" : "NONE";
  const char* vector = form->is_vector ? "VECTOR" : "NONE";
  rabbet_tensor_t* y = net_add(
      net, name,
      (net_layer_t){
          .op = "matrix_multiply",
          .inputs = {form->row_first ? row : taken,
                     form->row_first ? taken : row},
          .input_count = 2,
          .attrs = {ENUM_ATTR("op0", form->row_first ? vector : matrix),
                    ENUM_ATTR("op1", form->row_first ? matrix : vector)},
          .attr_count = 2});
  return form->is_vector ? y : reshape(net, "flat", y, ROWS, n, 0);
}

// Whether the build has a layer of this name.
static void expect_layer(net_t* net, const char* name, bool remains) {
  if (strcmp(check_device(), "null") != 0) return;
  rabbet_builder_config_t* config = check_config(0);
  built_t built = check_build(net->network, config);
  const char* report = rabbet_build_report_text(built.report);
  if ((strstr(report, name) != NULL) != remains)
    fail_msg("'%s' is %s:\n%s", name, remains ? "gone" : "there", report);
  check_built_end(&built);
  rabbet_builder_config_release(config);
}

static void check_gathers(net_t* net, bool remain) {
  check_network(net, 0, 1e-4);
  expect_layer(net, "taken", remain);
}

static void products_of_all_forms(void** state) {
  (void)state;
  for (int i = 0; i < 16; ++i) {
    const form_t form = {i & 1, i >> 1 & 1, i >> 2 & 1, i >> 3 & 1};
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(ROWS, K));
    rabbet_tensor_t* index = indices(&net, &form);
    rabbet_tensor_t* y = product(&net, "mm", &form, x, index, K, N);
    rabbet_tensor_t* bias =
        gather(&net, "taken bias", WEIGHTS(&net, GROUPS, N), index);
    net_output(&net, net_binary(&net, "sum", "SUM", y, bias), "y");
    check_gathers(&net, false);
    net_end(&net);
  }
}

// GatherND by positions in the first axis, as torch's exports have it.
static void product_by_positions(void** state) {
  (void)state;
  const form_t form = {.turned = true};
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(ROWS, K, 1));
  rabbet_tensor_t* index = indices(&net, &form);
  rabbet_tensor_t* taken = net_add(
      &net, "taken",
      (net_layer_t){.op = "gather",
                    .inputs = {WEIGHTS(&net, GROUPS, N, K),
                               reshape(&net, "positions", index, ROWS, 1, 0)},
                    .input_count = 2,
                    .attrs = {ENUM_ATTR("mode", "ND")},
                    .attr_count = 1});
  net_output(&net,
             net_add(&net, "mm",
                     (net_layer_t){.op = "matrix_multiply",
                                   .inputs = {taken, x},
                                   .input_count = 2}),
             "y");
  check_gathers(&net, false);
  net_end(&net);
}

// A product itself may be an output.
static void product_is_an_output(void** state) {
  (void)state;
  const form_t form = {.is_vector = true};
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(ROWS, K));
  net_output(&net, product(&net, "mm", &form, x, indices(&net, &form), K, N),
             "y");
  check_gathers(&net, false);
  net_end(&net);
}

typedef struct experts_t {
  bool in_turns;  // gate and up are every second column
  bool limits, biased, scored;
} experts_t;

static rabbet_tensor_t* clamp(net_t* net, const char* name, rabbet_tensor_t* x,
                              double low, double high) {
  char text[32];
  x = net_binary(net, numbered(net, name, text), "MIN", x,
                 net_scalar(net, 2, high));
  if (low == high) return x;
  return net_binary(net, numbered(net, name, text), "MAX", x,
                    net_scalar(net, 2, low));
}

static rabbet_tensor_t* with_bias(net_t* net, const experts_t* e,
                                  rabbet_tensor_t* y, rabbet_tensor_t* index,
                                  int64_t n) {
  char text[32];
  if (!e->biased) return y;
  return net_binary(net, numbered(net, "bias", text), "SUM", y,
                    gather(net, "taken bias", WEIGHTS(net, GROUPS, n), index));
}

static rabbet_tensor_t* experts(net_t* net, const experts_t* e) {
  const form_t form = {.turned = true};
  rabbet_tensor_t* x = net_input(net, "x", RABBET_DTYPE_FLOAT, DIMS(ROWS, K));
  rabbet_tensor_t* index = indices(net, &form);
  rabbet_tensor_t* both =
      product(net, "first product", &form, x, index, K, 2 * N);
  both = with_bias(net, e, both, index, 2 * N);
  rabbet_tensor_t* gate = columns(net, "gate", both, 0, e->in_turns ? 2 : 1, N);
  rabbet_tensor_t* up =
      columns(net, "up", both, e->in_turns ? 1 : N, e->in_turns ? 2 : 1, N);
  rabbet_tensor_t* inside = gate;
  if (e->limits) {
    inside = gate = clamp(net, "limit", gate, 1, 1);
    inside = net_binary(net, "alpha", "PROD", gate, net_scalar(net, 2, 1.702));
    up = net_binary(net, "beta", "SUM", clamp(net, "limits", up, -1, 1),
                    net_scalar(net, 2, 1));
  }
  rabbet_tensor_t* y =
      net_binary(net, "silu", "PROD", gate,
                 net_activation(net, "sigmoid", "SIGMOID", inside));
  y = net_binary(net, "gated", "PROD", up, y);
  y = product(net, "last product", &form, y, index, N, K);
  y = with_bias(net, e, y, index, K);
  if (!e->scored) return y;
  rabbet_tensor_t* scores =
      net_input(net, "scores", RABBET_DTYPE_FLOAT, DIMS(ROWS, 1));
  return net_binary(net, "scored", "PROD", y, scores);
}

static void gated_experts_of_all_forms(void** state) {
  (void)state;
  for (int i = 0; i < 16; ++i) {
    const experts_t e = {i & 1, i >> 1 & 1, i >> 2 & 1, i >> 3 & 1};
    net_t net = net_begin(0, rabbet_allocator_system());
    net_output(&net, experts(&net, &e), "y");
    // One layer, besides views and what counts indices from the end.
    EXPECT_STEPS(check_network(&net, 0, 1e-4), 2);
    check_gathers(&net, false);
    net_end(&net);
  }
}

// Rows that are repeated for each of their experts, and the sum of the results.
static void tokens_of_several_experts(void** state) {
  (void)state;
  enum { TOKENS = 6, CHOSEN = 2 };
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(TOKENS, 1, K));
  rabbet_tensor_t* index =
      net_input(&net, "index", RABBET_DTYPE_INT64, DIMS(TOKENS * CHOSEN));
  rabbet_tensor_t* scores =
      net_input(&net, "scores", RABBET_DTYPE_FLOAT, DIMS(TOKENS * CHOSEN, 1));
  rabbet_tensor_t* many =
      net_add(&net, "repeated",
              (net_layer_t){.op = "slice",
                            .inputs = {x},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("start", 0, 0, 0),
                                      INTS_ATTR("shape", TOKENS, CHOSEN, K),
                                      INTS_ATTR("stride", 1, 0, 1)},
                            .attr_count = 3});
  rabbet_tensor_t* taken =
      gather(&net, "taken", WEIGHTS(&net, GROUPS, N, K), index);
  rabbet_tensor_t* y = net_add(
      &net, "mm",
      (net_layer_t){
          .op = "matrix_multiply",
          .inputs = {taken, reshape(&net, "row", many, TOKENS * CHOSEN, K, 1)},
          .input_count = 2});
  y = net_binary(&net, "scored", "PROD",
                 reshape(&net, "flat", y, TOKENS * CHOSEN, N, 0), scores);
  y = net_add(
      &net, "of tokens",
      (net_layer_t){.op = "reduce",
                    .inputs = {reshape(&net, "parts", y, TOKENS, CHOSEN, N)},
                    .input_count = 1,
                    .attrs = {ENUM_ATTR("op", "SUM"), INT_ATTR("axes", 2)},
                    .attr_count = 2});
  net_output(&net, y, "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-4), 2);
  expect_layer(&net, "taken", false);
  expect_layer(&net, "repeated", false);
  net_end(&net);
}

// Small matrices, several rows for a matrix, and others that read the matrices.
static void other_products_stay(void** state) {
  (void)state;
  const form_t form = {.row_first = true};
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* small =
      net_input(&net, "small", RABBET_DTYPE_FLOAT, DIMS(ROWS, 4));
  rabbet_tensor_t* index = indices(&net, &form);
  net_output(&net, product(&net, "mm", &form, small, index, 4, 4), "y");
  check_gathers(&net, true);
  net_end(&net);

  net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* rows =
      net_input(&net, "rows", RABBET_DTYPE_FLOAT, DIMS(ROWS, 2, K));
  index = indices(&net, &form);
  rabbet_tensor_t* taken =
      gather(&net, "taken", WEIGHTS(&net, GROUPS, K, N), index);
  net_output(&net,
             net_add(&net, "mm",
                     (net_layer_t){.op = "matrix_multiply",
                                   .inputs = {rows, taken},
                                   .input_count = 2}),
             "y");
  check_gathers(&net, true);
  net_output(&net, net_unary(&net, "neg", "NEG", taken), "z");
  check_gathers(&net, true);
  net_end(&net);
}

// Matrices that are no constants are read as they are, and not transposed.
static void matrices_of_inputs(void** state) {
  (void)state;
  for (int turned = 0; turned < 2; ++turned) {
    const form_t form = {.row_first = true};
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(ROWS, 1, K));
    rabbet_tensor_t* data =
        net_input(&net, "data", RABBET_DTYPE_FLOAT,
                  turned ? DIMS(GROUPS, N, K) : DIMS(GROUPS, K, N));
    rabbet_tensor_t* taken = gather(&net, "taken", data, indices(&net, &form));
    net_output(&net,
               net_add(&net, "mm",
                       (net_layer_t){.op = "matrix_multiply",
                                     .inputs = {x, taken},
                                     .input_count = 2,
                                     .attrs = {ENUM_ATTR(
                                         "op1", turned ? "TRANSPOSE" : "NONE")},
                                     .attr_count = 1}),
               "y");
    check_gathers(&net, turned);
    net_end(&net);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_of_all_forms),
      cmocka_unit_test(product_by_positions),
      cmocka_unit_test(product_is_an_output),
      cmocka_unit_test(gated_experts_of_all_forms),
      cmocka_unit_test(tokens_of_several_experts),
      cmocka_unit_test(other_products_stay),
      cmocka_unit_test(matrices_of_inputs),
  };
  return cmocka_run_group_tests_name("grouped", tests, NULL, NULL);
}
