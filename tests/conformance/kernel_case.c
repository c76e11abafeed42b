#include "conformance/kernel_case.h"

#include <math.h>

#include "ops/evaluate.h"
#include "ops/movement/convert.h"

#define KERNEL_GUARD 256
#define KERNEL_RUBBISH 0xa5

static bool kernel_is_real(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16;
}
// The type in which references are computed and kept.
static rabbet_dtype_t kernel_reference_type(const kernel_case_t* c,
                                            rabbet_dtype_t dtype) {
  return kernel_is_real(dtype) && !c->exact ? RABBET_DTYPE_FLOAT : dtype;
}

static int64_t kernel_count(const rabbet_dims_t* dims) {
  int64_t count = 0;
  RABBET_EXPECT_OK(rabbet_dims_count(dims, &count));
  return count;
}
static size_t kernel_bytes(rabbet_dtype_t dtype, rabbet_format_t format,
                           const rabbet_dims_t* dims) {
  size_t bytes = 0;
  RABBET_EXPECT_OK(rabbet_tensor_bytes(dtype, format, dims, &bytes));
  return bytes;
}

static void* kernel_arena(kernel_case_t* c, size_t size) {
  void* block = NULL;
  RABBET_EXPECT_OK(
      rabbet_arena_allocate(&c->arena, size > 0 ? size : 1, &block));
  return block;
}

static void kernel_free_image(kernel_case_t* c, kernel_image_t* image) {
  rabbet_free_aligned(c->allocator, image->places, 64);
  rabbet_free_aligned(c->allocator, image->data, 64);
  *image = (kernel_image_t){0};
}

// ---- Making the group ------------------------------------------------------

void kernel_case_begin(kernel_case_t* c, rabbet_device_t* device,
                       rabbet_dtype_t dtype) {
  *c = (kernel_case_t){.device = device,
                       .allocator = device->allocator,
                       .dtype = dtype,
                       .tolerance = 2e-6,
                       .seed = 12345,
                       .low = -1,
                       .high = 1};
  rabbet_arena_initialize(c->allocator, &c->arena);
}

void kernel_case_end(kernel_case_t* c) {
  for (size_t i = 0; i < c->value_count; ++i) {
    rabbet_free_aligned(c->allocator, c->reference[i], 64);
    kernel_free_image(c, &c->images[i]);
  }
  rabbet_arena_deinitialize(&c->arena);
}

static double kernel_random(kernel_case_t* c) {
  c->seed = c->seed * 1664525u + 1013904223u;
  return c->low + (c->high - c->low) * ((c->seed >> 8) / 16777215.0);
}

static int32_t kernel_add_value(kernel_case_t* c, rabbet_dtype_t dtype,
                                const rabbet_dims_t* dims, void* reference) {
  assert_true(c->value_count < KERNEL_CASE_MAX);
  c->values[c->value_count] = (rabbet_group_value_t){
      .dtype = dtype, .dims = *dims, .min = *dims, .max = *dims};
  c->run_dims[c->value_count] = c->room[c->value_count] = *dims;
  c->reference[c->value_count] = reference;
  c->kept[c->value_count] = kernel_reference_type(c, dtype);
  return (int32_t)c->value_count++;
}

// In the network's type, rounded; the reference then holds what is left.
static void kernel_make_constant(kernel_case_t* c, int32_t value) {
  rabbet_group_value_t* v = &c->values[value];
  int64_t count = kernel_count(&v->dims);
  void* data = NULL;
  data =
      kernel_arena(c, kernel_bytes(v->dtype, RABBET_FORMAT_LINEAR, &v->dims));
  rabbet_convert(c->kept[value], c->reference[value], v->dtype, data, count);
  v->constant = data;
}

int32_t kernel_case_typed_input(kernel_case_t* c, rabbet_dtype_t dtype,
                                rabbet_dims_t dims, bool constant) {
  rabbet_dtype_t kept = kernel_reference_type(c, dtype);
  void* data = NULL;
  RABBET_EXPECT_OK(rabbet_allocate_aligned(
      c->allocator, kernel_bytes(kept, RABBET_FORMAT_LINEAR, &dims) + 1, 64,
      &data));
  for (int64_t i = 0, count = kernel_count(&dims); i < count; ++i) {
    // Few bits, so that sums of products are exact in FLOAT, and no more than
    // the type holds.
    char rounded[8];
    rabbet_store_double(dtype, rounded, 0, round(kernel_random(c) * 64) / 64);
    rabbet_store_double(kept, data, i, rabbet_load_double(dtype, rounded, 0));
  }
  int32_t value = kernel_add_value(c, dtype, &dims, data);
  if (constant) kernel_make_constant(c, value);
  c->inputs[c->input_count++] = value;
  return value;
}

int32_t kernel_case_input(kernel_case_t* c, rabbet_dims_t dims, bool constant) {
  return kernel_case_typed_input(c, c->dtype, dims, constant);
}

int32_t kernel_case_numbers(kernel_case_t* c, rabbet_dtype_t dtype,
                            rabbet_dims_t dims, const int64_t* data,
                            bool constant) {
  int32_t value = kernel_case_typed_input(c, dtype, dims, false);
  for (int64_t i = 0; i < kernel_count(&dims); ++i)
    rabbet_store_int64(dtype, c->reference[value], i, data[i]);
  if (constant) kernel_make_constant(c, value);
  return value;
}

int32_t kernel_case_constant(kernel_case_t* c, rabbet_dims_t dims,
                             const float* data) {
  int32_t value = kernel_case_input(c, dims, true);
  rabbet_convert(RABBET_DTYPE_FLOAT, data, c->kept[value], c->reference[value],
                 kernel_count(&dims));
  kernel_make_constant(c, value);
  return value;
}

// Attributes in the descriptor's order, as groups have them.
static const rabbet_attr_t* kernel_attrs(kernel_case_t* c,
                                         const rabbet_op_t* op,
                                         const rabbet_attr_t* attrs,
                                         size_t count) {
  rabbet_attr_t* complete =
      kernel_arena(c, sizeof(*complete) * (op->attr_count + 1));
  RABBET_EXPECT_OK(
      rabbet_op_complete_attrs(op, attrs, count, &c->arena, complete));
  return complete;
}

int32_t kernel_case_op(kernel_case_t* c, const char* op_name,
                       const rabbet_attr_t* attrs, size_t attr_count,
                       const int32_t* inputs, size_t input_count) {
  const rabbet_op_t* op = rabbet_op_find(op_name);
  assert_non_null(op);
  rabbet_view_t views[KERNEL_CASE_MAX], result[8];
  int32_t* numbers =
      kernel_arena(c, sizeof(*numbers) * (input_count + op->output_count));
  for (size_t i = 0; i < input_count; ++i) {
    numbers[i] = inputs[i];
    views[i] = (rabbet_view_t){.dtype = RABBET_DTYPE_NONE};
    if (inputs[i] < 0) continue;
    const rabbet_group_value_t* v = &c->values[inputs[i]];
    views[i] = (rabbet_view_t){.data = c->reference[inputs[i]],
                               .dtype = c->kept[inputs[i]],
                               .format = RABBET_FORMAT_LINEAR,
                               .dims = v->dims};
  }
  RABBET_EXPECT_OK(rabbet_op_evaluate(op_name, attrs, attr_count, views,
                                      input_count, c->allocator, result));
  for (size_t i = 0; i < op->output_count; ++i) {
    rabbet_dtype_t dtype = kernel_is_real(result[i].dtype) && !c->exact
                               ? c->dtype
                               : result[i].dtype;
    numbers[input_count + i] =
        kernel_add_value(c, dtype, &result[i].dims, result[i].data);
  }
  c->nodes[c->node_count++] = (rabbet_group_node_t){
      .op = op,
      .name = op_name,
      .attrs = kernel_attrs(c, op, attrs, attr_count),
      .inputs = numbers,
      .input_count = input_count,
      .outputs = numbers + input_count,
      .output_count = op->output_count,
  };
  return numbers[input_count];
}

void kernel_case_output(kernel_case_t* c, int32_t value) {
  c->outputs[c->output_count++] = value;
}

void kernel_case_data_dependent(kernel_case_t* c, int32_t value, int32_t axis,
                                int64_t most) {
  assert_true(c->values[value].dims.d[axis] <= most);
  c->run_dims[value].d[axis] = -1;
  c->room[value].d[axis] = most;
}

rabbet_group_t kernel_case_group(kernel_case_t* c) {
  return (rabbet_group_t){
      .values = c->values,
      .value_count = c->value_count,
      .inputs = c->inputs,
      .input_count = c->input_count,
      .outputs = c->outputs,
      .output_count = c->output_count,
      .nodes = c->nodes,
      .node_count = c->node_count,
  };
}

// ---- Candidates ------------------------------------------------------------

static const struct {
  const char *device, *formats, *ops;
} kernel_rows[] = {
#define RABBET_CPU_KERNEL(class, formats, ops) {"cpu", #formats, ops},
#define RABBET_CUDA_KERNEL(class, formats, ops) {"cuda", #formats, ops},
#include "device/kernels.def"
};

static bool kernel_lists(const char* words, const char* word) {
  size_t length = strlen(word);
  for (const char* at = words; (at = strstr(at, word)); at += length) {
    bool begins = at == words || at[-1] == ' ';
    if (begins && (at[length] == ' ' || !at[length])) return true;
  }
  return false;
}

// Fails where kernels.def does not say that the device computes the case's only
// layer in the candidate's formats.
static void kernel_check_row(const kernel_case_t* c,
                             const rabbet_candidate_t* candidate) {
  const char* op = c->nodes[0].op->name;
  const char* kernel = candidate->kernel->name;
  if (c->node_count > 1 || !strcmp(kernel, "reference") ||
      !strcmp(kernel, "empty"))
    return;
  bool linear = true;
  for (size_t i = 0; i < c->input_count + c->output_count; ++i)
    linear &= candidate->tensors[i].format == RABBET_FORMAT_LINEAR;
  for (size_t i = 0; i < sizeof(kernel_rows) / sizeof(kernel_rows[0]); ++i) {
    if (!strcmp(kernel_rows[i].device, c->device->kind) &&
        kernel_lists(kernel_rows[i].ops, op) &&
        (linear || !strcmp(kernel_rows[i].formats, "ANY")))
      return;
  }
  fail_msg("%s computes '%s'%s; kernels.def does not say so", kernel, op,
           linear ? "" : " in formats that are not LINEAR");
}

typedef struct kernel_list_t {
  kernel_case_t* c;
  const kernel_case_filter_t* filter;
  kernel_case_candidate_t* candidates;
  size_t count, capacity;
} kernel_list_t;

static rabbet_group_value_t* kernel_copy_values(
    kernel_case_t* c, const rabbet_group_value_t* values) {
  void* copy = NULL;
  RABBET_EXPECT_OK(rabbet_arena_copy(&c->arena, values,
                                     c->value_count * sizeof(*values), &copy));
  return copy;
}

static rabbet_status_t kernel_list_add(void* context,
                                       const rabbet_candidate_t* candidate) {
  kernel_list_t* list = context;
  const char* part = list->filter ? list->filter->tactic : NULL;
  if (part && !strstr(candidate->tactic_name, part)) return rabbet_ok();
  assert_true(list->count < list->capacity);
  kernel_case_t* c = list->c;
  kernel_check_row(c, candidate);
  kernel_case_candidate_t* out = &list->candidates[list->count++];
  size_t boundary = c->input_count + c->output_count;
  out->kernel = candidate->kernel;
  out->tactic = candidate->tactic;
  memcpy(out->tactic_name, candidate->tactic_name, sizeof(out->tactic_name));
  out->values = kernel_copy_values(c, c->values);
  out->tensors = kernel_arena(c, boundary * sizeof(*out->tensors));
  out->in_place = kernel_arena(c, c->output_count * sizeof(*out->in_place));
  for (size_t i = 0; i < boundary; ++i) {
    int32_t value =
        i < c->input_count ? c->inputs[i] : c->outputs[i - c->input_count];
    out->tensors[i] = candidate->tensors[i];
    out->values[value].dtype = candidate->tensors[i].dtype;
    out->values[value].format = candidate->tensors[i].format;
  }
  for (size_t i = 0; i < c->output_count; ++i)
    out->in_place[i] = candidate->aliased    ? candidate->aliased[i]
                       : candidate->in_place ? candidate->in_place[i]
                                             : -1;
  out->group = kernel_case_group(c);
  out->group.values = out->values;
  return rabbet_ok();
}

size_t kernel_case_candidates(kernel_case_t* c,
                              const kernel_case_filter_t* filter,
                              kernel_case_candidate_t** out_candidates) {
  kernel_list_t list = {.c = c, .filter = filter, .capacity = 256};
  list.candidates = kernel_arena(c, sizeof(*list.candidates) * list.capacity);
  rabbet_group_t group = kernel_case_group(c);
  const rabbet_propose_t propose = {
      .device = c->device,
      .group = &group,
      .tf32 = c->tf32,
      .extra_dtypes = c->extra_dtypes,
      .formats = c->formats,
      .fixed = filter ? filter->fixed : NULL,
      .threads = 1,
      .optimization_level =
          filter && filter->optimization_level ? filter->optimization_level : 5,
      .allocator = c->allocator,
  };
  const rabbet_candidate_sink_t sink = {&list, kernel_list_add};
  size_t count = 0;
  const rabbet_kernel_class_t* const* classes =
      c->device->vtable->kernel_classes(c->device, &count);
  for (size_t i = 0; i < count; ++i) {
    if (filter && filter->kernel &&
        strcmp(filter->kernel, classes[i]->name) != 0) {
      continue;
    }
    if (!rabbet_kernel_may_take(classes[i], &group)) continue;
    RABBET_EXPECT_OK(classes[i]->propose(&propose, sink));
  }
  *out_candidates = list.candidates;
  return list.count;
}

// ---- Memory ----------------------------------------------------------------

// Blocks are aligned to 256 bytes, as devices' memory is. The data begin
// `shift` bytes, less than 256, behind the first guard; another follows.
static size_t kernel_block_size(size_t size) {
  return size + 3 * KERNEL_GUARD;
}
static void* kernel_block(const void* data) {
  return (void*)(((uintptr_t)data - KERNEL_GUARD) & ~(uintptr_t)255);
}
static size_t kernel_shift(const void* data) {
  return (uintptr_t)data & 255;
}

static void* kernel_guarded(kernel_case_t* c, size_t size, size_t shift) {
  void* block = NULL;
  RABBET_EXPECT_OK(rabbet_allocate_aligned(
      c->allocator, kernel_block_size(size), 256, &block));
  memset(block, KERNEL_RUBBISH, kernel_block_size(size));
  return (char*)block + KERNEL_GUARD + shift;
}

static void kernel_check_guard(kernel_case_t* c, const void* data, size_t size,
                               const char* what) {
  const unsigned char* bytes = (const unsigned char*)data - KERNEL_GUARD;
  for (size_t i = 0; i < 2 * KERNEL_GUARD; ++i) {
    size_t at = i < KERNEL_GUARD ? i : i + size;
    if (bytes[at] == KERNEL_RUBBISH) continue;
    fail_msg("%s: wrote outside %s, at byte %lld of %zu", c->trace, what,
             (long long)at - KERNEL_GUARD, size);
  }
}

static void kernel_free_guarded(kernel_case_t* c, void* data) {
  if (data) rabbet_free_aligned(c->allocator, kernel_block(data), 256);
}

// The block that the device is given instead of a guarded one, guards and all:
// the block itself where the device computes in the host's memory.
static void* kernel_upload(kernel_case_t* c, void* data, size_t size) {
  if (c->device->host_memory) return data;
  const rabbet_device_vtable_t* device = c->device->vtable;
  void* block = NULL;
  size_t shift = kernel_shift(data);
  RABBET_EXPECT_OK(
      device->allocate(c->device, kernel_block_size(size), &block));
  RABBET_EXPECT_OK(device->copy_to_device(c->device, block, kernel_block(data),
                                          kernel_block_size(size), NULL));
  RABBET_EXPECT_OK(device->synchronize(c->device, NULL));
  kernel_free_guarded(c, data);
  return (char*)block + KERNEL_GUARD + shift;
}

// Back again; given up by kernel_dismiss.
static void* kernel_download(kernel_case_t* c, void* memory, size_t size) {
  if (c->device->host_memory) return memory;
  const rabbet_device_vtable_t* device = c->device->vtable;
  void* data = kernel_guarded(c, size, kernel_shift(memory));
  RABBET_EXPECT_OK(device->copy_to_host(c->device, kernel_block(data),
                                        kernel_block(memory),
                                        kernel_block_size(size), NULL));
  RABBET_EXPECT_OK(device->synchronize(c->device, NULL));
  return data;
}

static void kernel_dismiss(kernel_case_t* c, void* data) {
  if (!c->device->host_memory) kernel_free_guarded(c, data);
}

static void kernel_free_memory(kernel_case_t* c, void* memory) {
  if (!memory) return;
  if (c->device->host_memory)
    kernel_free_guarded(c, memory);
  else
    c->device->vtable->free(c->device, kernel_block(memory));
}

static void* kernel_zeros(kernel_case_t* c, size_t size) {
  void* data = NULL;
  RABBET_EXPECT_OK(rabbet_allocate_aligned(c->allocator, size + 1, 64, &data));
  memset(data, 0, size + 1);
  return data;
}

// Where a format keeps the elements, in row-major order; NULL: there, too.
static int64_t* kernel_places(kernel_case_t* c, rabbet_format_t format,
                              const rabbet_dims_t* dims) {
  const rabbet_format_info_t* info = rabbet_format_info(format);
  if (info->block == 1 && !info->channels_last) return NULL;
  int64_t* places =
      kernel_zeros(c, (size_t)kernel_count(dims) * sizeof(*places));
  int64_t block = info->block, channels = dims->d[1], spatial = 1, i = 0;
  int64_t blocks = (channels + block - 1) / block;
  for (int k = 2; k < dims->rank; ++k)
    spatial *= dims->d[k];
  for (int64_t n = 0; n < dims->d[0]; ++n) {
    for (int64_t k = 0; k < channels; ++k) {
      int64_t first =
          info->channels_last
              ? n * spatial * blocks * block + k
              : (n * blocks + k / block) * spatial * block + k % block;
      int64_t step = info->channels_last ? blocks * block : block;
      for (int64_t at = 0; at < spatial; ++at)
        places[i++] = first + at * step;
    }
  }
  return places;
}

static int64_t kernel_place(const kernel_image_t* image, int64_t element) {
  return image->places ? image->places[element] : element;
}

// The reference in a tensor's type and format. The last one of each value is
// kept, as a candidate runs several times.
static const kernel_image_t* kernel_image(kernel_case_t* c, int32_t value,
                                          const rabbet_group_value_t* v) {
  kernel_image_t* image = &c->images[value];
  if (image->data && image->dtype == v->dtype && image->format == v->format)
    return image;
  int64_t count = kernel_count(&v->dims);
  size_t element = (size_t)rabbet_dtype_bits(v->dtype) / 8;
  char* linear =
      kernel_zeros(c, kernel_bytes(v->dtype, RABBET_FORMAT_LINEAR, &v->dims));
  rabbet_convert(c->kept[value], c->reference[value], v->dtype, linear, count);
  kernel_free_image(c, image);
  *image = (kernel_image_t){.dtype = v->dtype,
                            .format = v->format,
                            .places = kernel_places(c, v->format, &v->dims),
                            .size = kernel_bytes(v->dtype, v->format, &v->dims),
                            .data = linear};
  // So are types of 4 bits, which have several elements in a byte.
  if (!image->places) return image;
  image->data = kernel_zeros(c, image->size);
  for (int64_t i = 0; i < count; ++i)
    memcpy(image->data + (size_t)image->places[i] * element,
           linear + (size_t)i * element, element);
  rabbet_free_aligned(c->allocator, linear, 64);
  return image;
}

// A boundary value as the candidate has it, with this case's dims, which the
// group of a dynamic case does not tell.
static rabbet_group_value_t kernel_boundary(
    const kernel_case_t* c, const kernel_case_candidate_t* candidate,
    int32_t value) {
  rabbet_group_value_t boundary = candidate->values[value];
  boundary.dims = c->values[value].dims;
  return boundary;
}

// Bytes that tensor number i lies behind aligned memory: whole elements.
static size_t kernel_misalignment(const kernel_case_t* c, size_t i,
                                  rabbet_dtype_t dtype) {
  return (c->misaligned >> 2 * (i % 16) & 3) *
         (size_t)rabbet_dtype_bits(dtype) / 8;
}

void kernel_case_fill(kernel_case_t* c,
                      const kernel_case_candidate_t* candidate,
                      size_t workspace, bool in_place,
                      kernel_case_memory_t* out_memory) {
  *out_memory = (kernel_case_memory_t){0};
  if (!c->trace[0])
    snprintf(c->trace, sizeof(c->trace), "%s %s", candidate->kernel->name,
             candidate->tactic_name);
  for (size_t i = 0; i < c->input_count; ++i) {
    rabbet_group_value_t v = kernel_boundary(c, candidate, c->inputs[i]);
    const kernel_image_t* image = kernel_image(c, c->inputs[i], &v);
    void* data =
        kernel_guarded(c, image->size, kernel_misalignment(c, i, v.dtype));
    memcpy(data, image->data, image->size);
    out_memory->inputs[i] = kernel_upload(c, data, image->size);
  }
  for (size_t i = 0; i < c->output_count; ++i) {
    rabbet_group_value_t v = kernel_boundary(c, candidate, c->outputs[i]);
    size_t size = kernel_bytes(v.dtype, v.format, &c->room[c->outputs[i]]);
    out_memory->outputs[i] =
        in_place && candidate->in_place[i] >= 0
            ? out_memory->inputs[candidate->in_place[i]]
            : kernel_upload(c,
                            kernel_guarded(c, size,
                                           kernel_misalignment(
                                               c, c->input_count + i, v.dtype)),
                            size);
  }
  out_memory->workspace =
      kernel_upload(c, kernel_guarded(c, workspace, 0), workspace);
  out_memory->call = (rabbet_kernel_call_t){.inputs = out_memory->inputs,
                                            .outputs = out_memory->outputs,
                                            .workspace = out_memory->workspace};
}

void kernel_case_free(kernel_case_t* c, kernel_case_memory_t* memory) {
  for (size_t i = 0; i < c->output_count; ++i) {
    bool shared = false;
    for (size_t k = 0; k < c->input_count; ++k)
      shared = shared || memory->inputs[k] == memory->outputs[i];
    if (!shared) kernel_free_memory(c, memory->outputs[i]);
  }
  for (size_t i = 0; i < c->input_count; ++i)
    kernel_free_memory(c, memory->inputs[i]);
  kernel_free_memory(c, memory->workspace);
}

// ---- Comparing -------------------------------------------------------------

// Half a unit in the last place, as a part of the value.
static double kernel_rounding(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_HALF     ? 0x1p-11
         : dtype == RABBET_DTYPE_BF16   ? 0x1p-8
         : dtype == RABBET_DTYPE_DOUBLE ? 0x1p-53
                                        : 0x1p-24;
}

static double kernel_number(const kernel_case_t* c, int32_t value,
                            int64_t element) {
  return rabbet_load_double(c->kept[value], c->reference[value], element);
}

static double kernel_largest(const kernel_case_t* c, int32_t value) {
  double largest = 0;
  for (int64_t i = 0, n = kernel_count(&c->values[value].dims); i < n; ++i) {
    double size = fabs(kernel_number(c, value, i));
    if (isfinite(size) && size > largest) largest = size;
  }
  return largest;
}

// The error that rounding the results of the layers before may add to an
// element, if sums and clips are all that follows. A layer that adds a bias of
// its own may round before it does.
static double kernel_rounded_before(const kernel_case_t* c, int32_t value,
                                    rabbet_dtype_t dtype, int64_t element) {
  double sum = 0;
  for (size_t i = 0; c->rounds_layers && i < c->node_count; ++i) {
    const rabbet_group_node_t* node = &c->nodes[i];
    double size = fabs(kernel_number(c, node->outputs[0], element));
    if (node->outputs[0] != value) sum += size;
    if (node->input_count == 3 && node->inputs[2] >= 0)
      sum += size + kernel_largest(c, node->inputs[2]);
  }
  return kernel_rounding(dtype) * sum;
}

static void kernel_compare_real(kernel_case_t* c, int32_t value,
                                const rabbet_group_value_t* v,
                                const kernel_image_t* image, const void* data) {
  int64_t count = kernel_count(&v->dims);
  double largest = kernel_largest(c, value);
  for (int64_t i = 0; i < count; ++i) {
    double found = rabbet_load_double(v->dtype, data, kernel_place(image, i));
    double wanted = kernel_number(c, value, i);
    double allowed = c->tolerance * largest +
                     1.01 * kernel_rounding(v->dtype) * fabs(wanted) +
                     kernel_rounded_before(c, value, v->dtype, i) +
                     (v->dtype == RABBET_DTYPE_HALF ? 0x1p-25 : 0);
    if (found == wanted || fabs(found - wanted) <= allowed ||
        (isnan(found) && isnan(wanted))) {
      continue;
    }
    fail_msg(
        "%s: element %lld is %.17g, expected %.17g (off by %.3g, allowed "
        "%.3g)",
        c->trace, (long long)i, found, wanted, fabs(found - wanted), allowed);
  }
}

static void kernel_compare_exact(kernel_case_t* c,
                                 const rabbet_group_value_t* v,
                                 const kernel_image_t* image,
                                 const void* data) {
  size_t size = (size_t)rabbet_dtype_bits(v->dtype) / 8;
  assert_true(size > 0);
  for (int64_t i = 0, count = kernel_count(&v->dims); i < count; ++i) {
    int64_t at = kernel_place(image, i);
    if (memcmp((const char*)data + (size_t)at * size,
               image->data + (size_t)at * size, size) == 0)
      continue;
    double found = rabbet_load_double(v->dtype, data, at);
    double wanted = rabbet_load_double(v->dtype, image->data, at);
    if (isnan(found) && isnan(wanted)) continue;
    // Processors convert subnormal numbers to BF16 as zero.
    if (kernel_is_real(v->dtype) && fabs(wanted) < 0x1p-126 && found == 0)
      continue;
    fail_msg("%s: element %lld is %.9g, expected %.9g", c->trace, (long long)i,
             found, wanted);
  }
}

static void kernel_compare_integer(kernel_case_t* c, int32_t value,
                                   const rabbet_group_value_t* v,
                                   const kernel_image_t* image,
                                   const void* data) {
  for (int64_t i = 0, count = kernel_count(&v->dims); i < count; ++i) {
    int64_t found = rabbet_load_int64(v->dtype, data, kernel_place(image, i));
    int64_t wanted = rabbet_load_int64(v->dtype, c->reference[value], i);
    if (llabs(found - wanted) > c->units)
      fail_msg("%s: element %lld is %lld, expected %lld", c->trace,
               (long long)i, (long long)found, (long long)wanted);
  }
}

// The gaps between the elements must be zero.
static void kernel_check_padding(kernel_case_t* c,
                                 const rabbet_group_value_t* v,
                                 const kernel_image_t* image,
                                 const void* data) {
  size_t element = (size_t)rabbet_dtype_bits(v->dtype) / 8;
  if (!image->places) return;
  unsigned char* used = kernel_guarded(c, image->size, 0);
  memset(used, 0, image->size);
  for (int64_t i = 0, count = kernel_count(&v->dims); i < count; ++i)
    used[image->places[i] * (int64_t)element] = 1;
  for (size_t i = 0; i < image->size; i += element) {
    for (size_t b = 0; !used[i] && b < element; ++b) {
      if (((const unsigned char*)data)[i + b] != 0)
        fail_msg("%s: padding element %zu is not zero", c->trace, i / element);
    }
  }
  kernel_free_guarded(c, used);
}

static void kernel_check_unchanged(kernel_case_t* c,
                                   const kernel_case_candidate_t* candidate,
                                   size_t input, void* memory) {
  rabbet_group_value_t v = kernel_boundary(c, candidate, c->inputs[input]);
  const kernel_image_t* image = kernel_image(c, c->inputs[input], &v);
  void* data = kernel_download(c, memory, image->size);
  if (memcmp(image->data, data, image->size) != 0)
    fail_msg("%s: input %zu was changed", c->trace, input);
  kernel_check_guard(c, data, image->size, "an input");
  kernel_dismiss(c, data);
}

// Element by element where the result is not the reference to the bit.
static void kernel_compare(kernel_case_t* c, int32_t value,
                           const rabbet_group_value_t* v, const void* data) {
  const kernel_image_t* image = kernel_image(c, value, v);
  if (memcmp(image->data, data, image->size) == 0) return;
  if (c->exact)
    kernel_compare_exact(c, v, image, data);
  else if (kernel_is_real(v->dtype) || v->dtype == RABBET_DTYPE_DOUBLE)
    kernel_compare_real(c, value, v, image, data);
  else
    kernel_compare_integer(c, value, v, image, data);
  kernel_check_padding(c, v, image, data);
}

static void kernel_verify_output(kernel_case_t* c, int32_t value,
                                 const rabbet_group_value_t* v, void* memory) {
  size_t size = kernel_bytes(v->dtype, v->format, &c->room[value]);
  void* data = kernel_download(c, memory, size);
  kernel_compare(c, value, v, data);
  kernel_check_guard(c, data, size, "an output");
  kernel_dismiss(c, data);
}

void kernel_case_verify(kernel_case_t* c,
                        const kernel_case_candidate_t* candidate, bool in_place,
                        const kernel_case_memory_t* memory) {
  for (size_t i = 0; i < c->output_count; ++i) {
    int32_t value = c->outputs[i];
    const rabbet_group_value_t v = kernel_boundary(c, candidate, value);
    kernel_verify_output(c, value, &v, memory->outputs[i]);
  }
  for (size_t i = 0; i < c->input_count; ++i) {
    bool replaced = false;
    for (size_t k = 0; in_place && k < c->output_count; ++k)
      replaced = replaced || candidate->in_place[k] == (int32_t)i;
    if (!replaced) kernel_check_unchanged(c, candidate, i, memory->inputs[i]);
  }
}

// ---- Running ---------------------------------------------------------------

static bool kernel_is_in_place(const kernel_case_t* c,
                               const kernel_case_candidate_t* candidate) {
  for (size_t i = 0; i < c->output_count; ++i) {
    if (candidate->in_place[i] >= 0) return true;
  }
  return false;
}

static void kernel_run_once(kernel_case_t* c,
                            const kernel_case_candidate_t* candidate,
                            rabbet_kernel_t* kernel,
                            rabbet_kernel_state_t* state, size_t workspace,
                            int threads, bool in_place) {
  const rabbet_device_vtable_t* device = c->device->vtable;
  kernel_case_memory_t memory;
  kernel_case_fill(c, candidate, workspace, in_place, &memory);
  void* token = NULL;
  if (device->begin_run)
    RABBET_EXPECT_OK(device->begin_run(c->device, threads, &token));
  RABBET_EXPECT_OK(candidate->kernel->enqueue(kernel, state, &memory.call));
  if (device->end_run) device->end_run(c->device, token);
  kernel_case_verify(c, candidate, in_place, &memory);
  void* used = kernel_download(c, memory.workspace, workspace);
  kernel_check_guard(c, used, workspace, "the workspace");
  kernel_dismiss(c, used);
  kernel_case_free(c, &memory);
}

// A constant as the builder hands it to a kernel: in the type that the kernel
// asks for, and no constant in another layout.
static const void* kernel_constant(kernel_case_t* c, size_t value,
                                   const rabbet_group_value_t* own) {
  const rabbet_group_value_t* v = &c->values[value];
  if (!v->constant || own->format != RABBET_FORMAT_LINEAR) return NULL;
  if (own->dtype == v->dtype) return v->constant;
  void* data =
      kernel_arena(c, kernel_bytes(own->dtype, RABBET_FORMAT_LINEAR, &v->dims));
  rabbet_convert(v->dtype, v->constant, own->dtype, data,
                 kernel_count(&v->dims));
  return data;
}

// The candidate with this case's shapes and constants.
static kernel_case_candidate_t* kernel_adopt(
    kernel_case_t* c, const kernel_case_candidate_t* candidate) {
  kernel_case_candidate_t* own = kernel_arena(c, sizeof(*own));
  *own = *candidate;
  own->values = kernel_copy_values(c, candidate->values);
  for (size_t i = 0; i < c->value_count; ++i) {
    own->values[i].dims = c->values[i].dims;
    own->values[i].constant = kernel_constant(c, i, &own->values[i]);
    if (!c->dynamic || c->values[i].constant) continue;
    for (int32_t k = 0; k < own->values[i].dims.rank; ++k)
      own->values[i].dims.d[k] = own->values[i].min.d[k] =
          own->values[i].max.d[k] = -1;
  }
  own->group.values = own->values;
  return own;
}

// The elements of small integers that the host knows.
static const int64_t* kernel_host_values(kernel_case_t* c, size_t value) {
  rabbet_dtype_t dtype = c->values[value].dtype;
  int64_t count = kernel_count(&c->values[value].dims);
  if (dtype == RABBET_DTYPE_INT64) return c->reference[value];
  if (dtype != RABBET_DTYPE_INT32 || count > 64) return NULL;
  int64_t* values = kernel_arena(c, (size_t)count * sizeof(*values));
  for (int64_t i = 0; i < count; ++i)
    values[i] = rabbet_load_int64(dtype, c->reference[value], i);
  return values;
}

bool kernel_case_run(kernel_case_t* c, const kernel_case_candidate_t* given,
                     int threads) {
  const kernel_case_candidate_t* candidate = kernel_adopt(c, given);
  char shape[128];
  snprintf(
      c->trace, sizeof(c->trace),
      "%s: %s %s, %s %s %s -> %s %s, %d threads%s%s", c->origin,
      candidate->kernel->name, candidate->tactic_name,
      rabbet_dims_print(&c->values[c->outputs[0]].dims, shape, sizeof(shape)),
      rabbet_dtype_name(candidate->tensors[0].dtype),
      rabbet_format_name(candidate->tensors[0].format),
      rabbet_dtype_name(candidate->tensors[c->input_count].dtype),
      rabbet_format_name(candidate->tensors[c->input_count].format), threads,
      c->dynamic ? ", dynamic" : "", c->misaligned ? ", misaligned" : "");
  const rabbet_kernel_spec_t spec = {
      .device = c->device,
      .group = &candidate->group,
      .tactic = candidate->tactic,
      .allocator = c->allocator,
  };
  rabbet_dims_t dims[KERNEL_CASE_MAX];
  const int64_t* host[KERNEL_CASE_MAX] = {NULL};
  for (size_t i = 0; i < c->value_count; ++i) {
    dims[i] = c->run_dims[i];
    host[i] = kernel_host_values(c, i);
  }
  size_t bytes[KERNEL_CASE_MAX];
  for (size_t i = 0; i < c->value_count; ++i)
    bytes[i] = kernel_bytes(candidate->values[i].dtype,
                            candidate->values[i].format, &c->room[i]);
  const rabbet_kernel_shapes_t shapes = {
      .dims = dims, .host_values = host, .threads = threads, .bytes = bytes};
  rabbet_kernel_t* kernel = NULL;
  rabbet_kernel_state_t* state = NULL;
  size_t workspace = 0;
  RABBET_EXPECT_OK(rabbet_kernel_create(candidate->kernel, &spec, &kernel));
  rabbet_status_t status =
      candidate->kernel->prepare(kernel, &shapes, &state, &workspace);
  if (!c->device->host_memory &&
      rabbet_status_code(status) == RABBET_STATUS_UNSUPPORTED) {
    rabbet_status_free(status);
    candidate->kernel->destroy(kernel);
    return false;
  }
  RABBET_EXPECT_OK(status);
  kernel_run_once(c, candidate, kernel, state, workspace, threads, false);
  kernel_run_once(c, candidate, kernel, state, workspace, threads, false);
  if (kernel_is_in_place(c, candidate)) {
    snprintf(c->trace + strlen(c->trace), sizeof(c->trace) - strlen(c->trace),
             ", in place");
    kernel_run_once(c, candidate, kernel, state, workspace, threads, true);
  }
  if (state) candidate->kernel->destroy_state(kernel, state);
  candidate->kernel->destroy(kernel);
  return true;
}

int kernel_case_threads(const kernel_case_t* c) {
  return c->device->host_memory ? 2 : 1;
}

int kernel_case_check(kernel_case_t* c, const kernel_case_filter_t* filter) {
  kernel_case_candidate_t* candidates = NULL;
  size_t count = kernel_case_candidates(c, filter, &candidates);
  for (size_t i = 0; i < count; ++i) {
    for (int threads = 1; threads <= kernel_case_threads(c); ++threads)
      kernel_case_run(c, &candidates[i], threads);
  }
  return (int)count;
}
