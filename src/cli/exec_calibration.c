// Ranges of tensors out of a calibration cache: a line that names the
// algorithm, then "tensor: scale" lines, the bits of a float in hexadecimal.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/exec.h"

typedef struct exec_cache_t {
  rabbet_network_t* network;
  size_t found, unknown;
} exec_cache_t;

static bool exec_scale(const char* digits, float* out_scale) {
  char* end = NULL;
  if (strlen(digits) != 8 || digits[strspn(digits, "0123456789abcdefABCDEF")])
    return false;
  uint32_t bits = (uint32_t)strtoul(digits, &end, 16);
  memcpy(out_scale, &bits, sizeof(*out_scale));
  return true;
}

static rabbet_status_t exec_cache_line(exec_cache_t* cache, char* line) {
  char* colon = NULL;
  float scale = 0;
  for (char* at = line; (at = strstr(at, ": ")); at += 2)
    colon = at;
  if (!colon || colon == line || !exec_scale(colon + 2, &scale))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "expected 'tensor: 8 hexadecimal digits', found '%s'",
                         line);
  *colon = '\0';
  rabbet_tensor_t* tensor = rabbet_network_find_tensor(cache->network, line);
  if (!tensor) {
    ++cache->unknown;
    return rabbet_ok();
  }
  // Caches have this value for tensors that were all zeros in the calibration.
  if (!isfinite(scale) || scale <= 0) return rabbet_ok();
  ++cache->found;
  return rabbet_tensor_set_range(tensor, -127 * scale, 127 * scale);
}

static rabbet_status_t exec_cache_text(exec_cache_t* cache, char* text) {
  size_t number = 0;
  for (char* at = text; at;) {
    char* end = strchr(at, '\n');
    if (end) *end = '\0';
    at[strcspn(at, "\r")] = '\0';
    ++number;
    if (number == 1 && !strstr(at, "Calibration"))
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "line 1: expected 'TRT-RELEASE-ALGORITHM', as in "
                           "TRT-101600-EntropyCalibration2, found '%.60s'",
                           at);
    if (number > 1 && *at)
      RABBET_RETURN_IF_ERROR(
          RABBET_ANNOTATE(exec_cache_line(cache, at), "line %zu", number));
    at = end ? end + 1 : NULL;
  }
  return rabbet_ok();
}

static rabbet_status_t exec_cache_file(const char* path, exec_cache_t* cache) {
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_file_map_t* map = NULL;
  char* text = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_file_map_create(path, allocator, &map));
  size_t size = rabbet_file_map_size(map);
  rabbet_status_t status = rabbet_allocate(allocator, size + 1, (void**)&text);
  if (rabbet_is_ok(status)) {
    if (size > 0) memcpy(text, rabbet_file_map_data(map), size);
    text[size] = '\0';
    status = exec_cache_text(cache, text);
  }
  rabbet_free(allocator, text);
  rabbet_file_map_release(map);
  return status;
}

rabbet_status_t rabbet_exec_calibrate(const rabbet_exec_t* exec,
                                      rabbet_network_t* network) {
  const char* path = rabbet_exec_flag(exec, "--calib");
  exec_cache_t cache = {.network = network};
  if (!path) return rabbet_ok();
  if (!rabbet_exec_flag(exec, "--int8") && !rabbet_exec_flag(exec, "--best"))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "--calib=%s is for --int8, which is not given", path);
  RABBET_RETURN_IF_ERROR(
      RABBET_ANNOTATE(exec_cache_file(path, &cache), "--calib=%s", path));
  rabbet_exec_log('I', "Calibration cache: ranges of %zu tensors", cache.found);
  if (cache.unknown > 0)
    rabbet_exec_log(
        'W',
        "names in the calibration cache without a tensor in the model: %zu",
        cache.unknown);
  return rabbet_ok();
}
