#include <stddef.h>
#include <stdlib.h>

#include "cli/main.h"

// OpenMP's threads wait for each other by spinning, by default for
// milliseconds. Where other programs want the processors, that keeps the very
// thread that is waited for from running. Some 40 microseconds bridge the gaps
// between kernels. libgomp reads the variable once, when the CPU device is
// loaded; the user's setting wins. The process has no other thread yet.
static void limit_spinning(void) {
  if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "1000", 0);
}

int main(int argc, char** argv) {
  limit_spinning();
  return rabbet_cli_main(argc, argv, NULL);
}
