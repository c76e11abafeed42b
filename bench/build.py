"""Building ResNet-50: cold, with the timing cache, and what peers take."""

from __future__ import annotations

from dataclasses import replace

from . import peers
from .models import Case, named, prepare, specs
from .options import Options
from .report import Section
from .worker import ContestantError, Spec, Worker

BUILT = "bench.peers.rabbet_engine:Built"


def _contestants(
    options: Options, name: str, case: Case
) -> tuple[list[tuple[str, Spec]], list[str]]:
    """The contestants: Rabbet twice, the second time with the timing cache of the
    first."""
    prepared = prepare(name, case, options)
    wanted, absent = specs(prepared, options, max(options.threads))
    found: list[tuple[str, Spec]] = []
    for spec in wanted:
        if spec.name != peers.RABBET:
            found.append((spec.name, spec))
            continue
        cache = str(options.scratch / f"{name}.timing")
        given = {**spec.arguments, "timing_cache": cache}
        own = replace(spec, factory=BUILT, arguments=given)
        found += [("rabbet, cold", own), ("rabbet, timing cache", own)]
    return found, absent


def run(options: Options) -> Section:
    """Seconds from the ONNX file to a model that can run, measured once each."""
    section = Section("Build: seconds", ["model", "contestant", "seconds", "peak MiB"])
    for name, case in named(options.models or ("resnet50",)).items():
        found, absent = _contestants(options, name, case)
        for peer in absent:
            section.note(f"{peer} is not installed")
        for label, spec in found:
            try:
                worker = Worker(spec, options.scratch)
            except ContestantError as error:
                section.note(f"{name}: {error}")
                continue
            worker.stop()
            start = worker.start
            peak = start.peak_bytes / (1 << 20)
            section.rows.append([name, label, f"{start.load_s:.2f}", f"{peak:.0f}"])
            section.data.append({"model": name, "name": label, **vars(start)})
    return section
