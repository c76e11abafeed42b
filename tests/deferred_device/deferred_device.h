// The deferred device, "defer": computes like the null device, but its memory
// is closed to the host save in copies and kernels, so that touching it crashes
// at once. It also refuses copies whose device side is not its memory.
//
// It has streams, events and graphs like a GPU. While `deferred_lazy` is set,
// work lies in a queue until somebody waits, so that whatever is freed or
// written over too early shows. Its kernels need "code", which they compile
// (counted) unless a plan has it.
#ifndef RABBET_TESTS_DEFERRED_DEVICE_H_
#define RABBET_TESTS_DEFERRED_DEVICE_H_

#include "device/device.h"

typedef struct deferred_counts_t {
  int compiled;      // kernels whose code no plan had
  int allocated;     // bytes of device memory that are in use
  int pinned;        // blocks of host memory that are in use
  int graphs;        // that exist
  int recordings;    // begun
  int updates;       // of a graph in its place
  int launches;      // of graphs
  int synchronized;  // waits
  int done;          // kernels, copies and fills that ran
} deferred_counts_t;

RABBET_PRIVATE_API deferred_counts_t* deferred_counts(void);
RABBET_PRIVATE_API void deferred_set_lazy(bool lazy);
// The n-th call from now of what can fail in recording fails (0: none).
RABBET_PRIVATE_API void deferred_fail_recording(int n);

// Whether kernels made from now on keep constants of their own.
RABBET_PRIVATE_API void deferred_set_owning(bool owning);

// A machine whose clock the test turns, for `time`; NULL: the real one.
typedef struct deferred_machine_t {
  int64_t now;             // nanoseconds; each piece of work takes 1000
  uint64_t interruptions;  // as the device tells them
  int64_t pace;            // as well
  // Changes a time that was measured.
  void (*disturb)(struct deferred_machine_t* machine, int64_t* ns);
} deferred_machine_t;
RABBET_PRIVATE_API void deferred_set_machine(deferred_machine_t* machine);

// For plugins: device work on a stream, with a copy of its arguments. Deferred
// memory is open while it runs.
RABBET_PRIVATE_API rabbet_status_t
deferred_launch(void* stream, void (*work)(const void* args), const void* args,
                size_t size);

// ---- Within the device

deferred_machine_t* deferred_machine(void);
void deferred_open_memory(void);
void deferred_close_memory(void);
bool deferred_owns(const void* address, size_t size);
// The functions of streams, events and graphs.
void deferred_stream_vtable(rabbet_device_vtable_t* vtable);
bool deferred_is_recording(void* stream);
// Does what is queued.
void deferred_flush(void);

#endif  // RABBET_TESTS_DEFERRED_DEVICE_H_
