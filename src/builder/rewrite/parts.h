// Parts of a tensor that transposes, reshapes and a slice take out of it, for
// passes that take them otherwise.
#ifndef RABBET_SRC_BUILDER_REWRITE_PARTS_H_
#define RABBET_SRC_BUILDER_REWRITE_PARTS_H_

#include "builder/build.h"

enum { RABBET_PARTS_CHAIN_MAX = 12, RABBET_PARTS_ATOMS_MAX = 16 };

// Moves that make a factor of `origin`, in order of execution.
typedef struct rabbet_parts_chain_t {
  rabbet_ir_value_t* origin;
  rabbet_ir_node_t* nodes[RABBET_PARTS_CHAIN_MAX];
  int count;
} rabbet_parts_chain_t;

// Axes of a tensor, and parts of such, of extents other than 1.
typedef struct rabbet_parts_atom_t {
  rabbet_expr_t extent;
  int32_t source;  // the axis of the tensor that it was in the beginning
} rabbet_parts_atom_t;

typedef struct rabbet_parts_t {
  rabbet_expr_graph_t* graph;
  const rabbet_shape_t* base;  // of the tensor that the moves begin with
  rabbet_parts_atom_t atoms[RABBET_PARTS_ATOMS_MAX];  // in its order
  int count;
  // The tensor after some moves: its atoms, and the end of each axis in them.
  int order[RABBET_PARTS_ATOMS_MAX];
  int32_t rank;
  int ends[RABBET_MAX_RANK];
  // The slice, of an axis of the base or of an atom.
  int32_t axis;         // -1: none yet, or of an atom
  int32_t atom;         // -1: none yet, or of an axis
  rabbet_expr_t whole;  // the atom's extent before the slice
  int64_t start, size;
} rabbet_parts_t;

// Finds the moves that end in the factor, or before scales of it. Values before
// the last slice may have other readers; `shared`: so may all others.
RABBET_PRIVATE_API void rabbet_parts_chain(const rabbet_ir_t* ir,
                                           rabbet_ir_value_t* factor,
                                           bool shared,
                                           rabbet_parts_chain_t* out);
// Whether the moves of the chain from node `first` on are a slice and moves
// behind it.
RABBET_PRIVATE_API bool rabbet_parts_read(const rabbet_ir_t* ir,
                                          const rabbet_parts_chain_t* chain,
                                          int first, rabbet_parts_t* out,
                                          rabbet_status_t* status);
// Whether each axis of the coarser shape is a run of axes of the finer one, as
// a reshape joins them: ends of runs in atoms, whose `source` are axes.
RABBET_PRIVATE_API bool rabbet_parts_runs(rabbet_expr_graph_t* graph,
                                          const rabbet_shape_t* fine,
                                          const rabbet_shape_t* coarse,
                                          rabbet_parts_t* out,
                                          rabbet_status_t* status);
// The same parts of the base with its axes in another order: axis i is the axis
// axes[i] of the old one.
RABBET_PRIVATE_API void rabbet_parts_permute_base(rabbet_parts_t* p,
                                                  const rabbet_shape_t* base,
                                                  const int64_t* axes);
// Makes the tensor of this shape after the moves of `*value`: a slice, then
// views and a transpose; or a view, a slice of an atom, and those.
RABBET_PRIVATE_API rabbet_status_t
rabbet_parts_make(rabbet_build_t* build, const rabbet_parts_t* p,
                  const rabbet_ir_node_t* before, const rabbet_shape_t* shape,
                  const rabbet_ir_value_t** value);

#endif  // RABBET_SRC_BUILDER_REWRITE_PARTS_H_
