#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/math.h"
#include "device/reference_kernel.h"
#include "far.h"

#define FAR_MOST 256
#define FAR_MOST_TENSORS 16

static struct {
  uint8_t* memory;
  size_t size, asked;
} far_blocks[FAR_MOST];

static void far_protect(int rights) {
  for (size_t i = 0; i < FAR_MOST; ++i) {
    if (far_blocks[i].memory)
      mprotect(far_blocks[i].memory, far_blocks[i].size, rights);
  }
}

static int far_opened;

void far_open_memory(void) {
  if (far_opened++ == 0) far_protect(PROT_READ | PROT_WRITE);
}

void far_close_memory(void) {
  if (--far_opened == 0) far_protect(PROT_NONE);
}

bool far_owns(const void* address, size_t size) {
  const uint8_t* at = address;
  for (size_t i = 0; i < FAR_MOST; ++i) {
    if (far_blocks[i].memory && at >= far_blocks[i].memory &&
        at + size <= far_blocks[i].memory + far_blocks[i].size)
      return true;
  }
  return false;
}

// ---- Memory

static rabbet_status_t far_allocate(rabbet_device_t* device, size_t size,
                                    void** out_memory) {
  (void)device;
  *out_memory = NULL;
  size_t rounded = rabbet_align_up(size + 1, (size_t)sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < FAR_MOST; ++i) {
    if (far_blocks[i].memory) continue;
    void* memory =
        mmap(NULL, rounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) break;
    far_blocks[i].memory = memory;
    far_blocks[i].size = rounded;
    far_blocks[i].asked = size;
    far_counts()->allocated += (int)size;
    *out_memory = memory;
    return rabbet_ok();
  }
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY, "no far memory is left");
}

static void far_free(rabbet_device_t* device, void* memory) {
  (void)device;
  for (size_t i = 0; i < FAR_MOST; ++i) {
    if (!memory || far_blocks[i].memory != memory) continue;
    munmap(memory, far_blocks[i].size);
    far_counts()->allocated -= (int)far_blocks[i].asked;
    far_blocks[i].memory = NULL;
  }
}

static rabbet_status_t far_allocate_host(rabbet_device_t* device, size_t size,
                                         void** out_memory) {
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(
      device->allocator, size ? size : 1, 64, out_memory));
  ++far_counts()->pinned;
  return rabbet_ok();
}

static void far_free_host(rabbet_device_t* device, void* memory) {
  if (!memory) return;
  --far_counts()->pinned;
  rabbet_free_aligned(device->allocator, memory, 64);
}

typedef struct far_move_t {
  void* target;
  const void* source;
  size_t size;
} far_move_t;

static void far_do_move(const void* args) {
  const far_move_t* move = args;
  memmove(move->target, move->source, move->size);
}

static rabbet_status_t far_move(void* target, const void* source, size_t size,
                                bool target_far, bool source_far,
                                void* stream) {
  far_move_t move = {target, source, size};
  if (size == 0) return rabbet_ok();
  if (far_owns(target, size) != target_far ||
      far_owns(source, size) != source_far)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a copy between the wrong kinds of memory");
  return far_launch(stream, far_do_move, &move, sizeof(move));
}

static rabbet_status_t far_copy_to_device(rabbet_device_t* device, void* target,
                                          const void* source, size_t size,
                                          void* stream) {
  (void)device;
  return far_move(target, source, size, true, false, stream);
}

static rabbet_status_t far_copy_to_host(rabbet_device_t* device, void* target,
                                        const void* source, size_t size,
                                        void* stream) {
  (void)device;
  return far_move(target, source, size, false, true, stream);
}

static rabbet_status_t far_copy(rabbet_device_t* device, void* target,
                                const void* source, size_t size, void* stream) {
  (void)device;
  return far_move(target, source, size, true, true, stream);
}

typedef struct far_filling_t {
  void* target;
  size_t size;
  uint8_t byte;
} far_filling_t;

// A plugin's function runs, with the memory open: what it is given is filled at
// once, as it may compute right here.
static bool far_plugin_runs;

static void far_do_fill(const void* args) {
  const far_filling_t* filling = args;
  memset(filling->target, filling->byte, filling->size);
}

static rabbet_status_t far_fill(rabbet_device_t* device, void* target,
                                uint8_t byte, size_t size, void* stream) {
  (void)device;
  far_filling_t filling = {target, size, byte};
  if (far_plugin_runs) {
    far_do_fill(&filling);
    return rabbet_ok();
  }
  return far_launch(stream, far_do_fill, &filling, sizeof(filling));
}

static rabbet_status_t far_time(rabbet_device_t* device, void* stream,
                                int count,
                                rabbet_status_t (*body)(void* context),
                                void* context, int64_t* out_ns) {
  far_machine_t* machine = far_machine();
  int64_t begin = machine ? machine->now : rabbet_time_ns();
  rabbet_status_t status = rabbet_ok();
  // Open once for all: opening takes longer than most of what is timed.
  if (machine) far_open_memory();
  for (int i = 0; i < count && rabbet_is_ok(status); ++i)
    status = body(context);
  if (machine) far_close_memory();
  RABBET_RETURN_IF_ERROR(status);
  *out_ns = (machine ? machine->now : rabbet_time_ns()) - begin;
  if (machine) machine->disturb(machine, out_ns);
  return device->vtable->synchronize(device, stream);
}

static uint64_t far_interruptions(rabbet_device_t* device) {
  (void)device;
  return far_machine() ? far_machine()->interruptions : 0;
}

static int64_t far_pace(rabbet_device_t* device) {
  (void)device;
  return far_machine() ? far_machine()->pace : 1000;
}

// ---- Kernels: the reference and plugin classes with the memory open

typedef struct far_kernel_t {
  rabbet_kernel_t base;
  rabbet_kernel_t* inner;  // of the class that it stands for
  const rabbet_group_t* group;
  rabbet_allocator_t allocator;
  rabbet_device_t* device;
  void* constants[FAR_MOST_TENSORS];  // of boundary inputs that it keeps
  char code[96];
} far_kernel_t;

static rabbet_kernel_class_t far_reference, far_plugin;
static bool far_owning;

void far_set_owning(bool owning) {
  far_owning = owning;
}

static rabbet_status_t far_wrap(const rabbet_kernel_spec_t* spec,
                                const rabbet_kernel_class_t* inner,
                                const rabbet_kernel_class_t* outer,
                                rabbet_kernel_t** out_kernel) {
  far_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->base.kernel_class = outer;
  kernel->group = spec->group;
  kernel->allocator = spec->allocator;
  kernel->device = spec->device;
  rabbet_status_t status = rabbet_kernel_create(inner, spec, &kernel->inner);
  if (!rabbet_is_ok(status)) {
    rabbet_free(spec->allocator, kernel);
    return status;
  }
  *out_kernel = &kernel->base;
  return rabbet_ok();
}

static void far_destroy_kernel(rabbet_kernel_t* base) {
  far_kernel_t* kernel = (far_kernel_t*)base;
  if (!base) return;
  for (size_t i = 0; i < FAR_MOST_TENSORS; ++i)
    far_free(kernel->device, kernel->constants[i]);
  kernel->inner->kernel_class->destroy(kernel->inner);
  rabbet_free(kernel->allocator, kernel);
}

static rabbet_status_t far_prepare(rabbet_kernel_t* base,
                                   const rabbet_kernel_shapes_t* shapes,
                                   rabbet_kernel_state_t** out_state,
                                   size_t* out_workspace) {
  rabbet_kernel_t* inner = ((far_kernel_t*)base)->inner;
  return inner->kernel_class->prepare(inner, shapes, out_state, out_workspace);
}

static void far_destroy_state(rabbet_kernel_t* base,
                              rabbet_kernel_state_t* state) {
  rabbet_kernel_t* inner = ((far_kernel_t*)base)->inner;
  inner->kernel_class->destroy_state(inner, state);
}

// ---- Code: what a kernel of "far" must have, from a plan or compiled

static rabbet_artifact_t far_artifact(const far_kernel_t* kernel) {
  return (rabbet_artifact_t){
      .key = rabbet_hash128(kernel->code, strlen(kernel->code)),
      .name = kernel->code + strlen("code of "),
      .data = kernel->code,
      .size = strlen(kernel->code) + 1};
}

static rabbet_status_t far_take_code(far_kernel_t* kernel,
                                     const rabbet_kernel_spec_t* spec) {
  snprintf(kernel->code, sizeof(kernel->code), "code of %s.cu",
           spec->group->nodes[0].op->name);
  rabbet_artifact_t wanted = far_artifact(kernel);
  for (size_t i = 0; i < spec->artifact_count; ++i) {
    const rabbet_artifact_t* given = &spec->artifacts[i];
    if (rabbet_hash_compare(given->key, wanted.key) != 0) continue;
    if (given->size != wanted.size ||
        memcmp(given->data, wanted.data, wanted.size) != 0)
      return RABBET_STATUS(RABBET_STATUS_DATA_LOSS, "the code is damaged");
    return rabbet_ok();
  }
  ++far_counts()->compiled;
  return rabbet_ok();
}

static rabbet_status_t far_artifacts(rabbet_kernel_t* base,
                                     rabbet_artifact_sink_t sink) {
  rabbet_artifact_t artifact = far_artifact((far_kernel_t*)base);
  return sink.add(sink.context, &artifact);
}

static rabbet_status_t far_keep_constants(far_kernel_t* kernel) {
  const rabbet_group_t* group = kernel->group;
  for (size_t i = 0; far_owning && i < group->input_count; ++i) {
    const rabbet_group_value_t* value = &group->values[group->inputs[i]];
    size_t bytes = 0;
    if (!value->constant) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_tensor_bytes(value->dtype, value->format, &value->dims, &bytes));
    RABBET_RETURN_IF_ERROR(
        far_allocate(kernel->device, bytes, &kernel->constants[i]));
    RABBET_RETURN_IF_ERROR(far_copy_to_device(
        kernel->device, kernel->constants[i], value->constant, bytes, NULL));
    kernel->base.own_constants |= 1ull << i;
  }
  far_flush();
  return rabbet_ok();
}

static rabbet_status_t far_create_reference(const rabbet_kernel_spec_t* spec,
                                            rabbet_kernel_t** out_kernel) {
  RABBET_RETURN_IF_ERROR(far_wrap(spec, &rabbet_reference_kernel_class,
                                  &far_reference, out_kernel));
  far_kernel_t* kernel = (far_kernel_t*)*out_kernel;
  rabbet_status_t status = far_take_code(kernel, spec);
  if (rabbet_is_ok(status)) status = far_keep_constants(kernel);
  if (!rabbet_is_ok(status)) {
    far_destroy_kernel(*out_kernel);
    *out_kernel = NULL;
  }
  return status;
}

static rabbet_status_t far_create_plugin(const rabbet_kernel_spec_t* spec,
                                         rabbet_kernel_t** out_kernel) {
  return far_wrap(spec, &rabbet_plugin_kernel_class, &far_plugin, out_kernel);
}

// ---- Proposing: what the classes behind them do

static rabbet_status_t far_offer(void* context,
                                 const rabbet_candidate_t* candidate) {
  const rabbet_candidate_sink_t* sink = context;
  rabbet_candidate_t own = *candidate;
  own.kernel = candidate->kernel == &rabbet_reference_kernel_class
                   ? &far_reference
                   : &far_plugin;
  return sink->add(sink->context, &own);
}

static rabbet_status_t far_propose_reference(const rabbet_propose_t* propose,
                                             rabbet_candidate_sink_t sink) {
  return rabbet_reference_kernel_class.propose(
      propose, (rabbet_candidate_sink_t){&sink, far_offer});
}

static rabbet_status_t far_propose_plugin(const rabbet_propose_t* propose,
                                          rabbet_candidate_sink_t sink) {
  return rabbet_plugin_kernel_class.propose(
      propose, (rabbet_candidate_sink_t){&sink, far_offer});
}

// ---- Running

typedef struct far_call_t {
  rabbet_kernel_t* kernel;
  rabbet_kernel_state_t* state;
  void* workspace;
  void* tensors[FAR_MOST_TENSORS];
  size_t inputs;
} far_call_t;

static void far_run_reference(const void* args) {
  far_call_t own = *(const far_call_t*)args;
  rabbet_kernel_call_t call = {.inputs = own.tensors,
                               .outputs = own.tensors + own.inputs,
                               .workspace = own.workspace};
  rabbet_status_t status =
      rabbet_reference_kernel_class.enqueue(own.kernel, own.state, &call);
  if (!rabbet_is_ok(status)) __builtin_trap();  // a device's kernel cannot fail
  rabbet_status_ignore(status);
}

static rabbet_status_t far_enqueue_reference(rabbet_kernel_t* base,
                                             rabbet_kernel_state_t* state,
                                             const rabbet_kernel_call_t* call) {
  const far_kernel_t* kernel = (const far_kernel_t*)base;
  const rabbet_group_t* group = kernel->group;
  far_call_t own = {.kernel = kernel->inner,
                    .state = state,
                    .workspace = call->workspace,
                    .inputs = group->input_count};
  if (group->input_count + group->output_count > FAR_MOST_TENSORS)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "too many tensors");
  memcpy(own.tensors, call->inputs, group->input_count * sizeof(void*));
  for (size_t i = 0; i < group->input_count; ++i)
    if (kernel->constants[i]) own.tensors[i] = kernel->constants[i];
  memcpy(own.tensors + group->input_count, call->outputs,
         group->output_count * sizeof(void*));
  return far_launch(call->stream, far_run_reference, &own, sizeof(own));
}

// A plugin's function is host code that may compute right here: it waits for
// what was enqueued before it, unless the stream records.
static rabbet_status_t far_enqueue_plugin(rabbet_kernel_t* base,
                                          rabbet_kernel_state_t* state,
                                          const rabbet_kernel_call_t* call) {
  if (!far_is_recording(call->stream)) far_flush();
  far_open_memory();
  far_plugin_runs = true;
  rabbet_status_t status = rabbet_plugin_kernel_class.enqueue(
      ((far_kernel_t*)base)->inner, state, call);
  far_plugin_runs = false;
  far_close_memory();
  return status;
}

static rabbet_recordable_t far_plugin_recordable(rabbet_kernel_t* base,
                                                 rabbet_kernel_state_t* state) {
  return rabbet_plugin_kernel_class.recordable(((far_kernel_t*)base)->inner,
                                               state);
}

static rabbet_status_t far_record_plugin(rabbet_kernel_t* base,
                                         rabbet_kernel_state_t* state,
                                         const rabbet_kernel_call_t* call,
                                         void** out_kept) {
  far_open_memory();
  far_plugin_runs = true;
  rabbet_status_t status = rabbet_plugin_kernel_class.record(
      ((far_kernel_t*)base)->inner, state, call, out_kept);
  far_plugin_runs = false;
  far_close_memory();
  return status;
}

static void far_release_recorded(rabbet_kernel_t* base,
                                 rabbet_kernel_state_t* state, void* kept) {
  rabbet_plugin_kernel_class.release_recorded(((far_kernel_t*)base)->inner,
                                              state, kept);
}

static const rabbet_kernel_class_t* const far_kernels[] = {&far_reference,
                                                           &far_plugin};

static const rabbet_kernel_class_t* const* far_kernel_classes(
    rabbet_device_t* device, size_t* out_count) {
  (void)device;
  *out_count = 2;
  return far_kernels;
}

static void far_make_classes(void) {
  far_reference = rabbet_reference_kernel_class;
  far_reference.propose = far_propose_reference;
  far_reference.create = far_create_reference;
  far_reference.enqueue = far_enqueue_reference;
  far_reference.artifacts = far_artifacts;
  far_plugin = rabbet_plugin_kernel_class;
  far_plugin.propose = far_propose_plugin;
  far_plugin.create = far_create_plugin;
  far_plugin.enqueue = far_enqueue_plugin;
  far_plugin.recordable = far_plugin_recordable;
  far_plugin.record = far_record_plugin;
  far_plugin.release_recorded = far_release_recorded;
  far_reference.destroy = far_plugin.destroy = far_destroy_kernel;
  far_reference.prepare = far_plugin.prepare = far_prepare;
  far_reference.destroy_state = far_plugin.destroy_state = far_destroy_state;
}

// ---- The device

static void far_destroy(rabbet_device_t* device) {
  rabbet_free(device->allocator, device);
}

static const char* far_signature(rabbet_device_t* device) {
  (void)device;
  return "far";
}

static rabbet_device_vtable_t far_vtable = {
    .struct_size = sizeof(rabbet_device_vtable_t),
    .destroy = far_destroy,
    .signature = far_signature,
    .kernel_classes = far_kernel_classes,
    .allocate = far_allocate,
    .free = far_free,
    .copy_to_device = far_copy_to_device,
    .copy_to_host = far_copy_to_host,
    .copy = far_copy,
    .fill = far_fill,
    .time = far_time,
    .allocate_host = far_allocate_host,
    .free_host = far_free_host,
    .interruptions = far_interruptions,
    .pace = far_pace,
};

uint32_t rabbet_device_abi(void) {
  return RABBET_DEVICE_ABI;
}

rabbet_status_t rabbet_device_open(int ordinal, rabbet_allocator_t allocator,
                                   rabbet_device_t** out_device) {
  (void)ordinal;
  rabbet_device_t* device = NULL;
  *out_device = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*device), (void**)&device));
  far_make_classes();
  far_stream_vtable(&far_vtable);
  device->vtable = &far_vtable;
  device->allocator = allocator;
  rabbet_refcount_initialize(&device->references);
  strcpy(device->name, "far");
  strcpy(device->kind, "far");
  *out_device = device;
  return rabbet_ok();
}
