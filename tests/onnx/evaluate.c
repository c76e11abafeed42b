// onnx_evaluate MODEL [INPUTS OUTPUTS]
//
// Imports MODEL and prints its inputs and outputs, a line each: the word, the
// type's number, the rank, the dims, the name; then its layers. With INPUTS it
// also evaluates each layer in turn by its operator's reference kernel and
// writes the outputs.
//
// INPUTS and OUTPUTS hold tensors one after another: int32 type, int32 rank,
// int64 dims[rank], elements. They come in the order of the network's inputs
// and outputs. Exit code: 0 ok, 2 the import failed, 3 the evaluation failed;
// the message goes to stderr.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "network/network.h"
#include "ops/evaluate.h"
#include "rabbet/onnx.h"

static int failed(int code, rabbet_status_t status) {
  fprintf(stderr, "%s: %s\n",
          rabbet_status_code_name(rabbet_status_code(status)),
          rabbet_status_message(status));
  rabbet_status_free(status);
  return code;
}

static void print_tensor(const char* word, rabbet_tensor_t* tensor) {
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  rabbet_dims_t dims = {0};
  rabbet_status_ignore(rabbet_tensor_dtype(tensor, &dtype));
  rabbet_status_ignore(rabbet_tensor_dims(tensor, &dims));
  printf("%s %d %d", word, (int)dtype, dims.rank);
  for (int i = 0; i < dims.rank; ++i) {
    printf(" %lld", (long long)dims.d[i]);
  }
  printf(" %s\n", rabbet_tensor_name(tensor));
}

static void print_network(const rabbet_network_t* network) {
  for (size_t i = 0; i < rabbet_network_input_count(network); ++i) {
    print_tensor("input", rabbet_network_input(network, i));
  }
  for (size_t i = 0; i < rabbet_network_output_count(network); ++i) {
    print_tensor("output", rabbet_network_output(network, i));
  }
  for (size_t i = 0; i < rabbet_network_layer_count(network); ++i) {
    const rabbet_layer_t* layer = rabbet_network_layer(network, i);
    printf("layer %s %s\n", rabbet_layer_op(layer), rabbet_layer_name(layer));
  }
}

// ---- Tensors in files ------------------------------------------------------

static rabbet_status_t read_tensor(FILE* file, rabbet_view_t* out_view) {
  int32_t head[2];
  size_t bytes = 0;
  if (fread(head, sizeof(head), 1, file) != 1 || head[1] < 0 ||
      head[1] > RABBET_MAX_RANK) {
    return RABBET_STATUS(RABBET_STATUS_IO, "too few inputs are given");
  }
  out_view->dtype = (rabbet_dtype_t)head[0];
  out_view->dims.rank = head[1];
  size_t rank = (size_t)head[1];
  if (fread(out_view->dims.d, sizeof(int64_t), rank, file) != rank) {
    return RABBET_STATUS(RABBET_STATUS_IO, "an input is cut short");
  }
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
      out_view->dtype, RABBET_FORMAT_LINEAR, &out_view->dims, &bytes));
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(
      rabbet_allocator_system(), bytes + 64, 64, &out_view->data));
  if (fread(out_view->data, 1, bytes, file) != bytes) {
    return RABBET_STATUS(RABBET_STATUS_IO, "an input is cut short");
  }
  return rabbet_ok();
}

static rabbet_status_t write_tensor(FILE* file, const rabbet_view_t* view) {
  int32_t head[2] = {view->dtype, view->dims.rank};
  size_t bytes = 0, rank = (size_t)view->dims.rank;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(view->dtype, RABBET_FORMAT_LINEAR,
                                             &view->dims, &bytes));
  if (fwrite(head, sizeof(head), 1, file) != 1 ||
      fwrite(view->dims.d, sizeof(int64_t), rank, file) != rank ||
      fwrite(view->data, 1, bytes, file) != bytes) {
    return RABBET_STATUS(RABBET_STATUS_IO, "cannot write an output");
  }
  return rabbet_ok();
}

// ---- Layers ----------------------------------------------------------------

// A conditional's input, or that of its output which the condition chooses.
static rabbet_status_t evaluate_conditional(const rabbet_layer_t* layer,
                                            rabbet_view_t* values) {
  const rabbet_layer_t* condition =
      rabbet_conditional_condition(layer->conditional);
  const bool* holds = values[condition->inputs[0]->id].data;
  size_t side = layer->input_count > 1 && !*holds;
  return rabbet_op_evaluate(
      "identity", NULL, 0, &values[layer->inputs[side]->id], 1,
      rabbet_allocator_system(), &values[layer->outputs[0]->id]);
}

static rabbet_status_t evaluate_layer(const rabbet_layer_t* layer,
                                      rabbet_view_t* values) {
  rabbet_view_t inputs[64];
  // An assertion or a condition.
  if (layer->output_count == 0) return rabbet_ok();
  if (layer->conditional) return evaluate_conditional(layer, values);
  if (layer->input_count > 64) {
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "over 64 inputs");
  }
  for (size_t i = 0; i < layer->input_count; ++i) {
    const rabbet_tensor_t* tensor = layer->inputs[i];
    inputs[i] = tensor ? values[tensor->id]
                       : (rabbet_view_t){.dtype = RABBET_DTYPE_NONE};
  }
  rabbet_view_t outputs[8];
  RABBET_RETURN_IF_ERROR(rabbet_op_evaluate(
      layer->op->name, layer->attrs, layer->op->attr_count, inputs,
      layer->input_count, rabbet_allocator_system(), outputs));
  for (size_t i = 0; i < layer->output_count; ++i) {
    values[layer->outputs[i]->id] = outputs[i];
  }
  return rabbet_ok();
}

static rabbet_status_t evaluate(const rabbet_network_t* network, FILE* in,
                                FILE* out, rabbet_view_t* values) {
  for (size_t i = 0; i < network->tensors.count; ++i) {
    const rabbet_tensor_t* tensor = network->tensors.data[i];
    if (tensor->kind != RABBET_TENSOR_WEIGHTS) continue;
    values[i] = (rabbet_view_t){.data = (void*)(uintptr_t)tensor->constant,
                                .dtype = tensor->dtype,
                                .dims = tensor->given_dims};
  }
  for (size_t i = 0; i < network->inputs.count; ++i) {
    RABBET_RETURN_IF_ERROR(
        read_tensor(in, &values[network->inputs.data[i]->id]));
  }
  for (size_t i = 0; i < network->layers.count; ++i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    rabbet_status_t status = evaluate_layer(layer, values);
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(status, "layer '%s'", layer->name));
  }
  for (size_t i = 0; i < network->outputs.count; ++i) {
    RABBET_RETURN_IF_ERROR(
        write_tensor(out, &values[network->outputs.data[i]->id]));
  }
  return rabbet_ok();
}

static int run(const rabbet_network_t* network, const char* in_path,
               const char* out_path) {
  FILE* in = fopen(in_path, "rb");
  FILE* out = fopen(out_path, "wb");
  rabbet_view_t* values = calloc(network->tensors.count + 1, sizeof(*values));
  rabbet_status_t status =
      in && out && values
          ? evaluate(network, in, out, values)
          : RABBET_STATUS(RABBET_STATUS_IO, "cannot open '%s' or '%s'", in_path,
                          out_path);
  for (size_t i = 0; values && i < network->tensors.count; ++i) {
    if (network->tensors.data[i]->kind == RABBET_TENSOR_WEIGHTS) continue;
    rabbet_free_aligned(rabbet_allocator_system(), values[i].data, 64);
  }
  free(values);
  if (in) fclose(in);
  if (out && fclose(out) != 0 && rabbet_is_ok(status)) {
    status = RABBET_STATUS(RABBET_STATUS_IO, "cannot write '%s'", out_path);
  }
  return rabbet_is_ok(status) ? 0 : failed(3, status);
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    fprintf(stderr, "usage: onnx_evaluate MODEL [INPUTS OUTPUTS]\n");
    return 1;
  }
  rabbet_network_t* network = NULL;
  rabbet_status_t status = rabbet_network_create(
      RABBET_NETWORK_STRONGLY_TYPED, rabbet_allocator_system(),
      rabbet_logger_stderr(RABBET_SEVERITY_WARNING), &network);
  if (rabbet_is_ok(status)) {
    status = rabbet_onnx_import_file(network, argv[1], NULL, NULL);
  }
  if (rabbet_is_ok(status)) status = rabbet_network_validate(network);
  int code = 0;
  if (!rabbet_is_ok(status)) {
    code = failed(2, status);
  } else {
    print_network(network);
    if (argc == 4) code = run(network, argv[2], argv[3]);
  }
  rabbet_network_release(network);
  return code;
}
