// Rotations that exporters write out are one step on the null device, as in
// simplify_test.c, and compute the same numbers.
#include "build_check.h"

// A window of the last of four axes; the others are 2, 3 and 4.
static rabbet_tensor_t* part(net_t* net, const char* name, rabbet_tensor_t* x,
                             int64_t start, int64_t size, int64_t stride) {
  return net_add(net, name,
                 (net_layer_t){.op = "slice",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {INTS_ATTR("start", 0, 0, 0, start),
                                         INTS_ATTR("shape", 2, 3, 4, size),
                                         INTS_ATTR("stride", 1, 1, 1, stride)},
                               .attr_count = 3});
}

// (-b, a) for the halves of x, or for its even and odd places.
static rabbet_tensor_t* turned(net_t* net, rabbet_tensor_t* x, int64_t size,
                               bool interleaved) {
  int64_t half = size / 2, stride = interleaved ? 2 : 1;
  rabbet_tensor_t* a = part(net, "a", x, 0, half, stride);
  rabbet_tensor_t* b = part(net, "b", x, interleaved ? 1 : half, half, stride);
  b = net_unary(net, "neg", "NEG", b);
  if (!interleaved) return net_concatenate(net, "turned", b, a, 3);
  a = RESHAPE(net, "a1", a, 2, 3, 4, half, 1);
  b = RESHAPE(net, "b1", b, 2, 3, 4, half, 1);
  return RESHAPE(net, "flat", net_concatenate(net, "turned", b, a, 4), 2, 3, 4,
                 size);
}

static rabbet_tensor_t* rotated(net_t* net, rabbet_tensor_t* x, int64_t size,
                                bool interleaved) {
  return net_binary(
      net, "rot", "SUM",
      net_binary(net, "cosines", "PROD", x, WEIGHTS(net, 2, 1, 4, size)),
      net_binary(net, "sines", "PROD", WEIGHTS(net, 1, 1, 4, size),
                 turned(net, x, size, interleaved)));
}

// Halves of x, or even and odd places, rotated and put into halves.
static rabbet_tensor_t* rotated_parts(net_t* net, rabbet_tensor_t* x,
                                      bool interleaved) {
  rabbet_tensor_t *a = part(net, "a", x, 0, 4, interleaved ? 2 : 1),
                  *b = interleaved ? part(net, "b", x, 1, 4, 2)
                                   : part(net, "b", x, 4, 4, 1);
  rabbet_tensor_t *cosines = WEIGHTS(net, 1, 1, 4, 4),
                  *sines = WEIGHTS(net, 1, 1, 4, 4);
  return net_concatenate(
      net, "rot",
      net_binary(net, "first", "SUB", net_binary(net, "ac", "PROD", a, cosines),
                 net_binary(net, "bs", "PROD", b, sines)),
      net_binary(net, "second", "SUM", net_binary(net, "as", "PROD", sines, a),
                 net_binary(net, "bc", "PROD", b, cosines)),
      3);
}

static void written_out_rotation(void** state) {
  (void)state;
  enum { HALVES, NEIGHBOURS, PARTIAL, JOINED, TRANSPOSED, FORMS };
  for (int form = 0; form < FORMS; ++form) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_dims_t dims =
        form == TRANSPOSED ? DIMS(2, 4, 3, 8) : DIMS(2, 3, 4, 8);
    rabbet_tensor_t* x = net_input(&net, "x", RABBET_DTYPE_FLOAT, dims);
    rabbet_tensor_t* y = x;
    if (form == TRANSPOSED) y = TRANSPOSE(&net, "heads", x, 0, 2, 1, 3);
    if (form == PARTIAL)
      y = net_concatenate(
          &net, "whole",
          rotated(&net, part(&net, "some", x, 0, 6, 1), 6, false),
          part(&net, "rest", x, 6, 2, 1), 3);
    else if (form == JOINED)
      y = rotated_parts(&net, x, false);
    else
      y = rotated(&net, y, 8, form == NEIGHBOURS);
    // The transpose behind meets its inverse.
    if (form == TRANSPOSED) y = TRANSPOSE(&net, "back", y, 0, 2, 1, 3);
    net_output(&net, y, "y");
    EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
    expect_report(&net, "rot ", true);
    expect_report(&net, " + ", false);
    net_end(&net);
  }
}

// The first or second elements of pairs [2, 3, 4, 4, 2], without the last axis
// if `squeezed`.
static rabbet_tensor_t* of_pairs(net_t* net, const char* name,
                                 rabbet_tensor_t* pairs, int64_t which,
                                 bool squeezed) {
  rabbet_tensor_t* y =
      net_add(net, name,
              (net_layer_t){.op = "slice",
                            .inputs = {pairs},
                            .input_count = 1,
                            .attrs = {INTS_ATTR("start", 0, 0, 0, 0, which),
                                      INTS_ATTR("shape", 2, 3, 4, 4, 1)},
                            .attr_count = 2});
  return squeezed ? RESHAPE(net, which ? "b4" : "a4", y, 2, 3, 4, 4) : y;
}

typedef struct complex_form_t {
  bool squeezed;     // parts have no last axis of extent 1
  bool swapped;      // terms of the imaginary part
  bool is_real;      // the difference is the other way round
  bool other_table;  // of the imaginary part
} complex_form_t;

// x [2, 3, 4, 8], as pairs, times complex numbers of a table.
static rabbet_tensor_t* complex_product(net_t* net, rabbet_tensor_t* x,
                                        const complex_form_t* form) {
  bool squeezed = form->squeezed;
  rabbet_tensor_t* pairs = RESHAPE(net, "pairs", x, 2, 3, 4, 4, 2);
  rabbet_tensor_t *a = of_pairs(net, "a", pairs, 0, squeezed),
                  *b = of_pairs(net, "b", pairs, 1, squeezed);
  rabbet_tensor_t* t[3];
  for (int i = 0; i < 3; ++i)
    t[i] = squeezed ? WEIGHTS(net, 1, 3, 1, 4) : WEIGHTS(net, 1, 3, 1, 4, 1);
  rabbet_tensor_t *ac = net_binary(net, "ac", "PROD", a, t[0]),
                  *bs = net_binary(net, "bs", "PROD", t[1], b),
                  *as = net_binary(net, "as", "PROD", a,
                                   t[form->other_table ? 2 : 1]),
                  *bc = net_binary(net, "bc", "PROD", b, t[0]);
  rabbet_tensor_t* parts[] = {
      net_binary(net, "re", "SUB", form->is_real ? bs : ac,
                 form->is_real ? ac : bs),
      net_binary(net, "im", "SUM", form->swapped ? bc : as,
                 form->swapped ? as : bc)};
  for (int i = 0; squeezed && i < 2; ++i)
    parts[i] = RESHAPE(net, i ? "im1" : "re1", parts[i], 2, 3, 4, 4, 1);
  return RESHAPE(net, "flat",
                 net_concatenate(net, "rot", parts[0], parts[1], -1), 2, 3, 4,
                 8);
}

static void complex_product_is_a_rotation(void** state) {
  (void)state;
  for (int i = 0; i < 4; ++i) {
    const complex_form_t form = {.squeezed = i & 1, .swapped = i & 2};
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 8));
    net_output(&net, complex_product(&net, x, &form), "y");
    EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
    expect_report(&net, "rot ", true);
    net_end(&net);
  }
}

static void other_complex_numbers_are_none(void** state) {
  (void)state;
  for (int i = 0; i < 4; ++i) {
    const complex_form_t form = {
        .squeezed = i & 1, .is_real = i < 2, .other_table = i >= 2};
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 8));
    net_output(&net, complex_product(&net, x, &form), "y");
    check_network(&net, 0, 1e-5);
    expect_report(&net, "rotation", false);
    net_end(&net);
  }
}

// diffusers takes pairs, or halves, apart by reshapes [..., n, 2] or [..., 2,
// n].
static rabbet_tensor_t* turned_by_reshapes(net_t* net, rabbet_tensor_t* x,
                                           bool interleaved) {
  if (interleaved) {
    rabbet_tensor_t* pairs = RESHAPE(net, "pairs", x, 2, 3, 4, 4, 2);
    rabbet_tensor_t *a = of_pairs(net, "a", pairs, 0, true),
                    *b = of_pairs(net, "b", pairs, 1, true);
    a = RESHAPE(net, "a1", a, 2, 3, 4, 4, 1);
    b = RESHAPE(net, "b1", net_unary(net, "neg", "NEG", b), 2, 3, 4, 4, 1);
    return RESHAPE(net, "flat", net_concatenate(net, "turned", b, a, 4), 2, 3,
                   4, 8);
  }
  rabbet_tensor_t *halves = RESHAPE(net, "halves", x, 2, 3, 4, 2, 4), *ends[2];
  for (int64_t i = 0; i < 2; ++i) {
    ends[i] =
        net_add(net, i ? "b" : "a",
                (net_layer_t){.op = "slice",
                              .inputs = {halves},
                              .input_count = 1,
                              .attrs = {INTS_ATTR("start", 0, 0, 0, i, 0),
                                        INTS_ATTR("shape", 2, 3, 4, 1, 4)},
                              .attr_count = 2});
    ends[i] = RESHAPE(net, i ? "b4" : "a4", ends[i], 2, 3, 4, 4);
  }
  return net_concatenate(net, "turned", net_unary(net, "neg", "NEG", ends[1]),
                         ends[0], 3);
}

static void rotation_of_reshaped_parts(void** state) {
  (void)state;
  for (int interleaved = 0; interleaved < 2; ++interleaved) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 8));
    rabbet_tensor_t* y = net_binary(
        &net, "rot", "SUM",
        net_binary(&net, "c", "PROD", x, WEIGHTS(&net, 1, 1, 4, 8)),
        net_binary(&net, "s", "PROD", turned_by_reshapes(&net, x, interleaved),
                   WEIGHTS(&net, 1, 1, 4, 8)));
    net_output(&net, y, "y");
    EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
    expect_report(&net, "rot ", true);
    net_end(&net);
  }
}

// Places [start, start + size) of the axis before the last one.
static rabbet_tensor_t* places(net_t* net, const char* name, rabbet_tensor_t* x,
                               int64_t start, int64_t size) {
  return net_add(net, name,
                 (net_layer_t){.op = "slice",
                               .inputs = {x},
                               .input_count = 1,
                               .attrs = {INTS_ATTR("start", 0, 0, start, 0),
                                         INTS_ATTR("shape", 2, 3, size, 8)},
                               .attr_count = 2});
}

// A rotation of four places, from place `start` on, of six.
static rabbet_tensor_t* rotated_places(net_t* net, rabbet_tensor_t* x,
                                       int64_t start) {
  return rotated(net, places(net, "patches", x, start, 4), 8, true);
}

// Class tokens and registers, before or behind what is rotated.
static void rotated_places_are_one_rotation(void** state) {
  (void)state;
  for (int64_t start = 0; start <= 2; start += 2) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 6, 8));
    rabbet_tensor_t* y = rotated_places(&net, x, start);
    rabbet_tensor_t* rest = places(&net, "rest", x, start > 0 ? 0 : 4, 2);
    y = net_concatenate(&net, "all", start > 0 ? rest : y, start > 0 ? y : rest,
                        2);
    net_output(&net, y, "y");
    EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
    expect_report(&net, "rot ", true);
    net_end(&net);
  }
}

static void rotated_places_between_others(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 6, 8));
  rabbet_tensor_t* y =
      net_add(&net, "all",
              (net_layer_t){.op = "concatenation",
                            .inputs = {places(&net, "lead", x, 0, 1),
                                       rotated_places(&net, x, 1),
                                       places(&net, "rest", x, 5, 1)},
                            .input_count = 3,
                            .attrs = {INT_ATTR("axis", -2)},
                            .attr_count = 1});
  net_output(&net, y, "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 1);
  expect_report(&net, "rot ", true);
  net_end(&net);
}

// Decoders leave out elements before or behind the rotated ones; those before
// neighbours are rotated, too.
static void rotated_elements_between_others(void** state) {
  (void)state;
  for (int form = 0; form < 4; ++form) {
    bool interleaved = form & 1, in_middle = form >= 2;
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 12));
    int64_t start = in_middle ? 2 : 4, size = in_middle ? 6 : 8;
    rabbet_tensor_t* y =
        rotated(&net, part(&net, "some", x, start, size, 1), size, interleaved);
    rabbet_tensor_t* parts[3] = {part(&net, "lead", x, 0, start, 1), y, NULL};
    if (in_middle) parts[2] = part(&net, "rest", x, 8, 4, 1);
    y = net_add(&net, "all",
                (net_layer_t){.op = "concatenation",
                              .inputs = {parts[0], parts[1], parts[2]},
                              .input_count = in_middle ? 3 : 2,
                              .attrs = {INT_ATTR("axis", 3)},
                              .attr_count = 1});
    net_output(&net, y, "y");
    EXPECT_STEPS(check_network(&net, 0, 1e-5), interleaved ? 1
                                               : in_middle ? 5
                                                           : 4);
    net_end(&net);
  }
}

// DeepSeek V3: neighbours are rotated, and the results lie in halves.
static void rotated_neighbours_in_halves(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 8));
  net_output(&net, rotated_parts(&net, x, true), "y");
  EXPECT_STEPS(check_network(&net, 0, 1e-5), 2);  // the other one transposes
  expect_report(&net, "rot ", true);
  net_end(&net);
}

// Places in another order, of another tensor, that are missing, or whose
// rotation others read.
static void other_places_stay(void** state) {
  (void)state;
  enum { SWAPPED, OTHER, MISSING, SHARED, FORMS };
  for (int form = 0; form < FORMS; ++form) {
    net_t net = net_begin(0, rabbet_allocator_system());
    rabbet_tensor_t* x =
        net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 6, 8));
    rabbet_tensor_t* z =
        net_input(&net, "z", RABBET_DTYPE_FLOAT, DIMS(2, 3, 6, 8));
    rabbet_tensor_t* y = rotated_places(&net, x, form == MISSING ? 1 : 2);
    rabbet_tensor_t* lead =
        places(&net, "lead", form == OTHER ? z : x, 0, form == MISSING ? 1 : 2);
    if (form == SHARED)
      net_output(&net, net_unary(&net, "neg2", "NEG", y), "s");
    net_output(&net,
               net_concatenate(&net, "all", form == SWAPPED ? y : lead,
                               form == SWAPPED ? lead : y, 2),
               "y");
    net_output(&net, net_unary(&net, "neg3", "NEG", z), "o");
    check_network(&net, 0, 1e-5);
    expect_report(&net, "all ", true);
    net_end(&net);
  }
}

// Other signs, halves of other tensors, and tables that differ are none.
static void almost_rotation(void** state) {
  (void)state;
  net_t net = net_begin(0, rabbet_allocator_system());
  rabbet_tensor_t* x =
      net_input(&net, "x", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 8));
  rabbet_tensor_t* z =
      net_input(&net, "z", RABBET_DTYPE_FLOAT, DIMS(2, 3, 4, 8));
  rabbet_tensor_t* y =
      net_binary(&net, "rot", "SUM",
                 net_binary(&net, "c", "PROD", z, WEIGHTS(&net, 1, 1, 4, 8)),
                 net_binary(&net, "s", "PROD", turned(&net, x, 8, false),
                            WEIGHTS(&net, 1, 1, 4, 8)));
  rabbet_tensor_t* swapped = net_concatenate(
      &net, "swapped", part(&net, "right", x, 4, 4, 1),
      net_unary(&net, "minus", "NEG", part(&net, "left", x, 0, 4, 1)), 3);
  y = net_binary(
      &net, "sum", "SUM", y,
      net_binary(
          &net, "rot2", "SUM",
          net_binary(&net, "c2", "PROD", x, WEIGHTS(&net, 1, 1, 4, 8)),
          net_binary(&net, "s2", "PROD", swapped, WEIGHTS(&net, 1, 1, 4, 8))));
  net_output(&net, y, "y");
  check_network(&net, 0, 1e-5);
  expect_report(&net, "rotation", false);
  net_end(&net);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(written_out_rotation),
      cmocka_unit_test(complex_product_is_a_rotation),
      cmocka_unit_test(other_complex_numbers_are_none),
      cmocka_unit_test(rotation_of_reshaped_parts),
      cmocka_unit_test(rotated_places_are_one_rotation),
      cmocka_unit_test(rotated_places_between_others),
      cmocka_unit_test(rotated_elements_between_others),
      cmocka_unit_test(rotated_neighbours_in_halves),
      cmocka_unit_test(other_places_stay),
      cmocka_unit_test(almost_rotation),
  };
  return cmocka_run_group_tests_name("rotation", tests, NULL, NULL);
}
