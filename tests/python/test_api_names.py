"""The names that scripts written for TensorRT 10.16 use (api_names.txt: class, then
members): what is missing is known, and only that."""

from __future__ import annotations

from pathlib import Path

import pytest
import rabbet as trt

# What later versions bring; a name that is there must be taken away here.
NOT_YET = """
Builder:
  get_plugin_registry gpu_allocator max_threads
IBuilderConfig:
  algorithm_selector can_run_on_DLA clear_quantization_flag default_device_type
  get_calibration_profile get_device_type get_quantization_flag get_tactic_sources
  int8_calibrator is_device_type_set l2_limit_for_tiling plugins_to_serialize
  remote_auto_tuning_config reset reset_device_type set_calibration_profile
  set_device_type set_quantization_flag set_tactic_sources
ICudaEngine:
  create_execution_context_without_device_memory create_runtime_config
  create_serialization_config get_engine_stat get_tensor_components_per_element
  get_tensor_vectorized_dim get_weight_streaming_automatic_budget is_debug_tensor
  minimum_weight_streaming_budget profiling_verbosity serialize_with_config
  tactic_sources weight_streaming_budget weight_streaming_budget_v2
  weight_streaming_scratch_memory_size
IExecutionContext:
  device_memory get_debug_listener get_debug_state get_input_consumed_event
  get_runtime_config nvtx_verbosity set_all_tensors_debug_state set_aux_streams
  set_communicator set_debug_listener set_device_memory set_input_consumed_event
  set_tensor_debug_state temporary_allocator unfused_tensors_debug_state
  update_device_memory_size_for_shapes
ILayer:
  num_ranks output_type_is_set reset_output_type
INetworkDefinition:
  add_assertion add_attention add_cumulative
  add_dist_collective add_dynamic_quantize add_dynamic_quantize_v2 add_einsum
  add_fill add_grid_sample add_if_conditional add_kv_cache_update add_loop add_lrn
  add_moe add_nms add_non_zero add_one_hot add_padding_nd add_parametric_relu
  add_plugin_v2 add_plugin_v3 add_ragged_softmax add_resize
  add_reverse_sequence add_rotary_embedding add_scale add_scale_nd add_scatter
  add_squeeze add_topk add_unsqueeze are_weights_marked_refittable is_debug_tensor
  mark_debug mark_output_for_shapes mark_unfused_tensors_as_debug_tensors
  mark_weights_refittable set_weights_name unmark_debug unmark_output_for_shapes
  unmark_unfused_tensors_as_debug_tensors unmark_weights_refittable
INormalizationLayer:
  compute_precision
IPluginV3Layer:
  plugin
ITensor:
  dynamic_range reset_dynamic_range set_dynamic_range
ITimingCache:
  query queryKeys reset update
OnnxParser:
  get_layer_output_tensor get_subgraph_nodes get_used_vc_plugin_libraries
  is_subgraph_supported load_initializer load_model_proto num_subgraphs
  parse_model_proto parse_with_weight_descriptors set_builder_config supports_model
  supports_model_v2
ParserError:
  local_function_stack local_function_stack_size
Runtime:
  get_plugin_registry gpu_allocator load_runtime max_threads tempfile_control_flags
  temporary_directory
"""
# Set by __init__, so not seen in the class.
INSTANCE = {
    "EngineInspector.execution_context",
    "Logger.min_severity",
    "OnnxParser.flags",
    "Runtime.engine_host_code_allowed",
}


def parse(text: str) -> dict[str, list[str]]:
    """Members by class."""
    table: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.endswith(":"):
            name = line[:-1]
            table[name] = []
        else:
            table.get(name, []).extend(line.split())
    return table


NAMES = parse(Path(__file__).with_name("api_names.txt").read_text())


def test_the_list_is_there() -> None:
    assert sum(map(len, NAMES.values())) > 700
    assert set(parse(NOT_YET)) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    kind = getattr(trt, name)
    missing = {
        member
        for member in NAMES[name]
        if not hasattr(kind, member) and f"{name}.{member}" not in INSTANCE
    }
    assert missing == set(parse(NOT_YET).get(name, []))


def test_what_a_constructor_sets() -> None:
    assert trt.Logger().min_severity is trt.Logger.WARNING
    assert trt.Runtime(trt.Logger()).engine_host_code_allowed is False
    network = trt.Builder().create_network()
    assert trt.OnnxParser(network, trt.Logger()).flags == 0


def test_with_statements() -> None:
    with (
        trt.Logger() as logger,
        trt.Builder(logger) as builder,
        builder.create_network() as network,
        builder.create_builder_config() as config,
    ):
        config.device = "cpu"
        x = network.add_input("x", trt.float32, (1,))
        network.mark_output(network.add_identity(x).get_output(0))
        with (
            builder.build_engine_with_config(network, config) as engine,
            engine.create_execution_context() as context,
        ):
            assert context.all_shape_inputs_specified
            assert engine.refittable is False


def test_options_that_have_one_value() -> None:
    config = trt.Builder().create_builder_config()
    config.engine_capability = trt.EngineCapability.STANDARD
    with pytest.raises(ValueError, match="DLA_core is -1 here, and cannot be 0"):
        config.DLA_core = 0
    with pytest.raises(ValueError, match="hardware_compatibility_level"):
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
