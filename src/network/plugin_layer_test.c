// Plugin layers: descriptions, size tensors, aliases, shape inputs, ownership.
#include "check.h"
#include "faults/fault_allocator.h"
#include "network/network.h"
#include "ops/group.h"
#include "plugin_answers.h"

#define DIMS(...)                                                      \
  (rabbet_dims_t) {                                                    \
    .rank = sizeof((int64_t[]){__VA_ARGS__}) / 8, .d = { __VA_ARGS__ } \
  }

// ---- A plugin with three faces ---------------------------------------------

typedef enum face_t {
  FACE_NONZERO,  // outputs: (rank, size) INT64, the size
  FACE_INPLACE,  // output 0 lies in the place of input 0
  FACE_TILE,     // input 1 is a shape input: output dims are its values
} face_t;

typedef struct instance_t {
  face_t face;
  bool has_key;
  int* destroyed;
} instance_t;

static void instance_destroy(void* self) {
  instance_t* instance = self;
  ++*instance->destroyed;
}

static int32_t instance_output_count(void* self) {
  return ((instance_t*)self)->face == FACE_NONZERO ? 2 : 1;
}

static rabbet_status_t describe_nonzero(rabbet_dim_builder_t* builder,
                                        const rabbet_plugin_input_t* input,
                                        rabbet_plugin_output_t* outputs) {
  rabbet_dim_t upper = 0, opt = 0, two = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dim_constant(builder, 1, &upper));
  for (int32_t i = 0; i < input->rank; ++i) {
    RABBET_RETURN_IF_ERROR(rabbet_dim_operation(builder, RABBET_DIM_PROD, upper,
                                                input->dims[i], &upper));
  }
  RABBET_RETURN_IF_ERROR(rabbet_dim_constant(builder, 2, &two));
  RABBET_RETURN_IF_ERROR(
      rabbet_dim_operation(builder, RABBET_DIM_FLOOR_DIV, upper, two, &opt));
  outputs[0].dtype = outputs[1].dtype = RABBET_DTYPE_INT64;
  outputs[0].rank = 2;
  RABBET_RETURN_IF_ERROR(
      rabbet_dim_constant(builder, input->rank, &outputs[0].dims[0]));
  outputs[1].is_size_tensor = true;
  return rabbet_dim_size_tensor(builder, 1, opt, upper, &outputs[0].dims[1]);
}

static rabbet_status_t instance_describe(void* self,
                                         rabbet_dim_builder_t* builder,
                                         const rabbet_plugin_input_t* inputs,
                                         size_t input_count,
                                         rabbet_plugin_output_t* outputs) {
  (void)input_count;
  instance_t* instance = self;
  if (instance->face == FACE_NONZERO) {
    return describe_nonzero(builder, inputs, outputs);
  }
  plugin_like(&inputs[0], &outputs[0]);
  if (instance->face == FACE_INPLACE) {
    outputs[0].aliased_input = 0;
    return rabbet_ok();
  }
  outputs[0].rank = (int32_t)inputs[1].value_count;
  for (int32_t i = 0; i < outputs[0].rank; ++i) {
    outputs[0].dims[i] = inputs[1].values[i];
  }
  return rabbet_ok();
}

static rabbet_status_t instance_timing_key(void* self,
                                           rabbet_plugin_attr_sink_t sink) {
  instance_t* instance = self;
  if (!instance->has_key) return rabbet_ok();
  const rabbet_attr_t key = {
      .name = "key", .type = RABBET_ATTR_STRING, "k1", .count = 2};
  return sink.add(sink.context, &key);
}

static rabbet_status_t instance_enqueue(void* self,
                                        const rabbet_plugin_call_t* call) {
  (void)self;
  (void)call;
  return RABBET_STATUS(RABBET_STATUS_INTERNAL, "not run by these tests");
}

static const rabbet_plugin_vtable_t instance_vtable = {
    .struct_size = sizeof(rabbet_plugin_vtable_t),
    .destroy = instance_destroy,
    .output_count = instance_output_count,
    .describe = instance_describe,
    .timing_key = instance_timing_key,
    .enqueue = instance_enqueue,
};

// Instances are made by the tests themselves.
static rabbet_status_t refuse_to_create(void* user_data,
                                        const rabbet_plugin_create_t* args,
                                        rabbet_plugin_instance_t* out) {
  (void)user_data;
  (void)args;
  (void)out;
  return RABBET_STATUS(RABBET_STATUS_INTERNAL, "not called by these tests");
}

static const rabbet_plugin_creator_t creator = {
    .struct_size = sizeof(rabbet_plugin_creator_t),
    .name = "Test",
    .origin = "plugin_layer_test.c",
    .create = refuse_to_create,
    .input_count = -1,
};
static const rabbet_plugin_creator_t tile_creator = {
    .struct_size = sizeof(rabbet_plugin_creator_t),
    .name = "Tile",
    .origin = "plugin_layer_test.c",
    .create = refuse_to_create,
    .input_count = 2,
    .shape_inputs = 2,
};

// ---- Helpers ---------------------------------------------------------------

typedef struct fixture_t {
  rabbet_network_t* network;
  instance_t instance;  // outlives the network
  int destroyed;
} fixture_t;

static int setup(void** state) {
  fixture_t* f = calloc(1, sizeof(*f));
  RABBET_EXPECT_OK(rabbet_network_create(RABBET_NETWORK_STRONGLY_TYPED,
                                         rabbet_allocator_system(),
                                         (rabbet_logger_t){0}, &f->network));
  *state = f;
  return 0;
}

static int teardown(void** state) {
  fixture_t* f = *state;
  rabbet_network_release(f->network);
  free(f);
  return 0;
}

static rabbet_tensor_t* add_input(rabbet_network_t* network, const char* name,
                                  rabbet_dtype_t dtype, rabbet_dims_t dims) {
  rabbet_tensor_t* tensor = NULL;
  RABBET_EXPECT_OK(
      rabbet_network_add_input(network, name, dtype, &dims, &tensor));
  return tensor;
}

static instance_t* new_instance(fixture_t* f, face_t face) {
  f->instance = (instance_t){.face = face, .destroyed = &f->destroyed};
  return &f->instance;
}

static rabbet_layer_t* add_plugin(fixture_t* f, instance_t* instance,
                                  const rabbet_plugin_creator_t* by,
                                  rabbet_tensor_t** inputs, size_t count) {
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_OK(rabbet_network_add_plugin_instance(
      f->network, by, (rabbet_plugin_instance_t){&instance_vtable, instance},
      "plugin", inputs, count, &layer));
  return layer;
}

// ---- Tests -----------------------------------------------------------------

static void size_tensors_become_symbols(void** state) {
  fixture_t* f = *state;
  instance_t* instance = new_instance(f, FACE_NONZERO);
  rabbet_tensor_t* x =
      add_input(f->network, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 6));
  rabbet_layer_t* layer = add_plugin(f, instance, &creator, &x, 1);
  assert_int_equal(rabbet_layer_output_count(layer), 2);
  assert_string_equal(rabbet_tensor_name(layer->outputs[1]), "plugin_output_1");
  rabbet_dims_t dims;
  RABBET_EXPECT_OK(rabbet_tensor_dims(layer->outputs[0], &dims));
  assert_int_equal(dims.rank, 2);
  assert_int_equal(dims.d[0], 2);
  assert_int_equal(dims.d[1], -1);
  assert_true(layer->is_size_tensor[1]);
  assert_true(layer->outputs[1]->is_host_read);
  const rabbet_expr_graph_t* graph = f->network->graph;
  const rabbet_expr_node_t* node =
      rabbet_expr_node(graph, layer->outputs[0]->shape.d[1]);
  assert_int_equal(node->op, RABBET_EXPR_SYMBOL);
  const rabbet_symbol_t* symbol = rabbet_expr_symbol(graph, (size_t)node->a);
  assert_int_equal(symbol->kind, RABBET_SYMBOL_VALUE);
  assert_int_equal(symbol->tensor, layer->outputs[1]->id);
  assert_int_not_equal(symbol->upper, RABBET_EXPR_NONE);
  // The size is a symbol: a reshape by it needs no other.
  assert_int_equal(layer->outputs[1]->values[0], layer->outputs[0]->shape.d[1]);
  assert_ptr_equal(rabbet_layer_plugin_self(layer), instance);
}

static void aliases_are_kept(void** state) {
  fixture_t* f = *state;
  instance_t* instance = new_instance(f, FACE_INPLACE);
  rabbet_tensor_t* x =
      add_input(f->network, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 6));
  rabbet_layer_t* layer = add_plugin(f, instance, &creator, &x, 1);
  RABBET_EXPECT_OK(rabbet_network_infer(f->network));
  assert_int_equal(layer->aliased[0], 0);
  assert_int_equal(layer->outputs[0]->shape.d[0], x->shape.d[0]);
}

static void shape_inputs_give_values(void** state) {
  fixture_t* f = *state;
  instance_t* instance = new_instance(f, FACE_TILE);
  rabbet_tensor_t* inputs[] = {
      add_input(f->network, "x", RABBET_DTYPE_FLOAT, DIMS(-1, 6)),
      add_input(f->network, "n", RABBET_DTYPE_INT32, DIMS(2)),
  };
  rabbet_layer_t* layer = add_plugin(f, instance, &tile_creator, inputs, 2);
  rabbet_dims_t dims;
  RABBET_EXPECT_OK(rabbet_tensor_dims(layer->outputs[0], &dims));
  assert_int_equal(dims.rank, 2);
  assert_true(inputs[1]->is_host_read);
  assert_int_equal(layer->outputs[0]->shape.d[1], inputs[1]->values[1]);
  RABBET_EXPECT_OK(rabbet_tensor_set_dtype(inputs[1], RABBET_DTYPE_FLOAT));
  RABBET_EXPECT_ERROR(rabbet_tensor_dims(layer->outputs[0], &dims),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "layer 'plugin': input 1 ('n') of the plugin is a shape "
                      "input");
}

static void instances_belong_to_who_holds_them(void** state) {
  fixture_t* f = *state;
  instance_t* instance = new_instance(f, FACE_INPLACE);
  rabbet_tensor_t* x =
      add_input(f->network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 6));
  rabbet_layer_t* layer = NULL;
  // A failed call takes nothing.
  RABBET_EXPECT_ERROR(
      rabbet_network_add_plugin_instance(
          f->network, &tile_creator,
          (rabbet_plugin_instance_t){&instance_vtable, instance}, "p", &x, 1,
          &layer),
      RABBET_STATUS_INVALID_ARGUMENT, "takes 2 inputs, not 1");
  RABBET_EXPECT_ERROR(
      rabbet_network_add_plugin_instance(
          f->network, &creator, (rabbet_plugin_instance_t){NULL, instance}, "p",
          &x, 1, &layer),
      RABBET_STATUS_PLUGIN, "lacks a vtable");
  rabbet_plugin_vtable_t broken = instance_vtable;
  broken.enqueue = NULL;
  RABBET_EXPECT_ERROR(
      rabbet_network_add_plugin_instance(
          f->network, &creator, (rabbet_plugin_instance_t){&broken, instance},
          "p", &x, 1, &layer),
      RABBET_STATUS_PLUGIN, "enqueue");
  assert_int_equal(f->destroyed, 0);
  assert_int_equal(rabbet_network_layer_count(f->network), 0);
  assert_int_equal(f->network->tensors.count, 1);
  layer = add_plugin(f, instance, &creator, &x, 1);
  RABBET_EXPECT_OK(rabbet_network_remove_tensor(f->network, layer->outputs[0]));
  assert_int_equal(f->destroyed, 1);
}

static void unknown_plugins_are_named(void** state) {
  fixture_t* f = *state;
  rabbet_tensor_t* x =
      add_input(f->network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 6));
  rabbet_layer_t* layer = NULL;
  RABBET_EXPECT_ERROR(rabbet_network_add_plugin(f->network, "NoSuch", "1", "",
                                                "p", &x, 1, NULL, 0, &layer),
                      RABBET_STATUS_NOT_FOUND, "adding layer 'p': ");
}

// ---- Signatures ------------------------------------------------------------

static char* signature(rabbet_group_t* group, bool expected_cacheable) {
  rabbet_strbuf_t buffer;
  bool cacheable = false;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &buffer);
  RABBET_EXPECT_OK(rabbet_group_signature(group, &cacheable, &buffer));
  assert_int_equal(cacheable, expected_cacheable);
  return buffer.data;
}

static void expect_change(rabbet_group_t* group, const char* before,
                          bool changes) {
  char* after = signature(group, true);
  assert_int_equal(strcmp(before, after) != 0, changes);
  free(after);
}

static void signatures_tell_groups_apart(void** state) {
  fixture_t* f = *state;
  instance_t* instance = new_instance(f, FACE_INPLACE);
  instance->has_key = true;
  rabbet_tensor_t* x =
      add_input(f->network, "x", RABBET_DTYPE_FLOAT, DIMS(2, 6));
  rabbet_layer_t* layer = add_plugin(f, instance, &creator, &x, 1);
  static const float data[12];
  rabbet_group_value_t values[2] = {
      {.dtype = RABBET_DTYPE_FLOAT,
       .dims = DIMS(2, 6),
       .min = DIMS(2, 6),
       .max = DIMS(2, 6)},
      {.dtype = RABBET_DTYPE_FLOAT,
       .dims = DIMS(2, 6),
       .min = DIMS(2, 6),
       .max = DIMS(2, 6)},
  };
  const int32_t in[] = {0}, out[] = {1};
  int64_t type = 1;
  rabbet_attr_t attrs[3] = {
      {.name = "type", .type = RABBET_ATTR_INT, &type, .count = 1},
      {.name = "alpha",
       .type = RABBET_ATTR_FLOAT,
       "\0\0\0\0\0\0\0",
       .count = 1},
      {.name = "beta", .type = RABBET_ATTR_FLOAT, "\0\0\0\0\0\0\0", .count = 1},
  };
  rabbet_group_node_t node = {.op = rabbet_op_find("activation"),
                              .name = "a",
                              .attrs = attrs,
                              .inputs = in,
                              .input_count = 1,
                              .outputs = out,
                              .output_count = 1};
  rabbet_group_t group = {values, 2, in, 1, out, 1, &node, 1};
  char* before = signature(&group, true);
  node.name = "b";
  expect_change(&group, before, false);
  type = 2;
  expect_change(&group, before, true);
  type = 1;
  values[0].format = RABBET_FORMAT_HWC;
  expect_change(&group, before, true);
  values[0].format = RABBET_FORMAT_LINEAR;
  values[1].max.d[0] = 3;
  expect_change(&group, before, true);
  values[1].max.d[0] = 2;
  values[0].constant = data;
  expect_change(&group, before, true);
  values[0].constant = NULL;
  expect_change(&group, before, false);
  node.op = layer->op;
  node.attrs = NULL;
  node.plugin = layer->plugin;
  free(signature(&group, true));
  instance->has_key = false;
  free(signature(&group, false));
  free(before);
}

// ---- Faults ----------------------------------------------------------------

static rabbet_status_t edit(rabbet_network_t* network, instance_t* instance) {
  rabbet_tensor_t *x = NULL, *n = NULL, *w = NULL;
  rabbet_layer_t *plugin = NULL, *concat = NULL, *shuffle = NULL;
  const int64_t six[] = {6}, axis = 0;
  const rabbet_attr_t attr = {
      .name = "axis", .type = RABBET_ATTR_INT, &axis, .count = 1};
  RABBET_RETURN_IF_ERROR(rabbet_network_add_input(
      network, "x", RABBET_DTYPE_FLOAT, &DIMS(-1, 6), &x));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_set_dim_name(x, 0, "batch"));
  RABBET_RETURN_IF_ERROR(
      rabbet_network_add_input(network, "n", RABBET_DTYPE_INT64, &DIMS(1), &n));
  RABBET_RETURN_IF_ERROR(rabbet_network_add_weights(
      network, "w", (rabbet_weights_t){RABBET_DTYPE_INT64, six, 1}, &DIMS(1),
      true, &w));
  RABBET_RETURN_IF_ERROR(rabbet_network_add_plugin_instance(
      network, &creator, (rabbet_plugin_instance_t){&instance_vtable, instance},
      NULL, &x, 1, &plugin));
  // The network owns the plugin, though the next call may fail.
  RABBET_RETURN_IF_ERROR(rabbet_network_add_layer(
      network, "concatenation", NULL, (rabbet_tensor_t*[]){n, w}, 2, &attr, 1,
      &concat));
  RABBET_RETURN_IF_ERROR(rabbet_network_add_layer(
      network, "shuffle", "r",
      (rabbet_tensor_t*[]){plugin->outputs[0], concat->outputs[0]}, 2, NULL, 0,
      &shuffle));
  RABBET_RETURN_IF_ERROR(
      rabbet_network_mark_output(network, shuffle->outputs[0]));
  RABBET_RETURN_IF_ERROR(rabbet_network_validate(network));
  // One setter may reorder layers, the other sets a name.
  RABBET_RETURN_IF_ERROR(rabbet_layer_set_input(plugin, 0, plugin->inputs[0]));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_set_name(shuffle->outputs[0], "result"));
  return rabbet_network_validate(network);
}

static rabbet_status_t build_network(rabbet_allocator_t allocator,
                                     void* user_data) {
  fixture_t* f = user_data;
  instance_t instance = {.face = FACE_INPLACE, .destroyed = &f->destroyed};
  rabbet_network_t* network = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_network_create(0, allocator, (rabbet_logger_t){0}, &network));
  rabbet_status_t status = edit(network, &instance);
  // After any failure the network is intact: it can be queried and released.
  for (size_t i = 0; i < network->tensors.count; ++i) {
    assert_int_equal(network->tensors.data[i]->id, i);
  }
  for (size_t i = 0; i < network->layers.count; ++i) {
    assert_int_equal(network->layers.data[i]->index, i);
  }
  rabbet_network_release(network);
  return status;
}

static void failed_allocations_leave_nothing(void** state) {
  assert_true(rabbet_fault_run(build_network, *state) > 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(size_tensors_become_symbols),
      TEST(aliases_are_kept),
      TEST(shape_inputs_give_values),
      TEST(instances_belong_to_who_holds_them),
      TEST(unknown_plugins_are_named),
      TEST(signatures_tell_groups_apart),
      TEST(failed_allocations_leave_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
