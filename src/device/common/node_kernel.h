// The common part of our kernels for single layers: the kernel object,
// operands, types and formats to offer. A class writes `propose`, `prepare` and
// `enqueue`.
#ifndef RABBET_SRC_DEVICE_COMMON_NODE_KERNEL_H_
#define RABBET_SRC_DEVICE_COMMON_NODE_KERNEL_H_

#include "base/math.h"
#include "device/common/propose.h"
#include "device/common/takes.h"
#include "device/device.h"

typedef struct rabbet_node_kernel_t {
  rabbet_kernel_t base;
  rabbet_allocator_t allocator;
  const rabbet_group_t* group;
  const rabbet_group_node_t* node;  // the first
} rabbet_node_kernel_t;

// Whether the group is one layer of that operator.
bool rabbet_node_is(const rabbet_group_t* group, rabbet_op_id_t op);
// Whether it is a softmax and its logarithm, which is the only output.
bool rabbet_node_is_log_softmax(const rabbet_group_t* group);
static inline int64_t rabbet_node_int(const rabbet_group_node_t* node,
                                      const char* name) {
  return rabbet_attr_int(node->attrs, node->op->attr_count, name, 0);
}
// The value number of input `index`; -1 if it is omitted.
static inline int32_t rabbet_node_input(const rabbet_group_node_t* node,
                                        size_t index) {
  return index < node->input_count ? node->inputs[index] : -1;
}
bool rabbet_node_reads(const rabbet_group_node_t* node, int32_t value);
// Whether the first node that reads a or b reads a; true if none does.
bool rabbet_group_reads_first(const rabbet_group_t* group, int32_t a,
                              int32_t b);
// The position of the node's output `index` in the group's outputs; -1: it is
// unused.
int32_t rabbet_node_output_of(const rabbet_group_t* group,
                              const rabbet_group_node_t* node, size_t index);
// The address of the node's output `index` in a call; NULL: it is unused.
static inline void* rabbet_node_output(const rabbet_node_kernel_t* kernel,
                                       const rabbet_kernel_call_t* call,
                                       size_t index) {
  int32_t at = rabbet_node_output_of(kernel->group, kernel->node, index);
  return at < 0 ? NULL : call->outputs[at];
}
// The address of input `index`; NULL: it is omitted.
static inline const void* rabbet_node_input_at(
    const rabbet_node_kernel_t* kernel, const rabbet_kernel_call_t* call,
    size_t index) {
  int32_t value = rabbet_node_input(kernel->node, index);
  if (value < 0) return NULL;
  return call->inputs[rabbet_group_input_of(kernel->group, value)];
}
// The operands of the group's first node, for the operator's rules. `dims` and
// `host_values` are indexed by value number. The elements of integers known to
// the host come from host_values (it or its entries may be NULL), others from
// constants. `views` has room for all inputs and outputs.
void rabbet_node_eval(const rabbet_group_t* group, const rabbet_dims_t* dims,
                      const int64_t* const* host_values,
                      rabbet_allocator_t allocator, rabbet_view_t* views,
                      rabbet_op_eval_t* out_eval);
// The same for any of its nodes.
void rabbet_group_node_eval(const rabbet_group_t* group,
                            const rabbet_group_node_t* node,
                            const rabbet_dims_t* dims,
                            const int64_t* const* host_values,
                            rabbet_allocator_t allocator, rabbet_view_t* views,
                            rabbet_op_eval_t* out_eval);

// ---- Proposing -------------------------------------------------------------

// The types and formats of a boundary under construction.
typedef struct rabbet_proposal_t {
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  const rabbet_kernel_class_t* kernel;
  const rabbet_group_node_t* node;
  rabbet_type_format_t* tensors;  // the network's types, LINEAR
  bool keeps_padding;             // set by classes that zero or copy padding
  void* context;                  // the class's own
} rabbet_proposal_t;

// Sets up a proposal and calls `body` with it.
rabbet_status_t rabbet_proposal_make(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink,
    const rabbet_kernel_class_t* kernel, void* context,
    rabbet_status_t (*body)(rabbet_proposal_t* proposal));
// The same for groups that are one node of this operator; others get nothing.
rabbet_status_t rabbet_proposal_make_for(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink,
    rabbet_op_id_t op, const rabbet_kernel_class_t* kernel,
    rabbet_status_t (*body)(rabbet_proposal_t* proposal));
// Defines id_propose, which does so with id_body for the class rabbet_<id>.
#define RABBET_PROPOSE_FOR(id, op)                                     \
  static rabbet_status_t id##_propose(const rabbet_propose_t* propose, \
                                      rabbet_candidate_sink_t sink) {  \
    return rabbet_proposal_make_for(propose, sink, RABBET_OP_##op,     \
                                    &rabbet_##id, id##_body);          \
  }
// Sets type and format of a node's input or of a group's output.
void rabbet_proposal_set_input(rabbet_proposal_t* proposal, size_t input,
                               rabbet_dtype_t dtype, rabbet_format_t format);
void rabbet_proposal_set_output(rabbet_proposal_t* proposal,
                                rabbet_dtype_t dtype, rabbet_format_t format);
// Offers the node in LINEAR: with the network's types, and with each other
// floating type that the network allows for input 0 (and for inputs and outputs
// of the same type). `in_place` as below.
rabbet_status_t rabbet_proposal_offer_linear(rabbet_proposal_t* proposal,
                                             const char* tactic_name,
                                             int32_t in_place);
// Offers the candidate, unless a format may pad channels and the class does not
// keep padding. Output 0 may share the memory of boundary input `in_place` (-1:
// none). Constants, and inputs that the node reads more than once, are never
// overwritten.
rabbet_status_t rabbet_proposal_offer(rabbet_proposal_t* proposal,
                                      const char* tactic_name,
                                      int32_t in_place);

// ---- For the class tables --------------------------------------------------

rabbet_status_t rabbet_node_kernel_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    rabbet_kernel_t** out_kernel);
void rabbet_node_kernel_destroy(rabbet_kernel_t* kernel);
// Allocates a zeroed state of the class's own type.
rabbet_status_t rabbet_node_state_allocate(rabbet_kernel_t* kernel, size_t size,
                                           void** out_state);
void rabbet_node_state_destroy(rabbet_kernel_t* kernel,
                               rabbet_kernel_state_t* state);
// Ends a `prepare`: returns the state, or, if `status` is an error, frees the
// state and returns `status`.
rabbet_status_t rabbet_node_state_finish(rabbet_kernel_t* kernel, void* state,
                                         rabbet_status_t status,
                                         void** out_state);

// Defines the table of the class rabbet_<id> from id_propose, id_create,
// id_takes, id_prepare and id_enqueue; further fields of the table follow. The
// last two work on the class's own type of states, id_state_t.
#define RABBET_NODE_TABLE(id, class_name, class_version, ...)        \
  static rabbet_status_t id##_prepare_state(                         \
      rabbet_kernel_t* kernel, const rabbet_kernel_shapes_t* shapes, \
      rabbet_kernel_state_t** out_state, size_t* out_workspace) {    \
    id##_state_t* state = NULL;                                      \
    rabbet_status_t status =                                         \
        id##_prepare(kernel, shapes, &state, out_workspace);         \
    *out_state = (rabbet_kernel_state_t*)state;                      \
    return status;                                                   \
  }                                                                  \
  static rabbet_status_t id##_enqueue_state(                         \
      rabbet_kernel_t* kernel, rabbet_kernel_state_t* state,         \
      const rabbet_kernel_call_t* call) {                            \
    return id##_enqueue(kernel, (id##_state_t*)state, call);         \
  }                                                                  \
  const rabbet_kernel_class_t rabbet_##id = {                        \
      .struct_size = sizeof(rabbet_kernel_class_t),                  \
      .name = class_name,                                            \
      .version = class_version,                                      \
      .propose = id##_propose,                                       \
      .create = id##_create,                                         \
      .prepare = id##_prepare_state,                                 \
      .destroy_state = rabbet_node_state_destroy,                    \
      .enqueue = id##_enqueue_state,                                 \
      .takes = id##_takes,                                           \
      __VA_ARGS__}

// The same for classes whose kernels are a rabbet_node_kernel_t.
#define RABBET_NODE_CLASS(id, class_name, class_version) \
  RABBET_NODE_CLASS_WITH(id, class_name, class_version, 0)

// The same with flags: RABBET_KERNEL_...
#define RABBET_NODE_CLASS_WITH(id, class_name, class_version, class_flags) \
  static rabbet_status_t id##_create(const rabbet_kernel_spec_t* spec,     \
                                     rabbet_kernel_t** out_kernel) {       \
    return rabbet_node_kernel_create(spec, &rabbet_##id, out_kernel);      \
  }                                                                        \
  RABBET_NODE_TABLE(id, class_name, class_version, .flags = class_flags,   \
                    .destroy = rabbet_node_kernel_destroy)

#endif  // RABBET_SRC_DEVICE_COMMON_NODE_KERNEL_H_
