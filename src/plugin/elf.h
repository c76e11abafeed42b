// Whether a shared library is what the dynamic loader takes it for.
//
// The loader believes all that a library says of itself: tables at addresses
// that are not there, relocations of memory that is not the library's or names
// past the end of its strings end the process. What is checked here is all that
// the loader follows before code of the library runs; of damaged code nothing
// can be said.
#ifndef RABBET_SRC_PLUGIN_ELF_H_
#define RABBET_SRC_PLUGIN_ELF_H_

#include "rabbet/status.h"

// INVALID_ARGUMENT: no shared library; INCOMPATIBLE: one for another machine;
// DATA_LOSS: a damaged one. The messages begin with "it".
rabbet_status_t rabbet_elf_check(const void* data, size_t size);

#endif  // RABBET_SRC_PLUGIN_ELF_H_
