#include "cli/main.h"

#include <stddef.h>

int main(int argc, char** argv) {
  return rabbet_cli_main(argc, argv, NULL);
}
