#include <stddef.h>

#include "cli/main.h"

int main(int argc, char** argv) {
  return rabbet_cli_main(argc, argv, NULL);
}
