#include "rabbet/base.h"

const char* rabbet_version(void) {
  return RABBET_VERSION_STRING;
}
