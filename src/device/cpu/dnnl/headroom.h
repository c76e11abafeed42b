// Checks for memory before calls of libraries that crash or exit without it.
#ifndef RABBET_SRC_DEVICE_CPU_DNNL_HEADROOM_H_
#define RABBET_SRC_DEVICE_CPU_DNNL_HEADROOM_H_

#include "base/status.h"

// OUT_OF_MEMORY if the limits of this process leave less address space than
// oneDNN may need to generate code. When that fails, oneDNN writes to a null
// pointer, or throws C++ exceptions through its C interface.
rabbet_status_t rabbet_cpu_check_room(void);
// The same for the stacks of `threads` more threads.
rabbet_status_t rabbet_cpu_check_thread_room(int threads);

#endif  // RABBET_SRC_DEVICE_CPU_DNNL_HEADROOM_H_
