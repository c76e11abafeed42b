// Plans that between them hold all that a plan can hold, and what they compute.
#ifndef RABBET_TESTS_PLAN_SAMPLES_H_
#define RABBET_TESTS_PLAN_SAMPLES_H_

#include "plan_maker.h"

static inline void sample_unary(maker_t* m, const char* name, rabbet_op_id_t op,
                                const char* attr, int64_t value, int32_t x,
                                int32_t y) {
  maker_step(m, &(maker_step_t){.name = name,
                                .op = op,
                                .attrs = {MAKER_INT(attr, value)},
                                .attr_count = attr ? 1 : 0,
                                .inputs = {x},
                                .input_count = 1,
                                .outputs = {y},
                                .output_count = 1});
}

static inline void sample_relu(maker_t* m, const char* name, int32_t x,
                               int32_t y) {
  sample_unary(m, name, RABBET_OP_ACTIVATION, "type", 0, x, y);
}

static inline void sample_add(maker_t* m, const char* name, int32_t a,
                              int32_t b, int32_t y) {
  maker_step(m, &(maker_step_t){.name = name,
                                .op = RABBET_OP_ELEMENTWISE,
                                .attrs = {MAKER_INT("op", 0)},
                                .attr_count = 1,
                                .inputs = {a, b},
                                .input_count = 2,
                                .outputs = {y},
                                .output_count = 1});
}

// y[2,3] = relu(x[2,3] + w[2,3]), w = -1, -0.5, 0, 0.5, 1, 1.5.
static inline void sample_static(maker_t* m) {
  static const int64_t dims[] = {2, 3};
  static const float weights[] = {-1, -0.5f, 0, 0.5f, 1, 1.5f};
  rabbet_shape_t shape = maker_shape(m, 2, dims);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t w = maker_constant(m, "w", RABBET_DTYPE_FLOAT, shape, weights);
  int32_t sum = maker_value(m, "sum", RABBET_DTYPE_FLOAT, shape);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  sample_add(m, "add", x, w, sum);
  sample_relu(m, "relu", sum, y);
  m->steps[0].time_us = 1.5f;
  m->steps[0].report_json = "[{\"kernel\": \"other\", \"us\": 2.5}]";
}

// y[batch,2] = relu(x[batch,2]), or x + relu(x), or relu(relu(x)): an entry
// each. Profiles 0 and 2 run the first.
static inline void sample_entries(maker_t makers[3]) {
  static const int32_t entries[] = {0, 1, 0, 2};
  static const char* const names[] = {"", "profile 1", "profile 3"};
  makers[0].plan->entries = entries;
  makers[0].plan->profile_count = 4;
  for (int i = 0; i < 3; ++i) {
    maker_t* m = &makers[i];
    m->sequence->name = names[i];
    rabbet_expr_t batch = maker_dim(m, 0, 0, "batch");
    rabbet_shape_t shape = MAKER_SHAPE(batch, maker_number(m, 2));
    int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
    int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
    int32_t again = maker_value(m, "again", RABBET_DTYPE_FLOAT, shape);
    sample_relu(m, "relu", x, i == 0 ? y : again);
    if (i == 1) sample_add(m, "add", x, again, y);
    if (i == 2) sample_relu(m, "twice", again, y);
  }
  makers[0].sequence->profile_count = 2;
  makers[0].ranges[1] = makers[0].ranges[0];
  makers[0].ranges[1].max.d[0] = 9;
  makers[1].ranges[0].opt.d[0] = makers[1].ranges[0].max.d[0] =
      makers[1].ranges[0].min.d[0];
}

// y[batch,2] = c ? relu(x[batch,2]) : x + relu(x), in three sequences.
static inline void sample_branches(maker_t makers[3]) {
  static const int32_t inputs[] = {1};
  static const char* const names[] = {"", "c/true", "c/false"};
  int32_t x[3], y[3], c = 0;
  for (int i = 0; i < 3; ++i) {
    maker_t* m = &makers[i];
    m->sequence->name = names[i];
    if (i == 0)
      c = maker_io(m, "c", true, RABBET_DTYPE_BOOL, (rabbet_shape_t){0});
    rabbet_expr_t batch = maker_dim(m, i == 0 ? 1 : 0, 0, "batch");
    rabbet_expr_t two = maker_number(m, 2);
    rabbet_shape_t shape = MAKER_SHAPE(batch, two);
    x[i] = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
    y[i] = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  }
  sample_relu(&makers[1], "relu", x[1], y[1]);
  int32_t again = maker_value(&makers[2], "again", RABBET_DTYPE_FLOAT,
                              makers[2].values[x[2]].shape);
  sample_relu(&makers[2], "relu", x[2], again);
  sample_add(&makers[2], "add", x[2], again, y[2]);
  rabbet_plan_step_t* step =
      maker_step(&makers[0], &(maker_step_t){.name = "choose",
                                             .op = RABBET_OP_CONDITION,
                                             .kernel = "",
                                             .inputs = {c, x[0]},
                                             .input_count = 2,
                                             .outputs = {y[0]},
                                             .output_count = 1});
  rabbet_plan_call_t calls[] = {
      {.sequence = 1, .inputs = inputs, .input_count = 1},
      {.sequence = 2, .inputs = inputs, .input_count = 1}};
  step->calls = maker_copy(&makers[0], calls, sizeof(calls));
  step->call_count = 2;
}

// for i in range(n), while c: x = relu(x + w[7 - i]), s[i] = relu(x + w[7 -
// i]); y[batch,2] = x. In three sequences: the body and the condition.
static inline void sample_loop(maker_t makers[3]) {
  static const int32_t body_inputs[] = {2, 3}, condition_inputs[] = {2, 3, 1};
  static const char* const names[] = {"", "loop/body", "loop/condition"};
  int32_t n = 0, c[3] = {0}, x[3], w[3], y[3] = {0}, s[3] = {0};
  for (int i = 0; i < 3; ++i) {
    maker_t* m = &makers[i];
    m->sequence->name = names[i];
    if (i == 0) {
      n = maker_io(m, "n", true, RABBET_DTYPE_INT32, (rabbet_shape_t){0});
      c[i] = maker_io(m, "c", true, RABBET_DTYPE_BOOL, (rabbet_shape_t){0});
    }
    rabbet_expr_t batch = maker_dim(m, i == 0 ? 2 : 0, 0, "batch");
    rabbet_expr_t two = maker_number(m, 2), eight = maker_number(m, 8);
    rabbet_shape_t shape = MAKER_SHAPE(batch, two);
    rabbet_shape_t stack = MAKER_SHAPE(eight, batch, two);
    x[i] = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
    w[i] = maker_io(m, "w", true, RABBET_DTYPE_FLOAT, i == 0 ? stack : shape);
    if (i == 2) {
      c[i] = maker_io(m, "c", true, RABBET_DTYPE_BOOL, (rabbet_shape_t){0});
      y[i] = maker_io(m, "on", false, RABBET_DTYPE_BOOL, (rabbet_shape_t){0});
      continue;
    }
    y[i] = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
    s[i] = maker_io(m, "s", false, RABBET_DTYPE_FLOAT, i == 0 ? stack : shape);
  }
  int32_t sum = maker_value(&makers[1], "sum", RABBET_DTYPE_FLOAT,
                            makers[1].values[x[1]].shape);
  sample_add(&makers[1], "add", x[1], w[1], sum);
  sample_relu(&makers[1], "next", sum, y[1]);
  sample_relu(&makers[1], "element", sum, s[1]);
  sample_unary(&makers[2], "condition", RABBET_OP_IDENTITY, NULL, 0, c[2],
               y[2]);
  rabbet_plan_step_t* step = maker_step(
      &makers[0],
      &(maker_step_t){
          .name = "loop",
          .op = RABBET_OP_LOOP,
          .kernel = "",
          .attrs = {MAKER_INTS("varying", 0), MAKER_INTS("reverse", 1),
                    MAKER_INTS("sources", 0, 1), MAKER_INTS("kinds", 0, 1),
                    MAKER_INTS("lengths", -1, -1), MAKER_INT("count", 0),
                    MAKER_INT("condition", -1)},
          .attr_count = 7,
          .inputs = {n, c[0], x[0], w[0]},
          .input_count = 4,
          .outputs = {y[0], s[0]},
          .output_count = 2});
  rabbet_plan_call_t calls[] = {
      {.sequence = 1, .inputs = body_inputs, .input_count = 2},
      {.sequence = 2, .inputs = condition_inputs, .input_count = 3}};
  step->calls = maker_copy(&makers[0], calls, sizeof(calls));
  step->call_count = 2;
}

// y[batch,2] = relu(a[batch,2] + b[batch,2]); n[1] = 2 * batch by the host;
// m[1] = float(batch - 1), read by a step from what the host knows.
// 0 <= batch <= 8.
static inline void sample_dynamic(maker_t* m) {
  rabbet_expr_t batch = maker_dim(m, 0, 0, "batch");
  rabbet_expr_t two = maker_number(m, 2), one = maker_number(m, 1);
  rabbet_shape_t shape = MAKER_SHAPE(batch, two), row = MAKER_SHAPE(one);
  int32_t a = maker_io(m, "a", true, RABBET_DTYPE_FLOAT, shape);
  int32_t b = maker_io(m, "b", true, RABBET_DTYPE_FLOAT, shape);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  int32_t n = maker_io(m, "n", false, RABBET_DTYPE_INT32, row);
  int32_t out = maker_io(m, "m", false, RABBET_DTYPE_FLOAT, row);
  int32_t sum = maker_value(m, "sum", RABBET_DTYPE_FLOAT, shape);
  int32_t less = maker_value(m, "less", RABBET_DTYPE_INT64, row);
  m->ios[0].dim_names[0] = m->ios[1].dim_names[0] = "batch";
  rabbet_expr_t twice = maker_op(m, RABBET_EXPR_PROD, batch, two);
  rabbet_expr_t minus = maker_op(m, RABBET_EXPR_SUB, batch, one);
  m->values[n].host_values = maker_copy(m, &twice, sizeof(twice));
  m->values[n].host_value_count = 1;
  m->values[less].host_values = maker_copy(m, &minus, sizeof(minus));
  m->values[less].host_value_count = 1;
  sample_add(m, "add", a, b, sum);
  sample_relu(m, "relu", sum, y);
  sample_unary(m, "cast", RABBET_OP_CAST, "to_type", RABBET_DTYPE_FLOAT, less,
               out);
}

// kept = the elements of x[n] that are not 0; y = kept + relu(kept). n <= 8.
static inline void sample_reads(maker_t* m) {
  rabbet_expr_t n = maker_dim(m, 0, 0, "n");
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, MAKER_SHAPE(n));
  rabbet_expr_t kept_count = maker_element(m, 1, 0, n);
  int32_t count =
      maker_value(m, "count", RABBET_DTYPE_INT64, (rabbet_shape_t){.rank = 0});
  assert_int_equal(count, 1);
  rabbet_shape_t shape = MAKER_SHAPE(kept_count);
  int32_t kept = maker_value(m, "kept", RABBET_DTYPE_FLOAT, shape);
  int32_t positive = maker_value(m, "positive", RABBET_DTYPE_FLOAT, shape);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  maker_step(m, &(maker_step_t){.name = "compact",
                                .op = RABBET_OP_PLUGIN,
                                .kernel = "plugin",
                                .plugin = "compact",
                                .inputs = {x},
                                .input_count = 1,
                                .outputs = {kept, count},
                                .output_count = 2,
                                .reads = {count},
                                .read_count = 1});
  sample_relu(m, "relu", kept, positive);
  sample_add(m, "add", kept, positive, y);
}

// places = where x[n] is not 0; y = places as FLOAT. n <= 8; `most` is what the
// plan says of how many there can be.
static inline void sample_counts_of(maker_t* m, rabbet_expr_t n,
                                    rabbet_expr_t most) {
  rabbet_expr_t one = maker_number(m, 1);
  rabbet_symbol_t found = {
      .kind = RABBET_SYMBOL_VALUE, .tensor = 1, .opt = most, .upper = most};
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, MAKER_SHAPE(n));
  int32_t count =
      maker_value(m, "count", RABBET_DTYPE_INT64, (rabbet_shape_t){.rank = 0});
  assert_int_equal(count, 1);
  rabbet_shape_t shape = MAKER_SHAPE(one, maker_symbol(m, found));
  int32_t places = maker_value(m, "places", RABBET_DTYPE_INT32, shape);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  maker_step(m, &(maker_step_t){.name = "non_zero",
                                .op = RABBET_OP_NON_ZERO,
                                .inputs = {x},
                                .input_count = 1,
                                .outputs = {places, count},
                                .output_count = 2,
                                .reads = {count},
                                .read_count = 1});
  sample_unary(m, "cast", RABBET_OP_CAST, "to_type", RABBET_DTYPE_FLOAT, places,
               y);
}

static inline void sample_counts(maker_t* m) {
  rabbet_expr_t n = maker_dim(m, 0, 0, "n");
  sample_counts_of(m, n, n);
}

// y = the first `size` elements of x.
static inline void sample_slice(maker_t* m, int32_t x, int32_t size,
                                int32_t y) {
  maker_step(m, &(maker_step_t){.name = "slice",
                                .op = RABBET_OP_SLICE,
                                .attrs = {{.name = "start",
                                           .type = RABBET_ATTR_INTS,
                                           .data = (int64_t[]){0},
                                           .count = 1}},
                                .attr_count = 1,
                                .inputs = {x, -1, size},
                                .input_count = 3,
                                .outputs = {y},
                                .output_count = 1});
}

// y = the first s[0] elements of x[8]. 0 <= s[0] <= 8.
static inline void sample_shape_input(maker_t* m) {
  static const int64_t low[] = {0}, middle[] = {4}, high[] = {8};
  rabbet_expr_t one = maker_number(m, 1), eight = maker_number(m, 8);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, MAKER_SHAPE(eight));
  int32_t s = maker_io(m, "s", true, RABBET_DTYPE_INT32, MAKER_SHAPE(one));
  rabbet_expr_t element = maker_element(m, s, 0, RABBET_EXPR_NONE);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, MAKER_SHAPE(element));
  m->ios[1].is_shape_input = true;
  m->ranges[1].min_values = low;
  m->ranges[1].opt_values = middle;
  m->ranges[1].max_values = high;
  m->ranges[1].value_count = 1;
  m->values[s].host_values = maker_copy(m, &element, sizeof(element));
  m->values[s].host_value_count = 1;
  sample_slice(m, x, s, y);
}

// t = relu(x[2,3]); u = bump(t) in t's place; v[6] is a view of u; y = relu(v).
// The output z lies in the place of the input c: z = bump(copy of c).
static inline void sample_aliases(maker_t* m) {
  static const int64_t dims[] = {2, 3}, flat[] = {6};
  rabbet_shape_t shape = maker_shape(m, 2, dims);
  rabbet_shape_t row = maker_shape(m, 1, flat);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t c = maker_io(m, "c", true, RABBET_DTYPE_FLOAT, row);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, row);
  int32_t z = maker_io(m, "z", false, RABBET_DTYPE_FLOAT, row);
  int32_t t = maker_value(m, "t", RABBET_DTYPE_FLOAT, shape);
  int32_t u = maker_value(m, "u", RABBET_DTYPE_FLOAT, shape);
  int32_t v = maker_value(m, "v", RABBET_DTYPE_FLOAT, row);
  int32_t copy = maker_value(m, "copy", RABBET_DTYPE_FLOAT, row);
  static const int32_t aliased[] = {0};
  m->values[u].alias = m->values[v].alias = t;
  m->values[copy].alias = z;
  m->values[copy].storage = RABBET_PLAN_STORAGE_IO;
  m->values[copy].io = 3;
  m->ios[3].aliased_input = 1;
  sample_relu(m, "relu", x, t);
  sample_unary(m, "copy", RABBET_OP_IDENTITY, NULL, 0, c, copy);
  for (int i = 0; i < 2; ++i) {
    rabbet_plan_step_t* step =
        maker_step(m, &(maker_step_t){.name = i ? "bump c" : "bump t",
                                      .op = RABBET_OP_PLUGIN,
                                      .kernel = "plugin",
                                      .plugin = "bump",
                                      .inputs = {i ? copy : t},
                                      .input_count = 1,
                                      .outputs = {i ? z : u},
                                      .output_count = 1});
    step->group.nodes[0].aliased = aliased;
  }
  sample_relu(m, "relu again", v, y);
}

// y = relu(joined[48]), whose parts a[16] = relu(x[16]) and b[32] = tanh(c[32])
// are made in place; z[32] is an output whose parts are relu(a) and tanh(x).
static inline void sample_parts(maker_t* m) {
  static const int64_t short_dims[] = {16}, dims[] = {32}, long_dims[] = {48};
  rabbet_shape_t row = maker_shape(m, 1, short_dims);
  rabbet_shape_t twice = maker_shape(m, 1, dims);
  rabbet_shape_t all = maker_shape(m, 1, long_dims);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, row);
  int32_t c = maker_io(m, "c", true, RABBET_DTYPE_FLOAT, twice);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, all);
  int32_t z = maker_io(m, "z", false, RABBET_DTYPE_FLOAT, twice);
  int32_t joined = maker_value(m, "joined", RABBET_DTYPE_FLOAT, all);
  int32_t a = maker_value(m, "a", RABBET_DTYPE_FLOAT, row);
  int32_t b = maker_value(m, "b", RABBET_DTYPE_FLOAT, twice);
  int32_t first = maker_value(m, "first", RABBET_DTYPE_FLOAT, row);
  int32_t second = maker_value(m, "second", RABBET_DTYPE_FLOAT, row);
  m->values[a].alias = m->values[b].alias = joined;
  m->values[first].alias = m->values[second].alias = z;
  m->values[first].storage = m->values[second].storage = RABBET_PLAN_STORAGE_IO;
  m->values[first].io = m->values[second].io = 3;
  m->values[b].offset = m->values[second].offset = 64;
  sample_relu(m, "a", x, a);
  sample_unary(m, "b", RABBET_OP_ACTIVATION, "type", 2, c, b);
  sample_relu(m, "y", joined, y);
  sample_relu(m, "first", a, first);
  sample_unary(m, "second", RABBET_OP_ACTIVATION, "type", 2, x, second);
}

// length reads x[0] as n, of which nothing is known before; y = the first n
// elements of x[8], z = relu(y).
static inline void sample_late(maker_t* m) {
  rabbet_expr_t one = maker_number(m, 1), eight = maker_number(m, 8);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, MAKER_SHAPE(eight));
  int32_t n = maker_value(m, "n", RABBET_DTYPE_INT64, MAKER_SHAPE(one));
  rabbet_expr_t element = maker_element(m, n, 0, RABBET_EXPR_NONE);
  rabbet_shape_t shape = MAKER_SHAPE(element);
  int32_t y = maker_value(m, "y", RABBET_DTYPE_FLOAT, shape);
  int32_t z = maker_io(m, "z", false, RABBET_DTYPE_FLOAT, shape);
  m->values[n].host_values = maker_copy(m, &element, sizeof(element));
  m->values[n].host_value_count = 1;
  maker_step(m, &(maker_step_t){.name = "length",
                                .op = RABBET_OP_PLUGIN,
                                .kernel = "plugin",
                                .plugin = "length",
                                .inputs = {x},
                                .input_count = 1,
                                .outputs = {n},
                                .output_count = 1,
                                .reads = {n},
                                .read_count = 1});
  sample_slice(m, x, n, y);
  sample_relu(m, "relu", y, z);
}

// y[4] = tanh(x[4] + w) in one step of two layers, w = 0.25.
static inline void sample_fused(maker_t* m) {
  static const int64_t dims[] = {4}, one[] = {1};
  static const float quarter = 0.25f;
  rabbet_shape_t shape = maker_shape(m, 1, dims);
  int32_t x = maker_io(m, "x", true, RABBET_DTYPE_FLOAT, shape);
  int32_t w = maker_constant(m, "w", RABBET_DTYPE_FLOAT, maker_shape(m, 1, one),
                             &quarter);
  int32_t y = maker_io(m, "y", false, RABBET_DTYPE_FLOAT, shape);
  int32_t unused = maker_value(m, "unused", RABBET_DTYPE_FLOAT, shape);
  sample_add(m, "add", x, w, y);
  sample_unary(m, "tanh", RABBET_OP_ACTIVATION, "type", 2, unused, y);
  // Put both layers into the first step: values are x, w, y, the sum.
  rabbet_plan_step_t* step = &m->steps[0];
  rabbet_group_node_t nodes[2] = {step->group.nodes[0],
                                  m->steps[1].group.nodes[0]};
  static const int32_t sum[] = {3}, last[] = {2}, all[] = {0, 1, 2, -1};
  nodes[0].outputs = nodes[1].inputs = sum;
  nodes[1].outputs = last;
  rabbet_group_value_t values[4] = {step->group.values[0],
                                    step->group.values[1],
                                    step->group.values[2],
                                    {.dtype = RABBET_DTYPE_FLOAT}};
  rabbet_shape_t shapes[4] = {{.rank = -1}, {.rank = -1}, {.rank = -1}, shape};
  step->values = maker_copy(m, all, sizeof(all));
  step->group.values = maker_copy(m, values, sizeof(values));
  step->group.value_count = 4;
  step->group.nodes = maker_copy(m, nodes, sizeof(nodes));
  step->group.node_count = 2;
  step->inner_shapes = maker_copy(m, shapes, sizeof(shapes));
  step->name = "add + tanh";
  m->sequence->step_count = 1;
  m->sequence->value_count = (size_t)unused;
}

// sample_static, whose steps keep something in the plan: the first both, the
// second one artifact.
static inline void sample_artifacts(maker_t* m) {
  static uint8_t bytes[100];
  static const int32_t all[] = {0, 1}, last[] = {1};
  rabbet_artifact_t list[] = {
      {.key = {1, 9}, .name = "one.cu", .data = bytes, .size = 100},
      {.key = {2, 3}, .name = "two.cu", .data = bytes + 1, .size = 36}};
  for (size_t i = 0; i < sizeof(bytes); ++i)
    bytes[i] = (uint8_t)(i * 7 + 1);
  sample_static(m);
  m->plan->artifacts = maker_copy(m, list, sizeof(list));
  m->plan->artifact_count = 2;
  m->steps[0].artifacts = all;
  m->steps[0].artifact_count = 2;
  m->steps[1].artifacts = last;
  m->steps[1].artifact_count = 1;
}

static inline void sample_add_modules(maker_t* m) {
  static const char source[] = "import numpy\n";
  static const char* const needed[] = {"numpy 2.1.0"};
  rabbet_carried_t list[] = {
      {.kind = RABBET_CARRIED_PYTHON,
       .name = "ops",
       .data = source,
       .size = strlen(source),
       .is_package = true,
       .requirements = needed,
       .requirement_count = 1},
      {.kind = RABBET_CARRIED_PYTHON,
       .name = "ops.padding",
       .data = source,
       .size = strlen(source)},
      {.kind = RABBET_CARRIED_PYTHON, .name = "ops.empty", .data = ""}};
  m->plan->carried = maker_copy(m, list, sizeof(list));
  m->plan->carried_count = 3;
}

// sample_static, with source that none of its steps needs.
static inline void sample_carried(maker_t* m) {
  sample_static(m);
  sample_add_modules(m);
}

typedef struct sample_t {
  const char* name;
  void (*make)(maker_t* maker);
} sample_t;

static const sample_t samples[] = {
    {"static", sample_static},   {"dynamic", sample_dynamic},
    {"reads", sample_reads},     {"shape_input", sample_shape_input},
    {"aliases", sample_aliases}, {"late", sample_late},
    {"fused", sample_fused},     {"parts", sample_parts},
    {"counts", sample_counts},   {"artifacts", sample_artifacts},
    {"carried", sample_carried},
};
#define SAMPLE_COUNT (sizeof(samples) / sizeof(samples[0]))

#endif  // RABBET_TESTS_PLAN_SAMPLES_H_
