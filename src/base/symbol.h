// Functions of shared objects from third parties.
#ifndef RABBET_SRC_BASE_SYMBOL_H_
#define RABBET_SRC_BASE_SYMBOL_H_

#include "rabbet/status.h"

// The function `name` of `handle`, a result of dlopen (or RTLD_DEFAULT); NULL
// if there is no such symbol. INCOMPATIBLE if the symbol is data: a call would
// end the process.
RABBET_PRIVATE_API rabbet_status_t rabbet_symbol_function(void* handle,
                                                          const char* name,
                                                          void** out_function);

#endif  // RABBET_SRC_BASE_SYMBOL_H_
