#include "plugin/source_host.h"

#include <string.h>

#include "base/struct.h"
#include "base/thread.h"

static struct {
  pthread_mutex_t lock;
  rabbet_source_host_t host;
} current = {.lock = PTHREAD_MUTEX_INITIALIZER};

rabbet_status_t rabbet_source_host_set(const rabbet_source_host_t* host) {
  rabbet_source_host_t own;
  RABBET_RETURN_IF_ERROR(
      RABBET_STRUCT_READ(rabbet_source_host_t, host, run, &own));
  if (host && (!own.collect || !own.run))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "source host: %s is NULL",
                         own.collect ? "run" : "collect");
  pthread_mutex_lock(&current.lock);
  current.host = own;
  pthread_mutex_unlock(&current.lock);
  return rabbet_ok();
}

// Not locked while it is called, as it loads plans, too.
static rabbet_status_t source_host_source_host(rabbet_source_host_t* out_host) {
  pthread_mutex_lock(&current.lock);
  *out_host = current.host;
  pthread_mutex_unlock(&current.lock);
  if (out_host->run) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_FAILED_PRECONDITION,
      "there is no Python in this process; a C program starts one by "
      "rabbet_pyhost_start (rabbet/pyhost.h)");
}

rabbet_status_t rabbet_source_host_collect(const rabbet_plugin_key_t* plugins,
                                           size_t plugin_count,
                                           const char* const* modules,
                                           size_t module_count,
                                           rabbet_carried_sink_t sink) {
  rabbet_source_host_t host;
  RABBET_RETURN_IF_ERROR(source_host_source_host(&host));
  return host.collect(host.user_data, plugins, plugin_count, modules,
                      module_count, sink);
}

rabbet_status_t rabbet_source_host_run(const rabbet_carried_t* modules,
                                       size_t count) {
  rabbet_source_host_t host;
  RABBET_RETURN_IF_ERROR(source_host_source_host(&host));
  return host.run(host.user_data, modules, count);
}

rabbet_status_t rabbet_source_host_load(const char* const* plugins,
                                        size_t count) {
  rabbet_source_host_t host;
  RABBET_RETURN_IF_ERROR(source_host_source_host(&host));
  if (!host.load)
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the host of sources in this process loads no "
                         "plugins: its function `load` is NULL");
  return host.load(host.user_data, plugins, count);
}

void rabbet_source_host_close(void) {
  rabbet_source_host_t host;
  rabbet_status_t status = source_host_source_host(&host);
  if (rabbet_is_ok(status) && host.close) host.close(host.user_data);
  rabbet_status_ignore(status);
  rabbet_status_ignore(rabbet_source_host_set(NULL));
}
