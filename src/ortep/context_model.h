// Plans in models: a node EPContext stands for a part, and has its plan or says
// in which file it is.
#ifndef RABBET_SRC_ORTEP_CONTEXT_MODEL_H_
#define RABBET_SRC_ORTEP_CONTEXT_MODEL_H_

#include "ortep/graph.h"
#include "ortep/part.h"

// Whether the node is such a one, of ours.
bool rabbet_ort_is_context(const rabbet_ort_node_t* node);
// The part of such a node; `graph` has it alone.
rabbet_status_t rabbet_ort_context_load(rabbet_ort_session_t* session,
                                        const OrtGraph* graph,
                                        const OrtNode* node,
                                        rabbet_ort_part_t** out_part);
// An EPContext node for a part of a model that is at `model_path` (may be
// NULL), with the inputs and outputs of `node`.
rabbet_status_t rabbet_ort_context_node(const rabbet_ort_session_t* session,
                                        const char* model_path,
                                        const OrtNode* node,
                                        rabbet_ort_part_t* part,
                                        OrtNode** out_node);

#endif  // RABBET_SRC_ORTEP_CONTEXT_MODEL_H_
