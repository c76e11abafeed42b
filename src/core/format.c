#include <assert.h>
#include <strings.h>

#include "base/math.h"
#include "base/suggest.h"
#include "core/view.h"

// Numbers have gaps, so that the table holds them.
static const struct {
  rabbet_format_t format;
  rabbet_format_info_t info;
} rabbet_formats[] = {
#define RABBET_FORMAT(id, block, channels_last, min_rank) \
  {RABBET_FORMAT_##id, {#id, block, channels_last, min_rank}},
#include "core/formats.def"
#undef RABBET_FORMAT
};
#define RABBET_FORMAT_ROWS (sizeof(rabbet_formats) / sizeof(rabbet_formats[0]))

const rabbet_format_info_t* rabbet_format_info(rabbet_format_t format) {
  for (size_t i = 0; i < RABBET_FORMAT_ROWS; ++i) {
    if (rabbet_formats[i].format == format) return &rabbet_formats[i].info;
  }
  return NULL;
}

const char* rabbet_format_name(rabbet_format_t format) {
  const rabbet_format_info_t* info = rabbet_format_info(format);
  return info ? info->name : "?";
}

static const char* format_suggestion(const void* list, size_t index) {
  (void)list;
  return rabbet_formats[index].info.name;
}

rabbet_status_t rabbet_format_parse(const char* text,
                                    rabbet_format_t* out_format) {
  *out_format = RABBET_FORMAT_NONE;
  for (size_t i = 0; i < RABBET_FORMAT_ROWS; ++i) {
    if (strcasecmp(text, rabbet_formats[i].info.name) != 0) continue;
    *out_format = rabbet_formats[i].format;
    return rabbet_ok();
  }
  char hint[160];
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT, "'%s' is not a tensor format%s", text,
      rabbet_suggest_print(text, format_suggestion, NULL, RABBET_FORMAT_ROWS,
                           hint, sizeof(hint)));
}

// The table's row for a tensor of these dimensions, or why there is none.
static rabbet_status_t format_check(rabbet_format_t format,
                                    const rabbet_dims_t* dims,
                                    const rabbet_format_info_t** out_info) {
  const rabbet_format_info_t* info = rabbet_format_info(format);
  *out_info = info;
  if (!info)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%d is not a tensor format", (int)format);
  if (dims->rank < 0 || dims->rank > RABBET_MAX_RANK)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a tensor of rank %d has no layout; expected 0 to %d",
                         (int)dims->rank, RABBET_MAX_RANK);
  if (dims->rank < info->min_rank) {
    char text[128];
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "format %s needs rank %d or more, found shape %s",
                         info->name, info->min_rank,
                         rabbet_dims_print(dims, text, sizeof(text)));
  }
  return rabbet_ok();
}

static bool format_is_row_major(const rabbet_format_info_t* info) {
  return info->block == 1 && !info->channels_last;
}

rabbet_status_t rabbet_format_physical_dims(rabbet_format_t format,
                                            const rabbet_dims_t* dims,
                                            rabbet_dims_t* out_physical) {
  const rabbet_format_info_t* info = NULL;
  RABBET_RETURN_IF_ERROR(format_check(format, dims, &info));
  rabbet_dims_t physical = *dims;
  if (format_is_row_major(info)) {
    *out_physical = physical;
    return rabbet_ok();
  }
  assert(dims->rank >= 2 && info->block > 0);
  int64_t channels = dims->d[1];
  int64_t blocks = channels < 0 ? -1 : rabbet_ceildiv(channels, info->block);
  if (info->channels_last) {
    for (int i = 1; i + 1 < dims->rank; ++i)
      physical.d[i] = dims->d[i + 1];
    if (blocks > 0 && !rabbet_checked_mul(blocks, info->block, &blocks))
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "%lld channels cannot be padded to a multiple of %d",
                           (long long)channels, info->block);
    physical.d[dims->rank - 1] = blocks;
  } else {
    if (dims->rank == RABBET_MAX_RANK)
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "format %s of a tensor of rank %d would need rank "
                           "%d; at most %d is possible",
                           info->name, (int)dims->rank, (int)dims->rank + 1,
                           RABBET_MAX_RANK);
    physical.d[1] = blocks;
    physical.d[physical.rank++] = info->block;
  }
  *out_physical = physical;
  return rabbet_ok();
}

bool rabbet_format_lies_alike(const rabbet_dims_t* dims, rabbet_format_t a,
                              rabbet_format_t b) {
  const rabbet_format_info_t* from = rabbet_format_info(a);
  const rabbet_format_info_t* to = rabbet_format_info(b);
  if (!from || !to || dims->rank < from->min_rank || dims->rank < to->min_rank)
    return false;
  if (a == b || dims->rank < 2) return true;
  int64_t channels = dims->d[1], positions = 1;
  if ((from->block > 1 && (channels < 0 || channels % from->block != 0)) ||
      (to->block > 1 && (channels < 0 || channels % to->block != 0)))
    return false;
  for (int i = 2; i < dims->rank; ++i)
    positions = dims->d[i] == 1 ? positions : -1;
  if (positions == 1 || channels == 1) return true;
  return from->channels_last ? to->channels_last
                             : !to->channels_last && from->block == to->block;
}

// Row-major strides; an empty axis counts as one element, so that no stride is
// 0 by accident.
static rabbet_status_t dims_strides(const rabbet_dims_t* dims,
                                    int64_t strides[RABBET_MAX_RANK]) {
  int64_t stride = 1;
  for (int i = dims->rank - 1; i >= 0; --i) {
    strides[i] = stride;
    if (dims->d[i] < 0 ||
        !rabbet_checked_mul(stride, rabbet_max_i64(dims->d[i], 1), &stride)) {
      char text[192];
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "shape %s has no strides: a dimension is unknown or "
                           "the tensor is too large",
                           rabbet_dims_print(dims, text, sizeof(text)));
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_view_strides(const rabbet_view_t* view,
                                    int64_t out_strides[RABBET_MAX_RANK]) {
  const rabbet_format_info_t* info = NULL;
  const rabbet_dims_t* dims = &view->dims;
  RABBET_RETURN_IF_ERROR(format_check(view->format, dims, &info));
  if (format_is_row_major(info)) return dims_strides(dims, out_strides);
  assert(dims->rank >= 2 && info->block > 0);
  int rank = dims->rank;
  if (!info->channels_last && dims->d[1] > info->block)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "%lld channels in format %s lie in several blocks and "
                         "have no single stride",
                         (long long)dims->d[1], info->name);
  // One block alone lies in memory as channels last do.
  rabbet_dims_t physical = *dims;
  for (int i = 1; i + 1 < rank; ++i)
    physical.d[i] = dims->d[i + 1];
  int64_t channels = rabbet_max_i64(dims->d[1], 1);
  physical.d[rank - 1] =
      dims->d[1] < 0
          ? -1
          : channels + (info->block - channels % info->block) % info->block;
  int64_t strides[RABBET_MAX_RANK] = {0};
  RABBET_RETURN_IF_ERROR(dims_strides(&physical, strides));
  out_strides[0] = strides[0];
  out_strides[1] = 1;
  for (int i = 2; i < rank; ++i)
    out_strides[i] = strides[i - 1];
  return rabbet_ok();
}

rabbet_status_t rabbet_tensor_bytes(rabbet_dtype_t dtype,
                                    rabbet_format_t format,
                                    const rabbet_dims_t* dims,
                                    size_t* out_bytes) {
  *out_bytes = 0;
  int bits = rabbet_dtype_bits(dtype);
  if (bits == 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%d is not a data type", (int)dtype);
  rabbet_dims_t physical;
  RABBET_RETURN_IF_ERROR(rabbet_format_physical_dims(format, dims, &physical));
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&physical, &count));
  // A count is so small that this does not overflow.
  *out_bytes = (size_t)rabbet_ceildiv(count * bits, 8);
  return rabbet_ok();
}
