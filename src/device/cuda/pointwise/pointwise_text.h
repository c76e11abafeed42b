// From a group of element-wise layers to CUDA C++ (pointwise/pointwise.cuh).
#ifndef RABBET_SRC_DEVICE_CUDA_POINTWISE_POINTWISE_TEXT_H_
#define RABBET_SRC_DEVICE_CUDA_POINTWISE_POINTWISE_TEXT_H_

#include "base/strbuf.h"
#include "device/common/pointwise.h"

enum {
  RABBET_CUDA_PW_WAYS = 64,
  RABBET_CUDA_PW_TABLES = 8,
  // The most bytes of parameters; the driver's limit is 4096.
  RABBET_CUDA_PW_BYTES = 4000,
};

// Where the elements of a boundary input come from.
typedef enum rabbet_cuda_pw_source_t {
  RABBET_CUDA_PW_MEMORY = 0,  // `number`: index of the address
  // A constant of one element, which is a launch parameter; `number`: its
  // index.
  RABBET_CUDA_PW_SCALAR,
  // A constant that does not vary along rows: a column of the table of all such
  // constants of its shape; `number`: index of the table.
  RABBET_CUDA_PW_TABLE,
} rabbet_cuda_pw_source_t;

typedef struct rabbet_cuda_pw_input_t {
  rabbet_cuda_pw_source_t source;
  int number, column;
} rabbet_cuda_pw_input_t;

// How a group's operands reach the kernel. Addresses are, in this order, of
// inputs in memory, of tables, of outputs. A way is a set of strides; constants
// of one shape share a way. The layout depends only on properties that are the
// same in a build and in a loaded plan, whose dynamic shapes are not yet known.
typedef struct rabbet_cuda_pw_layout_t {
  int memory_count, table_count, output_count, scalar_count, way_count;
  int axes;  // outside the row, at most
  rabbet_cuda_pw_input_t inputs[RABBET_PW_MAX_OPERANDS];
  // For each address: its way, and its boundary operand (inputs, then outputs),
  // for a table the one of the first column.
  int way[RABBET_PW_MAX_OPERANDS], boundary[RABBET_PW_MAX_OPERANDS];
  int leader[RABBET_CUDA_PW_WAYS];  // a boundary operand with this way
  int columns[RABBET_CUDA_PW_TABLES];
} rabbet_cuda_pw_layout_t;

// Types and formats are the chosen ones. False if the group has too many
// operands for a launch, which does not depend on the choice.
bool rabbet_cuda_pw_layout(const rabbet_group_t* group,
                           rabbet_cuda_pw_layout_t* out_layout);
static inline int rabbet_cuda_pw_addresses(
    const rabbet_cuda_pw_layout_t* layout) {
  return layout->memory_count + layout->table_count + layout->output_count;
}
// Floats from one row of the table to the next.
int rabbet_cuda_pw_table_row(const rabbet_cuda_pw_layout_t* layout, int table);

// Whether the kernels have every layer's function and every type.
bool rabbet_cuda_pw_supports(const rabbet_group_t* group);
// The bits of a constant of one element among the launch parameters.
uint32_t rabbet_cuda_pw_scalar(const rabbet_group_value_t* value);
// Elements of a vector: 16 bytes of the widest type along rows.
int rabbet_cuda_pw_vector(const rabbet_group_t* group);
// Elements of a thread in kernels without vectors: several, unless the chain is
// so long that instructions are the bound.
int rabbet_cuda_pw_single(const rabbet_group_t* group);
bool rabbet_cuda_pw_is_long(const rabbet_group_t* group);
// Whether there are so many inputs that each is loaded just before its use.
bool rabbet_cuda_pw_is_lazy(const rabbet_cuda_pw_layout_t* layout);
// Writes the whole text; a thread computes `unroll` vectors. `across`: with the
// kernel whose vectors go on from row to row.
void rabbet_cuda_pw_text(const rabbet_group_t* group,
                         const rabbet_cuda_pw_layout_t* layout, int unroll,
                         bool across, rabbet_strbuf_t* out_text);

#endif  // RABBET_SRC_DEVICE_CUDA_POINTWISE_POINTWISE_TEXT_H_
