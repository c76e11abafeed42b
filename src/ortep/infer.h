// Types and shapes of a plugin's outputs, which the importer finds.
#ifndef RABBET_SRC_ORTEP_INFER_H_
#define RABBET_SRC_ORTEP_INFER_H_

#include "ortep/ort.h"

// `attributes` are the names of those that a node may have.
rabbet_status_t rabbet_ort_infer(const char* op_type, const char* domain,
                                 const char* const* attributes,
                                 size_t attribute_count,
                                 OrtShapeInferContext* context);

#endif  // RABBET_SRC_ORTEP_INFER_H_
