// A layer of a plugin: types and shapes come from its own callbacks (the
// network asks them), so that the descriptor has no rules.
#include "ops/rules.h"

#define PLUGIN_TYPES (RABBET_T_ANY | RABBET_T(INT4) | RABBET_T(FP4))

static const rabbet_op_operand_t plugin_inputs[] = {
    {"inputs", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_VARIADIC,
     PLUGIN_TYPES}};
static const rabbet_op_operand_t plugin_outputs[] = {
    {"outputs", RABBET_OPERAND_VARIADIC, PLUGIN_TYPES}};

const rabbet_op_t rabbet_op_plugin = {
    .name = "plugin",
    .layer_type = "PLUGIN_V3",
    .flags = RABBET_OP_NO_FOLD,
    .inputs = plugin_inputs,
    .input_count = RABBET_OP_COUNT_OF(plugin_inputs),
    .outputs = plugin_outputs,
    .output_count = RABBET_OP_COUNT_OF(plugin_outputs),
};
