// Loops in graphs: the device decides on each iteration.
//
// Carried tensors take turns between two buffers, as where the host decides, so
// that the graph has an iteration for each turn. The first value is copied to
// the one that the first iteration reads. The graph's addresses are the same in
// all iterations: slices and elements of stacked results lie in memory of the
// step, from and to which the device copies.
#include <string.h>

#include "base/math.h"
#include "rabbet/network.h"
#include "runtime/graph.h"
#include "runtime/loop.h"

// Of the step's workspace: the computed condition, the loop's state, pieces.
enum { FLAG_OFFSET = 0, STATE_OFFSET = 64 };
// Nobody can end a loop in a graph early.
enum { MOST_ITERATIONS = 1 << 16 };

// ---- Memory

int64_t rabbet_loop_find_input(const rabbet_plan_step_t* step, int64_t input) {
  int64_t at = 0;
  while (step->group.inputs[at] != step->group.nodes[0].inputs[input])
    ++at;
  return at;
}

int64_t rabbet_loop_last_output(const rabbet_loop_wiring_t* wiring,
                                size_t carried) {
  for (size_t i = 0; i < wiring->output_count; ++i)
    if (wiring->kinds[i] == RABBET_LOOP_OUTPUT_LAST_VALUE &&
        wiring->sources[i] == (int64_t)carried)
      return (int64_t)i;
  return -1;
}

// Bytes of an element along the first axis; 0: not known.
static size_t element_bytes(const rabbet_prepared_t* prepared, int32_t value) {
  int64_t extent = prepared->dims[value].d[0];
  size_t bytes = prepared->bytes[value];
  return extent <= 0 || bytes == RABBET_BYTES_UNKNOWN ? 0
                                                      : bytes / (size_t)extent;
}

// The pieces of memory are those of carried tensors (two, or one beside the
// output), of slices, and of outputs that are stacked.
static size_t piece_bytes(const rabbet_prepared_t* prepared,
                          const rabbet_plan_step_t* step,
                          const rabbet_loop_wiring_t* wiring, size_t piece) {
  const rabbet_device_t* device = prepared->sequence->engine->device;
  size_t carried = wiring->carried_count;
  size_t inputs = carried + wiring->slice_count;
  if (piece < carried) {
    size_t bytes = prepared->bytes[rabbet_step_input_value(
        step, step->calls[0].inputs[piece])];
    bool has_output = rabbet_loop_last_output(wiring, piece) >= 0;
    return rabbet_align_up(bytes, RABBET_DEVICE_ALIGNMENT) *
           (has_output ? 1 : 2);
  }
  if (!device->vtable->record_loop) return 0;
  if (piece < inputs)
    return rabbet_align_up(
        element_bytes(prepared, rabbet_step_input_value(
                                    step, step->calls[0].inputs[piece])),
        RABBET_DEVICE_ALIGNMENT);
  size_t output = piece - inputs;
  if (wiring->kinds[output] == RABBET_LOOP_OUTPUT_LAST_VALUE) return 0;
  return rabbet_align_up(
      element_bytes(prepared, rabbet_step_output_value(step, output)),
      RABBET_DEVICE_ALIGNMENT);
}

static size_t piece_offset(const rabbet_prepared_t* prepared,
                           const rabbet_plan_step_t* step,
                           const rabbet_loop_wiring_t* wiring, size_t piece) {
  size_t offset = RABBET_DEVICE_ALIGNMENT;
  for (size_t i = 0; i < piece; ++i)
    offset += piece_bytes(prepared, step, wiring, i);
  return offset;
}

size_t rabbet_loop_workspace(const rabbet_prepared_t* prepared,
                             const rabbet_plan_step_t* step,
                             const rabbet_loop_wiring_t* wiring) {
  return piece_offset(
      prepared, step, wiring,
      wiring->carried_count + wiring->slice_count + wiring->output_count);
}

// ---- The loop

typedef struct graph_loop_t {
  rabbet_frame_t* frame;
  const rabbet_prepared_t* prepared;
  const rabbet_run_t* run;
  rabbet_device_t* device;
  const rabbet_plan_step_t* step;
  rabbet_loop_wiring_t wiring;
  rabbet_frame_t* frames[2];    // of the body and the condition
  rabbet_prepared_t* nodes[2];  // their only segments
  int64_t limit;                // INT64_MAX: the host knows none
  bool is_counted;              // nothing else ends it
  void *flag, *state;
} graph_loop_t;

static graph_loop_t loop_of(rabbet_frame_t* frame,
                            const rabbet_prepared_t* prepared,
                            const rabbet_run_t* run) {
  uint8_t* memory = run->call.workspace;
  graph_loop_t loop = {.frame = frame,
                       .prepared = prepared,
                       .run = run,
                       .device = frame->context->engine->device,
                       .step = &frame->sequence->plan->steps[run->step],
                       .limit = INT64_MAX,
                       .flag = memory + FLAG_OFFSET,
                       .state = memory + STATE_OFFSET};
  rabbet_step_loop(loop.step, &loop.wiring);
  loop.is_counted = loop.wiring.count >= 0 && loop.wiring.condition < 0 &&
                    loop.step->call_count == 1;
  return loop;
}

static uint8_t* piece_at(const graph_loop_t* loop, size_t piece) {
  return (uint8_t*)loop->run->call.workspace +
         piece_offset(loop->prepared, loop->step, &loop->wiring, piece);
}

// The buffer that an iteration of the turn reads, and one of the other turn
// writes.
static void* carried_at(const graph_loop_t* loop, size_t carried, int turn) {
  int64_t output = rabbet_loop_last_output(&loop->wiring, carried);
  if (output >= 0 && turn == 0) return loop->run->call.outputs[output];
  uint8_t* memory = piece_at(loop, carried);
  size_t bytes =
      piece_bytes(loop->prepared, loop->step, &loop->wiring, carried);
  return output < 0 && turn == 1 ? memory + bytes / 2 : memory;
}

static uint8_t* stacked_at(const graph_loop_t* loop, size_t output) {
  return piece_at(
      loop, loop->wiring.carried_count + loop->wiring.slice_count + output);
}

// Where an iteration writes the body's output.
static void* made_at(const graph_loop_t* loop, size_t source, int turn) {
  size_t output = 0;
  if (source < loop->wiring.carried_count)
    return carried_at(loop, source, 1 - turn);
  while (loop->wiring.kinds[output] == RABBET_LOOP_OUTPUT_LAST_VALUE ||
         loop->wiring.sources[output] != (int64_t)source)
    ++output;
  return stacked_at(loop, output);
}

// ---- What the host must decide

static rabbet_status_t refuse(const char* reason) {
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "%s", reason);
}

// Or NULL.
static const char* sequence_reason(const rabbet_sequence_t* sequence) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  for (size_t i = 0; i < plan->step_count; ++i)
    if (plan->steps[i].call_count > 0)
      return "its body has loops or conditionals";
  if (sequence->analysis.segment_count > 1)
    return "the host reads shapes that its body computes";
  if (plan->check_count > 0) return "its body has assertions";
  if (plan->hidden_count > 0) return "its body has debug tensors";
  return sequence->has_written_outputs
             ? "the host writes values that it carries"
             : NULL;
}

const char* rabbet_loop_host_reason(const rabbet_sequence_t* sequence,
                                    const rabbet_plan_step_t* step) {
  const char* reason = NULL;
  rabbet_loop_wiring_t wiring;
  rabbet_step_loop(step, &wiring);
  bool is_counted =
      wiring.count >= 0 && wiring.condition < 0 && step->call_count == 1;
  for (size_t i = 0; i < step->call_count && !reason; ++i)
    reason =
        sequence_reason(&sequence->engine->sequences[step->calls[i].sequence]);
  for (size_t i = 0; i < wiring.carried_count && !reason; ++i)
    if (wiring.varying[i] != 0) reason = "iterations change extents";
  for (size_t i = 0; i < wiring.output_count && !reason; ++i)
    if (wiring.kinds[i] != RABBET_LOOP_OUTPUT_LAST_VALUE &&
        wiring.lengths[i] == RABBET_LOOP_LENGTH_TRIPS && !is_counted)
      reason = "only the run tells how many elements it stacks";
  return reason;
}

static rabbet_status_t check_kernels(const rabbet_prepared_t* node) {
  for (size_t i = 0; i < node->run_count; ++i) {
    const rabbet_run_t* run = &node->runs[i];
    const rabbet_kernel_class_t* class = run->kernel->kernel_class;
    if (class->record ||
        (class->recordable &&
         class->recordable(run->kernel, run->state) != RABBET_RECORDABLE_YES))
      return refuse("its body has plugins");
  }
  return rabbet_ok();
}

static rabbet_status_t find_node(graph_loop_t* loop, size_t which,
                                 void* stream) {
  const rabbet_plan_call_t* call = &loop->step->calls[which];
  rabbet_frame_t* callee =
      rabbet_context_frame(loop->frame->context, (size_t)call->sequence);
  bool known = false, changes = false;
  loop->frames[which] = callee;
  RABBET_RETURN_IF_ERROR(rabbet_call_key(loop->prepared, loop->step, call,
                                         callee->sequence, callee->next_key,
                                         &known, &changes));
  if (!known || changes)
    return refuse("numbers that it carries tell shapes of its body");
  RABBET_RETURN_IF_ERROR(rabbet_call_find(callee, &loop->nodes[which]));
  if (!rabbet_prepared_is_ready(callee, loop->nodes[which]))
    RABBET_RETURN_IF_ERROR(
        rabbet_prepared_make_ready(callee, loop->nodes[which], stream));
  return check_kernels(loop->nodes[which]);
}

static bool reads_slice(const graph_loop_t* loop, size_t which, size_t io) {
  const rabbet_sequence_t* sequence = loop->frames[which]->sequence;
  const rabbet_plan_analysis_t* analysis = &sequence->analysis;
  return analysis->last_steps[analysis->roots[sequence->plan->ios[io].value]] >=
         0;
}

static rabbet_status_t check_slice(const graph_loop_t* loop, size_t io) {
  int32_t value =
      rabbet_step_input_value(loop->step, loop->step->calls[0].inputs[io]);
  if (loop->step->call_count > 1 && reads_slice(loop, 1, io))
    return refuse("its condition reads a slice");
  if (!reads_slice(loop, 0, io)) return rabbet_ok();
  return loop->limit <= loop->prepared->dims[value].d[0]
             ? rabbet_ok()
             : refuse("the run may end along a tensor that it walks along");
}

static rabbet_status_t check_stack(const graph_loop_t* loop, size_t output) {
  int32_t value = rabbet_step_output_value(loop->step, output);
  int64_t length = loop->prepared->dims[value].d[0];
  if (length < 0 || loop->prepared->bytes[value] == RABBET_BYTES_UNKNOWN)
    return refuse("only the run tells how many elements it stacks");
  if (loop->limit > length)
    return refuse("it may run more often than a result has elements");
  if (loop->wiring.kinds[output] == RABBET_LOOP_OUTPUT_REVERSE &&
      !loop->is_counted)
    return refuse("only the run tells where a result begins");
  return rabbet_ok();
}

static bool same_extents(const rabbet_dims_t* inner, const rabbet_dims_t* outer,
                         int32_t from) {
  for (int32_t axis = 0; axis < inner->rank; ++axis)
    if (inner->d[axis] != outer->d[axis + from]) return false;
  return true;
}

// The results of iterations must have the extents of what the next one reads;
// otherwise the host decides, and the run fails with the names.
static rabbet_status_t check_extents(const graph_loop_t* loop) {
  const rabbet_plan_sequence_t* plan = loop->frames[0]->sequence->plan;
  const rabbet_plan_io_t* outputs = plan->ios + plan->input_count;
  bool same = true;
  for (size_t i = 0; i < loop->wiring.carried_count; ++i)
    same &= same_extents(&loop->nodes[0]->dims[outputs[i].value],
                         &loop->prepared->dims[rabbet_step_input_value(
                             loop->step, loop->step->calls[0].inputs[i])],
                         0);
  for (size_t i = 0; i < loop->wiring.output_count; ++i) {
    int32_t value = rabbet_step_output_value(loop->step, i);
    int64_t source = loop->wiring.sources[i];
    bool is_last = loop->wiring.kinds[i] == RABBET_LOOP_OUTPUT_LAST_VALUE;
    same &= same_extents(&loop->nodes[0]->dims[outputs[source].value],
                         &loop->prepared->dims[value], is_last ? 0 : 1);
  }
  return same ? rabbet_ok() : refuse("extents of its results differ");
}

static rabbet_status_t check_memory(const graph_loop_t* loop) {
  for (size_t i = 0; i < loop->wiring.slice_count; ++i)
    RABBET_RETURN_IF_ERROR(check_slice(loop, loop->wiring.carried_count + i));
  for (size_t i = 0; i < loop->wiring.output_count; ++i)
    if (loop->wiring.kinds[i] != RABBET_LOOP_OUTPUT_LAST_VALUE)
      RABBET_RETURN_IF_ERROR(check_stack(loop, i));
  return check_extents(loop);
}

static rabbet_status_t check_limit(const graph_loop_t* loop) {
  int64_t context = loop->frame->context->iteration_limit;
  if (loop->limit > MOST_ITERATIONS)
    return RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "it is not known to end within %d iterations, and only "
        "the host can end it early",
        MOST_ITERATIONS);
  return context > 0 && loop->limit > context
             ? refuse("it may have more iterations than the context's limit")
             : rabbet_ok();
}

static void read_limit(graph_loop_t* loop) {
  if (loop->wiring.count < 0) return;
  int64_t at = rabbet_loop_find_input(loop->step, loop->wiring.count);
  const int64_t* known = rabbet_host_values(
      loop->prepared, rabbet_step_input_value(loop->step, at));
  if (known) loop->limit = known[0] < 0 ? 0 : known[0];
}

// ---- Addresses

static void pass_body(const graph_loop_t* loop, int turn) {
  rabbet_frame_t* callee = loop->frames[0];
  size_t first = callee->sequence->plan->input_count;
  size_t outputs = callee->sequence->plan->io_count - first;
  for (size_t i = 0; i < outputs; ++i) {
    int32_t value = callee->sequence->plan->ios[first + i].value;
    callee->rooms[first + i] = loop->nodes[0]->bytes[value];
    rabbet_frame_store_address(callee, first + i, made_at(loop, i, turn));
  }
}

static void pass_addresses(const graph_loop_t* loop, size_t which, int turn) {
  const rabbet_plan_call_t* call = &loop->step->calls[which];
  rabbet_frame_t* callee = loop->frames[which];
  size_t carried = loop->wiring.carried_count;
  size_t sliced = carried + loop->wiring.slice_count;
  for (size_t i = 0; i < call->input_count; ++i) {
    const void* address = i < carried ? carried_at(loop, i, turn)
                          : i < sliced
                              ? piece_at(loop, i)
                              : loop->run->call.inputs[call->inputs[i]];
    rabbet_frame_store_address(callee, i, (void*)(uintptr_t)address);
  }
  if (which == 0) {
    pass_body(loop, turn);
    return;
  }
  callee->rooms[call->input_count] = 1;
  rabbet_frame_store_address(callee, call->input_count, loop->flag);
}

// Nothing may be copied because of where it lies.
static rabbet_status_t check_addresses(const graph_loop_t* loop, size_t which,
                                       int turn, void* stream) {
  rabbet_frame_t* callee = loop->frames[which];
  pass_addresses(loop, which, turn);
  RABBET_RETURN_IF_ERROR(
      rabbet_prepared_bind(callee, loop->nodes[which], stream));
  bool copies = loop->nodes[which]->copies_inputs;
  for (size_t i = callee->sequence->plan->input_count;
       i < callee->sequence->plan->io_count; ++i)
    copies |= rabbet_io_is_misaligned(callee, i);
  return copies ? refuse("an address is not aligned as its body needs it")
                : rabbet_ok();
}

static rabbet_status_t make_streams(const graph_loop_t* loop) {
  void** streams = loop->frame->context->loop_streams;
  for (int i = 0; i < 2; ++i)
    if (!streams[i])
      RABBET_RETURN_IF_ERROR(
          loop->device->vtable->create_stream(loop->device, &streams[i]));
  return rabbet_ok();
}

static rabbet_status_t prepare_device(const graph_loop_t* loop) {
  const rabbet_engine_t* engine = loop->frame->context->engine;
  rabbet_artifact_t* artifacts = NULL;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_step_artifacts(engine, loop->step, &artifacts, &count));
  rabbet_status_t status =
      loop->device->vtable->prepare_loops(loop->device, artifacts, count);
  rabbet_free(engine->allocator, artifacts);
  return status;
}

rabbet_status_t rabbet_loop_check_graph(rabbet_frame_t* frame,
                                        const rabbet_prepared_t* prepared,
                                        const rabbet_run_t* run, void* stream) {
  graph_loop_t loop = loop_of(frame, prepared, run);
  const char* reason = rabbet_loop_host_reason(frame->sequence, loop.step);
  if (reason) return refuse(reason);
  read_limit(&loop);
  RABBET_RETURN_IF_ERROR(check_limit(&loop));
  for (size_t i = 0; i < loop.step->call_count; ++i)
    RABBET_RETURN_IF_ERROR(find_node(&loop, i, stream));
  RABBET_RETURN_IF_ERROR(check_memory(&loop));
  RABBET_RETURN_IF_ERROR(prepare_device(&loop));
  RABBET_RETURN_IF_ERROR(make_streams(&loop));
  for (size_t i = 0; i < loop.step->call_count; ++i)
    for (int turn = 0; turn < 2; ++turn)
      RABBET_RETURN_IF_ERROR(check_addresses(&loop, i, turn, stream));
  return rabbet_ok();
}

uint64_t rabbet_loop_graph_mark(const rabbet_frame_t* frame,
                                const rabbet_prepared_t* prepared,
                                const rabbet_run_t* run) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  uint64_t marks[5] = {[4] = (uint64_t)frame->context->iteration_limit};
  for (size_t i = 0; i < step->call_count; ++i) {
    const rabbet_plan_call_t* call = &step->calls[i];
    rabbet_frame_t* callee =
        rabbet_context_frame(frame->context, (size_t)call->sequence);
    bool known = false, changes = false;
    rabbet_prepared_t* node = NULL;
    rabbet_status_t status =
        rabbet_call_key(prepared, step, call, callee->sequence,
                        callee->next_key, &known, &changes);
    if (rabbet_is_ok(status) && known) status = rabbet_call_find(callee, &node);
    rabbet_status_free(status);
    marks[2 * i] = node ? node->number : 0;
    marks[2 * i + 1] = (uint64_t)(uintptr_t)callee->memory[0];
  }
  return rabbet_hash64(marks, sizeof(marks));
}

// ---- Recording

static rabbet_status_t enqueue_call(const graph_loop_t* loop, size_t which,
                                    int turn, void* stream) {
  rabbet_frame_t* callee = loop->frames[which];
  rabbet_prepared_t* node = loop->nodes[which];
  pass_addresses(loop, which, turn);
  RABBET_RETURN_IF_ERROR(rabbet_prepared_bind(callee, node, stream));
  for (size_t i = 0; i < node->run_count; ++i) {
    const rabbet_run_t* run = &node->runs[i];
    rabbet_kernel_call_t call = run->call;
    void* kept = NULL;
    call.stream = stream;
    if (rabbet_run_is_idle(run)) continue;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_record_call(callee, run, call, &kept), "step '%s'",
        callee->sequence->plan->steps[run->step].name));
    assert(!kept);
  }
  return rabbet_ok();
}

static rabbet_status_t copy_slice(const graph_loop_t* loop, size_t slice,
                                  void* stream) {
  size_t io = loop->wiring.carried_count + slice;
  int32_t input = loop->step->calls[0].inputs[io];
  int32_t value = rabbet_step_input_value(loop->step, input);
  size_t bytes = element_bytes(loop->prepared, value);
  const uint8_t* from = loop->run->call.inputs[input];
  bool reverse = loop->wiring.reverse[slice] != 0;
  if (bytes == 0 || !reads_slice(loop, 0, io)) return rabbet_ok();
  if (reverse) from += loop->prepared->bytes[value] - bytes;
  const rabbet_device_loop_copy_t copy = {
      .state = loop->state,
      .target = piece_at(loop, io),
      .source = from,
      .bytes = bytes,
      .source_stride = reverse ? -(int64_t)bytes : (int64_t)bytes,
      .turn = -1};
  return loop->device->vtable->copy_in_loop(loop->device, &copy, stream);
}

static rabbet_status_t copy_stacked(const graph_loop_t* loop, size_t output,
                                    int turn, void* stream) {
  int32_t value = rabbet_step_output_value(loop->step, output);
  size_t bytes = element_bytes(loop->prepared, value);
  uint8_t* to = loop->run->call.outputs[output];
  bool reverse = loop->wiring.kinds[output] == RABBET_LOOP_OUTPUT_REVERSE;
  if (bytes == 0 || loop->limit == 0) return rabbet_ok();
  if (reverse) to += (size_t)(loop->limit - 1) * bytes;
  const rabbet_device_loop_copy_t copy = {
      .state = loop->state,
      .target = to,
      .source = made_at(loop, (size_t)loop->wiring.sources[output], turn),
      .bytes = bytes,
      .target_stride = reverse ? -(int64_t)bytes : (int64_t)bytes,
      .turn = -1};
  return loop->device->vtable->copy_in_loop(loop->device, &copy, stream);
}

static rabbet_status_t enqueue_iteration(void* user_data, int turn,
                                         void* stream) {
  const graph_loop_t* loop = user_data;
  for (size_t i = 0; i < loop->wiring.slice_count; ++i)
    RABBET_RETURN_IF_ERROR(copy_slice(loop, i, stream));
  RABBET_RETURN_IF_ERROR(enqueue_call(loop, 0, turn, stream));
  for (size_t i = 0; i < loop->wiring.output_count; ++i)
    if (loop->wiring.kinds[i] != RABBET_LOOP_OUTPUT_LAST_VALUE)
      RABBET_RETURN_IF_ERROR(copy_stacked(loop, i, turn, stream));
  return loop->step->call_count > 1 ? enqueue_call(loop, 1, 1 - turn, stream)
                                    : rabbet_ok();
}

static rabbet_status_t enqueue_beginning(const graph_loop_t* loop,
                                         void* stream) {
  const rabbet_plan_call_t* call = &loop->step->calls[0];
  for (size_t i = 0; i < loop->wiring.carried_count; ++i)
    RABBET_RETURN_IF_ERROR(loop->device->vtable->copy(
        loop->device, carried_at(loop, i, 0),
        loop->run->call.inputs[call->inputs[i]],
        loop->prepared
            ->bytes[rabbet_step_input_value(loop->step, call->inputs[i])],
        stream));
  // Zeros lie behind the elements of iterations that do not run.
  for (size_t i = 0; i < loop->wiring.output_count; ++i) {
    int32_t value = rabbet_step_output_value(loop->step, i);
    if (loop->wiring.kinds[i] == RABBET_LOOP_OUTPUT_LAST_VALUE ||
        (loop->is_counted && loop->limit == loop->prepared->dims[value].d[0]))
      continue;
    RABBET_RETURN_IF_ERROR(
        loop->device->vtable->fill(loop->device, loop->run->call.outputs[i], 0,
                                   loop->prepared->bytes[value], stream));
  }
  return loop->step->call_count > 1 ? enqueue_call(loop, 1, 0, stream)
                                    : rabbet_ok();
}

// The last value lies where an iteration of the next turn would read it.
static rabbet_status_t enqueue_end(const graph_loop_t* loop, void* stream) {
  for (size_t i = 0; i < loop->wiring.output_count; ++i) {
    if (loop->wiring.kinds[i] != RABBET_LOOP_OUTPUT_LAST_VALUE) continue;
    rabbet_device_loop_copy_t copy = {
        .state = loop->state,
        .target = loop->run->call.outputs[i],
        .bytes =
            loop->prepared->bytes[rabbet_step_output_value(loop->step, i)]};
    for (copy.turn = 0; copy.turn < 2; ++copy.turn) {
      copy.source =
          carried_at(loop, (size_t)loop->wiring.sources[i], copy.turn);
      if (copy.source == copy.target) continue;
      RABBET_RETURN_IF_ERROR(
          loop->device->vtable->copy_in_loop(loop->device, &copy, stream));
    }
  }
  return rabbet_ok();
}

static void set_condition(const graph_loop_t* loop,
                          rabbet_device_loop_t* out_loop) {
  for (int turn = 0; turn < 2; ++turn) {
    if (loop->wiring.condition >= 0)
      out_loop->conditions[turn] =
          carried_at(loop, (size_t)loop->wiring.condition, turn);
    else if (loop->step->call_count > 1)
      out_loop->conditions[turn] = loop->flag;
  }
}

rabbet_status_t rabbet_loop_record(rabbet_frame_t* frame,
                                   const rabbet_prepared_t* prepared,
                                   const rabbet_run_t* run, void* stream) {
  graph_loop_t loop = loop_of(frame, prepared, run);
  read_limit(&loop);
  for (size_t i = 0; i < loop.step->call_count; ++i)
    RABBET_RETURN_IF_ERROR(find_node(&loop, i, stream));
  rabbet_device_loop_t recorded = {.state = loop.state,
                                   .streams = {frame->context->loop_streams[0],
                                               frame->context->loop_streams[1]},
                                   .limit = loop.limit,
                                   .enqueue = enqueue_iteration,
                                   .user_data = &loop};
  set_condition(&loop, &recorded);
  RABBET_RETURN_IF_ERROR(enqueue_beginning(&loop, stream));
  RABBET_RETURN_IF_ERROR(
      loop.device->vtable->record_loop(loop.device, &recorded, stream));
  return enqueue_end(&loop, stream);
}
