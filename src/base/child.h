// A helper program, and messages to and from it over a socket.
//
// Runs code that may crash or hang in a separate program, which the calling
// process survives. Does not interfere with that process's threads, signal
// handlers, descriptors and other children.
#ifndef RABBET_SRC_BASE_CHILD_H_
#define RABBET_SRC_BASE_CHILD_H_

#include "base/strbuf.h"

enum {
  RABBET_CHILD_CHANNEL = 3,  // the helper's end, in the helper
};

typedef struct rabbet_child_t {
  int pid;      // 0: none runs
  int channel;  // our end
} rabbet_child_t;

// Starts the program of that path with our environment and one argument. Its
// standard input is empty, its output goes where errors go; Ctrl-C does not
// reach it. UNAVAILABLE says why the system did not start it.
RABBET_PRIVATE_API rabbet_status_t rabbet_child_start(const char* path,
                                                      const char* argument,
                                                      rabbet_child_t* out);
// Closes the channel, upon which the helper exits, and kills it if it has not
// after grace_ns. Writes how it ended ("signal 11", "exit code 1") to out_how,
// which may be NULL. No effect without a running helper.
RABBET_PRIVATE_API void rabbet_child_stop(rabbet_child_t* child,
                                          int64_t grace_ns, char* out_how,
                                          size_t how_size);
// In the helper, before all else: closes descriptors that came along, leaves no
// core file, ends with the process that started it.
RABBET_PRIVATE_API void rabbet_child_begin(void);

// ---- Messages ---------------------------------------------------------------

typedef enum rabbet_message_t {
  RABBET_MESSAGE_OK = 0,
  RABBET_MESSAGE_CLOSED =
      1,  // the other side is gone or sent an invalid message
  RABBET_MESSAGE_LATE = 2,
  RABBET_MESSAGE_NO_MEMORY = 3,
} rabbet_message_t;

// timeout_ns < 0: waits for ever. No signal is raised where the other side is
// gone.
RABBET_PRIVATE_API rabbet_message_t rabbet_message_send(int channel,
                                                        uint32_t kind,
                                                        const void* data,
                                                        size_t size,
                                                        int64_t timeout_ns);
// Replaces the contents of the buffer.
RABBET_PRIVATE_API rabbet_message_t
rabbet_message_receive(int channel, int64_t timeout_ns, uint32_t* out_kind,
                       rabbet_strbuf_t* out_data);

#endif  // RABBET_SRC_BASE_CHILD_H_
