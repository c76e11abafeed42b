#include "pyhost/interpreter.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RABBET_PYTHON_MAJOR 3
#define RABBET_PYTHON_MINOR 11

extern char** environ;

// Three lines: version, executable, shared library. A python that is linked
// with its library names it by INSTSONAME.
static const char question[] =
    "import os, sys, sysconfig\n"
    "get = lambda name: sysconfig.get_config_var(name) or ''\n"
    "folders = [get('LIBDIR'), os.path.join(get('LIBDIR'), get('MULTIARCH')),\n"
    "           os.path.join(sys.base_prefix, 'lib'), get('LIBPL')]\n"
    "names = [get('INSTSONAME'), get('LDLIBRARY')]\n"
    "paths = [os.path.join(f, n) for f in folders for n in names if '.so' in "
    "n]\n"
    "print('%d.%d' % sys.version_info[:2])\n"
    "print(sys.executable)\n"
    "print(next(filter(os.path.isfile, paths), ''))\n";

// Reads until the other side closes; cut where it does not fit.
static void read_all(int file, char* text, size_t capacity) {
  size_t size = 0;
  char rest[256];
  for (;;) {
    bool full = size + 1 >= capacity;
    ssize_t count = full ? read(file, rest, sizeof(rest))
                         : read(file, text + size, capacity - 1 - size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    if (!full) size += (size_t)count;
  }
  text[size] = '\0';
}

static rabbet_status_t spawn_failed(const char* python, int error) {
  return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                       "there is no Python: '%s' cannot be run (%s); name one "
                       "by rabbet_pyhost_options_t or RABBET_PYTHON",
                       python, strerror(error));
}

static rabbet_status_t run_python(const char* python, char* text,
                                  size_t capacity) {
  int pipe_files[2], exit_status = 0;
  pid_t child = 0;
  char* const argv[] = {(char*)(uintptr_t)python, "-c",
                        (char*)(uintptr_t)question, NULL};
  posix_spawn_file_actions_t actions;
  if (pipe(pipe_files) != 0)
    return RABBET_STATUS(RABBET_STATUS_IO, "pipe: %s", strerror(errno));
  int error = posix_spawn_file_actions_init(&actions);
  if (error == 0) {
    posix_spawn_file_actions_adddup2(&actions, pipe_files[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, pipe_files[0]);
    posix_spawn_file_actions_addclose(&actions, pipe_files[1]);
    error = posix_spawnp(&child, python, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  close(pipe_files[1]);
  if (error == 0) read_all(pipe_files[0], text, capacity);
  close(pipe_files[0]);
  if (error != 0) return spawn_failed(python, error);
  while (waitpid(child, &exit_status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(exit_status) && WEXITSTATUS(exit_status) == 0)
    return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_UNAVAILABLE,
      "'%s' is not a Python that works: asked for its version, it failed",
      python);
}

// Cuts the next line off.
static const char* next_line(char** text) {
  char* line = *text;
  char* end = strchr(line, '\n');
  *text = end ? end + 1 : line + strlen(line);
  if (end) *end = '\0';
  return line;
}

rabbet_status_t rabbet_interpreter_ask(const char* python,
                                       rabbet_interpreter_t* out_interpreter) {
  rabbet_interpreter_t* out = out_interpreter;
  char answer[2 * RABBET_INTERPRETER_TEXT + 64];
  memset(out, 0, sizeof(*out));
  RABBET_RETURN_IF_ERROR(run_python(python, answer, sizeof(answer)));
  char* at = answer;
  const char* version = next_line(&at);
  const char* executable = next_line(&at);
  const char* library = next_line(&at);
  if (sscanf(version, "%d.%d", &out->major, &out->minor) != 2 ||
      strlen(executable) >= sizeof(out->executable) ||
      strlen(library) >= sizeof(out->library))
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "'%s' is not a Python: it says '%.80s'", python,
                         version);
  if (out->major != RABBET_PYTHON_MAJOR || out->minor < RABBET_PYTHON_MINOR)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "'%s' is Python %d.%d; expected %d.%d or newer. Name "
                         "another by rabbet_pyhost_options_t or RABBET_PYTHON",
                         python, out->major, out->minor, RABBET_PYTHON_MAJOR,
                         RABBET_PYTHON_MINOR);
  strcpy(out->executable, executable);
  strcpy(out->library, library);
  return rabbet_ok();
}
