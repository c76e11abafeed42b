#include "faults/fault_allocator.h"

#include "base/status.h"
#include "check.h"

#define RABBET_FAULT_MOST_CALLS 1000000
#define RABBET_FAULT_NEW 0xcd
#define RABBET_FAULT_FREED 0xdd

typedef struct rabbet_fault_block_t {
  struct rabbet_fault_block_t* next;
  unsigned char* data;
  size_t size, alignment;
  int64_t call;  // that made it
} rabbet_fault_block_t;

static void rabbet_fault_misuse(const char* what, const void* data) {
  fprintf(stderr, "fault allocator: %s: %p\n", what, data);
  abort();
}

static rabbet_fault_block_t** rabbet_fault_bucket(
    rabbet_fault_allocator_t* fault, const void* data) {
  return &fault->buckets[((uintptr_t)data >> 4) % RABBET_FAULT_BUCKETS];
}

static rabbet_fault_block_t* rabbet_fault_add(rabbet_fault_allocator_t* fault,
                                              size_t size, size_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0)
    rabbet_fault_misuse("alignment is no power of two", (void*)alignment);
  rabbet_fault_block_t* block = malloc(sizeof(*block));
  void* data = NULL;
  size_t least = alignment < sizeof(void*) ? sizeof(void*) : alignment;
  if (!block || posix_memalign(&data, least, size) != 0) {
    free(block);
    return NULL;
  }
  memset(data, RABBET_FAULT_NEW, size);
  rabbet_fault_block_t** bucket = rabbet_fault_bucket(fault, data);
  *block = (rabbet_fault_block_t){.next = *bucket,
                                  .data = data,
                                  .size = size,
                                  .alignment = alignment,
                                  .call = fault->calls - 1};
  *bucket = block;
  ++fault->live_blocks;
  fault->live_bytes += size;
  if (fault->live_bytes > fault->peak_bytes)
    fault->peak_bytes = fault->live_bytes;
  return block;
}

static rabbet_fault_block_t** rabbet_fault_find(rabbet_fault_allocator_t* fault,
                                                const void* data) {
  rabbet_fault_block_t** link = rabbet_fault_bucket(fault, data);
  while (*link && (*link)->data != data)
    link = &(*link)->next;
  return link;
}

static void rabbet_fault_remove(rabbet_fault_allocator_t* fault,
                                const void* data) {
  rabbet_fault_block_t** link = rabbet_fault_find(fault, data);
  rabbet_fault_block_t* block = *link;
  *link = block->next;
  --fault->live_blocks;
  fault->live_bytes -= block->size;
  memset(block->data, RABBET_FAULT_FREED, block->size);
  free(block->data);
  free(block);
}

static bool rabbet_fault_should_fail(rabbet_fault_allocator_t* fault) {
  int64_t call = fault->calls++;
  bool fail = fault->fail_at >= 0 &&
              (call == fault->fail_at ||
               (fault->fail_ever_after && call > fault->fail_at));
  fault->failed += fail;
  return fail;
}

static void* rabbet_fault_resize_locked(rabbet_fault_allocator_t* fault,
                                        void* data, size_t size,
                                        size_t alignment) {
  rabbet_fault_block_t* old = data ? *rabbet_fault_find(fault, data) : NULL;
  if (data && !old) rabbet_fault_misuse("freed twice, or not from here", data);
  if (old && old->alignment != alignment)
    rabbet_fault_misuse("alignment differs from that of its allocation", data);
  if (size == 0) {
    if (data) rabbet_fault_remove(fault, data);
    return NULL;
  }
  if (rabbet_fault_should_fail(fault)) return NULL;
  rabbet_fault_block_t* block = rabbet_fault_add(fault, size, alignment);
  if (!block) return NULL;
  if (old) {
    memcpy(block->data, old->data, old->size < size ? old->size : size);
    rabbet_fault_remove(fault, data);
  }
  return block->data;
}

static void* rabbet_fault_resize(void* self, void* data, size_t size,
                                 size_t alignment) {
  rabbet_fault_allocator_t* fault = self;
  pthread_mutex_lock(&fault->lock);
  void* resized = rabbet_fault_resize_locked(fault, data, size, alignment);
  pthread_mutex_unlock(&fault->lock);
  return resized;
}

void rabbet_fault_initialize(int64_t fail_at, bool fail_ever_after,
                             rabbet_fault_allocator_t* out_fault) {
  *out_fault = (rabbet_fault_allocator_t){.fail_at = fail_at,
                                          .fail_ever_after = fail_ever_after};
  pthread_mutex_init(&out_fault->lock, NULL);
}

rabbet_allocator_t rabbet_fault_allocator(rabbet_fault_allocator_t* fault) {
  return (rabbet_allocator_t){.self = fault, .resize = rabbet_fault_resize};
}

void rabbet_fault_deinitialize(rabbet_fault_allocator_t* fault) {
  size_t leaked = fault->live_blocks;
  for (size_t i = 0; i < RABBET_FAULT_BUCKETS; ++i) {
    while (fault->buckets[i]) {
      const rabbet_fault_block_t* block = fault->buckets[i];
      print_error("leaked: %zu bytes of allocation %lld\n", block->size,
                  (long long)block->call);
      rabbet_fault_remove(fault, block->data);
    }
  }
  pthread_mutex_destroy(&fault->lock);
  if (leaked)
    fail_msg("%zu blocks leaked; allocation %lld was made to fail", leaked,
             (long long)fault->fail_at);
}

static bool rabbet_fault_outcome_ok(rabbet_status_code_t code, bool failed,
                                    bool tolerant) {
  if (!failed) return code == RABBET_STATUS_OK;
  return code == RABBET_STATUS_OUT_OF_MEMORY ||
         (tolerant && code == RABBET_STATUS_OK);
}

// One run; returns whether an allocation was made to fail.
static bool rabbet_fault_try(rabbet_fault_body_t body, void* user_data,
                             int64_t fail_at, bool ever_after, bool tolerant,
                             int64_t* out_calls) {
  // Static, since an assertion that fails in `body` leaves by longjmp.
  static rabbet_fault_allocator_t fault, statuses;
  static rabbet_allocator_t status_allocator;
  rabbet_fault_initialize(fail_at, ever_after, &fault);
  rabbet_fault_initialize(ever_after ? 0 : -1, true, &statuses);
  status_allocator = rabbet_fault_allocator(&statuses);
  rabbet_status_use_test_allocator(&status_allocator);
  rabbet_status_t status = body(rabbet_fault_allocator(&fault), user_data);
  rabbet_status_code_t code = rabbet_status_code(status);
  char message[512];
  snprintf(message, sizeof(message), "%s", rabbet_status_message(status));
  rabbet_status_free(status);
  rabbet_status_use_test_allocator(NULL);
  bool failed = fault.failed > 0;
  *out_calls = fault.calls;
  rabbet_fault_deinitialize(&fault);
  rabbet_fault_deinitialize(&statuses);
  if (!rabbet_fault_outcome_ok(code, failed, tolerant))
    fail_msg("allocation %lld %s, and the result was %s: %s",
             (long long)fail_at, failed ? "failed" : "was never made",
             rabbet_status_code_name(code), message);
  return failed;
}

static int64_t rabbet_fault_run_all(rabbet_fault_body_t body, void* user_data,
                                    bool tolerant) {
  int64_t calls = 0;
  for (int ever_after = 0; ever_after < 2; ++ever_after) {
    int64_t at = 0;
    while (
        rabbet_fault_try(body, user_data, at, ever_after, tolerant, &calls)) {
      if (++at > RABBET_FAULT_MOST_CALLS)
        fail_msg("more than %d allocations", RABBET_FAULT_MOST_CALLS);
    }
  }
  return calls;
}

int64_t rabbet_fault_run(rabbet_fault_body_t body, void* user_data) {
  return rabbet_fault_run_all(body, user_data, false);
}

int64_t rabbet_fault_run_tolerant(rabbet_fault_body_t body, void* user_data) {
  return rabbet_fault_run_all(body, user_data, true);
}
