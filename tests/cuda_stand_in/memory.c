// Device memory and pinned host memory: pages of the host, with a page behind
// them that nobody may touch, a pattern in what is left of the last page, and
// nothing given back at once.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_stand_in/internal.h"

#define PAGE ((size_t)4096)
#define GUARD_BYTE 0xA7
// Fresh memory: NaN in every floating type.
#define FRESH_BYTE 0xFF
#define GRAVES 512

static struct {
  allocation_t* list;  // by address
  size_t count, room;
  size_t bytes;  // of the device
  uint64_t last_id;
  allocation_t graves[GRAVES];  // freed lately: still unmapped for all
  size_t next_grave;
} memory;

// The index of the first allocation that begins above `address`.
static size_t memory_above(const void* address) {
  size_t low = 0, high = memory.count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if ((const void*)memory.list[middle].data <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static allocation_t* memory_at(const void* address) {
  size_t above = memory_above(address);
  return above > 0 ? &memory.list[above - 1] : NULL;
}

const allocation_t* memory_find(const void* address, size_t size) {
  const allocation_t* a = memory_at(address);
  if (!a || a->kept) return NULL;
  size_t at = (size_t)((const uint8_t*)address - a->data);
  return at <= a->size && size <= a->size - at ? a : NULL;
}

// Memory of ours that is freed stays mapped, for nobody, until it leaves the
// graves.
static bool memory_is_ours(const uint8_t* at) {
  const allocation_t* a = memory_at(at);
  if (a && at < a->data + a->mapped) return true;
  for (size_t i = 0; i < GRAVES; ++i) {
    const allocation_t* grave = &memory.graves[i];
    if (grave->data && at >= grave->data && at < grave->data + grave->mapped)
      return true;
  }
  return false;
}

bool memory_is_hosts(const void* address) {
  unsigned char resident;
  const uintptr_t page = (uintptr_t)address / PAGE * PAGE;
  return !memory_is_ours(address) &&
         mincore((void*)page, 1, &resident) == 0;  // else it is not mapped
}

const char* memory_describe(const void* address) {
  static char text[160];
  const uint8_t* at = address;
  const allocation_t* a = memory_at(address);
  if (a && at < a->data + a->mapped) {
    snprintf(text, sizeof(text), "%p: byte %zu of %zu that %s", address,
             (size_t)(at - a->data), a->size,
             a->kept    ? "a pool keeps"
             : a->freed ? "are freed in a stream"
                        : "were allocated");
    return text;
  }
  for (size_t i = 0; i < GRAVES; ++i) {
    const allocation_t* grave = &memory.graves[i];
    if (!grave->data || at < grave->data || at >= grave->data + grave->mapped)
      continue;
    snprintf(text, sizeof(text), "%p: byte %zu of %zu that are freed", address,
             (size_t)(at - grave->data), grave->size);
    return text;
  }
  snprintf(text, sizeof(text), "%p, which %s", address,
           memory_is_hosts(address) ? "is the host's own memory"
                                    : "was never allocated");
  return text;
}

CUresult memory_new(size_t size, bool host, void** out_memory) {
  *out_memory = NULL;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!host &&
      (size > context_memory() || memory.bytes > context_memory() - size))
    return CUDA_ERROR_OUT_OF_MEMORY;
  size_t pages = (size + PAGE - 1) / PAGE * PAGE;
  if (memory.count == memory.room) {
    size_t room = 2 * memory.room + 64;
    allocation_t* list = realloc(memory.list, room * sizeof(*list));
    if (!list) return CUDA_ERROR_OUT_OF_MEMORY;
    memory.list = list;
    memory.room = room;
  }
  uint8_t* data = mmap(NULL, pages + PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  mprotect(data + pages, PAGE, PROT_NONE);
  memset(data, FRESH_BYTE, size);
  memset(data + size, GUARD_BYTE, pages - size);
  size_t at = memory_above(data);
  memmove(memory.list + at + 1, memory.list + at,
          (memory.count - at) * sizeof(*memory.list));
  memory.list[at] = (allocation_t){.data = data,
                                   .size = size,
                                   .mapped = pages + PAGE,
                                   .context = context_current,
                                   .id = ++memory.last_id,
                                   .host = host};
  ++memory.count;
  if (!host) memory.bytes += size;
  *out_memory = data;
  return CUDA_SUCCESS;
}

static void memory_check_one(const allocation_t* a, const char* after) {
  uint8_t *begin = a->data + a->size, *end = a->data + a->mapped - PAGE;
  for (uint8_t* at = begin; at < end; ++at) {
    if (*at == GUARD_BYTE) continue;
    misuse("written past the end of an allocation (%s), found at %s",
           memory_describe(at), after);
    memset(begin, GUARD_BYTE, (size_t)(end - begin));  // told once
    return;
  }
}

void memory_check(const char* after) {
  for (size_t i = 0; i < memory.count; ++i)
    if (!memory.list[i].kept) memory_check_one(&memory.list[i], after);
}

static void memory_bury(const allocation_t* a) {
  allocation_t* grave = &memory.graves[memory.next_grave++ % GRAVES];
  if (grave->data) munmap(grave->data, grave->mapped);
  *grave = *a;
  // The pages go, the addresses stay unusable for a while.
  mmap(a->data, a->mapped, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

CUresult memory_delete(void* address, bool host) {
  allocation_t* a = memory_at(address);
  if (!a || a->data != address || a->host != host) {
    misuse("freeing what is no allocation of that kind: %s",
           memory_describe(address));
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!a->kept) memory_check_one(a, "its end");
  if (!host) memory.bytes -= a->size;
  if (a->file) close(a->file);
  memory_bury(a);
  size_t at = (size_t)(a - memory.list);
  --memory.count;
  memmove(memory.list + at, memory.list + at + 1,
          (memory.count - at) * sizeof(*memory.list));
  return CUDA_SUCCESS;
}

void memory_drop(CUcontext context) {
  for (size_t i = memory.count; i-- > 0;)
    if (memory.list[i].context == context && !memory.list[i].pool)
      memory_delete(memory.list[i].data, memory.list[i].host);
}

size_t memory_bytes(void) {
  return memory.bytes;
}
int memory_count(void) {
  int count = 0;
  for (size_t i = 0; i < memory.count; ++i)
    count += !memory.list[i].kept;
  return count;
}

allocation_t* memory_list(size_t* out_count) {
  *out_count = memory.count;
  return memory.list;
}

allocation_t* memory_begin(const void* address) {
  allocation_t* a = memory_at(address);
  return a && a->data == address ? a : NULL;
}

void memory_keep(allocation_t* a, bool kept) {
  if (kept) memory_check_one(a, "its end");
  mprotect(a->data, a->mapped - PAGE,
           kept ? PROT_NONE : PROT_READ | PROT_WRITE);
  a->kept = kept;
}

void memory_report(void) {
  for (size_t i = 0; i < memory.count && i < 16; ++i) {
    if (memory.list[i].kept) continue;
    fprintf(stderr, "  %zu bytes of %s at %p\n", memory.list[i].size,
            memory.list[i].host ? "pinned memory" : "the device",
            (void*)memory.list[i].data);
  }
}

// ---- Entries ---------------------------------------------------------------

static CUresult memory_info(size_t* available, size_t* total) {
  *total = context_memory();
  *available = memory.bytes < *total ? *total - memory.bytes : 0;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuMemGetInfo(size_t* available, size_t* total) {
  ENTRY(cuMemGetInfo, NEEDS_CONTEXT, (" "), memory_info(available, total));
}

static CUresult memory_allocate(CUdeviceptr* address, size_t size) {
  void* data = NULL;
  CUresult result = memory_new(size, false, &data);
  *address = (CUdeviceptr)(uintptr_t)data;
  log_add(", at %p", data);
  return result;
}

CUresult stand_in_cuMemAlloc(CUdeviceptr* address, size_t size) {
  ENTRY(cuMemAlloc, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE, ("size %zu", size),
        memory_allocate(address, size));
}

// The real one, too, waits for the device, but not for memory of a pool.
static CUresult memory_free(CUdeviceptr address) {
  allocation_t* a = memory_begin((void*)(uintptr_t)address);
  if (address == 0) return CUDA_SUCCESS;
  if (a && (a->freed || a->kept)) {
    misuse("freeing what is freed: %s", memory_describe(a->data));
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (a && a->pool) {
    a->freed = true;
    pool_free_done(a->data, a->takes);
    return CUDA_SUCCESS;
  }
  stream_drain_all();
  return memory_delete((void*)(uintptr_t)address, false);
}

CUresult stand_in_cuMemFree(CUdeviceptr address) {
  ENTRY(cuMemFree, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE | RELEASES,
        ("%p", (void*)(uintptr_t)address), memory_free(address));
}

CUresult stand_in_cuMemHostAlloc(void** address, size_t size, unsigned flags) {
  ENTRY(cuMemHostAlloc, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE,
        ("size %zu, flags %u", size, flags), memory_new(size, true, address));
}

static CUresult memory_free_host(void* address) {
  stream_drain_all();
  return memory_delete(address, true);
}

CUresult stand_in_cuMemFreeHost(void* address) {
  ENTRY(cuMemFreeHost, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE | RELEASES,
        ("%p", address), memory_free_host(address));
}

// The real one, too, answers without a context, and for any address.
static CUresult memory_attribute(void* data, int attribute,
                                 CUdeviceptr address) {
  const allocation_t* a = memory_find((void*)(uintptr_t)address, 1);
  if (!a || attribute != CU_POINTER_ATTRIBUTE_BUFFER_ID)
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(data, &a->id, sizeof(a->id));
  return CUDA_SUCCESS;
}

CUresult stand_in_cuPointerGetAttribute(void* data, int attribute,
                                        CUdeviceptr address) {
  ENTRY(cuPointerGetAttribute, 0,
        ("%d of %p", attribute, (void*)(uintptr_t)address),
        memory_attribute(data, attribute, address));
}

// ---- Memory of other processes: files that /proc shows them -----------------

typedef struct shared_memory_t {
  int32_t process, file;
  uint64_t size;
} shared_memory_t;

static CUresult memory_share(CUipcMemHandle* handle, CUdeviceptr address) {
  allocation_t* a = memory_begin((void*)(uintptr_t)address);
  if (!a || a->host || a->pool || a->theirs) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = a->mapped - PAGE;
  if (!a->file) {
    stream_drain_all();
    int file = memfd_create("stand-in", 0);
    if (file <= 0 || write(file, a->data, bytes) != (ssize_t)bytes ||
        mmap(a->data, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             file, 0) == MAP_FAILED)
      return CUDA_ERROR_OUT_OF_MEMORY;
    a->file = file;
  }
  const shared_memory_t shared = {
      .process = (int32_t)getpid(), .file = a->file, .size = a->size};
  memcpy(handle, &shared, sizeof(shared));
  return CUDA_SUCCESS;
}

static CUresult memory_open(CUdeviceptr* address,
                            const CUipcMemHandle* handle) {
  shared_memory_t shared;
  char path[64];
  void* data = NULL;
  memcpy(&shared, handle, sizeof(shared));
  if (shared.process == (int32_t)getpid()) return CUDA_ERROR_INVALID_VALUE;
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", shared.process, shared.file);
  int file = open(path, O_RDWR);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = memory_new((size_t)shared.size, false, &data);
  allocation_t* a = result == CUDA_SUCCESS ? memory_begin(data) : NULL;
  if (a && mmap(data, a->mapped - PAGE, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  close(file);
  if (a) a->theirs = true;
  *address = (CUdeviceptr)(uintptr_t)data;
  return result;
}

CUresult stand_in_cuIpcGetMemHandle(CUipcMemHandle* handle,
                                    CUdeviceptr address) {
  ENTRY(cuIpcGetMemHandle, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE,
        ("%p", (void*)(uintptr_t)address), memory_share(handle, address));
}

CUresult stand_in_cuIpcOpenMemHandle(CUdeviceptr* address,
                                     CUipcMemHandle handle, unsigned flags) {
  ENTRY(cuIpcOpenMemHandle, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE,
        ("flags %u", flags), memory_open(address, &handle));
}

static CUresult memory_close(CUdeviceptr address) {
  allocation_t* a = memory_begin((void*)(uintptr_t)address);
  if (!a || !a->theirs) {
    misuse("closing what is no other process's: %s",
           memory_describe((void*)(uintptr_t)address));
    return CUDA_ERROR_INVALID_VALUE;
  }
  stream_drain_all();
  return memory_delete(a->data, false);
}

CUresult stand_in_cuIpcCloseMemHandle(CUdeviceptr address) {
  ENTRY(cuIpcCloseMemHandle, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE | RELEASES,
        ("%p", (void*)(uintptr_t)address), memory_close(address));
}
