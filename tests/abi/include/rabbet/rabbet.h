// All of the C interface.
#ifndef RABBET_RABBET_H_
#define RABBET_RABBET_H_

#include "rabbet/allocator.h"
#include "rabbet/attr.h"
#include "rabbet/base.h"
#include "rabbet/builder.h"
#include "rabbet/carried.h"
#include "rabbet/engine.h"
#include "rabbet/logger.h"
#include "rabbet/network.h"
#include "rabbet/onnx.h"
#include "rabbet/plugin.h"
#include "rabbet/refit.h"
#include "rabbet/status.h"
#include "rabbet/types.h"

#endif  // RABBET_RABBET_H_
