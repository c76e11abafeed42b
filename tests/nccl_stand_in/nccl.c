// A stand-in for NCCL: ranks are processes, which exchange through files of
// /dev/shm, in the streams of the stand-in driver. README.md.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "cuda_stand_in/numbers.h"
#include "cuda_stand_in/services.h"
#include "device/cuda/nccl/nccl_api.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  MAX_RANKS = 16,
  SLOT_BYTES = 2 << 20,  // of a rank's data
  MAX_MESSAGES = 64,     // of a rank in a group of sends and receives
  HANG_SECONDS = 120,    // a test that hangs ends
};

typedef enum kind_t {
  ALL_REDUCE,
  REDUCE,
  REDUCE_SCATTER,
  ALL_GATHER,
  BROADCAST,
  MESSAGES,
  SPLIT,
} kind_t;

// What ranks must agree on.
typedef struct question_t {
  int32_t kind, type, op, root;
  uint64_t count;
} question_t;

typedef struct slot_t {
  _Atomic uint64_t posted, done;  // exchanges of this rank
  question_t question;
  struct {
    int32_t peer;
    uint64_t offset, size;
  } messages[MAX_MESSAGES];
  int32_t message_count;
  uint8_t data[SLOT_BYTES];
} slot_t;

typedef struct shared_t {
  _Atomic int32_t joined;
  slot_t slots[2][MAX_RANKS];  // of exchanges on the host, in streams
} shared_t;

struct ncclComm {
  char name[64];
  shared_t* shared;
  int rank, ranks, splits;
  bool blocking;
  uint64_t turns[2];  // exchanges begun
  _Atomic int aborted;
  _Atomic int error;  // ncclResult_t that polls tell
  _Atomic int running;
  atomic_bool splitting;
};

static __thread int group_depth;
static __thread struct {
  bool send;
  const void* memory;
  size_t size;
  int peer;
  ncclComm_t comm;
  cudaStream_t stream;
} grouped[2 * MAX_MESSAGES];
static __thread int grouped_count;
// The first error of a call within the group, which then does nothing.
static __thread ncclResult_t group_error;

// ---- Faults
// ------------------------------------------------------------------

// RABBET_STAND_IN_NCCL_FAULT is "WHAT NUMBER RESULT RANK": the call WHAT (a
// function's name; "run": an exchange in a stream) number NUMBER (from 0) of
// the rank fails with RESULT; of "run": -1 ends the process, -2 is asleep for
// ever, another is told by ncclCommGetAsyncError while the exchange waits.
static int fault(const char* what, int rank) {
  static _Atomic int seen;
  char name[32] = "";
  int number = -1, result = 0, of = -1;
  const char* text = getenv("RABBET_STAND_IN_NCCL_FAULT");
  if (!text ||
      sscanf(text, "%31s %d %d %d", name, &number, &result, &of) != 4 ||
      strcmp(name, what) != 0 || (of >= 0 && rank >= 0 && of != rank))
    return 0;
  return atomic_fetch_add(&seen, 1) == number ? result : 0;
}

static ncclResult_t begin_call(const char* name, ncclComm_t comm) {
  int result = fault(name, comm ? comm->rank : -1);
  if (result) return result;
  return stand_in_services()->call(name, "") == CUDA_SUCCESS
             ? ncclSuccess
             : ncclInternalError;
}

static void misuse(const char* text) {
  stand_in_services()->misuse(text);
}

// ---- Waiting
// -----------------------------------------------------------------

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_briefly(void) {
  const struct timespec t = {.tv_nsec = 50000};
  nanosleep(&t, NULL);
}

// Until every rank's counter is at least `turn`; false: aborted.
static bool wait_for_all(ncclComm_t comm, int channel, bool done,
                         uint64_t turn) {
  double begin = now();
  for (int r = 0; r < comm->ranks; ++r) {
    slot_t* slot = &comm->shared->slots[channel][r];
    while (atomic_load(done ? &slot->done : &slot->posted) < turn) {
      if (atomic_load(&comm->aborted)) return false;
      if (now() - begin > HANG_SECONDS) abort();
      pause_briefly();
    }
  }
  return true;
}

// ---- Numbers
// -----------------------------------------------------------------

static size_t type_size(ncclDataType_t type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

static double load(ncclDataType_t type, const uint8_t* at) {
  union {
    uint16_t half;
    int32_t int32;
    float real;
    double wide;
  } x;
  memcpy(&x, at, type_size(type));
  switch (type) {
    case ncclInt8:
      return (int8_t)*at;
    case ncclUint8:
      return *at;
    case ncclInt32:
      return x.int32;
    case ncclFloat16:
      return number_from_half(x.half);
    case ncclBfloat16:
      return number_from_bf16(x.half);
    case ncclFloat32:
      return x.real;
    case ncclFloat64:
      return x.wide;
    default:
      return number_from_fp8(*at);
  }
}

static void store(ncclDataType_t type, double value, uint8_t* at) {
  uint16_t half = 0;
  int32_t int32 = (int32_t)(int64_t)value;
  float real = (float)value;
  if (type == ncclInt8 || type == ncclUint8) *at = (uint8_t)(int64_t)value;
  if (type == ncclInt32) memcpy(at, &int32, 4);
  if (type == ncclFloat16) half = number_to_half(real);
  if (type == ncclBfloat16) half = number_to_bf16(real);
  if (type == ncclFloat16 || type == ncclBfloat16) memcpy(at, &half, 2);
  if (type == ncclFloat32) memcpy(at, &real, 4);
  if (type == ncclFloat64) memcpy(at, &value, 8);
  if (type == ncclFloat8e4m3) *at = number_to_fp8(real);
}

// NCCL's: the greater or lesser of a number and NaN is the number.
static double combine(ncclRedOp_t op, double a, double b) {
  if (op == 1) return a * b;
  if (op == 2) return fmax(a, b);
  if (op == 3) return fmin(a, b);
  return a + b;
}

static int64_t combine_int64(ncclRedOp_t op, int64_t a, int64_t b) {
  if (op == 1) return (int64_t)((uint64_t)a * (uint64_t)b);
  if (op == 2) return a > b ? a : b;
  if (op == 3) return a < b ? a : b;
  return (int64_t)((uint64_t)a + (uint64_t)b);
}

// Element `i` of the reduction of all ranks' inputs.
static void reduce_element(ncclComm_t comm, const question_t* q, size_t i,
                           uint8_t* output) {
  size_t size = type_size(q->type);
  double total = 0;
  int64_t whole = 0;
  for (int r = 0; r < comm->ranks; ++r) {
    const uint8_t* at = comm->shared->slots[1][r].data + i * size;
    int64_t number = 0;
    if (q->type == ncclInt64) memcpy(&number, at, 8);
    double value = q->type == ncclInt64 ? 0 : load(q->type, at);
    total = r == 0 ? value : combine(q->op, total, value);
    whole = r == 0 ? number : combine_int64(q->op, whole, number);
  }
  if (q->op == 4) total /= comm->ranks;
  if (q->op == 4) whole /= comm->ranks;
  if (q->type == ncclInt64)
    memcpy(output, &whole, 8);
  else
    store(q->type, total, output);
}

// ---- Exchanges in streams
// ----------------------------------------------------

typedef struct exchange_t {
  ncclComm_t comm;
  question_t question;
  const void* input;
  void* output;
  int message_count;
  struct {
    bool send;
    void* memory;
    size_t size;
    int peer;
  } messages[2 * MAX_MESSAGES];
} exchange_t;

static size_t input_bytes(const exchange_t* e) {
  size_t size = e->question.count * type_size(e->question.type);
  return e->question.kind == REDUCE_SCATTER ? size * (size_t)e->comm->ranks
                                            : size;
}

static size_t output_bytes(const exchange_t* e) {
  size_t size = e->question.count * type_size(e->question.type);
  bool idle = e->question.kind == REDUCE && e->comm->rank != e->question.root;
  return idle                             ? 0
         : e->question.kind == ALL_GATHER ? size * (size_t)e->comm->ranks
                                          : size;
}

static bool fits(size_t bytes) {
  if (bytes <= SLOT_BYTES) return true;
  misuse("an exchange is larger than the stand-in for NCCL takes");
  return false;
}

static bool post(const exchange_t* e, slot_t* mine) {
  const stand_in_services_t* s = stand_in_services();
  size_t used = 0;
  mine->question = e->question;
  mine->message_count = 0;
  if (e->question.kind != MESSAGES) {
    size_t bytes = input_bytes(e);
    if (!fits(bytes) || !s->reach(e->input, bytes, "NCCL reads")) return false;
    memcpy(mine->data, e->input, bytes);
    return true;
  }
  for (int i = 0; i < e->message_count; ++i) {
    if (!e->messages[i].send) continue;
    size_t bytes = e->messages[i].size;
    if (!fits(used + bytes) ||
        !s->reach(e->messages[i].memory, bytes, "NCCL reads"))
      return false;
    memcpy(mine->data + used, e->messages[i].memory, bytes);
    mine->messages[mine->message_count].peer = e->messages[i].peer;
    mine->messages[mine->message_count].offset = used;
    mine->messages[mine->message_count++].size = bytes;
    used += bytes;
  }
  return true;
}

// The data that `peer` sent to this rank, as its message number `nth`.
static const uint8_t* message_of(const exchange_t* e, int peer, int nth,
                                 size_t size) {
  const slot_t* slot = &e->comm->shared->slots[1][peer];
  for (int i = 0; i < slot->message_count; ++i) {
    if (slot->messages[i].peer != e->comm->rank || nth-- > 0) continue;
    return slot->messages[i].size == size
               ? slot->data + slot->messages[i].offset
               : NULL;
  }
  return NULL;
}

static void collect_messages(const exchange_t* e) {
  const stand_in_services_t* s = stand_in_services();
  int taken[MAX_RANKS] = {0};
  for (int i = 0; i < e->message_count; ++i) {
    if (e->messages[i].send) continue;
    int peer = e->messages[i].peer;
    const uint8_t* from =
        message_of(e, peer, taken[peer]++, e->messages[i].size);
    if (!from) {
      misuse("a receive has no send of its size");
    } else if (s->reach(e->messages[i].memory, e->messages[i].size,
                        "NCCL writes")) {
      memcpy(e->messages[i].memory, from, e->messages[i].size);
    }
  }
}

static void collect(const exchange_t* e) {
  const question_t* q = &e->question;
  size_t size = type_size(q->type), each = q->count * size;
  uint8_t* out = e->output;
  if (q->kind == MESSAGES) {
    collect_messages(e);
    return;
  }
  if (!stand_in_services()->reach(out, output_bytes(e), "NCCL writes")) return;
  if (q->kind == BROADCAST)
    memcpy(out, e->comm->shared->slots[1][q->root].data, each);
  for (int r = 0; q->kind == ALL_GATHER && r < e->comm->ranks; ++r)
    memcpy(out + (size_t)r * each, e->comm->shared->slots[1][r].data, each);
  size_t first =
      q->kind == REDUCE_SCATTER ? (size_t)e->comm->rank * q->count : 0;
  bool reduces = q->kind == ALL_REDUCE || q->kind == REDUCE_SCATTER ||
                 (q->kind == REDUCE && e->comm->rank == q->root);
  for (size_t i = 0; reduces && i < q->count; ++i)
    reduce_element(e->comm, q, first + i, out + i * size);
}

static bool agree(const exchange_t* e) {
  for (int r = 0; r < e->comm->ranks; ++r) {
    const question_t* other = &e->comm->shared->slots[1][r].question;
    if (memcmp(other, &e->question, sizeof(*other)) == 0) continue;
    misuse("ranks exchange different things at the same time");
    atomic_store(&e->comm->error, ncclInvalidUsage);
    return false;
  }
  return true;
}

static void run_exchange(void* data) {
  exchange_t* e = data;
  ncclComm_t comm = e->comm;
  int harm = fault("run", comm->rank);
  atomic_fetch_add(&comm->running, 1);
  if (harm == -1) kill(getpid(), SIGKILL);
  if (harm > 0) atomic_store(&comm->error, harm);
  while ((harm == -2 || harm > 0) && !atomic_load(&comm->aborted))
    pause_briefly();
  if (!atomic_load(&comm->aborted)) {
    uint64_t turn = ++comm->turns[1];
    slot_t* mine = &comm->shared->slots[1][comm->rank];
    if (wait_for_all(comm, 1, true, turn - 1) && post(e, mine)) {
      atomic_store(&mine->posted, turn);
      if (wait_for_all(comm, 1, false, turn)) {
        if (agree(e)) collect(e);
        atomic_store(&mine->done, turn);
      }
    }
  }
  atomic_fetch_sub(&comm->running, 1);
}

static ncclResult_t enqueue(const char* name, exchange_t* e,
                            cudaStream_t stream) {
  ncclResult_t result = begin_call(name, e->comm);
  if (result) return result;
  if (atomic_load(&e->comm->aborted)) return ncclInvalidUsage;
  return stand_in_services()->enqueue(name, "", (CUstream)stream, run_exchange,
                                      e, sizeof(*e)) == CUDA_SUCCESS
             ? ncclSuccess
             : ncclUnhandledCudaError;
}

#define COLLECTIVE(of_kind, of_op, of_root)       \
  exchange_t e = {.comm = comm,                   \
                  .question = {.kind = (of_kind), \
                               .type = type,      \
                               .op = (of_op),     \
                               .root = (of_root), \
                               .count = count},   \
                  .input = input,                 \
                  .output = output};              \
  return enqueue(__func__, &e, stream)

EXPORT ncclResult_t ncclAllReduce(const void* input, void* output, size_t count,
                                  ncclDataType_t type, ncclRedOp_t op,
                                  ncclComm_t comm, cudaStream_t stream) {
  COLLECTIVE(ALL_REDUCE, op, 0);
}
EXPORT ncclResult_t ncclReduce(const void* input, void* output, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, int root,
                               ncclComm_t comm, cudaStream_t stream) {
  COLLECTIVE(REDUCE, op, root);
}
EXPORT ncclResult_t ncclReduceScatter(const void* input, void* output,
                                      size_t count, ncclDataType_t type,
                                      ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream) {
  COLLECTIVE(REDUCE_SCATTER, op, 0);
}
EXPORT ncclResult_t ncclAllGather(const void* input, void* output, size_t count,
                                  ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream) {
  COLLECTIVE(ALL_GATHER, 0, 0);
}
EXPORT ncclResult_t ncclBroadcast(const void* input, void* output, size_t count,
                                  ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream) {
  COLLECTIVE(BROADCAST, 0, root);
}

// ---- Groups of sends and receives
// --------------------------------------------

static ncclResult_t add_message(const char* name, bool send, void* memory,
                                size_t size, int peer, ncclComm_t comm,
                                cudaStream_t stream) {
  ncclResult_t result = begin_call(name, comm);
  if (!result && (group_depth == 0 || grouped_count == 2 * MAX_MESSAGES ||
                  peer < 0 || peer >= comm->ranks))
    result = ncclInvalidUsage;
  if (result && !group_error) group_error = result;
  if (result) return result;
  grouped[grouped_count].send = send;
  grouped[grouped_count].memory = memory;
  grouped[grouped_count].size = size;
  grouped[grouped_count].peer = peer;
  grouped[grouped_count].comm = comm;
  grouped[grouped_count++].stream = stream;
  return ncclSuccess;
}

EXPORT ncclResult_t ncclSend(const void* input, size_t count,
                             ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream) {
  return add_message(__func__, true, (void*)(uintptr_t)input,
                     count * type_size(type), peer, comm, stream);
}
EXPORT ncclResult_t ncclRecv(void* output, size_t count, ncclDataType_t type,
                             int peer, ncclComm_t comm, cudaStream_t stream) {
  return add_message(__func__, false, output, count * type_size(type), peer,
                     comm, stream);
}
EXPORT ncclResult_t ncclGroupStart(void) {
  ncclResult_t result = begin_call(__func__, NULL);
  if (result) return result;
  ++group_depth;
  return ncclSuccess;
}
EXPORT ncclResult_t ncclGroupEnd(void) {
  exchange_t e = {.question = {.kind = MESSAGES}};
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  int count = grouped_count;
  ncclResult_t result = group_error;
  grouped_count = 0;
  group_error = ncclSuccess;
  if (!result) result = begin_call(__func__, NULL);
  if (result || count == 0) return result;
  e.comm = grouped[0].comm;
  for (int i = 0; i < count; ++i) {
    e.messages[i].send = grouped[i].send;
    e.messages[i].memory = (void*)(uintptr_t)grouped[i].memory;
    e.messages[i].size = grouped[i].size;
    e.messages[i].peer = grouped[i].peer;
    if (grouped[i].comm != e.comm) return ncclInvalidUsage;
  }
  e.message_count = count;
  return enqueue("a group of NCCL", &e, grouped[0].stream);
}

// ---- Communicators
// -----------------------------------------------------------

typedef struct {
  char internal[128];
} ncclUniqueId;

EXPORT ncclResult_t ncclGetVersion(int* version) {
  const char* text = getenv("RABBET_STAND_IN_NCCL_VERSION");
  *version = text ? atoi(text) : 22700;
  return fault(__func__, -1);
}
EXPORT const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess       ? "no error"
         : result == ncclRemoteError ? "remote process exited"
                                     : "the stand-in failed";
}
EXPORT const char* ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "";
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  uint64_t number = 0;
  ncclResult_t result = fault(__func__, -1);
  if (result) return result;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number))
    return ncclSystemError;
  memset(id, 0, sizeof(*id));
  snprintf(id->internal, sizeof(id->internal), "/rabbet-nccl-%llx",
           (unsigned long long)number);
  return ncclSuccess;
}

// The file goes when all ranks have it; or with the process of the first.
static char pending[64][64];
static void remove_pending(void) {
  for (size_t i = 0; i < 64; ++i)
    if (pending[i][0]) shm_unlink(pending[i]);
}
static void keep_pending(const char* name, bool keep) {
  static _Atomic int registered;
  if (!atomic_exchange(&registered, 1)) atexit(remove_pending);
  for (size_t i = 0; i < 64; ++i) {
    if (strcmp(pending[i], keep ? "" : name) != 0) continue;
    snprintf(pending[i], sizeof(pending[i]), "%s", keep ? name : "");
    return;
  }
}

static ncclResult_t comm_open(const char* name, int rank, int ranks,
                              bool blocking, ncclComm_t* out) {
  if (ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks)
    return ncclInvalidArgument;
  int file = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(shared_t)) != 0)
    return ncclSystemError;
  ncclComm_t comm = calloc(1, sizeof(*comm));
  snprintf(comm->name, sizeof(comm->name), "%s", name);
  comm->shared =
      mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  comm->rank = rank;
  comm->ranks = ranks;
  comm->blocking = blocking;
  keep_pending(name, true);
  atomic_fetch_add(&comm->shared->joined, 1);
  stand_in_services()->track("communicators of NCCL", 1);
  *out = comm;
  return ncclSuccess;
}

static bool comm_is_complete(ncclComm_t comm) {
  if (atomic_load(&comm->shared->joined) < comm->ranks) return false;
  shm_unlink(comm->name);
  keep_pending(comm->name, false);
  return true;
}

static ncclResult_t comm_settle(ncclComm_t comm) {
  if (!comm->blocking) return ncclInProgress;
  while (!comm_is_complete(comm)) {
    if (atomic_load(&comm->aborted)) return ncclInternalError;
    pause_briefly();
  }
  return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks,
                                           ncclUniqueId id, int rank,
                                           ncclConfig_t* config) {
  ncclResult_t result = begin_call(__func__, NULL);
  if (result) return result;
  result = comm_open(id.internal, rank, ranks, !config || config->blocking != 0,
                     comm);
  return result ? result : comm_settle(*comm);
}
EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks,
                                     ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, NULL);
}

typedef struct split_t {
  ncclComm_t comm;
  int color, key;
  ncclComm_t* made;
  bool blocking;
} split_t;

// Ranks tell each other color and key.
static ncclResult_t comm_split(const split_t* split) {
  ncclComm_t comm = split->comm;
  char name[64];
  int32_t mine[2] = {split->color, split->key};
  int rank = 0, ranks = 0;
  uint64_t turn = ++comm->turns[0];
  slot_t* slots = comm->shared->slots[0];
  if (!wait_for_all(comm, 0, true, turn - 1)) return ncclInternalError;
  memcpy(slots[comm->rank].data, mine, sizeof(mine));
  atomic_store(&slots[comm->rank].posted, turn);
  if (!wait_for_all(comm, 0, false, turn)) return ncclInternalError;
  for (int r = 0; r < comm->ranks; ++r) {
    int32_t other[2];
    memcpy(other, slots[r].data, sizeof(other));
    if (other[0] != split->color) continue;
    ++ranks;
    rank += other[1] < split->key || (other[1] == split->key && r < comm->rank);
  }
  atomic_store(&slots[comm->rank].done, turn);
  if (split->color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  snprintf(name, sizeof(name), "%.40s-%d-%d", comm->name, (int)turn,
           split->color);
  ncclComm_t made = NULL;
  ncclResult_t result = comm_open(name, rank, ranks, split->blocking, &made);
  if (result == ncclSuccess) result = comm_settle(made);
  __atomic_store_n(split->made, made, __ATOMIC_RELEASE);
  return result;
}

static void* comm_split_later(void* data) {
  split_t* split = data;
  ncclComm_t comm = split->comm;
  ncclResult_t result = comm_split(split);
  free(split);
  if (result != ncclSuccess && result != ncclInProgress)
    atomic_store(&comm->error, result);
  atomic_store(&comm->splitting, false);
  atomic_fetch_sub(&comm->running, 1);
  return NULL;
}

// Of a communicator that does not block, the call returns ncclSuccess at once,
// and `made` is written while ncclCommGetAsyncError tells ncclInProgress, as by
// NCCL.
EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                                  ncclComm_t* made, ncclConfig_t* config) {
  ncclResult_t result = begin_call(__func__, comm);
  *made = NULL;
  if (result) return result;
  const split_t split = {.comm = comm,
                         .color = color,
                         .key = key,
                         .made = made,
                         .blocking = !config || config->blocking != 0};
  if (comm->blocking) return comm_split(&split);
  pthread_t thread;
  split_t* job = malloc(sizeof(*job));
  if (!job) return ncclSystemError;
  *job = split;
  atomic_store(&comm->splitting, true);
  atomic_fetch_add(&comm->running, 1);
  if (pthread_create(&thread, NULL, comm_split_later, job) != 0) abort();
  pthread_detach(thread);
  return ncclSuccess;
}

EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->ranks;
  return begin_call(__func__, comm);
}
EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return begin_call(__func__, comm);
}
// A process has one stand-in GPU; a test may say that the communicator is
// another's.
EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  const char* given = getenv("RABBET_NCCL_STAND_IN_DEVICE");
  *device = given ? atoi(given) : 0;
  return begin_call(__func__, comm);
}
EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm,
                                          ncclResult_t* error) {
  *error = atomic_load(&comm->error);
  if (*error == ncclSuccess && !comm->blocking &&
      (atomic_load(&comm->splitting) || !comm_is_complete(comm)))
    *error = ncclInProgress;
  return fault(__func__, comm->rank);
}

// Memory stays, as work of streams may come to it later.
static ncclResult_t comm_end(const char* name, ncclComm_t comm) {
  if (atomic_exchange(&comm->aborted, 1)) {
    misuse("a communicator of NCCL is ended twice");
    return ncclInvalidArgument;
  }
  while (atomic_load(&comm->running) > 0)
    pause_briefly();
  stand_in_services()->track("communicators of NCCL", -1);
  return begin_call(name, comm);
}
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return comm_end(__func__, comm);
}
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return comm_end(__func__, comm);
}
