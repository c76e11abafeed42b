// Einsum: operands are joined from left to right, each pair by one batched
// matrix product: common axes are batch axes if later terms have them, else
// summed over. The other axes are rows and columns.
#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "onnx/index.h"
#include "onnx/operators.h"

enum {
  RABBET_EINSUM_LABELS = RABBET_MAX_RANK,
  // Axes that an ellipsis stands for are numbered from the last one backwards.
  RABBET_EINSUM_ELLIPSIS = 128,
};

typedef struct onnx_term_t {
  rabbet_tensor_t* x;  // NULL: the output
  int rank;
  int labels[RABBET_EINSUM_LABELS];
} onnx_term_t;

// ---- The equation ----------------------------------------------------------

static int onnx_term_find(const onnx_term_t* term, int label) {
  for (int i = 0; i < term->rank; ++i)
    if (term->labels[i] == label) return i;
  return -1;
}

static void onnx_term_add(rabbet_onnx_node_t* node, onnx_term_t* term,
                          int label) {
  if (!rabbet_onnx_ok(node)) return;
  if (!term->x && onnx_term_find(term, label) >= 0) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the equation names '%c' twice in its result",
                     label < RABBET_EINSUM_ELLIPSIS ? label : '.');
  } else if (term->rank == RABBET_EINSUM_LABELS) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "a term of the equation, or what is made of two, has more "
                     "than %d axes",
                     RABBET_EINSUM_LABELS);
  } else {
    term->labels[term->rank++] = label;
  }
}

// Reads a term up to `end`; `hidden` axes are its ellipsis.
static void onnx_term_parse(rabbet_onnx_node_t* node, const char* text,
                            const char* end, int hidden, onnx_term_t* term) {
  for (; text < end && rabbet_onnx_ok(node); ++text) {
    if (*text == ' ') continue;
    if (isalpha((unsigned char)*text)) {
      onnx_term_add(node, term, *text);
    } else if (end - text >= 3 && !strncmp(text, "...", 3)) {
      for (int i = hidden; i > 0; --i)
        onnx_term_add(node, term, RABBET_EINSUM_ELLIPSIS + i);
      text += 2;
    } else {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "'%c' is not part of an equation", *text);
    }
  }
}

static int onnx_term_letters(const char* text, const char* end,
                             bool* out_ellipsis) {
  int letters = 0;
  *out_ellipsis = false;
  for (; text < end; ++text) {
    letters += isalpha((unsigned char)*text) != 0;
    *out_ellipsis = *out_ellipsis || *text == '.';
  }
  return letters;
}

// Labels that occur once, in the order of the alphabet, after the ellipsis.
static void onnx_term_default(rabbet_onnx_node_t* node,
                              const onnx_term_t* terms, size_t count,
                              int hidden, onnx_term_t* out) {
  for (int i = hidden; i > 0; --i)
    onnx_term_add(node, out, RABBET_EINSUM_ELLIPSIS + i);
  for (int label = 'A'; label <= 'z'; ++label) {
    int seen = 0;
    for (size_t i = 0; i < count; ++i)
      for (int k = 0; k < terms[i].rank; ++k)
        seen += terms[i].labels[k] == label;
    if (seen == 1) onnx_term_add(node, out, label);
  }
}

// The terms of the inputs, and the output's behind them.
static void onnx_einsum_parse(rabbet_onnx_node_t* node, onnx_term_t* terms) {
  const char* text = rabbet_onnx_attr_string(node, "equation", "");
  const char* arrow = strstr(text, "->");
  const char* last = arrow ? arrow : text + strlen(text);
  int most = 0;
  for (size_t i = 0; i < node->input_count && rabbet_onnx_ok(node); ++i) {
    const char* comma = memchr(text, ',', (size_t)(last - text));
    bool is_last = i + 1 == node->input_count, ellipsis = false;
    if (is_last == (comma != NULL)) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "the equation has another number of terms than the %zu "
                       "inputs",
                       node->input_count);
      return;
    }
    const char* end = is_last ? last : comma;
    terms[i].x = rabbet_onnx_required(node, i);
    int rank = rabbet_onnx_rank(node, terms[i].x);
    int hidden = rank - onnx_term_letters(text, end, &ellipsis);
    if (rabbet_onnx_ok(node) && (hidden < 0 || (hidden > 0 && !ellipsis)))
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "term %zu of the equation does not fit input %zu, whose "
                       "rank is %d",
                       i, i, rank);
    onnx_term_parse(node, text, end, hidden, &terms[i]);
    if (hidden > most) most = hidden;
    text = end + 1;
  }
  onnx_term_t* out = &terms[node->input_count];
  if (arrow)
    onnx_term_parse(node, arrow + 2, arrow + strlen(arrow), most, out);
  else
    onnx_term_default(node, terms, node->input_count, most, out);
}

// ---- Terms -----------------------------------------------------------------

static void onnx_term_remove(onnx_term_t* term, int at) {
  assert(at >= 0 && at < term->rank);
  --term->rank;
  memmove(term->labels + at, term->labels + at + 1,
          sizeof(int) * (size_t)(term->rank - at));
}

// x along two axes of equal extent: the diagonal lies along `first`, what is
// beside it is left out of a sum over `second`.
static rabbet_tensor_t* onnx_diagonal(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int first,
                                      int second) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  if (!rabbet_onnx_ok(node)) return NULL;
  if (dims.d[first] >= 0 && dims.d[second] >= 0 &&
      dims.d[first] != dims.d[second]) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "axes %d and %d of '%s' have one label, and extents %lld "
                     "and %lld; they must be equal",
                     first, second, rabbet_tensor_name(x),
                     (long long)dims.d[first], (long long)dims.d[second]);
    return NULL;
  }
  rabbet_tensor_t* places[2];
  for (int i = 0; i < 2; ++i) {
    int axis = i == 0 ? first : second;
    places[i] = rabbet_onnx_indices(node, rabbet_onnx_extent(node, x, axis),
                                    axis, dims.rank);
  }
  rabbet_tensor_t* zero =
      rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), dims.rank, 0);
  x = rabbet_onnx_select(
      node, rabbet_onnx_binary(node, "EQUAL", places[0], places[1]), x, zero);
  return rabbet_onnx_reduce(node, "SUM", x, 1u << second, false);
}

// Labels that a term has twice are diagonals.
static void onnx_term_diagonals(rabbet_onnx_node_t* node, onnx_term_t* term) {
  for (int i = term->rank - 1; i > 0 && rabbet_onnx_ok(node); --i) {
    int first = onnx_term_find(term, term->labels[i]);
    if (first == i) continue;
    term->x = onnx_diagonal(node, term->x, first, i);
    onnx_term_remove(term, i);
  }
}

// Sums over the axes whose labels no other term has. Axes of extent 1 that
// another term broadcasts are removed, too.
static void onnx_term_reduce(rabbet_onnx_node_t* node, onnx_term_t* term,
                             const onnx_term_t* others, size_t other_count) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, term->x);
  uint32_t summed = 0;
  for (int i = 0; i < term->rank && rabbet_onnx_ok(node); ++i) {
    bool needed = false, spread = false;
    for (size_t k = 0; k < other_count; ++k) {
      int at = onnx_term_find(&others[k], term->labels[i]);
      needed = needed || at >= 0;
      if (at >= 0 && others[k].x && &others[k] != term)
        spread = spread || rabbet_onnx_dims(node, others[k].x).d[at] != 1;
    }
    if (!needed || (dims.d[i] == 1 && spread)) summed |= 1u << i;
  }
  if (summed == 0 || !rabbet_onnx_ok(node)) return;
  term->x = rabbet_onnx_reduce(node, "SUM", term->x, summed, false);
  for (int i = term->rank - 1; i >= 0; --i)
    if (summed >> i & 1) onnx_term_remove(term, i);
}

// Axes in the order of `labels`, of which there are as many as the term has.
static rabbet_tensor_t* onnx_term_turn(rabbet_onnx_node_t* node,
                                       const onnx_term_t* term,
                                       const int* labels) {
  int64_t order[RABBET_EINSUM_LABELS];
  bool same = true;
  for (int i = 0; i < term->rank; ++i) {
    order[i] = onnx_term_find(term, labels[i]);
    assert(order[i] >= 0 || !rabbet_onnx_ok(node));
    same = same && order[i] == i;
  }
  return same ? term->x : rabbet_onnx_transpose(node, term->x, order);
}

static rabbet_onnx_index_t onnx_term_product(rabbet_onnx_node_t* node,
                                             const onnx_term_t* term,
                                             const onnx_term_t* labels) {
  rabbet_onnx_index_t product = rabbet_onnx_index(1);
  for (int i = 0; i < labels->rank && rabbet_onnx_ok(node); ++i)
    product = rabbet_onnx_index_op(
        node, "PROD", product,
        rabbet_onnx_extent(node, term->x,
                           onnx_term_find(term, labels->labels[i])));
  return product;
}

// ---- Pairs -----------------------------------------------------------------

// The axes of a pair of terms, by their role in the product.
typedef struct onnx_pair_t {
  onnx_term_t batch, summed, rows, columns;
} onnx_pair_t;

static void onnx_pair_sort(rabbet_onnx_node_t* node, const onnx_term_t* a,
                           const onnx_term_t* b, const onnx_term_t* later,
                           size_t later_count, onnx_pair_t* pair) {
  memset(pair, 0, sizeof(*pair));
  for (int i = 0; i < a->rank; ++i) {
    int label = a->labels[i];
    bool stays = false;
    for (size_t k = 0; k < later_count; ++k)
      stays = stays || onnx_term_find(&later[k], label) >= 0;
    bool shared = onnx_term_find(b, label) >= 0;
    onnx_term_add(node,
                  !shared ? &pair->rows
                  : stays ? &pair->batch
                          : &pair->summed,
                  label);
  }
  for (int i = 0; i < b->rank; ++i)
    if (onnx_term_find(a, b->labels[i]) < 0)
      onnx_term_add(node, &pair->columns, b->labels[i]);
}

// A factor as (batch, first, second).
static rabbet_tensor_t* onnx_pair_factor(rabbet_onnx_node_t* node,
                                         const onnx_term_t* term,
                                         const onnx_term_t* batch,
                                         const onnx_term_t* first,
                                         const onnx_term_t* second) {
  int labels[3 * RABBET_EINSUM_LABELS], count = 0;
  const onnx_term_t* parts[] = {batch, first, second};
  rabbet_onnx_index_t dims[3];
  for (int p = 0; p < 3; ++p) {
    for (int i = 0; i < parts[p]->rank; ++i)
      labels[count++] = parts[p]->labels[i];
    dims[p] = onnx_term_product(node, term, parts[p]);
  }
  // Each axis of the factor has one role.
  assert(count == term->rank || !rabbet_onnx_ok(node));
  rabbet_tensor_t* turned = onnx_term_turn(node, term, labels);
  return rabbet_onnx_reshape(node, turned, dims, 3);
}

// Joins b to a. `later` are the remaining terms, the output's included.
static void onnx_pair_join(rabbet_onnx_node_t* node, onnx_term_t* a,
                           const onnx_term_t* b, const onnx_term_t* later,
                           size_t later_count) {
  onnx_pair_t pair;
  onnx_pair_sort(node, a, b, later, later_count, &pair);
  rabbet_tensor_t* left =
      onnx_pair_factor(node, a, &pair.batch, &pair.rows, &pair.summed);
  rabbet_tensor_t* right =
      onnx_pair_factor(node, b, &pair.batch, &pair.summed, &pair.columns);
  rabbet_tensor_t* y = rabbet_onnx_matmul(node, left, "NONE", right, "NONE");
  onnx_term_t joined = {0};
  rabbet_onnx_index_t dims[RABBET_EINSUM_LABELS];
  const onnx_term_t* parts[] = {&pair.batch, &pair.rows, &pair.columns};
  for (int p = 0; p < 3; ++p) {
    const onnx_term_t* from = p == 2 ? b : a;
    for (int i = 0; i < parts[p]->rank && rabbet_onnx_ok(node); ++i) {
      int label = parts[p]->labels[i];
      onnx_term_add(node, &joined, label);
      if (rabbet_onnx_ok(node))
        dims[joined.rank - 1] =
            rabbet_onnx_extent(node, from->x, onnx_term_find(from, label));
    }
  }
  if (!rabbet_onnx_ok(node)) return;
  joined.x = rabbet_onnx_reshape(node, y, dims, joined.rank);
  *a = joined;
}

// ---- Einsum ----------------------------------------------------------------

static void onnx_import_einsum(rabbet_onnx_node_t* node) {
  onnx_term_t* terms = NULL;
  size_t count = node->input_count;
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(&node->importer->arena, count + 1,
                                        sizeof(*terms), (void**)&terms));
  if (!rabbet_onnx_ok(node)) return;
  memset(terms, 0, (count + 1) * sizeof(*terms));
  onnx_einsum_parse(node, terms);
  for (size_t i = 0; i < count && rabbet_onnx_ok(node); ++i)
    onnx_term_diagonals(node, &terms[i]);
  // Joins each term to the first.
  for (size_t i = 1; i < count && rabbet_onnx_ok(node); ++i) {
    onnx_term_t pair[2] = {terms[0], terms[i]};
    size_t left = count - i;  // terms after this one, and the output's
    onnx_term_t* around = &terms[i];
    onnx_term_reduce(node, &pair[0], around, left + 1);
    terms[0] = pair[0];
    // For the second term of the pair, the first one stands in its place.
    around[0] = pair[0];
    onnx_term_reduce(node, &pair[1], around, left + 1);
    if (!rabbet_onnx_ok(node)) return;
    onnx_pair_join(node, &terms[0], &pair[1], around + 1, left);
  }
  if (!rabbet_onnx_ok(node)) return;
  const onnx_term_t* out = &terms[count];
  onnx_term_reduce(node, &terms[0], out, 1);
  for (int i = 0; i < out->rank && rabbet_onnx_ok(node); ++i)
    if (onnx_term_find(&terms[0], out->labels[i]) < 0)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "the equation's result has a label that no term has");
  if (rabbet_onnx_ok(node))
    node->outputs[0] = onnx_term_turn(node, &terms[0], out->labels);
}

RABBET_ONNX_OPERATORS(einsum) = {
    RABBET_ONNX_OP(Einsum, einsum, "", 12, 28),
    {0},
};
