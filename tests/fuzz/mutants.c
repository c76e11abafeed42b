// mutants FIRST LAST CORPUS [KEEP]: changes the plans of a folder and runs each
// changed one in a child process: mutant i is plan i modulo their number, with
// fields of another one. What ends the process, or takes more than
// MUTANTS_SECONDS of the processor or ten times as long, is written to the
// folder KEEP and makes the program fail. RABBET_FUZZ_CUDA=1: the plans are
// moved to the CUDA device before.
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan_mutate.h"
#include "rabbet/engine.h"

#define MUTANTS_SECONDS 20
#define MUTANTS_IN_A_CHILD 2000

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

typedef struct seed_t {
  uint8_t* data;
  size_t size;
} seed_t;

typedef struct run_t {
  seed_t* seeds;
  size_t count;
  const char* keep;
  volatile long* at;  // shared with the child: the mutant that it runs
} run_t;

static uint8_t* read_file(const char* path, size_t* out_size) {
  FILE* file = fopen(path, "rb");
  uint8_t* data = NULL;
  long size = -1;
  if (file && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 &&
      (data = malloc((size_t)size + 1)) != NULL) {
    rewind(file);
    *out_size = fread(data, 1, (size_t)size, file);
  }
  if (file) fclose(file);
  return data;
}

// Puts the plan for the other device in the place of the one that was read.
static void move_to_cuda(seed_t* seed) {
  size_t size = 0;
  uint8_t* moved = plan_move_to_cuda(seed->data, seed->size, &size);
  if (!moved) return;
  free(seed->data);
  *seed = (seed_t){moved, size};
}

static int is_plan(const struct dirent* entry) {
  return entry->d_name[0] != '.' && !strstr(entry->d_name, ".meta");
}

// Plans that no reader takes any more, as after a change of the format, test
// nothing. Those of crashes are wrong in themselves.
static bool is_seed(const char* name, const seed_t* seed) {
  const rabbet_engine_options_t options = {.struct_size = sizeof(options),
                                           .inspect_only = true};
  rabbet_engine_t* engine = NULL;
  if (strncmp(name, "crash_", 6) == 0) return true;
  rabbet_status_t status = rabbet_engine_deserialize(
      seed->data, seed->size, &options, rabbet_allocator_system(), &engine);
  bool good = rabbet_is_ok(status);
  if (!good) fprintf(stderr, "%s: %s\n", name, rabbet_status_message(status));
  rabbet_status_ignore(status);
  rabbet_engine_release(engine);
  return good;
}

static size_t read_seeds(const char* folder, seed_t** out_seeds) {
  struct dirent** names = NULL;
  int found = scandir(folder, &names, is_plan, alphasort);
  size_t count = 0;
  *out_seeds = calloc(found > 0 ? (size_t)found : 1, sizeof(seed_t));
  for (int i = 0; i < found; ++i) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);
    seed_t* seed = &(*out_seeds)[count];
    seed->data = read_file(path, &seed->size);
    if (seed->data && !is_seed(names[i]->d_name, seed)) exit(2);
    if (seed->data && getenv("RABBET_FUZZ_CUDA")) move_to_cuda(seed);
    count += seed->data != NULL;
    free(names[i]);
  }
  free(names);
  return count;
}

static uint8_t* make(const run_t* run, long i, size_t* out_size) {
  const seed_t* seed = &run->seeds[(size_t)i % run->count];
  const seed_t* donor =
      &run->seeds[(uint64_t)i * UINT64_C(2654435761) % run->count];
  return plan_mutate(seed->data, seed->size, donor->data, donor->size,
                     (uint64_t)i, out_size);
}

// Ends the process after so many seconds; 0: does not.
static void limit_time(unsigned seconds) {
  const struct itimerval processor = {.it_value.tv_sec = seconds};
  setitimer(ITIMER_PROF, &processor, NULL);
  alarm(10 * seconds);
}

static void child(const run_t* run, long first, long last) {
  for (long i = first; i < last; ++i) {
    size_t size = 0;
    *run->at = i;
    uint8_t* data = make(run, i, &size);
    limit_time(MUTANTS_SECONDS);
    if (data) LLVMFuzzerTestOneInput(data, size);
    limit_time(0);
    free(data);
  }
  *run->at = last;
}

static void keep(const run_t* run, long i, int status) {
  char path[4096];
  size_t size = 0;
  fprintf(stderr, "mutant %ld: %s %d\n", i,
          WIFSIGNALED(status) ? "signal" : "exit",
          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  if (!run->keep) return;
  uint8_t* data = make(run, i, &size);
  snprintf(path, sizeof(path), "%s/%ld", run->keep, i);
  FILE* file = fopen(path, "wb");
  bool ok = file && fwrite(data, 1, size, file) == size;
  if (file) ok = fclose(file) == 0 && ok;
  if (!ok) perror(path);
  free(data);
}

// Runs mutants until `last` or one that ends the child; whether one did.
static bool run_some(const run_t* run, long first, long last) {
  int status = 0;
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    child(run, first, last);
    exit(0);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid) {
    perror("fork");
    exit(2);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
  keep(run, *run->at, status);
  return true;
}

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s FIRST LAST CORPUS [KEEP]\n", argv[0]);
    return 2;
  }
  long first = atol(argv[1]), last = atol(argv[2]), i = first;
  run_t run = {.keep = argc > 4 ? argv[4] : NULL};
  run.count = read_seeds(argv[3], &run.seeds);
  run.at = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (run.count == 0 || run.at == MAP_FAILED) {
    fprintf(stderr, "%s: no plans\n", argv[3]);
    return 2;
  }
  long failed = 0;
  while (i < last) {
    long end = i + MUTANTS_IN_A_CHILD < last ? i + MUTANTS_IN_A_CHILD : last;
    *run.at = i;
    bool ended = run_some(&run, i, end);
    failed += ended;
    // The last one may have left what only the end of the process finds.
    i = *run.at + (ended && *run.at < end);
  }
  for (size_t s = 0; s < run.count; ++s)
    free(run.seeds[s].data);
  free(run.seeds);
  printf("%ld mutants of %zu plans, %ld ended the process\n", last - first,
         run.count, failed);
  return failed > 0;
}
