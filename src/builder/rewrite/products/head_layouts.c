// Where a decoder's layers have the axes of heads, and which shuffles lead from
// one layout to another. Extents are compared as expressions, so that layouts
// of any number of steps are known.
#include <assert.h>

#include "builder/ir/passes.h"

bool rabbet_ir_heads_are_views(const rabbet_ir_t* ir,
                               const rabbet_heads_t* heads) {
  int64_t steps = 0;
  return heads->count == 1 ||
         (rabbet_expr_is_constant(ir->graph, heads->steps, &steps) &&
          steps == 1);
}

bool rabbet_ir_has_heads(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                         const rabbet_heads_t* heads,
                         rabbet_heads_layout_t layout) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  const rabbet_shape_t* shape = &value->shape;
  if (layout == RABBET_HEADS_UNKNOWN || shape->rank < 3 ||
      shape->d[0] != heads->batch)
    return false;
  if (layout == RABBET_HEADS_JOINED)
    return shape->rank == 3 && shape->d[1] == heads->steps &&
           dims.d[2] == heads->count * heads->width;
  bool outer = layout == RABBET_HEADS_OUTER;
  return shape->rank == 4 && shape->d[outer ? 2 : 1] == heads->steps &&
         dims.d[outer ? 1 : 2] == heads->count && dims.d[3] == heads->width;
}

rabbet_heads_layout_t rabbet_ir_heads_layout(const rabbet_ir_t* ir,
                                             const rabbet_ir_value_t* value,
                                             const rabbet_heads_t* heads) {
  static const rabbet_heads_layout_t layouts[] = {
      RABBET_HEADS_OUTER, RABBET_HEADS_INNER, RABBET_HEADS_JOINED};
  for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); ++i)
    if (rabbet_ir_has_heads(ir, value, heads, layouts[i])) return layouts[i];
  return RABBET_HEADS_UNKNOWN;
}

bool rabbet_ir_swaps_heads(const int64_t* perm, size_t count) {
  return count == 4 && perm[0] == 0 && perm[1] == 2 && perm[2] == 1 &&
         perm[3] == 3;
}

// The layout on the other side of a transpose; UNKNOWN: it has no name.
static rabbet_heads_layout_t heads_transposed(const rabbet_ir_node_t* shuffle,
                                              const char* name,
                                              rabbet_heads_layout_t layout) {
  size_t count = 0, at = 0;
  const int64_t* perm = rabbet_ir_ints(shuffle, name, &count);
  while (at < count && perm[at] == (int64_t)at)
    ++at;
  if (at == count) return layout;
  if (!rabbet_ir_swaps_heads(perm, count)) return RABBET_HEADS_UNKNOWN;
  return layout == RABBET_HEADS_INNER   ? RABBET_HEADS_OUTER
         : layout == RABBET_HEADS_OUTER ? RABBET_HEADS_INNER
                                        : RABBET_HEADS_UNKNOWN;
}

// The layout on the other side of a reshape that splits or joins heads.
static rabbet_heads_layout_t heads_reshaped(rabbet_heads_layout_t layout) {
  return layout == RABBET_HEADS_INNER    ? RABBET_HEADS_JOINED
         : layout == RABBET_HEADS_JOINED ? RABBET_HEADS_INNER
                                         : RABBET_HEADS_UNKNOWN;
}

// The layout of a shuffle's input, where the output has this layout.
static rabbet_heads_layout_t heads_before(const rabbet_ir_t* ir,
                                          const rabbet_ir_node_t* shuffle,
                                          const rabbet_heads_t* heads,
                                          rabbet_heads_layout_t layout) {
  layout = heads_transposed(shuffle, "second_transpose", layout);
  const rabbet_heads_layout_t reshapes[] = {layout, heads_reshaped(layout)};
  for (size_t i = 0; i < 2; ++i) {
    rabbet_heads_layout_t from =
        heads_transposed(shuffle, "first_transpose", reshapes[i]);
    if (rabbet_ir_has_heads(ir, rabbet_ir_input(ir, shuffle, 0), heads, from))
      return from;
  }
  return RABBET_HEADS_UNKNOWN;
}

rabbet_ir_value_t* rabbet_ir_heads_origin(const rabbet_ir_t* ir,
                                          rabbet_ir_value_t* value,
                                          const rabbet_heads_t* heads,
                                          rabbet_heads_layout_t* layout) {
  bool views = rabbet_ir_heads_are_views(ir, heads);
  rabbet_ir_node_t* shuffle = NULL;
  assert(views || rabbet_ir_has_heads(ir, value, heads, *layout));
  while ((shuffle = rabbet_ir_sole_producer(ir, value, RABBET_OP_SHUFFLE)) !=
         NULL) {
    rabbet_ir_value_t* input = rabbet_ir_input(ir, shuffle, 0);
    rabbet_heads_layout_t from =
        views ? rabbet_ir_heads_layout(ir, input, heads)
              : heads_before(ir, shuffle, heads, *layout);
    // Views may pass other shapes.
    if (views ? !rabbet_ir_is_view(ir, shuffle) : from == RABBET_HEADS_UNKNOWN)
      break;
    *layout = from;
    value = input;
  }
  return value;
}
