// A part of a graph that runs as plans: a fused node of ONNX Runtime's.
//
// Plans are built for the shapes that runs have. The first one takes all sizes
// and is tuned for the first run's; only if the importer or the builder refuses
// such ranges, there is a plan for each set of shapes. A model whose sizes are
// fixed, or in the session's options, is built when the session is made.
#ifndef RABBET_SRC_ORTEP_PART_H_
#define RABBET_SRC_ORTEP_PART_H_

#include "ortep/session.h"

typedef struct rabbet_ort_part_t rabbet_ort_part_t;

// Of the nodes of a graph that ONNX Runtime fused into a node.
rabbet_status_t rabbet_ort_part_create(rabbet_ort_session_t* session,
                                       const OrtGraph* graph,
                                       const OrtNode* fused_node,
                                       rabbet_ort_part_t** out_part);
// Of a plan that was kept, whose inputs and outputs have the node's names.
rabbet_status_t rabbet_ort_part_load(rabbet_ort_session_t* session,
                                     const OrtNode* node, const void* plan,
                                     size_t size, const char* path,
                                     rabbet_ort_part_t** out_part);
void rabbet_ort_part_destroy(rabbet_ort_part_t* part);
// Any number of threads may run a part at a time.
rabbet_status_t rabbet_ort_part_run(rabbet_ort_part_t* part,
                                    OrtKernelContext* context);
// The plan of all sizes, built if it is not yet; borrowed. Dimensions that the
// options do not give count as 1 when it is tuned, of which a warning tells.
rabbet_status_t rabbet_ort_part_plan(rabbet_ort_part_t* part,
                                     const void** out_plan, size_t* out_size);

#endif  // RABBET_SRC_ORTEP_PART_H_
