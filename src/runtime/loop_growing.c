// Memory of values whose extents iterations change, and of stacks without a
// bound. The frame keeps it.
#include "runtime/loop.h"

static rabbet_status_t grow_carried(rabbet_loop_run_t* loop, size_t carried,
                                    size_t bytes, void** out_address) {
  rabbet_frame_t* callee = loop->frames[0];
  size_t io = callee->sequence->plan->input_count + carried;
  rabbet_io_memory_t* memory =
      &loop->grown[2 * carried + (size_t)(loop->trip % 2)];
  RABBET_RETURN_IF_ERROR(
      rabbet_frame_grow(loop->frame, memory, bytes, 0, loop->stream));
  callee->rooms[io] = memory->bytes;
  *out_address = memory->memory;
  return rabbet_ok();
}

// The memory of a value that the body writes and iterations resize, or of an
// element of a stack. Its size is known when the body has told it.
static void* grow_next(void* user_data, const char* name, void* current,
                       size_t size, size_t alignment, void* stream) {
  const rabbet_loop_growing_t* growing = user_data;
  rabbet_loop_run_t* loop = growing->loop;
  size_t carried = loop->wiring.carried_count;
  void* address = NULL;
  (void)current, (void)alignment, (void)stream;
  rabbet_status_t status =
      growing->at < carried ? grow_carried(loop, growing->at, size, &address)
                            : rabbet_loop_place_element(
                                  loop, growing->at - carried, size, &address);
  if (!rabbet_is_ok(status))
    rabbet_log(loop->frame->context->engine->logger, RABBET_SEVERITY_ERROR,
               "memory for '%s', which a loop makes: %s", name,
               rabbet_status_message(status));
  rabbet_status_ignore(status);
  return address;
}

// The body's output that it makes.
static size_t growing_io(const rabbet_loop_run_t* loop, size_t at) {
  size_t carried = loop->wiring.carried_count;
  return loop->frames[0]->sequence->plan->input_count +
         (at < carried ? at : (size_t)loop->wiring.sources[at - carried]);
}

static void begin_one(rabbet_loop_run_t* loop, size_t at) {
  rabbet_frame_t* callee = loop->frames[0];
  if (loop->growing[at].loop) return;
  loop->growing[at] = (rabbet_loop_growing_t){loop, at};
  callee->output_allocators[growing_io(loop, at)] = (rabbet_output_allocator_t){
      .user_data = &loop->growing[at], .reallocate = grow_next};
  ++callee->allocator_count;
}

rabbet_status_t rabbet_loop_begin_growing(rabbet_loop_run_t* loop) {
  size_t count = loop->wiring.carried_count + loop->wiring.output_count;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(loop->frame->context->allocator,
                                         (count + 1) * sizeof(*loop->growing),
                                         (void**)&loop->growing));
  for (size_t i = 0; i < loop->wiring.carried_count; ++i)
    if (loop->wiring.varying[i] != 0) begin_one(loop, i);
  return rabbet_ok();
}

void rabbet_loop_grow_stack(rabbet_loop_run_t* loop, size_t output) {
  begin_one(loop, loop->wiring.carried_count + output);
}

void rabbet_loop_end_growing(rabbet_loop_run_t* loop) {
  rabbet_frame_t* callee = loop->frames[0];
  size_t count = loop->wiring.carried_count + loop->wiring.output_count;
  for (size_t i = 0; loop->growing && i < count; ++i) {
    if (!loop->growing[i].loop) continue;
    callee->output_allocators[growing_io(loop, i)] =
        (rabbet_output_allocator_t){.reallocate = NULL};
    --callee->allocator_count;
  }
  rabbet_free(loop->frame->context->allocator, loop->growing);
}
