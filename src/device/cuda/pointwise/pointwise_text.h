// From a group of element-wise layers to CUDA C++ (pointwise/pointwise.cuh).
#ifndef RABBET_SRC_DEVICE_CUDA_POINTWISE_POINTWISE_TEXT_H_
#define RABBET_SRC_DEVICE_CUDA_POINTWISE_POINTWISE_TEXT_H_

#include "base/strbuf.h"
#include "device/common/pointwise.h"

enum {
  RABBET_CUDA_PW_WAYS = 64,
  RABBET_CUDA_PW_TABLES = 8,
  // Of a launch, which the driver limits to 4096.
  RABBET_CUDA_PW_BYTES = 4000,
};

// Where the elements of a boundary input come from.
typedef enum rabbet_cuda_pw_source_t {
  RABBET_CUDA_PW_MEMORY = 0,  // `number`: among the addresses
  // A constant of one element, which comes with the launch; `number` among
  // them.
  RABBET_CUDA_PW_SCALAR,
  // A constant that does not vary along rows, as one column of a table of all
  // such constants of its shape: `number` of the table, and column.
  RABBET_CUDA_PW_TABLE,
} rabbet_cuda_pw_source_t;

typedef struct rabbet_cuda_pw_input_t {
  rabbet_cuda_pw_source_t source;
  int number, column;
} rabbet_cuda_pw_input_t;

// How a group's operands reach the kernel. Addresses are those of inputs in
// memory, of tables, of outputs. A way is a walk through memory: constants of
// one shape share theirs. The layout depends only on properties that are equal
// in a build and in a loaded plan, whose dynamic shapes are not known yet.
typedef struct rabbet_cuda_pw_layout_t {
  int memory_count, table_count, output_count, scalar_count, way_count;
  int axes;  // outside the row, at most
  rabbet_cuda_pw_input_t inputs[RABBET_PW_MAX_OPERANDS];
  // Of each address: its way, and the boundary operand (inputs, then outputs)
  // that is there, or is the table's first column.
  int way[RABBET_PW_MAX_OPERANDS], boundary[RABBET_PW_MAX_OPERANDS];
  int leader[RABBET_CUDA_PW_WAYS];  // a boundary operand that walks so
  int columns[RABBET_CUDA_PW_TABLES];
} rabbet_cuda_pw_layout_t;

// Types and formats as chosen. False if the group has too many operands for a
// launch: the same for all choices.
bool rabbet_cuda_pw_layout(const rabbet_group_t* group,
                           rabbet_cuda_pw_layout_t* out_layout);
static inline int rabbet_cuda_pw_addresses(
    const rabbet_cuda_pw_layout_t* layout) {
  return layout->memory_count + layout->table_count + layout->output_count;
}
// Floats from one row of the table to the next.
int rabbet_cuda_pw_table_row(const rabbet_cuda_pw_layout_t* layout, int table);

// Whether every layer has a function, and every type a name, in the kernels.
bool rabbet_cuda_pw_supports(const rabbet_group_t* group);
// The bits that a constant of one element has in the launch.
uint32_t rabbet_cuda_pw_scalar(const rabbet_group_value_t* value);
// Elements to a vector: 16 bytes of the widest type along rows.
int rabbet_cuda_pw_vector(const rabbet_group_t* group);
// Elements that a thread does where no vectors fit: several, unless the chain
// is so long that its instructions bound it.
int rabbet_cuda_pw_single(const rabbet_group_t* group);
bool rabbet_cuda_pw_is_long(const rabbet_group_t* group);
// The whole text; `unroll` vectors for each thread.
void rabbet_cuda_pw_text(const rabbet_group_t* group,
                         const rabbet_cuda_pw_layout_t* layout, int unroll,
                         rabbet_strbuf_t* out_text);

#endif  // RABBET_SRC_DEVICE_CUDA_POINTWISE_POINTWISE_TEXT_H_
