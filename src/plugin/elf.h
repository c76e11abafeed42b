// Checks the tables of a shared library that the dynamic loader relies on.
//
// The loader trusts a library: tables at addresses that are not there,
// relocations of memory that is not the library's, or names past the end of its
// strings end the process. All that the loader follows before code of the
// library runs is checked here; damaged code is not found.
#ifndef RABBET_SRC_PLUGIN_ELF_H_
#define RABBET_SRC_PLUGIN_ELF_H_

#include "rabbet/status.h"

// INVALID_ARGUMENT: no shared library; INCOMPATIBLE: one for another machine;
// DATA_LOSS: a damaged one. The messages begin with "it".
rabbet_status_t rabbet_elf_check(const void* data, size_t size);

#endif  // RABBET_SRC_PLUGIN_ELF_H_
