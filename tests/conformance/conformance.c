// conformance DEVICE [FAMILY | PART/PARTS]: runs the suite on a device;
// RABBET_TEST_SEED repeats the case whose seed a failure told,
// RABBET_TEST_CASES limits the cases of a family, RABBET_TEST_SHARE=N runs one
// of N, but no fewer than six, and one tactic of some kernels for each; some
// families have several functions in each case of a share.
// conformance --families: their names.
#include "conformance/conformance.h"

enum {
  CONFORMANCE_MOST = 256,   // families
  CONFORMANCE_STEP = 7919,  // between the seeds of a family's cases
  CONFORMANCE_LEAST = 6,    // cases of a share
  CONFORMANCE_JOINED = 4    // functions of a case of a share
};

// ---- Random numbers --------------------------------------------------------

int64_t conformance_random(conformance_t* t, int64_t below) {
  t->random += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = t->random;
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (int64_t)((z ^ z >> 31) >> 1) % below;
}

int64_t conformance_in_turn(conformance_t* t, int64_t below) {
  int64_t drawn = t->turn % below;
  // Two draws from as many numbers differ at once, not only after a round.
  t->turn = t->turn / below + drawn;
  return drawn;
}

rabbet_dims_t conformance_dims(conformance_t* t, int32_t least, int32_t most) {
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 48, 65};
  int64_t left = t->large ? 120000 : 3000;
  int32_t rank =
      least + (int32_t)conformance_random(t, (int64_t)most - least + 1);
  rabbet_dims_t dims = {.rank = rank};
  for (int32_t i = 0; i < rank; ++i) {
    dims.d[i] = sizes[conformance_random(t, sizeof(sizes) / sizeof(sizes[0]))];
    if (dims.d[i] > left) dims.d[i] = left;
    left /= dims.d[i];
  }
  // The rest of a large case goes to one axis.
  if (t->large && rank > 0) dims.d[conformance_random(t, rank)] *= left;
  if (!t->large && rank > 0 && conformance_chance(t, 40)) {
    dims.d[conformance_random(t, rank)] = 0;
  }
  return dims;
}

rabbet_dtype_t conformance_type(conformance_t* t, uint32_t types) {
  for (;;) {
    // Types behind are those of one device alone.
    int64_t dtype = conformance_random(t, RABBET_DTYPE_E8M0 + 1);
    if (types >> dtype & 1) return (rabbet_dtype_t)dtype;
  }
}

rabbet_dtype_t conformance_type_in_turn(conformance_t* t, uint32_t types) {
  int64_t left = conformance_in_turn(t, __builtin_popcount(types));
  int dtype = 0;
  while (!(types >> dtype & 1) || left-- > 0)
    ++dtype;
  return (rabbet_dtype_t)dtype;
}

void conformance_set_type(conformance_t* t, rabbet_dtype_t dtype) {
  bool real = 1u << dtype & (CONFORMANCE_REALS | 1u << RABBET_DTYPE_FP8);
  if (t->is_double && CONFORMANCE_REALS >> dtype & 1)
    dtype = RABBET_DTYPE_DOUBLE;
  t->c.dtype = dtype;
  t->c.low = real ? -2 : dtype == RABBET_DTYPE_UINT8 ? 0 : -100;
  t->c.high = real ? 2 : 100;
  // A grid of 1/64 up to 2 has 8 bits, which BF16 holds.
}

rabbet_attr_t conformance_ints(conformance_t* t, const char* name,
                               const int64_t* data, size_t count) {
  int64_t* copy = NULL;
  RABBET_EXPECT_OK(rabbet_arena_copy(&t->c.arena, data, count * sizeof(*data),
                                     (void**)&copy));
  return (rabbet_attr_t){
      .name = name, .type = RABBET_ATTR_INTS, .data = copy, .count = count};
}
rabbet_attr_t conformance_int(conformance_t* t, const char* name,
                              int64_t value) {
  const int64_t pair[] = {value, 0};
  rabbet_attr_t attr = conformance_ints(t, name, pair, 1);
  attr.type = RABBET_ATTR_INT;
  return attr;
}
rabbet_attr_t conformance_bool(conformance_t* t, const char* name, bool value) {
  rabbet_attr_t attr = conformance_int(t, name, value);
  attr.type = RABBET_ATTR_BOOL;
  return attr;
}

void conformance_permutation(conformance_t* t, int32_t rank,
                             int64_t* out_axes) {
  for (int32_t i = 0; i < rank; ++i) {
    int64_t k = conformance_random(t, i + 1);
    out_axes[i] = out_axes[k];
    out_axes[k] = i;
  }
}

// ---- Devices ---------------------------------------------------------------

static const struct {
  const char* device;
  const char* family;  // NULL: all
  conformance_lack_t lack;
  const char* reason;
} conformance_lacks[] = {
    {"null", NULL, CONFORMANCE_NEVER, "computes with the reference kernels"},
    {"cuda", "double", CONFORMANCE_NEVER, "a GPU computes no DOUBLE"},
    {"cpu", "cached_rotation", CONFORMANCE_NEVER,
     "the builder makes these layers for GPUs"},
    {"cpu", "reduce_chain", CONFORMANCE_NEVER,
     "layers around a reduction are kernels of their own"},
    {"cpu", "squeeze", CONFORMANCE_NEVER,
     "the builder makes these groups for GPUs"},
    {"cpu", "double_matrix_multiply", CONFORMANCE_NEVER,
     "layers around a product of DOUBLE are kernels of their own"},
    {"cpu", "double_thin_products", CONFORMANCE_NEVER, "the same"},
    {"cpu", "double_tiled_products", CONFORMANCE_NEVER, "the same"},
    {"cpu", "double_convolution", CONFORMANCE_NEVER, "the same"},
    {"cpu", "double_deconvolution", CONFORMANCE_NEVER, "the same"},
    {"cpu", "pooling_modes", CONFORMANCE_NOT_YET,
     "blends, and padding that oneDNN counts otherwise, by the reference"},
    {"cpu", "matrix_multiply_integers", CONFORMANCE_NOT_YET,
     "no product of integers but the reference"},
    {"cpu", "quantized_convolution", CONFORMANCE_NEVER,
     "processors without products of 8 bits; layers that oneDNN cannot fuse"},
    {"cpu", "quantized_product", CONFORMANCE_NEVER, "the same"},
    {"cpu", "quantized_chain", CONFORMANCE_NEVER, "the same"},
    {"cuda", "quantized_chain", CONFORMANCE_NEVER,
     "layers up to the first tensor of 8 bits are a kernel"},
    {"cpu", "quantized_product_fp8", CONFORMANCE_NEVER,
     "computed in FLOAT, layer by layer"},
    {"cuda", "quantized_convolution", CONFORMANCE_NEVER,
     "what cuDNN has no engine for: UINT8, channels that are no whole vectors"},
    {"cpu", "products_of_nothing", CONFORMANCE_NEVER,
     "oneDNN takes no tensors without elements"},
    {"cpu", "empty_batches", CONFORMANCE_NEVER, "the same"},
    {"cuda", "empty_batches", CONFORMANCE_NEVER,
     "libraries take none: the kernel 'empty', which does nothing"},
    {"cpu", "parts", CONFORMANCE_NEVER, "slices are kernels of their own"},
    {"cpu", "attention", CONFORMANCE_NEVER,
     "its layers are kernels of their own"},
    {"cpu", "attention_masks", CONFORMANCE_NEVER, "the same"},
    {"cpu", "attention_places", CONFORMANCE_NEVER, "the same"},
    {"cpu", "attention_shared", CONFORMANCE_NEVER, "the same"},
    {"cpu", "attention_staged", CONFORMANCE_NEVER, "the same"},
    {"cpu", "attention_windows", CONFORMANCE_NEVER, "the same"},
    {"cpu", "joint_products", CONFORMANCE_NEVER, "the same"},
    {"cpu", "weight_only_normalized", CONFORMANCE_NEVER, "the same"},
    {"cpu", "normalization_activated", CONFORMANCE_NEVER,
     "the activation has a kernel of its own"},
    {"cuda", "deconvolution", CONFORMANCE_NEVER,
     "with other layers in its group only where cuDNN has an engine"},
    {"cuda", "convolution_of_one_pixel", CONFORMANCE_NEVER, "the same"},
    {"cuda", "convolution_groups", CONFORMANCE_NEVER, "the same"},
    {"cuda", "convolution_even_groups", CONFORMANCE_NEVER, "the same"},
    {"cuda", "patches", CONFORMANCE_NEVER, "the same"},
    {"cuda", "convolution_taps", CONFORMANCE_NEVER, "the same"},
    {"cuda", "convolution_tiles", CONFORMANCE_NEVER, "the same"},
    {"cuda", "quantized_product", CONFORMANCE_NEVER,
     "what cuBLASLt has no product for: UINT8, rows that are no whole vectors"},
    {"cuda", "quantized_product_fp8", CONFORMANCE_NEVER, "the same"},
    {"cpu", "convert", CONFORMANCE_NEVER,
     "some formats are none that its kernels work in"},
};

// Kernels that are not held to a family's cases.
static const struct {
  const char* kernel;
  const char* family;
  const char* reason;
} conformance_exceptions[] = {
    {"dnnl.pooling", "reduce_special", "oneDNN's maximum ignores NaN"},
    {"dnnl.softmax", "softmax_special", "oneDNN's softmax makes NaN 0"},
    {"dnnl.reorder", "cast_edges",
     "before AVX-512, oneDNN makes subnormal numbers 0"},
};

static bool conformance_is_excepted(const char* kernel, const char* family) {
  for (size_t i = 0;
       i < sizeof(conformance_exceptions) / sizeof(conformance_exceptions[0]);
       ++i) {
    if (strcmp(conformance_exceptions[i].kernel, kernel) == 0 &&
        strcmp(conformance_exceptions[i].family, family) == 0) {
      return true;
    }
  }
  return false;
}

static const conformance_family_t* const conformance_lists[] = {
    conformance_moves,     conformance_rows,        conformance_pointwise,
    conformance_products,  conformance_convolution, conformance_attention,
    conformance_recurrent, conformance_quantized,   conformance_sampling,
    conformance_sizes,     conformance_weight_only};

// Families that are run once more with DOUBLE, as double_NAME.
static const char* const conformance_doubles[] = {
    "slice",           "gather",        "concatenation",  "reduce",
    "softmax",         "softmax_log",   "unary",          "activation",
    "elementwise",     "select",        "chain",          "long_chain",
    "matrix_multiply", "thin_products", "tiled_products", "convolution",
    "deconvolution"};

typedef struct conformance_run_t {
  rabbet_device_t* device;
  const conformance_family_t* family;
  bool is_double;
  char name[48];
} conformance_run_t;

static bool conformance_may_lack(const conformance_run_t* run,
                                 conformance_lack_t* out_lack) {
  for (size_t i = 0;
       i < sizeof(conformance_lacks) / sizeof(conformance_lacks[0]); ++i) {
    if (strcmp(conformance_lacks[i].device, run->device->kind) != 0) continue;
    const char* family = conformance_lacks[i].family;
    bool all = !family || (run->is_double && strcmp(family, "double") == 0);
    if (!all && strcmp(family, run->name) != 0) continue;
    *out_lack = conformance_lacks[i].lack;
    return true;
  }
  return false;
}

// ---- Running ---------------------------------------------------------------

// Formats that users' operators ask for, one in each case.
static const rabbet_format_t conformance_formats[11] = {
    RABBET_FORMAT_LINEAR, RABBET_FORMAT_CHW2,  RABBET_FORMAT_CHW4,
    RABBET_FORMAT_CHW8,   RABBET_FORMAT_CHW16, RABBET_FORMAT_CHW32,
    RABBET_FORMAT_HWC,    RABBET_FORMAT_HWC8,  RABBET_FORMAT_HWC16,
    RABBET_FORMAT_DHWC8,  RABBET_FORMAT_CDHW32};

static int conformance_share_of(void) {
  const char* share = getenv("RABBET_TEST_SHARE");
  return share ? atoi(share) : 1;
}

// Families of functions: a share has several in each group, which is a program
// on some devices.
static const char* const conformance_functions[] = {
    "unary", "activation", "elementwise", "elementwise_integers"};

static int conformance_joined(const conformance_family_t* family) {
  bool joins = false;
  for (size_t i = 0;
       i < sizeof(conformance_functions) / sizeof(conformance_functions[0]);
       ++i)
    joins = joins || strcmp(family->name, conformance_functions[i]) == 0;
  return joins && conformance_share_of() > 1 ? CONFORMANCE_JOINED : 1;
}

// Kernels that compile a program for each tactic: a share has one of them in
// each case, in turn.
static const char* const conformance_by_turns[] = {"cuda.convolution.depthwise",
                                                   "cuda.convolution.patches",
                                                   "cuda.gemv",
                                                   "cuda.matmul.few",
                                                   "cuda.matmul.tiles",
                                                   "cuda.matmul.weight_only"};

static bool conformance_are_tactics(const kernel_case_t* c,
                                    const kernel_case_candidate_t* a,
                                    const kernel_case_candidate_t* b) {
  bool same = a->kernel == b->kernel;
  for (size_t i = 0; same && i < c->input_count + c->output_count; ++i)
    same = a->tensors[i].dtype == b->tensors[i].dtype &&
           a->tensors[i].format == b->tensors[i].format;
  return same;
}

static bool conformance_is_in_turn(const kernel_case_t* c,
                                   const kernel_case_candidate_t* candidates,
                                   size_t count, size_t at, uint64_t turn) {
  size_t tactics = 0, before = 0;
  bool by_turns = false;
  for (size_t i = 0;
       i < sizeof(conformance_by_turns) / sizeof(conformance_by_turns[0]); ++i)
    by_turns = by_turns || strcmp(candidates[at].kernel->name,
                                  conformance_by_turns[i]) == 0;
  if (!by_turns || conformance_share_of() <= 1) return true;
  for (size_t i = 0; i < count; ++i) {
    if (!conformance_are_tactics(c, &candidates[i], &candidates[at])) continue;
    before += i < at;
    ++tactics;
  }
  return turn % tactics == before;
}

// Returns whether a kernel of the device's own computed the case.
static bool conformance_run_case(const conformance_run_t* run, uint64_t seed) {
  conformance_t t = {.random = seed,
                     .turn = (int64_t)(seed / CONFORMANCE_STEP),
                     .is_double = run->is_double,
                     .joined = conformance_joined(run->family)};
  kernel_case_begin(&t.c, run->device,
                    run->is_double ? RABBET_DTYPE_DOUBLE : RABBET_DTYPE_FLOAT);
  t.large = conformance_chance(&t, 25);
  t.c.seed = (uint32_t)seed + 1;
  t.c.dynamic = conformance_chance(&t, 2);
  // CHW8, which users cannot ask for, has no bit.
  t.c.formats = (uint64_t)1 << conformance_formats[seed % 11] % 64;
  run->family->make(&t);
  if (run->is_double) {
    t.c.extra_dtypes = 0;
    t.c.tolerance *= 0x1p-26;  // of FLOAT, with some room
  }
  snprintf(t.c.origin, sizeof(t.c.origin),
           "%s, RABBET_TEST_SHARE=%d RABBET_TEST_SEED=%llu", run->name,
           conformance_share_of(), (unsigned long long)seed);
  kernel_case_candidate_t* candidates = NULL;
  const kernel_case_filter_t filter = {.fixed = t.fixed};
  size_t count =
      kernel_case_candidates(&t.c, t.is_fixed ? &filter : NULL, &candidates);
  bool own = false;
  uint64_t turn = (uint64_t)conformance_random(&t, 5040);
  for (size_t i = 0; i < count; ++i) {
    if (!conformance_is_in_turn(&t.c, candidates, count, i, turn)) continue;
    bool fallback = candidates[i].kernel->flags & RABBET_KERNEL_FALLBACK;
    if (conformance_is_excepted(candidates[i].kernel->name,
                                run->family->name)) {
      own = own || !fallback;
      continue;
    }
    // The reference against itself shows little: once is enough. Between
    // layers it rounds to the network's type, which others need not.
    if (fallback &&
        (t.large || (t.c.node_count > 1 && t.c.dtype != RABBET_DTYPE_FLOAT))) {
      continue;
    }
    bool runs = kernel_case_run(&t.c, &candidates[i], 1);
    own = own || (runs && !fallback);
    if (runs && !fallback && kernel_case_threads(&t.c) > 1)
      kernel_case_run(&t.c, &candidates[i], 2);
  }
  kernel_case_end(&t.c);
  return own;
}

// Of a family's cases. Kernels of DOUBLE are few, and get a third.
static int conformance_share(const conformance_run_t* run) {
  int cases = run->is_double ? run->family->cases / 3 : run->family->cases;
  int of = conformance_share_of() * conformance_joined(run->family);
  int share = of > 1 ? (cases + of - 1) / of : cases;
  int least = cases < CONFORMANCE_LEAST ? cases : CONFORMANCE_LEAST;
  return share < least ? least : share;
}

static void conformance_run_family(void** state) {
  conformance_run_t* run = *state;
  const char* given = getenv("RABBET_TEST_SEED");
  conformance_lack_t lack = CONFORMANCE_NEVER;
  bool may_lack = conformance_may_lack(run, &lack);
  const char* most = getenv("RABBET_TEST_CASES");
  int lacking = 0, cases = given ? 1 : conformance_share(run);
  bool all = !given && !most && conformance_share_of() <= 1;
  if (most && atoi(most) > 0 && atoi(most) < cases) cases = atoi(most);
  for (int i = 0; i < cases; ++i) {
    uint64_t seed =
        given ? strtoull(given, NULL, 10) : (uint64_t)i * CONFORMANCE_STEP + 17;
    if (conformance_run_case(run, seed)) continue;
    ++lacking;
    if (!may_lack)
      fail_msg(
          "%s, RABBET_TEST_SEED=%llu: nothing, or only a fallback, is "
          "offered",
          run->name, (unsigned long long)seed);
  }
  if (may_lack && lack == CONFORMANCE_NOT_YET && lacking == 0 && all)
    fail_msg("%s: listed as a gap, but there is none: take it off the list",
             run->name);
}

// Of which families: all, the one of a name, or every so many from the first
// on.
typedef struct conformance_choice_t {
  const char* name;
  size_t first, every;
} conformance_choice_t;

// "slice", or "2/8": the second family, the tenth, and so on.
static conformance_choice_t conformance_choose(const char* text) {
  conformance_choice_t choice = {.every = 1};
  char* end = NULL;
  unsigned long part = text ? strtoul(text, &end, 10) : 0;
  if (part > 0 && *end == '/') {
    choice.every = strtoul(end + 1, NULL, 10);
    choice.first = part - 1;
    if (part <= choice.every) return choice;
  }
  return (conformance_choice_t){.name = text, .every = 1};
}

static bool conformance_has_double(const char* name) {
  size_t count = sizeof(conformance_doubles) / sizeof(conformance_doubles[0]);
  for (size_t i = 0; i < count; ++i)
    if (strcmp(conformance_doubles[i], name) == 0) return true;
  return false;
}

// All families; those with DOUBLE come last.
static size_t conformance_list(rabbet_device_t* device,
                               conformance_run_t* runs) {
  size_t count = 0;
  for (int is_double = 0; is_double < 2; ++is_double)
    for (size_t l = 0;
         l < sizeof(conformance_lists) / sizeof(conformance_lists[0]); ++l)
      for (const conformance_family_t* f = conformance_lists[l]; f->name; ++f) {
        if (is_double && !conformance_has_double(f->name)) continue;
        assert_true(count < CONFORMANCE_MOST);
        conformance_run_t* run = &runs[count++];
        *run = (conformance_run_t){
            .device = device, .family = f, .is_double = is_double != 0};
        snprintf(run->name, sizeof(run->name), "%s%s",
                 is_double ? "double_" : "", f->name);
      }
  return count;
}

static size_t conformance_collect(conformance_choice_t choice,
                                  conformance_run_t* runs, size_t run_count,
                                  struct CMUnitTest* tests) {
  size_t count = 0, seen = 0;
  for (size_t i = 0; i < run_count; ++i) {
    if (choice.name && strcmp(choice.name, runs[i].name) != 0) continue;
    if (seen++ % choice.every != choice.first) continue;
    tests[count++] = (struct CMUnitTest){.name = runs[i].name,
                                         .test_func = conformance_run_family,
                                         .initial_state = &runs[i]};
  }
  return count;
}

int main(int argument_count, char** arguments) {
  conformance_run_t runs[CONFORMANCE_MOST];
  struct CMUnitTest tests[CONFORMANCE_MOST];
  rabbet_device_t* device = NULL;
  if (argument_count < 2) {
    fprintf(stderr, "usage: conformance DEVICE [FAMILY | PART/PARTS]\n");
    return 2;
  }
  if (strcmp(arguments[1], "--families") == 0) {
    size_t listed = conformance_list(NULL, runs);
    for (size_t i = 0; i < listed; ++i)
      puts(runs[i].name);
    return 0;
  }
  rabbet_status_t status =
      rabbet_device_create(arguments[1], rabbet_allocator_system(), &device);
  if (!rabbet_is_ok(status)) {
    bool missing = rabbet_status_code(status) == RABBET_STATUS_UNAVAILABLE;
    fprintf(stderr, "%s: %s\n", arguments[1], rabbet_status_message(status));
    rabbet_status_free(status);
    return missing ? 77 : 1;  // 77: skipped
  }
  size_t count = conformance_collect(
      conformance_choose(argument_count > 2 ? arguments[2] : NULL), runs,
      conformance_list(device, runs), tests);
  if (count == 0) fprintf(stderr, "no such family\n");
  int failed = count == 0 ? 1
                          : _cmocka_run_group_tests(arguments[1], tests, count,
                                                    NULL, NULL);
  rabbet_device_release(device);
  return failed;
}
