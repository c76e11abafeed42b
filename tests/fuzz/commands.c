// Runs command lines of `rabbet`, each in a process of its own that is forked
// off one in which the libraries are loaded: some hundred a second.
//
//   commands SECONDS MEBIBYTES FOLDER < LINES
//
// SECONDS are the processor's; ten times as many may pass. A line is words
// after "rabbet", with tabs between them. For each there is a line with its
// number, how it ended ("exit 3", "signal 11", "timeout"), its seconds and the
// mebibytes that it had at most. What a process printed is left in
// FOLDER/NUMBER where it ended in another way than with one of the command's
// exit codes. In a build without sanitizers the address space has the limit,
// which ends in an error; with them it is what is resident, and that a process
// ends where it has more.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/main.h"
#include "rabbet/rabbet.h"

enum { MAX_WORDS = 64, LAST_EXIT_CODE = 6 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

static int words_of(char* line, char** words) {
  int count = 0;
  words[count++] = (char*)"rabbet";
  for (char* word = strtok(line, "\t\n"); word && count < MAX_WORDS - 1;
       word = strtok(NULL, "\t\n"))
    words[count++] = word;
  words[count] = NULL;
  return count;
}

static void become(char* line, const char* log, unsigned seconds,
                   rlim_t mebibytes) {
  char* words[MAX_WORDS];
  int count = words_of(line, words);
  int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (out < 0) _exit(127);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  struct rlimit limit = {mebibytes << 20, mebibytes << 20};
  if (!sanitized) setrlimit(RLIMIT_AS, &limit);
  const struct rlimit processor = {seconds, seconds + 1};
  setrlimit(RLIMIT_CPU, &processor);
  alarm(10 * seconds);
  exit(rabbet_cli_main(count, words, NULL));
}

static void tell(int number, int status, const struct rusage* usage,
                 const char* log) {
  double seconds =
      (double)usage->ru_utime.tv_sec + (double)usage->ru_utime.tv_usec / 1e6 +
      (double)usage->ru_stime.tv_sec + (double)usage->ru_stime.tv_usec / 1e6;
  bool exited = WIFEXITED(status), alarmed = false;
  int value = exited ? WEXITSTATUS(status) : WTERMSIG(status);
  alarmed = !exited && (value == SIGALRM || value == SIGXCPU);
  if (alarmed)
    printf("%d timeout", number);
  else
    printf("%d %s %d", number, exited ? "exit" : "signal", value);
  printf(" %.2f %ld\n", seconds, usage->ru_maxrss / 1024);
  fflush(stdout);
  if (exited && value <= LAST_EXIT_CODE) unlink(log);
}

// Libraries that every child needs.
static void load_libraries(void) {
  char* words[] = {(char*)"rabbet", (char*)"version", NULL};
  int out = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY);
  fflush(stdout);
  dup2(null, STDOUT_FILENO);
  rabbet_cli_main(2, words, NULL);
  fflush(stdout);
  dup2(out, STDOUT_FILENO);
  close(out);
  close(null);
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: commands SECONDS MEBIBYTES FOLDER < LINES\n");
    return 2;
  }
  unsigned seconds = (unsigned)strtoul(argv[1], NULL, 10);
  rlim_t mebibytes = strtoul(argv[2], NULL, 10);
  char* line = NULL;
  size_t room = 0;
  load_libraries();
  for (int number = 0; getline(&line, &room, stdin) > 0; ++number) {
    char log[4096];
    snprintf(log, sizeof(log), "%s/%d", argv[3], number);
    int status = 0;
    struct rusage usage;
    pid_t child = fork();
    if (child == 0) become(line, log, seconds, mebibytes);
    if (child < 0 || wait4(child, &status, 0, &usage) != child) {
      perror("commands");
      return 1;
    }
    tell(number, status, &usage, log);
  }
  free(line);
  return 0;
}
