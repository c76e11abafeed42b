#define _GNU_SOURCE
#include "base/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "check.h"

// The helper is this program again, with an argument.
#define SECOND ((int64_t)1000000000)
enum { CRASH = 1, HANG = 2, FILES = 3, NONSENSE = 4 };

static int count_files(void) {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder))
    ++count;
  closedir(folder);
  return count;
}

// Sends each message back; some kinds ask for something else.
static int helper_main(void) {
  rabbet_strbuf_t data;
  uint32_t kind = 0;
  rabbet_child_begin();
  rabbet_strbuf_initialize(rabbet_allocator_system(), &data);
  while (rabbet_message_receive(RABBET_CHILD_CHANNEL, -1, &kind, &data) ==
         RABBET_MESSAGE_OK) {
    int files = count_files();
    if (kind == CRASH) raise(SIGKILL);
    while (kind == HANG)
      pause();
    if (kind == NONSENSE && write(RABBET_CHILD_CHANNEL, "????????????????", 16))
      continue;
    rabbet_message_send(RABBET_CHILD_CHANNEL, kind + 100,
                        kind == FILES ? (void*)&files : data.data,
                        kind == FILES ? sizeof(files) : data.size, -1);
  }
  rabbet_strbuf_deinitialize(&data);
  return 7;
}

static char own_path[4096];

static rabbet_child_t start(void) {
  rabbet_child_t child;
  rabbet_status_t status = rabbet_child_start(own_path, "helper", &child);
  assert_true(rabbet_is_ok(status));
  return child;
}

static void expect_end(rabbet_child_t* child, int64_t grace_ns,
                       const char* expected) {
  char how[64];
  int pid = child->pid;
  rabbet_child_stop(child, grace_ns, how, sizeof(how));
  assert_string_equal(how, expected);
  assert_int_equal(child->pid, 0);
  assert_int_equal(kill(pid, 0), -1);  // no zombie is left
}

static rabbet_message_t answer(const rabbet_child_t* child, uint32_t kind,
                               const void* data, size_t size,
                               int64_t timeout_ns, rabbet_strbuf_t* out) {
  uint32_t found = 0;
  rabbet_message_t result =
      rabbet_message_send(child->channel, kind, data, size, SECOND);
  if (result == RABBET_MESSAGE_OK)
    result = rabbet_message_receive(child->channel, timeout_ns, &found, out);
  if (result == RABBET_MESSAGE_OK) assert_int_equal(found, kind + 100);
  return result;
}

static void messages_of_all_sizes(void** state) {
  (void)state;
  static const size_t sizes[] = {0, 1, 4096, 5000, 3000000};
  rabbet_child_t child = start();
  rabbet_strbuf_t out;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &out);
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
    uint8_t* data = malloc(sizes[i] + 1);
    for (size_t k = 0; k < sizes[i]; ++k)
      data[k] = (uint8_t)(k * 31 + i);
    assert_int_equal(answer(&child, 50, data, sizes[i], 60 * SECOND, &out),
                     RABBET_MESSAGE_OK);
    assert_int_equal(out.size, sizes[i]);
    if (sizes[i] > 0) assert_memory_equal(out.data, data, sizes[i]);
    free(data);
  }
  rabbet_strbuf_deinitialize(&out);
  expect_end(&child, 60 * SECOND, "exit code 7");
}

static void what_goes_wrong(void** state) {
  (void)state;
  rabbet_strbuf_t out;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &out);
  rabbet_child_t child = start();
  assert_int_equal(answer(&child, CRASH, NULL, 0, 60 * SECOND, &out),
                   RABBET_MESSAGE_CLOSED);
  // Sending to an ended process raises no signal.
  assert_int_equal(rabbet_message_send(child.channel, 50, "x", 1, SECOND),
                   RABBET_MESSAGE_CLOSED);
  expect_end(&child, 60 * SECOND, "signal 9");
  child = start();
  assert_int_equal(answer(&child, HANG, NULL, 0, SECOND / 10, &out),
                   RABBET_MESSAGE_LATE);
  expect_end(&child, 0, "signal 9");
  child = start();
  assert_int_equal(answer(&child, NONSENSE, NULL, 0, 60 * SECOND, &out),
                   RABBET_MESSAGE_CLOSED);
  expect_end(&child, 60 * SECOND, "exit code 7");
  rabbet_strbuf_deinitialize(&out);
  rabbet_status_t status =
      rabbet_child_start("/nonexistent/helper", "helper", &child);
  assert_int_equal(rabbet_status_code(status), RABBET_STATUS_UNAVAILABLE);
  assert_non_null(strstr(rabbet_status_message(status), "/nonexistent/helper"));
  rabbet_status_free(status);
  rabbet_child_stop(&child, 0, NULL, 0);
}

// Descriptors that the host forgot to mark do not reach the helper, and ours do
// not stay open.
static void descriptors(void** state) {
  (void)state;
  int before = count_files(), files = 0;
  int open_files[8];
  for (size_t i = 0; i < 8; ++i)
    open_files[i] = open("/dev/null", O_RDONLY);
  rabbet_child_t child = start();
  rabbet_strbuf_t out;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &out);
  assert_int_equal(answer(&child, FILES, NULL, 0, 60 * SECOND, &out),
                   RABBET_MESSAGE_OK);
  memcpy(&files, out.data, sizeof(files));
  assert_int_equal(files, 4 + 1 + 2);  // the folder itself, "." and ".."
  rabbet_strbuf_deinitialize(&out);
  rabbet_child_stop(&child, 60 * SECOND, NULL, 0);
  for (size_t i = 0; i < 8; ++i)
    close(open_files[i]);
  assert_int_equal(count_files(), before);
}

// Hosts that ignore their children, block signals, have other threads.
static void* talk(void* argument) {
  (void)argument;
  rabbet_strbuf_t out;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &out);
  for (int i = 0; i < 5; ++i) {
    rabbet_child_t child = start();
    assert_int_equal(answer(&child, 50, "abc", 3, 60 * SECOND, &out),
                     RABBET_MESSAGE_OK);
    rabbet_child_stop(&child, 60 * SECOND, NULL, 0);
  }
  rabbet_strbuf_deinitialize(&out);
  return NULL;
}

static void hosts_with_habits(void** state) {
  (void)state;
  pthread_t threads[4];
  sigset_t all, before;
  char how[64];
  for (size_t i = 0; i < 4; ++i)
    assert_int_equal(pthread_create(&threads[i], NULL, talk, NULL), 0);
  for (size_t i = 0; i < 4; ++i)
    pthread_join(threads[i], NULL);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  signal(SIGCHLD, SIG_IGN);
  rabbet_child_t child = start();
  rabbet_child_stop(&child, 60 * SECOND, how, sizeof(how));
  assert_string_equal(how, "an unknown end");
  signal(SIGCHLD, SIG_DFL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// Services run with standard descriptors closed: their numbers are free for
// others then.
static void closed_standard_descriptors(void** state) {
  (void)state;
  rabbet_strbuf_t out;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &out);
  for (int first = 0; first < 3; ++first) {
    int kept[3], files = 0;
    fflush(NULL);
    for (int fd = first; fd < 3; ++fd) {
      kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
      close(fd);
    }
    rabbet_child_t child;
    rabbet_status_t status = rabbet_child_start(own_path, "helper", &child);
    rabbet_message_t result =
        rabbet_is_ok(status) ? answer(&child, FILES, NULL, 0, 60 * SECOND, &out)
                             : RABBET_MESSAGE_CLOSED;
    rabbet_child_stop(&child, 60 * SECOND, NULL, 0);
    for (int fd = first; fd < 3; ++fd) {
      dup2(kept[fd], fd);
      close(kept[fd]);
    }
    assert_true(rabbet_is_ok(status));
    assert_int_equal(result, RABBET_MESSAGE_OK);
    memcpy(&files, out.data, sizeof(files));
    assert_int_equal(files, 4 + 1 + 2);
  }
  rabbet_strbuf_deinitialize(&out);
}

// Another child of the host has the channel as well.
static void hosts_that_fork(void** state) {
  (void)state;
  rabbet_child_t child = start();
  pid_t other = fork();
  if (other == 0)
    for (;;)
      pause();
  expect_end(&child, 20 * SECOND, "exit code 7");
  kill(other, SIGKILL);
  waitpid(other, NULL, 0);
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "helper") == 0) return helper_main();
  ssize_t size = readlink("/proc/self/exe", own_path, sizeof(own_path) - 1);
  own_path[size > 0 ? size : 0] = 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_of_all_sizes),
      cmocka_unit_test(what_goes_wrong),
      cmocka_unit_test(descriptors),
      cmocka_unit_test(hosts_with_habits),
      cmocka_unit_test(closed_standard_descriptors),
      cmocka_unit_test(hosts_that_fork),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
