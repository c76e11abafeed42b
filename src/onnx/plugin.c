// Nodes that name a registered plugin.
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "onnx/emit.h"

// ---- Finding it ------------------------------------------------------------

// A string attribute of a node that is not being imported yet, terminated.
static void onnx_plain_string(const Onnx__NodeProto* node, const char* name,
                              const char* fallback, char* buffer,
                              size_t capacity) {
  snprintf(buffer, capacity, "%s", fallback);
  for (size_t i = 0; i < node->n_attribute; ++i) {
    const Onnx__AttributeProto* attr = node->attribute[i];
    if (!attr->name || strcmp(attr->name, name)) continue;
    if (rabbet_onnx_attr_type(attr) ==
        ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING) {
      snprintf(buffer, capacity, "%.*s", (int)attr->s.len,
               (const char*)attr->s.data);
    } else if (rabbet_onnx_attr_type(attr) ==
               ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT) {
      snprintf(buffer, capacity, "%lld", (long long)attr->i);
    }
  }
}

static rabbet_status_t onnx_find_in(
    const char* name, const char* version, const char* plugin_namespace,
    const rabbet_plugin_creator_t** out_creator) {
  rabbet_status_t status =
      rabbet_plugin_find(name, version, plugin_namespace, out_creator);
  if (rabbet_status_code(status) != RABBET_STATUS_NOT_FOUND) return status;
  rabbet_status_ignore(status);
  *out_creator = NULL;
  return rabbet_ok();
}

// The name, version and namespace by which a node names its plugin.
typedef struct onnx_plugin_key_t {
  char version[64], plugin_namespace[256];
} onnx_plugin_key_t;

static void onnx_plugin_key(const Onnx__NodeProto* node,
                            onnx_plugin_key_t* out_key) {
  onnx_plain_string(node, "plugin_version", "1", out_key->version,
                    sizeof(out_key->version));
  onnx_plain_string(node, "plugin_namespace", "", out_key->plugin_namespace,
                    sizeof(out_key->plugin_namespace));
}

rabbet_status_t rabbet_onnx_find_plugin(
    const Onnx__NodeProto* node, const rabbet_plugin_creator_t** out_creator) {
  onnx_plugin_key_t key;
  *out_creator = NULL;
  onnx_plugin_key(node, &key);
  RABBET_RETURN_IF_ERROR(onnx_find_in(node->op_type, key.version,
                                      key.plugin_namespace, out_creator));
  const char* domain = rabbet_onnx_domain(node->domain);
  if (*out_creator || !strcmp(domain, key.plugin_namespace)) return rabbet_ok();
  return onnx_find_in(node->op_type, key.version, domain, out_creator);
}

rabbet_status_t rabbet_onnx_plugin_missing(const Onnx__NodeProto* node) {
  onnx_plugin_key_t key;
  const rabbet_plugin_creator_t* none = NULL;
  onnx_plugin_key(node, &key);
  const char* plugin_namespace = key.plugin_namespace[0]
                                     ? key.plugin_namespace
                                     : rabbet_onnx_domain(node->domain);
  rabbet_status_t status =
      rabbet_plugin_find(node->op_type, key.version, plugin_namespace, &none);
  rabbet_plugin_creator_release(none);
  return status;
}

// ---- Attributes ------------------------------------------------------------

static void onnx_field_mismatch(rabbet_onnx_node_t* node,
                                const rabbet_plugin_field_t* field,
                                const Onnx__AttributeProto* attr) {
  RABBET_ONNX_FAIL(
      node, RABBET_STATUS_INVALID_ARGUMENT,
      "attribute '%s' is %s, which does not convert to the %s that plugin "
      "'%s' takes",
      field->name, rabbet_onnx_attr_type_name(rabbet_onnx_attr_type(attr)),
      rabbet_attr_type_name(field->type), node->proto->op_type);
}

static void* onnx_room(rabbet_onnx_node_t* node, size_t count, size_t size) {
  void* room = NULL;
  rabbet_onnx_fail(node, rabbet_arena_allocate_array(&node->importer->arena,
                                                     count, size, &room));
  return rabbet_onnx_ok(node) ? room : NULL;
}

// An attribute as numbers: FLOAT, FLOATS, INT, INTS and TENSOR alike.
typedef struct onnx_numbers_t {
  size_t count;
  bool exact;  // integers; `ints` is set, else `floats`
  int64_t* ints;
  double* floats;
  rabbet_dims_t dims;  // scalars: rank 0
  bool is_list;
} onnx_numbers_t;

static bool onnx_numbers_room(rabbet_onnx_node_t* node, size_t count,
                              onnx_numbers_t* numbers) {
  numbers->count = count;
  numbers->ints = onnx_room(node, count, sizeof(int64_t));
  numbers->floats = onnx_room(node, count, sizeof(double));
  return rabbet_onnx_ok(node);
}

static void onnx_tensor_numbers(rabbet_onnx_node_t* node,
                                const Onnx__TensorProto* tensor,
                                onnx_numbers_t* numbers) {
  rabbet_onnx_constant_t constant;
  rabbet_onnx_fail(
      node, rabbet_onnx_tensor_read(node->importer->storage,
                                    node->importer->network->logger, tensor,
                                    &constant));
  if (!rabbet_onnx_ok(node)) return;
  rabbet_dtype_t dtype = constant.weights.dtype;
  numbers->dims = constant.dims;
  numbers->exact = !rabbet_dtype_is_float(dtype);
  size_t count = (size_t)constant.weights.count;
  if (!onnx_numbers_room(node, count, numbers)) return;
  for (size_t i = 0; i < count; ++i) {
    numbers->floats[i] =
        rabbet_load_double(dtype, constant.weights.data, (int64_t)i);
    if (numbers->exact) {
      numbers->ints[i] =
          rabbet_load_int64(dtype, constant.weights.data, (int64_t)i);
    }
  }
}

// False for attributes that are no numbers.
static bool onnx_numbers(rabbet_onnx_node_t* node,
                         const Onnx__AttributeProto* attr,
                         onnx_numbers_t* numbers) {
  *numbers = (onnx_numbers_t){0};
  const int64_t* ints = &attr->i;
  const float* floats = &attr->f;
  size_t count = 1;
  switch (rabbet_onnx_attr_type(attr)) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
      numbers->is_list = true;
      if (!attr->t) return false;
      onnx_tensor_numbers(node, attr->t, numbers);
      return rabbet_onnx_ok(node);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
      ints = attr->ints;
      count = attr->n_ints;
      numbers->is_list = true;
      // fall through
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
      numbers->exact = true;
      break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
      floats = attr->floats;
      count = attr->n_floats;
      numbers->is_list = true;
      break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
      break;
    default:
      return false;
  }
  if (numbers->is_list) {
    numbers->dims = (rabbet_dims_t){.rank = 1, .d = {(int64_t)count}};
  }
  if (!onnx_numbers_room(node, count, numbers)) return false;
  for (size_t i = 0; i < count; ++i) {
    if (numbers->exact) numbers->ints[i] = ints[i];
    numbers->floats[i] = numbers->exact ? (double)ints[i] : (double)floats[i];
  }
  return true;
}

static bool onnx_is_truth(const onnx_numbers_t* numbers) {
  for (size_t i = 0; i < numbers->count; ++i) {
    if (!numbers->exact || (numbers->ints[i] & ~(int64_t)1)) return false;
  }
  return true;
}

// The elements in the type of the plugin's array.
static bool onnx_array(rabbet_onnx_node_t* node, const onnx_numbers_t* numbers,
                       rabbet_attr_t* out_attr) {
  bool whole = !rabbet_dtype_is_float(out_attr->dtype);
  if (whole && !numbers->exact) return false;
  size_t bytes = 0;
  out_attr->dims = numbers->dims;
  rabbet_onnx_fail(node,
                   rabbet_tensor_bytes(out_attr->dtype, RABBET_FORMAT_LINEAR,
                                       &numbers->dims, &bytes));
  if (!rabbet_onnx_ok(node)) return false;
  void* data = onnx_room(node, bytes, 1);
  if (!data) return false;
  for (size_t i = 0; i < numbers->count; ++i) {
    if (!numbers->exact) {
      rabbet_store_double(out_attr->dtype, data, (int64_t)i,
                          numbers->floats[i]);
      continue;
    }
    rabbet_store_int64(out_attr->dtype, data, (int64_t)i, numbers->ints[i]);
    if (whole && rabbet_load_int64(out_attr->dtype, data, (int64_t)i) !=
                     numbers->ints[i]) {
      return false;  // it does not fit
    }
  }
  out_attr->data = data;
  return true;
}

// Converts where nothing is lost. False if the types do not go together.
static bool onnx_field_numbers(rabbet_onnx_node_t* node,
                               const onnx_numbers_t* numbers,
                               rabbet_attr_t* out_attr) {
  bool scalar = numbers->count == 1;
  out_attr->count = numbers->count;
  switch (out_attr->type) {
    case RABBET_ATTR_INT:
      out_attr->data = numbers->ints;
      return scalar && numbers->exact;
    case RABBET_ATTR_BOOL:
      out_attr->data = numbers->ints;
      return scalar && onnx_is_truth(numbers);
    case RABBET_ATTR_FLOAT:
      out_attr->data = numbers->floats;
      return scalar;
    case RABBET_ATTR_INTS:
      out_attr->data = numbers->ints;
      return numbers->exact;
    case RABBET_ATTR_BOOLS:
      out_attr->data = numbers->ints;
      return onnx_is_truth(numbers);
    case RABBET_ATTR_FLOATS:
      out_attr->data = numbers->floats;
      return true;
    case RABBET_ATTR_TENSOR:
      return onnx_array(node, numbers, out_attr);
    default:
      return false;
  }
}

static bool onnx_field_string(rabbet_onnx_node_t* node,
                              const Onnx__AttributeProto* attr,
                              rabbet_attr_t* out_attr) {
  if (out_attr->type == RABBET_ATTR_BYTES) {
    out_attr->data = attr->s.data;
    out_attr->count = attr->s.len;
    return true;
  }
  if (out_attr->type != RABBET_ATTR_STRING) return false;
  char* text = onnx_room(node, attr->s.len + 1, 1);
  if (!text) return false;
  if (attr->s.len) memcpy(text, attr->s.data, attr->s.len);
  out_attr->data = text;
  out_attr->count = attr->s.len;
  return true;
}

static bool onnx_field_strings(rabbet_onnx_node_t* node,
                               const Onnx__AttributeProto* attr,
                               rabbet_attr_t* out_attr) {
  if (out_attr->type != RABBET_ATTR_STRINGS) return false;
  size_t size = 0;
  for (size_t i = 0; i < attr->n_strings; ++i) {
    if (attr->strings[i].len &&
        memchr(attr->strings[i].data, 0, attr->strings[i].len)) {
      return false;
    }
    size += attr->strings[i].len + 1;
  }
  char* text = onnx_room(node, size, 1);
  if (!text) return false;
  out_attr->data = text;
  out_attr->count = attr->n_strings;
  for (size_t i = 0; i < attr->n_strings; ++i) {
    size_t length = attr->strings[i].len;
    if (length) memcpy(text, attr->strings[i].data, length);
    text += length + 1;
  }
  return true;
}

// The type that holds an attribute as the node has it.
static rabbet_attr_type_t onnx_own_type(const Onnx__AttributeProto* attr) {
  switch (rabbet_onnx_attr_type(attr)) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
      return RABBET_ATTR_INT;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
      return RABBET_ATTR_FLOAT;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
      return RABBET_ATTR_BYTES;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
      return RABBET_ATTR_INTS;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
      return RABBET_ATTR_FLOATS;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:
      return RABBET_ATTR_STRINGS;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
      return RABBET_ATTR_TENSOR;
    default:
      return RABBET_ATTR_ANY;
  }
}

// A tensor's elements in the type that the importer holds them in.
static bool onnx_own_tensor(rabbet_onnx_node_t* node,
                            const Onnx__AttributeProto* attr,
                            rabbet_attr_t* out_attr) {
  rabbet_onnx_constant_t constant;
  if (!attr->t) return false;
  rabbet_onnx_fail(
      node, rabbet_onnx_tensor_read(node->importer->storage,
                                    node->importer->network->logger, attr->t,
                                    &constant));
  if (!rabbet_onnx_ok(node)) return false;
  out_attr->dtype = constant.weights.dtype;
  out_attr->dims = constant.dims;
  out_attr->data = constant.weights.data;
  out_attr->count = (size_t)constant.weights.count;
  return true;
}

static void onnx_field(rabbet_onnx_node_t* node,
                       const rabbet_plugin_field_t* field,
                       const Onnx__AttributeProto* attr,
                       rabbet_attr_t* out_attr) {
  *out_attr = (rabbet_attr_t){
      .name = field->name, .type = field->type, .dtype = field->dtype};
  Onnx__AttributeProto__AttributeType type = rabbet_onnx_attr_type(attr);
  onnx_numbers_t numbers;
  bool converted = false;
  bool any = field->type == RABBET_ATTR_ANY;
  if (any) out_attr->type = onnx_own_type(attr);
  if (any && out_attr->type == RABBET_ATTR_ANY) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute '%s' is %s, which plugin '%s' cannot be given",
                     field->name, rabbet_onnx_attr_type_name(type),
                     node->proto->op_type);
  } else if (any && out_attr->type == RABBET_ATTR_TENSOR) {
    converted = onnx_own_tensor(node, attr, out_attr);
  } else if (type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING) {
    converted = onnx_field_string(node, attr, out_attr);
  } else if (type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS) {
    converted = onnx_field_strings(node, attr, out_attr);
  } else if (onnx_numbers(node, attr, &numbers)) {
    converted = onnx_field_numbers(node, &numbers, out_attr);
  }
  if (!converted && rabbet_onnx_ok(node)) {
    onnx_field_mismatch(node, field, attr);
  }
}

// Attributes for the importer, not for the plugin.
static bool onnx_is_reserved(const char* name) {
  static const char* const names[] = {"aot", "plugin_namespace",
                                      "plugin_version",
                                      "tensorrt_plugin_shape_input_indices"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    if (!strcmp(names[i], name)) return true;
  }
  return false;
}

// A misspelt attribute would otherwise go unnoticed.
static void onnx_warn_unread(rabbet_onnx_node_t* node,
                             const rabbet_plugin_creator_t* creator) {
  for (size_t i = 0; i < node->attr_count; ++i) {
    const char* name = node->attrs[i]->name ? node->attrs[i]->name : "";
    bool known = onnx_is_reserved(name);
    for (size_t j = 0; j < creator->field_count; ++j) {
      known |= !strcmp(creator->fields[j].name, name);
    }
    if (known) continue;
    rabbet_log(node->importer->network->logger, RABBET_SEVERITY_WARNING,
               "node '%s': attribute '%s' is ignored: plugin '%s' has no such "
               "attribute",
               node->name, name, creator->name);
  }
}

// Bits of the inputs that the node says are shape inputs; negative numbers
// count from the end.
static uint64_t onnx_shape_inputs(rabbet_onnx_node_t* node) {
  const char* name = "tensorrt_plugin_shape_input_indices";
  const Onnx__AttributeProto* attr = rabbet_onnx_attr(node, name);
  uint64_t mask = 0;
  if (!attr) return 0;
  if (rabbet_onnx_attr_type(attr) !=
      ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS) {
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_INVALID_ARGUMENT,
        "attribute '%s' is %s; expected INTS, the numbers of inputs", name,
        rabbet_onnx_attr_type_name(rabbet_onnx_attr_type(attr)));
    return 0;
  }
  for (size_t i = 0; i < attr->n_ints && rabbet_onnx_ok(node); ++i) {
    int64_t count = (int64_t)node->input_count, index = attr->ints[i];
    if (index < 0) index += count;
    if (index < 0 || index >= count || index >= 64) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_OUT_OF_RANGE,
                       "attribute '%s' names input %lld; the node has %zu",
                       name, (long long)attr->ints[i], node->input_count);
    } else {
      mask |= UINT64_C(1) << index;
    }
  }
  return mask;
}

void rabbet_onnx_import_plugin(rabbet_onnx_node_t* node,
                               const rabbet_plugin_creator_t* creator) {
  rabbet_attr_t* attrs = onnx_room(node, creator->field_count, sizeof(*attrs));
  size_t count = 0;
  for (size_t i = 0; i < creator->field_count && rabbet_onnx_ok(node); ++i) {
    const Onnx__AttributeProto* attr =
        rabbet_onnx_attr(node, creator->fields[i].name);
    // The creator's fields decide whether an attribute may be missing.
    if (attr) onnx_field(node, &creator->fields[i], attr, &attrs[count++]);
  }
  if (!rabbet_onnx_ok(node)) return;
  onnx_warn_unread(node, creator);
  rabbet_layer_t* layer = NULL;
  const rabbet_plugin_create_t create = {
      .layer_name = node->name,
      .phase = RABBET_PLUGIN_PHASE_BUILD,
      .attrs = attrs,
      .attr_count = count,
      .shape_inputs = onnx_shape_inputs(node),
  };
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_fail(node, rabbet_network_add_plugin_of(
                             node->importer->network, creator->name,
                             creator->version, creator->plugin_namespace,
                             &create, node->inputs, node->input_count, &layer));
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_fail(node, rabbet_layer_set_metadata(layer, node->metadata));
  if (rabbet_onnx_attr(node, "aot")) {
    bool ready = rabbet_onnx_attr_int(node, "aot", 0) != 0;
    rabbet_onnx_fail(
        node, rabbet_layer_set_plugin_kinds(
                  layer, ready ? RABBET_PLUGIN_READY : RABBET_PLUGIN_RUNS));
  }
  size_t outputs = rabbet_layer_output_count(layer);
  if (node->output_count > outputs) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the node has %zu outputs, but plugin '%s' makes %zu",
                     node->output_count, creator->name, outputs);
    return;
  }
  for (size_t i = 0; i < node->output_count; ++i) {
    node->outputs[i] = rabbet_layer_output(layer, i);
  }
}
