"""What models split over ranks have in common."""

from __future__ import annotations

import operator
import os
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from .._build import _network_of, build_model
from .._builder import Builder
from .._callbacks import ILogger, Logger
from .._enums import Severity
from .._errors import InvalidArgumentError


class Split(ABC):
    """A model split over ranks: a network for each, and what was decided."""

    # The decisions: print it, or see its attributes.
    report: Any

    def __init__(self, ranks: int, builder: Any) -> None:
        self.ranks = ranks
        self._builder = builder  # networks are its own

    def __str__(self) -> str:
        return str(self.report)

    def network(self, rank: int) -> Any:
        """The network of a rank, for rabbet.compile or a Builder."""
        return self._network(self._rank(rank))

    def compile(self, rank: int, **options: Any) -> Any:
        """The model of a rank, as rabbet.compile makes it. `shapes`, `values` and
        `profiles` are those of the whole model. On a GPU; it runs once it has a
        communicator."""
        network = self.network(rank)
        return build_model(network, **self._local(options, rank))

    def save(self, path: Any, **options: Any) -> list[Path]:
        """Writes a plan for each rank, PATH.0 to PATH.(ranks - 1), one after the other.
        Takes the options of rabbet.compile. What ranks have alike is timed once."""
        if "save" in options:
            raise TypeError(
                "save: the plans are written to PATH.0, ...; save= is not taken"
            )
        made = [Path(f"{os.fspath(path)}.{rank}") for rank in range(self.ranks)]
        with tempfile.TemporaryDirectory() as folder:
            options.setdefault("timing_cache", Path(folder) / "times")
            for rank, file in enumerate(made):
                self.compile(rank, save=file, **options)
        return made

    @abstractmethod
    def emulation(self) -> Any:
        """One network with all ranks' arithmetic, for one device: its inputs and outputs
        are the model's. For checks of results without several GPUs."""

    @abstractmethod
    def parts(self) -> dict[str, tuple[int, list[int]]]:
        """Inputs and outputs of which each rank has a part: (axis that is split, shape
        of a rank's part, -1 where it is open)."""

    @abstractmethod
    def _network(self, rank: int) -> Any: ...

    @abstractmethod
    def _local_inputs(self, given: Any, rank: int, are_shapes: bool) -> Any:
        """What options have for inputs of the model, for those of a rank."""

    def _rank(self, rank: int) -> int:
        if not 0 <= operator.index(rank) < self.ranks:
            raise InvalidArgumentError(
                f"rank is {rank}; expected 0 to {self.ranks - 1}"
            )
        return operator.index(rank)

    def _local(self, options: dict[str, Any], rank: int = 0) -> dict[str, Any]:
        """Options for a rank's inputs."""
        made = dict(options)
        for name in ("shapes", "values"):
            if made.get(name):
                made[name] = self._local_inputs(made[name], rank, name == "shapes")
        if made.get("profiles"):
            made["profiles"] = [
                self._local_inputs(each, rank, True) for each in made["profiles"]
            ]
        return made


def network_of(model: Any, logger: ILogger | None) -> tuple[Any, Any]:
    """(network, its builder) of a model."""
    builder = Builder(logger or Logger(Severity.WARNING))
    return _network_of(builder, model, builder._logger, False, []), builder


def ranks_of(ranks: int) -> int:
    """A number of ranks that is one."""
    ranks = operator.index(ranks)
    if ranks < 2:
        raise InvalidArgumentError(f"ranks is {ranks}; expected 2 or more")
    return ranks
