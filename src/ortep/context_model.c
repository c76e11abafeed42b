#include "ortep/context_model.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/strbuf.h"
#include "ortep/write.h"

#define CONTEXT_OP "EPContext"
#define CONTEXT_DOMAIN "com.microsoft"

// ---- Attributes

// NULL: the node has none. The caller frees.
static rabbet_status_t context_read(const OrtNode* node, const char* name,
                                    OrtOpAttrType type, void** out_data,
                                    size_t* out_size) {
  const OrtOpAttr* attribute = NULL;
  OrtOpAttrType found = ORT_OP_ATTR_UNDEFINED;
  *out_data = NULL;
  *out_size = 0;
  RABBET_RETURN_IF_ERROR(ORT(Node_GetAttributeByName, node, name, &attribute));
  if (!attribute) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(ORT(OpAttr_GetType, attribute, &found));
  if (found != type)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "attribute '%s' has another kind than expected", name);
  return rabbet_ort_read_attribute(attribute, type, out_data, out_size);
}

bool rabbet_ort_is_context(const rabbet_ort_node_t* node) {
  void* source = NULL;
  size_t size = 0;
  if (strcmp(node->op_type, CONTEXT_OP) != 0 ||
      strcmp(node->domain, CONTEXT_DOMAIN) != 0)
    return false;
  // A node that does not say whose it is belongs to nobody.
  rabbet_status_ignore(
      context_read(node->node, "source", ORT_OP_ATTR_STRING, &source, &size));
  const bool is_ours = source && size == strlen(RABBET_ORT_EP_NAME) &&
                       memcmp(source, RABBET_ORT_EP_NAME, size) == 0;
  rabbet_free(rabbet_allocator_system(), source);
  return is_ours;
}

// ---- Files beside the model

// The folder of a path, with a slash, or "".
static int context_folder(const char* path, const char** out_folder) {
  const char* slash = path ? strrchr(path, '/') : NULL;
  *out_folder = path ? path : "";
  return slash ? (int)(slash - path + 1) : 0;
}

// A name leads to no other folder.
static rabbet_status_t context_check_name(const char* name) {
  bool is_beside = name[0] && name[0] != '/';
  for (const char* at = name; at; at = strchr(at, '/')) {
    at += at[0] == '/';
    if (strncmp(at, "..", 2) == 0 && (!at[2] || at[2] == '/'))
      is_beside = false;
  }
  if (is_beside) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "the plan's file '%.200s' is not beside the model",
                       name);
}

// ---- Loading

static rabbet_status_t context_load_bytes(rabbet_ort_session_t* session,
                                          const OrtGraph* graph,
                                          const OrtNode* node, bool is_embedded,
                                          const char* cache, size_t size,
                                          rabbet_ort_part_t** out_part) {
  const char *model = NULL, *folder = NULL;
  char path[4096];
  if (is_embedded)
    return rabbet_ort_part_load(session, node, cache, size, NULL, out_part);
  RABBET_RETURN_IF_ERROR(context_check_name(cache));
  RABBET_RETURN_IF_ERROR(ORT(Graph_GetModelPath, graph, &model));
  // A model from memory: ONNX Runtime's option says where it would be.
  if (!model || !model[0]) model = session->options.context_file;
  const int length = context_folder(model, &folder);
  snprintf(path, sizeof(path), "%.*s%s", length, folder, cache);
  return rabbet_ort_part_load(session, node, NULL, 0, path, out_part);
}

rabbet_status_t rabbet_ort_context_load(rabbet_ort_session_t* session,
                                        const OrtGraph* graph,
                                        const OrtNode* node,
                                        rabbet_ort_part_t** out_part) {
  const rabbet_allocator_t allocator = rabbet_allocator_system();
  void *embed = NULL, *cache = NULL;
  const char* name = NULL;
  size_t size = 0;
  *out_part = NULL;
  RABBET_RETURN_IF_ERROR(ORT(Node_GetName, node, &name));
  rabbet_status_t status =
      context_read(node, "embed_mode", ORT_OP_ATTR_INT, &embed, &size);
  const bool is_embedded = !embed || *(const int64_t*)embed == 1;
  if (rabbet_is_ok(status))
    status = context_read(node, "ep_cache_context", ORT_OP_ATTR_STRING, &cache,
                          &size);
  if (rabbet_is_ok(status) && !cache)
    status = RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                           "it has no attribute 'ep_cache_context'");
  if (rabbet_is_ok(status))
    status = context_load_bytes(session, graph, node, is_embedded, cache, size,
                                out_part);
  rabbet_free(allocator, embed);
  rabbet_free(allocator, cache);
  return RABBET_ANNOTATE(status, "plan of node '%s'", name);
}

// ---- Making

enum { CONTEXT_ATTRIBUTES = 6 };

static rabbet_status_t context_add(OrtOpAttr** attributes, size_t* count,
                                   const char* name, const void* data,
                                   size_t size, OrtOpAttrType type) {
  if (size > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "a plan of %zu bytes does not fit into a model; set "
                         "ep.context_embed_mode=0",
                         size);
  RABBET_RETURN_IF_ERROR(
      ORT(CreateOpAttr, name, data, (int)size, type, &attributes[*count]));
  ++*count;
  return rabbet_ok();
}

static rabbet_status_t context_add_text(OrtOpAttr** attributes, size_t* count,
                                        const char* name, const char* text) {
  return context_add(attributes, count, name, text, strlen(text),
                     ORT_OP_ATTR_STRING);
}

// Writes the plan beside the model that will refer to it. The model's name is a
// part of the file's: ONNX Runtime gives nodes of several models one name.
static rabbet_status_t context_write(const rabbet_ort_session_t* session,
                                     const char* model_path, const char* node,
                                     const void* plan, size_t size,
                                     char* out_name, size_t capacity) {
  const char* file = session->options.context_file;
  const char* folder = NULL;
  const char* beside = file[0] ? file : model_path;
  const rabbet_span_t span = {plan, size};
  char path[4096];
  const int length = context_folder(beside, &folder);
  const char* stem = folder + length;
  const char* dot = strrchr(stem, '.');
  const int stem_length = (int)(dot ? (size_t)(dot - stem) : strlen(stem));
  const int printed =
      snprintf(out_name, capacity, "%.*s_%s.plan", stem_length, stem, node);
  if (printed < 0 || (size_t)printed >= capacity)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the name '%.*s_%s.plan' is too long", stem_length,
                         stem, node);
  for (char* at = out_name; *at; ++at)
    if (*at == '/') *at = '_';
  RABBET_RETURN_IF_ERROR(context_check_name(out_name));
  snprintf(path, sizeof(path), "%.*s%s", length, folder, out_name);
  return rabbet_file_write(path, &span, 1);
}

static rabbet_status_t context_fill(const rabbet_ort_session_t* session,
                                    const char* model_path, const char* node,
                                    rabbet_ort_part_t* part,
                                    OrtOpAttr** attributes, size_t* count) {
  const int64_t one = 1, embed = session->options.context_embed;
  const void* plan = NULL;
  size_t size = 0;
  char name[512];
  RABBET_RETURN_IF_ERROR(rabbet_ort_part_plan(part, &plan, &size));
  RABBET_RETURN_IF_ERROR(
      context_add(attributes, count, "main_context", &one, 1, ORT_OP_ATTR_INT));
  RABBET_RETURN_IF_ERROR(
      context_add(attributes, count, "embed_mode", &embed, 1, ORT_OP_ATTR_INT));
  RABBET_RETURN_IF_ERROR(
      context_add_text(attributes, count, "source", RABBET_ORT_EP_NAME));
  RABBET_RETURN_IF_ERROR(
      context_add_text(attributes, count, "ep_sdk_version", rabbet_version()));
  RABBET_RETURN_IF_ERROR(
      context_add_text(attributes, count, "partition_name", node));
  if (embed)
    return context_add(attributes, count, "ep_cache_context", plan, size,
                       ORT_OP_ATTR_STRING);
  RABBET_RETURN_IF_ERROR(
      context_write(session, model_path, node, plan, size, name, sizeof(name)));
  return context_add_text(attributes, count, "ep_cache_context", name);
}

static rabbet_status_t context_names(const OrtNode* node, bool is_input,
                                     rabbet_arena_t* arena,
                                     const char*** out_names,
                                     size_t* out_count) {
  const OrtValueInfo** infos = NULL;
  RABBET_RETURN_IF_ERROR(is_input ? ORT(Node_GetNumInputs, node, out_count)
                                  : ORT(Node_GetNumOutputs, node, out_count));
  const size_t count = *out_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*infos), (void**)&infos));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(**out_names), (void**)out_names));
  if (!count) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(is_input ? ORT(Node_GetInputs, node, infos, count)
                                  : ORT(Node_GetOutputs, node, infos, count));
  for (size_t i = 0; i < count; ++i) {
    (*out_names)[i] = "";
    if (infos[i])
      RABBET_RETURN_IF_ERROR(ORT(GetValueInfoName, infos[i], &(*out_names)[i]));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_ort_context_node(const rabbet_ort_session_t* session,
                                        const char* model_path,
                                        const OrtNode* node,
                                        rabbet_ort_part_t* part,
                                        OrtNode** out_node) {
  OrtOpAttr* attributes[CONTEXT_ATTRIBUTES] = {0};
  const char **inputs = NULL, **outputs = NULL, *name = NULL;
  size_t attribute_count = 0, input_count = 0, output_count = 0;
  rabbet_arena_t arena;
  RABBET_RETURN_IF_ERROR(ORT(Node_GetName, node, &name));
  rabbet_arena_initialize(session->allocator, &arena);
  rabbet_status_t status =
      context_names(node, true, &arena, &inputs, &input_count);
  if (rabbet_is_ok(status))
    status = context_names(node, false, &arena, &outputs, &output_count);
  if (rabbet_is_ok(status))
    status = context_fill(session, model_path, name, part, attributes,
                          &attribute_count);
  if (rabbet_is_ok(status)) {
    const size_t count = attribute_count;
    attribute_count = 0;  // they are taken
    status = rabbet_ort_status(rabbet_ort.editor->CreateNode(
        CONTEXT_OP, CONTEXT_DOMAIN, name, inputs, input_count, outputs,
        output_count, attributes, count, out_node));
  }
  for (size_t i = 0; i < attribute_count; ++i)
    rabbet_ort.api->ReleaseOpAttr(attributes[i]);
  rabbet_arena_deinitialize(&arena);
  return status;
}
