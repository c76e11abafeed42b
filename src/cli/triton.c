// For serving on Triton Inference Server: where its backend lies.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cli/cli.h"

// The folder of the library that has this function of the interface.
static rabbet_status_t triton_find(rabbet_strbuf_t* out) {
  Dl_info info;
  if (!dladdr((const void*)rabbet_version, &info) || !info.dli_fname)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "the library of this command cannot be found");
  char* path = realpath(info.dli_fname, NULL);
  if (!path)
    return RABBET_STATUS(RABBET_STATUS_IO, "'%s' cannot be read",
                         info.dli_fname);
  *strrchr(path, '/') = 0;
  rabbet_strbuf_printf(out, "%s", path);
  free(path);
  return rabbet_strbuf_status(out);
}

static rabbet_status_t triton_check(const char* folder) {
  rabbet_strbuf_t path;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &path);
  rabbet_strbuf_printf(
      &path, "%s/" RABBET_TRITON_DIRECTORY "/rabbet/libtriton_rabbet.so",
      folder);
  rabbet_status_t status = rabbet_strbuf_status(&path);
  if (rabbet_is_ok(status) && access(rabbet_strbuf_text(&path), R_OK) != 0)
    status = RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                           "'%s' is not there: this installation of Rabbet "
                           "lacks the backend",
                           rabbet_strbuf_text(&path));
  rabbet_strbuf_deinitialize(&path);
  return status;
}

static rabbet_status_t triton_run(const rabbet_arguments_t* arguments) {
  bool backend = rabbet_argument_flag(arguments, "--backend-directory");
  bool library = rabbet_argument_flag(arguments, "--library-directory");
  rabbet_strbuf_t folder;
  if (backend == library)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "expected --backend-directory or "
                         "--library-directory");
  rabbet_strbuf_initialize(rabbet_allocator_system(), &folder);
  rabbet_status_t status = triton_find(&folder);
  if (rabbet_is_ok(status)) status = triton_check(rabbet_strbuf_text(&folder));
  if (rabbet_is_ok(status))
    printf("%s%s\n", rabbet_strbuf_text(&folder),
           backend ? "/" RABBET_TRITON_DIRECTORY : "");
  rabbet_strbuf_deinitialize(&folder);
  return status;
}

static const rabbet_option_t triton_options[] = {
    {"--backend-directory", RABBET_OPTION_FLAG, NULL,
     "print the folder for tritonserver's option of this name"},
    {"--library-directory", RABBET_OPTION_FLAG, NULL,
     "print the folder of Rabbet's libraries, for LD_LIBRARY_PATH where the "
     "backend is linked into another folder"},
};

const rabbet_command_t rabbet_command_triton = {
    .name = "triton",
    .operands = "",
    .summary = "print where the backend for Triton Inference Server lies",
    .notes =
        "tritonserver --model-repository=MODELS \\\n"
        "  --backend-directory=$(rabbet triton --backend-directory)\n",
    .options = triton_options,
    .option_count = sizeof(triton_options) / sizeof(triton_options[0]),
    .run = triton_run,
};
