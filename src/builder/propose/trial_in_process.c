// Asks libraries in the build's own process, if there is no helper.
#include "builder/propose/trial_internal.h"

typedef struct here_t {
  const rabbet_question_t* question;
  const rabbet_trial_t* known;
  rabbet_answer_sink_t sink;
  int32_t passed;
} here_t;

// Whether the kernel can be prepared. Libraries name some that cannot.
static rabbet_status_t here_works(const rabbet_question_t* question,
                                  const rabbet_answer_t* answer,
                                  bool* out_works) {
  const rabbet_kernel_class_t* class = question->kernel;
  const rabbet_kernel_spec_t spec = {
      .device = question->device,
      .group = question->group,
      .tactic = answer->tactic,
      .allocator = question->allocator,
      .artifacts = &answer->artifact,
      .artifact_count = answer->artifact.size > 0,
      .exact = true};
  const rabbet_kernel_shapes_t shapes = {.dims = question->dims,
                                         .host_values = question->host_values,
                                         .threads = 1};
  rabbet_kernel_t* kernel = NULL;
  rabbet_kernel_state_t* state = NULL;
  size_t workspace = 0;
  rabbet_status_t status = rabbet_kernel_create(class, &spec, &kernel);
  if (rabbet_is_ok(status))
    status = class->prepare(kernel, &shapes, &state, &workspace);
  if (state) class->destroy_state(kernel, state);
  if (kernel) class->destroy(kernel);
  *out_works = rabbet_is_ok(status);
  if (rabbet_status_code(status) != RABBET_STATUS_UNSUPPORTED) return status;
  rabbet_status_ignore(status);
  return rabbet_ok();
}

static bool here_is_harmful(const rabbet_trial_t* known, int32_t tactic) {
  for (size_t i = 0; i < known->items.count; ++i)
    if (known->items.data[i].answer.tactic == tactic)
      return known->items.data[i].verdict == RABBET_VERDICT_HARMFUL;
  return false;
}

static rabbet_status_t here_add(void* context, const rabbet_answer_t* answer) {
  here_t* here = context;
  const rabbet_question_t* question = here->question;
  bool works = true;
  if (here->passed >= question->enough ||
      here_is_harmful(here->known, answer->tactic))
    return rabbet_ok();
  // A single candidate is not timed, and so must be run here to see that it
  // works.
  if (question->enough < question->wish)
    RABBET_RETURN_IF_ERROR(here_works(question, answer, &works));
  if (!works) return rabbet_ok();
  ++here->passed;
  return here->sink.add(here->sink.context, answer);
}

rabbet_status_t rabbet_trial_ask_here(const rabbet_question_t* question,
                                      const rabbet_trial_t* known,
                                      rabbet_answer_sink_t sink) {
  here_t here = {question, known, sink, 0};
  return question->kernel->ask(question,
                               (rabbet_answer_sink_t){&here, here_add});
}
