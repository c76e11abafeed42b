// Runs a grid on the host: clusters of blocks, most of them of one, one after
// another, and the threads of a cluster as fibers that change places where they
// wait for each other.
//
// A fiber runs one thread after another as long as none waits, so that a kernel
// without barriers is a plain loop. One that waits keeps its fiber, and another
// fiber goes on with the threads that have not begun.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include "cuda_stand_in/internal.h"

#define THREADS_MOST (STAND_IN_CLUSTER * 1024)
// An odd number of pages: translations of addresses that lie a power of two
// apart would push each other out of the processor's buffers.
#define STACK ((size_t)33 * 4096)
// Sanitizers do not follow changes of the stack.
#define UNWATCHED \
  __attribute__((no_sanitize("address"), no_sanitize("thread"), noinline))

typedef enum thread_state_t {
  THREAD_RUNNABLE,
  THREAD_AT_BARRIER,
  THREAD_IN_CLUSTER,  // waits for all of it
  THREAD_IN_WARP,
  THREAD_DONE,
} thread_state_t;

typedef struct fiber_t {
#ifdef __x86_64__
  void* top;  // of its stack, where it waits
#else
  ucontext_t context;
#endif
  uint8_t* stack;
} fiber_t;

typedef struct thread_t {
  thread_state_t state;
  fiber_t* fiber;
  bool awaited;    // the kernel before
  bool arrived;    // at the cluster's barrier, and has not waited
  unsigned phase;  // of that barrier, in which it arrived
  // The operation with its warp: its argument and its result.
  int op;
  unsigned mask, from, bytes, ballot;
  uint8_t in[sizeof(struct stand_in_product)], out[16];
} thread_t;

// The lanes of a warp, a bit for each.
typedef struct warp_t {
  unsigned waiting;  // for others of the warp
  unsigned done;     // ended, or were never there
} warp_t;

static struct {
  const launch_t* launch;
  struct stand_in_module* state;
  unsigned thread_count, block_threads, block_count;  // of a cluster
  struct stand_in_uint3 blocks[STAND_IN_CLUSTER];
  struct stand_in_uint3 places[1024];  // of a block's threads
  thread_t threads[THREADS_MOST];
  warp_t warps[THREADS_MOST / WARP];
  uint16_t order[THREADS_MOST];  // in which threads begin
  unsigned begun, finished;
  unsigned finished_in[STAND_IN_CLUSTER], at_barrier[STAND_IN_CLUSTER];
  unsigned arrived, phase;       // at the cluster's barrier, and how often
  int current;                   // the thread that runs
  uint16_t queue[THREADS_MOST];  // threads to go on with
  unsigned queue_first, queue_count;
  fiber_t* fibers[THREADS_MOST + 1];
  unsigned fiber_count;
  fiber_t* idle[THREADS_MOST + 1];
  unsigned idle_count;
  fiber_t* running;
  fiber_t scheduler;
  uint8_t* shared[STAND_IN_CLUSTER];  // end at a page that nobody may touch
  sigjmp_buf escape;
  volatile bool inside;
  const void* volatile fault_address;
  volatile int fault_signal;
} grid;

// ---- Changing stacks -------------------------------------------------------

#ifdef __x86_64__
// Saves what the calling convention keeps, and goes on where `to` waits.
void stand_in_switch(void** save, void* to);
__asm__(
    ".text\n"
    ".type stand_in_switch, @function\n"
    "stand_in_switch:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
    ".size stand_in_switch, . - stand_in_switch\n");

UNWATCHED static void fiber_switch(fiber_t* from, fiber_t* to) {
  stand_in_switch(&from->top, to->top);
}

static void fiber_prepare(fiber_t* fiber, void (*entry)(void), size_t offset) {
  void** top = (void**)(fiber->stack + STACK - 64 - offset);
  *--top = NULL;  // where the entry would return to; keeps its alignment
  *--top = (void*)(uintptr_t)entry;
  for (int i = 0; i < 6; ++i)
    *--top = NULL;
  fiber->top = top;
}
#else
UNWATCHED static void fiber_switch(fiber_t* from, fiber_t* to) {
  swapcontext(&from->context, &to->context);
}

static void fiber_prepare(fiber_t* fiber, void (*entry)(void), size_t offset) {
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = STACK - offset;
  fiber->context.uc_link = NULL;
  makecontext(&fiber->context, entry, 0);
}
#endif

static void grid_fail(const char* message);

// ---- Threads ---------------------------------------------------------------

// Most clusters are of one block: no division.
static inline unsigned grid_block_of(unsigned thread) {
  return grid.block_count == 1 ? 0 : thread / grid.block_threads;
}

UNWATCHED static void grid_place(int thread) {
  unsigned own = grid_block_of((unsigned)thread);
  unsigned t = (unsigned)thread - own * grid.block_threads;
  grid.current = thread;
  grid.state->block = grid.blocks[own];
  grid.state->dynamic_shared =
      grid.shared[own] - (grid.launch->shared_bytes + 15) / 16 * 16;
  grid.state->thread = grid.places[t];
  grid.state->lane = t % WARP;
}

UNWATCHED static void grid_wake(unsigned thread) {
  grid.threads[thread].state = THREAD_RUNNABLE;
  unsigned at = (grid.queue_first + grid.queue_count++) % THREADS_MOST;
  grid.queue[at] = (uint16_t)thread;
}

static inline unsigned grid_next(void) {
  unsigned thread = grid.queue[grid.queue_first];
  grid.queue_first = (grid.queue_first + 1) % THREADS_MOST;
  --grid.queue_count;
  return thread;
}

// All of the block that have not ended have arrived.
UNWATCHED static void barrier_check(unsigned block) {
  if (grid.at_barrier[block] == 0 ||
      grid.at_barrier[block] + grid.finished_in[block] < grid.block_threads)
    return;
  grid.at_barrier[block] = 0;
  for (unsigned i = 0; i < grid.thread_count; ++i) {
    unsigned t = grid.order[i];
    if (grid.threads[t].state == THREAD_AT_BARRIER && grid_block_of(t) == block)
      grid_wake(t);
  }
}

// The same of the cluster.
UNWATCHED static void cluster_check(void) {
  if (grid.arrived == 0 || grid.arrived + grid.finished < grid.thread_count)
    return;
  grid.arrived = 0;
  ++grid.phase;
  for (unsigned i = 0; i < grid.thread_count; ++i) {
    unsigned t = grid.order[i];
    if (grid.threads[t].state == THREAD_IN_CLUSTER) grid_wake(t);
  }
}

UNWATCHED static void fiber_entry(void) {
  for (;;) {
    while (grid.begun < grid.thread_count) {
      int t = grid.order[grid.begun++];
      grid_place(t);
      grid.threads[t].state = THREAD_RUNNABLE;
      grid.threads[t].awaited = false;
      grid.threads[t].fiber = grid.running;
      grid.threads[t].arrived = false;
      grid.launch->function->kernel->call(grid.launch->parameters);
      // Here `grid.current` is `t` again, though others ran in between.
      if (grid.launch->overlaps && !grid.threads[grid.current].awaited)
        grid_fail("ends without having awaited the kernel before it");
      grid.threads[grid.current].state = THREAD_DONE;
      grid.warps[grid.current / WARP].done |= 1u << grid.current % WARP;
      ++grid.finished;
      unsigned block = grid_block_of((unsigned)grid.current);
      ++grid.finished_in[block];
      if (grid.threads[grid.current].arrived) --grid.arrived;
      barrier_check(block);
      cluster_check();
    }
    grid.idle[grid.idle_count++] = grid.running;
    fiber_switch(grid.running, &grid.scheduler);
  }
}

// Goes on with the next thread: by the scheduler where one is to begin.
UNWATCHED static void thread_wait(void) {
  int thread = grid.current;
  fiber_t *own = grid.threads[thread].fiber, *next = &grid.scheduler;
  if (grid.begun == grid.thread_count && grid.queue_count > 0)
    next = grid.running = grid.threads[grid_next()].fiber;
  if (next != own) fiber_switch(own, next);
  grid_place(thread);
}

UNWATCHED static void grid_sync_threads(void) {
  unsigned block = grid_block_of((unsigned)grid.current);
  grid.threads[grid.current].state = THREAD_AT_BARRIER;
  ++grid.at_barrier[block];
  barrier_check(block);
  thread_wait();
}

UNWATCHED static void grid_await_previous(void) {
  grid.threads[grid.current].awaited = true;
}

// ---- Clusters --------------------------------------------------------------

UNWATCHED static void grid_cluster_arrive(void) {
  thread_t* t = &grid.threads[grid.current];
  if (t->arrived) grid_fail("arrives at the cluster's barrier twice");
  t->arrived = true;
  t->phase = grid.phase;
  ++grid.arrived;
  cluster_check();
}

UNWATCHED static void grid_cluster_wait(void) {
  thread_t* t = &grid.threads[grid.current];
  if (!t->arrived) grid_fail("waits for a cluster at which it has not arrived");
  t->arrived = false;
  if (t->phase != grid.phase) return;
  t->state = THREAD_IN_CLUSTER;
  thread_wait();
}

// Shared memory of a block that has not begun, or has ended, is none.
UNWATCHED static void* grid_cluster_address(void* own, unsigned rank) {
  unsigned block = (unsigned)grid.current / grid.block_threads;
  if (rank >= grid.block_count)
    grid_fail("asks for shared memory of a block that the cluster has not");
  if (grid.phase == 0)
    grid_fail("asks for another block's shared memory before all have begun");
  if (grid.finished_in[rank] == grid.block_threads)
    grid_fail("asks for shared memory of a block that has ended");
  return grid.shared[rank] - (grid.shared[block] - (uint8_t*)own);
}

// ---- Warps -----------------------------------------------------------------

// Whether all lanes of the mask that have not ended wait for the same. Lanes
// that have not begun yet are still to come.
UNWATCHED static bool warp_has_arrived(const warp_t* warp, unsigned first,
                                       unsigned lanes, const thread_t* like) {
  if (lanes & ~warp->waiting) return false;
  for (unsigned i = 0; i < WARP; ++i) {
    const thread_t* t = &grid.threads[first + i];
    if (lanes >> i & 1 && (t->mask != like->mask || t->op != like->op))
      return false;
  }
  return true;
}

UNWATCHED static void warp_shuffle(unsigned first, unsigned lanes) {
  unsigned ballot = 0;
  for (unsigned i = 0; i < WARP; ++i)
    if (lanes >> i & 1 && grid.threads[first + i].in[0]) ballot |= 1u << i;
  for (unsigned i = 0; i < WARP; ++i) {
    if (!(lanes >> i & 1)) continue;
    thread_t* t = &grid.threads[first + i];
    t->ballot = ballot;
    // The value of a lane that takes no part is not defined: NaN here.
    if (lanes >> (t->from % WARP) & 1)
      memcpy(t->out, grid.threads[first + t->from % WARP].in, sizeof(t->out));
    else
      memset(t->out, 0xFF, sizeof(t->out));
  }
}

UNWATCHED static void warp_compute(unsigned first, unsigned lanes, int op) {
  const uint8_t* in[WARP];
  uint8_t* out[WARP];
  for (unsigned i = 0; i < WARP; ++i) {
    in[i] = grid.threads[first + i].in;
    out[i] = grid.threads[first + i].out;
  }
  if (~lanes) grid_fail("a tensor core is used by a part of a warp");
  if (op >= STAND_IN_WARP_MMA_HALF)
    tensor_multiply(op, in, out);
  else if (!tensor_load(op == STAND_IN_WARP_MATRICES_TURNED, in, out))
    grid_fail("loads matrices whose rows are not aligned to 16 bytes");
}

UNWATCHED static void warp_exchange(unsigned first, unsigned lanes, int op) {
  if (op >= STAND_IN_WARP_MATRICES)
    warp_compute(first, lanes, op);
  else
    warp_shuffle(first, lanes);
  for (unsigned i = 0; i < WARP; ++i)
    if (lanes >> i & 1) grid_wake(first + i);
  grid.warps[first / WARP].waiting &= ~lanes;
}

// Lanes that ended hand in nothing.
UNWATCHED static void warp_check(unsigned first, const thread_t* like) {
  const warp_t* warp = &grid.warps[first / WARP];
  unsigned lanes = like->mask & ~warp->done;
  if (warp_has_arrived(warp, first, lanes, like))
    warp_exchange(first, lanes, like->op);
}

UNWATCHED static unsigned grid_warp(unsigned mask, int op, void* value,
                                    unsigned bytes, unsigned from) {
  int current = grid.current;
  thread_t* t = &grid.threads[current];
  unsigned first = (unsigned)current / WARP * WARP;
  if (!(mask >> (current % WARP) & 1))
    grid_fail("a lane is not in the mask that it gives");
  if (op < STAND_IN_WARP_MATRICES && bytes > sizeof(t->out))
    grid_fail("a shuffle of more than 16 bytes");
  t->op = op;
  t->mask = mask;
  t->from = from;
  for (unsigned i = 0; i < bytes; ++i)
    t->in[i] = ((uint8_t*)value)[i];
  t->state = THREAD_IN_WARP;
  grid.warps[first / WARP].waiting |= 1u << current % WARP;
  warp_check(first, t);
  thread_wait();
  for (unsigned i = 0; i < bytes && i < sizeof(t->out); ++i)
    ((uint8_t*)value)[i] = t->out[i];
  return t->ballot;
}

// A lane that ended may be what others wait for.
UNWATCHED static void warps_check(void) {
  for (unsigned t = 0; t < grid.thread_count; ++t) {
    if (grid.threads[t].state == THREAD_IN_WARP)
      warp_check(t / WARP * WARP, &grid.threads[t]);
  }
}

// ---- Blocks ----------------------------------------------------------------

UNWATCHED static fiber_t* fiber_get(void) {
  if (grid.idle_count > 0) return grid.idle[--grid.idle_count];
  fiber_t* fiber = calloc(1, sizeof(*fiber));
  if (!fiber) return NULL;
  fiber->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fiber->stack == MAP_FAILED) {
    free(fiber);
    return NULL;
  }
  mprotect(fiber->stack, 4096, PROT_NONE);
  // Stacks do not all begin at the same lines of the cache.
  fiber_prepare(fiber, fiber_entry, grid.fiber_count % 61 * 192);
  grid.fibers[grid.fiber_count++] = fiber;
  return fiber;
}

// Fibers in the middle of a thread that will not go on are begun anew.
static void fibers_reset(void) {
  grid.idle_count = 0;
  for (unsigned i = 0; i < grid.fiber_count; ++i) {
    fiber_prepare(grid.fibers[i], fiber_entry, i % 61 * 192);
    grid.idle[grid.idle_count++] = grid.fibers[i];
  }
}

UNWATCHED static void grid_resume(fiber_t* fiber) {
  grid.running = fiber;
  fiber_switch(&grid.scheduler, fiber);
}

UNWATCHED static void grid_run_cluster(void) {
  grid.begun = grid.finished = grid.arrived = grid.phase = 0;
  memset(grid.finished_in, 0, sizeof(grid.finished_in));
  memset(grid.at_barrier, 0, sizeof(grid.at_barrier));
  grid.queue_first = grid.queue_count = 0;
  memset(grid.warps, 0, sizeof(grid.warps));
  if (grid.thread_count % WARP > 0)
    grid.warps[grid.thread_count / WARP].done = ~0u << grid.thread_count % WARP;
  for (unsigned i = 0; i < grid.thread_count; ++i)
    grid.threads[i].state = THREAD_RUNNABLE;
  while (grid.finished < grid.thread_count) {
    if (grid.begun < grid.thread_count) {
      fiber_t* fiber = fiber_get();
      if (!fiber) grid_fail("no memory for a thread's stack");
      grid_resume(fiber);
      continue;
    }
    if (grid.queue_count == 0) warps_check();
    if (grid.queue_count == 0)
      grid_fail("threads wait for each other, and none can go on");
    grid_resume(grid.threads[grid_next()].fiber);
  }
}

// Threads begin in another order from block to block: forwards, backwards, and
// from the middle.
static void grid_order(uint64_t block) {
  unsigned count = grid.thread_count;
  unsigned start = block % 3 == 2 ? count / 2 : 0;
  for (unsigned i = 0; i < count; ++i) {
    unsigned t = (i + start) % count;
    grid.order[i] = (uint16_t)(block % 3 == 1 ? count - 1 - t : t);
  }
}

// The first contents of shared memory are not defined.
static void grid_spoil_shared(const launch_t* launch) {
  const CUmodule module = launch->function->module;
  memset(module->shared_begin, 0xFF, module->shared_size);
  size_t bytes = (launch->shared_bytes + 15) / 16 * 16;
  for (unsigned i = 0; i < grid.block_count; ++i)
    memset(grid.shared[i] - bytes, 0xFF, bytes);
}

// ---- What goes wrong -------------------------------------------------------

static void grid_tell(const char* what) {
  const struct stand_in_module* s = grid.state;
  misuse("kernel %s, block %u %u %u, thread %u %u %u: %s",
         grid.launch->function->kernel->name, s->block.x, s->block.y,
         s->block.z, s->thread.x, s->thread.y, s->thread.z, what);
}

static void grid_fail(const char* message) {
  grid_tell(message);
  grid.fault_address = NULL;
  siglongjmp(grid.escape, 1);
}

static const int grid_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { GRID_SIGNALS = sizeof(grid_signals) / sizeof(grid_signals[0]) };
static struct sigaction grid_before[GRID_SIGNALS];

static void grid_on_signal(int number, siginfo_t* info, void* context) {
  (void)context;
  grid.fault_signal = number;
  grid.fault_address = info->si_addr;
  siglongjmp(grid.escape, 2);
}

static void grid_catch(bool on) {
  static uint8_t stack[16384];
  static stack_t before;
  if (on) {
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
    sigaltstack(&own, &before);
  }
  for (int i = 0; i < GRID_SIGNALS; ++i) {
    struct sigaction action = {.sa_sigaction = grid_on_signal,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (on)
      sigaction(grid_signals[i], &action, &grid_before[i]);
    else
      sigaction(grid_signals[i], &grid_before[i], NULL);
  }
  if (!on) sigaltstack(&before, NULL);
}

static void grid_tell_fault(void) {
  char text[256];
  if (grid.fault_signal == SIGFPE)
    snprintf(text, sizeof(text), "an integer is divided by zero");
  else if (grid.fault_signal == SIGILL)  // a trap of the compiler's checks
    snprintf(text, sizeof(text), "an access that is not aligned to its type");
  else if (!grid.fault_address)
    snprintf(text, sizeof(text),
             "an access at 0, or one of 16 bytes that is not aligned");
  else
    snprintf(text, sizeof(text), "an access out of bounds at %s",
             memory_describe(grid.fault_address));
  grid_tell(text);
}

// ---- Grids -----------------------------------------------------------------

static const struct stand_in_runtime grid_runtime = {
    .sync_threads = grid_sync_threads,
    .warp = grid_warp,
    .await_previous = grid_await_previous,
    .cluster_arrive = grid_cluster_arrive,
    .cluster_wait = grid_cluster_wait,
    .cluster_address = grid_cluster_address,
    .fail = grid_fail,
};

// Dynamic shared memory ends where a page begins that nobody may touch.
static bool grid_share(unsigned block) {
  const size_t most = 232448 + 1024, pages = (most + 4095) / 4096 * 4096;
  if (grid.shared[block]) return true;
  uint8_t* memory = mmap(NULL, pages + 4096, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  mprotect(memory + pages, 4096, PROT_NONE);
  grid.shared[block] = memory + pages;
  return true;
}

// The blocks of cluster i.
UNWATCHED static void grid_place_cluster(const launch_t* launch, uint64_t i) {
  const unsigned *g = launch->grid, *c = launch->cluster;
  unsigned x = g[0] / c[0], y = g[1] / c[1];
  unsigned first[] = {(unsigned)(i % x) * c[0], (unsigned)(i / x % y) * c[1],
                      (unsigned)(i / x / y) * c[2]};
  for (unsigned b = 0; b < grid.block_count; ++b)
    grid.blocks[b] =
        (struct stand_in_uint3){first[0] + b % c[0], first[1] + b / c[0] % c[1],
                                first[2] + b / c[0] / c[1]};
}

// Forwards and backwards in turns, by the function's launches: blocks that wait
// for those of other processes come in one order there.
UNWATCHED static void grid_run_blocks(const launch_t* launch) {
  const unsigned* g = launch->grid;
  uint64_t count = (uint64_t)g[0] * g[1] * g[2] / grid.block_count;
  bool backwards = launch->function->launches++ % 2 == 1;
  if (grid.block_count > 1 && launch->function->module->shared_size > 0)
    grid_fail("shared memory of a cluster must be dynamic here");
  if (grid.block_count > 1 && grid.block_threads % WARP != 0)
    grid_fail("blocks of a cluster must be whole warps here");
  for (uint64_t i = 0; i < count; ++i) {
    grid_place_cluster(launch, backwards ? count - 1 - i : i);
    grid_place(0);
    if (i < 3 || grid.thread_count < 64) grid_order(i);
    grid_spoil_shared(launch);
    grid_run_cluster();
  }
}

static void grid_place_threads(const unsigned block[3]) {
  for (unsigned i = 0; i < grid.block_threads; ++i)
    grid.places[i] = (struct stand_in_uint3){
        i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
}

// Kernels here could read the host's memory, those of a GPU cannot. So an
// address of it counts as its use: a parameter, or a word in a structure that
// is the only parameter. Other structures may be tables whose ends nobody set.
static const void* grid_find_host_address(const launch_t* launch) {
  const struct stand_in_kernel* kernel = launch->function->kernel;
  for (unsigned i = 0; i < kernel->count; ++i) {
    const void* word;
    if (kernel->sizes[i] != sizeof(word) && kernel->count != 1) continue;
    for (unsigned at = 0; at + sizeof(word) <= kernel->sizes[i];
         at += sizeof(word)) {
      memcpy(&word, (const uint8_t*)launch->parameters[i] + at, sizeof(word));
      // Smaller and larger numbers are no addresses of the host's, but of what
      // sanitizers map up to 2^44: two small integers look like such.
      if ((uintptr_t)word >> 45 != 0 && (uintptr_t)word >> 47 == 0 &&
          memory_is_hosts(word) && !condition_is_alive(word))
        return word;
    }
  }
  return NULL;
}

CUresult grid_run(const launch_t* launch) {
  const CUmodule module = launch->function->module;
  if (!launch->function->kernel->call) return CUDA_SUCCESS;
  const void* wrong = grid_find_host_address(launch);
  if (wrong) {
    misuse("kernel %s has as a parameter %s", launch->function->kernel->name,
           memory_describe(wrong));
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  grid.launch = launch;
  grid.state = module->state;
  grid.block_threads = launch->block[0] * launch->block[1] * launch->block[2];
  grid.block_count =
      launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
  grid.thread_count = grid.block_threads * grid.block_count;
  grid_place_threads(launch->block);
  for (unsigned i = 0; i < grid.block_count; ++i)
    if (!grid_share(i)) return CUDA_ERROR_OUT_OF_MEMORY;
  *grid.state = (struct stand_in_module){
      .abi = STAND_IN_ABI,
      .block_extent = {launch->block[0], launch->block[1], launch->block[2]},
      .grid_extent = {launch->grid[0], launch->grid[1], launch->grid[2]},
      .dynamic_shared_bytes = launch->shared_bytes,
      .runtime = &grid_runtime};
  grid_catch(true);
  int escaped = sigsetjmp(grid.escape, 1);
  if (escaped == 0) grid_run_blocks(launch);
  grid_catch(false);
  if (escaped == 2) grid_tell_fault();
  if (escaped != 0) fibers_reset();
  return escaped == 0   ? CUDA_SUCCESS
         : escaped == 1 ? ERROR_LAUNCH_FAILED
                        : CUDA_ERROR_ILLEGAL_ADDRESS;
}

__attribute__((destructor(150))) static void grid_end(void) {
  for (unsigned i = 0; i < grid.fiber_count; ++i) {
    munmap(grid.fibers[i]->stack, STACK);
    free(grid.fibers[i]);
  }
  grid.fiber_count = grid.idle_count = 0;
}
