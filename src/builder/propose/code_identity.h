// Which code a process runs.
#ifndef RABBET_SRC_BUILDER_PROPOSE_CODE_IDENTITY_H_
#define RABBET_SRC_BUILDER_PROPOSE_CODE_IDENTITY_H_

#include "base/hash.h"

// A hash of the build ID that the linker wrote into the library or program
// that has this address, which changes with any of its code. False if there is
// none.
RABBET_PRIVATE_API bool rabbet_code_identity(const void* address,
                                             uint64_t* out_identity);

#endif  // RABBET_SRC_BUILDER_PROPOSE_CODE_IDENTITY_H_
