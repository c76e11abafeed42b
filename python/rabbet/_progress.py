"""Progress of a build, as a bar or by a user's function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ._callbacks import IProgressMonitor


class _Bar(IProgressMonitor):
    """A bar for each phase, by tqdm."""

    def __init__(self, tqdm: Any) -> None:
        super().__init__()
        self._tqdm = tqdm
        self._bars: dict[str, Any] = {}

    def phase_start(
        self, phase_name: str, parent_phase: str | None, num_steps: int
    ) -> None:
        self._bars[phase_name] = self._tqdm(
            total=num_steps,
            desc=phase_name,
            position=len(self._bars),
            leave=parent_phase is None,
            file=sys.stderr,
        )

    def step_complete(self, phase_name: str, step: int) -> bool:
        bar = self._bars.get(phase_name)
        if bar is not None:
            bar.update(max(step + 1 - bar.n, 0))
        return True

    def phase_finish(self, phase_name: str) -> None:
        bar = self._bars.pop(phase_name, None)
        if bar is not None:
            bar.close()


class _Lines(IProgressMonitor):
    """A line for each phase, where tqdm is not installed."""

    def phase_start(
        self, phase_name: str, parent_phase: str | None, num_steps: int
    ) -> None:
        print(f"{phase_name}: {num_steps} steps", file=sys.stderr)


class _Function(IProgressMonitor):
    """Calls function(phase, step, steps), which may return False to stop."""

    def __init__(self, function: Callable[[str, int, int], Any]) -> None:
        super().__init__()
        self._function = function
        self._steps: dict[str, int] = {}

    def phase_start(
        self, phase_name: str, parent_phase: str | None, num_steps: int
    ) -> None:
        self._steps[phase_name] = num_steps

    def step_complete(self, phase_name: str, step: int) -> bool:
        answer = self._function(phase_name, step, self._steps.get(phase_name, 0))
        return answer is not False


def progress_monitor(progress: Any) -> IProgressMonitor | None:
    """The monitor for a user's progress=."""
    if progress is None or progress is False:
        return None
    if isinstance(progress, IProgressMonitor):
        return progress
    if progress is not True:
        if not callable(progress):
            raise TypeError(
                "progress: expected True, False, a function (phase, step, steps) or an "
                f"IProgressMonitor, got {progress!r}"
            )
        return _Function(progress)
    try:
        from tqdm import tqdm
    except ImportError:
        return _Lines()
    return _Bar(tqdm)
