// A narrow interface to oneDNN: one plain struct describes a computation, so
// that only the sources behind this file (internal.h) include oneDNN's headers.
#ifndef RABBET_SRC_DEVICE_CPU_DNNL_WRAP_H_
#define RABBET_SRC_DEVICE_CPU_DNNL_WRAP_H_

#include "core/view.h"
#include "rabbet/allocator.h"

// One for a device; safe to use from several threads.
typedef struct rabbet_dnnl_t rabbet_dnnl_t;
rabbet_status_t rabbet_dnnl_create(rabbet_allocator_t allocator,
                                   rabbet_dnnl_t** out_dnnl);
void rabbet_dnnl_destroy(rabbet_dnnl_t* dnnl);
// "2.6.3"
void rabbet_dnnl_version(char out_text[32]);
// The instruction set that it uses: "avx512_core_bf16", "avx2", ...
const char* rabbet_dnnl_isa(void);
// Whether 8-bit products are summed in 32 bits: older processors sum pairs in
// 16 bits, which may overflow.
bool rabbet_dnnl_has_byte_products(void);

// ---- Description of a computation ------------------------------------------

#define RABBET_DNNL_MAX_RANK 12     // oneDNN's arrays of dimensions
#define RABBET_DNNL_MAX_POSTS 8     // operations applied to the result
#define RABBET_DNNL_MAX_SOURCES 64  // of a concatenation

typedef enum rabbet_dnnl_order_t {
  RABBET_DNNL_ANY,      // the library chooses; ask the primitive
  RABBET_DNNL_FORMAT,   // given by `format`
  RABBET_DNNL_STRIDED,  // `strides` in elements
} rabbet_dnnl_order_t;

typedef struct rabbet_dnnl_layout_t {
  rabbet_dtype_t dtype;
  rabbet_dnnl_order_t order;
  rabbet_format_t format;
  int rank;
  int64_t dims[RABBET_DNNL_MAX_RANK];
  int64_t strides[RABBET_DNNL_MAX_RANK];
  int64_t offset;  // of the first element from the address
} rabbet_dnnl_layout_t;

rabbet_dnnl_layout_t rabbet_dnnl_layout(rabbet_dtype_t dtype,
                                        rabbet_format_t format,
                                        const rabbet_dims_t* dims);
// Whether oneDNN can describe tensors of this format and rank.
bool rabbet_dnnl_has_format(rabbet_format_t format, int rank);

typedef enum rabbet_dnnl_kind_t {
  RABBET_DNNL_CONVOLUTION,           // SRC, WEIGHTS, BIAS -> DST
  RABBET_DNNL_CONVOLUTION_WINOGRAD,  // the same
  RABBET_DNNL_DECONVOLUTION,         // the same; padding is that over DST
  RABBET_DNNL_MATMUL,                // SRC, WEIGHTS, BIAS -> DST
  RABBET_DNNL_INNER_PRODUCT,         // the same, weights [N, K]
  RABBET_DNNL_POOLING_MAX,           // SRC -> DST
  RABBET_DNNL_POOLING_AVERAGE,       // ... counting padding
  RABBET_DNNL_POOLING_AVERAGE_EXCLUDE,
  RABBET_DNNL_SOFTMAX,     // SRC -> DST, `axis`
  RABBET_DNNL_LAYER_NORM,  // SRC, SCALE, SHIFT -> DST, last axis, `epsilon`
  RABBET_DNNL_REORDER,     // SRC -> DST
  RABBET_DNNL_CONCAT,      // SOURCE(i) -> DST, `axis`
} rabbet_dnnl_kind_t;

// Element-wise functions; alpha and beta as oneDNN has them.
typedef enum rabbet_dnnl_function_t {
  RABBET_DNNL_RELU,  // x < 0 ? alpha x : x
  RABBET_DNNL_TANH,
  RABBET_DNNL_ELU,
  RABBET_DNNL_SQUARE,
  RABBET_DNNL_ABS,
  RABBET_DNNL_SQRT,
  RABBET_DNNL_LINEAR,  // alpha x + beta
  RABBET_DNNL_SOFT_RELU,
  RABBET_DNNL_LOGISTIC,
  RABBET_DNNL_EXP,
  RABBET_DNNL_GELU_TANH,
  RABBET_DNNL_GELU_ERF,
  RABBET_DNNL_SWISH,  // x sigmoid(alpha x)
  RABBET_DNNL_LOG,
  RABBET_DNNL_CLIP,       // alpha to beta
  RABBET_DNNL_HARDSWISH,  // x min(max(x + 3, 0), 6) / 6
  RABBET_DNNL_FUNCTION_COUNT,
} rabbet_dnnl_function_t;

typedef enum rabbet_dnnl_binary_t {
  RABBET_DNNL_ADD,
  RABBET_DNNL_MUL,
  RABBET_DNNL_MAX,
  RABBET_DNNL_MIN,
  RABBET_DNNL_DIV,
  RABBET_DNNL_SUB,
  RABBET_DNNL_BINARY_COUNT,
} rabbet_dnnl_binary_t;

typedef struct rabbet_dnnl_post_t {
  enum {
    RABBET_DNNL_POST_FUNCTION,
    RABBET_DNNL_POST_BINARY,  // with the argument RABBET_DNNL_POST(i)
    RABBET_DNNL_POST_SUM,     // adds what DST held before
  } kind;
  rabbet_dnnl_function_t function;
  float alpha, beta;
  rabbet_dnnl_binary_t binary;
  rabbet_dnnl_layout_t operand;
} rabbet_dnnl_post_t;

typedef struct rabbet_dnnl_spec_t {
  rabbet_dnnl_kind_t kind;
  rabbet_dnnl_layout_t src, weights, bias, dst;
  bool has_bias, has_scale, has_shift;
  // Spatial: as many as the tensor has axes after the channel. dilation 1 is
  // dense. Trailing padding may be negative: input that no window reaches.
  int64_t window[RABBET_DNNL_MAX_RANK], stride[RABBET_DNNL_MAX_RANK];
  int64_t dilation[RABBET_DNNL_MAX_RANK], before[RABBET_DNNL_MAX_RANK];
  int64_t after[RABBET_DNNL_MAX_RANK];
  int axis;
  float epsilon;
  const rabbet_dnnl_layout_t* sources;  // CONCAT
  int source_count;
  // Factors of the result before the posts: one, or one for each index of DST's
  // axis `scale_axis`. 0: none. Borrowed until the primitive is made.
  const float* scales;
  int64_t scale_count;
  int scale_axis;
  // The zero points of SRC and DST, if these are integers.
  int32_t src_zero, dst_zero;
  rabbet_dnnl_post_t posts[RABBET_DNNL_MAX_POSTS];
  int post_count;
} rabbet_dnnl_spec_t;

// ---- Primitives ------------------------------------------------------------

enum {
  RABBET_DNNL_SRC,
  RABBET_DNNL_WEIGHTS,
  RABBET_DNNL_BIAS,
  RABBET_DNNL_DST,
  RABBET_DNNL_SCALE,
  RABBET_DNNL_SHIFT,
  RABBET_DNNL_SCRATCHPAD,
  RABBET_DNNL_POST_FIRST,
  RABBET_DNNL_SOURCE_FIRST = RABBET_DNNL_POST_FIRST + RABBET_DNNL_MAX_POSTS,
  RABBET_DNNL_ARG_COUNT = RABBET_DNNL_SOURCE_FIRST + RABBET_DNNL_MAX_SOURCES,
};
#define RABBET_DNNL_POST(i) (RABBET_DNNL_POST_FIRST + (i))
#define RABBET_DNNL_SOURCE(i) (RABBET_DNNL_SOURCE_FIRST + (i))

// An implementation's number is a hash of its name (and of the number of
// earlier ones of that name), so that it is the same for other shapes. 24 bits,
// never 0.
typedef struct rabbet_dnnl_implementation_t {
  int32_t id;
  const char* name;   // "jit_1x1:avx512_core"
  bool is_reference;  // correct but slow: "ref:any", "simple:any"
} rabbet_dnnl_implementation_t;

enum { RABBET_DNNL_TACTIC_IMPLEMENTATION = (1 << 24) - 1 };

// The first product in a process by the library's SGEMM generates the code of
// 16 to 40 kernels, of which it then calls one or two: 35 ms on a Xeon of 2
// GHz. 0 for other implementations.
double rabbet_dnnl_start_us(int32_t tactic);

// Calls `visit` for each implementation, in the library's order of preference.
// There may be none. `threads`: the number of threads of their executions;
// oneDNN reads the calling thread's OpenMP thread count when it creates
// descriptors and primitives.
rabbet_status_t rabbet_dnnl_enumerate(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_spec_t* spec, int threads,
    rabbet_status_t (*visit)(void* context,
                             const rabbet_dnnl_implementation_t* found),
    void* context);

typedef struct rabbet_dnnl_primitive_t rabbet_dnnl_primitive_t;
// The implementation of that number; 0: the library's first choice. NOT_FOUND
// if this spec has no such implementation, UNSUPPORTED if it has none at all.
rabbet_status_t rabbet_dnnl_primitive_create(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_spec_t* spec, int32_t implementation,
    int threads, rabbet_allocator_t allocator,
    rabbet_dnnl_primitive_t** out_primitive);
// A primitive that converts `layout` to the layout of `primitive`'s argument.
rabbet_status_t rabbet_dnnl_pack_create(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_layout_t* layout,
    const rabbet_dnnl_primitive_t* primitive, int arg, int threads,
    rabbet_allocator_t allocator, rabbet_dnnl_primitive_t** out_pack);
// Packs weights for a Winograd kernel in the place of that primitive. False,
// and nothing is written, if `primitive` reads them in a form that only the
// library makes. `source`: the layout's first element.
bool rabbet_dnnl_pack_winograd(const rabbet_dnnl_layout_t* layout,
                               const rabbet_dnnl_primitive_t* primitive,
                               const void* source, void* target);
void rabbet_dnnl_primitive_destroy(rabbet_dnnl_primitive_t* primitive);

// Bytes of an argument; 0 if the primitive has no such argument.
size_t rabbet_dnnl_primitive_bytes(const rabbet_dnnl_primitive_t* primitive,
                                   int arg);
// Whether an argument has exactly this layout.
bool rabbet_dnnl_primitive_takes(const rabbet_dnnl_primitive_t* primitive,
                                 int arg, const rabbet_dnnl_layout_t* layout);
// The argument's layout, as opaque bytes to copy and compare; borrowed.
const void* rabbet_dnnl_primitive_layout(
    const rabbet_dnnl_primitive_t* primitive, int arg, size_t* out_size);
bool rabbet_dnnl_layout_equal(const void* a, const void* b);
// pointers[arg]: the address of each argument of the primitive. Only one call
// at a time per primitive; the calling thread's OpenMP thread count must be the
// one of creation.
rabbet_status_t rabbet_dnnl_primitive_execute(
    rabbet_dnnl_primitive_t* primitive, void* const* pointers);

#endif  // RABBET_SRC_DEVICE_CPU_DNNL_WRAP_H_
