#define _GNU_SOURCE
#include "base/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

extern char** environ;

#define CHILD_POLL_NS 1000000
#define CHILD_MESSAGE_LIMIT ((uint64_t)1 << 30)

// ---- Starting ---------------------------------------------------------------

static int child_actions(int channel, posix_spawn_file_actions_t* actions) {
  int error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO,
                                               "/dev/null", O_RDONLY, 0);
  // Services close their standard descriptors.
  if (!error && fcntl(STDERR_FILENO, F_GETFD) < 0)
    error = posix_spawn_file_actions_addopen(actions, STDERR_FILENO,
                                             "/dev/null", O_WRONLY, 0);
  if (!error)
    error =
        posix_spawn_file_actions_adddup2(actions, STDERR_FILENO, STDOUT_FILENO);
  if (!error)
    error = posix_spawn_file_actions_adddup2(actions, channel,
                                             RABBET_CHILD_CHANNEL);
  return error;
}

// Default signal handling for the new program, regardless of the host's.
static int child_attributes(posix_spawnattr_t* attributes) {
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  int error = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF |
                                                       POSIX_SPAWN_SETSIGMASK |
                                                       POSIX_SPAWN_SETPGROUP);
  if (!error) error = posix_spawnattr_setsigdefault(attributes, &all);
  if (!error) error = posix_spawnattr_setsigmask(attributes, &none);
  if (!error) error = posix_spawnattr_setpgroup(attributes, 0);
  return error;
}

static int child_spawn(const char* path, const char* argument, int channel,
                       pid_t* out_pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  char* arguments[] = {(char*)(uintptr_t)path, (char*)(uintptr_t)argument,
                       NULL};
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  error = posix_spawnattr_init(&attributes);
  if (!error) {
    error = child_actions(channel, &actions);
    if (!error) error = child_attributes(&attributes);
    if (!error)
      error =
          posix_spawn(out_pid, path, &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Makes the two ends of the channel, neither with a number that is a standard
// descriptor's or the helper's: where those are closed, they would be taken.
// Returns 0 or an errno.
static int child_sockets(int ends[2]) {
  int error = 0;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return errno;
  for (int i = 0; i < 2; ++i) {
    int moved = fcntl(ends[i], F_DUPFD_CLOEXEC, RABBET_CHILD_CHANNEL + 1);
    if (moved < 0) error = errno;
    close(ends[i]);
    ends[i] = moved;
  }
  for (int i = 0; error && i < 2; ++i)
    if (ends[i] >= 0) close(ends[i]);
  return error;
}

rabbet_status_t rabbet_child_start(const char* path, const char* argument,
                                   rabbet_child_t* out) {
  int ends[2];
  pid_t pid = 0;
  *out = (rabbet_child_t){.channel = -1};
  int error = child_sockets(ends);
  if (error)
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "no socket for the helper program: %s",
                         strerror(error));
  error = child_spawn(path, argument, ends[1], &pid);
  close(ends[1]);
  if (error) {
    close(ends[0]);
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "the helper program '%s' cannot be started: %s", path,
                         strerror(error));
  }
  *out = (rabbet_child_t){.pid = pid, .channel = ends[0]};
  return rabbet_ok();
}

// ---- Ending -----------------------------------------------------------------

static void child_sleep(int64_t ns) {
  const struct timespec time = {.tv_sec = ns / 1000000000,
                                .tv_nsec = ns % 1000000000};
  nanosleep(&time, NULL);
}

// False while it runs. The host may have waited for all its children: then
// nobody knows how this one ended.
static bool child_reap(pid_t pid, int flags, char* how, size_t size) {
  int state = 0;
  pid_t found = 0;
  do {
    found = waitpid(pid, &state, flags);
  } while (found < 0 && errno == EINTR);
  if (found == 0) return false;
  if (!how) return true;
  if (found == pid && WIFSIGNALED(state))
    snprintf(how, size, "signal %d", WTERMSIG(state));
  else if (found == pid)
    snprintf(how, size, "exit code %d", WEXITSTATUS(state));
  else
    snprintf(how, size, "an unknown end");
  return true;
}

void rabbet_child_stop(rabbet_child_t* child, int64_t grace_ns, char* out_how,
                       size_t how_size) {
  if (out_how) snprintf(out_how, how_size, "no start");
  if (child->pid == 0) return;
  assert(child->pid > 0 && child->channel >= 0);
  int64_t end = rabbet_time_ns() + grace_ns;
  // A process that the host has forked off meanwhile holds the channel, too:
  // closing it here alone would not end the helper.
  shutdown(child->channel, SHUT_RDWR);
  close(child->channel);
  bool ended = child_reap(child->pid, WNOHANG, out_how, how_size);
  while (!ended && rabbet_time_ns() < end) {
    child_sleep(CHILD_POLL_NS);
    ended = child_reap(child->pid, WNOHANG, out_how, how_size);
  }
  if (!ended) {
    kill(child->pid, SIGKILL);
    child_reap(child->pid, 0, out_how, how_size);
  }
  *child = (rabbet_child_t){.channel = -1};
}

void rabbet_child_begin(void) {
  const struct rlimit none = {0, 0};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setrlimit(RLIMIT_CORE, &none);
  if (syscall(SYS_close_range, RABBET_CHILD_CHANNEL + 1, ~0u, 0) == 0) return;
  for (int fd = RABBET_CHILD_CHANNEL + 1; fd < 4096; ++fd)
    close(fd);
}

// ---- Messages ---------------------------------------------------------------

typedef struct message_head_t {
  uint32_t kind, magic;
  uint64_t size;
} message_head_t;

#define MESSAGE_MAGIC 0x474d4252u  // "RBMG"

// Waits until the channel can be read or written.
static rabbet_message_t message_wait(int channel, short what, int64_t end) {
  for (;;) {
    int milliseconds = -1;
    if (end >= 0) {
      int64_t left = (end - rabbet_time_ns() + 999999) / 1000000;
      if (left <= 0) return RABBET_MESSAGE_LATE;
      milliseconds = left > 1000000 ? 1000000 : (int)left;
    }
    struct pollfd wish = {.fd = channel, .events = what};
    int found = poll(&wish, 1, milliseconds);
    if (found > 0) return RABBET_MESSAGE_OK;
    if (found < 0 && errno != EINTR) return RABBET_MESSAGE_CLOSED;
  }
}

static bool message_again(void) {
  return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
}

static rabbet_message_t message_write(int channel, const void* data,
                                      size_t size, int64_t end) {
  const uint8_t* at = data;
  while (size > 0) {
    rabbet_message_t result = message_wait(channel, POLLOUT, end);
    if (result != RABBET_MESSAGE_OK) return result;
    ssize_t sent = send(channel, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && message_again()) continue;
    if (sent <= 0) return RABBET_MESSAGE_CLOSED;
    at += sent;
    size -= (size_t)sent;
  }
  return RABBET_MESSAGE_OK;
}

static rabbet_message_t message_read(int channel, void* data, size_t size,
                                     int64_t end) {
  uint8_t* at = data;
  while (size > 0) {
    rabbet_message_t result = message_wait(channel, POLLIN, end);
    if (result != RABBET_MESSAGE_OK) return result;
    ssize_t got = recv(channel, at, size, MSG_DONTWAIT);
    if (got < 0 && message_again()) continue;
    if (got <= 0) return RABBET_MESSAGE_CLOSED;
    at += got;
    size -= (size_t)got;
  }
  return RABBET_MESSAGE_OK;
}

static int64_t message_end(int64_t timeout_ns) {
  return timeout_ns < 0 ? -1 : rabbet_time_ns() + timeout_ns;
}

rabbet_message_t rabbet_message_send(int channel, uint32_t kind,
                                     const void* data, size_t size,
                                     int64_t timeout_ns) {
  int64_t end = message_end(timeout_ns);
  const message_head_t head = {kind, MESSAGE_MAGIC, size};
  rabbet_message_t result = message_write(channel, &head, sizeof(head), end);
  if (result != RABBET_MESSAGE_OK) return result;
  return message_write(channel, data, size, end);
}

rabbet_message_t rabbet_message_receive(int channel, int64_t timeout_ns,
                                        uint32_t* out_kind,
                                        rabbet_strbuf_t* out_data) {
  // Not const: a library's file would have them.
  static char zeros[4096];
  int64_t end = message_end(timeout_ns);
  message_head_t head;
  *out_kind = 0;
  out_data->size = 0;
  rabbet_message_t result = message_read(channel, &head, sizeof(head), end);
  if (result != RABBET_MESSAGE_OK) return result;
  if (head.magic != MESSAGE_MAGIC || head.size > CHILD_MESSAGE_LIMIT)
    return RABBET_MESSAGE_CLOSED;
  while (out_data->size < head.size) {
    size_t piece = (size_t)head.size - out_data->size;
    size_t at = out_data->size;
    if (piece > sizeof(zeros)) piece = sizeof(zeros);
    rabbet_strbuf_append(out_data, zeros, piece);
    if (out_data->failed) return RABBET_MESSAGE_NO_MEMORY;
    result = message_read(channel, out_data->data + at, piece, end);
    if (result != RABBET_MESSAGE_OK) return result;
  }
  *out_kind = head.kind;
  return RABBET_MESSAGE_OK;
}
