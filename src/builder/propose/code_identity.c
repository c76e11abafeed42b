#define _GNU_SOURCE
#include "builder/propose/code_identity.h"

#if defined(__linux__)
#include <elf.h>
#include <link.h>
#include <string.h>

typedef struct identity_t {
  uintptr_t address;
  uint64_t hash;
  bool found;
} identity_t;

static size_t identity_padded(size_t size) {
  return (size + 3) & ~(size_t)3;
}

// Notes lie one behind the other: a head, a name, and what is noted.
static void identity_read(identity_t* identity, const char* notes,
                          size_t size) {
  ElfW(Nhdr) head;
  while (size >= sizeof(head)) {
    memcpy(&head, notes, sizeof(head));
    size_t name = identity_padded(head.n_namesz);
    size_t noted = identity_padded(head.n_descsz);
    if (name > size - sizeof(head) || noted > size - sizeof(head) - name)
      return;
    const char* text = notes + sizeof(head);
    if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == sizeof("GNU") &&
        memcmp(text, "GNU", sizeof("GNU")) == 0 && head.n_descsz > 0) {
      identity->hash = rabbet_hash64(text + name, head.n_descsz);
      identity->found = true;
      return;
    }
    notes += sizeof(head) + name + noted;
    size -= sizeof(head) + name + noted;
  }
}

static int identity_visit(struct dl_phdr_info* info, size_t size,
                          void* context) {
  (void)size;
  identity_t* identity = context;
  bool has = false;
  for (int i = 0; i < info->dlpi_phnum && !has; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    has = part->p_type == PT_LOAD &&
          identity->address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz;
  }
  for (int i = 0; has && !identity->found && i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    if (part->p_type == PT_NOTE)
      identity_read(identity,
                    (const char*)(uintptr_t)(info->dlpi_addr + part->p_vaddr),
                    part->p_memsz);
  }
  return has;  // others are not looked at
}

bool rabbet_code_identity(const void* address, uint64_t* out_identity) {
  identity_t identity = {.address = (uintptr_t)address};
  dl_iterate_phdr(identity_visit, &identity);
  *out_identity = identity.hash;
  return identity.found;
}
#else
bool rabbet_code_identity(const void* address, uint64_t* out_identity) {
  (void)address;
  *out_identity = 0;
  return false;
}
#endif
