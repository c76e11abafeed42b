#include "check.h"
#include "faults/fault_allocator.h"
#include "network/network.h"
#include "onnx/wire.h"
#include "plugin_answers.h"
#include "rabbet/onnx.h"

enum { FLOAT = 1, INT64 = 7 };

static const int64_t image[] = {-1, 2, 4, 4};

// ---- Models ----------------------------------------------------------------

// x (n, 2, 4, 4) -> nodes -> y; nodes are added between.
static rabbet_strbuf_t begin_graph(void) {
  rabbet_strbuf_t graph = wire_new();
  rabbet_strbuf_t x = wire_value("x", FLOAT, image, 4);
  wire_message(&graph, 11, &x);
  return graph;
}
static void add_node(rabbet_strbuf_t* graph, rabbet_strbuf_t node) {
  wire_message(graph, 1, &node);
}
static void add_output(rabbet_strbuf_t* graph, const char* name) {
  rabbet_strbuf_t y = wire_value(name, FLOAT, image, 4);
  wire_message(graph, 12, &y);
}
static void add_ints(rabbet_strbuf_t* graph, const char* name,
                     const int64_t* values, int64_t count) {
  rabbet_strbuf_t t =
      wire_tensor(name, INT64, &count, 1, values, (size_t)count * 8);
  wire_message(graph, 5, &t);
}
// y is the output.
static rabbet_strbuf_t end_graph(rabbet_strbuf_t* graph, int64_t opset) {
  add_output(graph, "y");
  return wire_model(graph, opset);
}
static rabbet_strbuf_t model_of(rabbet_strbuf_t node, int64_t opset) {
  rabbet_strbuf_t graph = begin_graph();
  add_node(&graph, node);
  return end_graph(&graph, opset);
}

// A function of the domain "local": inputs "a", outputs "b".
static void add_function(rabbet_strbuf_t* model, const char* name,
                         rabbet_strbuf_t node) {
  rabbet_strbuf_t function = wire_new(), set = wire_new();
  wire_string(&function, 1, name);
  wire_string(&function, 4, "a");
  wire_string(&function, 5, "b");
  wire_string(&function, 10, "local");
  wire_message(&function, 7, &node);
  wire_int(&set, 2, 17);
  wire_message(&function, 9, &set);
  wire_message(model, 25, &function);
}

// ---- Importing -------------------------------------------------------------

static rabbet_network_t* new_network(void) {
  rabbet_network_t* network = NULL;
  RABBET_EXPECT_OK(rabbet_network_create(RABBET_NETWORK_STRONGLY_TYPED,
                                         rabbet_allocator_system(),
                                         (rabbet_logger_t){0}, &network));
  return network;
}

// The network, valid; the model is emptied.
static rabbet_network_t* imported(rabbet_strbuf_t model) {
  rabbet_network_t* network = new_network();
  RABBET_EXPECT_OK(rabbet_onnx_import_memory(network, model.data, model.size,
                                             NULL, NULL, NULL));
  RABBET_EXPECT_OK(rabbet_network_validate(network));
  rabbet_strbuf_deinitialize(&model);
  return network;
}

static void expect_error(rabbet_strbuf_t model, rabbet_status_code_t code,
                         const char* part) {
  rabbet_network_t* network = new_network();
  RABBET_EXPECT_ERROR(rabbet_onnx_import_memory(network, model.data, model.size,
                                                NULL, NULL, NULL),
                      code, part);
  rabbet_network_release(network);
  rabbet_strbuf_deinitialize(&model);
}

static const char* op_of(rabbet_network_t* network, size_t layer) {
  return rabbet_layer_op(rabbet_network_layer(network, layer));
}

// ---- Graphs ----------------------------------------------------------------

static void names_and_dims_are_kept(void** state) {
  (void)state;
  rabbet_strbuf_t node = wire_node("Relu", "x", "y");
  wire_string(&node, 3, "first/relu");
  rabbet_network_t* network = imported(model_of(node, 17));
  assert_int_equal(rabbet_network_layer_count(network), 1);
  assert_string_equal(op_of(network, 0), "activation");
  assert_string_equal(rabbet_layer_name(rabbet_network_layer(network, 0)),
                      "first/relu");
  rabbet_tensor_t* x = rabbet_network_input(network, 0);
  assert_string_equal(rabbet_tensor_dim_name(x, 0), "n");
  assert_null(rabbet_tensor_dim_name(x, 1));
  rabbet_tensor_t* y = rabbet_network_output(network, 0);
  assert_string_equal(rabbet_tensor_name(y), "y");
  rabbet_dims_t dims;
  RABBET_EXPECT_OK(rabbet_tensor_dims(y, &dims));
  assert_int_equal(dims.rank, 4);
  assert_int_equal(dims.d[0], -1);
  assert_int_equal(dims.d[3], 4);
  rabbet_network_release(network);
}

static rabbet_strbuf_t named(const char* op_type, const char* inputs,
                             const char* outputs, const char* name) {
  rabbet_strbuf_t node = wire_node(op_type, inputs, outputs);
  wire_string(&node, 3, name);
  return node;
}

// The later of two layers gets another name, whether two nodes share a name or
// a node's name equals a numbered one.
static void layer_names_do_not_clash(void** state) {
  (void)state;
  rabbet_strbuf_t graph = begin_graph();
  add_node(&graph, named("Mish", "x", "a", "m"));
  add_node(&graph, named("Relu", "a", "b", "m.1"));
  add_node(&graph, named("Relu", "b", "y", "m"));
  rabbet_network_t* network = imported(end_graph(&graph, 18));
  assert_int_equal(rabbet_network_layer_count(network), 5);
  assert_string_equal(rabbet_layer_metadata(rabbet_network_layer(network, 2)),
                      "[ONNX Layer: m]");
  rabbet_network_release(network);
}

// An initializer, an input and an aliased tensor as outputs get copies.
static void outputs_are_tensors_of_their_own(void** state) {
  (void)state;
  rabbet_strbuf_t graph = begin_graph();
  add_ints(&graph, "c", (int64_t[]){1, 2}, 2);
  add_node(&graph, wire_node("Identity", "x", "same"));
  add_node(&graph, wire_node("Relu", "x", "r"));
  add_node(&graph, wire_node("Identity", "r", "again"));
  const char* const outputs[] = {"c", "x", "same", "r", "again"};
  for (size_t i = 0; i < 5; ++i) {
    add_output(&graph, outputs[i]);
  }
  rabbet_network_t* network = imported(wire_model(&graph, 17));
  assert_int_equal(rabbet_network_output_count(network), 5);
  const char* const names[] = {"c", "x.output", "same", "r", "again"};
  for (size_t i = 0; i < 5; ++i) {
    assert_string_equal(rabbet_tensor_name(rabbet_network_output(network, i)),
                        names[i]);
  }
  rabbet_network_release(network);
}

static void wrong_graphs_are_explained(void** state) {
  (void)state;
  expect_error(model_of(wire_node("Relu", "nothing", "y"), 17),
               RABBET_STATUS_NOT_FOUND, "'nothing' is undefined");
  rabbet_strbuf_t graph = begin_graph();
  add_node(&graph, wire_node("Relu", "late", "y"));
  add_node(&graph, wire_node("Neg", "y", "late"));
  expect_error(end_graph(&graph, 17), RABBET_STATUS_INVALID_ARGUMENT,
               "what the first: 0 '' (Relu), 1 '' (Neg)");
  graph = begin_graph();
  add_node(&graph, wire_node("Relu", "x", "y"));
  add_node(&graph, wire_node("Relu", "x", "y"));
  expect_error(end_graph(&graph, 17), RABBET_STATUS_ALREADY_EXISTS,
               "'y' is given to two");
  graph = begin_graph();
  add_node(&graph, wire_node("Relu", "x", "z"));
  expect_error(end_graph(&graph, 17), RABBET_STATUS_NOT_FOUND, "output 'y'");
  graph = begin_graph();
  expect_error(wire_model(&graph, 17), RABBET_STATUS_INVALID_ARGUMENT,
               "no outputs");
  expect_error(model_of(wire_node("Relu", "x", "y"), -1),
               RABBET_STATUS_INVALID_ARGUMENT, "opset -1; the oldest is 1");
  expect_error(model_of(wire_node("Mish", "x", "y"), 17),
               RABBET_STATUS_INVALID_ARGUMENT, "from opset 18 on");
  expect_error(model_of(wire_node("Add", "x", "y"), 17),
               RABBET_STATUS_INVALID_ARGUMENT, "input 1 is missing");
  rabbet_strbuf_t node = wire_node("Softmax", "x", "y");
  wire_attr_string(&node, "axis", "last");
  expect_error(model_of(node, 17), RABBET_STATUS_INVALID_ARGUMENT,
               "attribute 'axis' is STRING, but INT is expected");
  node = wire_node("Softmax", "x", "y");
  wire_attr_int(&node, "axis", 4);
  expect_error(model_of(node, 17), RABBET_STATUS_OUT_OF_RANGE,
               "axis 4 is outside [-4, 4)");
}

static void every_unknown_node_is_reported(void** state) {
  (void)state;
  rabbet_strbuf_t graph = begin_graph();
  rabbet_strbuf_t node = wire_node("Convv", "x", "a");
  wire_string(&node, 3, "typo");
  add_node(&graph, node);
  add_node(&graph, wire_node("Relu", "a", "b"));
  add_node(&graph, wire_node("StringConcat", "b", "y"));
  rabbet_strbuf_t model = end_graph(&graph, 17);
  rabbet_network_t* network = new_network();
  rabbet_onnx_errors_t* errors = NULL;
  RABBET_EXPECT_OK(
      rabbet_onnx_errors_create(rabbet_allocator_system(), &errors));
  RABBET_EXPECT_ERROR(rabbet_onnx_import_memory(network, model.data, model.size,
                                                NULL, NULL, errors),
                      RABBET_STATUS_UNSUPPORTED,
                      "2 nodes cannot be imported; the first: node 0 'typo' "
                      "(Convv, domain 'ai.onnx', opset 17)");
  assert_int_equal(rabbet_onnx_errors_count(errors), 2);
  const rabbet_onnx_error_t* first = rabbet_onnx_errors_get(errors, 0);
  assert_int_equal(first->node, 0);
  assert_string_equal(first->node_name, "typo");
  assert_string_equal(first->op_type, "Convv");
  assert_non_null(strstr(first->message, "did you mean 'Conv'"));
  assert_non_null(strstr(rabbet_onnx_errors_get(errors, 1)->message,
                         "operators on strings"));
  assert_null(rabbet_onnx_errors_get(errors, 2));
  rabbet_onnx_errors_destroy(errors);
  rabbet_network_release(network);
  rabbet_strbuf_deinitialize(&model);
}

static void the_table_answers(void** state) {
  (void)state;
  assert_true(rabbet_onnx_supports("", "Conv"));
  assert_true(rabbet_onnx_supports("ai.onnx", "Conv"));
  assert_false(rabbet_onnx_supports("com.microsoft", "Conv"));
  assert_false(rabbet_onnx_supports("", "StringConcat"));
  assert_false(rabbet_onnx_supports("", NULL));
}

// ---- Functions -------------------------------------------------------------

static rabbet_strbuf_t call(const char* name) {
  rabbet_strbuf_t node = wire_node(name, "x", "y");
  wire_string(&node, 3, "call");
  wire_string(&node, 7, "local");
  return node;
}

static void functions_are_written_out(void** state) {
  (void)state;
  rabbet_strbuf_t node = call("Leaky");
  wire_attr_float(&node, "slope", 0.5f);
  rabbet_strbuf_t model = model_of(node, 17);
  rabbet_strbuf_t body = wire_node("LeakyRelu", "a", "b");
  wire_string(&body, 3, "inner");
  wire_attr_ref(&body, "alpha", "slope", 1);
  add_function(&model, "Leaky", body);
  rabbet_network_t* network = imported(model);
  assert_int_equal(rabbet_network_layer_count(network), 1);
  const rabbet_layer_t* layer = rabbet_network_layer(network, 0);
  assert_string_equal(rabbet_layer_name(layer), "call/inner");
  const rabbet_attr_t* alpha = NULL;
  RABBET_EXPECT_OK(rabbet_layer_attr(layer, "alpha", &alpha));
  assert_true(*(const double*)alpha->data == 0.5);
  rabbet_network_release(network);
}

static rabbet_strbuf_t inner_call(const char* name, const char* inputs,
                                  const char* outputs) {
  rabbet_strbuf_t node = wire_node(name, inputs, outputs);
  wire_string(&node, 7, "local");
  return node;
}

static void endless_functions_are_stopped(void** state) {
  (void)state;
  rabbet_strbuf_t model = model_of(call("Self"), 17);
  add_function(&model, "Self", inner_call("Self", "a", "b"));
  expect_error(model, RABBET_STATUS_UNSUPPORTED, "more than 64 deep");
}

static void unknown_nodes_in_functions_are_found(void** state) {
  (void)state;
  rabbet_strbuf_t model = model_of(call("Outer"), 17);
  add_function(&model, "Outer", inner_call("Inner", "a", "b"));
  add_function(&model, "Inner", wire_node("Reluu", "a", "b"));
  expect_error(model, RABBET_STATUS_UNSUPPORTED, "in function 'Inner'");
}

// ---- Branches --------------------------------------------------------------

static void a_decided_branch_is_taken(void** state) {
  (void)state;
  for (int taken = 0; taken < 2; ++taken) {
    rabbet_strbuf_t graph = begin_graph();
    rabbet_strbuf_t c = wire_tensor("c", 9, NULL, 0, taken ? "\1" : "\0", 1);
    wire_message(&graph, 5, &c);
    rabbet_strbuf_t node = wire_node("If", "c", "y");
    for (int branch = 0; branch < 2; ++branch) {
      rabbet_strbuf_t body = wire_new(), attr = wire_new();
      add_node(&body, wire_node(branch ? "Relu" : "Softmax", "x", "b"));
      add_output(&body, "b");
      wire_string(&attr, 1, branch ? "then_branch" : "else_branch");
      wire_message(&attr, 6, &body);
      wire_int(&attr, 20, 5);
      wire_message(&node, 5, &attr);
    }
    add_node(&graph, node);
    rabbet_network_t* network = imported(end_graph(&graph, 17));
    assert_int_equal(rabbet_network_layer_count(network), 1);
    assert_string_equal(op_of(network, 0), taken ? "activation" : "softmax");
    assert_string_equal(rabbet_tensor_name(rabbet_network_output(network, 0)),
                        "y");
    rabbet_network_release(network);
  }
}

// ---- Plugins ---------------------------------------------------------------

static rabbet_attr_t seen[8];
static char seen_bytes[8][64];
static size_t seen_count;

static void nothing_to_destroy(void* self) {
  (void)self;
}
static rabbet_status_t no_enqueue(void* self,
                                  const rabbet_plugin_call_t* call_of) {
  (void)self, (void)call_of;
  return rabbet_ok();
}
static const rabbet_plugin_vtable_t vtable = {
    .struct_size = sizeof(vtable),
    .destroy = nothing_to_destroy,
    .output_count = plugin_one_output,
    .describe = plugin_describe_like,
    .enqueue = no_enqueue,
};
static rabbet_status_t keep_attrs(void* user_data,
                                  const rabbet_plugin_create_t* args,
                                  rabbet_plugin_instance_t* out_instance) {
  (void)user_data;
  seen_count = args->attr_count;
  for (size_t i = 0; i < args->attr_count && i < 8; ++i) {
    seen[i] = args->attrs[i];
    memcpy(seen_bytes[i], args->attrs[i].data,
           rabbet_attr_bytes(&args->attrs[i]));
  }
  *out_instance = (rabbet_plugin_instance_t){&vtable, &seen};
  return rabbet_ok();
}

static const rabbet_plugin_field_t fields[] = {
    {.name = "big",
     .type = RABBET_ATTR_INT,
     .dtype = RABBET_DTYPE_NONE,
     .required = true},
    {.name = "scale",
     .type = RABBET_ATTR_FLOAT,
     .dtype = RABBET_DTYPE_NONE,
     .required = false},
    {.name = "on",
     .type = RABBET_ATTR_BOOL,
     .dtype = RABBET_DTYPE_NONE,
     .required = false},
    {.name = "text",
     .type = RABBET_ATTR_STRING,
     .dtype = RABBET_DTYPE_NONE,
     .required = false},
    {.name = "pads",
     .type = RABBET_ATTR_TENSOR,
     .dtype = RABBET_DTYPE_INT32,
     .required = false},
    {.name = "list",
     .type = RABBET_ATTR_INTS,
     .dtype = RABBET_DTYPE_NONE,
     .required = false},
};

static int register_plugin(void** state) {
  (void)state;
  const rabbet_plugin_creator_t creator = {
      .struct_size = sizeof(creator),
      .name = "Relu",  // an operator's name, on purpose
      .plugin_namespace = "test_onnx",
      .fields = fields,
      .field_count = sizeof(fields) / sizeof(fields[0]),
      .field_size = sizeof(fields[0]),
      .create = keep_attrs,
      .input_count = -1,
  };
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  seen_count = 0;
  return 0;
}
static int deregister_plugin(void** state) {
  (void)state;
  RABBET_EXPECT_OK(rabbet_plugin_deregister("Relu", "1", "test_onnx"));
  return 0;
}

static rabbet_strbuf_t plugin_node(void) {
  rabbet_strbuf_t node = wire_node("Relu", "x", "y");
  wire_attr_string(&node, "plugin_namespace", "test_onnx");
  return node;
}

// Exact conversions only; strings without a NUL at the end; 64-bit integers.
static void plugins_get_converted_attributes(void** state) {
  (void)state;
  rabbet_strbuf_t node = plugin_node();
  wire_attr_int(&node, "big", INT64_C(1) << 40);
  wire_attr_int(&node, "scale", 3);
  wire_attr_int(&node, "on", 1);
  wire_attr_string(&node, "text", "abc");
  wire_attr_ints(&node, "pads", (int64_t[]){1, -2}, 2);
  wire_attr_ints(&node, "list", (int64_t[]){7}, 1);
  wire_attr_int(&node, "aot", 1);
  rabbet_network_t* network = imported(model_of(node, 17));
  assert_string_equal(op_of(network, 0), "plugin");
  assert_int_equal(seen_count, 6);
  assert_true(*(int64_t*)seen_bytes[0] == INT64_C(1) << 40);
  assert_true(*(double*)seen_bytes[1] == 3);
  assert_true(*(int64_t*)seen_bytes[2] == 1);
  assert_int_equal(seen[3].count, 3);
  assert_memory_equal(seen_bytes[3], "abc", 3);
  assert_int_equal(seen[4].dtype, RABBET_DTYPE_INT32);
  assert_int_equal(seen[4].count, 2);
  assert_int_equal(((int32_t*)seen_bytes[4])[1], -2);
  assert_int_equal(seen[5].count, 1);
  rabbet_network_release(network);
}

static void wrong_plugin_attributes_are_refused(void** state) {
  (void)state;
  rabbet_strbuf_t node = plugin_node();
  wire_attr_float(&node, "big", 1);
  expect_error(model_of(node, 17), RABBET_STATUS_INVALID_ARGUMENT,
               "attribute 'big' is FLOAT");
  node = plugin_node();
  wire_attr_int(&node, "big", 1);
  wire_attr_int(&node, "on", 2);
  expect_error(model_of(node, 17), RABBET_STATUS_INVALID_ARGUMENT, "'on'");
  node = plugin_node();
  wire_attr_int(&node, "big", 1);
  wire_attr_ints(&node, "pads", (int64_t[]){INT64_C(1) << 40}, 1);
  expect_error(model_of(node, 17), RABBET_STATUS_INVALID_ARGUMENT, "'pads'");
  // Required, and missing.
  expect_error(model_of(plugin_node(), 17), RABBET_STATUS_INVALID_ARGUMENT,
               "big");
}

// Precedence: a plugin only if the node or the caller asks for it.
static void plugins_come_when_they_are_named(void** state) {
  (void)state;
  rabbet_network_t* network =
      imported(model_of(wire_node("Relu", "x", "y"), 17));
  assert_string_equal(op_of(network, 0), "activation");
  rabbet_network_release(network);
  // By domain as namespace, and over the model's function only by override.
  rabbet_strbuf_t node = wire_node("Relu", "x", "y");
  wire_string(&node, 7, "test_onnx");
  wire_attr_int(&node, "big", 1);
  network = imported(model_of(node, 17));
  assert_string_equal(op_of(network, 0), "plugin");
  rabbet_network_release(network);
}

static void an_absent_plugin_is_named(void** state) {
  (void)state;
  rabbet_strbuf_t node = wire_node("CircPad", "x", "y");
  wire_attr_string(&node, "plugin_namespace", "gone");
  expect_error(
      model_of(node, 17), RABBET_STATUS_UNSUPPORTED,
      "--plugins), or import or load that file first: no plugin 'CircPad', "
      "version '1', namespace 'gone' is registered");
}

// ---- Faults and damage -----------------------------------------------------

// A model with weights, shape arithmetic, a function, a branch.
static rabbet_strbuf_t varied_model(void) {
  static float kernel[4 * 2 * 3 * 3];
  const int64_t kernel_dims[] = {4, 2, 3, 3};
  rabbet_strbuf_t graph = begin_graph();
  rabbet_strbuf_t t =
      wire_tensor("k", FLOAT, kernel_dims, 4, kernel, sizeof(kernel));
  wire_message(&graph, 5, &t);
  add_ints(&graph, "zero", (int64_t[]){0}, 1);
  add_ints(&graph, "rest", (int64_t[]){-1}, 1);
  rabbet_strbuf_t node = wire_node("Conv", "x k", "c");
  wire_attr_ints(&node, "pads", (int64_t[]){1, 1, 1, 1}, 4);
  add_node(&graph, node);
  node = wire_node("Twice", "c", "d");
  wire_string(&node, 7, "local");
  add_node(&graph, node);
  add_node(&graph, wire_node("Shape", "d", "s"));
  add_node(&graph, wire_node("Gather", "s zero", "batch"));
  node = wire_node("Concat", "batch rest", "shape");
  wire_attr_int(&node, "axis", 0);
  add_node(&graph, node);
  add_node(&graph, wire_node("Reshape", "d shape", "flat"));
  node = wire_node("ReduceMean", "flat", "m");
  wire_attr_ints(&node, "axes", (int64_t[]){1}, 1);
  add_node(&graph, node);
  add_node(&graph, wire_node("Softmax", "m", "y"));
  rabbet_strbuf_t model = end_graph(&graph, 17);
  add_function(&model, "Twice", wire_node("Add", "a a", "b"));
  return model;
}

static rabbet_status_t import_once(rabbet_allocator_t allocator,
                                   void* user_data) {
  const rabbet_strbuf_t* model = user_data;
  rabbet_network_t* network = NULL;
  rabbet_onnx_errors_t* errors = NULL;
  rabbet_status_t status = rabbet_network_create(
      RABBET_NETWORK_STRONGLY_TYPED, allocator, (rabbet_logger_t){0}, &network);
  if (rabbet_is_ok(status)) {
    status = rabbet_onnx_errors_create(allocator, &errors);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_onnx_import_memory(network, model->data, model->size, NULL,
                                       NULL, errors);
  }
  if (rabbet_is_ok(status)) status = rabbet_network_validate(network);
  rabbet_onnx_errors_destroy(errors);
  rabbet_network_release(network);
  return status;
}

static void every_allocation_may_fail(void** state) {
  (void)state;
  rabbet_strbuf_t model = varied_model();
  assert_true(rabbet_fault_run(import_once, &model) > 50);
  rabbet_strbuf_deinitialize(&model);
}

static uint32_t next_random(uint32_t* seed) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 17;
  *seed ^= *seed << 5;
  return *seed;
}

// Flips bits, replaces bytes, removes or doubles ranges.
static void damage(rabbet_strbuf_t* copy, uint32_t* seed) {
  uint32_t count = 1 + next_random(seed) % 4;
  for (uint32_t i = 0; i < count && copy->size > 1; ++i) {
    size_t at = next_random(seed) % copy->size;
    size_t run = 1 + next_random(seed) % 8;
    if (run > copy->size - at) run = copy->size - at;
    switch (next_random(seed) % 4) {
      case 0:
        copy->data[at] ^= (char)(1 << next_random(seed) % 8);
        break;
      case 1:
        copy->data[at] = (char)next_random(seed);
        break;
      case 2:
        memmove(copy->data + at, copy->data + at + run, copy->size - at - run);
        copy->size -= run;
        break;
      default:
        memset(copy->data + at, (int)next_random(seed), run);
        break;
    }
  }
}

static void damaged_models_end_in_a_status(void** state) {
  (void)state;
  rabbet_strbuf_t model = varied_model();
  size_t failures = 0;
  for (uint32_t round = 0; round < 5000; ++round) {
    uint32_t seed = 0x9e3779b9u * (round + 1);
    rabbet_strbuf_t copy = wire_new();
    rabbet_strbuf_append(&copy, model.data, model.size);
    damage(&copy, &seed);
    rabbet_status_t status = import_once(rabbet_allocator_system(), &copy);
    failures += !rabbet_is_ok(status);
    if (rabbet_status_code(status) == RABBET_STATUS_INTERNAL) {
      fail_msg("round %u: %s", round, rabbet_status_message(status));
    }
    rabbet_status_free(status);
    rabbet_strbuf_deinitialize(&copy);
  }
  assert_true(failures > 2500);
  rabbet_strbuf_deinitialize(&model);
}

static void every_truncation_ends_in_a_status(void** state) {
  (void)state;
  rabbet_strbuf_t model = varied_model();
  for (size_t size = 0; size < model.size; ++size) {
    rabbet_strbuf_t cut = wire_new();
    rabbet_strbuf_append(&cut, model.data, size);
    cut.size = size;
    rabbet_status_ignore(import_once(rabbet_allocator_system(), &cut));
    rabbet_strbuf_deinitialize(&cut);
  }
  rabbet_strbuf_deinitialize(&model);
}

#define PLUGIN_TEST(name) \
  cmocka_unit_test_setup_teardown(name, register_plugin, deregister_plugin)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_and_dims_are_kept),
      cmocka_unit_test(layer_names_do_not_clash),
      cmocka_unit_test(outputs_are_tensors_of_their_own),
      cmocka_unit_test(wrong_graphs_are_explained),
      cmocka_unit_test(every_unknown_node_is_reported),
      cmocka_unit_test(the_table_answers),
      cmocka_unit_test(functions_are_written_out),
      cmocka_unit_test(endless_functions_are_stopped),
      cmocka_unit_test(unknown_nodes_in_functions_are_found),
      cmocka_unit_test(a_decided_branch_is_taken),
      PLUGIN_TEST(plugins_get_converted_attributes),
      PLUGIN_TEST(wrong_plugin_attributes_are_refused),
      PLUGIN_TEST(plugins_come_when_they_are_named),
      cmocka_unit_test(an_absent_plugin_is_named),
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(damaged_models_end_in_a_status),
      cmocka_unit_test(every_truncation_ends_in_a_status),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
