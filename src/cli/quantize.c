// rabbet quantize: written in Python, as rabbet.quantize() is. This file has
// its options alone.
#include "cli/cli.h"

static rabbet_status_t quantize_run(const rabbet_arguments_t* arguments) {
  return rabbet_cli_run_in_python("quantize", arguments);
}

static const rabbet_option_t quantize_options[] = {
    {"--output", RABBET_OPTION_VALUE, "FILE.onnx",
     "the quantized model (-o; default: MODEL.int8.onnx and so on)"},
    {"--calibration", RABBET_OPTION_VALUE, "FILE.npz",
     "samples of the inputs by name, along the first axis; or a folder"},
    {"--int8", RABBET_OPTION_FLAG, NULL,
     "weights and activations of 8 bits (default)"},
    {"--fp8", RABBET_OPTION_FLAG, NULL, "the same in floats, E4M3"},
    {"--int4", RABBET_OPTION_FLAG, NULL,
     "weights alone, of MatMul and Gemm; needs no samples"},
    {"--max-error", RABBET_OPTION_VALUE, "SHARE",
     "of the outputs; layers are left in floating point until it holds "
     "(default 0.1; --int4: 0.3)"},
    {"--include", RABBET_OPTION_LIST, "NAME",
     "quantize these layers or operators alone; * is any text"},
    {"--exclude", RABBET_OPTION_LIST, "NAME", "leave these"},
    {"--method", RABBET_OPTION_VALUE, "mse|max|percentile|entropy",
     "how ranges of activations are found (default mse)"},
    {"--block-size", RABBET_OPTION_VALUE, "N",
     "of --int4 (default 128 where 2048 elements or more are summed, else 32)"},
    {"--samples", RABBET_OPTION_VALUE, "N", "use at most so many"},
    {"--external-data", RABBET_OPTION_FLAG, NULL,
     "write weights to OUTPUT.data, as above 2 GiB"},
    {"--plugins", RABBET_OPTION_LIST, "FILE...",
     "load operators from a .py or .so"},
    {"--device", RABBET_OPTION_VALUE, "DEVICE",
     "run the samples there: cpu or cuda[:N]"},
    {"--threads", RABBET_OPTION_VALUE, "N", "CPU threads"},
    {"--json", RABBET_OPTION_FLAG, NULL, "print the table as JSON"},
    {"--quiet", RABBET_OPTION_FLAG, NULL, "print nothing"},
    {"--verbose", RABBET_OPTION_FLAG, NULL, "print each step"},
};

const rabbet_command_t rabbet_command_quantize = {
    .name = "quantize",
    .operands = "MODEL.onnx",
    .summary = "write a model with 8 or 4 bits, and a table of the errors",
    .notes =
        "Runs in $RABBET_PYTHON (default: the python3 beside this command, or "
        "on PATH), which\nneeds the package rabbet. `rabbet build` takes the "
        "model that it writes.\n",
    .options = quantize_options,
    .option_count = sizeof(quantize_options) / sizeof(quantize_options[0]),
    .min_operands = 1,
    .max_operands = 1,
    .run = quantize_run,
};
