// DistCollective, as TensorRT's tools write it: an exchange between ranks.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "onnx/emit.h"
#include "onnx/operators.h"
#include "ops/collective/dist_collective.h"

// The number of the enumerator that a text names in any case ("all_gather").
static int64_t onnx_collective_number(rabbet_onnx_node_t* node,
                                      const char* onnx_name, const char* attr,
                                      const char* fallback) {
  const rabbet_op_t* op = rabbet_op_get(RABBET_OP_DIST_COLLECTIVE);
  const char* given = rabbet_onnx_attr_string(node, onnx_name, fallback);
  char name[32], names[128] = "";
  size_t i = 0, size = 0;
  if (!rabbet_onnx_ok(node)) return 0;
  for (; given[i] && i + 1 < sizeof(name); ++i)
    name[i] = (char)toupper((unsigned char)given[i]);
  name[i] = 0;
  for (size_t k = 0; k < op->attr_count; ++k) {
    const rabbet_op_enumerator_t* e = op->attrs[k].enumerators;
    if (strcmp(op->attrs[k].name, attr) != 0) continue;
    for (; e->name; ++e) {
      if (!given[i] && !strcmp(e->name, name)) return e->value;
      size += (size_t)snprintf(names + size, sizeof(names) - size, "%s%s",
                               size ? ", " : "", e->name);
    }
  }
  for (i = 0; names[i]; ++i)
    names[i] = (char)tolower((unsigned char)names[i]);
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "attribute '%s' is '%s'; expected one of %s", onnx_name,
                   given, names);
  return 0;
}

// group_size is the number of ranks; the length of groups, if both are given.
static int64_t onnx_collective_ranks(rabbet_onnx_node_t* node,
                                     rabbet_onnx_ints_t groups) {
  int64_t size = rabbet_onnx_attr_int(node, "group_size", 0);
  if (!rabbet_onnx_ok(node)) return 1;
  if (size < 0 || (groups.count > 0 && size && size != (int64_t)groups.count))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'group_size' is %lld, and 'groups' has %zu "
                     "ranks",
                     (long long)size, groups.count);
  else if (size == 0 && groups.count == 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute 'group_size' is 0, which means all ranks; set "
                     "it to their number, which a plan is built for");
  return groups.count > 0 ? (int64_t)groups.count : size;
}

static void onnx_import_dist_collective(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  if (!rabbet_onnx_has_attr(node, "collective_operation"))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'collective_operation' is missing");
  int64_t operation =
      onnx_collective_number(node, "collective_operation", "operation", "");
  int64_t reduce_op =
      onnx_collective_number(node, "reduce_op", "reduce_op", "none");
  rabbet_onnx_ints_t groups = rabbet_onnx_attr_ints(node, "groups");
  int64_t ranks = onnx_collective_ranks(node, groups);
  if (!rabbet_onnx_ok(node)) return;
  // Tools write a reduction at operations that have none, too.
  if (!rabbet_collective_reduces((rabbet_collective_op_t)operation))
    reduce_op = RABBET_COLLECTIVE_REDUCE_NONE;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("operation", operation),
      RABBET_ONNX_INT("reduce_op", reduce_op),
      RABBET_ONNX_INT("root", rabbet_onnx_attr_int(node, "root", -1)),
      RABBET_ONNX_INT("num_ranks", ranks),
      RABBET_ONNX_INTS("groups", groups.data, groups.count)};
  node->outputs[0] =
      rabbet_onnx_layer(node, "dist_collective", &x, 1, attrs, 5);
}

RABBET_ONNX_OPERATORS(collective) = {
    RABBET_ONNX_PLUGIN_OP("", DistCollective, dist_collective),
    {0},
};
