"""Models whose control flow only a run decides: loops over what they make, scripted."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..entries import Entry, Input

_BATCH = (1, 2, 3)


def _make(name: str) -> Any:
    """A script, in which exporters see loops; Python's would be traced."""
    import torch

    from . import scripted

    return torch.jit.script(getattr(scripted, name)())


def _entry(name: str, make: str, inputs: list[Input], dims: Any) -> Entry:
    return Entry("torch", name, partial(_make, make), inputs, dims)


_STATES = [Input(name, ("batch", 16)) for name in ("h", "c")]

ENTRIES = [
    _entry(
        "recurrent_of_own_cell",
        "NormalizedLSTM",
        [Input("x", ("steps", "batch", 8))],
        {"steps": (1, 6, 90), "batch": _BATCH},
    ),
    _entry(
        "lstm_crf_tagger",
        "Tagger",
        [Input("ids", ("batch", "steps"), "ids", 50)],
        {"batch": _BATCH, "steps": (2, 7, 80)},
    ),
    _entry(
        "transducer_greedy",
        "Transducer",
        [Input("x", (1, "steps", 8))],
        {"steps": (1, 9, 70)},
    ),
    _entry(
        "whisper_greedy",
        "Transcriber",
        [Input("mel", ("batch", 8, "2 * steps")), Input("limit", (), "step", 12)],
        {"batch": _BATCH, "steps": (2, 8, 20)},
    ),
    _entry(
        "whisper_greedy_cached",
        "CachedTranscriber",
        [Input("mel", ("batch", 8, "2 * steps")), Input("limit", (), "step", 12)],
        {"batch": _BATCH, "steps": (2, 8, 20)},
    ),
    _entry(
        "speech_of_two_rates",
        "SpeechOfTwoRates",
        [
            Input("audio", ("batch", "64 * chunks")),
            Input("context", ("batch", 32)),
            Input("state", (2, "batch", 24)),
            Input("rate", (), "step", 2),
        ],
        {"batch": _BATCH, "chunks": (2, 8, 20)},
    ),
    _entry(
        "voice_activity",
        "VoiceActivity",
        [
            Input("audio", ("batch", "256 * chunks")),
            Input("wide", (), "step", 2),
            *_STATES,
        ],
        {"batch": _BATCH, "chunks": (1, 4, 40)},
    ),
    _entry(
        "best_of_each_image",
        "Detector",
        [Input("images", ("batch", 3, "4 * height", 16))],
        {"batch": _BATCH, "height": (2, 4, 8)},
    ),
    _entry(
        "equilibrium",
        "Equilibrium",
        [Input("x", ("batch", 12))],
        {"batch": _BATCH},
    ),
]
