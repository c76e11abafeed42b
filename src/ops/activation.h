// The catalogue's activations as functions of one number.
#ifndef RABBET_SRC_OPS_ACTIVATION_H_
#define RABBET_SRC_OPS_ACTIVATION_H_

#include "ops/enums.h"
#include "rabbet/base.h"

// `type` is a rabbet_activation_t.
RABBET_PRIVATE_API double rabbet_activation_of(int64_t type, double x,
                                               double alpha, double beta);

#endif  // RABBET_SRC_OPS_ACTIVATION_H_
