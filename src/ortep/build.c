#include "ortep/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Plans of more constants are built into a file, which the engine maps.
enum { BUILD_FILE_BYTES = 16 << 20 };

// ---- Configuration

static rabbet_status_t build_add_profile(const rabbet_ort_session_t* session,
                                         const rabbet_ort_model_t* model,
                                         const rabbet_ort_bounds_t* bounds,
                                         rabbet_builder_config_t* config) {
  rabbet_profile_t* profile = NULL;
  bool is_open = false;
  RABBET_RETURN_IF_ERROR(rabbet_profile_create(session->allocator, &profile));
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < model->inputs.count; ++i) {
    bool varies = false;
    for (int32_t axis = 0; axis < bounds[i].min.rank; ++axis)
      varies |= bounds[i].min.d[axis] != bounds[i].max.d[axis];
    is_open |= varies;
    if (varies)
      status = rabbet_profile_set_shape(profile, model->inputs.data[i].name,
                                        &bounds[i].min, &bounds[i].opt,
                                        &bounds[i].max);
  }
  if (rabbet_is_ok(status) && is_open)
    status = rabbet_builder_config_add_profile(config, profile);
  rabbet_profile_release(profile);
  return status;
}

static rabbet_status_t build_configure(const rabbet_ort_session_t* session,
                                       rabbet_builder_config_t* config) {
  const rabbet_ort_options_t* options = &session->options;
  const int64_t flags = (int64_t)options->fp16 << RABBET_BUILDER_FP16 |
                        (int64_t)options->bf16 << RABBET_BUILDER_BF16 |
                        (int64_t)options->tf32 << RABBET_BUILDER_TF32;
  rabbet_builder_config_set_logger(config, session->logger);
  rabbet_builder_config_set_timing_cache(config, session->timing_cache);
  RABBET_RETURN_IF_ERROR(
      rabbet_builder_config_set_device(config, options->device));
  RABBET_RETURN_IF_ERROR(
      rabbet_builder_config_set(config, RABBET_BUILDER_OPTION_FLAGS, flags));
  RABBET_RETURN_IF_ERROR(
      rabbet_builder_config_set(config, RABBET_BUILDER_OPTION_TRY_PLUGINS, 1));
  if (options->threads)
    RABBET_RETURN_IF_ERROR(rabbet_builder_config_set(
        config, RABBET_BUILDER_OPTION_THREADS, options->threads));
  return options->level < 0
             ? rabbet_ok()
             : rabbet_builder_config_set(
                   config, RABBET_BUILDER_OPTION_OPTIMIZATION_LEVEL,
                   options->level);
}

// ---- Plans

rabbet_status_t rabbet_ort_load(const rabbet_ort_session_t* session,
                                const void* data, size_t size, const char* path,
                                rabbet_engine_t** out_engine) {
  const rabbet_engine_options_t options = {
      .struct_size = sizeof(options),
      .device = session->options.device,
      .logger = session->logger,
  };
  return path ? rabbet_engine_load(path, &options, session->allocator,
                                   out_engine)
              : rabbet_engine_deserialize(data, size, &options,
                                          session->allocator, out_engine);
}

static rabbet_status_t build_in_memory(const rabbet_ort_session_t* session,
                                       rabbet_network_t* network,
                                       rabbet_builder_config_t* config,
                                       rabbet_engine_t** out_engine) {
  void* plan = NULL;
  size_t size = 0;
  RABBET_RETURN_IF_ERROR(rabbet_build_plan(network, config, session->allocator,
                                           &plan, &size, NULL));
  rabbet_status_t status =
      rabbet_ort_load(session, plan, size, NULL, out_engine);
  rabbet_free_aligned(session->allocator, plan, 64);
  return status;
}

// The file has no name once the engine has mapped it.
static rabbet_status_t build_in_file(const rabbet_ort_session_t* session,
                                     rabbet_network_t* network,
                                     rabbet_builder_config_t* config,
                                     rabbet_engine_t** out_engine) {
  const char* folder = getenv("TMPDIR");
  char path[4096];
  uint64_t size = 0;
  snprintf(path, sizeof(path), "%s/rabbet-ort-XXXXXX",
           folder && *folder ? folder : "/tmp");
  const int file = mkstemp(path);
  if (file < 0)
    return RABBET_STATUS(RABBET_STATUS_IO, "'%s' cannot be made", path);
  close(file);
  rabbet_status_t status = rabbet_build_plan_file(
      network, config, path, session->allocator, &size, NULL);
  if (rabbet_is_ok(status))
    status = rabbet_ort_load(session, NULL, 0, path, out_engine);
  unlink(path);
  return status;
}

static rabbet_status_t build_engine(const rabbet_ort_session_t* session,
                                    const rabbet_ort_model_t* model,
                                    const rabbet_ort_bounds_t* bounds,
                                    rabbet_network_t* network,
                                    rabbet_engine_t** out_engine) {
  rabbet_builder_config_t* config = NULL;
  uint64_t bytes = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_builder_config_create(session->allocator, &config));
  for (size_t i = 0; i < model->weights.count; ++i)
    bytes += model->weights.data[i].size;
  rabbet_status_t status = build_configure(session, config);
  if (rabbet_is_ok(status))
    status = build_add_profile(session, model, bounds, config);
  if (rabbet_is_ok(status))
    status = (bytes < BUILD_FILE_BYTES ? build_in_memory : build_in_file)(
        session, network, config, out_engine);
  rabbet_builder_config_release(config);
  return status;
}

// A file of times that cannot be written loses nothing but time.
static void build_save_times(const rabbet_ort_session_t* session) {
  const char* path = session->options.timing_cache;
  if (!path) return;
  rabbet_status_t status =
      rabbet_timing_cache_save(session->timing_cache, path, session->allocator);
  if (!rabbet_is_ok(status))
    rabbet_log(session->logger, RABBET_SEVERITY_WARNING, "%s",
               rabbet_status_message(status));
  rabbet_status_ignore(status);
}

rabbet_status_t rabbet_ort_build(const rabbet_ort_session_t* session,
                                 const rabbet_ort_model_t* model,
                                 const rabbet_ort_bounds_t* bounds,
                                 rabbet_engine_t** out_engine) {
  const size_t inputs = model->inputs.count;
  rabbet_dims_t* dims = NULL;
  rabbet_network_t* network = NULL;
  *out_engine = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      session->allocator, inputs * sizeof(*dims), (void**)&dims));
  for (size_t i = 0; i < inputs; ++i) {
    dims[i].rank = bounds[i].min.rank;
    for (int32_t axis = 0; axis < dims[i].rank; ++axis)
      dims[i].d[axis] = bounds[i].min.d[axis] == bounds[i].max.d[axis]
                            ? bounds[i].min.d[axis]
                            : -1;
  }
  rabbet_status_t status =
      rabbet_ort_model_import(model, dims, session->keeps_double,
                              session->logger, NULL, NULL, &network);
  rabbet_free(session->allocator, dims);
  if (rabbet_is_ok(status))
    status = build_engine(session, model, bounds, network, out_engine);
  rabbet_network_release(network);
  if (rabbet_is_ok(status)) build_save_times(session);
  return status;
}
