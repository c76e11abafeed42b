// Documentation of operators (ops/ops.def) and facts about them, by name.
#ifndef RABBET_SRC_CLI_OP_DOCS_H_
#define RABBET_SRC_CLI_OP_DOCS_H_

typedef struct rabbet_op_doc_t {
  enum {
    RABBET_DOC_OP,
    RABBET_DOC_ENUM,
    RABBET_DOC_ATTR,   // of the operator before it
    RABBET_DOC_VALUE,  // of the enumeration before it
  } kind;
  const char* name;
  // For attributes: the meaning of their numbers, such as "DataType". For
  // operators: their limits.
  const char* more;
  const char* text;
} rabbet_op_doc_t;

// Facts that tools/operators.py finds in the sources.
typedef struct rabbet_op_facts_t {
  const char* name;
  // Formats of kernels of its own: "LINEAR", "ANY"; "" if there are none.
  const char *cpu, *cuda;
  const char* onnx;  // operators that the importer makes it of: "CumSum Unique"
} rabbet_op_facts_t;

// Without documentation all strings of the result are empty; never NULL.
const rabbet_op_doc_t* rabbet_doc_of_op(const char* op);
const rabbet_op_doc_t* rabbet_doc_of_attr(const char* op, const char* attr);
const rabbet_op_doc_t* rabbet_doc_of_value(const char* type, const char* name);
const rabbet_op_facts_t* rabbet_facts_of_op(const char* op);

#endif  // RABBET_SRC_CLI_OP_DOCS_H_
