#include "device/common/ask.h"

#include <assert.h>
#include <string.h>

#include "core/view.h"

// Converts a constant of one element to `dtype`. Longer constants are not
// converted, as no description reads them.
static void ask_number(rabbet_group_value_t* value, rabbet_dtype_t dtype,
                       double* number) {
  for (int32_t i = 0; i < value->dims.rank; ++i)
    if (value->dims.d[i] != 1) return;
  rabbet_store_double(dtype, number, 0,
                      rabbet_load_double(value->dtype, value->constant, 0));
  value->constant = number;
}

// Makes the group with the candidate's types and formats. `values` and
// `numbers` have room for one entry per value.
static void ask_instantiate(const rabbet_group_t* network,
                            const rabbet_type_format_t* tensors,
                            rabbet_group_value_t* values, double* numbers,
                            rabbet_group_t* out_group) {
  *out_group = *network;
  memcpy(values, network->values, sizeof(*values) * network->value_count);
  out_group->values = values;
  for (size_t i = 0; i < network->input_count + network->output_count; ++i) {
    int32_t value = rabbet_group_boundary(network, i);
    if (values[value].constant)
      ask_number(&values[value], tensors[i].dtype, &numbers[value]);
    values[value].dtype = tensors[i].dtype;
    values[value].format = tensors[i].format;
  }
}

typedef struct ask_t {
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  const rabbet_candidate_t* like;
} ask_t;

static rabbet_status_t ask_add(void* context, const rabbet_answer_t* answer) {
  const ask_t* ask = context;
  rabbet_candidate_t candidate = *ask->like;
  candidate.tactic = answer->tactic;
  candidate.artifact = answer->artifact;
  memcpy(candidate.tactic_name, answer->tactic_name,
         sizeof(candidate.tactic_name));
  return rabbet_offer(ask->propose, ask->sink, &candidate);
}

static rabbet_status_t ask_group(ask_t* ask, const rabbet_asked_t* asked,
                                 const rabbet_group_t* group,
                                 const rabbet_dims_t* dims) {
  const rabbet_propose_t* propose = ask->propose;
  assert(asked->wish > 0 && ask->like->kernel->ask);
  const rabbet_question_t question = {
      .device = propose->device,
      .kernel = ask->like->kernel,
      .group = group,
      .dims = dims,
      .tf32 = asked->tf32,
      .wish = asked->wish,
      .enough = propose->optimization_level == 0 ? 1 : asked->wish,
      .allocator = propose->allocator,
  };
  const rabbet_answer_sink_t sink = {ask, ask_add};
  return propose->asker
             ? propose->asker->ask(propose->asker->context, &question, sink)
             : question.kernel->ask(&question, sink);
}

rabbet_status_t rabbet_offer_asked(const rabbet_propose_t* propose,
                                   rabbet_candidate_sink_t sink,
                                   const rabbet_candidate_t* like,
                                   const rabbet_asked_t* asked) {
  rabbet_allocator_t allocator = propose->allocator;
  size_t count = propose->group->value_count;
  ask_t ask = {propose, sink, like};
  rabbet_group_t group;
  rabbet_group_value_t* values = NULL;
  rabbet_dims_t* dims = NULL;
  double* numbers = NULL;
  if (rabbet_group_is_empty(propose->group)) return rabbet_ok();
  rabbet_status_t status =
      rabbet_allocate(allocator, sizeof(*values) * count, (void**)&values);
  if (rabbet_is_ok(status))
    status = rabbet_group_opt_dims(propose->group, allocator, &dims);
  if (rabbet_is_ok(status))
    status =
        rabbet_allocate(allocator, sizeof(*numbers) * count, (void**)&numbers);
  if (rabbet_is_ok(status)) {
    ask_instantiate(propose->group, like->tensors, values, numbers, &group);
    status = ask_group(&ask, asked, &group, dims);
  }
  rabbet_free(allocator, numbers);
  rabbet_free(allocator, dims);
  rabbet_free(allocator, values);
  return status;
}
