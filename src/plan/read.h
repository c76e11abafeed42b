// The parts of rabbet_plan_read.
#ifndef RABBET_SRC_PLAN_READ_H_
#define RABBET_SRC_PLAN_READ_H_

#include "plan.pb-c.h"
#include "plan/plan.h"

// A copy in the plan's arena; DATA_LOSS unless it is UTF-8.
rabbet_status_t rabbet_read_text(rabbet_plan_t* plan, const char* text,
                                 const char** out_text);

// NULL for "".
rabbet_status_t rabbet_read_optional_text(rabbet_plan_t* plan, const char* text,
                                          const char** out_text);

rabbet_status_t rabbet_read_list(rabbet_plan_t* plan, const void* data,
                                 size_t count, size_t size,
                                 const void** out_copy);
#define RABBET_READ_LIST(plan, message, field, out)                \
  rabbet_read_list((plan), (message)->field, (message)->n_##field, \
                   sizeof((message)->field[0]), (const void**)(out))

rabbet_status_t rabbet_read_shape(const int32_t* dims, size_t count,
                                  rabbet_shape_t* out_shape);

// The sequence's steps, after its values (read_step.c).
rabbet_status_t rabbet_read_steps(rabbet_plan_sequence_t* sequence,
                                  const Rabbet__Plan__Sequence* message);

// The table of artifacts; their bytes stay in the section (NULL: there is
// none).
rabbet_status_t rabbet_read_artifacts(rabbet_plan_t* plan,
                                      const Rabbet__Plan__Meta* meta,
                                      rabbet_span_t section);

// The carried code; the bytes stay in the section (NULL: there is none).
rabbet_status_t rabbet_read_carried(rabbet_plan_t* plan,
                                    const Rabbet__Plan__Meta* meta,
                                    rabbet_span_t section);

#endif  // RABBET_SRC_PLAN_READ_H_
