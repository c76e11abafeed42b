// The order of nodes: as written, but each behind the nodes whose results it
// reads. Tools write some behind their readers, and ONNX Runtime sorts them.
#include <string.h>

#include "base/strbuf.h"
#include "base/vec.h"
#include "onnx/import.h"

// ---- Names that bodies read ------------------------------------------------

// Of a node's bodies, the names from outside.
typedef struct onnx_captures_t {
  const Onnx__NodeProto* node;  // the key
  RABBET_VEC(const char*) names;
} onnx_captures_t;

static rabbet_status_t onnx_find_captures(rabbet_onnx_importer_t* importer,
                                          const Onnx__NodeProto* node,
                                          int depth, onnx_captures_t** out);

static rabbet_status_t onnx_mark_known(rabbet_map_t* known, const char* name) {
  if (!name || !name[0]) return rabbet_ok();
  return rabbet_map_set(known, name, strlen(name), known);
}

static rabbet_status_t onnx_mark_own(rabbet_map_t* known,
                                     const Onnx__GraphProto* body) {
  for (size_t i = 0; i < body->n_input; ++i)
    RABBET_RETURN_IF_ERROR(onnx_mark_known(known, body->input[i]->name));
  for (size_t i = 0; i < body->n_initializer; ++i)
    RABBET_RETURN_IF_ERROR(onnx_mark_known(known, body->initializer[i]->name));
  for (size_t i = 0; i < body->n_node; ++i)
    for (size_t j = 0; j < body->node[i]->n_output; ++j)
      RABBET_RETURN_IF_ERROR(onnx_mark_known(known, body->node[i]->output[j]));
  return rabbet_ok();
}

// Each name once: one that is found is known from then on.
static rabbet_status_t onnx_capture(rabbet_onnx_importer_t* importer,
                                    rabbet_map_t* known, const char* name,
                                    onnx_captures_t* out) {
  if (!name || !name[0] || rabbet_map_get_string(known, name))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(onnx_mark_known(known, name));
  return RABBET_VEC_PUSH(importer->network->allocator, &out->names, name);
}

static rabbet_status_t onnx_capture_body(rabbet_onnx_importer_t* importer,
                                         rabbet_map_t* known,
                                         const Onnx__GraphProto* body,
                                         int depth, onnx_captures_t* out) {
  RABBET_RETURN_IF_ERROR(onnx_mark_own(known, body));
  for (size_t i = 0; i < body->n_node; ++i) {
    const Onnx__NodeProto* node = body->node[i];
    onnx_captures_t* nested = NULL;
    for (size_t j = 0; j < node->n_input; ++j)
      RABBET_RETURN_IF_ERROR(
          onnx_capture(importer, known, node->input[j], out));
    RABBET_RETURN_IF_ERROR(
        onnx_find_captures(importer, node, depth + 1, &nested));
    for (size_t j = 0; nested && j < nested->names.count; ++j)
      RABBET_RETURN_IF_ERROR(
          onnx_capture(importer, known, nested->names.data[j], out));
  }
  for (size_t i = 0; i < body->n_output; ++i)
    RABBET_RETURN_IF_ERROR(
        onnx_capture(importer, known, body->output[i]->name, out));
  return rabbet_ok();
}

static bool onnx_has_bodies(const Onnx__NodeProto* node) {
  for (size_t i = 0; i < node->n_attribute; ++i)
    if (node->attribute[i]->g) return true;
  return false;
}

// *out is NULL for a node without bodies. Kept, as the bodies of loops are
// imported many times.
static rabbet_status_t onnx_find_captures(rabbet_onnx_importer_t* importer,
                                          const Onnx__NodeProto* node,
                                          int depth, onnx_captures_t** out) {
  *out = NULL;
  // Nothing imports deeper ones.
  if (depth > RABBET_ONNX_MAX_SCOPES || !onnx_has_bodies(node))
    return rabbet_ok();
  *out = rabbet_map_get(&importer->captures, (const char*)&node, sizeof(node));
  if (*out) return rabbet_ok();
  const onnx_captures_t none = {.node = node};
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(&importer->arena, &none, sizeof(none), (void**)out));
  RABBET_RETURN_IF_ERROR(rabbet_map_set(
      &importer->captures, (const char*)&(*out)->node, sizeof(node), *out));
  for (size_t i = 0; i < node->n_attribute; ++i) {
    const Onnx__GraphProto* body = node->attribute[i]->g;
    rabbet_map_t known;
    if (!body) continue;
    rabbet_map_initialize(importer->network->allocator, &known);
    rabbet_status_t status =
        onnx_capture_body(importer, &known, body, depth, *out);
    rabbet_map_deinitialize(&known);
    RABBET_RETURN_IF_ERROR(status);
  }
  return rabbet_ok();
}

void rabbet_onnx_captures_deinitialize(rabbet_onnx_importer_t* importer) {
  for (size_t i = 0; i < importer->captures.count; ++i) {
    onnx_captures_t* captures = importer->captures.entries[i].value;
    rabbet_vec_free(importer->network->allocator, &captures->names);
  }
  rabbet_map_deinitialize(&importer->captures);
}

// ---- Waiting nodes ---------------------------------------------------------

// A node on the stack waits for the one above it. `input` is the name that it
// looks at next.
typedef struct onnx_waiting_t {
  size_t node, input;
} onnx_waiting_t;

typedef struct onnx_order_t {
  rabbet_onnx_scope_t* scope;
  uint8_t* states;      // of nodes; NULL as long as they come in order
  rabbet_map_t makers;  // in scope->nodes, once there are states
  RABBET_VEC(onnx_waiting_t) stack;
} onnx_order_t;

enum { NODE_NEW, NODE_WAITS, NODE_DONE };

static bool onnx_is_bound(const rabbet_onnx_scope_t* scope, const char* name) {
  for (; scope; scope = scope->parent)
    if (rabbet_map_get_string(&scope->values, name)) return true;
  return false;
}

// When node `at` misses the first name.
static rabbet_status_t onnx_find_makers(onnx_order_t* order, size_t at) {
  const rabbet_onnx_scope_t* scope = order->scope;
  if (order->states) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_allocate(scope->importer->network->allocator,
                                         scope->node_count,
                                         (void**)&order->states));
  memset(order->states, NODE_NEW, scope->node_count);
  memset(order->states, NODE_DONE, at);
  order->states[at] = NODE_WAITS;
  for (size_t i = at; i < scope->node_count; ++i)
    for (size_t j = 0; j < scope->nodes[i]->n_output; ++j) {
      const char* name = scope->nodes[i]->output[j];
      RABBET_RETURN_IF_ERROR(
          rabbet_map_set(&order->makers, name, strlen(name), &scope->nodes[i]));
    }
  return rabbet_ok();
}

// NULL behind the last name that the node or a body of it reads.
static const char* onnx_read_name(const Onnx__NodeProto* node,
                                  const onnx_captures_t* captures,
                                  size_t index) {
  if (index < node->n_input) return node->input[index];
  index -= node->n_input;
  return captures && index < captures->names.count ? captures->names.data[index]
                                                   : NULL;
}

// The node that makes the next name that `top` misses; NULL: none does. Names
// that no node makes are left to the import.
static rabbet_status_t onnx_next_maker(onnx_order_t* order, onnx_waiting_t* top,
                                       Onnx__NodeProto*** out) {
  rabbet_onnx_scope_t* scope = order->scope;
  const Onnx__NodeProto* node = scope->nodes[top->node];
  onnx_captures_t* captures;
  const char* name;
  RABBET_RETURN_IF_ERROR(
      onnx_find_captures(scope->importer, node, scope->depth, &captures));
  *out = NULL;
  while (!*out && (name = onnx_read_name(node, captures, top->input))) {
    ++top->input;
    if (!name[0] || onnx_is_bound(scope, name)) continue;
    RABBET_RETURN_IF_ERROR(onnx_find_makers(order, top->node));
    *out = rabbet_map_get_string(&order->makers, name);
  }
  return rabbet_ok();
}

// The nodes from `first` to the top of the stack.
static rabbet_status_t onnx_cycle(const onnx_order_t* order, size_t first) {
  enum { MOST_NAMED = 8 };
  const rabbet_onnx_scope_t* scope = order->scope;
  size_t begin = order->stack.count - 1;
  while (order->stack.data[begin].node != first)
    --begin;
  size_t count = order->stack.count - begin;
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(scope->importer->network->allocator, &text);
  for (size_t i = 0; i < count && i < MOST_NAMED; ++i) {
    size_t index = order->stack.data[begin + i].node;
    const Onnx__NodeProto* node = scope->nodes[index];
    rabbet_strbuf_printf(&text, "%s%zu '%s' (%s)", i ? ", " : "", index,
                         node->name ? node->name : "",
                         node->op_type ? node->op_type : "");
  }
  if (count > MOST_NAMED)
    rabbet_strbuf_printf(&text, " and %zu more", count - MOST_NAMED);
  rabbet_status_t status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status))
    status = RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "nodes form a cycle, each of them reads what the "
                           "next one makes and the last what the first: %s",
                           rabbet_strbuf_text(&text));
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static rabbet_status_t onnx_push(onnx_order_t* order, size_t index) {
  if (order->states && order->states[index] == NODE_WAITS)
    return onnx_cycle(order, index);
  if (order->states) order->states[index] = NODE_WAITS;
  return RABBET_VEC_PUSH(order->scope->importer->network->allocator,
                         &order->stack, (onnx_waiting_t){.node = index});
}

// Imports the node on top of the stack, or puts one on it that makes a name.
static rabbet_status_t onnx_step(onnx_order_t* order, size_t* at) {
  rabbet_onnx_scope_t* scope = order->scope;
  onnx_waiting_t* top = &order->stack.data[order->stack.count - 1];
  Onnx__NodeProto** maker;
  *at = top->node;
  RABBET_RETURN_IF_ERROR(onnx_next_maker(order, top, &maker));
  if (maker) return onnx_push(order, (size_t)(maker - scope->nodes));
  if (order->states) order->states[*at] = NODE_DONE;
  --order->stack.count;
  return rabbet_onnx_import_node(scope, *at);
}

static rabbet_status_t onnx_import_in_order(onnx_order_t* order, size_t* at) {
  for (size_t i = 0; i < order->scope->node_count; ++i) {
    *at = i;
    if (order->states && order->states[i] == NODE_DONE) continue;
    RABBET_RETURN_IF_ERROR(onnx_push(order, i));
    while (order->stack.count > 0)
      RABBET_RETURN_IF_ERROR(onnx_step(order, at));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_onnx_import_nodes(rabbet_onnx_scope_t* scope) {
  rabbet_allocator_t allocator = scope->importer->network->allocator;
  onnx_order_t order = {.scope = scope};
  size_t at = 0;
  rabbet_map_initialize(allocator, &order.makers);
  rabbet_status_t status = onnx_import_in_order(&order, &at);
  rabbet_map_deinitialize(&order.makers);
  rabbet_free(allocator, order.states);
  rabbet_vec_free(allocator, &order.stack);
  if (!rabbet_is_ok(status) && scope->depth == 0)
    rabbet_status_ignore(rabbet_onnx_errors_add(
        scope->importer->errors, status, (int)at, (int)at, scope->nodes[at]));
  return status;
}
