// Whether text is one JSON value.
#ifndef RABBET_SRC_PLAN_JSON_CHECK_H_
#define RABBET_SRC_PLAN_JSON_CHECK_H_

#include "rabbet/base.h"

// RFC 8259, UTF-8 taken as given; nested at most 64 deep. Not recursive.
bool rabbet_json_valid(const char* text);

#endif  // RABBET_SRC_PLAN_JSON_CHECK_H_
