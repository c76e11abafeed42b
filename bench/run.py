"""Runs the benchmarks: python -m bench.run [--only SUBJECTS] [--quick]."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path

from .options import ROOT, Options
from .report import Section, Usage, document, write

SUBJECTS = (
    "models",
    "python_call",
    "circular_padding",
    "startup",
    "build",
    "size",
    "contexts",
    "busy",
)
ASKED_FOR = (
    "provider", "rows", "zoo", "gpu", "gpu_zoo", "gpu_grid", "gpu_moves", "gpu_decode",
    "gpu_ranks", "gpu_exchange",
    "gpu_calls", "gpu_bert_plugin", "serving_systems",
)  # fmt: skip
"""Subjects that --only must name."""


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _list(text))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--only", type=_list, default=SUBJECTS, metavar="A,B",
                        help=f"of {', '.join(SUBJECTS + ASKED_FOR)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="few rounds, small models")
    parser.add_argument("--threads", type=_counts, default=(1, 2), metavar="N,M")
    parser.add_argument("--peers", type=_list, metavar="A,B",
                        help="all that are installed, by default")  # fmt: skip
    parser.add_argument("--models", type=_list, metavar="A,B",
                        help="models of the subjects that have several")  # fmt: skip
    parser.add_argument("--zoo", type=int, default=24, metavar="N",
                        help="architectures that zoo and gpu_zoo draw; default: 24")  # fmt: skip
    parser.add_argument("--seed", default="0", help="of the draw; any text")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS",
                        help="zoo and gpu_zoo begin no model later")  # fmt: skip
    parser.add_argument("--builds", type=int, default=1, metavar="N",
                        help="of Rabbet's, how many gpu_zoo lets take place at the same "
                        "time; default: 1, which times kernels undisturbed")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="default: 11, quick 5")
    parser.add_argument("--seconds", type=float,
                        help="of one turn; default: 0.3, quick 0.1")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, metavar="N",
                        help="contestants that gpu and gpu_zoo let compile at the same "
                        "time; default: 1")  # fmt: skip
    parser.add_argument("--no-pin", action="store_true",
                        help="let the system choose the cores")  # fmt: skip
    parser.add_argument("--processor", action="store_true",
                        help="time calls of one thread on the processor: for machines "
                        "with other work")  # fmt: skip
    parser.add_argument("--least", action="store_true",
                        help="of the calls of a turn in zoo, the quickest counts, not "
                        "the median: for machines with other work")  # fmt: skip
    parser.add_argument("--name", help="of the result files; default: the subjects")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--no-write", action="store_true", help="only print")
    return parser


def _options(given: argparse.Namespace, scratch: Path) -> Options:
    quick = given.quick
    return Options(
        scratch=scratch,
        threads=given.threads,
        rounds=given.rounds or (5 if quick else 11),
        seconds=given.seconds or (0.1 if quick else 0.3),
        quick=quick,
        pin=not given.no_pin,
        peers=given.peers,
        models=given.models,
        jobs=max(1, given.jobs),
        processor=given.processor,
        least_call=given.least,
        zoo=given.zoo,
        seed=given.seed,
        limit=given.limit,
        builds=max(1, given.builds),
    )


def measure(subjects: tuple[str, ...], options: Options) -> list[Section]:
    """Runs the subjects one after the other."""
    sections = []
    for subject in subjects:
        begin, before = time.monotonic(), Usage.now()
        print(f"{subject} ...", flush=True)
        found = importlib.import_module(f"bench.{subject}").run(options)
        found = [found] if isinstance(found, Section) else found
        share = Usage.now().foreign_share(before)
        found[-1].note(f"other programs used {share:.0%} of the cores meanwhile")
        sections += found
        print(f"{subject}: {time.monotonic() - begin:.0f} s", flush=True)
    return sections


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    known = SUBJECTS + ASKED_FOR
    unknown = sorted(set(given.only) - set(known))
    if unknown:
        parser.error(f"no subject {', '.join(unknown)}; there are {', '.join(known)}")
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / "build") as scratch:
        options = _options(given, Path(scratch))
        try:
            sections = measure(given.only, options)
        except ValueError as error:
            parser.error(str(error))
    print("\n" + document(sections, options.describe()))
    if not given.no_write:
        name = given.name or ("all" if given.only == SUBJECTS else "-".join(given.only))
        print(f"written: {write(sections, options.describe(), name, given.out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
