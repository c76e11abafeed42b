// Documentation of operators (ops/docs.def), by name.
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
  const char* type;  // of attributes: "DataType"; "" if it tells nothing more
  const char* text;
} rabbet_op_doc_t;

// Without documentation all strings of the result are empty; never NULL.
const rabbet_op_doc_t* rabbet_doc_of_op(const char* op);
const rabbet_op_doc_t* rabbet_doc_of_attr(const char* op, const char* attr);
const rabbet_op_doc_t* rabbet_doc_of_value(const char* type, const char* name);

#endif  // RABBET_SRC_CLI_OP_DOCS_H_
