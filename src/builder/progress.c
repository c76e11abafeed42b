#include "builder/build.h"

void rabbet_progress_start(const rabbet_build_t* build, const char* phase,
                           const char* parent, size_t steps) {
  const rabbet_progress_t* progress = &build->config->progress;
  if (progress->phase_start)
    progress->phase_start(progress->user_data, phase, parent, (int32_t)steps);
}

rabbet_status_t rabbet_progress_step(const rabbet_build_t* build,
                                     const char* phase, size_t step) {
  const rabbet_progress_t* progress = &build->config->progress;
  if (!progress->step ||
      progress->step(progress->user_data, phase, (int32_t)step))
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_CANCELLED,
                       "the build was cancelled in '%s', step %zu", phase,
                       step);
}

rabbet_status_t rabbet_progress_check(const rabbet_build_t* build) {
  const rabbet_progress_t* progress = &build->config->progress;
  if (!progress->go_on || progress->go_on(progress->user_data))
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_CANCELLED, "the build was cancelled");
}

void rabbet_progress_end(const rabbet_build_t* build, const char* phase) {
  const rabbet_progress_t* progress = &build->config->progress;
  if (progress->phase_end) progress->phase_end(progress->user_data, phase);
}
