// plan_corpus FOLDER: writes each sample plan, whole and its META section
// alone; and plans of fuzz_plugins.h's layers, for devices that run them.
#include "cuda_stand_in/stand_in.h"
#include "plan_bytes.h"
#include "plan_samples.h"
#include "plugin/aot_kernels.h"
#include "plugin_answers.h"

// y[n, 2 m] = x[n, m] beside 2 x.
static void sample_scaled(maker_t* m) {
  static const double factor[] = {2};
  const rabbet_attr_t attr = {
      .name = "factor", .type = RABBET_ATTR_FLOAT, .data = factor, .count = 1};
  rabbet_expr_t rows = maker_dim(m, 0, 0, NULL),
                columns = maker_dim(m, 0, 1, NULL);
  rabbet_expr_t wide =
      maker_op(m, RABBET_EXPR_PROD, maker_number(m, 2), columns);
  int32_t x =
      maker_io(m, "x", true, RABBET_DTYPE_FLOAT, MAKER_SHAPE(rows, columns));
  int32_t y =
      maker_io(m, "y", false, RABBET_DTYPE_FLOAT, MAKER_SHAPE(rows, wide));
  rabbet_plan_step_t* step =
      maker_step(m, &(maker_step_t){.name = "scaled",
                                    .op = RABBET_OP_PLUGIN,
                                    .kernel = "plugin",
                                    .plugin = "scaled",
                                    .inputs = {x},
                                    .input_count = 1,
                                    .outputs = {y},
                                    .output_count = 1});
  step->tactic = 2;
  step->plugin_attrs = maker_copy(m, &attr, sizeof(attr));
  step->plugin_attr_count = 1;
}

// y = the elements of x[n] above 1.
static void sample_picked(maker_t* m) {
  static const int64_t bounds[] = {1, 5};
  const rabbet_attr_t attr = {
      .name = "bounds", .type = RABBET_ATTR_INTS, .data = bounds, .count = 2};
  rabbet_expr_t n = maker_dim(m, 0, 0, "n");
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, MAKER_SHAPE(n));
  rabbet_shape_t shape = MAKER_SHAPE(maker_element(m, 2, 0, n));
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  int32_t count =
      maker_value(m, "count", RABBET_DTYPE_INT64, (rabbet_shape_t){.rank = 0});
  rabbet_plan_step_t* step =
      maker_step(m, &(maker_step_t){.name = "picked",
                                    .op = RABBET_OP_PLUGIN,
                                    .kernel = "plugin",
                                    .plugin = "picked",
                                    .inputs = {x},
                                    .input_count = 1,
                                    .outputs = {y, count},
                                    .output_count = 2,
                                    .reads = {count},
                                    .read_count = 1});
  step->plugin_attrs = maker_copy(m, &attr, sizeof(attr));
  step->plugin_attr_count = 1;
}

// sample_scaled, whose plugin the plan's own source registers.
static void sample_sourced(maker_t* m) {
  sample_scaled(m);
  m->steps[0].plugin_name = "sourced";
  sample_add_modules(m);
}

// ---- Kernels made ahead of time

// A kernel with a parameter of each kind, launched by blocks and by clusters.
static rabbet_status_t ahead_launches(void* self, rabbet_dim_builder_t* builder,
                                      const rabbet_plugin_query_t* query,
                                      int32_t tactic,
                                      const rabbet_plugin_input_t* inputs,
                                      const rabbet_plugin_output_t* outputs,
                                      rabbet_plugin_launch_sink_t sink) {
  (void)self, (void)query, (void)tactic, (void)outputs;
  static const float numbers[3] = {0.5f, 1, 2};
  static const rabbet_plugin_image_t images[] = {
      {3, 5, "machine code", 12},
      {-1, -1, STAND_IN_IDLE, sizeof(STAND_IN_IDLE)}};
  rabbet_dim_t rows = inputs[0].dims[0], columns = inputs[0].dims[1];
  rabbet_dim_t none, two, half, threads, row_bytes, bytes;
  RABBET_EXPECT_OK(rabbet_dim_constant(builder, 0, &none));
  RABBET_EXPECT_OK(rabbet_dim_constant(builder, 2, &two));
  RABBET_EXPECT_OK(rabbet_dim_constant(builder, 64, &threads));
  RABBET_EXPECT_OK(rabbet_dim_constant(builder, 32, &row_bytes));
  RABBET_EXPECT_OK(
      rabbet_dim_operation(builder, RABBET_DIM_CEIL_DIV, rows, two, &half));
  RABBET_EXPECT_OK(
      rabbet_dim_operation(builder, RABBET_DIM_PROD, rows, row_bytes, &bytes));
  RABBET_EXPECT_OK(sink.workspace(sink.context, bytes));
  const rabbet_plugin_tensor_map_t map = {.struct_size = sizeof(map),
                                          .rank = 2,
                                          .dims = {columns, rows},
                                          .strides = {row_bytes},
                                          .box = {8, 4},
                                          .element_strides = {1, 1}};
  const rabbet_plugin_arg_t args[] = {
      {.kind = RABBET_PLUGIN_ARG_INPUT},
      {.kind = RABBET_PLUGIN_ARG_OUTPUT},
      {.kind = RABBET_PLUGIN_ARG_WORKSPACE, .value = none},
      {.kind = RABBET_PLUGIN_ARG_INTEGER, .value = rows, .size = 4},
      {.kind = RABBET_PLUGIN_ARG_BYTES, .data = numbers, .size = 12},
      {.kind = RABBET_PLUGIN_ARG_TENSOR_MAP, .map = &map}};
  rabbet_plugin_launch_t launch = {.struct_size = sizeof(launch),
                                   .kernel = "idle",
                                   .images = images,
                                   .image_count = 2,
                                   .image_size = sizeof(images[0]),
                                   .grid = {rows, two, two},
                                   .block = {threads, two, two},
                                   .shared_bytes = bytes,
                                   .args = args,
                                   .arg_count = 6,
                                   .arg_size = sizeof(args[0])};
  RABBET_EXPECT_OK(sink.add(sink.context, &launch));
  launch.cluster[0] = launch.cluster[1] = 2;
  launch.cluster[2] = 1;
  launch.grid[0] = two;
  launch.grid[2] = half;
  launch.cooperative = true;
  return sink.add(sink.context, &launch);
}

static rabbet_status_t ahead_create(void* user_data,
                                    const rabbet_plugin_create_t* args,
                                    rabbet_plugin_instance_t* out) {
  static const rabbet_plugin_vtable_t vtable = {
      .struct_size = sizeof(vtable),
      .output_count = plugin_one_output,
      .describe = plugin_describe_like,
      .launches = ahead_launches,
  };
  (void)user_data, (void)args;
  *out = (rabbet_plugin_instance_t){&vtable, NULL};
  return rabbet_ok();
}

static void ahead_encode(void** out_data, size_t* out_size) {
  const rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                           .name = "ahead",
                                           .plugin_namespace = "test",
                                           .create = ahead_create,
                                           .input_count = 1};
  const rabbet_plugin_create_t args = {.struct_size = sizeof(args)};
  const rabbet_plugin_tensor_t tensor = {.dtype = RABBET_DTYPE_FLOAT,
                                         .dims = {.rank = 2, .d = {-1, 8}}};
  const rabbet_plugin_tensor_t tensors[] = {tensor, tensor};
  const rabbet_plugin_query_t query = {.struct_size = sizeof(query),
                                       .layer_name = "ahead",
                                       .device = "cuda",
                                       .tensors = tensors,
                                       .input_count = 1,
                                       .output_count = 1};
  rabbet_allocator_t system = rabbet_allocator_system();
  rabbet_plugin_t* plugin = NULL;
  rabbet_aot_kernels_t* kernels = NULL;
  RABBET_EXPECT_OK(rabbet_plugin_register(&creator));
  RABBET_EXPECT_OK(
      rabbet_plugin_create("ahead", "1", "test", &args, system, &plugin));
  RABBET_EXPECT_OK(
      rabbet_aot_kernels_create(plugin, &query, 0, system, &kernels));
  RABBET_EXPECT_OK(
      rabbet_aot_kernels_encode(kernels, system, out_data, out_size));
  rabbet_aot_kernels_destroy(kernels);
  rabbet_plugin_release(plugin);
}

// x[n, 8] -> y[n, 8] by the plugin's kernels, of which the plan is all there
// is.
static void sample_ahead(maker_t* m) {
  static const int32_t first[] = {0};
  rabbet_artifact_t artifact = {.name = "idle"};
  void* data = NULL;
  ahead_encode(&data, &artifact.size);
  artifact.data = maker_copy(m, data, artifact.size);
  artifact.key = rabbet_hash128(data, artifact.size);
  rabbet_free(rabbet_allocator_system(), data);
  rabbet_shape_t shape =
      MAKER_SHAPE(maker_dim(m, 0, 0, "n"), maker_number(m, 8));
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  rabbet_plan_step_t* step =
      maker_step(m, &(maker_step_t){.name = "ahead",
                                    .op = RABBET_OP_PLUGIN,
                                    .kernel = "cuda.aot",
                                    .plugin = "ahead",
                                    .inputs = {x},
                                    .input_count = 1,
                                    .outputs = {y},
                                    .output_count = 1});
  step->artifacts = first;
  step->artifact_count = 1;
  m->plan->artifacts = maker_copy(m, &artifact, sizeof(artifact));
  m->plan->artifact_count = 1;
}

// ---- Files

static const struct {
  const char* device;
  sample_t sample;
} plugin_samples[] = {
    {"cpu", {"scaled", sample_scaled}},   {"cuda", {"scaled", sample_scaled}},
    {"cpu", {"picked", sample_picked}},   {"cuda", {"picked", sample_picked}},
    {"cpu", {"sourced", sample_sourced}}, {"cuda", {"ahead", sample_ahead}}};

static int write_file(const char* folder, const char* name, const char* suffix,
                      const void* data, size_t size) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s.%s", folder, name, suffix);
  FILE* file = fopen(path, "wb");
  bool ok = file && fwrite(data, 1, size, file) == size;
  if (file) ok = fclose(file) == 0 && ok;
  if (!ok) perror(path);
  return ok ? 0 : 1;
}

static int write_plugins(const char* folder) {
  int failed = 0;
  for (size_t i = 0; i < sizeof(plugin_samples) / sizeof(plugin_samples[0]);
       ++i) {
    maker_t maker;
    void* data = NULL;
    size_t size = 0;
    char name[64];
    const char* device = plugin_samples[i].device;
    maker_begin(&maker, rabbet_allocator_system());
    plugin_samples[i].sample.make(&maker);
    maker.plan->device = device;
    maker_write(&maker, rabbet_allocator_system(), &data, &size);
    maker_end(&maker);
    snprintf(name, sizeof(name), "%s_plugin_%s", device,
             plugin_samples[i].sample.name);
    failed += write_file(folder, name, "whole", data, size);
    rabbet_free_aligned(rabbet_allocator_system(), data, RABBET_PLAN_ALIGNMENT);
  }
  return failed;
}

static int write_plan(const char* folder, const char* name, maker_t* maker) {
  void* data = NULL;
  size_t size = 0;
  maker_write(maker, rabbet_allocator_system(), &data, &size);
  maker_end(maker);
  plan_bytes_t parts = plan_bytes_split(data);
  int failed = write_file(folder, name, "whole", data, size);
  failed += write_file(folder, name, "meta", parts.section[PLAN_META],
                       parts.size[PLAN_META]);
  rabbet_free_aligned(rabbet_allocator_system(), data, RABBET_PLAN_ALIGNMENT);
  return failed;
}

static int write_sequences(const char* folder, const char* name,
                           void (*make)(maker_t makers[3])) {
  maker_t makers[3];
  maker_begin_sequences(makers, 3, rabbet_allocator_system());
  make(makers);
  return write_plan(folder, name, &makers[0]);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  int failed = 0;
  for (size_t s = 0; s < SAMPLE_COUNT; ++s) {
    maker_t maker;
    maker_begin(&maker, rabbet_allocator_system());
    samples[s].make(&maker);
    failed += write_plan(argv[1], samples[s].name, &maker);
  }
  failed += write_sequences(argv[1], "branches", sample_branches);
  failed += write_sequences(argv[1], "entries", sample_entries);
  failed += write_sequences(argv[1], "loop", sample_loop);
  failed += write_plugins(argv[1]);
  return failed > 0;
}
