// Estimated steps of reference kernels beside their actual loops, for small
// shapes.
#include "ops/cost.h"

#include "check.h"
#include "ops/enums.h"

#define DIMS(...)                                                      \
  {                                                                    \
    .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .d = { \
      __VA_ARGS__                                                      \
    }                                                                  \
  }
#define VIEW(...) \
  { .dtype = RABBET_DTYPE_FLOAT, .dims = DIMS(__VA_ARGS__) }
#define NUMBER(attr, value)                                                \
  {                                                                        \
    .name = (attr), .type = RABBET_ATTR_INT, .data = (int64_t[]){(value)}, \
    .count = 1                                                             \
  }

typedef struct cost_case_t {
  rabbet_op_id_t op;
  rabbet_view_t inputs[6];
  rabbet_view_t output;
  rabbet_attr_t attrs[2];
  double least, most;
} cost_case_t;

static const cost_case_t cases[] = {
    // Each element once.
    {RABBET_OP_UNARY, {VIEW(10, 20)}, VIEW(10, 20), {{0}}, 400, 401},
    {RABBET_OP_GATHER, {VIEW(9), VIEW(50)}, VIEW(50), {{0}}, 109, 110},
    // 8 maps of 6 x 6, each a sum of 4 * 3 * 3.
    {RABBET_OP_CONVOLUTION,
     {VIEW(1, 4, 8, 8), VIEW(8, 4, 3, 3)},
     VIEW(1, 8, 6, 6),
     {{0}},
     8 * 36 * 36,
     8 * 36 * 36 + 900},
    {RABBET_OP_DECONVOLUTION,
     {VIEW(1, 4, 6, 6), VIEW(4, 8, 3, 3)},
     VIEW(1, 8, 8, 8),
     {{0}},
     8 * 64 * 36,
     8 * 64 * 36 + 1000},
    {RABBET_OP_MATRIX_MULTIPLY,
     {VIEW(7, 50), VIEW(50, 3)},
     VIEW(7, 3),
     {{0}},
     21 * 50,
     21 * 50 + 600},
    {RABBET_OP_MATRIX_MULTIPLY,
     {VIEW(50, 7), VIEW(50, 3)},
     VIEW(7, 3),
     {NUMBER("op0", RABBET_MATRIX_TRANSPOSE)},
     21 * 50,
     21 * 50 + 600},
    // A window beyond the image visits the image.
    {RABBET_OP_POOLING,
     {VIEW(1, 2, 10, 10)},
     VIEW(1, 2, 5, 5),
     {{.name = "window_size_nd",
       .type = RABBET_ATTR_INTS,
       .data = (int64_t[]){4, 1000000},
       .count = 2}},
     50 * 40,
     50 * 40 + 300},
    {RABBET_OP_RESIZE,
     {VIEW(1, 3, 4, 4)},
     VIEW(1, 3, 8, 8),
     {NUMBER("resize_mode", RABBET_INTERPOLATION_CUBIC)},
     192 * 16,
     192 * 16 + 300},
    {RABBET_OP_GRID_SAMPLE,
     {VIEW(1, 3, 4, 4), VIEW(1, 8, 8, 2)},
     VIEW(1, 3, 8, 8),
     {NUMBER("interpolation_mode", RABBET_INTERPOLATION_LINEAR)},
     192 * 4,
     192 * 4 + 500},
    // Rows are sorted.
    {RABBET_OP_TOPK, {VIEW(1024)}, VIEW(1), {{0}}, 10240, 14000},
    // 2 batches of 100 boxes of 3 classes, each against all before it.
    {RABBET_OP_NMS,
     {VIEW(2, 100, 4),
      VIEW(2, 100, 3),
      {.dtype = RABBET_DTYPE_INT32, .data = (int32_t[]){100}}},
     {.dtype = RABBET_DTYPE_NONE},
     {{0}},
     2 * 300 * 300,
     2 * 300 * 300 + 30000},
    // 10 tokens, 2 experts each: three products of 16 x 32.
    {RABBET_OP_MOE,
     {VIEW(10, 16), VIEW(10, 2), VIEW(10, 2), VIEW(4, 16, 32), VIEW(4, 16, 32),
      VIEW(4, 32, 16)},
     VIEW(10, 16),
     {{0}},
     10 * 2 * 3 * 512,
     10 * 2 * 3 * 512 + 8000},
};

static void steps_are_those_of_the_loops(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    const cost_case_t* one = &cases[i];
    size_t inputs = 0, attrs = 0;
    while (inputs < 6 &&
           (one->inputs[inputs].dims.rank > 0 || one->inputs[inputs].data))
      ++inputs;
    while (attrs < 2 && one->attrs[attrs].name)
      ++attrs;
    rabbet_op_eval_t eval = {.op = rabbet_op_get(one->op),
                             .inputs = one->inputs,
                             .input_count = inputs,
                             .outputs = &one->output,
                             .output_count = 1,
                             .attrs = one->attrs,
                             .attr_count = attrs};
    double steps = rabbet_op_steps(&eval);
    if (steps < one->least || steps > one->most)
      fail_msg("%s (case %zu): %g steps; expected %g to %g", eval.op->name, i,
               steps, one->least, one->most);
  }
}

// Extents whose product is beyond 64 bits.
static void large_shapes_do_not_overflow(void** state) {
  (void)state;
  const int64_t most = INT64_C(1) << 47;
  rabbet_view_t inputs[2] = {VIEW(most, most), VIEW(most, most)};
  rabbet_view_t output = VIEW(most, most);
  rabbet_op_eval_t eval = {.op = rabbet_op_get(RABBET_OP_MATRIX_MULTIPLY),
                           .inputs = inputs,
                           .input_count = 2,
                           .outputs = &output,
                           .output_count = 1};
  assert_true(rabbet_op_steps(&eval) >
              (double)most * (double)most * (double)most / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_are_those_of_the_loops),
      cmocka_unit_test(large_shapes_do_not_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
