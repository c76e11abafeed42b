"""Error recorders hear of what is raised, in the objects made from theirs too."""

import numpy as np
import pytest
import rabbet as trt


def network_of(builder: trt.Builder) -> trt.INetworkDefinition:
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    network.mark_output(network.add_activation(x, trt.ActivationType.RELU).get_output(0))
    return network


def test_failed_build_is_recorded() -> None:
    builder = trt.Builder()
    builder.error_recorder = trt.IErrorRecorder()
    with pytest.raises(trt.Error) as raised:
        builder.build_serialized_network(
            builder.create_network(), builder.create_builder_config()
        )
    recorder = builder.error_recorder
    assert recorder.num_errors() == 1
    assert recorder.get_error_desc(0) == str(raised.value)
    assert recorder.get_error_code(0) is not trt.ErrorCodeTRT.SUCCESS
    recorder.clear()
    assert recorder.num_errors() == 0


def test_engines_and_contexts_inherit_the_runtimes() -> None:
    builder = trt.Builder()
    plan = builder.build_serialized_network(
        network_of(builder), builder.create_builder_config()
    )
    runtime = trt.Runtime()
    runtime.error_recorder = recorder = trt.IErrorRecorder()
    engine = runtime.deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    assert context.error_recorder is recorder
    with pytest.raises(trt.Error):
        context.set_input_shape("x", (5, 3))
    with pytest.raises(trt.Error):
        context.execute_async_v3(0)
    assert recorder.num_errors() == 2
    with pytest.raises(trt.Error):
        runtime.deserialize_cuda_engine(b"no plan" * 100)
    assert recorder.num_errors() == 3


def test_own_recorders_are_called() -> None:
    heard = []

    class Recorder(trt.IErrorRecorder):
        def report_error(self, val: trt.ErrorCodeTRT, desc: str) -> bool:
            heard.append((val, desc))
            return True

    runtime = trt.Runtime()
    runtime.error_recorder = Recorder()
    with pytest.raises(trt.Error):
        runtime.deserialize_cuda_engine(np.zeros(64, np.uint8))
    assert len(heard) == 1
    assert heard[0][0] is trt.ErrorCodeTRT.INVALID_ARGUMENT
