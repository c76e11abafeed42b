// The strides of an attention's tensors: slices, reshapes and transposes around
// its products move no element.
#include <assert.h>

#include "core/view.h"
#include "device/common/propose.h"
#include "device/cuda/attention/attention.h"
#include "ops/movement/slice.h"

// ---- Views of any rank -----------------------------------------------------

typedef struct view_t {
  rabbet_dims_t dims;
  int64_t strides[RABBET_MAX_RANK];
  // How many neighbouring positions of an axis are the same element: heads of
  // queries that share one of keys. 0: none.
  int64_t repeats[RABBET_MAX_RANK];
  int64_t offset;
} view_t;

static void view_dense(const rabbet_dims_t* dims, view_t* out) {
  *out = (view_t){.dims = *dims};
  int64_t stride = 1;
  for (int32_t i = dims->rank - 1; i >= 0; --i) {
    out->strides[i] = stride;
    stride *= dims->d[i];
  }
}

static const int64_t* view_axes(const rabbet_group_node_t* node,
                                const char* name, size_t* out_count) {
  return rabbet_attr_ints(node->attrs, node->op->attr_count, name, out_count);
}

// order[i] is the source axis of result axis i; `inverse`: the other way round.
// A missing order changes nothing.
static bool view_permute(const rabbet_group_node_t* node, const char* name,
                         bool inverse, view_t* view) {
  size_t count = 0;
  const int64_t* order = view_axes(node, name, &count);
  const view_t from = *view;
  if (count == 0) return true;
  if (count != (size_t)from.dims.rank) return false;
  uint32_t seen = 0;
  for (size_t i = 0; i < count; ++i) {
    if (order[i] < 0 || order[i] >= from.dims.rank) return false;
    size_t to = inverse ? (size_t)order[i] : i;
    size_t axis = inverse ? i : (size_t)order[i];
    view->dims.d[to] = from.dims.d[axis];
    view->strides[to] = from.strides[axis];
    view->repeats[to] = from.repeats[axis];
    seen |= 1u << order[i];
  }
  return seen == (1u << count) - 1;
}

// The stride that a dense axis directly outside this one would have.
static int64_t view_outside(const view_t* view, int32_t axis) {
  int64_t repeats = rabbet_max_i64(1, view->repeats[axis]);
  return view->strides[axis] * (view->dims.d[axis] / repeats);
}

// Axes that a reshape merges into one: from the innermost on.
typedef struct view_merge_t {
  int64_t have;     // positions
  int64_t stride;   // of the innermost axis that is not repeated
  int64_t next;     // the stride that is expected outside
  int64_t repeats;  // as in view_t
} view_merge_t;

// False if the axis does not continue the others.
static bool view_merge(const view_t* from, int32_t axis, view_merge_t* m) {
  int64_t extent = from->dims.d[axis], stride = from->strides[axis];
  if (extent == 1) return true;
  if (m->have == 1) {
    m->stride = stride;
    m->repeats = from->repeats[axis];
  } else if (from->repeats[axis] > 0) {
    return false;
  } else if (m->stride == 0 && m->repeats == 0 && stride != 0) {
    m->repeats = m->have;
    m->stride = stride;
  } else if (stride != m->next) {
    return false;
  }
  m->next = view_outside(from, axis);
  m->have *= extent;
  return true;
}

// Gives the merged axes to the axes [first, end) of the view. Repeated
// positions are not split.
static bool view_split(const view_merge_t* m, int32_t first, int32_t end,
                       view_t* view) {
  int64_t stride = m->stride;
  for (int32_t k = end; k-- > first;) {
    view->strides[k] = stride;
    if (m->repeats > 0 && view->dims.d[k] > 1) {
      if (view->dims.d[k] != m->have) return false;
      view->repeats[k] = m->repeats;
    }
    stride *= view->dims.d[k];
  }
  return true;
}

// Reshapes the view to `dims`, which have as many elements. From the last axis
// on, both are split into the smallest groups of axes with equal products; each
// group needs a uniform stride.
static bool view_reshape(const rabbet_dims_t* dims, view_t* view) {
  const view_t from = *view;
  int32_t i = from.dims.rank, k = dims->rank;
  *view = (view_t){.dims = *dims, .offset = from.offset};
  while (k > 0) {
    view_merge_t m = {.have = 1};
    int64_t want = dims->d[--k];
    int32_t first = k, end = k + 1;
    do {
      while (m.have < want && i > 0)
        if (!view_merge(&from, --i, &m)) return false;
      while (want < m.have && first > 0)
        want *= dims->d[--first];
    } while (m.have != want && (m.have < want ? i : first) > 0);
    if (m.have != want) return false;
    if (m.have == 1)
      m.stride = k + 1 < dims->rank ? view_outside(view, k + 1) : 1;
    if (!view_split(&m, first, end, view)) return false;
    k = first;
  }
  while (i > 0)
    if (from.dims.d[--i] != 1) return false;
  return true;
}

static bool view_shuffle(const rabbet_group_node_t* node,
                         const rabbet_dims_t* dims, view_t* view) {
  size_t count = 0;
  view_t between = {.dims = dims[node->outputs[0]]};
  (void)view_axes(node, "second_transpose", &count);
  return view_permute(node, "first_transpose", false, view) &&
         view_permute(node, "second_transpose", true, &between) &&
         view_reshape(&between.dims, view) &&
         view_permute(node, "second_transpose", false, view);
}

static bool view_has_elements(const rabbet_view_t* operand) {
  return operand->dtype == RABBET_DTYPE_NONE || operand->data;
}

static bool view_slice(const rabbet_group_t* group,
                       const rabbet_group_node_t* node,
                       const rabbet_dims_t* dims,
                       const int64_t* const* host_values, view_t* view) {
  enum { START = 1, STRIDE = 3, AXES = 5 };
  static const size_t needed[] = {START, STRIDE, AXES};
  const rabbet_dims_t* out = &dims[node->outputs[0]];
  rabbet_group_t alone = *group;
  rabbet_group_node_t copy = *node;
  rabbet_view_t operands[8];
  rabbet_op_eval_t eval;
  rabbet_slice_t slice;
  assert(node->input_count <= sizeof(operands) / sizeof(operands[0]));
  assert(out->rank == view->dims.rank);  // a slice drops no axis
  alone.nodes = &copy;
  alone.node_count = 1;
  // Evaluating one element allocates nothing.
  rabbet_node_eval(&alone, dims, host_values, (rabbet_allocator_t){0}, operands,
                   &eval);
  for (size_t i = 0; i < 3; ++i)
    if (needed[i] < eval.input_count &&
        !view_has_elements(&eval.inputs[needed[i]]))
      return false;
  rabbet_status_t status = rabbet_slice_resolve(&eval, &slice);
  bool fits = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  for (int32_t i = 0; fits && i < out->rank; ++i) {
    int64_t last = slice.start[i] + (out->d[i] - 1) * slice.stride[i];
    fits = slice.start[i] >= 0 && last >= 0 && last < view->dims.d[i] &&
           slice.start[i] < view->dims.d[i];
    bool whole = slice.start[i] == 0 && slice.stride[i] == 1 &&
                 out->d[i] == view->dims.d[i];
    fits = fits && (whole || view->repeats[i] == 0);
    view->offset += slice.start[i] * view->strides[i];
    view->strides[i] *= slice.stride[i];
    view->dims.d[i] = out->d[i];
  }
  return fits;
}

// ---- Products of any rank --------------------------------------------------

// The tensors of an attention. One that it lacks has rank 0.
enum { VIEW_Y, VIEW_Q, VIEW_K, VIEW_V, VIEW_MASK, VIEWS };
enum { MATRIX_AXES = 2, COUNTED_AXES = 3, COUNTED_RANK = 5 };

static void view_drop(view_t* view, int32_t axis) {
  for (int32_t i = axis; i + 1 < view->dims.rank; ++i) {
    view->dims.d[i] = view->dims.d[i + 1];
    view->strides[i] = view->strides[i + 1];
    view->repeats[i] = view->repeats[i + 1];
  }
  --view->dims.rank;
}

static void view_drop_all(view_t* views, int32_t axis) {
  for (int i = 0; i < VIEWS; ++i)
    if (views[i].dims.rank > 0) view_drop(&views[i], axis);
}

static void view_swap(view_t* view, int32_t a, int32_t b) {
  const view_t from = *view;
  view->dims.d[a] = from.dims.d[b];
  view->strides[a] = from.strides[b];
  view->repeats[a] = from.repeats[b];
  view->dims.d[b] = from.dims.d[a];
  view->strides[b] = from.strides[a];
  view->repeats[b] = from.repeats[a];
}

// Gives axes that a tensor broadcasts the stride 0. False if shapes differ.
static bool view_broadcast(view_t* views) {
  const rabbet_dims_t* y = &views[VIEW_Y].dims;
  for (int i = 0; i < VIEWS; ++i) {
    view_t* view = &views[i];
    if (view->dims.rank == 0) continue;
    if (view->dims.rank != y->rank) return false;
    for (int32_t k = 0; k < y->rank - MATRIX_AXES; ++k) {
      if (view->dims.d[k] != 1 && view->dims.d[k] != y->d[k]) return false;
      if (view->dims.d[k] == 1) view->strides[k] = 0;
    }
  }
  return true;
}

// Whether the axis and the next one are one axis of every tensor.
static bool view_may_join(const view_t* views, int32_t axis) {
  for (int i = 0; i < VIEWS; ++i) {
    const view_t* view = &views[i];
    if (view->dims.rank == 0) continue;
    const int64_t *d = &view->dims.d[axis], *strides = &view->strides[axis];
    if (view->repeats[axis] > 0 || view->repeats[axis + 1] > 0 ||
        (d[0] == 1) != (d[1] == 1) || strides[0] != d[1] * strides[1])
      return false;
  }
  return true;
}

static void view_join(view_t* views, int32_t axis) {
  for (int i = 0; i < VIEWS; ++i) {
    if (views[i].dims.rank == 0) continue;
    views[i].dims.d[axis + 1] *= views[i].dims.d[axis];
    view_drop(&views[i], axis);
  }
}

// Swaps the axis of heads with another one of which a tensor repeats elements.
static bool view_place_heads(view_t* views) {
  enum { HEADS = COUNTED_AXES - 1 };
  int32_t repeated = HEADS;
  for (int i = 0; i < VIEWS; ++i)
    for (int32_t k = 0; k < views[i].dims.rank && k < HEADS; ++k) {
      if (views[i].repeats[k] == 0) continue;
      if (repeated != HEADS && repeated != k) return false;
      repeated = k;
    }
  for (int i = 0; i < VIEWS && repeated != HEADS; ++i)
    if (views[i].dims.rank > 0 && views[i].repeats[HEADS] > 0) return false;
  for (int i = 0; i < VIEWS; ++i)
    if (views[i].dims.rank > 0) view_swap(&views[i], repeated, HEADS);
  return true;
}

// Makes views of rank 5 or more such of [outside, batch, heads, rows, columns]:
// axes of extent 1 are dropped, and those that continue each other are joined.
static bool view_count_axes(view_t* views) {
  const rabbet_dims_t* y = &views[VIEW_Y].dims;
  if (!view_broadcast(views)) return false;
  for (int32_t k = y->rank - MATRIX_AXES; k-- > 0;)
    if (y->d[k] == 1) view_drop_all(views, k);
  for (int32_t k = y->rank - MATRIX_AXES - 1; k-- > 0;)
    if (view_may_join(views, k)) view_join(views, k);
  if (y->rank > COUNTED_RANK) return false;
  for (int i = 0; i < VIEWS; ++i) {
    view_t* view = &views[i];
    while (view->dims.rank > 0 && view->dims.rank < COUNTED_RANK) {
      ++view->dims.rank;
      view->dims.d[view->dims.rank - 1] = 1;
      view->strides[view->dims.rank - 1] = 0;
      view->repeats[view->dims.rank - 1] = 0;
      for (int32_t k = view->dims.rank - 1; k > 0; --k)
        view_swap(view, k, k - 1);
    }
  }
  return view_place_heads(views);
}

// ---- [batch, heads, rows, columns] -----------------------------------------

static void attention_swap(rabbet_attention_view_t* view) {
  int64_t dim = view->dims[2], stride = view->strides[2];
  view->dims[2] = view->dims[3];
  view->strides[2] = view->strides[3];
  view->dims[3] = dim;
  view->strides[3] = stride;
}

// A missing axis of heads has extent 1.
static bool attention_view(const view_t* view, rabbet_attention_view_t* out) {
  int32_t rank = view->dims.rank, from = rank == COUNTED_RANK;
  if (rank < 3 || rank > COUNTED_RANK) return false;
  *out = (rabbet_attention_view_t){.offset = view->offset,
                                   .share = 1,
                                   .outside = from ? view->strides[0] : 0};
  for (int i = 0; i < 4; ++i) {
    bool missing = rank == 3 && i == 1;
    if (!missing && view->repeats[from] > 0) {
      if (i != 1) return false;
      out->share = view->repeats[from];
    }
    out->dims[i] = missing ? 1 : view->dims.d[from];
    out->strides[i] = missing ? view->strides[0] : view->strides[from];
    from += !missing;
    if (out->dims[i] <= 0) return false;
    assert(from <= rank);
  }
  return true;
}

static bool attention_input(const rabbet_group_t* group,
                            const rabbet_attention_tensor_t* tensor,
                            const rabbet_dims_t* dims,
                            const int64_t* const* host_values, view_t* out) {
  view_dense(&dims[tensor->value], out);
  for (int i = 0; i < tensor->turn_count; ++i) {
    const rabbet_group_node_t* turn = tensor->turns[i];
    if (rabbet_op_is(turn->op, RABBET_OP_SLICE)
            ? !view_slice(group, turn, dims, host_values, out)
            : !view_shuffle(turn, dims, out))
      return false;
  }
  return true;
}

// The view of the product's result: the inverse of the shuffles, applied to the
// view of the output.
static bool attention_output(const rabbet_attention_tensor_t* tensor,
                             const rabbet_dims_t* dims, view_t* out) {
  assert(!tensor->turned);
  view_dense(&dims[tensor->value], out);
  for (int i = 0; i < tensor->turn_count; ++i) {
    const rabbet_group_node_t* turn = tensor->turns[i];
    view_t between = {.dims = dims[turn->inputs[0]]};
    if (!view_permute(turn, "second_transpose", true, out) ||
        !view_permute(turn, "first_transpose", false, &between) ||
        !view_reshape(&between.dims, out) ||
        !view_permute(turn, "first_transpose", true, out))
      return false;
  }
  return true;
}

// Axes that the mask broadcasts have stride 0.
static bool attention_mask(rabbet_attention_views_t* views) {
  const int64_t scores[4] = {views->y.dims[0], views->y.dims[1],
                             views->q.dims[2], views->k.dims[3]};
  for (int i = 0; i < 4; ++i) {
    if (views->mask.dims[i] == 1)
      views->mask.strides[i] = 0;
    else if (views->mask.dims[i] != scores[i])
      return false;
  }
  return true;
}

bool rabbet_attention_views(const rabbet_group_t* group,
                            const rabbet_attention_t* attention,
                            const rabbet_dims_t* dims,
                            const int64_t* const* host_values,
                            rabbet_attention_views_t* out_views) {
  const rabbet_attention_t* a = attention;
  rabbet_attention_views_t* v = out_views;
  view_t views[VIEWS] = {[VIEW_MASK] = {.offset = 0}};
  assert(a->nodes == group->node_count);  // rabbet_attention_match was true
  if (!attention_input(group, &a->q, dims, host_values, &views[VIEW_Q]) ||
      !attention_input(group, &a->k, dims, host_values, &views[VIEW_K]) ||
      !attention_input(group, &a->v, dims, host_values, &views[VIEW_V]) ||
      !attention_output(&a->y, dims, &views[VIEW_Y]))
    return false;
  if (a->mask >= 0) view_dense(&dims[a->mask], &views[VIEW_MASK]);
  bool is_deep = views[VIEW_Y].dims.rank >= COUNTED_RANK;
  if (is_deep && !view_count_axes(views)) return false;
  v->outside = is_deep ? views[VIEW_Y].dims.d[0] : 1;
  if (!attention_view(&views[VIEW_Q], &v->q) ||
      !attention_view(&views[VIEW_K], &v->k) ||
      !attention_view(&views[VIEW_V], &v->v) ||
      !attention_view(&views[VIEW_Y], &v->y))
    return false;
  if (a->k.turned) attention_swap(&v->k);
  if (a->v.turned) attention_swap(&v->v);
  v->mask = (rabbet_attention_view_t){.share = 1};
  return a->mask < 0 ||
         (attention_view(&views[VIEW_MASK], &v->mask) && attention_mask(v));
}

rabbet_status_t rabbet_attention_holds(const rabbet_propose_t* propose,
                                       const rabbet_attention_t* attention,
                                       bool* out_holds, bool* out_outside) {
  const rabbet_group_t* group = propose->group;
  rabbet_dims_t* dims = NULL;
  rabbet_attention_views_t views;
  *out_holds = true;
  *out_outside = false;
  if (group->values[attention->y.seen].dims.rank < COUNTED_RANK)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_group_max_dims(group, propose->allocator, &dims));
  *out_holds = rabbet_attention_views(group, attention, dims, NULL, &views);
  *out_outside = *out_holds && views.outside > 1;
  rabbet_free(propose->allocator, dims);
  return rabbet_ok();
}
