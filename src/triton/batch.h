// Runs requests as one batch.
#ifndef RABBET_SRC_TRITON_BATCH_H_
#define RABBET_SRC_TRITON_BATCH_H_

#include "triton/instance.h"

// Of requests of equal shapes (but for the batch) that were read: puts their
// inputs together and runs; with `divide` makes their outputs and states, else
// leaves that to rabbet_triton_batch_divide. On failure no request has outputs,
// if there are several; failures of single requests after the run are in their
// statuses.
rabbet_status_t rabbet_triton_batch_run(rabbet_triton_instance_t* instance,
                                        const uint32_t* group, size_t count,
                                        bool divide);

// Gives requests of a call their outputs; not those that failed. Different
// requests may be done on different threads.
void rabbet_triton_batch_divide(rabbet_triton_instance_t* instance,
                                rabbet_triton_call_t* call, size_t begin,
                                size_t end);

// Statistics of a batch of the call's requests, while the server still has
// requests of it that are not released.
void rabbet_triton_batch_report(const rabbet_triton_instance_t* instance,
                                const rabbet_triton_call_t* call,
                                const uint32_t* group, size_t count);

// Makes the response, if there is none yet.
rabbet_status_t rabbet_triton_batch_response(rabbet_triton_request_t* request);

// Nanoseconds.
uint64_t rabbet_triton_now(void);

#endif  // RABBET_SRC_TRITON_BATCH_H_
