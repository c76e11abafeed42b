// Looks for the step that makes the first infinity or NaN of a run.
//
// Each step is waited for, and its outputs are copied to the host and checked.
// A step is to blame if it wrote a NaN and read none, or wrote an infinity and
// read neither: masks may hold infinities, and a NaN from a NaN is not its
// fault.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/view.h"
#include "runtime/runtime.h"

// The contents of a tensor.
struct rabbet_range_t {
  bool known;
  int64_t count, nans, infinities;
  int64_t first;     // element that is not finite, of a row-major tensor; or -1
  double low, high;  // of the finite elements, if there are any
};

struct rabbet_finite_t {
  void* staging;  // a tensor on the host
  size_t staging_bytes;
};

// ---- Looking at elements ----------------------------------------------------

// Where channels lie in a format that pads them.
typedef struct channels_t {
  int64_t channels;  // that are there
  int64_t inner;     // channels that lie together
  int64_t outer;     // elements from one block of channels to the next; 0: all
                     // channels lie together
  int64_t blocks;
} channels_t;

static channels_t channels_of(rabbet_format_t format, const rabbet_dims_t* dims,
                              const rabbet_dims_t* physical) {
  const rabbet_format_info_t* info = rabbet_format_info(format);
  channels_t found = {.inner = physical->d[physical->rank - 1]};
  int32_t axis = dims->rank - info->min_rank;
  if (format == RABBET_FORMAT_LINEAR) return (channels_t){0};
  assert(axis >= 0);
  found.channels = dims->d[axis];
  if (info->channels_last) return found;
  found.blocks = physical->d[axis];
  found.outer = found.inner;
  for (int32_t i = axis + 1; i < physical->rank - 1; ++i)
    found.outer *= physical->d[i];
  return found;
}

static bool is_padding(const channels_t* at, int64_t index) {
  if (at->channels == 0) return false;
  int64_t channel = index % at->inner;
  if (at->outer > 0) channel += index / at->outer % at->blocks * at->inner;
  return channel >= at->channels;
}

static void range_add(rabbet_range_t* range, double value, int64_t index) {
  ++range->count;
  if (isfinite(value)) {
    if (!(value >= range->low)) range->low = value;
    if (!(value <= range->high)) range->high = value;
    return;
  }
  if (isnan(value))
    ++range->nans;
  else
    ++range->infinities;
  if (range->first < 0) range->first = index;
}

static rabbet_status_t range_of(const rabbet_view_t* view,
                                rabbet_range_t* out_range) {
  rabbet_dims_t physical;
  int64_t count = 0;
  *out_range =
      (rabbet_range_t){.known = true, .first = -1, .low = NAN, .high = NAN};
  RABBET_RETURN_IF_ERROR(
      rabbet_format_physical_dims(view->format, &view->dims, &physical));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&physical, &count));
  if (count == 0) return rabbet_ok();
  channels_t channels = channels_of(view->format, &view->dims, &physical);
  for (int64_t i = 0; i < count; ++i)
    if (!is_padding(&channels, i))
      range_add(out_range, rabbet_load_double(view->dtype, view->data, i), i);
  assert((out_range->first < 0) ==
         (out_range->nans + out_range->infinities == 0));
  return rabbet_ok();
}

// ---- A value of the run -----------------------------------------------------

static rabbet_status_t finite_fetch(rabbet_frame_t* frame, const void* memory,
                                    size_t bytes, void* stream,
                                    void** out_data) {
  rabbet_finite_t* finite = frame->context->finite;
  rabbet_device_t* device = frame->context->engine->device;
  *out_data = (void*)(uintptr_t)memory;
  if (device->host_memory) return rabbet_ok();
  if (finite->staging_bytes < bytes) {
    rabbet_free(frame->context->allocator, finite->staging);
    finite->staging = NULL;
    finite->staging_bytes = 0;
    RABBET_RETURN_IF_ERROR(
        rabbet_allocate(frame->context->allocator, bytes, &finite->staging));
    finite->staging_bytes = bytes;
  }
  *out_data = finite->staging;
  RABBET_RETURN_IF_ERROR(device->vtable->copy_to_host(device, finite->staging,
                                                      memory, bytes, stream));
  return device->vtable->synchronize(device, stream);
}

// The range of a value at `memory`, or of the group's constant. Unknown for
// integers, and for a tensor whose size is still unknown.
static rabbet_status_t finite_look(rabbet_frame_t* frame,
                                   const rabbet_prepared_t* prepared, int32_t v,
                                   const void* memory, const void* constant,
                                   void* stream) {
  const rabbet_plan_value_t* value = &frame->sequence->plan->values[v];
  rabbet_range_t* range = &frame->ranges[v];
  rabbet_view_t view = {.dtype = value->dtype,
                        .format = value->format,
                        .dims = prepared->dims[v]};
  range->known = false;
  if (!rabbet_dtype_is_float(value->dtype) ||
      rabbet_dtype_bits(value->dtype) < 8 || (!memory && !constant))
    return rabbet_ok();
  for (int32_t i = 0; i < view.dims.rank; ++i)
    if (view.dims.d[i] < 0) return rabbet_ok();
  view.data = (void*)(uintptr_t)constant;
  if (!constant)
    RABBET_RETURN_IF_ERROR(
        finite_fetch(frame, memory, prepared->bytes[v], stream, &view.data));
  return range_of(&view, range);
}

// ---- Words ------------------------------------------------------------------

static void finite_print_value(const rabbet_frame_t* frame,
                               const rabbet_prepared_t* prepared, int32_t v,
                               rabbet_strbuf_t* out) {
  const rabbet_plan_value_t* value = &frame->sequence->plan->values[v];
  char dims[192];
  rabbet_strbuf_printf(
      out, "'%s' (%s %s)", value->name, rabbet_dtype_name(value->dtype),
      rabbet_dims_print(&prepared->dims[v], dims, sizeof(dims)));
}

static void finite_print_extent(const rabbet_range_t* range,
                                rabbet_strbuf_t* out) {
  if (range->count > range->nans + range->infinities)
    rabbet_strbuf_printf(out, " from %.6g to %.6g", range->low, range->high);
}

// "3 NaN and 1 infinity among 12 elements, the first at [0, 2]"
static void finite_print_count(const rabbet_frame_t* frame,
                               const rabbet_prepared_t* prepared, int32_t v,
                               rabbet_strbuf_t* out) {
  const rabbet_range_t* range = &frame->ranges[v];
  const rabbet_dims_t* dims = &prepared->dims[v];
  if (range->nans > 0)
    rabbet_strbuf_printf(out, "%lld NaN%s", (long long)range->nans,
                         range->infinities > 0 ? " and " : "");
  if (range->infinities > 0)
    rabbet_strbuf_printf(out, "%lld infinit%s", (long long)range->infinities,
                         range->infinities == 1 ? "y" : "ies");
  rabbet_strbuf_printf(out, " among %lld element%s", (long long)range->count,
                       rabbet_plural((size_t)range->count));
  bool row_major =
      frame->sequence->plan->values[v].format == RABBET_FORMAT_LINEAR;
  if (!row_major || dims->rank == 0) return;
  assert(range->first >= 0);
  int64_t index[RABBET_MAX_RANK], rest = range->first;
  for (int32_t i = dims->rank; i-- > 0; rest /= dims->d[i])
    index[i] = rest % dims->d[i];
  for (int32_t i = 0; i < dims->rank; ++i)
    rabbet_strbuf_printf(out, "%s%lld", i ? ", " : ", the first at [",
                         (long long)index[i]);
  rabbet_strbuf_printf(out, "]");
}

// Prints the likely cause and a remedy.
static void finite_print_hint(const rabbet_frame_t* frame,
                              const rabbet_plan_step_t* step, int32_t output,
                              rabbet_strbuf_t* out) {
  const rabbet_plan_value_t* values = frame->sequence->plan->values;
  bool half = values[output].dtype == RABBET_DTYPE_HALF;
  for (size_t i = 0; i < step->group.input_count; ++i)
    half |=
        values[step->values[step->group.inputs[i]]].dtype == RABBET_DTYPE_HALF;
  if (half)
    rabbet_strbuf_printf(
        out,
        ". FP16 holds no number beyond 65504: keep the layer in FP32 "
        "(layer.precision and set_output_type, `rabbet exec "
        "--layerPrecisions=NAME:fp32`), scale its inputs, or build with "
        "BF16");
  else if (frame->ranges[output].nans > 0)
    rabbet_strbuf_printf(
        out,
        ". A NaN comes of 0 / 0, inf - inf, 0 * inf, and of roots and "
        "logarithms of negative numbers");
  else
    rabbet_strbuf_printf(
        out, ". An infinity comes of a division by 0, or of an overflow");
}

static rabbet_status_t finite_status(rabbet_strbuf_t* text) {
  rabbet_status_t status = rabbet_strbuf_status(text);
  if (rabbet_is_ok(status))
    status = RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION, "%s",
                           rabbet_strbuf_text(text));
  rabbet_strbuf_deinitialize(text);
  return status;
}

static rabbet_status_t finite_blame(const rabbet_frame_t* frame,
                                    const rabbet_prepared_t* prepared,
                                    const rabbet_plan_step_t* step,
                                    int32_t output) {
  const rabbet_range_t* ranges = frame->ranges;
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(frame->context->allocator, &text);
  rabbet_strbuf_printf(&text, "layer '%s' (kernel '%s') made the first ",
                       step->name, step->kernel);
  rabbet_strbuf_printf(&text, "%s of the run: output ",
                       ranges[output].nans > 0 ? "NaN" : "infinity");
  finite_print_value(frame, prepared, output, &text);
  rabbet_strbuf_printf(&text, " holds ");
  finite_print_count(frame, prepared, output, &text);
  rabbet_strbuf_printf(&text, ". It read");
  for (size_t i = 0; i < step->group.input_count; ++i) {
    int32_t v = step->values[step->group.inputs[i]];
    rabbet_strbuf_printf(&text, "%s ", i ? "," : "");
    finite_print_value(frame, prepared, v, &text);
    if (ranges[v].known) finite_print_extent(&ranges[v], &text);
    if (ranges[v].known && ranges[v].infinities > 0)
      rabbet_strbuf_printf(&text, " with infinities");
  }
  if (step->group.input_count == 0) rabbet_strbuf_printf(&text, " nothing");
  finite_print_hint(frame, step, output, &text);
  return finite_status(&text);
}

// ---- Steps ------------------------------------------------------------------

rabbet_status_t rabbet_finite_before_step(rabbet_frame_t* frame,
                                          const rabbet_prepared_t* prepared,
                                          const rabbet_run_t* run,
                                          void* stream) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  for (size_t i = 0; i < step->group.input_count; ++i) {
    int32_t v = step->values[step->group.inputs[i]];
    if (frame->ranges[v].known) continue;
    RABBET_RETURN_IF_ERROR(finite_look(
        frame, prepared, v, run->call.inputs[i],
        step->group.values[step->group.inputs[i]].constant, stream));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_finite_after_step(rabbet_frame_t* frame,
                                         const rabbet_prepared_t* prepared,
                                         const rabbet_run_t* run,
                                         void* stream) {
  const rabbet_plan_step_t* step = &frame->sequence->plan->steps[run->step];
  rabbet_range_t* ranges = frame->ranges;
  bool read_nan = false, read_infinity = false;
  for (size_t i = 0; i < step->group.input_count; ++i) {
    const rabbet_range_t* range = &ranges[step->values[step->group.inputs[i]]];
    read_nan |= range->known && range->nans > 0;
    read_infinity |= range->known && range->infinities > 0;
  }
  for (size_t i = 0; i < step->group.output_count; ++i) {
    int32_t v = step->values[step->group.outputs[i]];
    RABBET_RETURN_IF_ERROR(
        finite_look(frame, prepared, v, run->call.outputs[i], NULL, stream));
    const rabbet_range_t* range = &ranges[v];
    if (!range->known) continue;
    if ((range->nans > 0 && !read_nan) ||
        (range->infinities > 0 && !read_nan && !read_infinity))
      return finite_blame(frame, prepared, step, v);
  }
  return rabbet_ok();
}

// ---- Runs -------------------------------------------------------------------

rabbet_status_t rabbet_finite_begin(rabbet_frame_t* frame) {
  // An empty network has no values.
  size_t bytes =
      (frame->sequence->plan->value_count + 1) * sizeof(*frame->ranges);
  if (!frame->ranges)
    RABBET_RETURN_IF_ERROR(rabbet_allocate(frame->context->allocator, bytes,
                                           (void**)&frame->ranges));
  memset(frame->ranges, 0, bytes);
  return rabbet_ok();
}

static bool finite_is_wrong(const rabbet_frame_t* frame, int32_t v) {
  const rabbet_range_t* range = &frame->ranges[v];
  return range->known && range->nans + range->infinities > 0;
}

// If no step is to blame: the inputs and constants.
rabbet_status_t rabbet_finite_end(rabbet_frame_t* frame,
                                  const rabbet_prepared_t* leaf) {
  const rabbet_plan_sequence_t* plan = frame->sequence->plan;
  int32_t wrong = -1;
  for (size_t i = plan->input_count; i < plan->io_count && wrong < 0; ++i)
    if (finite_is_wrong(frame, plan->ios[i].value)) wrong = plan->ios[i].value;
  if (wrong < 0) return rabbet_ok();
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(frame->context->allocator, &text);
  rabbet_strbuf_printf(&text, "output ");
  finite_print_value(frame, leaf, wrong, &text);
  rabbet_strbuf_printf(&text, " holds ");
  finite_print_count(frame, leaf, wrong, &text);
  rabbet_strbuf_printf(&text, "; no layer made them of finite numbers");
  for (size_t v = 0; v < plan->value_count; ++v) {
    const rabbet_plan_value_t* value = &plan->values[v];
    bool is_input = value->storage == RABBET_PLAN_STORAGE_IO &&
                    value->alias < 0 && plan->ios[value->io].is_input;
    bool is_constant = value->storage == RABBET_PLAN_STORAGE_CONSTANT;
    if ((!is_input && !is_constant) || !finite_is_wrong(frame, (int32_t)v))
      continue;
    rabbet_strbuf_printf(&text, ". The %s ", is_input ? "input" : "constant");
    finite_print_value(frame, leaf, (int32_t)v, &text);
    rabbet_strbuf_printf(&text, " holds ");
    finite_print_count(frame, leaf, (int32_t)v, &text);
  }
  return finite_status(&text);
}

void rabbet_finite_destroy(rabbet_context_t* context) {
  if (!context->finite) return;
  for (size_t i = 0; i < rabbet_context_frame_count(context); ++i) {
    rabbet_frame_t* frame = rabbet_context_frame(context, i);
    rabbet_free(context->allocator, frame->ranges);
    frame->ranges = NULL;
  }
  rabbet_free(context->allocator, context->finite->staging);
  rabbet_free(context->allocator, context->finite);
  context->finite = NULL;
}

rabbet_status_t rabbet_context_set_check_finite(rabbet_context_t* context,
                                                bool on) {
  if (on == (context->finite != NULL)) return rabbet_ok();
  if (!on) {
    rabbet_finite_destroy(context);
    return rabbet_ok();
  }
  return rabbet_allocate(context->allocator, sizeof(*context->finite),
                         (void**)&context->finite);
}

bool rabbet_context_checks_finite(const rabbet_context_t* context) {
  return context->finite != NULL;
}
