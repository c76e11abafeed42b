// Prints Rabbet's version, of the header and of the library, and the error for
// a plan that is not there.
#include <rabbet/engine.h>
#include <stdio.h>

int main(void) {
  rabbet_engine_t* engine = NULL;
  rabbet_status_t status =
      rabbet_engine_load("none.plan", NULL, rabbet_allocator_system(), &engine);
  printf("%s %s: %s\n", RABBET_VERSION_STRING, rabbet_version(),
         rabbet_status_message(status));
  rabbet_status_free(status);
  rabbet_engine_release(engine);
  return 0;
}
