#define _GNU_SOURCE
#include "base/symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

static int object_has_code(struct dl_phdr_info* info, size_t size,
                           void* user_data) {
  (void)size;
  uintptr_t address = *(const uintptr_t*)user_data;
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* segment = &info->dlpi_phdr[i];
    if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) &&
        address - info->dlpi_addr - segment->p_vaddr < segment->p_memsz)
      return 1;
  }
  return 0;
}

// A function lies in a segment that may be executed. A linker may place
// constants there, too: the symbol's type tells these apart. Not every function
// has a symbol with a type: the one that the resolver of an STT_GNU_IFUNC
// symbol returned may have none, and assembly code may leave the type out.
static bool address_is_function(void* address) {
  Dl_info info;
  void* found = NULL;
  uintptr_t number = (uintptr_t)address;
  if (!dl_iterate_phdr(object_has_code, &number)) return false;
  if (!dladdr1(address, &info, &found, RTLD_DL_SYMENT) || !found ||
      info.dli_saddr != address)
    return true;
  int type = ELF64_ST_TYPE(((const ElfW(Sym)*)found)->st_info);
  return type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE;
}

rabbet_status_t rabbet_symbol_function(void* handle, const char* name,
                                       void** out_function) {
  *out_function = NULL;
  void* address = dlsym(handle, name);
  if (!address) return rabbet_ok();
  if (!address_is_function(address))
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "its symbol %s is data; expected a function", name);
  *out_function = address;
  return rabbet_ok();
}
