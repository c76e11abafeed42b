#include "device/cuda/driver/memory_pool.h"

#include <assert.h>
#include <string.h>

// pools_lock guards references and the list, `lock` all other fields. No thread
// waits for the GPU while it holds `lock`: a thread that waits for `lock` may
// hold another lock that the GPU waits for (in a host callback; Python's GIL).
struct rabbet_cuda_pool_t {
  rabbet_cuda_pool_t* next;
  int ordinal;
  size_t references;
  pthread_mutex_t lock;
  CUmemoryPool handle;  // NULL until used
  // Memory that was freed while the GPU might still use it. Its capacity is at
  // least `taken`, so that retiring cannot fail.
  CUdeviceptr* retired;
  size_t retired_count, room;
  size_t taken;  // allocations in use, with the retired ones
  int recordings;
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static rabbet_cuda_pool_t* pools;

// ---- Opening and closing ---------------------------------------------------

static rabbet_cuda_pool_t* pool_find(int ordinal) {
  rabbet_cuda_pool_t* pool = pools;
  while (pool && pool->ordinal != ordinal)
    pool = pool->next;
  return pool;
}

// Uses the system's allocator, as the pool may outlive the first device's.
static rabbet_status_t pool_new(int ordinal, rabbet_cuda_pool_t** out_pool) {
  RABBET_RETURN_IF_ERROR(rabbet_allocate(rabbet_allocator_system(),
                                         sizeof(**out_pool), (void**)out_pool));
  rabbet_cuda_pool_t* pool = *out_pool;
  pool->ordinal = ordinal;
  pool->next = pools;
  pthread_mutex_init(&pool->lock, NULL);
  pools = pool;
  return rabbet_ok();
}

rabbet_status_t rabbet_cuda_pool_open(rabbet_cuda_device_t* device) {
  int supported = 0;
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(device->driver, cuDeviceGetAttribute,
                  (&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
                   device->device)));
  // A pool's memory is not freed with a context that the program destroys.
  if (!supported || !device->primary) return rabbet_ok();
  pthread_mutex_lock(&pools_lock);
  rabbet_cuda_pool_t* pool = pool_find(device->ordinal);
  rabbet_status_t status =
      pool ? rabbet_ok() : pool_new(device->ordinal, &pool);
  if (rabbet_is_ok(status)) {
    ++pool->references;
    device->pool = pool;
  }
  pthread_mutex_unlock(&pools_lock);
  return status;
}

static bool pool_unlink(rabbet_cuda_pool_t* pool) {
  pthread_mutex_lock(&pools_lock);
  assert(pool->references > 0);
  bool last = --pool->references == 0;
  rabbet_cuda_pool_t** at = &pools;
  while (last && *at != pool)
    at = &(*at)->next;
  if (last) *at = pool->next;
  pthread_mutex_unlock(&pools_lock);
  return last;
}

void rabbet_cuda_pool_close(rabbet_cuda_device_t* device, bool inside) {
  rabbet_cuda_pool_t* pool = device->pool;
  if (!pool || !pool_unlink(pool)) return;
  const rabbet_cuda_driver_t* driver = device->driver;
  assert(pool->recordings == 0 && pool->retired_count <= pool->taken);
  if (inside && pool->retired_count > 0) {
    driver->cuCtxSynchronize();
    for (size_t i = 0; i < pool->retired_count; ++i)
      driver->cuMemFree(pool->retired[i]);
  }
  if (pool->handle) driver->cuMemPoolDestroy(pool->handle);
  rabbet_free(rabbet_allocator_system(), pool->retired);
  pthread_mutex_destroy(&pool->lock);
  rabbet_free(rabbet_allocator_system(), pool);
}

// The threshold has no limit, so that waiting for the GPU keeps freed memory.
static rabbet_status_t pool_create(const rabbet_cuda_device_t* device,
                                   CUmemoryPool* handle) {
  const rabbet_cuda_driver_t* driver = device->driver;
  CUmemPoolProps properties = {
      .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
      .handleTypes = CU_MEM_HANDLE_TYPE_NONE,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->device}};
  CUmemoryPool pool = NULL;
  uint64_t threshold = UINT64_MAX;
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(driver, cuMemPoolCreate, (&pool, &properties)));
  rabbet_status_t status =
      RABBET_CUDA(driver, cuMemPoolSetAttribute,
                  (pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  if (rabbet_is_ok(status))
    *handle = pool;
  else
    driver->cuMemPoolDestroy(pool);
  return status;
}

// ---- Retired memory --------------------------------------------------------

// Waits for the GPU, after which out_memory[0, result) is unused. Waiting would
// invalidate a recording, so nothing is done while one of ours is active; if
// one begins meanwhile, the wait fails, and the memory stays retired.
static size_t pool_settle(rabbet_cuda_device_t* device,
                          CUdeviceptr** out_memory) {
  rabbet_cuda_pool_t* pool = device->pool;
  size_t count = 0, bytes = 0;
  *out_memory = NULL;
  pthread_mutex_lock(&pool->lock);
  if (pool->recordings == 0) count = pool->retired_count;
  bytes = count * sizeof(**out_memory);
  rabbet_status_t status =
      count ? rabbet_allocate(device->base.allocator, bytes, (void**)out_memory)
            : rabbet_ok();
  if (!rabbet_is_ok(status)) count = 0;
  if (count > 0) {
    memcpy(*out_memory, pool->retired, bytes);
    pool->retired_count = 0;
  }
  pthread_mutex_unlock(&pool->lock);
  rabbet_status_ignore(status);  // the memory stays retired
  if (count == 0 || device->driver->cuCtxSynchronize() == CUDA_SUCCESS)
    return count;
  pthread_mutex_lock(&pool->lock);
  assert(pool->retired_count + count <= pool->taken);
  memcpy(pool->retired + pool->retired_count, *out_memory, bytes);
  pool->retired_count += count;
  pthread_mutex_unlock(&pool->lock);
  rabbet_free(device->base.allocator, *out_memory);
  *out_memory = NULL;
  return 0;
}

static void pool_untake(rabbet_cuda_pool_t* pool, size_t count) {
  pthread_mutex_lock(&pool->lock);
  assert(count <= pool->taken && pool->retired_count <= pool->taken - count);
  pool->taken -= count;
  pthread_mutex_unlock(&pool->lock);
}

// Frees the retired memory on `stream`, whose next allocation can reuse it.
static void pool_reclaim(rabbet_cuda_device_t* device, CUstream stream) {
  CUdeviceptr* memory = NULL;
  size_t count = pool_settle(device, &memory);
  for (size_t i = 0; i < count; ++i)
    device->driver->cuMemFreeAsync(memory[i], stream);
  if (count > 0) pool_untake(device->pool, count);
  rabbet_free(device->base.allocator, memory);
}

bool rabbet_cuda_pool_trim(rabbet_cuda_device_t* device) {
  rabbet_cuda_pool_t* pool = device->pool;
  CUdeviceptr* memory = NULL;
  if (!pool) return false;
  pthread_mutex_lock(&pool->lock);
  CUmemoryPool handle = pool->handle;
  pthread_mutex_unlock(&pool->lock);
  if (!handle) return false;
  size_t count = pool_settle(device, &memory);
  // The GPU is idle, so cuMemFree does not block.
  for (size_t i = 0; i < count; ++i)
    device->driver->cuMemFree(memory[i]);
  if (count > 0) pool_untake(pool, count);
  rabbet_free(device->base.allocator, memory);
  return device->driver->cuMemPoolTrimTo(handle, 0) == CUDA_SUCCESS;
}

void rabbet_cuda_pool_recording(rabbet_cuda_device_t* device, int change) {
  if (!device->pool) return;
  pthread_mutex_lock(&device->pool->lock);
  device->pool->recordings += change;
  assert(device->pool->recordings >= 0);
  pthread_mutex_unlock(&device->pool->lock);
}

// ---- Taking and giving back ------------------------------------------------

static rabbet_status_t pool_reserve(rabbet_cuda_pool_t* pool) {
  assert(pool->taken <= pool->room);
  size_t room = 2 * pool->room + 16;
  if (pool->taken < pool->room) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_reallocate(rabbet_allocator_system(),
                                           room * sizeof(*pool->retired),
                                           (void**)&pool->retired));
  pool->room = room;
  return rabbet_ok();
}

// Counts one more allocation and reserves room to retire it.
static rabbet_status_t pool_begin(rabbet_cuda_device_t* device) {
  rabbet_cuda_pool_t* pool = device->pool;
  pthread_mutex_lock(&pool->lock);
  rabbet_status_t status =
      pool->handle ? rabbet_ok() : pool_create(device, &pool->handle);
  if (rabbet_is_ok(status)) status = pool_reserve(pool);
  if (rabbet_is_ok(status)) ++pool->taken;
  pthread_mutex_unlock(&pool->lock);
  return status;
}

// Refuses a stream that is being recorded: the allocation would become a part
// of the graph.
static rabbet_status_t pool_check_stream(const rabbet_cuda_device_t* device,
                                         CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(device->driver, cuStreamIsCapturing, (stream, &status)));
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_FAILED_PRECONDITION,
      "the stream is being captured into a CUDA graph, of which memory of a "
      "call cannot be a part: capture calls on arrays of torch or CuPy whose "
      "outputs have known sizes, or a context with addresses that are set");
}

static rabbet_status_t pool_take(rabbet_cuda_device_t* device, size_t size,
                                 CUstream stream, CUdeviceptr* out_memory) {
  const rabbet_cuda_driver_t* driver = device->driver;
  RABBET_RETURN_IF_ERROR(pool_check_stream(device, stream));
  RABBET_RETURN_IF_ERROR(pool_begin(device));
  pool_reclaim(device, stream);
  CUmemoryPool handle = device->pool->handle;
  CUresult result =
      driver->cuMemAllocFromPoolAsync(out_memory, size, handle, stream);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    // Memory freed on a stream is available once the stream is idle.
    driver->cuStreamSynchronize(stream);
    if (rabbet_cuda_pool_trim(device))
      result =
          driver->cuMemAllocFromPoolAsync(out_memory, size, handle, stream);
  }
  if (result != CUDA_SUCCESS) pool_untake(device->pool, 1);
  return rabbet_cuda_driver_check(driver, result, "cuMemAllocFromPoolAsync");
}

rabbet_status_t rabbet_cuda_allocate_async(rabbet_device_t* base, size_t size,
                                           void* stream, void** out_memory) {
  rabbet_cuda_device_t* device = rabbet_cuda(base);
  CUcontext before = NULL;
  CUdeviceptr memory = 0;
  if (!device->pool) return base->vtable->allocate(base, size, out_memory);
  *out_memory = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(device, &before));
  rabbet_status_t status =
      pool_take(device, size > 0 ? size : 1, (CUstream)stream, &memory);
  if (!rabbet_is_ok(status))
    status = rabbet_cuda_explain_memory(device, status, size);
  rabbet_cuda_leave(device, before);
  if (rabbet_is_ok(status)) *out_memory = (void*)(uintptr_t)memory;
  return status;
}

void rabbet_cuda_free_async(rabbet_device_t* base, void* memory, void* stream) {
  const rabbet_cuda_device_t* device = rabbet_cuda(base);
  if (!memory) return;
  if (!device->pool) {
    base->vtable->free(base, memory);
    return;
  }
  rabbet_status_ignore(RABBET_CUDA_INSIDE(
      device, cuMemFreeAsync, ((CUdeviceptr)(uintptr_t)memory, stream)));
  pool_untake(device->pool, 1);
}

void rabbet_cuda_retire(rabbet_device_t* base, void* memory) {
  rabbet_cuda_pool_t* pool = rabbet_cuda(base)->pool;
  if (!memory) return;
  if (!pool) {
    base->vtable->free(base, memory);
    return;
  }
  pthread_mutex_lock(&pool->lock);
  assert(pool->retired_count < pool->taken && pool->taken <= pool->room);
  pool->retired[pool->retired_count++] = (CUdeviceptr)(uintptr_t)memory;
  pthread_mutex_unlock(&pool->lock);
}
