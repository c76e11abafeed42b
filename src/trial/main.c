// rabbet-trial: asks NVIDIA's libraries for kernels and runs each once, so that
// a crash does not end the build.
#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "device/trial.h"
#include "rabbet/rabbet.h"
#include "trial/worker.h"

int main(int argc, char** argv) {
  if (argc != 2 || strcmp(argv[1], RABBET_TRIAL_ARGUMENT) != 0) {
    fprintf(stderr,
            "rabbet-trial is started by builds of rabbet %s; it has no use "
            "otherwise\n",
            rabbet_version());
    return 2;
  }
  rabbet_child_begin();
  rabbet_trial_serve(RABBET_CHILD_CHANNEL, rabbet_allocator_system());
  return 0;
}
