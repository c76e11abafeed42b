// Host arrays for a context's inputs and outputs.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/npy.h"
#include "core/shape_text.h"
#include "core/view.h"

enum { TENSOR_ALIGNMENT = 64 };

typedef struct rabbet_slot_t {
  const rabbet_io_t* io;
  rabbet_dims_t dims;
  void* data;  // owned, aligned
  size_t capacity;
  bool is_loaded;  // from a file
} rabbet_slot_t;

struct rabbet_tensor_set_t {
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;
  rabbet_context_t* context;
  size_t count;
  rabbet_slot_t slots[];
};

// ---- Outputs ---------------------------------------------------------------

static rabbet_slot_t* slot_find(rabbet_tensor_set_t* set, const char* name) {
  for (size_t i = 0; i < set->count; ++i) {
    if (strcmp(set->slots[i].io->name, name) == 0) return &set->slots[i];
  }
  return NULL;
}

static rabbet_status_t slot_reserve(rabbet_tensor_set_t* set,
                                    rabbet_slot_t* slot, size_t size) {
  if (slot->data && slot->capacity >= size) return rabbet_ok();
  rabbet_free_aligned(set->allocator, slot->data, TENSOR_ALIGNMENT);
  slot->data = NULL;
  slot->capacity = size ? size : 1;
  return rabbet_allocate_aligned(set->allocator, slot->capacity,
                                 TENSOR_ALIGNMENT, &slot->data);
}

static void* output_reallocate(void* user_data, const char* name, void* current,
                               size_t size, size_t alignment, void* stream) {
  (void)current;
  (void)stream;
  rabbet_tensor_set_t* set = user_data;
  rabbet_slot_t* slot = slot_find(set, name);
  if (!slot || alignment > 256) return NULL;
  rabbet_status_t status = slot_reserve(set, slot, size);
  if (rabbet_is_ok(status)) return slot->data;
  rabbet_status_ignore(status);
  return NULL;
}

static void output_notify(void* user_data, const char* name,
                          const rabbet_dims_t* dims) {
  rabbet_slot_t* slot = slot_find(user_data, name);
  if (slot) slot->dims = *dims;
}

// ---- Inputs ----------------------------------------------------------------

// SplitMix64 (Steele, Lea, Flood 2014): small, and equal on every machine.
static uint64_t random_next(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Floats uniform in [-1, 1); integers 0, which is a valid index everywhere.
static void slot_fill_random(rabbet_slot_t* slot, int64_t count, size_t bytes,
                             uint64_t* state) {
  memset(slot->data, 0, bytes);
  if (!rabbet_dtype_is_float(slot->io->dtype)) return;
  for (int64_t i = 0; i < count; ++i) {
    double value = (double)(random_next(state) >> 11) * 0x1p-52 - 1;
    rabbet_store_double(slot->io->dtype, slot->data, i, value);
  }
}

static rabbet_status_t slot_from_array(rabbet_tensor_set_t* set, size_t io,
                                       const rabbet_array_t* array) {
  rabbet_slot_t* slot = &set->slots[io];
  if (array->dtype != slot->io->dtype) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "input '%s' is %s, but the array given for it is %s",
                         slot->io->name, rabbet_dtype_name(slot->io->dtype),
                         rabbet_dtype_name(array->dtype));
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_context_set_input_shape(set->context, io, &array->dims));
  slot->dims = array->dims;
  RABBET_RETURN_IF_ERROR(slot_reserve(set, slot, array->bytes));
  memcpy(slot->data, array->data, array->bytes);
  slot->is_loaded = true;
  return rabbet_ok();
}

static rabbet_status_t slot_is_open(const rabbet_slot_t* slot) {
  char text[128];
  rabbet_strbuf_t example;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &example);
  rabbet_shape_text_example(slot->io->name, &slot->dims, &example);
  rabbet_status_t status = RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "input '%s' has dynamic dimensions %s: give it by --inputs, or its sizes "
      "by --shapes %s",
      slot->io->name, rabbet_dims_print(&slot->dims, text, sizeof(text)),
      rabbet_strbuf_text(&example));
  rabbet_strbuf_deinitialize(&example);
  return status;
}

// The shape of an input, if the profile allows only one.
static rabbet_status_t slot_shape(rabbet_tensor_set_t* set, size_t io) {
  rabbet_dims_t low, usual, high;
  rabbet_dims_t* dims = &set->slots[io].dims;
  RABBET_RETURN_IF_ERROR(rabbet_context_shape(set->context, io, dims));
  RABBET_RETURN_IF_ERROR(rabbet_engine_profile_shape(
      rabbet_context_engine(set->context), rabbet_context_profile(set->context),
      io, &low, &usual, &high));
  for (int32_t i = 0; i < dims->rank; ++i)
    if (low.d[i] != high.d[i]) return rabbet_ok();
  *dims = usual;
  return rabbet_context_set_input_shape(set->context, io, &usual);
}

static rabbet_status_t slot_random(rabbet_tensor_set_t* set, size_t io,
                                   uint64_t* state) {
  rabbet_slot_t* slot = &set->slots[io];
  RABBET_RETURN_IF_ERROR(slot_shape(set, io));
  for (int32_t i = 0; i < slot->dims.rank; ++i) {
    if (slot->dims.d[i] >= 0) continue;
    return slot_is_open(slot);
  }
  size_t bytes = 0;
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&slot->dims, &count));
  RABBET_RETURN_IF_ERROR(rabbet_context_bytes(set->context, io, &bytes));
  RABBET_RETURN_IF_ERROR(slot_reserve(set, slot, bytes));
  slot_fill_random(slot, count, bytes, state);
  return rabbet_ok();
}

// "NAME=FILE.npy" or "FILE.npz": arrays with the names of inputs.
static rabbet_status_t inputs_read(rabbet_tensor_set_t* set, const char* text,
                                   rabbet_array_t** out_arrays,
                                   size_t* out_count) {
  const char* equals = strchr(text, '=');
  rabbet_status_t status = rabbet_npy_read(equals ? equals + 1 : text,
                                           &set->arena, out_arrays, out_count);
  // Changes the code: the file is not supported, not the model.
  if (rabbet_status_code(status) == RABBET_STATUS_UNSUPPORTED) {
    return rabbet_cli_recode(status, RABBET_STATUS_DATA_LOSS);
  }
  RABBET_RETURN_IF_ERROR(status);
  if (equals) {
    if (*out_count != 1) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "'%s': one array is expected, the file has %zu",
                           text, *out_count);
    }
    return rabbet_arena_printf(&set->arena, &(*out_arrays)[0].name, "%.*s",
                               (int)(equals - text), text);
  }
  // A lone .npy goes to the only input.
  if (*out_count == 1 && !*(*out_arrays)[0].name) {
    if (set->count > 1 && set->slots[1].io->is_input) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "--inputs %s: the model has several inputs; say "
                           "which, as in --inputs %s=%s",
                           text, set->slots[0].io->name, text);
    }
    (*out_arrays)[0].name = set->slots[0].io->name;
  }
  return rabbet_ok();
}

static rabbet_status_t inputs_load(rabbet_tensor_set_t* set, const char* text) {
  rabbet_array_t* arrays = NULL;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(inputs_read(set, text, &arrays, &count));
  for (size_t i = 0; i < count; ++i) {
    rabbet_slot_t* slot = slot_find(set, arrays[i].name);
    if (!slot || !slot->io->is_input) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "--inputs %s: the model has no input '%s'", text,
                           arrays[i].name);
    }
    RABBET_RETURN_IF_ERROR(
        slot_from_array(set, (size_t)(slot - set->slots), &arrays[i]));
  }
  return rabbet_ok();
}

static rabbet_status_t inputs_prepare(const rabbet_arguments_t* arguments,
                                      rabbet_tensor_set_t* set) {
  size_t count = 0;
  const char* const* given =
      rabbet_argument_list(arguments, "--inputs", &count);
  for (size_t i = 0; i < count; ++i) {
    RABBET_RETURN_IF_ERROR(inputs_load(set, given[i]));
  }
  int64_t seed = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_argument_int(arguments, "--seed", 0, INT64_MAX, 0, &seed));
  uint64_t state = (uint64_t)seed;
  for (size_t io = 0; io < set->count; ++io) {
    if (!set->slots[io].io->is_input || set->slots[io].data) continue;
    RABBET_RETURN_IF_ERROR(slot_random(set, io, &state));
  }
  return rabbet_ok();
}

// The values of --shapes for a shape input, else the profile's usual ones.
static rabbet_status_t slot_values(rabbet_tensor_set_t* set, size_t io,
                                   const rabbet_named_dims_t* given,
                                   size_t given_count) {
  rabbet_slot_t* slot = &set->slots[io];
  const int64_t *low = NULL, *usual = NULL, *high = NULL;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_engine_profile_values(
      rabbet_context_engine(set->context), rabbet_context_profile(set->context),
      io, &low, &usual, &high, &count));
  for (size_t i = 0; i < given_count; ++i) {
    if (!rabbet_shape_text_matches(&given[i], slot->io->name)) continue;
    if ((size_t)given[i].dims.rank == count) {
      usual = given[i].dims.d;
    } else if (!rabbet_dims_equal(&given[i].dims, &slot->dims)) {
      return RABBET_STATUS(
          RABBET_STATUS_INVALID_ARGUMENT,
          "--shapes: '%s' is a shape input of %zu value%s, for which %d are "
          "given",
          slot->io->name, count, rabbet_plural(count), given[i].dims.rank);
    }
  }
  for (size_t i = 0; i < count; ++i)
    rabbet_store_int64(slot->io->dtype, slot->data, (int64_t)i, usual[i]);
  return rabbet_ok();
}

rabbet_status_t rabbet_tensor_set_values(rabbet_tensor_set_t* set,
                                         const char* text) {
  rabbet_named_dims_t* given = NULL;
  size_t count = 0;
  if (text)
    RABBET_RETURN_IF_ERROR(
        rabbet_shape_text_parse(text, &set->arena, &given, &count));
  for (size_t io = 0; io < set->count; ++io)
    if (set->slots[io].io->is_input && set->slots[io].io->is_shape_input &&
        !set->slots[io].is_loaded)
      RABBET_RETURN_IF_ERROR(slot_values(set, io, given, count));
  return rabbet_ok();
}

// ---- The set ---------------------------------------------------------------

static rabbet_status_t tensor_set_bind(rabbet_tensor_set_t* set) {
  rabbet_output_allocator_t outputs = {set, output_reallocate, output_notify,
                                       true};
  for (size_t io = 0; io < set->count; ++io) {
    RABBET_RETURN_IF_ERROR(
        set->slots[io].io->is_input
            ? rabbet_context_set_host_address(set->context, io,
                                              set->slots[io].data)
            : rabbet_context_set_output_allocator(set->context, io, outputs));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_tensor_set_create(const rabbet_arguments_t* arguments,
                                         rabbet_context_t* context,
                                         rabbet_tensor_set_t** out_set) {
  *out_set = NULL;
  rabbet_allocator_t allocator = rabbet_allocator_system();
  const rabbet_engine_t* engine = rabbet_context_engine(context);
  size_t count = rabbet_engine_io_count(engine);
  rabbet_tensor_set_t* set = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator, sizeof(*set) + count * sizeof(set->slots[0]), (void**)&set));
  set->allocator = allocator;
  rabbet_arena_initialize(allocator, &set->arena);
  set->context = context;
  set->count = count;
  for (size_t i = 0; i < count; ++i) {
    set->slots[i].io = rabbet_engine_io(engine, i);
  }
  rabbet_status_t status = inputs_prepare(arguments, set);
  if (rabbet_is_ok(status))
    status =
        rabbet_tensor_set_values(set, rabbet_argument(arguments, "--shapes"));
  if (rabbet_is_ok(status)) status = tensor_set_bind(set);
  if (!rabbet_is_ok(status)) {
    rabbet_tensor_set_destroy(set);
    return status;
  }
  *out_set = set;
  return rabbet_ok();
}

void rabbet_tensor_set_destroy(rabbet_tensor_set_t* set) {
  if (!set) return;
  for (size_t i = 0; i < set->count; ++i) {
    rabbet_free_aligned(set->allocator, set->slots[i].data, TENSOR_ALIGNMENT);
  }
  rabbet_arena_deinitialize(&set->arena);
  rabbet_free(set->allocator, set);
}

rabbet_status_t rabbet_tensor_set_load_raw(rabbet_tensor_set_t* set,
                                           const char* name, const char* path) {
  rabbet_slot_t* slot = slot_find(set, name);
  rabbet_file_map_t* map = NULL;
  size_t bytes = 0;
  if (!slot || !slot->io->is_input)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the model has no input '%s'", name);
  RABBET_RETURN_IF_ERROR(
      rabbet_context_bytes(set->context, (size_t)(slot - set->slots), &bytes));
  RABBET_RETURN_IF_ERROR(rabbet_file_map_create(path, set->allocator, &map));
  rabbet_status_t status = rabbet_ok();
  if (rabbet_file_map_size(map) == bytes)
    memcpy(slot->data, rabbet_file_map_data(map), bytes);
  else
    status = RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                           "'%s' has %zu bytes; input '%s' needs %zu", path,
                           rabbet_file_map_size(map), name, bytes);
  rabbet_file_map_release(map);
  return status;
}

rabbet_status_t rabbet_tensor_set_save_outputs(const rabbet_tensor_set_t* set,
                                               const char* path) {
  rabbet_array_t* arrays = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      set->allocator, set->count * sizeof(*arrays), (void**)&arrays));
  size_t count = 0;
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < set->count; ++i) {
    const rabbet_slot_t* slot = &set->slots[i];
    if (slot->io->is_input) continue;
    rabbet_array_t* array = &arrays[count++];
    *array = (rabbet_array_t){.name = slot->io->name,
                              .dtype = slot->io->dtype,
                              .dims = slot->dims,
                              .data = slot->data};
    status = rabbet_tensor_bytes(array->dtype, RABBET_FORMAT_LINEAR,
                                 &array->dims, &array->bytes);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_npz_write(path, arrays, count, set->allocator);
  }
  rabbet_free(set->allocator, arrays);
  return status;
}

rabbet_status_t rabbet_tensor_set_print(const rabbet_tensor_set_t* set,
                                        FILE* file) {
  for (size_t i = 0; i < set->count; ++i) {
    const rabbet_slot_t* slot = &set->slots[i];
    if (slot->io->is_input) continue;
    int64_t count = 0;
    char text[128];
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&slot->dims, &count));
    double low = INFINITY, high = -INFINITY, sum = 0;
    for (int64_t k = 0; k < count; ++k) {
      double value = rabbet_load_double(slot->io->dtype, slot->data, k);
      low = fmin(low, value);
      high = fmax(high, value);
      sum += value;
    }
    rabbet_cli_print(file, "%s %s %s", slot->io->name,
                     rabbet_dtype_name(slot->io->dtype),
                     rabbet_dims_print(&slot->dims, text, sizeof(text)));
    if (count) {
      fprintf(file, ": min %.6g, max %.6g, mean %.6g", low, high,
              sum / (double)count);
    }
    fprintf(file, "\n");
  }
  return rabbet_ok();
}
