// Declarations that the files of the stand-in driver share. One lock covers all
// of it: an entry takes it for the whole call, and functions below it need not
// care about threads.
#ifndef RABBET_TESTS_CUDA_STAND_IN_INTERNAL_H_
#define RABBET_TESTS_CUDA_STAND_IN_INTERNAL_H_

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_stand_in/kernel_abi.h"
#include "device/cuda/driver/driver_api.h"

#define EXPORT __attribute__((visibility("default")))

// Every function of driver.def under its symbol, so that a definition with
// other parameters does not compile.
#define RABBET_CUDA_CALL(name, symbol, parameters) \
  EXPORT CUresult stand_in_##name parameters __asm__(symbol);
#define RABBET_CUDA_OPTIONAL RABBET_CUDA_CALL
#include "device/cuda/driver/driver.def"
#undef RABBET_CUDA_CALL
#undef RABBET_CUDA_OPTIONAL

// Results that only the stand-in gives.
enum {
  ERROR_INVALID_CONTEXT = 201,
  ERROR_INVALID_HANDLE = 400,
  ERROR_ILLEGAL_STATE = 401,
  ERROR_CONTEXT_IS_DESTROYED = 709,
  ERROR_LAUNCH_FAILED = 719,
  ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
  ERROR_CAPTURE_MERGE = 902,
  ERROR_CAPTURE_UNMATCHED = 903,
  ERROR_CAPTURE_UNJOINED = 904,
  ERROR_CAPTURE_ISOLATION = 905,
  ERROR_CAPTURE_IMPLICIT = 906,
  ERROR_CAPTURED_EVENT = 907,
  ERROR_CAPTURE_WRONG_THREAD = 908,
  ERROR_INVALID_CLUSTER_SIZE = 912,
};

// ---- Entries (entry.c) -----------------------------------------------------

enum {
  NEEDS_CONTEXT = 1 << 0,
  // Not while this thread captures, nor while any does in the global mode.
  UNSAFE_IN_CAPTURE = 1 << 1,
  // Works however it ends: what it releases is released.
  RELEASES = 1 << 2,
  WITHOUT_DRIVER = 1 << 3,  // before cuInit
};

typedef struct entry_t {
  const char* name;
  CUresult injected;  // what the call is to return whatever it does, or 0
  CUresult result;
  bool skipped;  // `result` is set; nothing is to be done
} entry_t;

void entry_lock(void);
void entry_unlock(void);
// Writes the call to the log and decides whether it goes on. `format`: the
// arguments, for the log.
void entry_begin(entry_t* entry, const char* name, unsigned flags,
                 const char* format, ...) __attribute__((format(printf, 4, 5)));
CUresult entry_end(entry_t* entry, CUresult result);
// Adds to the line of the call that runs.
void log_add(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The body of an entry: ENTRY(name, flags, (format, ...), expression).
#define UNPACK(...) __VA_ARGS__
#define ENTRY(name, flags, arguments, expression)         \
  entry_t entry_;                                         \
  entry_lock();                                           \
  entry_begin(&entry_, #name, (flags), UNPACK arguments); \
  return entry_end(&entry_, entry_.skipped ? entry_.result : (expression))

// Prints and counts a wrong use.
void misuse(const char* format, ...) __attribute__((format(printf, 1, 2)));

// ---- Contexts (context.c) --------------------------------------------------

struct CUctx_st {
  int device;
  int references;
  CUresult broken;  // by a kernel: every later call fails with it
};

extern _Thread_local CUcontext context_current;
CUresult context_check(unsigned flags);
CUcontext context_of_device(int device);  // NULL: there is no such device
size_t context_memory(void);              // bytes of the device
extern size_t context_memory_limit;
extern int context_major, context_minor;

// ---- Memory (memory.c) -----------------------------------------------------

typedef struct allocation_t {
  uint8_t* data;
  size_t size, mapped;
  CUcontext context;
  uint64_t id;  // that no other has
  bool host;    // pinned host memory
  bool freed;   // by cuMemFreeAsync, whose turn may not have come
  int file;     // in which other processes find it; 0: they do not
  bool theirs;  // another process's
  // Of a pool: `kept` by it, and nobody's; `takes` counts who had it, and the
  // stream is the one that it was freed on.
  CUmemoryPool pool;
  bool kept;
  uint64_t takes;
  struct CUstream_st* freed_on;
} allocation_t;

// The live one that holds all of [address, address + size), or NULL.
const allocation_t* memory_find(const void* address, size_t size);
// Whether it is an address of the host's own memory, which no kernel reaches.
bool memory_is_hosts(const void* address);
// Describes an address for messages.
const char* memory_describe(const void* address);
CUresult memory_new(size_t size, bool host, void** out_memory);
CUresult memory_delete(void* memory, bool host);
// All of them, by address; until the next one is made or deleted.
allocation_t* memory_list(size_t* out_count);
// The one that begins there, or NULL.
allocation_t* memory_begin(const void* address);
// Nobody's, or somebody's again; of a pool.
void memory_keep(allocation_t* allocation, bool kept);
// Writes past the end of an allocation since the last check are misuses.
void memory_check(const char* after);
// Frees all that a context holds when its maker destroys it; so do those below.
void memory_drop(CUcontext context);
size_t memory_bytes(void);
int memory_count(void);
void memory_report(void);

// ---- Pools (pool.c) --------------------------------------------------------

// A free whose turn has come.
void pool_free_done(void* memory, uint64_t takes);
// The host has waited: memory beyond the release thresholds goes.
void pool_waited(void);
int pool_count(void);

// ---- Operations, streams, events (stream.c) --------------------------------

typedef struct launch_t {
  CUfunction function;
  unsigned grid[3], block[3], cluster[3], shared_bytes;
  void** parameters;  // copies, in the same block as this
  bool overlaps;      // with the kernel before: must await it
} launch_t;

typedef enum op_type_t {
  OP_KERNEL,
  OP_COPY,
  OP_FILL,
  OP_RECORD,
  OP_WAIT,
  OP_FREE,
  OP_GRAPH,
  OP_HOST,  // of a library
  OP_NONE,  // a node that orders others
  OP_CONDITIONAL,
} op_type_t;

typedef enum copy_kind_t {
  KIND_DEVICE,
  KIND_PINNED,
  KIND_PAGEABLE,
} copy_kind_t;

typedef struct op_t {
  op_type_t type;
  uint64_t sequence;  // among all operations of all streams
  launch_t* launch;
  void* target;
  const void* source;
  void* snapshot;  // of pageable memory, instead of `source`
  size_t size;
  copy_kind_t source_kind, target_kind;
  uint8_t byte;
  CUevent event;   // RECORD
  CUstream other;  // WAIT: for this stream's operations
  uint64_t until;  // up to this one
  struct graph_body_t* graph;
  struct condition_t* condition;  // CONDITIONAL: of `graph`
  void (*run)(void* data);        // HOST: with `snapshot`
  // HOST: begins, and reads, as soon as the kernel before it admits the next.
  bool is_early;
} op_t;

typedef struct capture_t capture_t;

struct CUstream_st {
  CUcontext context;  // NULL: the legacy one, which every context has
  unsigned flags;
  bool live;  // what is destroyed stays known: its work is still to be done
  op_t* ops;
  size_t first, count, room;
  capture_t* capture;  // or NULL
  int32_t* ends;       // nodes of the capture that the next one waits for
  size_t end_count;
  op_type_t last;      // submitted outside captures
  pthread_t last_by;   // the thread that submitted it
  CUgraphNode* nodes;  // `ends`, as the driver tells them
  int number;          // for the log
};

struct CUevent_st {
  CUcontext context;
  unsigned flags;
  bool live;
  CUstream stream;  // of the last record, or NULL
  uint64_t recorded;
  bool pending;
  int64_t nanoseconds;
  capture_t* capture;  // recorded in one
  int32_t* ends;
  size_t end_count;
  int number;
};

CUstream stream_resolve(CUstream stream);  // NULL: not a stream
// Queues the operation, or adds it to the stream's capture; takes what it owns
// in any case.
CUresult stream_submit(CUstream stream, op_t* op);
void op_release(op_t* op);
void op_execute(op_t* op);
// Whether the memory is there; if not, the context is broken.
bool op_may_access(const void* address, size_t size, copy_kind_t kind,
                   const char* what);
CUresult stream_drain(CUstream stream);
void stream_drain_all(void);
void stream_drop(CUcontext context);  // events, too
int stream_pending(void);
// Whether operations are queued that use the module.
bool stream_uses(const struct CUmod_st* module);
int stream_number(CUstream stream);  // for the log; 0: the legacy stream
// Whether kernels of the current context may be launched in it.
bool stream_is_current(CUstream stream);

// ---- Captures and graphs (graph.c) -----------------------------------------

typedef struct graph_node_t {
  op_t op;
  int32_t* before;  // nodes
  size_t before_count;
} graph_node_t;

// Never changed once instantiated; counted.
typedef struct graph_body_t {
  int references;
  graph_node_t* nodes;
  size_t count, room;
  struct condition_t* conditions;  // handles that were made for it
} graph_body_t;

struct CUgraph_st {
  graph_body_t* body;
};

graph_body_t* graph_body_new(void);
void graph_release(graph_body_t* body);
void graph_execute(graph_body_t* body);
// Adds a node that follows others but no stream.
CUresult graph_add(CUgraphNode* out_node, CUgraph graph,
                   const CUgraphNode* before, size_t count, op_t* op);

// ---- Conditional nodes (conditional.c) -------------------------------------

// A handle is its address; kernels write the value, which comes first.
typedef struct condition_t {
  unsigned value;
  bool is_loop, has_node;
  struct CUgraph_st graph;  // of the node, which owns its body
  CUgraph list[1];
  struct condition_t* next;
  struct condition_t* next_alive;  // of all graphs
} condition_t;

void conditions_free(condition_t* conditions);
bool condition_is_alive(const void* handle);
// They have no value until a kernel sets one.
void conditions_forget(condition_t* conditions);
void conditional_execute(const op_t* op);
// Whether a graph with such nodes can be instantiated.
bool conditions_are_right(const graph_body_t* body);

// For a call that must not happen now: what it returns, after the captures it
// disturbs are made invalid.
CUresult capture_forbid(void);
void capture_invalidate(capture_t* capture);
// Any stream that captures and that the legacy stream would wait for.
capture_t* capture_of_blocking(void);
CUresult capture_add(CUstream stream, op_t* op);
// Whether the stream's next node would follow one of that type.
bool capture_ends_in(const struct CUstream_st* stream, op_type_t type);
CUresult capture_record(CUstream stream, CUevent event);
CUresult capture_wait(CUstream stream, CUevent event);
// No event belongs to the capture any more (stream.c).
void capture_forget(const capture_t* capture);
int graph_count(void);
int graph_exec_count(void);

// ---- Modules and launches (module.c, grid.c) -------------------------------

struct CUfunc_st {
  CUmodule module;
  const struct stand_in_kernel* kernel;
  int most_shared;  // dynamic shared memory that it may have
  uint64_t launches;
};

struct CUmod_st {
  CUmodule next;  // of those that are loaded
  CUcontext context;
  void* handle;
  struct stand_in_module* state;
  const struct stand_in_kernel* kernels;
  struct CUfunc_st* functions;
  size_t count;
  uint8_t* shared_begin;  // of static __shared__ variables
  size_t shared_size;
};

int module_count(void);
void module_drop(CUcontext context);
// Copies the parameters and checks the geometry.
CUresult launch_new(CUfunction function, const unsigned grid[3],
                    const unsigned block[3], unsigned shared_bytes,
                    void** parameters, launch_t** out_launch);
// Runs it; a code where the kernel went wrong.
CUresult grid_run(const launch_t* launch);

// ---- Tensor cores (tensor.c) -----------------------------------------------

#define WARP 32
// By what each lane hands in; false if a row is not aligned.
bool tensor_load(bool turned, const uint8_t* const in[WARP],
                 uint8_t* const out[WARP]);
void tensor_multiply(int op, const uint8_t* const in[WARP],
                     uint8_t* const out[WARP]);

// Objects of libraries (services.c).
int service_count(void);
void service_report(void);

int event_count(void);
int stream_count(void);
int context_count(void);
// Without one reference to the first primary context: stand_in.h.
int context_count_but_kept(void);

#endif  // RABBET_TESTS_CUDA_STAND_IN_INTERNAL_H_
