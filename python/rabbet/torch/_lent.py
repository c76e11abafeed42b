"""Memory of torch's that engines read their constants from."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import torch

from .._model import Model
from ._watched import Watched

# A constant of fewer bytes is read from the plan; the engine has the same limit.
LEAST = 1 << 16


class LentModel:
    """A model whose engine reads parameters in torch's memory, as long as that holds what
    the model was compiled with. When a parameter was changed in place, has other memory or
    is gone, the next call has an engine that reads the plan."""

    def __init__(self, model: Model, tensors: Iterable[torch.Tensor] = ()) -> None:
        self._model = model
        # An engine that was lent nothing has all in its plan.
        kept = tensors if model.engine._lent else ()
        self._lent = [Watched(each) for each in kept]
        self._lock = threading.Lock()

    def model(self) -> Model:
        """The model, whose constants are those that were compiled."""
        if self._is_stale():
            with self._lock:
                if self._lent and self._is_stale():
                    self._model = self._model._detached()
                    self._lent = []
        return self._model

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles read the plan alone."""
        model = self.model()
        return LentModel, (model._detached() if model.engine._lent else model,)

    def _is_stale(self) -> bool:
        return not all(each.is_same() for each in self._lent)
