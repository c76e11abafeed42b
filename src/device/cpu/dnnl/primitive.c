// Primitives with their arguments.
#include <assert.h>

#include "device/cpu/dnnl/headroom.h"
#include "device/cpu/dnnl/internal.h"
#include "device/cpu/parallel.h"

// The arguments that a primitive uses.
typedef struct bound_t {
  int arg;
  void* pointer;  // the address that the memory object has now
  dnnl_memory_desc_t layout;
} bound_t;

struct rabbet_dnnl_primitive_t {
  rabbet_allocator_t allocator;
  dnnl_primitive_desc_t desc;
  dnnl_primitive_t primitive;
  dnnl_stream_t stream;
  bool executed;
  int arg_count;
  bound_t* bound;         // arg_count, behind this struct
  dnnl_exec_arg_t* exec;  // likewise
};

// oneDNN's number for our argument.
static int arg_number(int arg) {
  static const int numbers[] = {
      [RABBET_DNNL_SRC] = DNNL_ARG_SRC,
      [RABBET_DNNL_WEIGHTS] = DNNL_ARG_WEIGHTS,
      [RABBET_DNNL_BIAS] = DNNL_ARG_BIAS,
      [RABBET_DNNL_DST] = DNNL_ARG_DST,
      [RABBET_DNNL_SCALE] = DNNL_ARG_SCALE,
      [RABBET_DNNL_SHIFT] = DNNL_ARG_SHIFT,
      [RABBET_DNNL_SCRATCHPAD] = DNNL_ARG_SCRATCHPAD,
  };
  assert(arg >= 0);
  if (arg >= RABBET_DNNL_SOURCE_FIRST)
    return DNNL_ARG_MULTIPLE_SRC + (arg - RABBET_DNNL_SOURCE_FIRST);
  if (arg >= RABBET_DNNL_POST_FIRST)
    return DNNL_ARG_ATTR_MULTIPLE_POST_OP(arg - RABBET_DNNL_POST_FIRST) |
           DNNL_ARG_SRC_1;
  assert((size_t)arg < sizeof(numbers) / sizeof(numbers[0]));
  return numbers[arg];
}

static void add_arg(rabbet_dnnl_primitive_t* primitive, int arg) {
  const dnnl_memory_desc_t* layout = dnnl_primitive_desc_query_md(
      primitive->desc, dnnl_query_exec_arg_md, arg_number(arg));
  if (!layout || dnnl_memory_desc_get_size(layout) == 0) return;
  primitive->bound[primitive->arg_count++] =
      (bound_t){.arg = arg, .layout = *layout};
}

static void add_args(const rabbet_dnnl_spec_t* spec,
                     rabbet_dnnl_primitive_t* primitive) {
  if (spec->kind == RABBET_DNNL_CONCAT) {
    for (int i = 0; i < spec->source_count; ++i)
      add_arg(primitive, RABBET_DNNL_SOURCE(i));
  } else {
    add_arg(primitive, RABBET_DNNL_SRC);
  }
  if (spec->weights.rank > 0) add_arg(primitive, RABBET_DNNL_WEIGHTS);
  if (spec->has_bias) add_arg(primitive, RABBET_DNNL_BIAS);
  if (spec->has_scale) add_arg(primitive, RABBET_DNNL_SCALE);
  if (spec->has_shift) add_arg(primitive, RABBET_DNNL_SHIFT);
  add_arg(primitive, RABBET_DNNL_DST);
  add_arg(primitive, RABBET_DNNL_SCRATCHPAD);
  for (int i = 0; i < spec->post_count; ++i) {
    if (spec->posts[i].kind == RABBET_DNNL_POST_BINARY)
      add_arg(primitive, RABBET_DNNL_POST(i));
  }
}

static rabbet_status_t make_memories(rabbet_dnnl_t* dnnl,
                                     rabbet_dnnl_primitive_t* primitive) {
  for (int i = 0; i < primitive->arg_count; ++i) {
    primitive->exec[i].arg = arg_number(primitive->bound[i].arg);
    RABBET_RETURN_IF_ERROR(
        rabbet_dnnl_status(dnnl_memory_create(&primitive->exec[i].memory,
                                              &primitive->bound[i].layout,
                                              dnnl->engine, DNNL_MEMORY_NONE),
                           "creating a memory object"));
  }
  return rabbet_ok();
}

// Takes ownership of the descriptor, on failure too.
static rabbet_status_t primitive_make(rabbet_dnnl_t* dnnl,
                                      const rabbet_dnnl_spec_t* spec,
                                      dnnl_primitive_desc_t take_desc,
                                      rabbet_allocator_t allocator,
                                      rabbet_dnnl_primitive_t** out_primitive) {
  rabbet_dnnl_primitive_t* primitive = NULL;
  size_t room = 7 + RABBET_DNNL_MAX_POSTS + (size_t)spec->source_count;
  rabbet_status_t status = rabbet_allocate(
      allocator,
      sizeof(*primitive) + room * (sizeof(bound_t) + sizeof(dnnl_exec_arg_t)),
      (void**)&primitive);
  if (!rabbet_is_ok(status)) {
    dnnl_primitive_desc_destroy(take_desc);
    return status;
  }
  primitive->allocator = allocator;
  assert(spec->post_count <= RABBET_DNNL_MAX_POSTS);
  primitive->desc = take_desc;
  primitive->bound = (bound_t*)(primitive + 1);
  primitive->exec = (dnnl_exec_arg_t*)(primitive->bound + room);
  dnnl_status_t made = dnnl_primitive_create(&primitive->primitive, take_desc);
  // The generated code did not fit into its buffer; another kernel may do.
  if (made == dnnl_runtime_error) made = dnnl_unimplemented;
  status = rabbet_dnnl_status(made, "creating a primitive");
  if (rabbet_is_ok(status))
    status =
        rabbet_dnnl_status(dnnl_stream_create(&primitive->stream, dnnl->engine,
                                              dnnl_stream_default_flags),
                           "creating a stream");
  if (rabbet_is_ok(status)) {
    add_args(spec, primitive);
    assert((size_t)primitive->arg_count <= room);
    status = make_memories(dnnl, primitive);
  }
  if (rabbet_is_ok(status)) {
    *out_primitive = primitive;
  } else {
    rabbet_dnnl_primitive_destroy(primitive);
  }
  return status;
}

typedef struct choice_t {
  int32_t id;
  bool any;  // at least one implementation exists
  dnnl_primitive_desc_t desc;
} choice_t;

static rabbet_status_t choose(void* context, dnnl_primitive_desc_t desc,
                              const rabbet_dnnl_implementation_t* found,
                              bool* out_taken) {
  choice_t* choice = context;
  choice->any = true;
  *out_taken = choice->id == 0 || choice->id == found->id;
  if (*out_taken) choice->desc = desc;
  return rabbet_ok();
}

rabbet_status_t rabbet_dnnl_primitive_create(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_spec_t* spec, int32_t implementation,
    int threads, rabbet_allocator_t allocator,
    rabbet_dnnl_primitive_t** out_primitive) {
  *out_primitive = NULL;
  int before = rabbet_cpu_set_threads(threads);
  choice_t choice = {.id = implementation};
  rabbet_status_t status = rabbet_dnnl_walk(dnnl, spec, choose, &choice);
  if (rabbet_is_ok(status) && choice.desc)
    status = primitive_make(dnnl, spec, choice.desc, allocator, out_primitive);
  else if (rabbet_is_ok(status))
    status = RABBET_STATUS(
        choice.any ? RABBET_STATUS_NOT_FOUND : RABBET_STATUS_UNSUPPORTED,
        "oneDNN has no implementation %s for these shapes and layouts",
        choice.any ? "of that number" : "at all");
  rabbet_cpu_restore_threads(before);
  return status;
}

static const bound_t* find_arg(const rabbet_dnnl_primitive_t* primitive,
                               int arg) {
  for (int i = 0; i < primitive->arg_count; ++i) {
    if (primitive->bound[i].arg == arg) return &primitive->bound[i];
  }
  return NULL;
}

static const char* primitive_name(const rabbet_dnnl_primitive_t* p) {
  return rabbet_dnnl_desc_name(p->desc);
}

rabbet_status_t rabbet_dnnl_pack_create(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_layout_t* layout,
    const rabbet_dnnl_primitive_t* primitive, int arg, int threads,
    rabbet_allocator_t allocator, rabbet_dnnl_primitive_t** out_pack) {
  *out_pack = NULL;
  const bound_t* target = find_arg(primitive, arg);
  if (!target)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "primitive %s has no argument %d",
                         primitive_name(primitive), arg);
  RABBET_RETURN_IF_ERROR(rabbet_cpu_check_room());
  dnnl_memory_desc_t source;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(layout, &source));
  const rabbet_dnnl_spec_t spec = {.kind = RABBET_DNNL_REORDER};
  dnnl_primitive_attr_t attr = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_attr(&spec, &attr));
  int before = rabbet_cpu_set_threads(threads);
  dnnl_primitive_desc_t desc = NULL;
  rabbet_status_t status = rabbet_dnnl_status(
      dnnl_reorder_primitive_desc_create(&desc, &source, dnnl->engine,
                                         &target->layout, dnnl->engine, attr),
      "packing weights");
  if (rabbet_is_ok(status))
    status = primitive_make(dnnl, &spec, desc, allocator, out_pack);
  rabbet_cpu_restore_threads(before);
  dnnl_primitive_attr_destroy(attr);
  return status;
}

void rabbet_dnnl_primitive_destroy(rabbet_dnnl_primitive_t* primitive) {
  if (!primitive) return;
  for (int i = 0; i < primitive->arg_count; ++i)
    dnnl_memory_destroy(primitive->exec[i].memory);
  if (primitive->stream) dnnl_stream_destroy(primitive->stream);
  if (primitive->primitive) dnnl_primitive_destroy(primitive->primitive);
  dnnl_primitive_desc_destroy(primitive->desc);
  rabbet_free(primitive->allocator, primitive);
}

size_t rabbet_dnnl_primitive_bytes(const rabbet_dnnl_primitive_t* primitive,
                                   int arg) {
  const bound_t* bound = find_arg(primitive, arg);
  return bound ? dnnl_memory_desc_get_size(&bound->layout) : 0;
}

bool rabbet_dnnl_primitive_takes(const rabbet_dnnl_primitive_t* primitive,
                                 int arg, const rabbet_dnnl_layout_t* layout) {
  const bound_t* bound = find_arg(primitive, arg);
  dnnl_memory_desc_t desc;
  rabbet_status_t status = rabbet_dnnl_desc(layout, &desc);
  bool equal = rabbet_is_ok(status) && bound &&
               dnnl_memory_desc_equal(&desc, &bound->layout);
  rabbet_status_ignore(status);
  return equal;
}

const void* rabbet_dnnl_primitive_layout(
    const rabbet_dnnl_primitive_t* primitive, int arg, size_t* out_size) {
  const bound_t* bound = find_arg(primitive, arg);
  *out_size = bound ? sizeof(bound->layout) : 0;
  return bound ? &bound->layout : NULL;
}

rabbet_status_t rabbet_dnnl_primitive_execute(
    rabbet_dnnl_primitive_t* primitive, void* const* pointers) {
  // Some primitives generate code in their first execution.
  if (!primitive->executed) RABBET_RETURN_IF_ERROR(rabbet_cpu_check_room());
  primitive->executed = true;
  for (int i = 0; i < primitive->arg_count; ++i) {
    bound_t* bound = &primitive->bound[i];
    void* pointer = pointers[bound->arg];
    assert(pointer);  // arguments without elements are not bound
    if (bound->pointer == pointer) continue;
    dnnl_status_t result =
        dnnl_memory_set_data_handle(primitive->exec[i].memory, pointer);
    if (result != dnnl_success)
      return rabbet_dnnl_status(result, "setting an address");
    bound->pointer = pointer;
  }
  return rabbet_dnnl_status(
      dnnl_primitive_execute(primitive->primitive, primitive->stream,
                             primitive->arg_count, primitive->exec),
      primitive_name(primitive));
}
