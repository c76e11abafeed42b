// A stand-in for NVRTC: "compiles" CUDA C++ with g++ into a shared object that
// the stand-in driver runs on the host. What was compiled once is kept in a
// folder, by a hash of all that went in.
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_stand_in/kernel_abi.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_OUT_OF_MEMORY = 1,
  NVRTC_ERROR_INVALID_INPUT = 3,
  NVRTC_ERROR_INVALID_PROGRAM = 4,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
};
typedef int nvrtcResult;

// ---- Text ------------------------------------------------------------------

typedef struct text_t {
  char* data;
  size_t size, room;
} text_t;

static void text_append(text_t* text, const void* data, size_t size) {
  if (text->size + size + 1 > text->room) {
    text->room = 2 * text->room + size + 256;
    text->data = realloc(text->data, text->room);
    if (!text->data) abort();
  }
  memcpy(text->data + text->size, data, size);
  text->size += size;
  text->data[text->size] = 0;
}

__attribute__((format(printf, 2, 3))) static void text_print(text_t* text,
                                                             const char* format,
                                                             ...) {
  char buffer[4096];
  va_list arguments;
  va_start(arguments, format);
  int size = vsnprintf(buffer, sizeof(buffer), format, arguments);
  va_end(arguments);
  if (size < 0 || (size_t)size >= sizeof(buffer)) abort();
  text_append(text, buffer, (size_t)size);
}

static void text_free(text_t* text) {
  free(text->data);
  *text = (text_t){0};
}

static bool file_read(const char* path, text_t* out_text) {
  FILE* file = fopen(path, "rb");
  if (!file) return false;
  char buffer[65536];
  size_t size;
  text_append(out_text, "", 0);
  while ((size = fread(buffer, 1, sizeof(buffer), file)) > 0)
    text_append(out_text, buffer, size);
  fclose(file);
  return true;
}

static bool file_write(const char* path, const void* data, size_t size) {
  FILE* file = fopen(path, "wb");
  bool good = file && fwrite(data, 1, size, file) == size;
  return file && fclose(file) == 0 && good;
}

// ---- Programs --------------------------------------------------------------

typedef struct _nvrtcProgram {
  char *text, *name;
  char **headers, **header_names;
  int header_count;
  text_t log, object;
  unsigned major, minor;
  bool specific;    // for this architecture alone: sm_90a
  bool is_virtual;  // PTX alone: compute_90
} program_t;
typedef program_t* nvrtcProgram;

EXPORT nvrtcResult nvrtcVersion(int* major, int* minor) {
  const char* version = getenv("RABBET_STAND_IN_NVRTC");
  *major = 13;
  *minor = 0;
  if (version && sscanf(version, "%d.%d", major, minor) != 2)
    return NVRTC_ERROR_INVALID_INPUT;
  return NVRTC_SUCCESS;
}

EXPORT const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_SUCCESS:
      return "NVRTC_SUCCESS";
    case NVRTC_ERROR_OUT_OF_MEMORY:
      return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_INVALID_INPUT:
      return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM:
      return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_INVALID_OPTION:
      return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION:
      return "NVRTC_ERROR_COMPILATION";
    default:
      return "NVRTC_ERROR unknown";
  }
}

EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* out_program,
                                      const char* text, const char* name,
                                      int header_count,
                                      const char* const* headers,
                                      const char* const* header_names) {
  if (!out_program || !text || header_count < 0)
    return NVRTC_ERROR_INVALID_INPUT;
  program_t* program = calloc(1, sizeof(*program));
  size_t count = (size_t)header_count + 1;
  *out_program = program;
  program->text = strdup(text);
  program->name = strdup(name ? name : "default_program");
  program->headers = calloc(count, sizeof(char*));
  program->header_names = calloc(count, sizeof(char*));
  program->header_count = header_count;
  for (int i = 0; i < header_count; ++i) {
    program->headers[i] = strdup(headers[i]);
    program->header_names[i] = strdup(header_names[i]);
  }
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
  for (int i = 0; i < (*program)->header_count; ++i) {
    free((*program)->headers[i]);
    free((*program)->header_names[i]);
  }
  free((*program)->headers);
  free((*program)->header_names);
  free((*program)->text);
  free((*program)->name);
  text_free(&(*program)->log);
  text_free(&(*program)->object);
  free(*program);
  *program = NULL;
  return NVRTC_SUCCESS;
}

// ---- Rewriting what the preprocessor gave ----------------------------------

typedef struct rewrite_t {
  const char* at;
  text_t out;
  text_t kernels;  // rows of the table stand_in_kernels
  text_t bounds;   // of the kernel to come
  bool after_global;
} rewrite_t;

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

static size_t word_size(const char* at) {
  size_t size = 0;
  while (is_word(at[size]))
    ++size;
  return size;
}

static bool word_is(const char* at, size_t size, const char* word) {
  return strlen(word) == size && memcmp(at, word, size) == 0;
}

static const char* skip_space(const char* at) {
  while (isspace((unsigned char)*at))
    ++at;
  return at;
}

// From an opening parenthesis to behind its closing one.
static const char* skip_parentheses(const char* at) {
  int depth = 0;
  do {
    if (*at == '(') ++depth;
    if (*at == ')') --depth;
    if (!*at) return at;
    ++at;
  } while (depth > 0);
  return at;
}

static const char* skip_literal(const char* at) {
  char quote = *at++;
  while (*at && *at != quote)
    at += at[0] == '\\' && at[1] ? 2 : 1;
  return *at ? at + 1 : at;
}

// `extern __shared__ TYPE NAME[];` becomes a reference to what the launch gave.
// Attributes of alignment are left out: it is aligned to 16.
static bool rewrite_extern_shared(rewrite_t* r) {
  const char* at = r->at + strlen("extern");
  const char* end = strchr(at, ';');
  if (!end) return false;
  text_t words = {0};
  bool shared = false;
  for (at = skip_space(at); at < end && *at != '['; at = skip_space(at)) {
    size_t size = word_size(at);
    if (strchr("\"{()=", *at)) break;  // something else that is extern
    if (size == 0) {
      text_append(&words, at, 1);
      ++at;
      continue;
    }
    bool align =
        word_is(at, size, "__attribute__") || word_is(at, size, "alignas");
    if (word_is(at, size, "__stand_in_shared__")) {
      shared = true;
    } else if (align) {
      at = skip_parentheses(skip_space(at + size));
      continue;
    } else {
      text_append(&words, " ", 1);
      text_append(&words, at, size);
    }
    at += size;
  }
  shared = shared && *at == '[';
  if (shared) {
    const char* name = strrchr(words.data, ' ') + 1;
    text_append(&r->out, words.data, (size_t)(name - words.data));
    text_print(&r->out, "(&%s)[] = *(%.*s(*)[])stand_in_module.dynamic_shared;",
               name, (int)(name - words.data), words.data);
    r->at = end + 1;
  }
  text_free(&words);
  return shared;
}

static void rewrite_bounds(rewrite_t* r, size_t size) {
  const char* begin = skip_space(r->at + size);
  const char* end = skip_parentheses(begin);
  r->bounds.size = 0;
  text_append(&r->bounds, "stand_in_first", 14);
  text_append(&r->bounds, begin, (size_t)(end - begin));
  r->at = end;
}

// The first word before a parenthesis after __global__ names the kernel.
static void rewrite_kernel(rewrite_t* r, size_t word) {
  char name[256];
  snprintf(name, sizeof(name), "%.*s", (int)word, r->at);
  char begin[300];
  snprintf(begin, sizeof(begin), "{\"%s\",", name);
  r->after_global = false;
  if (!r->kernels.data || !strstr(r->kernels.data, begin))
    text_print(&r->kernels,
               "%s &stand_in_caller<decltype(&%s)>::template call<&%s>, %s, "
               "stand_in_caller<decltype(&%s)>::count, "
               "stand_in_caller<decltype(&%s)>::sizes},\n",
               begin, name, name, r->bounds.size > 0 ? r->bounds.data : "0",
               name, name);
  r->bounds.size = 0;
}

static void rewrite_word(rewrite_t* r) {
  size_t size = word_size(r->at);
  if (word_is(r->at, size, "extern") && rewrite_extern_shared(r)) return;
  if (word_is(r->at, size, "__stand_in_bounds__")) {
    rewrite_bounds(r, size);
    return;
  }
  if (word_is(r->at, size, "__stand_in_global__")) {
    r->after_global = true;
  } else if (word_is(r->at, size, "__stand_in_shared__")) {
    text_append(&r->out, "static", 6);
  } else {
    if (r->after_global && *skip_space(r->at + size) == '(')
      rewrite_kernel(r, size);
    text_append(&r->out, r->at, size);
  }
  r->at += size;
}

static void rewrite(const char* text, text_t* out_text) {
  rewrite_t r = {.at = text};
  while (*r.at) {
    if (is_word(*r.at)) {
      rewrite_word(&r);
      continue;
    }
    const char* end =
        *r.at == '"' || *r.at == '\'' ? skip_literal(r.at) : r.at + 1;
    text_append(&r.out, r.at, (size_t)(end - r.at));
    r.at = end;
  }
  text_print(&r.out,
             "\nextern \"C\" __attribute__((visibility(\"default\"))) "
             "const stand_in_kernel stand_in_kernels[] = {\n");
  if (r.kernels.data) text_append(&r.out, r.kernels.data, r.kernels.size);
  text_print(&r.out, "{nullptr, nullptr, 0, 0, nullptr}};\n");
  text_free(&r.kernels);
  text_free(&r.bounds);
  *out_text = r.out;
}

// ---- The cache -------------------------------------------------------------

static uint64_t hash_more(uint64_t hash, const void* data, size_t size) {
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ ((const uint8_t*)data)[i]) * UINT64_C(1099511628211);
  return hash;
}

static const char* const shim_files[] = {
    RABBET_STAND_IN_SOURCE "/kernel_abi.h",
    RABBET_STAND_IN_SOURCE "/kernel_shim.h",
    RABBET_STAND_IN_SOURCE "/nvrtc.c",
};

static const char* cache_folder(void) {
  const char* folder = getenv("RABBET_STAND_IN_CACHE");
  return folder && *folder ? folder : RABBET_STAND_IN_CACHE_FOLDER;
}

static const char* extra_flags(void) {
  const char* flags = getenv("RABBET_STAND_IN_FLAGS");
  return flags ? flags : "";
}

// Headers that the text includes, and those that they include.
static void mark_headers(const program_t* program, const char* text,
                         bool* marks) {
  for (const char* at = text; (at = strstr(at, "#include")); ++at) {
    const char* name = skip_space(at + strlen("#include"));
    for (int i = 0; i < program->header_count; ++i) {
      size_t size = strlen(program->header_names[i]);
      if (marks[i] || strncmp(name + 1, program->header_names[i], size) != 0 ||
          (name[size + 1] != '"' && name[size + 1] != '>'))
        continue;
      marks[i] = true;
      mark_headers(program, program->headers[i], marks);
    }
  }
}

// Of all that determines the shim's.
static void shim_text(text_t* out_text) {
  for (size_t i = 0; i < sizeof(shim_files) / sizeof(shim_files[0]); ++i)
    file_read(shim_files[i], out_text);
  text_append(out_text, extra_flags(), strlen(extra_flags()) + 1);
  text_append(out_text, RABBET_STAND_IN_CXX, strlen(RABBET_STAND_IN_CXX) + 1);
}

// Of all that determines the object.
static void program_hash(const program_t* program, int option_count,
                         const char* const* options, char out_name[40]) {
  text_t all = {0};
  shim_text(&all);
  text_append(&all, program->name, strlen(program->name) + 1);
  text_append(&all, program->text, strlen(program->text) + 1);
  bool* marks = calloc((size_t)program->header_count + 1, sizeof(*marks));
  if (!marks) abort();
  mark_headers(program, program->text, marks);
  for (int i = 0; i < program->header_count; ++i) {
    if (!marks[i]) continue;
    text_append(&all, program->header_names[i],
                strlen(program->header_names[i]) + 1);
    text_append(&all, program->headers[i], strlen(program->headers[i]) + 1);
  }
  // The architecture changes nothing else here.
  if (program->specific) text_append(&all, "a", 1);
  for (int i = 0; i < option_count; ++i)
    if (strncmp(options[i], "-D", 2) == 0 || strncmp(options[i], "-U", 2) == 0)
      text_append(&all, options[i], strlen(options[i]) + 1);
  free(marks);
  uint64_t a = hash_more(UINT64_C(14695981039346656037), all.data, all.size);
  uint64_t b = hash_more(a ^ UINT64_C(0x9e3779b97f4a7c15), all.data, all.size);
  snprintf(out_name, 40, "%016llx%016llx", (unsigned long long)a,
           (unsigned long long)b);
  text_free(&all);
}

// ---- Running the compiler --------------------------------------------------

extern char** environ;

static bool run(char* const* arguments, const char* messages) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, messages,
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  int error =
      posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  while (error == 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return error == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

typedef struct job_t {
  program_t* program;
  char folder[4096 - 64];
  int option_count;
  const char* const* options;
} job_t;

static char* job_path(const job_t* job, const char* name) {
  char* path = NULL;
  if (asprintf(&path, "%s/%s", job->folder, name) < 0) abort();
  return path;
}

static bool job_write(const job_t* job, const char* name, const char* text) {
  char* path = job_path(job, name);
  bool good = file_write(path, text, strlen(text));
  free(path);
  return good;
}

// Those that a header's name has; writing it says if one could not be made.
static void job_make_folders(const job_t* job, const char* name) {
  char* path = job_path(job, name);
  for (char* at = path + strlen(job->folder) + 1; (at = strchr(at, '/'));
       ++at) {
    *at = 0;
    mkdir(path, 0755);
    *at = '/';
  }
  free(path);
}

static bool job_write_sources(const job_t* job) {
  const program_t* program = job->program;
  bool good = true;
  text_t text = {0};
  text_print(&text, "#include \"%s\"\n#line 1 \"%s\"\n", "kernel_shim.h",
             program->name);
  text_append(&text, program->text, strlen(program->text));
  good = job_write(job, "source.cu", text.data);
  text_free(&text);
  for (int i = 0; good && i < program->header_count; ++i) {
    job_make_folders(job, program->header_names[i]);
    good = job_write(job, program->header_names[i], program->headers[i]);
  }
  return good;
}

// A command line; its words are not copied.
typedef struct command_t {
  char* words[128];
  int count;
} command_t;

static void command_add(command_t* command, const char* word) {
  if (command->count + 1 == sizeof(command->words) / sizeof(char*)) abort();
  command->words[command->count++] = (char*)(uintptr_t)word;
}

#define COMMAND_ADD(command, ...)                                    \
  do {                                                               \
    const char* const words[] = {__VA_ARGS__};                       \
    for (size_t i = 0; i < sizeof(words) / sizeof(const char*); ++i) \
      command_add(command, words[i]);                                \
  } while (0)

// Flags of the shim and of all programs.
static void command_begin(command_t* command, char** out_flags) {
  *command = (command_t){.count = 0};
  COMMAND_ADD(command, RABBET_STAND_IN_CXX, "-std=gnu++17", "-w", "-nostdinc",
              "-nostdinc++",
              "-O0",  // compiling takes longer than running
              "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique",
              "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
              "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math",
              // An access that is not aligned ends the kernel (grid.c).
              "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error",
              "-ffp-contract=off");
  *out_flags = strdup(extra_flags());
  for (char* flag = strtok(*out_flags, " "); flag; flag = strtok(NULL, " "))
    command_add(command, flag);
}

static bool command_run(command_t* command, char* flags, const char* messages) {
  command->words[command->count] = NULL;
  bool good = run(command->words, messages);
  free(flags);
  return good;
}

// The shim, compiled before: the compiler takes it where it finds it in a
// folder for headers, and else the text in the next one.
static char* shim_folder(void) {
  text_t all = {0};
  char* path = NULL;
  shim_text(&all);
  uint64_t hash = hash_more(UINT64_C(14695981039346656037), all.data, all.size);
  if (asprintf(&path, "%s/shim-%016llx", cache_folder(),
               (unsigned long long)hash) < 0)
    abort();
  text_free(&all);
  return path;
}

static void job_make_shim(const job_t* job, const char* folder,
                          const char* messages) {
  command_t command;
  char *flags, *own = job_path(job, "shim");
  char* out = job_path(job, "shim/kernel_shim.h.gch");
  if (access(folder, F_OK) != 0 && mkdir(own, 0755) == 0) {
    command_begin(&command, &flags);
    COMMAND_ADD(&command, "-x", "c++-header", "-o", out,
                RABBET_STAND_IN_SOURCE "/kernel_shim.h");
    // Another process may have been the first.
    if (command_run(&command, flags, messages)) rename(own, folder);
  }
  free(own);
  free(out);
}

static bool job_preprocess(const job_t* job, const char* messages) {
  command_t command;
  char *in = job_path(job, "source.cu"), *out = job_path(job, "plain.ii");
  char *shim = shim_folder(), *flags;
  job_make_shim(job, shim, messages);
  command_begin(&command, &flags);
  COMMAND_ADD(&command, "-E", "-fpch-preprocess", "-x", "c++", "-I",
              job->folder, "-I", shim, "-I", RABBET_STAND_IN_SOURCE);
  for (int i = 0; i < job->option_count; ++i)
    if (job->options[i][0] == '-' && strchr("DU", job->options[i][1]))
      command_add(&command, job->options[i]);
  if (job->program->specific)
    command_add(&command, "-D__CUDA_ARCH_FEAT_SM90_ALL=1");
  COMMAND_ADD(&command, "-o", out, in);
  bool good = command_run(&command, flags, messages);
  free(shim);
  free(in);
  free(out);
  return good;
}

static bool job_rewrite(const job_t* job) {
  char *in = job_path(job, "plain.ii"), *out = job_path(job, "host.ii");
  text_t before = {0}, after = {0};
  bool good = file_read(in, &before);
  if (good) rewrite(before.data, &after);
  good = good && file_write(out, after.data, after.size);
  text_free(&before);
  text_free(&after);
  free(in);
  free(out);
  return good;
}

static bool job_compile(const job_t* job, const char* messages) {
  char *in = job_path(job, "host.ii"), *out = job_path(job, "host.so");
  command_t command;
  char* flags;
  command_begin(&command, &flags);
  // The process has the C library; to link with it takes as long as the rest.
  COMMAND_ADD(&command, "-x", "c++", "-fpreprocessed", "-shared",
              "-nostartfiles", "-nodefaultlibs", "-fno-use-linker-plugin", "-o",
              out, in, "-lm", "-lgcc");
  bool good = command_run(&command, flags, messages);
  free(in);
  free(out);
  return good;
}

static int job_remove(const char* path, const struct stat* unused_stat,
                      int unused_kind, struct FTW* unused_place) {
  (void)unused_stat, (void)unused_kind, (void)unused_place;
  return remove(path);
}

static void job_clean(const job_t* job) {
  nftw(job->folder, job_remove, 8, FTW_DEPTH | FTW_PHYS);
}

// Into the cache, whole or not at all: others may make the same.
static bool job_run(job_t* job, const char* kept) {
  snprintf(job->folder, sizeof(job->folder), "%s/job-XXXXXX", cache_folder());
  mkdir(cache_folder(), 0755);
  if (!mkdtemp(job->folder)) {
    text_print(&job->program->log, "no folder for compiling in %s: %s\n",
               cache_folder(), strerror(errno));
    return false;
  }
  char *messages = job_path(job, "messages"), *out = job_path(job, "host.so");
  bool good = job_write_sources(job) && job_preprocess(job, messages) &&
              job_rewrite(job) && job_compile(job, messages) &&
              rename(out, kept) == 0;
  if (!good) file_read(messages, &job->program->log);
  const char* keep = getenv("RABBET_STAND_IN_KEEP");
  if (!keep || !*keep) job_clean(job);
  free(messages);
  free(out);
  return good;
}

// ---- Compiling -------------------------------------------------------------

static bool option_is_known(program_t* program, const char* option) {
  static const char* const known[] = {"-D",
                                      "-U",
                                      "--std=",
                                      "-std=",
                                      "--generate-line-info",
                                      "-lineinfo",
                                      "--use_fast_math",
                                      "-use_fast_math",
                                      "--fmad=",
                                      "--maxrregcount=",
                                      "-default-device",
                                      "--device-int128",
                                      "--extra-device-vectorization",
                                      "--gpu-architecture=",
                                      "-arch="};
  unsigned architecture = 0;
  const char* at = strstr(option, "=sm_");
  int end = 0;
  if (at && sscanf(at, "=sm_%u%n", &architecture, &end) == 1) {
    program->specific = at[end] == 'a';
    program->major = architecture / 10;
    program->minor = architecture % 10;
  }
  program->is_virtual |= strstr(option, "=compute_") != NULL;
  for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i)
    if (strncmp(option, known[i], strlen(known[i])) == 0) return true;
  text_print(&program->log, "nvrtc: error: unrecognized option %s found\n",
             option);
  return false;
}

// ---- NVIDIA's compiler ------------------------------------------------------

// The functions of NVIDIA's NVRTC, which has the names of ours.
typedef struct real_t {
  nvrtcResult (*create)(void** program, const char* text, const char* name,
                        int header_count, const char* const* headers,
                        const char* const* header_names);
  nvrtcResult (*compile)(void* program, int option_count,
                         const char* const* options);
  nvrtcResult (*log_size)(void* program, size_t* size);
  nvrtcResult (*log)(void* program, char* log);
  nvrtcResult (*destroy)(void** program);
} real_t;

static bool real_open(const char* path, real_t* out) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!library) return false;
  const struct {
    const char* name;
    void* function;
  } functions[] = {{"nvrtcCreateProgram", &out->create},
                   {"nvrtcCompileProgram", &out->compile},
                   {"nvrtcGetProgramLogSize", &out->log_size},
                   {"nvrtcGetProgramLog", &out->log},
                   {"nvrtcDestroyProgram", &out->destroy}};
  for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); ++i) {
    void* found = dlsym(library, functions[i].name);
    if (!found) return false;
    memcpy(functions[i].function, &found, sizeof(found));
  }
  return true;
}

// Takes over the log of a program that NVIDIA's compiler does not take.
static bool real_takes(const real_t* real, program_t* program, int option_count,
                       const char* const* options) {
  void* own = NULL;
  size_t size = 0;
  if (real->create(&own, program->text, program->name, program->header_count,
                   (const char* const*)program->headers,
                   (const char* const*)program->header_names) != NVRTC_SUCCESS)
    return false;
  nvrtcResult result = real->compile(own, option_count, options);
  if (result != NVRTC_SUCCESS && real->log_size(own, &size) == NVRTC_SUCCESS &&
      size > 0) {
    char* log = malloc(size);
    if (log && real->log(own, log) == NVRTC_SUCCESS)
      text_append(&program->log, log, strlen(log));
    free(log);
  }
  real->destroy(&own);
  return result == NVRTC_SUCCESS;
}

// Whether NVIDIA's compiler, if there is one to ask, takes the program.
static bool real_agrees(program_t* program, int option_count,
                        const char* const* options) {
  const char* path = getenv("RABBET_STAND_IN_COMPILER");
  real_t real;
  if (!path || !*path) return true;
  if (real_open(path, &real))
    return real_takes(&real, program, option_count, options);
  const char* error = dlerror();
  if (!error) error = "it lacks functions of NVRTC";
  text_append(&program->log, error, strlen(error));
  return false;
}

EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count,
                                       const char* const* options) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  text_append(&program->log, "", 0);
  for (int i = 0; i < option_count; ++i)
    if (!option_is_known(program, options[i]))
      return NVRTC_ERROR_INVALID_OPTION;
  if (!real_agrees(program, option_count, options))
    return NVRTC_ERROR_COMPILATION;
  char name[40], path[4096];
  program_hash(program, option_count, options, name);
  snprintf(path, sizeof(path), "%s/%s.so", cache_folder(), name);
  if (file_read(path, &program->object)) return NVRTC_SUCCESS;
  job_t job = {
      .program = program, .option_count = option_count, .options = options};
  if (!job_run(&job, path) || !file_read(path, &program->object))
    return NVRTC_ERROR_COMPILATION;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  *size = program->log.size + 1;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  memcpy(log, program->log.data ? program->log.data : "",
         program->log.size + 1);
  return NVRTC_SUCCESS;
}

// ---- What it gives ---------------------------------------------------------

EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  if (!program->object.data) return NVRTC_ERROR_INVALID_PROGRAM;
  *size = program->is_virtual
              ? 0
              : sizeof(struct stand_in_image) + program->object.size;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  if (!program->object.data || program->is_virtual)
    return NVRTC_ERROR_INVALID_PROGRAM;
  struct stand_in_image image = {.major = program->major,
                                 .minor = program->minor,
                                 .size = program->object.size};
  memcpy(image.magic, STAND_IN_CUBIN, sizeof(image.magic));
  memcpy(cubin, &image, sizeof(image));
  memcpy(cubin + sizeof(image), program->object.data, program->object.size);
  return NVRTC_SUCCESS;
}

static int ptx_header(const program_t* program, char text[64]) {
  return snprintf(text, 64, STAND_IN_PTX "%zu\n", program->object.size);
}

EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
  char header[64];
  if (!program->object.data) return NVRTC_ERROR_INVALID_PROGRAM;
  *size = (size_t)ptx_header(program, header) + 2 * program->object.size + 1;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* ptx) {
  static const char digits[] = "0123456789abcdef";
  char header[64];
  if (!program->object.data) return NVRTC_ERROR_INVALID_PROGRAM;
  int at = ptx_header(program, header);
  memcpy(ptx, header, (size_t)at);
  ptx += at;
  for (size_t i = 0; i < program->object.size; ++i) {
    uint8_t byte = (uint8_t)program->object.data[i];
    *ptx++ = digits[byte >> 4];
    *ptx++ = digits[byte & 15];
  }
  *ptx = 0;
  return NVRTC_SUCCESS;
}
