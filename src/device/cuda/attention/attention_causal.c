// cuDNN's attention with a causal mask that it makes itself. Exporters write
// one as a constant that is added: a tensor as large as the scores of a head,
// of which half hides a key; where it is too large to be folded, it is the
// group's nodes that compare places. By the places of queries and keys cuDNN
// skips what is hidden, and reads no tensor.
#include <string.h>

#include "core/view.h"
#include "device/cuda/attention/attention.h"

// Beside a score of any sensible size, exp gives 0 for so low a number.
#define CAUSAL_LOW (-1e4)

// Whether `count` elements equal the one at `element`.
static bool causal_is_filled(const char* data, int64_t count, size_t size,
                             const char* element) {
  return count == 0 ||
         (memcmp(data, element, size) == 0 &&
          memcmp(data, data + size, (size_t)(count - 1) * size) == 0);
}

// Whether the rows keep element (0, 0) up to the diagonal, and have (0, 1)
// behind it.
static bool causal_is_triangle(const char* data, int64_t rows, int64_t keys,
                               size_t size) {
  for (int64_t row = 0; row < rows; ++row) {
    const char* start = data + (size_t)(row * keys) * size;
    int64_t kept = row < keys ? row + 1 : keys;
    if (!causal_is_filled(start, kept, size, data) ||
        !causal_is_filled(start + (size_t)kept * size, keys - kept, size,
                          data + size))
      return false;
  }
  return true;
}

static bool causal_hides(const rabbet_attention_t* a, double kept,
                         double hidden) {
  switch (a->masking) {
    case RABBET_ATTENTION_KEEPS_TRUE:
      return kept != 0 && hidden == 0 && a->other <= CAUSAL_LOW;
    case RABBET_ATTENTION_KEEPS_FALSE:
      return kept == 0 && hidden != 0 && a->other <= CAUSAL_LOW;
    default:
      return kept == 0 && hidden <= CAUSAL_LOW;
  }
}

// A band up to a query's own place, of so low a number.
static bool causal_is_band(const rabbet_attention_t* a, int64_t rows) {
  return a->band.known && a->band.last == 0 && a->band.first <= 1 - rows &&
         a->other <= CAUSAL_LOW;
}

bool rabbet_attention_is_causal(const rabbet_group_t* group,
                                const rabbet_attention_t* attention,
                                const rabbet_dims_t* dims) {
  if (attention->band.exists) {
    const rabbet_dims_t* y = &dims[attention->y.seen];
    return y->rank >= 2 && causal_is_band(attention, y->d[y->rank - 2]);
  }
  if (attention->mask < 0) return false;
  const rabbet_group_value_t* mask = &group->values[attention->mask];
  const rabbet_dims_t* shape = &dims[attention->mask];
  int bits = rabbet_dtype_bits(mask->dtype);
  if (!mask->constant || shape->rank < 2 || bits % 8 != 0) return false;
  for (int32_t i = 0; i < shape->rank - 2; ++i)
    if (shape->d[i] != 1) return false;
  int64_t rows = shape->d[shape->rank - 2], keys = shape->d[shape->rank - 1];
  return rows > 1 && keys > 1 &&
         causal_hides(attention,
                      rabbet_load_double(mask->dtype, mask->constant, 0),
                      rabbet_load_double(mask->dtype, mask->constant, 1)) &&
         causal_is_triangle(mask->constant, rows, keys, (size_t)bits / 8);
}

// ---- The class -------------------------------------------------------------

static bool causal_describe(const rabbet_group_t* group,
                            const rabbet_dims_t* dims,
                            rabbet_cudnn_graph_t* graph) {
  return rabbet_attention_describe(group, dims, RABBET_ATTENTION_BY_PLACES,
                                   graph);
}

static rabbet_status_t causal_propose(const rabbet_propose_t* propose,
                                      rabbet_candidate_sink_t sink) {
  return rabbet_attention_offer(propose, RABBET_ATTENTION_BY_PLACES,
                                &rabbet_cuda_attention_causal, sink);
}

static bool causal_takes(const rabbet_kernel_spec_t* spec) {
  return spec->group->node_count >= 3 && spec->group->output_count == 1;
}

// Checks the mask again, which a refit may have replaced. A build has proposed
// the kernel for it, and its trials have other numbers in the mask's place;
// without its weights a plan cannot run.
static rabbet_status_t causal_check(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  rabbet_dims_t* dims = NULL;
  rabbet_attention_t a;
  RABBET_RETURN_IF_ERROR(rabbet_group_opt_dims(group, spec->allocator, &dims));
  bool matches =
      rabbet_attention_match(group, dims, &a) && (a.mask >= 0 || a.band.exists);
  bool known =
      matches && !spec->exact &&
      (a.band.exists ? a.band.known : group->values[a.mask].constant != NULL);
  if (known) matches = rabbet_attention_is_causal(group, &a, dims);
  rabbet_free(spec->allocator, dims);
  if (matches) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "layer '%s': cuda.attention.causal was chosen for a constant mask that "
      "hides every later key and nothing else; expected that, found another "
      "mask: build the plan again",
      group->nodes[0].name);
}

static rabbet_status_t causal_create(const rabbet_kernel_spec_t* spec,
                                     rabbet_kernel_t** out_kernel) {
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(causal_check(spec));
  return rabbet_cudnn_kernel_create(spec, &rabbet_cuda_attention_causal,
                                    causal_describe, out_kernel);
}

static rabbet_status_t causal_ask(const rabbet_question_t* question,
                                  rabbet_answer_sink_t sink) {
  return rabbet_cudnn_kernel_ask(question, causal_describe, sink);
}

const rabbet_kernel_class_t rabbet_cuda_attention_causal = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "cuda.attention.causal",
    .version = 1,
    .propose = causal_propose,
    .create = causal_create,
    .takes = causal_takes,
    .destroy = rabbet_cudnn_kernel_destroy,
    .prepare = rabbet_cudnn_kernel_prepare,
    .destroy_state = rabbet_cudnn_kernel_destroy_state,
    .enqueue = rabbet_cudnn_kernel_enqueue,
    .artifacts = rabbet_cudnn_kernel_artifacts,
    .library_version = rabbet_cudnn_version,
    .tactic_sources = 1u << RABBET_TACTIC_CUDNN,
    .ask = causal_ask,
};
