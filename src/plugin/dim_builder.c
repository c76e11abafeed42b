// Dimension expressions as plugins see them.
#include "plugin/plugin.h"

static rabbet_status_t dim_check(const rabbet_dim_builder_t* builder,
                                 rabbet_dim_t dim) {
  if (!builder) {
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "dimension expressions can be made only while outputs "
                         "are described");
  }
  if (dim >= 0 && (size_t)dim < rabbet_expr_node_count(builder->graph)) {
    return rabbet_ok();
  }
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "%d is not a dimension of this builder; expressions "
                       "live only as long as the call that gave the builder",
                       dim);
}

rabbet_status_t rabbet_dim_constant(rabbet_dim_builder_t* builder,
                                    int64_t value, rabbet_dim_t* out_dim) {
  *out_dim = RABBET_EXPR_NONE;
  if (!builder) return dim_check(builder, 0);
  return rabbet_expr_constant(builder->graph, value, out_dim);
}

rabbet_status_t rabbet_dim_operation(rabbet_dim_builder_t* builder,
                                     rabbet_dim_op_t op, rabbet_dim_t a,
                                     rabbet_dim_t b, rabbet_dim_t* out_dim) {
  *out_dim = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(dim_check(builder, a));
  RABBET_RETURN_IF_ERROR(dim_check(builder, b));
  if (op < RABBET_DIM_SUM || op > RABBET_DIM_CEIL_DIV) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%d is not a dimension operation", (int)op);
  }
  return rabbet_expr_binary(builder->graph, (rabbet_expr_op_t)op, a, b,
                            out_dim);
}

rabbet_status_t rabbet_dim_size_tensor(rabbet_dim_builder_t* builder,
                                       int32_t output_index, rabbet_dim_t opt,
                                       rabbet_dim_t upper,
                                       rabbet_dim_t* out_dim) {
  *out_dim = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(dim_check(builder, opt));
  RABBET_RETURN_IF_ERROR(dim_check(builder, upper));
  if (output_index < 0 || (size_t)output_index >= builder->output_count) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "size tensor: output %d of %zu outputs", output_index,
                         builder->output_count);
  }
  rabbet_symbol_t symbol = {.kind = RABBET_SYMBOL_VALUE,
                            .tensor = builder->output_tensors[output_index],
                            .opt = opt,
                            .upper = upper};
  return rabbet_expr_of_symbol(builder->graph, &symbol, out_dim);
}

bool rabbet_dim_is_constant(rabbet_dim_builder_t* builder, rabbet_dim_t dim,
                            int64_t* out_value) {
  rabbet_status_t valid = dim_check(builder, dim);
  if (!rabbet_is_ok(valid)) {
    rabbet_status_ignore(valid);
    return false;
  }
  return rabbet_expr_is_constant(builder->graph, dim, out_value);
}

bool rabbet_dim_is_size_tensor(rabbet_dim_builder_t* builder,
                               rabbet_dim_t dim) {
  rabbet_status_t valid = dim_check(builder, dim);
  if (!rabbet_is_ok(valid)) {
    rabbet_status_ignore(valid);
    return false;
  }
  const rabbet_expr_node_t* node = rabbet_expr_node(builder->graph, dim);
  if (node->op != RABBET_EXPR_SYMBOL) return false;
  const rabbet_symbol_t* symbol =
      rabbet_expr_symbol(builder->graph, (size_t)node->a);
  return symbol->kind == RABBET_SYMBOL_VALUE &&
         symbol->upper != RABBET_EXPR_NONE;
}
