#include "plugin/elf.h"

#include <elf.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#define RABBET_ELF_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define RABBET_ELF_MACHINE EM_AARCH64
#elif defined(__riscv)
#define RABBET_ELF_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define RABBET_ELF_MACHINE EM_PPC64
#else
#define RABBET_ELF_MACHINE EM_NONE
#endif

#define RABBET_ELF_DAMAGED(...)          \
  RABBET_STATUS(RABBET_STATUS_DATA_LOSS, \
                "it is truncated or damaged: " __VA_ARGS__)

// Of tags below this one the value is kept; later ones that matter have fields.
#define RABBET_ELF_TAGS 40
// Symbols, relocations and versions of one library.
#define RABBET_ELF_MOST (UINT64_C(1) << 28)

typedef struct elf_t {
  const uint8_t* data;
  size_t size;
  Elf64_Ehdr header;
  uint64_t tags[RABBET_ELF_TAGS];
  bool has[RABBET_ELF_TAGS];
  uint64_t gnu_hash, versions, needed, needed_count, defined, defined_count;
  const char* strings;
  uint64_t string_bytes;
  uint64_t symbol_count;
} elf_t;

// ---- The file ---------------------------------------------------------------

static rabbet_status_t elf_check_header(elf_t* elf) {
  const uint8_t* data = elf->data;
  Elf64_Ehdr* header = &elf->header;
  if (elf->size < sizeof(*header) || memcmp(data, ELFMAG, SELFMAG) != 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "it is not a shared library");
  memcpy(header, data, sizeof(*header));
  // The rest of the header has other places in one of 32 bits.
  bool fits = data[EI_CLASS] == ELFCLASS64 && data[EI_DATA] == ELFDATA2LSB;
  if (!fits || (RABBET_ELF_MACHINE != EM_NONE &&
                header->e_machine != RABBET_ELF_MACHINE))
    return RABBET_STATUS(
        RABBET_STATUS_INCOMPATIBLE,
        "it is for another kind of machine than this one (ELF class %u, "
        "machine %u; expected %u, %u)",
        data[EI_CLASS], fits ? header->e_machine : 0u, ELFCLASS64,
        RABBET_ELF_MACHINE);
  if (header->e_type != ET_DYN)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "it is not a shared library but an ELF file of type %u",
        header->e_type);
  return rabbet_ok();
}

static Elf64_Phdr elf_segment(const elf_t* elf, size_t i) {
  Elf64_Phdr segment;
  memcpy(&segment, elf->data + elf->header.e_phoff + i * sizeof(segment),
         sizeof(segment));
  return segment;
}

// The loader maps segments without checking the file's size, and a process that
// touches pages beyond the file ends.
static rabbet_status_t elf_check_segment(const elf_t* elf, size_t i,
                                         uint64_t* end) {
  Elf64_Phdr s = elf_segment(elf, i);
  if (s.p_offset > elf->size || s.p_filesz > elf->size - s.p_offset)
    return RABBET_ELF_DAMAGED(
        "segment %zu has %llu bytes at %llu, the file %zu", i,
        (unsigned long long)s.p_filesz, (unsigned long long)s.p_offset,
        elf->size);
  if (s.p_type != PT_LOAD) return rabbet_ok();
  // Ascending, apart from each other, and at the same place within a page.
  uint64_t align = s.p_align > 1 ? s.p_align : 1;
  if (s.p_vaddr < *end || s.p_memsz < s.p_filesz ||
      s.p_memsz > INT64_MAX - s.p_vaddr || (align & (align - 1)) != 0 ||
      (s.p_vaddr - s.p_offset) % align != 0)
    return RABBET_ELF_DAMAGED("segment %zu cannot be mapped", i);
  *end = s.p_vaddr + s.p_memsz;
  return rabbet_ok();
}

// ---- Memory -----------------------------------------------------------------

// The bytes that the loader will have at an address, as they lie in the file;
// NULL if they are not all of one segment.
static const uint8_t* elf_at(const elf_t* elf, uint64_t address,
                             uint64_t bytes) {
  for (size_t i = 0; i < elf->header.e_phnum; ++i) {
    Elf64_Phdr s = elf_segment(elf, i);
    if (s.p_type == PT_LOAD && address >= s.p_vaddr &&
        address - s.p_vaddr <= s.p_filesz &&
        bytes <= s.p_filesz - (address - s.p_vaddr))
      return elf->data + s.p_offset + (address - s.p_vaddr);
  }
  return NULL;
}

// Whether the library has memory there with these rights (PF_W, ...).
static bool elf_maps(const elf_t* elf, uint64_t address, uint64_t bytes,
                     uint32_t rights) {
  for (size_t i = 0; i < elf->header.e_phnum; ++i) {
    Elf64_Phdr s = elf_segment(elf, i);
    if (s.p_type == PT_LOAD && (s.p_flags & rights) == rights &&
        address >= s.p_vaddr && address - s.p_vaddr <= s.p_memsz &&
        bytes <= s.p_memsz - (address - s.p_vaddr))
      return true;
  }
  return false;
}

// Segments that the loader reads or protects lie within those that it maps.
static bool elf_is_inside(const elf_t* elf, const Elf64_Phdr* s) {
  switch (s->p_type) {
    case PT_DYNAMIC:
    case PT_NOTE:
    case PT_GNU_PROPERTY:
      return elf_at(elf, s->p_vaddr, s->p_filesz) != NULL;
    case PT_TLS:
      return s->p_filesz <= s->p_memsz &&
             (s->p_align & (s->p_align - 1)) == 0 &&
             (s->p_filesz == 0 || elf_at(elf, s->p_vaddr, s->p_filesz));
    case PT_GNU_RELRO:
      return elf_maps(elf, s->p_vaddr, s->p_memsz, PF_W);
    default:
      return true;
  }
}

static rabbet_status_t elf_check_segments(const elf_t* elf,
                                          Elf64_Phdr* out_dynamic) {
  const Elf64_Ehdr* header = &elf->header;
  uint64_t table = (uint64_t)header->e_phnum * sizeof(Elf64_Phdr), end = 0;
  bool dynamic = false;
  if (header->e_phentsize != sizeof(Elf64_Phdr) ||
      header->e_phoff > elf->size || table > elf->size - header->e_phoff)
    return RABBET_ELF_DAMAGED(
        "its table of segments does not lie within its %zu bytes", elf->size);
  for (size_t i = 0; i < header->e_phnum; ++i)
    RABBET_RETURN_IF_ERROR(elf_check_segment(elf, i, &end));
  for (size_t i = 0; i < header->e_phnum; ++i) {
    Elf64_Phdr s = elf_segment(elf, i);
    if (!elf_is_inside(elf, &s))
      return RABBET_ELF_DAMAGED("segment %zu lies outside of what is mapped",
                                i);
    if (s.p_type != PT_DYNAMIC) continue;
    dynamic = true;
    *out_dynamic = s;
  }
  return dynamic
             ? rabbet_ok()
             : RABBET_STATUS(
                   RABBET_STATUS_INVALID_ARGUMENT,
                   "it is not a shared library: nothing of it can be linked");
}

// ---- The dynamic table ------------------------------------------------------

static void elf_take_tag(elf_t* elf, const Elf64_Dyn* entry) {
  uint64_t value = entry->d_un.d_val;
  if (entry->d_tag >= 0 && entry->d_tag < RABBET_ELF_TAGS) {
    elf->tags[entry->d_tag] = value;
    elf->has[entry->d_tag] = true;
  }
  if (entry->d_tag == DT_GNU_HASH) elf->gnu_hash = value;
  if (entry->d_tag == DT_VERSYM) elf->versions = value;
  if (entry->d_tag == DT_VERNEED) elf->needed = value;
  if (entry->d_tag == DT_VERNEEDNUM) elf->needed_count = value;
  if (entry->d_tag == DT_VERDEF) elf->defined = value;
  if (entry->d_tag == DT_VERDEFNUM) elf->defined_count = value;
}

static rabbet_status_t elf_read_tags(elf_t* elf, const Elf64_Phdr* dynamic) {
  Elf64_Dyn entry;
  for (uint64_t at = 0; at + sizeof(entry) <= dynamic->p_filesz;
       at += sizeof(entry)) {
    memcpy(&entry, elf_at(elf, dynamic->p_vaddr, dynamic->p_filesz) + at,
           sizeof(entry));
    if (entry.d_tag == DT_NULL) return rabbet_ok();
    elf_take_tag(elf, &entry);
  }
  return RABBET_ELF_DAMAGED("its dynamic table has no end");
}

static rabbet_status_t elf_check_string(const elf_t* elf, uint64_t at,
                                        const char* what) {
  return at < elf->string_bytes
             ? rabbet_ok()
             : RABBET_ELF_DAMAGED("the name of %s lies outside of its strings",
                                  what);
}

static rabbet_status_t elf_check_strings(elf_t* elf,
                                         const Elf64_Phdr* dynamic) {
  elf->string_bytes = elf->tags[DT_STRSZ];
  elf->strings =
      (const char*)elf_at(elf, elf->tags[DT_STRTAB], elf->string_bytes);
  if (!elf->strings || elf->string_bytes == 0 ||
      elf->strings[elf->string_bytes - 1])
    return RABBET_ELF_DAMAGED("its strings are not there, or have no end");
  const uint8_t* table = elf_at(elf, dynamic->p_vaddr, dynamic->p_filesz);
  for (Elf64_Dyn entry = {.d_tag = DT_DEBUG}; entry.d_tag != DT_NULL;
       table += sizeof(entry)) {
    memcpy(&entry, table, sizeof(entry));
    if (entry.d_tag == DT_NEEDED || entry.d_tag == DT_SONAME ||
        entry.d_tag == DT_RPATH || entry.d_tag == DT_RUNPATH)
      RABBET_RETURN_IF_ERROR(
          elf_check_string(elf, entry.d_un.d_val, "a library that it needs"));
  }
  return rabbet_ok();
}

// Code that the loader calls.
static rabbet_status_t elf_check_calls(const elf_t* elf) {
  static const int single[] = {DT_INIT, DT_FINI};
  static const int lists[][2] = {{DT_INIT_ARRAY, DT_INIT_ARRAYSZ},
                                 {DT_FINI_ARRAY, DT_FINI_ARRAYSZ}};
  for (size_t i = 0; i < 2; ++i) {
    if (elf->has[single[i]] && !elf_maps(elf, elf->tags[single[i]], 1, PF_X))
      return RABBET_ELF_DAMAGED("a function to call has no code");
    if (elf->has[lists[i][0]] != elf->has[lists[i][1]] ||
        (elf->has[lists[i][0]] &&
         (elf->tags[lists[i][1]] % 8 != 0 ||
          !elf_at(elf, elf->tags[lists[i][0]], elf->tags[lists[i][1]]))))
      return RABBET_ELF_DAMAGED("its list of functions to call is not there");
  }
  return rabbet_ok();
}

// ---- Symbols ----------------------------------------------------------------

static uint32_t elf_word(const uint8_t* words, uint64_t index) {
  uint32_t word = 0;
  memcpy(&word, words + index * sizeof(word), sizeof(word));
  return word;
}

// One past the last symbol that chains of the GNU hash table lead to.
static rabbet_status_t elf_walk_gnu(elf_t* elf, uint64_t buckets,
                                    uint32_t bucket_count, uint32_t first) {
  uint64_t chains = buckets + (uint64_t)bucket_count * 4;
  elf->symbol_count = first;
  for (uint32_t b = 0; b < bucket_count; ++b) {
    uint64_t at = elf_word(elf_at(elf, buckets, (uint64_t)bucket_count * 4), b);
    if (at == 0) continue;
    for (bool last = false; !last; ++at) {
      const uint8_t* word = at < first || at >= RABBET_ELF_MOST
                                ? NULL
                                : elf_at(elf, chains + (at - first) * 4, 4);
      if (!word)
        return RABBET_ELF_DAMAGED(
            "its table of names refers outside of the file");
      last = elf_word(word, 0) & 1;
    }
    if (at > elf->symbol_count) elf->symbol_count = at;
  }
  return rabbet_ok();
}

static rabbet_status_t elf_check_gnu_hash(elf_t* elf) {
  const uint8_t* head = elf_at(elf, elf->gnu_hash, 16);
  uint32_t buckets = head ? elf_word(head, 0) : 0;
  uint32_t first = head ? elf_word(head, 1) : 0;
  uint32_t bloom = head ? elf_word(head, 2) : 0;
  uint64_t table = elf->gnu_hash + 16 + (uint64_t)bloom * 8;
  if (buckets == 0 || bloom == 0 || (bloom & (bloom - 1)) != 0 ||
      first >= RABBET_ELF_MOST ||
      !elf_at(elf, elf->gnu_hash + 16, (uint64_t)bloom * 8) ||
      !elf_at(elf, table, (uint64_t)buckets * 4))
    return RABBET_ELF_DAMAGED("its table of names is not there");
  return elf_walk_gnu(elf, table, buckets, first);
}

// Chains of the older table must end.
static rabbet_status_t elf_check_hash(elf_t* elf) {
  const uint8_t* head = elf_at(elf, elf->tags[DT_HASH], 8);
  uint32_t buckets = head ? elf_word(head, 0) : 0;
  uint32_t symbols = head ? elf_word(head, 1) : 0;
  const uint8_t* table =
      elf_at(elf, elf->tags[DT_HASH] + 8, ((uint64_t)buckets + symbols) * 4);
  if (buckets == 0 || !table)
    return RABBET_ELF_DAMAGED("its table of names is not there");
  uint64_t steps = 0;
  for (uint32_t b = 0; b < buckets; ++b) {
    for (uint32_t at = elf_word(table, b); at != 0;
         at = elf_word(table, (uint64_t)buckets + at))
      if (at >= symbols || ++steps > symbols)
        return RABBET_ELF_DAMAGED(
            "its table of names refers outside of the file");
  }
  if (symbols > elf->symbol_count) elf->symbol_count = symbols;
  return rabbet_ok();
}

// Relocations name symbols that no chain leads to: those of other libraries.
static rabbet_status_t elf_count_symbols(elf_t* elf, int table, int bytes) {
  const uint8_t* list = elf_at(elf, elf->tags[table], elf->tags[bytes]);
  if (elf->has[table] != elf->has[bytes] || !list ||
      elf->tags[bytes] % sizeof(Elf64_Rela) != 0)
    return RABBET_ELF_DAMAGED("its relocations are not there");
  for (uint64_t at = 0; at < elf->tags[bytes]; at += sizeof(Elf64_Rela)) {
    Elf64_Rela relocation;
    memcpy(&relocation, list + at, sizeof(relocation));
    uint64_t symbol = ELF64_R_SYM(relocation.r_info);
    if (symbol >= elf->symbol_count) elf->symbol_count = symbol + 1;
  }
  return elf->symbol_count < RABBET_ELF_MOST
             ? rabbet_ok()
             : RABBET_ELF_DAMAGED("a relocation's symbol is not there");
}

static rabbet_status_t elf_check_symbols(elf_t* elf) {
  if (!elf->gnu_hash && !elf->has[DT_HASH])
    return RABBET_ELF_DAMAGED("it has no table of names");
  if (elf->gnu_hash) RABBET_RETURN_IF_ERROR(elf_check_gnu_hash(elf));
  if (elf->has[DT_HASH]) RABBET_RETURN_IF_ERROR(elf_check_hash(elf));
  if (elf->has[DT_RELA])
    RABBET_RETURN_IF_ERROR(elf_count_symbols(elf, DT_RELA, DT_RELASZ));
  if (elf->has[DT_JMPREL])
    RABBET_RETURN_IF_ERROR(elf_count_symbols(elf, DT_JMPREL, DT_PLTRELSZ));
  const uint8_t* table =
      elf_at(elf, elf->tags[DT_SYMTAB], elf->symbol_count * sizeof(Elf64_Sym));
  if (!table ||
      (elf->has[DT_SYMENT] && elf->tags[DT_SYMENT] != sizeof(Elf64_Sym)))
    return RABBET_ELF_DAMAGED("its symbols are not there");
  for (uint64_t i = 0; i < elf->symbol_count; ++i) {
    Elf64_Sym symbol;
    memcpy(&symbol, table + i * sizeof(symbol), sizeof(symbol));
    RABBET_RETURN_IF_ERROR(elf_check_string(elf, symbol.st_name, "a symbol"));
    int type = ELF64_ST_TYPE(symbol.st_info);
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS ||
        type == STT_TLS || type == STT_SECTION)
      continue;
    bool code = type == STT_FUNC || type == STT_GNU_IFUNC;
    if (!elf_maps(elf, symbol.st_value, 0, code ? PF_X : 0))
      return RABBET_ELF_DAMAGED("symbol '%s' lies outside of it",
                                elf->strings + symbol.st_name);
  }
  return rabbet_ok();
}

// ---- Versions ---------------------------------------------------------------

// Chains of records that lead forwards: common fields of both tables.
typedef struct elf_link_t {
  uint64_t next, parts, part_count, index, name;
} elf_link_t;

static bool elf_read_link(const elf_t* elf, uint64_t at, bool is_need,
                          elf_link_t* out_link) {
  Elf64_Verneed need;
  Elf64_Verdef definition;
  const uint8_t* bytes =
      elf_at(elf, at, is_need ? sizeof(need) : sizeof(definition));
  if (!bytes) return false;
  if (is_need) {
    memcpy(&need, bytes, sizeof(need));
    *out_link =
        (elf_link_t){need.vn_next, need.vn_aux, need.vn_cnt, 0, need.vn_file};
  } else {
    memcpy(&definition, bytes, sizeof(definition));
    *out_link = (elf_link_t){definition.vd_next, definition.vd_aux,
                             definition.vd_cnt, definition.vd_ndx, 0};
  }
  return true;
}

static bool elf_read_part(const elf_t* elf, uint64_t at, bool is_need,
                          elf_link_t* out_part) {
  Elf64_Vernaux need;
  Elf64_Verdaux definition;
  const uint8_t* bytes =
      elf_at(elf, at, is_need ? sizeof(need) : sizeof(definition));
  if (!bytes) return false;
  if (is_need) {
    memcpy(&need, bytes, sizeof(need));
    *out_part =
        (elf_link_t){need.vna_next, 0, 0, need.vna_other, need.vna_name};
  } else {
    memcpy(&definition, bytes, sizeof(definition));
    *out_part = (elf_link_t){definition.vda_next, 0, 0, 0, definition.vda_name};
  }
  return true;
}

// *highest: the highest number of a version.
static rabbet_status_t elf_walk_versions(const elf_t* elf, uint64_t at,
                                         bool is_need, uint64_t* highest) {
  elf_link_t link = {.next = 1}, part = {.next = 1};
  while (at && link.next) {
    if (!elf_read_link(elf, at, is_need, &link) ||
        link.name >= elf->string_bytes)
      return RABBET_ELF_DAMAGED("its versions are not there");
    if (link.index > *highest) *highest = link.index;
    uint64_t from = at + link.parts;
    part.next = link.part_count > 0;
    while (part.next) {
      if (!elf_read_part(elf, from, is_need, &part) ||
          part.name >= elf->string_bytes)
        return RABBET_ELF_DAMAGED("its versions are not there");
      uint64_t index = part.index & 0x7fff;
      if (index > *highest) *highest = index;
      from += part.next;
    }
    at += link.next;
  }
  return rabbet_ok();
}

static rabbet_status_t elf_check_versions(const elf_t* elf) {
  uint64_t highest = 1;
  RABBET_RETURN_IF_ERROR(elf_walk_versions(elf, elf->needed, true, &highest));
  RABBET_RETURN_IF_ERROR(elf_walk_versions(elf, elf->defined, false, &highest));
  if (!elf->versions) return rabbet_ok();
  const uint8_t* table =
      elf_at(elf, elf->versions, elf->symbol_count * sizeof(uint16_t));
  if (!table) return RABBET_ELF_DAMAGED("its symbols' versions are not there");
  for (uint64_t i = 0; i < elf->symbol_count; ++i) {
    uint16_t version = 0;
    memcpy(&version, table + i * sizeof(version), sizeof(version));
    if ((version & 0x7fff) > highest)
      return RABBET_ELF_DAMAGED("symbol %llu has a version that is not there",
                                (unsigned long long)i);
  }
  return rabbet_ok();
}

// ---- Relocations ------------------------------------------------------------

static bool elf_is_relative(uint64_t type, bool* out_calls) {
  *out_calls = false;
  switch (RABBET_ELF_MACHINE) {
    case EM_X86_64:
      *out_calls = type == R_X86_64_IRELATIVE;
      return type == R_X86_64_RELATIVE || *out_calls;
    case EM_AARCH64:
      *out_calls = type == R_AARCH64_IRELATIVE;
      return type == R_AARCH64_RELATIVE || *out_calls;
    default:
      return false;
  }
}

static rabbet_status_t elf_check_relocation(const elf_t* elf,
                                            const Elf64_Rela* r) {
  bool calls = false;
  bool relative = elf_is_relative(ELF64_R_TYPE(r->r_info), &calls);
  // Some libraries have relocations of read-only memory.
  uint32_t rights = elf->has[DT_TEXTREL] || elf->has[DT_FLAGS] ? 0 : PF_W;
  bool fits =
      (ELF64_R_TYPE(r->r_info) == 0 || elf_maps(elf, r->r_offset, 8, rights)) &&
      // One that is relative gives an address of the library.
      (!relative || elf_maps(elf, (uint64_t)r->r_addend, 0, calls ? PF_X : 0));
  return fits ? rabbet_ok()
              : RABBET_ELF_DAMAGED(
                    "a relocation lies outside of it, or leads "
                    "there");
}

// Of lists that are there (elf_count_symbols).
static rabbet_status_t elf_check_list(const elf_t* elf, int table, int bytes) {
  const uint8_t* list = elf_at(elf, elf->tags[table], elf->tags[bytes]);
  for (uint64_t at = 0; elf->has[table] && at < elf->tags[bytes];
       at += sizeof(Elf64_Rela)) {
    Elf64_Rela relocation;
    memcpy(&relocation, list + at, sizeof(relocation));
    RABBET_RETURN_IF_ERROR(elf_check_relocation(elf, &relocation));
  }
  return rabbet_ok();
}

// Tags of which the loader expects all or none.
static bool elf_has_whole_lists(const elf_t* elf) {
  const bool* has = elf->has;
  const uint64_t* tags = elf->tags;
  return has[DT_RELA] == has[DT_RELASZ] && has[DT_RELA] == has[DT_RELAENT] &&
         (!has[DT_RELA] || tags[DT_RELAENT] == sizeof(Elf64_Rela)) &&
         has[DT_JMPREL] == has[DT_PLTRELSZ] &&
         has[DT_JMPREL] == has[DT_PLTREL] &&
         (!has[DT_JMPREL] || tags[DT_PLTREL] == DT_RELA) && !has[DT_REL];
}

static rabbet_status_t elf_check_relocations(const elf_t* elf) {
  // The loader writes three addresses there, of itself.
  bool writes = elf->has[DT_PLTGOT] && elf->has[DT_JMPREL];
  if (writes && !elf_maps(elf, elf->tags[DT_PLTGOT], 24, PF_W))
    return RABBET_ELF_DAMAGED("its table of calls is not there");
  RABBET_RETURN_IF_ERROR(elf_check_list(elf, DT_RELA, DT_RELASZ));
  return elf_check_list(elf, DT_JMPREL, DT_PLTRELSZ);
}

rabbet_status_t rabbet_elf_check(const void* data, size_t size) {
  elf_t elf = {.data = data, .size = size};
  Elf64_Phdr dynamic = {0};
  RABBET_RETURN_IF_ERROR(elf_check_header(&elf));
  RABBET_RETURN_IF_ERROR(elf_check_segments(&elf, &dynamic));
  RABBET_RETURN_IF_ERROR(elf_read_tags(&elf, &dynamic));
  if (!elf_has_whole_lists(&elf) || !elf.has[DT_STRTAB] || !elf.has[DT_SYMTAB])
    return RABBET_ELF_DAMAGED("its dynamic table lacks a part");
  RABBET_RETURN_IF_ERROR(elf_check_strings(&elf, &dynamic));
  RABBET_RETURN_IF_ERROR(elf_check_calls(&elf));
  RABBET_RETURN_IF_ERROR(elf_check_symbols(&elf));
  RABBET_RETURN_IF_ERROR(elf_check_versions(&elf));
  return elf_check_relocations(&elf);
}
