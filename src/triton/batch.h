// Runs requests as one batch.
#ifndef RABBET_SRC_TRITON_BATCH_H_
#define RABBET_SRC_TRITON_BATCH_H_

#include "triton/instance.h"

// Of requests of equal shapes (but for the batch) that were read: puts their
// inputs together, runs, makes their outputs. On failure no request has
// outputs, if there are several; failures of single requests after the run are
// in their statuses.
rabbet_status_t rabbet_triton_batch_run(rabbet_triton_instance_t* instance,
                                        const uint32_t* group, size_t count);

uint64_t rabbet_triton_now(void);

#endif  // RABBET_SRC_TRITON_BATCH_H_
