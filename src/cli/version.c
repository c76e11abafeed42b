#include "cli/cli.h"
#include "device/device.h"

static rabbet_status_t rabbet_version_run(const rabbet_arguments_t* arguments) {
  (void)arguments;
  printf("rabbet %s\n", rabbet_version());
  static const char* const names[] = {"cpu", "cuda"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    rabbet_device_t* device = NULL;
    rabbet_status_t status =
        rabbet_device_create(names[i], rabbet_allocator_system(), &device);
    printf("%-5s %s\n", names[i],
           rabbet_is_ok(status) ? device->vtable->signature(device)
                                : rabbet_status_message(status));
    rabbet_status_free(status);
    rabbet_device_release(device);
  }
  return rabbet_ok();
}

const rabbet_command_t rabbet_command_version = {
    .name = "version",
    .operands = "",
    .summary = "print the version and the devices of this machine",
    .run = rabbet_version_run,
};
