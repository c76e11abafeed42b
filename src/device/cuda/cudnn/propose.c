// Proposing cuDNN graphs: asks the library for engines and offers them.
#include <stdio.h>
#include <string.h>

#include "device/common/ask.h"
#include "device/cuda/cudnn/internal.h"

enum {
  CUDNN_ALL_ENGINES = 16,
  // Up to optimization level 3. Of so many engines at most COMPILING compile:
  // a trial of one takes 0.35 s of a processor, and more of them seldom win
  // (docs/decisions.md).
  CUDNN_USUAL_ENGINES = 4,
  CUDNN_COMPILING = 2,
};

bool rabbet_cudnn_has_bytes(const rabbet_group_t* group) {
  for (size_t i = 0; i < group->input_count; ++i)
    if (group->values[group->inputs[i]].dtype == RABBET_DTYPE_INT8) return true;
  return false;
}

// The type of the group's tensors; INT8 if its factors are INT8.
static rabbet_dtype_t cudnn_dtype(const rabbet_group_t* group) {
  return rabbet_cudnn_has_bytes(group) ? RABBET_DTYPE_INT8
                                       : group->values[group->outputs[0]].dtype;
}

rabbet_cudnn_kept_t rabbet_cudnn_kept(const rabbet_cuda_device_t* device,
                                      const rabbet_cudnn_t* library,
                                      uint32_t magic, int32_t tactic) {
  return (rabbet_cudnn_kept_t){.magic = magic,
                               .tactic = tactic,
                               .version = library->version,
                               .major = device->major,
                               .minor = device->minor};
}

// ---- Asking ----------------------------------------------------------------

static rabbet_status_t ask_add(const rabbet_question_t* question,
                               const rabbet_cudnn_t* library,
                               const rabbet_cudnn_choice_t* choice,
                               rabbet_answer_sink_t sink) {
  rabbet_cudnn_kept_engine_t kept = {.engine = choice->engine};
  rabbet_answer_t answer = {
      .tactic = choice->number | (question->tf32 ? RABBET_CUDNN_TF32 : 0),
      .artifact = {
          .name = "cuDNN engine",
          .data = &kept,
          .size = rabbet_cudnn_kept_engine_size(choice->engine.knob_count)}};
  kept.header = rabbet_cudnn_kept(rabbet_cuda(question->device), library,
                                  RABBET_CUDNN_KEPT_ENGINE, answer.tactic);
  answer.artifact.key = rabbet_hash128(&kept, answer.artifact.size);
  snprintf(answer.tactic_name, sizeof(answer.tactic_name), "%s", choice->name);
  return sink.add(sink.context, &answer);
}

static rabbet_status_t ask_graph(const rabbet_question_t* question,
                                 rabbet_cudnn_graph_t* graph,
                                 rabbet_answer_sink_t sink) {
  // Without timing the first one that works is taken, from all of them.
  const rabbet_cudnn_wish_t wish = {
      .dtype = cudnn_dtype(question->group),
      .tf32 = question->tf32,
      .count = (size_t)question->wish,
      .most_compiling = question->wish <= CUDNN_USUAL_ENGINES
                            ? CUDNN_COMPILING
                            : CUDNN_ALL_ENGINES,
      .spares_compiling =
          question->enough > 1 && question->wish < CUDNN_ALL_ENGINES};
  rabbet_cudnn_choices_t choices;
  RABBET_RETURN_IF_ERROR(rabbet_cudnn_choices(graph, &wish, &choices));
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < choices.list.count; ++i)
    status = ask_add(question, graph->library, &choices.list.data[i], sink);
  rabbet_cudnn_choices_end(&choices);
  return status;
}

static rabbet_status_t ask_with(const rabbet_question_t* question,
                                rabbet_cudnn_describe_fn_t describe,
                                rabbet_cudnn_t* library, cudnnHandle_t handle,
                                rabbet_answer_sink_t sink) {
  rabbet_cudnn_graph_t graph;
  rabbet_cudnn_graph_begin(library, question->allocator, &graph);
  rabbet_status_t status = rabbet_ok();
  if (describe(question->group, question->dims, &graph)) {
    status = rabbet_cudnn_graph_finish(&graph, handle);
    if (rabbet_is_ok(status)) status = ask_graph(question, &graph, sink);
  }
  rabbet_cudnn_graph_end(&graph);
  if (rabbet_status_code(status) != RABBET_STATUS_UNSUPPORTED) return status;
  rabbet_status_ignore(status);
  return rabbet_ok();
}

rabbet_status_t rabbet_cudnn_kernel_ask(const rabbet_question_t* question,
                                        rabbet_cudnn_describe_fn_t describe,
                                        rabbet_answer_sink_t sink) {
  rabbet_cuda_device_t* device = rabbet_cuda(question->device);
  rabbet_cudnn_t* library = NULL;
  rabbet_cudnn_slot_t* slot = NULL;
  CUcontext before = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cudnn_get(device, &library));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(device, &before));
  rabbet_status_t status = rabbet_cudnn_acquire(library, &slot);
  if (rabbet_is_ok(status)) {
    status = ask_with(question, describe, library, slot->handle, sink);
    rabbet_cudnn_release(slot);
  }
  rabbet_cuda_leave(device, before);
  return status;
}

// ---- Offering --------------------------------------------------------------

// The number of engines to ask for. Without tuning, the first one that works is
// taken, so several are asked for. Trying one compiles it, which often takes
// hundreds of milliseconds.
static int32_t offer_wish(const rabbet_cudnn_offer_t* offer) {
  int level = offer->propose->optimization_level;
  int32_t wish = level == 0   ? CUDNN_ALL_ENGINES
                 : level <= 2 ? 2
                 : level <= 3 ? CUDNN_USUAL_ENGINES
                              : 6;
  if (level >= 5) return CUDNN_ALL_ENGINES;
  return offer->is_unlikely && level > 0 ? 1 : wish;
}

rabbet_status_t rabbet_cudnn_offer(const rabbet_cudnn_offer_t* offer) {
  const rabbet_asked_t asked = {
      .tf32 = offer->dtype == RABBET_DTYPE_FLOAT && offer->propose->tf32,
      .wish = offer_wish(offer)};
  return rabbet_offer_asked(
      offer->propose, offer->sink,
      &(rabbet_candidate_t){.kernel = offer->kernel, .tensors = offer->tensors},
      &asked);
}

static rabbet_status_t cudnn_offer_types(rabbet_cudnn_offer_t* offer,
                                         rabbet_type_format_t* tensors,
                                         rabbet_dtype_t network,
                                         bool (*can)(rabbet_dtype_t dtype),
                                         int32_t turned) {
  const rabbet_group_t* group = offer->propose->group;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(offer->propose, network, types);
  offer->tensors = tensors;
  for (int i = 0; i < count; ++i) {
    if (!can(types[i])) continue;
    rabbet_network_tensors(group, tensors);
    for (size_t k = 0; k < group->input_count + group->output_count; ++k)
      if (rabbet_dtype_is_float(tensors[k].dtype)) tensors[k].dtype = types[i];
    offer->dtype = types[i];
    RABBET_RETURN_IF_ERROR(rabbet_cudnn_offer(offer));
    if (turned < 0 || types[i] != RABBET_DTYPE_FLOAT || !offer->propose->tf32)
      continue;
    tensors[turned].format = RABBET_FORMAT_HWC;
    RABBET_RETURN_IF_ERROR(rabbet_cudnn_offer(offer));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_cudnn_offer_linear(const rabbet_propose_t* propose,
                                          rabbet_candidate_sink_t sink,
                                          const rabbet_kernel_class_t* kernel,
                                          rabbet_dtype_t network,
                                          bool (*can)(rabbet_dtype_t dtype),
                                          int32_t turned) {
  const rabbet_group_t* group = propose->group;
  rabbet_cudnn_offer_t offer = {
      .propose = propose, .sink = sink, .kernel = kernel};
  rabbet_cudnn_t* library = NULL;
  rabbet_type_format_t* tensors = NULL;
  rabbet_status_t status =
      rabbet_cudnn_get(rabbet_cuda(propose->device), &library);
  if (rabbet_status_code(status) == RABBET_STATUS_UNAVAILABLE) {
    rabbet_status_ignore(status);
    return rabbet_ok();
  }
  if (rabbet_is_ok(status))
    status = rabbet_allocate(
        propose->allocator,
        sizeof(*tensors) * (group->input_count + group->output_count),
        (void**)&tensors);
  if (rabbet_is_ok(status))
    status = cudnn_offer_types(&offer, tensors, network, can, turned);
  rabbet_free(propose->allocator, tensors);
  return status;
}
