"""Classes for what TensorRT keeps for old scripts and Rabbet refuses: they exist, so
that scripts which only derive from them run; using them is an error that says why."""

from __future__ import annotations

from typing import Any

from ._managed import refuse_class, refused, refused_property

_SELECTION = "tactics are chosen by time; edit a timing cache to choose otherwise"


@refuse_class(_SELECTION)
class IAlgorithmSelector:
    """Chooses tactics in TensorRT."""

    def __init__(self) -> None:
        pass

    @refused(_SELECTION)
    def select_algorithms(self, context: Any, choices: Any) -> list[int]:  # type: ignore[empty-body]
        """To be overridden."""

    @refused(_SELECTION)
    def report_algorithms(self, contexts: Any, choices: Any) -> None:
        """To be overridden."""


def _told(name: str) -> property:
    return refused_property(name, _SELECTION)


@refuse_class(_SELECTION)
class IAlgorithmIOInfo:
    """A tensor of a tactic."""

    dtype = _told("dtype")
    strides = _told("strides")
    vectorized_dim = _told("vectorized_dim")
    components_per_element = _told("components_per_element")


@refuse_class(_SELECTION)
class IAlgorithmVariant:
    """A tactic."""

    implementation = _told("implementation")
    tactic = _told("tactic")


@refuse_class(_SELECTION)
class IAlgorithmContext:
    """A layer whose tactic is chosen."""

    name = _told("name")
    num_inputs = _told("num_inputs")
    num_outputs = _told("num_outputs")

    @refused(_SELECTION)
    def get_shape(self, index: int) -> Any:
        """Shapes of a tensor."""


@refuse_class(_SELECTION)
class IAlgorithm:
    """A tactic with its time."""

    algorithm_variant = _told("algorithm_variant")
    timing_msec = _told("timing_msec")
    workspace_size = _told("workspace_size")

    @refused(_SELECTION)
    def get_algorithm_io_info(self, index: int) -> Any:
        """A tensor of the tactic."""
