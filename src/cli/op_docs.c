#include "cli/op_docs.h"

#include <string.h>

static const rabbet_op_doc_t op_docs_op_docs[] = {
#define RABBET_OP(id, name, text, limits) {RABBET_DOC_OP, #name, limits, text},
#define RABBET_ATTR_DOC(name, text) {RABBET_DOC_ATTR, #name, "", text},
#define RABBET_TYPED_ATTR_DOC(name, type, text) \
  {RABBET_DOC_ATTR, #name, #type, text},
#define RABBET_ENUM_DOC(name, text) {RABBET_DOC_ENUM, #name, "", text},
#define RABBET_VALUE_DOC(name, text) {RABBET_DOC_VALUE, #name, "", text},
#include "ops/ops.def"
};

static const rabbet_op_doc_t* const op_docs_end =
    op_docs_op_docs + sizeof(op_docs_op_docs) / sizeof(op_docs_op_docs[0]);
static const rabbet_op_doc_t no_doc = {RABBET_DOC_OP, "", "", ""};

// Row `name` of a kind, in the rows of that kind that begin at `row`.
static const rabbet_op_doc_t* doc_below(const rabbet_op_doc_t* row, int kind,
                                        const char* name) {
  for (; row < op_docs_end && (int)row->kind == kind; ++row) {
    if (!strcmp(row->name, name)) return row;
  }
  return &no_doc;
}

static const rabbet_op_doc_t* doc_head(int kind, const char* name) {
  const rabbet_op_doc_t* row = op_docs_op_docs;
  for (; row < op_docs_end; ++row) {
    if ((int)row->kind == kind && !strcmp(row->name, name)) return row;
  }
  return &no_doc;
}

const rabbet_op_doc_t* rabbet_doc_of_op(const char* op) {
  return doc_head(RABBET_DOC_OP, op);
}

const rabbet_op_doc_t* rabbet_doc_of_attr(const char* op, const char* attr) {
  const rabbet_op_doc_t* head = rabbet_doc_of_op(op);
  return head == &no_doc ? head : doc_below(head + 1, RABBET_DOC_ATTR, attr);
}

const rabbet_op_doc_t* rabbet_doc_of_value(const char* type, const char* name) {
  const rabbet_op_doc_t* head = doc_head(RABBET_DOC_ENUM, type);
  return head == &no_doc ? head : doc_below(head + 1, RABBET_DOC_VALUE, name);
}

const rabbet_op_facts_t* rabbet_facts_of_op(const char* op) {
  static const rabbet_op_facts_t facts[] = {
#define RABBET_OP_FACTS(name, cpu, cuda, onnx) {#name, cpu, cuda, onnx},
#include "cli/op_facts.def"
  };
  static const rabbet_op_facts_t none = {"", "", "", ""};
  for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); ++i) {
    if (!strcmp(facts[i].name, op)) return &facts[i];
  }
  return &none;
}
