#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/math.h"
#include "deferred_device.h"
#include "device/reference_kernel.h"

#define DEFERRED_MOST 256
#define DEFERRED_MOST_TENSORS 16

static struct {
  uint8_t* memory;
  size_t size, asked;
} deferred_blocks[DEFERRED_MOST];

static void deferred_protect(int rights) {
  for (size_t i = 0; i < DEFERRED_MOST; ++i) {
    if (deferred_blocks[i].memory)
      mprotect(deferred_blocks[i].memory, deferred_blocks[i].size, rights);
  }
}

static int deferred_opened;

void deferred_open_memory(void) {
  if (deferred_opened++ == 0) deferred_protect(PROT_READ | PROT_WRITE);
}

void deferred_close_memory(void) {
  if (--deferred_opened == 0) deferred_protect(PROT_NONE);
}

bool deferred_owns(const void* address, size_t size) {
  const uint8_t* at = address;
  for (size_t i = 0; i < DEFERRED_MOST; ++i) {
    if (deferred_blocks[i].memory && at >= deferred_blocks[i].memory &&
        at + size <= deferred_blocks[i].memory + deferred_blocks[i].size)
      return true;
  }
  return false;
}

// ---- Memory

static rabbet_status_t deferred_allocate(rabbet_device_t* device, size_t size,
                                         void** out_memory) {
  (void)device;
  *out_memory = NULL;
  size_t rounded = rabbet_align_up(size + 1, (size_t)sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < DEFERRED_MOST; ++i) {
    if (deferred_blocks[i].memory) continue;
    void* memory =
        mmap(NULL, rounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) break;
    deferred_blocks[i].memory = memory;
    deferred_blocks[i].size = rounded;
    deferred_blocks[i].asked = size;
    deferred_counts()->allocated += (int)size;
    *out_memory = memory;
    return rabbet_ok();
  }
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                       "no memory of the deferred device is left");
}

static void deferred_free(rabbet_device_t* device, void* memory) {
  (void)device;
  for (size_t i = 0; i < DEFERRED_MOST; ++i) {
    if (!memory || deferred_blocks[i].memory != memory) continue;
    munmap(memory, deferred_blocks[i].size);
    deferred_counts()->allocated -= (int)deferred_blocks[i].asked;
    deferred_blocks[i].memory = NULL;
  }
}

static rabbet_status_t deferred_allocate_host(rabbet_device_t* device,
                                              size_t size, void** out_memory) {
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(
      device->allocator, size ? size : 1, 64, out_memory));
  ++deferred_counts()->pinned;
  return rabbet_ok();
}

static void deferred_free_host(rabbet_device_t* device, void* memory) {
  if (!memory) return;
  --deferred_counts()->pinned;
  rabbet_free_aligned(device->allocator, memory, 64);
}

typedef struct deferred_move_t {
  void* target;
  const void* source;
  size_t size;
} deferred_move_t;

static void deferred_do_move(const void* args) {
  const deferred_move_t* move = args;
  memmove(move->target, move->source, move->size);
}

static rabbet_status_t deferred_move(void* target, const void* source,
                                     size_t size, bool target_far,
                                     bool source_far, void* stream) {
  deferred_move_t move = {target, source, size};
  if (size == 0) return rabbet_ok();
  if (deferred_owns(target, size) != target_far ||
      deferred_owns(source, size) != source_far)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a copy between the wrong kinds of memory");
  return deferred_launch(stream, deferred_do_move, &move, sizeof(move));
}

static rabbet_status_t deferred_copy_to_device(rabbet_device_t* device,
                                               void* target, const void* source,
                                               size_t size, void* stream) {
  (void)device;
  return deferred_move(target, source, size, true, false, stream);
}

static rabbet_status_t deferred_copy_to_host(rabbet_device_t* device,
                                             void* target, const void* source,
                                             size_t size, void* stream) {
  (void)device;
  return deferred_move(target, source, size, false, true, stream);
}

static rabbet_status_t deferred_copy(rabbet_device_t* device, void* target,
                                     const void* source, size_t size,
                                     void* stream) {
  (void)device;
  return deferred_move(target, source, size, true, true, stream);
}

typedef struct deferred_filling_t {
  void* target;
  size_t size;
  uint8_t byte;
} deferred_filling_t;

// A plugin's function runs, with the memory open: what it is given is filled at
// once, as it may compute right here.
static bool deferred_plugin_runs;

static void deferred_do_fill(const void* args) {
  const deferred_filling_t* filling = args;
  memset(filling->target, filling->byte, filling->size);
}

static rabbet_status_t deferred_fill(rabbet_device_t* device, void* target,
                                     uint8_t byte, size_t size, void* stream) {
  (void)device;
  deferred_filling_t filling = {target, size, byte};
  if (deferred_plugin_runs) {
    deferred_do_fill(&filling);
    return rabbet_ok();
  }
  return deferred_launch(stream, deferred_do_fill, &filling, sizeof(filling));
}

static rabbet_status_t deferred_time(rabbet_device_t* device, void* stream,
                                     int count,
                                     rabbet_status_t (*body)(void* context),
                                     void* context, int64_t* out_ns) {
  deferred_machine_t* machine = deferred_machine();
  int64_t begin = machine ? machine->now : rabbet_time_ns();
  rabbet_status_t status = rabbet_ok();
  // Open once for all: opening takes longer than most of what is timed.
  if (machine) deferred_open_memory();
  for (int i = 0; i < count && rabbet_is_ok(status); ++i)
    status = body(context);
  if (machine) deferred_close_memory();
  RABBET_RETURN_IF_ERROR(status);
  *out_ns = (machine ? machine->now : rabbet_time_ns()) - begin;
  if (machine) machine->disturb(machine, out_ns);
  return device->vtable->synchronize(device, stream);
}

static uint64_t deferred_interruptions(rabbet_device_t* device) {
  (void)device;
  return deferred_machine() ? deferred_machine()->interruptions : 0;
}

static int64_t deferred_pace(rabbet_device_t* device) {
  (void)device;
  return deferred_machine() ? deferred_machine()->pace : 1000;
}

// ---- Kernels: the reference and plugin classes with the memory open

typedef struct deferred_kernel_t {
  rabbet_kernel_t base;
  rabbet_kernel_t* inner;  // of the class that it stands for
  const rabbet_group_t* group;
  rabbet_allocator_t allocator;
  rabbet_device_t* device;
  void* constants[DEFERRED_MOST_TENSORS];  // of boundary inputs that it keeps
  char code[96];
} deferred_kernel_t;

static rabbet_kernel_class_t deferred_reference, deferred_plugin;
static bool deferred_owning;

void deferred_set_owning(bool owning) {
  deferred_owning = owning;
}

static rabbet_status_t deferred_wrap(const rabbet_kernel_spec_t* spec,
                                     const rabbet_kernel_class_t* inner,
                                     const rabbet_kernel_class_t* outer,
                                     rabbet_kernel_t** out_kernel) {
  deferred_kernel_t* kernel = NULL;
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

static void deferred_destroy_kernel(rabbet_kernel_t* base) {
  deferred_kernel_t* kernel = (deferred_kernel_t*)base;
  if (!base) return;
  for (size_t i = 0; i < DEFERRED_MOST_TENSORS; ++i)
    deferred_free(kernel->device, kernel->constants[i]);
  kernel->inner->kernel_class->destroy(kernel->inner);
  rabbet_free(kernel->allocator, kernel);
}

static rabbet_status_t deferred_prepare(rabbet_kernel_t* base,
                                        const rabbet_kernel_shapes_t* shapes,
                                        rabbet_kernel_state_t** out_state,
                                        size_t* out_workspace) {
  rabbet_kernel_t* inner = ((deferred_kernel_t*)base)->inner;
  return inner->kernel_class->prepare(inner, shapes, out_state, out_workspace);
}

static void deferred_destroy_state(rabbet_kernel_t* base,
                                   rabbet_kernel_state_t* state) {
  rabbet_kernel_t* inner = ((deferred_kernel_t*)base)->inner;
  inner->kernel_class->destroy_state(inner, state);
}

// ---- Code: what a kernel of "defer" must have, from a plan or compiled

static rabbet_artifact_t deferred_artifact(const deferred_kernel_t* kernel) {
  return (rabbet_artifact_t){
      .key = rabbet_hash128(kernel->code, strlen(kernel->code)),
      .name = kernel->code + strlen("code of "),
      .data = kernel->code,
      .size = strlen(kernel->code) + 1};
}

static rabbet_status_t deferred_take_code(deferred_kernel_t* kernel,
                                          const rabbet_kernel_spec_t* spec) {
  snprintf(kernel->code, sizeof(kernel->code), "code of %s.cu",
           spec->group->nodes[0].op->name);
  rabbet_artifact_t wanted = deferred_artifact(kernel);
  for (size_t i = 0; i < spec->artifact_count; ++i) {
    const rabbet_artifact_t* given = &spec->artifacts[i];
    if (rabbet_hash_compare(given->key, wanted.key) != 0) continue;
    if (given->size != wanted.size ||
        memcmp(given->data, wanted.data, wanted.size) != 0)
      return RABBET_STATUS(RABBET_STATUS_DATA_LOSS, "the code is damaged");
    return rabbet_ok();
  }
  ++deferred_counts()->compiled;
  return rabbet_ok();
}

static rabbet_status_t deferred_artifacts(rabbet_kernel_t* base,
                                          rabbet_artifact_sink_t sink) {
  rabbet_artifact_t artifact = deferred_artifact((deferred_kernel_t*)base);
  return sink.add(sink.context, &artifact);
}

static rabbet_status_t deferred_keep_constants(deferred_kernel_t* kernel) {
  const rabbet_group_t* group = kernel->group;
  for (size_t i = 0; deferred_owning && i < group->input_count; ++i) {
    const rabbet_group_value_t* value = &group->values[group->inputs[i]];
    size_t bytes = 0;
    if (!value->constant) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_tensor_bytes(value->dtype, value->format, &value->dims, &bytes));
    RABBET_RETURN_IF_ERROR(
        deferred_allocate(kernel->device, bytes, &kernel->constants[i]));
    RABBET_RETURN_IF_ERROR(deferred_copy_to_device(
        kernel->device, kernel->constants[i], value->constant, bytes, NULL));
    kernel->base.own_constants |= 1ull << i;
  }
  deferred_flush();
  return rabbet_ok();
}

static rabbet_status_t deferred_create_reference(
    const rabbet_kernel_spec_t* spec, rabbet_kernel_t** out_kernel) {
  RABBET_RETURN_IF_ERROR(deferred_wrap(spec, &rabbet_reference_kernel_class,
                                       &deferred_reference, out_kernel));
  deferred_kernel_t* kernel = (deferred_kernel_t*)*out_kernel;
  rabbet_status_t status = deferred_take_code(kernel, spec);
  if (rabbet_is_ok(status)) status = deferred_keep_constants(kernel);
  if (!rabbet_is_ok(status)) {
    deferred_destroy_kernel(*out_kernel);
    *out_kernel = NULL;
  }
  return status;
}

static rabbet_status_t deferred_create_plugin(const rabbet_kernel_spec_t* spec,
                                              rabbet_kernel_t** out_kernel) {
  return deferred_wrap(spec, &rabbet_plugin_kernel_class, &deferred_plugin,
                       out_kernel);
}

// ---- Proposing: what the classes behind them do

static rabbet_status_t deferred_offer(void* context,
                                      const rabbet_candidate_t* candidate) {
  const rabbet_candidate_sink_t* sink = context;
  rabbet_candidate_t own = *candidate;
  own.kernel = candidate->kernel == &rabbet_reference_kernel_class
                   ? &deferred_reference
                   : &deferred_plugin;
  return sink->add(sink->context, &own);
}

static rabbet_status_t deferred_propose_reference(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  return rabbet_reference_kernel_class.propose(
      propose, (rabbet_candidate_sink_t){&sink, deferred_offer});
}

static rabbet_status_t deferred_propose_plugin(const rabbet_propose_t* propose,
                                               rabbet_candidate_sink_t sink) {
  return rabbet_plugin_kernel_class.propose(
      propose, (rabbet_candidate_sink_t){&sink, deferred_offer});
}

// ---- Running

typedef struct deferred_call_t {
  rabbet_kernel_t* kernel;
  rabbet_kernel_state_t* state;
  void* workspace;
  void* tensors[DEFERRED_MOST_TENSORS];
  size_t inputs;
} deferred_call_t;

static void deferred_run_reference(const void* args) {
  deferred_call_t own = *(const deferred_call_t*)args;
  rabbet_kernel_call_t call = {.inputs = own.tensors,
                               .outputs = own.tensors + own.inputs,
                               .workspace = own.workspace};
  rabbet_status_t status =
      rabbet_reference_kernel_class.enqueue(own.kernel, own.state, &call);
  if (!rabbet_is_ok(status)) __builtin_trap();  // a device's kernel cannot fail
  rabbet_status_ignore(status);
}

static rabbet_status_t deferred_enqueue_reference(
    rabbet_kernel_t* base, rabbet_kernel_state_t* state,
    const rabbet_kernel_call_t* call) {
  const deferred_kernel_t* kernel = (const deferred_kernel_t*)base;
  const rabbet_group_t* group = kernel->group;
  deferred_call_t own = {.kernel = kernel->inner,
                         .state = state,
                         .workspace = call->workspace,
                         .inputs = group->input_count};
  if (group->input_count + group->output_count > DEFERRED_MOST_TENSORS)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "too many tensors");
  memcpy(own.tensors, call->inputs, group->input_count * sizeof(void*));
  for (size_t i = 0; i < group->input_count; ++i)
    if (kernel->constants[i]) own.tensors[i] = kernel->constants[i];
  memcpy(own.tensors + group->input_count, call->outputs,
         group->output_count * sizeof(void*));
  return deferred_launch(call->stream, deferred_run_reference, &own,
                         sizeof(own));
}

// A plugin's function is host code that may compute right here: it waits for
// what was enqueued before it, unless the stream records.
static rabbet_status_t deferred_enqueue_plugin(
    rabbet_kernel_t* base, rabbet_kernel_state_t* state,
    const rabbet_kernel_call_t* call) {
  if (!deferred_is_recording(call->stream)) deferred_flush();
  deferred_open_memory();
  deferred_plugin_runs = true;
  rabbet_status_t status = rabbet_plugin_kernel_class.enqueue(
      ((deferred_kernel_t*)base)->inner, state, call);
  deferred_plugin_runs = false;
  deferred_close_memory();
  return status;
}

static rabbet_recordable_t deferred_plugin_recordable(
    rabbet_kernel_t* base, rabbet_kernel_state_t* state) {
  return rabbet_plugin_kernel_class.recordable(
      ((deferred_kernel_t*)base)->inner, state);
}

static rabbet_status_t deferred_record_plugin(rabbet_kernel_t* base,
                                              rabbet_kernel_state_t* state,
                                              const rabbet_kernel_call_t* call,
                                              void** out_kept) {
  deferred_open_memory();
  deferred_plugin_runs = true;
  rabbet_status_t status = rabbet_plugin_kernel_class.record(
      ((deferred_kernel_t*)base)->inner, state, call, out_kept);
  deferred_plugin_runs = false;
  deferred_close_memory();
  return status;
}

static void deferred_release_recorded(rabbet_kernel_t* base,
                                      rabbet_kernel_state_t* state,
                                      void* kept) {
  rabbet_plugin_kernel_class.release_recorded(((deferred_kernel_t*)base)->inner,
                                              state, kept);
}

static const rabbet_kernel_class_t* const deferred_kernels[] = {
    &deferred_reference, &deferred_plugin};

static const rabbet_kernel_class_t* const* deferred_kernel_classes(
    rabbet_device_t* device, size_t* out_count) {
  (void)device;
  *out_count = 2;
  return deferred_kernels;
}

static void deferred_make_classes(void) {
  deferred_reference = rabbet_reference_kernel_class;
  deferred_reference.propose = deferred_propose_reference;
  deferred_reference.create = deferred_create_reference;
  deferred_reference.enqueue = deferred_enqueue_reference;
  deferred_reference.artifacts = deferred_artifacts;
  deferred_plugin = rabbet_plugin_kernel_class;
  deferred_plugin.propose = deferred_propose_plugin;
  deferred_plugin.create = deferred_create_plugin;
  deferred_plugin.enqueue = deferred_enqueue_plugin;
  deferred_plugin.recordable = deferred_plugin_recordable;
  deferred_plugin.record = deferred_record_plugin;
  deferred_plugin.release_recorded = deferred_release_recorded;
  deferred_reference.destroy = deferred_plugin.destroy =
      deferred_destroy_kernel;
  deferred_reference.prepare = deferred_plugin.prepare = deferred_prepare;
  deferred_reference.destroy_state = deferred_plugin.destroy_state =
      deferred_destroy_state;
}

// ---- The device

static void deferred_destroy(rabbet_device_t* device) {
  rabbet_free(device->allocator, device);
}

static const char* deferred_signature(rabbet_device_t* device) {
  (void)device;
  return "defer";
}

static rabbet_device_vtable_t deferred_vtable = {
    .struct_size = sizeof(rabbet_device_vtable_t),
    .destroy = deferred_destroy,
    .signature = deferred_signature,
    .kernel_classes = deferred_kernel_classes,
    .allocate = deferred_allocate,
    .free = deferred_free,
    .copy_to_device = deferred_copy_to_device,
    .copy_to_host = deferred_copy_to_host,
    .copy = deferred_copy,
    .fill = deferred_fill,
    .time = deferred_time,
    .allocate_host = deferred_allocate_host,
    .free_host = deferred_free_host,
    .interruptions = deferred_interruptions,
    .pace = deferred_pace,
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
  deferred_make_classes();
  deferred_stream_vtable(&deferred_vtable);
  device->vtable = &deferred_vtable;
  device->allocator = allocator;
  rabbet_refcount_initialize(&device->references);
  strcpy(device->name, "defer");
  strcpy(device->kind, "defer");
  *out_device = device;
  return rabbet_ok();
}
