// Memory in stream order. What a pool has back it keeps, at its address: a
// taker on the same stream has it at once, as the stream orders them, others
// when the free was done. Fresh contents, also of memory that is taken again,
// are all ones.
#include <stdlib.h>

#include "cuda_stand_in/internal.h"

#define FRESH_BYTE 0xFF

struct CUmemPoolHandle_st {
  CUmemoryPool next;
  uint64_t threshold;
};

static CUmemoryPool pools;

static bool pool_exists(CUmemoryPool pool) {
  for (CUmemoryPool at = pools; at; at = at->next)
    if (at == pool) return true;
  misuse("pool %p is gone, or never was", (void*)pool);
  return false;
}

int pool_count(void) {
  int count = 0;
  for (CUmemoryPool at = pools; at; at = at->next)
    ++count;
  return count;
}

static uint64_t pool_reserved(CUmemoryPool pool) {
  size_t count = 0;
  const allocation_t* list = memory_list(&count);
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; ++i)
    if (list[i].pool == pool) bytes += list[i].size;
  return bytes;
}

static allocation_t* pool_any_kept(CUmemoryPool pool) {
  size_t count = 0;
  allocation_t* list = memory_list(&count);
  for (size_t i = 0; i < count; ++i)
    if (list[i].pool == pool && list[i].kept) return &list[i];
  return NULL;
}

static void pool_trim(CUmemoryPool pool, uint64_t bytes) {
  allocation_t* kept = NULL;
  while (pool_reserved(pool) > bytes && (kept = pool_any_kept(pool)) != NULL)
    memory_delete(kept->data, false);
}

void pool_waited(void) {
  for (CUmemoryPool pool = pools; pool; pool = pool->next)
    pool_trim(pool, pool->threshold);
}

void pool_free_done(void* memory, uint64_t takes) {
  allocation_t* a = memory_begin(memory);
  if (!a || a->takes != takes) return;  // it was taken again meanwhile
  if (a->pool)
    memory_keep(a, true);
  else
    memory_delete(memory, false);
}

// ---- Taking and giving back ------------------------------------------------

static allocation_t* pool_find(CUmemoryPool pool, size_t size,
                               CUstream stream) {
  size_t count = 0;
  allocation_t* list = memory_list(&count);
  for (size_t i = 0; i < count; ++i) {
    allocation_t* a = &list[i];
    if (a->pool == pool && a->size == size && a->freed &&
        (a->kept || a->freed_on == stream))
      return a;
  }
  return NULL;
}

static CUresult pool_renew(allocation_t* a, CUstream stream) {
  if (a->kept) memory_keep(a, false);
  a->freed = false;
  a->freed_on = NULL;
  a->context = context_current;
  ++a->takes;
  op_t op = {
      .type = OP_FILL, .target = a->data, .byte = FRESH_BYTE, .size = a->size};
  return stream_submit(stream, &op);
}

// `pool` NULL: memory of no pool that anybody could trim.
static CUresult pool_take(CUdeviceptr* address, size_t size, CUmemoryPool pool,
                          CUstream handle) {
  *address = 0;
  CUstream stream = stream_resolve(handle);
  if (!stream) return ERROR_INVALID_HANDLE;
  if (stream->capture) {
    capture_invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  allocation_t* found = pool ? pool_find(pool, size, stream) : NULL;
  void* data = found ? found->data : NULL;
  CUresult result =
      found ? pool_renew(found, handle) : memory_new(size, false, &data);
  if (result != CUDA_SUCCESS) return result;
  memory_begin(data)->pool = pool;
  *address = (CUdeviceptr)(uintptr_t)data;
  log_add(", at %p", data);
  return CUDA_SUCCESS;
}

CUresult stand_in_cuMemAllocAsync(CUdeviceptr* address, size_t size,
                                  CUstream stream) {
  ENTRY(cuMemAllocAsync, NEEDS_CONTEXT,
        ("size %zu, stream %d", size, stream_number(stream)),
        pool_take(address, size, NULL, stream));
}

CUresult stand_in_cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t size,
                                          CUmemoryPool pool, CUstream stream) {
  ENTRY(cuMemAllocFromPoolAsync, NEEDS_CONTEXT,
        ("size %zu, stream %d", size, stream_number(stream)),
        pool_exists(pool) ? pool_take(address, size, pool, stream)
                          : CUDA_ERROR_INVALID_VALUE);
}

static CUresult pool_give(CUdeviceptr address, CUstream handle) {
  void* data = (void*)(uintptr_t)address;
  allocation_t* a = memory_begin(data);
  CUstream stream = stream_resolve(handle);
  if (!a || a->host || a->freed) {
    misuse("freeing what is no device memory: %s", memory_describe(data));
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!stream) return ERROR_INVALID_HANDLE;
  if (stream->capture) {
    capture_invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  a->freed = true;
  a->freed_on = stream;
  op_t op = {.type = OP_FREE, .target = data, .size = a->takes};
  return stream_submit(handle, &op);
}

CUresult stand_in_cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  ENTRY(cuMemFreeAsync, NEEDS_CONTEXT | RELEASES,
        ("%p, stream %d", (void*)(uintptr_t)address, stream_number(stream)),
        pool_give(address, stream));
}

// ---- Pools -----------------------------------------------------------------

static CUresult pool_create(CUmemoryPool* out_pool,
                            const CUmemPoolProps* properties) {
  *out_pool = NULL;
  if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      !context_of_device(properties->location.id))
    return CUDA_ERROR_INVALID_VALUE;
  CUmemoryPool pool = calloc(1, sizeof(*pool));
  if (!pool) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->next = pools;
  pools = pool;
  *out_pool = pool;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuMemPoolCreate(CUmemoryPool* pool,
                                  const CUmemPoolProps* properties) {
  ENTRY(cuMemPoolCreate, 0, ("device %d", properties->location.id),
        pool_create(pool, properties));
}

// Blocks that somebody still has go when they are freed.
static CUresult pool_destroy(CUmemoryPool pool) {
  if (!pool_exists(pool)) return CUDA_ERROR_INVALID_VALUE;
  pool_trim(pool, 0);
  size_t count = 0;
  allocation_t* list = memory_list(&count);
  for (size_t i = 0; i < count; ++i)
    if (list[i].pool == pool) list[i].pool = NULL;
  CUmemoryPool* at = &pools;
  while (*at != pool)
    at = &(*at)->next;
  *at = pool->next;
  free(pool);
  return CUDA_SUCCESS;
}

CUresult stand_in_cuMemPoolDestroy(CUmemoryPool pool) {
  ENTRY(cuMemPoolDestroy, RELEASES, ("%p", (void*)pool), pool_destroy(pool));
}

static CUresult pool_set(CUmemoryPool pool, CUmemPool_attribute attribute,
                         const void* value) {
  if (!pool_exists(pool) || attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    return CUDA_ERROR_INVALID_VALUE;
  pool->threshold = *(const uint64_t*)value;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuMemPoolSetAttribute(CUmemoryPool pool,
                                        CUmemPool_attribute attribute,
                                        void* value) {
  ENTRY(cuMemPoolSetAttribute, 0, ("%d of %p", attribute, (void*)pool),
        pool_set(pool, attribute, value));
}

static CUresult pool_trim_to(CUmemoryPool pool, size_t bytes) {
  if (!pool_exists(pool)) return CUDA_ERROR_INVALID_VALUE;
  pool_trim(pool, bytes);
  return CUDA_SUCCESS;
}

CUresult stand_in_cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes) {
  ENTRY(cuMemPoolTrimTo, 0, ("%p to %zu bytes", (void*)pool, bytes),
        pool_trim_to(pool, bytes));
}
