// Memory for libraries that end the process when the system refuses them some.
#ifndef RABBET_SRC_DEVICE_CPU_DNNL_HEADROOM_H_
#define RABBET_SRC_DEVICE_CPU_DNNL_HEADROOM_H_

#include "base/status.h"

// OUT_OF_MEMORY where the limits of this process leave less address space than
// oneDNN may need to generate code. It writes to a null pointer where that
// fails, and its exceptions do not pass its C interface.
rabbet_status_t rabbet_cpu_check_room(void);
// The same for the stacks of `threads` threads more: libgomp calls exit when it
// cannot start one.
rabbet_status_t rabbet_cpu_check_thread_room(int threads);

#endif  // RABBET_SRC_DEVICE_CPU_DNNL_HEADROOM_H_
