// A plugin library in C: circular padding of the last two axes, on the CPU.
//
// What leaves an axis on one side comes in on the other: with pad = 1, the row
// 1 2 3 becomes 3 1 2 3 1. Elements are moved as they are, so that a type is no
// more than its size.
#include <rabbet/plugin.h>

#include <stdbool.h>
#include <string.h>

typedef struct circ_pad_t {
  int64_t pad;  // of each side of both axes; 0 <= pad <= their extents
} circ_pad_t;

// ---- What the outputs look like --------------------------------------------

static int32_t circ_pad_output_count(void* self) {
  (void)self;
  return 1;
}

// Dimensions are expressions, as they may be known at run time alone.
static rabbet_status_t circ_pad_describe(void* self,
                                         rabbet_dim_builder_t* builder,
                                         const rabbet_plugin_input_t* inputs,
                                         size_t input_count,
                                         rabbet_plugin_output_t* outputs) {
  const circ_pad_t* plugin = self;
  rabbet_dim_t both = 0;
  int32_t rank = inputs[0].rank;
  (void)input_count;  // 1, as the creator says
  if (rank < 2)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the input has rank %d; expected 2 or more", rank);
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].rank = rank;
  memcpy(outputs[0].dims, inputs[0].dims, sizeof(outputs[0].dims));
  RABBET_RETURN_IF_ERROR(rabbet_dim_constant(builder, 2 * plugin->pad, &both));
  for (int32_t axis = rank - 2; axis < rank; ++axis)
    RABBET_RETURN_IF_ERROR(rabbet_dim_operation(builder, RABBET_DIM_SUM,
                                                inputs[0].dims[axis], both,
                                                &outputs[0].dims[axis]));
  return rabbet_ok();
}

// ---- What the builder may choose from --------------------------------------

static rabbet_status_t circ_pad_combinations(
    void* self, const rabbet_plugin_query_t* query,
    rabbet_plugin_combination_sink_t sink) {
  static const rabbet_dtype_t types[] = {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF,
                                         RABBET_DTYPE_BF16};
  (void)self;
  if (strcmp(query->device, "cpu") != 0)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "it runs on the CPU; examples/plugin_library_cuda is "
                         "for GPUs");
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
    const rabbet_plugin_type_format_t both[] = {
        {types[i], RABBET_FORMAT_LINEAR}, {types[i], RABBET_FORMAT_LINEAR}};
    RABBET_RETURN_IF_ERROR(sink.add(sink.context, both));
  }
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

// src: [height, width], dst: [height + 2 pad, width + 2 pad], row-major, with
// elements of `item` bytes.
static void pad_plane(const char* src, int64_t height, int64_t width,
                      int64_t pad, size_t item, char* dst) {
  size_t row = (size_t)width * item, side = (size_t)pad * item;
  size_t wide = row + 2 * side;
  char* inner = dst + (size_t)pad * wide;
  for (int64_t y = 0; y < height; ++y, src += row) {
    char* to = inner + (size_t)y * wide;
    memcpy(to, src + row - side, side);
    memcpy(to + side, src, row);
    memcpy(to + side + row, src, side);
  }
  memcpy(dst, inner + (size_t)(height - pad) * wide, (size_t)pad * wide);
  memcpy(inner + (size_t)height * wide, inner, (size_t)pad * wide);
}

static rabbet_status_t circ_pad_enqueue(void* self,
                                        const rabbet_plugin_call_t* call) {
  const circ_pad_t* plugin = self;
  const rabbet_plugin_view_t* x = &call->inputs[0];
  int32_t rank = x->dims.rank;
  int64_t height = x->dims.d[rank - 2], width = x->dims.d[rank - 1];
  int64_t pad = plugin->pad, planes = 1;
  size_t item = x->dtype == RABBET_DTYPE_FLOAT ? 4 : 2;
  if (pad > height || pad > width)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "pad is %lld, but a plane has %lld x %lld elements",
                         (long long)pad, (long long)height, (long long)width);
  for (int32_t axis = 0; axis < rank - 2; ++axis)
    planes *= x->dims.d[axis];
  const char* src = x->data;
  char* dst = call->outputs[0].data;
  for (int64_t i = 0; i < planes; ++i) {
    pad_plane(src, height, width, pad, item, dst);
    src += (size_t)(height * width) * item;
    dst += (size_t)((height + 2 * pad) * (width + 2 * pad)) * item;
  }
  return rabbet_ok();
}

// ---- Making, keeping -------------------------------------------------------

// What `create` needs when the plan is loaded, and what the speed depends on.
static rabbet_status_t circ_pad_serialize(void* self,
                                          rabbet_plugin_attr_sink_t sink) {
  const rabbet_attr_t pad = {.name = "pad",
                             .type = RABBET_ATTR_INT,
                             .data = &((circ_pad_t*)self)->pad,
                             .count = 1};
  return sink.add(sink.context, &pad);
}

static void circ_pad_destroy(void* self) {
  rabbet_free(rabbet_allocator_system(), self);
}

static rabbet_status_t circ_pad_create(void* user_data,
                                       const rabbet_plugin_create_t* args,
                                       rabbet_plugin_instance_t* out_instance) {
  static const rabbet_plugin_vtable_t vtable = {
      .struct_size = sizeof(vtable),
      .destroy = circ_pad_destroy,
      .output_count = circ_pad_output_count,
      .describe = circ_pad_describe,
      .combinations = circ_pad_combinations,
      .timing_key = circ_pad_serialize,
      .serialize = circ_pad_serialize,
      .enqueue = circ_pad_enqueue,
  };
  const rabbet_attr_t* pad =
      rabbet_attr_find(args->attrs, args->attr_count, "pad");
  circ_pad_t* self = NULL;
  (void)user_data;
  // In a build a required field was checked before; a plan may be anyone's.
  if (!pad || pad->type != RABBET_ATTR_INT || *(const int64_t*)pad->data < 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "'pad' must be an integer, 0 or more");
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(rabbet_allocator_system(), sizeof(*self), (void**)&self));
  self->pad = *(const int64_t*)pad->data;
  *out_instance = (rabbet_plugin_instance_t){&vtable, self};
  return rabbet_ok();
}

static rabbet_status_t circ_pad_register(void) {
  static const rabbet_plugin_field_t fields[] = {
      {.name = "pad", .type = RABBET_ATTR_INT, .required = true}};
  const rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                           .name = "circ_pad_plugin",
                                           .plugin_namespace = "example",
                                           .origin = "circ_pad.c",
                                           .fields = fields,
                                           .field_count = 1,
                                           .field_size = sizeof(*fields),
                                           .create = circ_pad_create,
                                           .input_count = 1};
  return rabbet_plugin_register(&creator);
}

RABBET_PLUGIN_LIBRARY(circ_pad_register)
