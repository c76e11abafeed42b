#include <math.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "cli/op_docs.h"
#include "ops/op.h"

// ---- Text ------------------------------------------------------------------

static void op_print_dtypes(rabbet_strbuf_t* out, uint32_t dtypes) {
  const char* separator = "";
  for (int i = 0; i < RABBET_DTYPE_COUNT; ++i) {
    if (!(dtypes >> i & 1)) continue;
    rabbet_strbuf_printf(out, "%s%s", separator,
                         rabbet_dtype_name((rabbet_dtype_t)i));
    separator = " ";
  }
}

static void op_print_operand(rabbet_strbuf_t* out, const char* kind,
                             const rabbet_op_operand_t* operand) {
  rabbet_strbuf_printf(
      out, "  %-7s %-14s %s%s", kind, operand->name,
      operand->flags & RABBET_OPERAND_OPTIONAL ? "(optional) " : "",
      operand->flags & RABBET_OPERAND_VARIADIC ? "(one or more) " : "");
  op_print_dtypes(out, operand->dtypes);
  rabbet_strbuf_printf(out, "\n");
}

// The default of an attribute, as text.
static void op_print_default(rabbet_strbuf_t* out, const rabbet_op_attr_t* attr,
                             const char* type) {
  const char* name = rabbet_op_enumerator_name(attr, attr->default_int);
  if (attr->required) {
    rabbet_strbuf_printf(out, ", required");
  } else if (attr->type == RABBET_ATTR_FLOAT) {
    rabbet_strbuf_printf(out, ", default %g", attr->default_float);
  } else if (attr->type == RABBET_ATTR_BOOL) {
    rabbet_strbuf_printf(out, ", default %s",
                         attr->default_int ? "true" : "false");
  } else if (name) {
    rabbet_strbuf_printf(out, ", default %s", name);
  } else if (attr->type == RABBET_ATTR_INT || !strcmp(type, "Spatial")) {
    rabbet_strbuf_printf(out, ", default %lld", (long long)attr->default_int);
  }
}

static void op_print_attr(rabbet_strbuf_t* out, const rabbet_op_t* op,
                          const rabbet_op_attr_t* attr) {
  const rabbet_op_doc_t* doc = rabbet_doc_of_attr(op->name, attr->name);
  rabbet_strbuf_printf(out, "  attr    %-14s %s", attr->name,
                       rabbet_attr_type_name(attr->type));
  op_print_default(out, attr, doc->more);
  rabbet_strbuf_printf(out, ": %s\n", doc->text);
  const rabbet_op_enumerator_t* each = attr->enumerators;
  for (; each && each->name; ++each) {
    const char* text = rabbet_doc_of_value(doc->more, each->name)->text;
    rabbet_strbuf_printf(out, "            %-12s %2lld%s%s\n", each->name,
                         (long long)each->value, *text ? "  " : "", text);
  }
}

// "CPU in any format, CUDA"; empty if there is only the reference kernel.
static void op_print_kernels(rabbet_strbuf_t* out,
                             const rabbet_op_facts_t* facts) {
  const char* const formats[] = {facts->cpu, facts->cuda};
  static const char* const devices[] = {"CPU", "CUDA"};
  const char* separator = "";
  for (size_t i = 0; i < 2; ++i) {
    if (!*formats[i]) continue;
    rabbet_strbuf_printf(out, "%s%s%s", separator, devices[i],
                         strcmp(formats[i], "ANY") ? "" : " in any format");
    separator = ", ";
  }
}

static void op_print_facts(rabbet_strbuf_t* out, const rabbet_op_t* op) {
  const rabbet_op_facts_t* facts = rabbet_facts_of_op(op->name);
  const char* limits = rabbet_doc_of_op(op->name)->more;
  if (*limits) rabbet_strbuf_printf(out, "  limits  %s\n", limits);
  if (*facts->cpu || *facts->cuda) {
    rabbet_strbuf_printf(out, "  kernels ");
    op_print_kernels(out, facts);
    rabbet_strbuf_printf(out, "\n");
  }
  if (*facts->onnx) rabbet_strbuf_printf(out, "  ONNX    %s\n", facts->onnx);
}

static void op_print(rabbet_strbuf_t* out, const rabbet_op_t* op) {
  rabbet_strbuf_printf(out, "%s: %s\n", op->name,
                       rabbet_doc_of_op(op->name)->text);
  for (size_t i = 0; i < op->input_count; ++i) {
    op_print_operand(out, "input", &op->inputs[i]);
  }
  for (size_t i = 0; i < op->output_count; ++i) {
    op_print_operand(out, "output", &op->outputs[i]);
  }
  for (size_t i = 0; i < op->attr_count; ++i) {
    op_print_attr(out, op, &op->attrs[i]);
  }
  op_print_facts(out, op);
}

// ---- JSON ------------------------------------------------------------------

static void op_json_operands(rabbet_strbuf_t* out, const char* key,
                             const rabbet_op_operand_t* operands,
                             size_t count) {
  rabbet_strbuf_printf(out, ", \"%s\": [", key);
  for (size_t i = 0; i < count; ++i) {
    rabbet_strbuf_printf(out, "%s{\"name\": ", i ? ", " : "");
    rabbet_strbuf_json_string(out, operands[i].name);
    rabbet_strbuf_printf(
        out,
        ", \"optional\": %s, \"variadic\": %s, \"shape\": %s, \"hidden\": %s, "
        "\"types\": \"",
        operands[i].flags & RABBET_OPERAND_OPTIONAL ? "true" : "false",
        operands[i].flags & RABBET_OPERAND_VARIADIC ? "true" : "false",
        operands[i].flags & RABBET_OPERAND_SHAPE ? "true" : "false",
        operands[i].flags & RABBET_OPERAND_HIDDEN ? "true" : "false");
    op_print_dtypes(out, operands[i].dtypes);
    rabbet_strbuf_printf(out, "\"}");
  }
  rabbet_strbuf_printf(out, "]");
}

static void op_json_text(rabbet_strbuf_t* out, const char* key,
                         const char* text) {
  rabbet_strbuf_printf(out, ", \"%s\": ", key);
  rabbet_strbuf_json_string(out, text);
}

static void op_json_default(rabbet_strbuf_t* out, const rabbet_op_attr_t* attr,
                            const char* type) {
  if (attr->required) return;
  rabbet_strbuf_printf(out, ", \"default\": ");
  if (attr->type == RABBET_ATTR_FLOAT && isinf(attr->default_float)) {
    rabbet_strbuf_printf(out, "\"inf\"");  // JSON has no number for it
  } else if (attr->type == RABBET_ATTR_FLOAT) {
    rabbet_strbuf_printf(out, "%.9g", attr->default_float);
  } else if (attr->type == RABBET_ATTR_BOOL) {
    rabbet_strbuf_printf(out, attr->default_int ? "true" : "false");
  } else if (attr->type == RABBET_ATTR_INT || !strcmp(type, "Spatial")) {
    rabbet_strbuf_printf(out, "%lld", (long long)attr->default_int);
  } else {
    rabbet_strbuf_printf(out, attr->type == RABBET_ATTR_STRING ? "\"\"" : "[]");
  }
}

static void op_json_values(rabbet_strbuf_t* out, const rabbet_op_attr_t* attr) {
  if (!attr->enumerators) return;
  rabbet_strbuf_printf(out, ", \"values\": {");
  const rabbet_op_enumerator_t* each = attr->enumerators;
  for (; each->name; ++each) {
    rabbet_strbuf_printf(out, "%s\"%s\": %lld",
                         each == attr->enumerators ? "" : ", ", each->name,
                         (long long)each->value);
  }
  rabbet_strbuf_printf(out, "}");
}

static void op_json_attrs(rabbet_strbuf_t* out, const rabbet_op_t* op) {
  rabbet_strbuf_printf(out, ", \"attributes\": [");
  for (size_t i = 0; i < op->attr_count; ++i) {
    const rabbet_op_attr_t* attr = &op->attrs[i];
    const rabbet_op_doc_t* doc = rabbet_doc_of_attr(op->name, attr->name);
    rabbet_strbuf_printf(out, "%s{\"name\": ", i ? ", " : "");
    rabbet_strbuf_json_string(out, attr->name);
    op_json_text(out, "type", rabbet_attr_type_name(attr->type));
    op_json_text(out, "meaning", doc->more);
    op_json_text(out, "doc", doc->text);
    rabbet_strbuf_printf(out, ", \"required\": %s",
                         attr->required ? "true" : "false");
    op_json_default(out, attr, doc->more);
    op_json_values(out, attr);
    rabbet_strbuf_printf(out, "}");
  }
  rabbet_strbuf_printf(out, "]");
}

static void op_json_facts(rabbet_strbuf_t* out, const rabbet_op_t* op) {
  const rabbet_op_facts_t* facts = rabbet_facts_of_op(op->name);
  op_json_text(out, "limits", rabbet_doc_of_op(op->name)->more);
  op_json_text(out, "cpu_formats", facts->cpu);
  op_json_text(out, "cuda_formats", facts->cuda);
  op_json_text(out, "onnx", facts->onnx);
}

static void op_json(rabbet_strbuf_t* out, const rabbet_op_t* op) {
  rabbet_strbuf_printf(out, "{\"name\": ");
  rabbet_strbuf_json_string(out, op->name);
  op_json_text(out, "doc", rabbet_doc_of_op(op->name)->text);
  op_json_operands(out, "inputs", op->inputs, op->input_count);
  op_json_operands(out, "outputs", op->outputs, op->output_count);
  op_json_attrs(out, op);
  op_json_facts(out, op);
  rabbet_strbuf_printf(out, "}");
}

// ---- The command -----------------------------------------------------------

static const char* op_word_at(size_t index) {
  if (index >= RABBET_OP_COUNT) return NULL;
  return rabbet_op_get((rabbet_op_id_t)index)->name;
}

static const char* op_name_at(const void* list, size_t index) {
  (void)list;
  return op_word_at(index);
}

static rabbet_status_t op_select(const char* name, const rabbet_op_t** out_op) {
  *out_op = rabbet_op_find(name);
  if (*out_op) return rabbet_ok();
  char near_names[160];
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT, "there is no operator '%s'%s", name,
      rabbet_suggest_print(name, op_name_at, NULL, RABBET_OP_COUNT, near_names,
                           sizeof(near_names)));
}

static void ops_list(rabbet_strbuf_t* out, bool json) {
  if (json) rabbet_strbuf_printf(out, "[");
  for (int i = 0; i < RABBET_OP_COUNT; ++i) {
    const rabbet_op_t* op = rabbet_op_get((rabbet_op_id_t)i);
    if (json) {
      if (i) rabbet_strbuf_printf(out, ",\n ");
      op_json(out, op);
    } else {
      rabbet_strbuf_printf(out, "%-18s %s\n", op->name,
                           rabbet_doc_of_op(op->name)->text);
    }
  }
  if (json) rabbet_strbuf_printf(out, "]\n");
}

static rabbet_status_t plugin_list(void* context,
                                   const rabbet_plugin_creator_t* creator) {
  rabbet_strbuf_t* out = context;
  rabbet_strbuf_printf(out, "plugin %s%s%s version %s, from %s\n",
                       creator->plugin_namespace,
                       *creator->plugin_namespace ? "::" : "", creator->name,
                       creator->version, creator->origin);
  return rabbet_ok();
}

static rabbet_status_t ops_run(const rabbet_arguments_t* arguments) {
  RABBET_RETURN_IF_ERROR(rabbet_cli_load_plugins(arguments));
  bool json = rabbet_argument_flag(arguments, "--json");
  rabbet_strbuf_t out;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &out);
  rabbet_status_t status = rabbet_ok();
  if (arguments->operand_count == 0) {
    ops_list(&out, json);
    if (!json) status = rabbet_plugin_visit(plugin_list, &out);
  } else {
    const rabbet_op_t* op = NULL;
    status = op_select(arguments->operands[0], &op);
    if (rabbet_is_ok(status) && json) {
      op_json(&out, op);
      rabbet_strbuf_printf(&out, "\n");
    } else if (rabbet_is_ok(status)) {
      op_print(&out, op);
    }
  }
  status = rabbet_status_join(status, rabbet_strbuf_status(&out));
  if (rabbet_is_ok(status)) printf("%s", rabbet_strbuf_text(&out));
  rabbet_strbuf_deinitialize(&out);
  return status;
}

static const rabbet_option_t ops_options[] = {
    {"--json", RABBET_OPTION_FLAG, NULL, "print JSON"},
    {"--plugins", RABBET_OPTION_LIST, "FILE",
     "list these operators, too: a Python file or a shared library"},
};

const rabbet_command_t rabbet_command_ops = {
    .name = "ops",
    .operands = "[OPERATOR]",
    .summary = "list the operators, or one with its operands and attributes",
    .options = ops_options,
    .option_count = sizeof(ops_options) / sizeof(ops_options[0]),
    .min_operands = 0,
    .max_operands = 1,
    .run = ops_run,
    .word_at = op_word_at,
};
