// Plugins of TensorRT's library that stand for an operator of ONNX.
#include <string.h>

#include "onnx/compositions.h"
#include "onnx/operators.h"

// ---- Attributes of the operator --------------------------------------------

static void onnx_trt_add_attr(rabbet_onnx_node_t* node,
                              Onnx__AttributeProto attr) {
  rabbet_arena_t* arena = &node->importer->arena;
  Onnx__AttributeProto** attrs = NULL;
  Onnx__AttributeProto* copy = NULL;
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_fail(
      node, rabbet_arena_copy(arena, &attr, sizeof(attr), (void**)&copy));
  rabbet_onnx_fail(node,
                   rabbet_arena_allocate_array(arena, node->attr_count + 1,
                                               sizeof(*attrs), (void**)&attrs));
  if (!rabbet_onnx_ok(node)) return;
  if (node->attr_count)
    memcpy(attrs, node->attrs, node->attr_count * sizeof(*attrs));
  attrs[node->attr_count++] = copy;
  node->attrs = attrs;
}

static void onnx_trt_add_ints(rabbet_onnx_node_t* node, const char* name,
                              const int64_t* values, size_t count) {
  Onnx__AttributeProto attr = ONNX__ATTRIBUTE_PROTO__INIT;
  rabbet_onnx_fail(
      node, rabbet_arena_copy(&node->importer->arena, values,
                              count * sizeof(*values), (void**)&attr.ints));
  attr.name = (char*)name;
  attr.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
  attr.n_ints = count;
  onnx_trt_add_attr(node, attr);
}

static void onnx_trt_add_int(rabbet_onnx_node_t* node, const char* name,
                             int64_t value) {
  Onnx__AttributeProto attr = ONNX__ATTRIBUTE_PROTO__INIT;
  attr.name = (char*)name;
  attr.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
  attr.has_i = true;
  attr.i = value;
  onnx_trt_add_attr(node, attr);
}

static void onnx_trt_add_text(rabbet_onnx_node_t* node, const char* name,
                              const char* text) {
  Onnx__AttributeProto attr = ONNX__ATTRIBUTE_PROTO__INIT;
  attr.name = (char*)name;
  attr.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
  attr.has_s = true;
  attr.s = (ProtobufCBinaryData){strlen(text), (uint8_t*)text};
  onnx_trt_add_attr(node, attr);
}

// ---- InstanceNormalization_TRT ---------------------------------------------

// With `relu`, negative results are multiplied by `alpha`.
static void onnx_import_trt_instance_norm(rabbet_onnx_node_t* node) {
  bool relu = rabbet_onnx_attr_int(node, "relu", 0) != 0;
  double alpha = rabbet_onnx_attr_float(node, "alpha", 0);
  rabbet_onnx_import_as(node, "InstanceNormalization", 6);
  if (relu && rabbet_onnx_ok(node))
    node->outputs[0] = rabbet_onnx_activation(
        node, alpha == 0 ? "RELU" : "LEAKY_RELU", node->outputs[0], alpha, 0);
}

// ---- GroupNormalizationPlugin ----------------------------------------------

static void onnx_import_trt_group_norm(rabbet_onnx_node_t* node) {
  Onnx__AttributeProto attr = ONNX__ATTRIBUTE_PROTO__INIT;
  attr.name = (char*)"epsilon";
  attr.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
  attr.has_f = true;
  attr.f = (float)rabbet_onnx_attr_float(node, "eps", 1e-5);
  if (!rabbet_onnx_has_attr(node, "epsilon")) onnx_trt_add_attr(node, attr);
  rabbet_onnx_import_as(node, "GroupNormalization", 21);
}

// ---- ROIAlign_TRT ----------------------------------------------------------

// Numbers in the place of names.
static void onnx_trt_name(rabbet_onnx_node_t* node, const char* name,
                          const char* const names[2]) {
  int64_t value = rabbet_onnx_attr_int(node, name, 1);
  if (rabbet_onnx_ok(node) && value != 0 && value != 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute '%s' is %lld; expected 0 or 1", name,
                     (long long)value);
  size_t kept = 0;
  for (size_t i = 0; i < node->attr_count; ++i)
    if (strcmp(node->attrs[i]->name, name) != 0)
      node->attrs[kept++] = node->attrs[i];
  node->attr_count = kept;
  onnx_trt_add_text(node, name, names[value != 0]);
}

static void onnx_import_trt_roi_align(rabbet_onnx_node_t* node) {
  static const char* const modes[] = {"max", "avg"};
  static const char* const places[] = {"output_half_pixel", "half_pixel"};
  onnx_trt_name(node, "mode", modes);
  onnx_trt_name(node, "coordinate_transformation_mode", places);
  rabbet_onnx_import_as(node, "RoiAlign", 16);
}

// ---- ScatterElements -------------------------------------------------------

static void onnx_import_trt_scatter(rabbet_onnx_node_t* node) {
  const char* reduction = rabbet_onnx_attr_string(node, "reduction", "none");
  if (!strcmp(reduction, "mean"))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "reduction is 'mean'; expected add, mul, min or max");
  rabbet_onnx_import_as(node, "ScatterElements", 18);
}

// ---- ModulatedDeformConv2d -------------------------------------------------

// Two numbers for height and width, as `attr` of DeformConv has them `times`
// times.
static void onnx_trt_pair(rabbet_onnx_node_t* node, const char* name,
                          int64_t fallback, const char* attr, size_t times) {
  int64_t values[4] = {fallback, fallback, fallback, fallback};
  rabbet_onnx_ints_t given = rabbet_onnx_attr_ints(node, name);
  if (rabbet_onnx_ok(node) && given.present && given.count != 2)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute '%s' has %zu numbers; expected 2", name,
                     given.count);
  for (size_t i = 0; rabbet_onnx_ok(node) && given.present && i < 4; ++i)
    values[i] = given.data[i % 2];
  onnx_trt_add_ints(node, attr, values, 2 * times);
}

// A number that one of two names has.
static void onnx_trt_either(rabbet_onnx_node_t* node, const char* name,
                            const char* other, const char* attr) {
  int64_t value = rabbet_onnx_attr_int(node, other, 1);
  value = rabbet_onnx_attr_int(node, name, value);
  if (strcmp(name, attr) != 0 || !rabbet_onnx_has_attr(node, name))
    onnx_trt_add_int(node, attr, value);
}

// Inputs: x, offset, mask, weight, bias.
static void onnx_import_trt_deform(rabbet_onnx_node_t* node) {
  static const size_t order[] = {0, 3, 1, 4, 2};  // those of DeformConv
  rabbet_tensor_t** inputs = NULL;
  for (size_t i = 0; i < 4; ++i)
    rabbet_onnx_required(node, i);
  onnx_trt_pair(node, "stride", 1, "strides", 1);
  onnx_trt_pair(node, "padding", 0, "pads", 2);
  onnx_trt_pair(node, "dilation", 1, "dilations", 1);
  onnx_trt_either(node, "group", "groups", "group");
  onnx_trt_either(node, "deformable_group", "deform_groups", "offset_group");
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(&node->importer->arena, 5,
                                        sizeof(*inputs), (void**)&inputs));
  if (!rabbet_onnx_ok(node)) return;
  for (size_t i = 0; i < 5; ++i)
    inputs[i] = rabbet_onnx_input(node, order[i]);
  node->inputs = inputs;
  node->input_count = 5;
  rabbet_onnx_import_as(node, "DeformConv", 19);
}

RABBET_ONNX_OPERATORS(trt_layers) = {
    RABBET_ONNX_PLUGIN_OP("", GroupNormalizationPlugin, trt_group_norm),
    RABBET_ONNX_PLUGIN_OP("TRT", GroupNormalizationPlugin, trt_group_norm),
    RABBET_ONNX_PLUGIN_OP("", InstanceNormalization_TRT, trt_instance_norm),
    RABBET_ONNX_PLUGIN_OP("TRT", InstanceNormalization_TRT, trt_instance_norm),
    RABBET_ONNX_PLUGIN_OP("mmcv", MMCVModulatedDeformConv2d, trt_deform),
    RABBET_ONNX_PLUGIN_OP("mmdeploy", MMCVModulatedDeformConv2d, trt_deform),
    RABBET_ONNX_PLUGIN_OP("", ModulatedDeformConv2d, trt_deform),
    RABBET_ONNX_PLUGIN_OP("TRT", ModulatedDeformConv2d, trt_deform),
    RABBET_ONNX_PLUGIN_OP("", ROIAlign_TRT, trt_roi_align),
    RABBET_ONNX_PLUGIN_OP("TRT", ROIAlign_TRT, trt_roi_align),
    RABBET_ONNX_PLUGIN_OP("TRT", ScatterElements, trt_scatter),
    {0},
};
