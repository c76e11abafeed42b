// A group of layers made by hand, computed by the operators' references, and
// run through every candidate that a device offers for it. Everything fails the
// running test instead of returning a status.
//
//   kernel_case_t c;
//   kernel_case_begin(&c, device, RABBET_DTYPE_FLOAT);
//   int32_t x = kernel_case_input(&c, KERNEL_DIMS(1, 8, 5, 5), false);
//   int32_t y = kernel_case_op(&c, "activation", KERNEL_ATTRS(
//       KERNEL_INT("type", 0)), KERNEL_INPUTS(x));
//   kernel_case_output(&c, y);
//   assert_true(kernel_case_check(&c, NULL) > 0);
//   kernel_case_end(&c);
#ifndef RABBET_TESTS_CONFORMANCE_KERNEL_CASE_H_
#define RABBET_TESTS_CONFORMANCE_KERNEL_CASE_H_

#include "base/arena.h"
#include "check.h"
#include "device/device.h"

#define KERNEL_CASE_MAX 256

// A reference as a candidate's tensor: its bytes, and where its elements lie in
// row-major order (NULL: there, too).
typedef struct kernel_image_t {
  rabbet_dtype_t dtype;
  rabbet_format_t format;
  int64_t* places;
  size_t size;
  char* data;
} kernel_image_t;

typedef struct kernel_case_t {
  rabbet_device_t* device;
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;
  rabbet_dtype_t dtype;  // of real tensors in the network
  // Also offered types, as with weak typing: bit 1 << dtype.
  uint32_t extra_dtypes;
  // That operators beside these may ask for: bit 1 << format.
  uint64_t formats;
  bool tf32;  // products may round their factors so
  // Relative error allowed besides rounding to the type, of the largest value.
  double tolerance;
  // Results of layers inside of a group, and a product before its bias, may be
  // rounded to the case's type.
  bool rounds_layers;
  // By which whole numbers may differ.
  int64_t units;
  uint32_t seed;
  double low, high;  // of random inputs
  // Every value is kept in its own type, and results must be equal bit for bit
  // (after conversion, where a candidate has another type): for layers that
  // move or convert elements.
  bool exact;
  // Kernels are made as a loaded plan makes them: dims that are not a
  // constant's are -1 in the group.
  bool dynamic;
  // Addresses are aligned to elements only: two bits for each input and output,
  // by how many elements they are off.
  uint32_t misaligned;
  rabbet_group_value_t values[KERNEL_CASE_MAX];
  // As kernels are told of them, and what memory there is for: values[i].dims
  // but for extents that the kernel finds itself.
  rabbet_dims_t run_dims[KERNEL_CASE_MAX], room[KERNEL_CASE_MAX];
  void* reference[KERNEL_CASE_MAX];
  rabbet_dtype_t kept[KERNEL_CASE_MAX];    // of the reference: FLOAT for real
                                           // types unless exact
  kernel_image_t images[KERNEL_CASE_MAX];  // the last of each value
  size_t value_count;
  rabbet_group_node_t nodes[KERNEL_CASE_MAX];
  size_t node_count;
  int32_t inputs[KERNEL_CASE_MAX], outputs[KERNEL_CASE_MAX];
  size_t input_count, output_count;
  char origin[96];  // where the case comes from, for messages
  char trace[384];  // the candidate being run
} kernel_case_t;

#define KERNEL_DIMS(...)                                                       \
  ((rabbet_dims_t){.rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
                   .d = {__VA_ARGS__}})
#define KERNEL_INT(key, number)                                          \
  {                                                                      \
    .name = (key), .type = RABBET_ATTR_INT, .data = (int64_t[]){number}, \
    .count = 1, .dtype = RABBET_DTYPE_NONE                               \
  }
#define KERNEL_BOOL(key, number)                                          \
  {                                                                       \
    .name = (key), .type = RABBET_ATTR_BOOL, .data = (int64_t[]){number}, \
    .count = 1, .dtype = RABBET_DTYPE_NONE                                \
  }
#define KERNEL_FLOAT(key, number)                                         \
  {                                                                       \
    .name = (key), .type = RABBET_ATTR_FLOAT, .data = (double[]){number}, \
    .count = 1, .dtype = RABBET_DTYPE_NONE                                \
  }
#define KERNEL_INTS(key, ...)                                                  \
  {                                                                            \
    .name = (key), .type = RABBET_ATTR_INTS, .data = (int64_t[]){__VA_ARGS__}, \
    .count = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),               \
    .dtype = RABBET_DTYPE_NONE                                                 \
  }
// Two arguments of kernel_case_op each.
#define KERNEL_ATTRS(...)               \
  (const rabbet_attr_t[]){__VA_ARGS__}, \
      sizeof((rabbet_attr_t[]){__VA_ARGS__}) / sizeof(rabbet_attr_t)
#define KERNEL_NO_ATTRS NULL, 0
#define KERNEL_INPUTS(...)        \
  (const int32_t[]){__VA_ARGS__}, \
      sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

void kernel_case_begin(kernel_case_t* c, rabbet_device_t* device,
                       rabbet_dtype_t dtype);
void kernel_case_end(kernel_case_t* c);

// Random values in [low, high] that the case's type can hold. Those of an input
// that is no constant may be overwritten, before an operator reads them, in
// c->reference (FLOAT for real types), with others that the type can hold.
int32_t kernel_case_input(kernel_case_t* c, rabbet_dims_t dims, bool constant);
// The same of another type than the case's.
int32_t kernel_case_typed_input(kernel_case_t* c, rabbet_dtype_t dtype,
                                rabbet_dims_t dims, bool constant);
// INT32 or INT64 values, constant or known to the host when it prepares.
int32_t kernel_case_numbers(kernel_case_t* c, rabbet_dtype_t dtype,
                            rabbet_dims_t dims, const int64_t* data,
                            bool constant);
// Values given as FLOAT; a constant.
int32_t kernel_case_constant(kernel_case_t* c, rabbet_dims_t dims,
                             const float* data);
// Computes the node's value by its reference; returns its number.
int32_t kernel_case_op(kernel_case_t* c, const char* op,
                       const rabbet_attr_t* attrs, size_t attr_count,
                       const int32_t* inputs, size_t input_count);
void kernel_case_output(kernel_case_t* c, int32_t value);
// The node that makes the value itself tells that extent, which is `most` at
// most: the kernel does not know it, and the memory does for the most.
void kernel_case_data_dependent(kernel_case_t* c, int32_t value, int32_t axis,
                                int64_t most);

// Which candidates to run.
typedef struct kernel_case_filter_t {
  const char* kernel;                 // class name; NULL: every class
  const char* tactic;                 // part of the tactic's name, or NULL
  const rabbet_type_format_t* fixed;  // as in rabbet_propose_t, or NULL
  int optimization_level;             // 0: 5, so that all are offered
} kernel_case_filter_t;
// Runs each candidate with one and, on devices that compute with the host's
// threads, two threads, twice from one state at different addresses, in place
// where offered, between guard zones; compares with the reference; checks that
// inputs are unchanged and padding is zero.
// Returns how many candidates there were.
int kernel_case_check(kernel_case_t* c, const kernel_case_filter_t* filter);

// The group, whose boundary is LINEAR and of the network's types.
rabbet_group_t kernel_case_group(kernel_case_t* c);

// One candidate, copied, with a group of its own that outlives it.
typedef struct kernel_case_candidate_t {
  const rabbet_kernel_class_t* kernel;
  int32_t tactic;
  char tactic_name[48];
  rabbet_type_format_t* tensors;  // inputs, then outputs
  int32_t* in_place;              // or aliased
  rabbet_group_value_t* values;
  rabbet_group_t group;
} kernel_case_candidate_t;
// All candidates, in the case's arena.
size_t kernel_case_candidates(kernel_case_t* c,
                              const kernel_case_filter_t* filter,
                              kernel_case_candidate_t** out_candidates);

// Runs one candidate as kernel_case_check does. It may be one of another case
// with the same group and other shapes.
// False where a library on a device with memory of its own finds out only now,
// as the tuner does, too, that it cannot do it.
bool kernel_case_run(kernel_case_t* c, const kernel_case_candidate_t* candidate,
                     int threads);
// How many threads a candidate is run with at most: 1 where a run does not
// depend on them.
int kernel_case_threads(const kernel_case_t* c);

// Memory of one run of a candidate, of its device: guarded copies of inputs,
// outputs filled with rubbish.
typedef struct kernel_case_memory_t {
  void* inputs[KERNEL_CASE_MAX];
  void* outputs[KERNEL_CASE_MAX];
  void* workspace;
  rabbet_kernel_call_t call;
} kernel_case_memory_t;
// `in_place`: outputs lie over the inputs that the candidate names.
void kernel_case_fill(kernel_case_t* c,
                      const kernel_case_candidate_t* candidate,
                      size_t workspace, bool in_place,
                      kernel_case_memory_t* out_memory);
void kernel_case_verify(kernel_case_t* c,
                        const kernel_case_candidate_t* candidate, bool in_place,
                        const kernel_case_memory_t* memory);
void kernel_case_free(kernel_case_t* c, kernel_case_memory_t* memory);

#endif  // RABBET_TESTS_CONFORMANCE_KERNEL_CASE_H_
