// plan_corpus FOLDER: writes each sample plan, whole and its META section
// alone; and plans of fuzz_plugins.h's layers, for devices that run them.
#include "plan_bytes.h"
#include "plan_samples.h"

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

static const sample_t plugin_samples[] = {{"scaled", sample_scaled},
                                          {"picked", sample_picked}};
static const char* const plugin_devices[] = {"cpu", "cuda"};

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
  for (size_t i = 0; i < 4; ++i) {
    maker_t maker;
    void* data = NULL;
    size_t size = 0;
    char name[64];
    const char* device = plugin_devices[i % 2];
    maker_begin(&maker, rabbet_allocator_system());
    plugin_samples[i / 2].make(&maker);
    maker.plan->device = device;
    maker_write(&maker, rabbet_allocator_system(), &data, &size);
    maker_end(&maker);
    snprintf(name, sizeof(name), "%s_plugin_%s", device,
             plugin_samples[i / 2].name);
    failed += write_file(folder, name, "whole", data, size);
    rabbet_free_aligned(rabbet_allocator_system(), data, RABBET_PLAN_ALIGNMENT);
  }
  return failed;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  int failed = 0;
  for (size_t s = 0; s < SAMPLE_COUNT; ++s) {
    maker_t maker;
    void* data = NULL;
    size_t size = 0;
    maker_begin(&maker, rabbet_allocator_system());
    samples[s].make(&maker);
    maker_write(&maker, rabbet_allocator_system(), &data, &size);
    maker_end(&maker);
    plan_bytes_t parts = plan_bytes_split(data);
    failed += write_file(argv[1], samples[s].name, "whole", data, size);
    failed += write_file(argv[1], samples[s].name, "meta",
                         parts.section[PLAN_META], parts.size[PLAN_META]);
    rabbet_free_aligned(rabbet_allocator_system(), data, RABBET_PLAN_ALIGNMENT);
  }
  failed += write_plugins(argv[1]);
  return failed > 0;
}
