// An ONNX model in memory: its messages, and the files that hold its tensors.
#ifndef RABBET_SRC_ONNX_FILE_MODEL_H_
#define RABBET_SRC_ONNX_FILE_MODEL_H_

#include "base/arena.h"
#include "base/file.h"
#include "base/map.h"
#include "base/vec.h"
#include "onnx-ml.pb-c.h"
#include "rabbet/logger.h"
#include "rabbet/onnx.h"
#include "rabbet/types.h"

// Memory that a network's weights point into: the model's bytes, external data
// files, and converted data. Handed to the network, which destroys it last.
typedef struct rabbet_onnx_storage_t {
  rabbet_allocator_t allocator;
  rabbet_file_map_t* file;  // NULL: the model came from memory
  const uint8_t* data;      // the model
  size_t size;
  char* folder;  // of external data; NULL: there is none
  // Where links to external data may lead: into the folder, and, where the
  // model is a link itself, into that of its target. Without links; NULL:
  // nowhere.
  char* real_folders[2];
  RABBET_VEC(rabbet_file_map_t*) external;
  RABBET_VEC(char*) external_names;  // as locations name them
  // Data that the caller gave or lent; by initializers' names.
  const rabbet_onnx_initializer_t* given;
  size_t given_count;
  bool keeps_double;
  rabbet_arena_t arena;
  // Of a large file: for copies of tensors that are not aligned in it.
  uint8_t* copies;
  size_t copies_size, copies_used;
} rabbet_onnx_storage_t;

RABBET_PRIVATE_API rabbet_status_t rabbet_onnx_storage_open(
    const char* path, const char* external_folder, rabbet_allocator_t allocator,
    rabbet_onnx_storage_t** out_storage);
// Copies `data`. `path` and `external_folder` may be NULL.
RABBET_PRIVATE_API rabbet_status_t rabbet_onnx_storage_copy(
    const void* data, size_t size, const char* path,
    const char* external_folder, rabbet_allocator_t allocator,
    rabbet_onnx_storage_t** out_storage);
// Takes void* to fit rabbet_network_take_owner. NULL is fine.
RABBET_PRIVATE_API void rabbet_onnx_storage_destroy(void* storage);

// DATA_LOSS if a file that weights point into was changed since it was mapped.
RABBET_PRIVATE_API rabbet_status_t
rabbet_onnx_storage_check(const void* storage);

// The messages live in `arena` as long as the caller likes; there is nothing
// else to free.
RABBET_PRIVATE_API rabbet_status_t
rabbet_onnx_model_parse(const rabbet_onnx_storage_t* storage,
                        rabbet_arena_t* arena, Onnx__ModelProto** out_model);

// ---- Tensors ---------------------------------------------------------------

typedef struct rabbet_onnx_constant_t {
  rabbet_weights_t weights;  // data lives as long as the storage
  rabbet_dims_t dims;
} rabbet_onnx_constant_t;

typedef enum rabbet_onnx_list_kind_t {
  RABBET_ONNX_LIST_NONE,
  RABBET_ONNX_LIST_FLOATS,
  RABBET_ONNX_LIST_INT32S,
  RABBET_ONNX_LIST_INT64S,
  RABBET_ONNX_LIST_UINT64S,
  RABBET_ONNX_LIST_DOUBLES,
} rabbet_onnx_list_kind_t;

// The numbers that tensors of the network's type hold (onnx/held.h).
typedef enum rabbet_onnx_holds_t {
  RABBET_ONNX_HOLDS_ITSELF,
  RABBET_ONNX_HOLDS_SIGNED,
  RABBET_ONNX_HOLDS_UNSIGNED,
  RABBET_ONNX_HOLDS_REAL,
} rabbet_onnx_holds_t;

// A row of types.def.
typedef struct rabbet_onnx_type_t {
  const char* name;
  rabbet_dtype_t dtype;
  int bits;
  rabbet_onnx_list_kind_t list;
  rabbet_onnx_holds_t holds;
} rabbet_onnx_type_t;

// NULL for a number that is no type.
RABBET_PRIVATE_API const rabbet_onnx_type_t* rabbet_onnx_type(int32_t number);
// 0 for a name that is no type's.
RABBET_PRIVATE_API int32_t rabbet_onnx_type_number(const char* name);
// The type that a network has as `dtype`; 0: none.
RABBET_PRIVATE_API int32_t rabbet_onnx_type_of(rabbet_dtype_t dtype);
// "FLOAT16", ...; "unknown" for a number that is no type.
RABBET_PRIVATE_API const char* rabbet_onnx_type_name(int32_t onnx_type);

// A binary floating-point type of 8 bits or fewer.
typedef struct rabbet_onnx_real_t {
  int mantissa_bits, bias;
  double largest;
  enum {
    RABBET_ONNX_REAL_FINITE,         // neither infinity nor NaN
    RABBET_ONNX_REAL_NAN,            // NaN alone
    RABBET_ONNX_REAL_INFINITE,       // both, as IEEE 754 has them
    RABBET_ONNX_REAL_UNSIGNED_ZERO,  // the code of -0 is NaN
  } specials;
} rabbet_onnx_real_t;
// NULL for another type.
RABBET_PRIVATE_API const rabbet_onnx_real_t* rabbet_onnx_real(
    const rabbet_onnx_type_t* type);
// The number that a code stands for.
RABBET_PRIVATE_API double rabbet_onnx_real_value(const rabbet_onnx_type_t* type,
                                                 uint32_t code);

// UNSUPPORTED names the type and those that work. DOUBLE becomes FLOAT, unless
// the storage keeps it: *out_narrowed (may be NULL) says so.
RABBET_PRIVATE_API rabbet_status_t
rabbet_onnx_dtype(const rabbet_onnx_storage_t* storage, int32_t onnx_type,
                  rabbet_dtype_t* out_dtype, bool* out_narrowed);
// Element type, dims and data of a tensor, checked against each other. Data is
// used in place where it is aligned raw data.
RABBET_PRIVATE_API rabbet_status_t rabbet_onnx_tensor_read(
    rabbet_onnx_storage_t* storage, rabbet_logger_t logger,
    const Onnx__TensorProto* tensor, rabbet_onnx_constant_t* out_constant);

#endif  // RABBET_SRC_ONNX_FILE_MODEL_H_
