// Sums of products, the form that equal expressions share; for expr_simplify.c.
//
// A sum of terms, each a constant factor times a product of atoms (symbols,
// divisions, minima, ... and sums inside products), atoms and terms in the
// order of their numbers: ((2*x + x*y) - 3*z) + 1. Expressions that do not fit
// into the tables, or whose constants overflow, are left as written: right, but
// not simplest.
#ifndef RABBET_SRC_CORE_EXPR_LINEAR_H_
#define RABBET_SRC_CORE_EXPR_LINEAR_H_

#include "core/expr_graph.h"

#define RABBET_LINEAR_MAX_TERMS 24
#define RABBET_PRODUCT_MAX_ATOMS 16
#define RABBET_VISIT_MAX 128

typedef struct rabbet_term_t {
  int64_t factor;
  rabbet_expr_t product;  // NONE: 1
} rabbet_term_t;

// A sum; terms ordered by product, no factor 0.
typedef struct rabbet_linear_t {
  int64_t constant;
  int count;
  rabbet_term_t terms[RABBET_LINEAR_MAX_TERMS];
} rabbet_linear_t;

// The atoms of a product, or of a minimum or maximum, in the order of their
// numbers.
typedef struct rabbet_atoms_t {
  int count;
  int visited;  // nodes looked at to find them
  rabbet_expr_t data[RABBET_PRODUCT_MAX_ATOMS];
} rabbet_atoms_t;

// 1 if the result would be 2^63, which int64_t cannot represent.
int64_t rabbet_gcd(int64_t a, int64_t b);
// Arithmetic on sums. False if the result does not fit; the sum is then
// unusable.
bool rabbet_linear_add_constant(rabbet_linear_t* sum, int64_t value);
bool rabbet_linear_add_term(rabbet_linear_t* sum, int64_t factor,
                            rabbet_expr_t product);
// The expression as a sum; as a single atom if it does not fit.
rabbet_linear_t rabbet_linear_of(const rabbet_expr_graph_t* graph,
                                 rabbet_expr_t expr);
bool rabbet_linear_add_scaled(rabbet_linear_t* sum, int64_t scale,
                              const rabbet_linear_t* other);
bool rabbet_linear_scale(rabbet_linear_t* sum, int64_t scale);
// The greatest divisor of all factors and the constant.
int64_t rabbet_linear_content(const rabbet_linear_t* sum);
// Divides the factors, which must be multiples, and the constant, which is
// rounded towards zero.
void rabbet_linear_divide(rabbet_linear_t* sum, int64_t divisor);
bool rabbet_linear_same(const rabbet_linear_t* a, const rabbet_linear_t* b);
// Whether it is one term alone.
bool rabbet_linear_is_term(const rabbet_linear_t* sum);
// Signs (-1, 0, 1) of the least and the greatest value, for dimensions >= 0.
rabbet_interval_t rabbet_linear_sign(const rabbet_expr_graph_t* graph,
                                     const rabbet_linear_t* sum);
// Nodes in canonical form.
rabbet_status_t rabbet_linear_build_node(rabbet_expr_graph_t* graph,
                                         rabbet_expr_op_t op, rabbet_expr_t a,
                                         rabbet_expr_t b,
                                         rabbet_expr_t* out_expr);
rabbet_status_t rabbet_linear_build_term(rabbet_expr_graph_t* graph,
                                         int64_t factor, rabbet_expr_t product,
                                         rabbet_expr_t* out_expr);
rabbet_status_t rabbet_linear_build(rabbet_expr_graph_t* graph,
                                    const rabbet_linear_t* sum,
                                    rabbet_expr_t* out_expr);
rabbet_status_t rabbet_linear_build_atoms(rabbet_expr_graph_t* graph,
                                          const rabbet_atoms_t* atoms,
                                          rabbet_expr_t* out_product);
// Adds the operands of a tree of `op` in order, once each where `unique`.
bool rabbet_atoms_add(const rabbet_expr_graph_t* graph, rabbet_expr_op_t op,
                      rabbet_expr_t expr, bool unique, rabbet_atoms_t* atoms);
bool rabbet_atoms_remove(rabbet_atoms_t* atoms, rabbet_expr_t atom);
rabbet_atoms_t rabbet_atoms_of(const rabbet_expr_graph_t* graph,
                               rabbet_expr_t product);

#endif  // RABBET_SRC_CORE_EXPR_LINEAR_H_
