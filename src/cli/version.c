#include "base/strbuf.h"
#include "cli/cli.h"
#include "device/device.h"

// A device as a line, or an object in JSON.
static void version_device(rabbet_strbuf_t* out, const char* name, bool json) {
  rabbet_device_t* device = NULL;
  rabbet_status_t status =
      rabbet_device_create(name, rabbet_allocator_system(), &device);
  bool available = rabbet_is_ok(status);
  const char* text = available ? device->vtable->signature(device)
                               : rabbet_status_message(status);
  if (json) {
    rabbet_strbuf_printf(
        out, "{\"name\": \"%s\", \"available\": %s, \"%s\": ", name,
        available ? "true" : "false", available ? "signature" : "reason");
    rabbet_strbuf_json_string(out, text);
    rabbet_strbuf_printf(out, "}");
  } else {
    rabbet_strbuf_printf(out, "%-5s %s\n", name, text);
  }
  rabbet_status_free(status);
  rabbet_device_release(device);
}

static rabbet_status_t version_run(const rabbet_arguments_t* arguments) {
  static const char* const names[] = {"cpu", "cuda"};
  bool json = rabbet_argument_flag(arguments, "--json");
  rabbet_strbuf_t out;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &out);
  if (json)
    rabbet_strbuf_printf(
        &out, "{\"version\": \"%s\", \"plugin_abi\": %d, \"devices\": [",
        rabbet_version(), RABBET_PLUGIN_ABI);
  else
    rabbet_strbuf_printf(&out, "rabbet %s\n", rabbet_version());
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    if (json && i) rabbet_strbuf_printf(&out, ", ");
    version_device(&out, names[i], json);
  }
  if (json) rabbet_strbuf_printf(&out, "]}\n");
  rabbet_status_t status = rabbet_strbuf_status(&out);
  if (rabbet_is_ok(status)) printf("%s", rabbet_strbuf_text(&out));
  rabbet_strbuf_deinitialize(&out);
  return status;
}

static const rabbet_option_t version_options[] = {
    {"--json", RABBET_OPTION_FLAG, NULL, "print JSON"},
};

const rabbet_command_t rabbet_command_version = {
    .name = "version",
    .operands = "",
    .summary = "print the version and the devices of this machine",
    .options = version_options,
    .option_count = sizeof(version_options) / sizeof(version_options[0]),
    .run = version_run,
};
