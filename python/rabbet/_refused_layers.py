"""Layers of TensorRT that networks here refuse: their classes exist, so that scripts
which name them run, and INetworkDefinition.add_... says why there are none."""

from __future__ import annotations

from typing import Any

from ._layers import ILayer
from ._managed import refuse_class, refused, refused_property

_ATTENTION = "an attention has no layers at its boundary: it is products and a softmax"
_EXPERTS = "there is no such operator: write a plugin"
_DEVICES = "a plan runs on one device"


@refuse_class(_ATTENTION)
class IAttentionBoundaryLayer(ILayer):
    """Refused: see attention above."""

    __slots__ = ()
    attention = refused_property("attention", _ATTENTION)


@refuse_class(_ATTENTION)
class IAttentionInputLayer(IAttentionBoundaryLayer):
    """Refused: see attention above."""

    __slots__ = ()


@refuse_class(_ATTENTION)
class IAttentionOutputLayer(IAttentionBoundaryLayer):
    """Refused: see attention above."""

    __slots__ = ()


@refuse_class(_EXPERTS)
class IMoELayer(ILayer):
    """Refused: see experts above."""

    __slots__ = ()
    activation_type = refused_property("activation_type", _EXPERTS)
    quantization_to_type = refused_property("quantization_to_type", _EXPERTS)
    quantization_block_shape = refused_property("quantization_block_shape", _EXPERTS)
    dyn_q_output_scale_type = refused_property("dyn_q_output_scale_type", _EXPERTS)
    swiglu_param_limit = refused_property("swiglu_param_limit", _EXPERTS)
    swiglu_param_alpha = refused_property("swiglu_param_alpha", _EXPERTS)
    swiglu_param_beta = refused_property("swiglu_param_beta", _EXPERTS)

    @refused(_EXPERTS)
    def set_gated_weights(
        self,
        fc_gate_weights: Any,
        fc_up_weights: Any,
        fc_down_weights: Any,
        activation_type: Any,
    ) -> Any:
        """Refused."""

    @refused(_EXPERTS)
    def set_gated_biases(
        self, fc_gate_biases: Any, fc_up_biases: Any, fc_down_biases: Any
    ) -> Any:
        """Refused."""

    @refused(_EXPERTS)
    def set_quantization_static(
        self, fc_down_activation_scale: Any, data_type: Any
    ) -> Any:
        """Refused."""

    @refused(_EXPERTS)
    def set_quantization_dynamic_dbl_q(
        self,
        fc_down_activation_dbl_q_scale: Any,
        data_type: Any,
        block_shape: Any,
        dyn_q_output_scale_type: Any,
    ) -> Any:
        """Refused."""

    @refused(_EXPERTS)
    def set_swiglu_params(self, limit: Any, alpha: Any, beta: Any) -> Any:
        """Refused."""

    @refused(_EXPERTS)
    def set_input(self, index: Any, tensor: Any) -> Any:
        """Refused."""


@refuse_class(_DEVICES)
class IDistCollectiveLayer(ILayer):
    """Refused: see devices above."""

    __slots__ = ()


class RefusedLayers:
    """The methods of INetworkDefinition that add them."""

    __slots__ = ()

    @refused(_EXPERTS)
    def add_moe(
        self,
        hidden_states: Any,
        selected_experts_for_tokens: Any,
        scores_for_selected_experts: Any,
    ) -> Any:
        """Refused."""

    @refused(_DEVICES)
    def add_dist_collective(
        self,
        input: Any,
        dist_collective_op: Any,
        reduce_op: Any,
        root: Any,
        groups: Any,
    ) -> Any:
        """Refused."""
