// The parts of rabbet_plan_read.
#ifndef RABBET_SRC_PLAN_READ_H_
#define RABBET_SRC_PLAN_READ_H_

#include "plan.pb-c.h"
#include "plan/plan.h"

// A copy in the plan's arena; DATA_LOSS unless it is UTF-8.
rabbet_status_t rabbet_read_text(rabbet_plan_t* plan, const char* text,
                                 const char** out_text);

rabbet_status_t rabbet_read_attr(rabbet_plan_t* plan,
                                 const Rabbet__Plan__Attr* from,
                                 rabbet_attr_t* attr);

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
