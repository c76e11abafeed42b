"""Exports real architectures, runs them, and compares with ONNX Runtime."""

from __future__ import annotations

import argparse
import collections
import os
import sys
from pathlib import Path

from . import catalogue, kept
from .entries import FORMS
from .run import RESULTS, Run, chosen, read
from .table import table
from .verdicts import verdict

KEPT = Path(__file__).with_name("results.jsonl")


def _options() -> argparse.Namespace:
    cache = os.environ.get("RABBET_ZOO_CACHE", ".cache/zoo")
    parser = argparse.ArgumentParser("zoo", description=__doc__)
    add = parser.add_argument
    add("--only", action="append", help="a pattern of names, such as 'timm/resnet*'")
    add("--library", action="append", choices=catalogue.LIBRARIES)
    add("--forms", default="usual", help="usual, all, or some of " + ",".join(FORMS))
    add("--types", default="fp32", help="some of fp32,mixed,fp16,bf16")
    add("--device", default="cpu")
    add("--threads", type=int, default=1, help="of a model on the CPU")
    add("--jobs", type=int, default=1, help="exports at once")
    add("--checks", type=int, default=1, help="checks at once on the CPU")
    add("--gpu-jobs", type=int, default=4, help="checks at once on a GPU")
    add("--level", type=int, help="the builder's optimization level")
    add("--sample", type=int, help="draw so many architectures")
    add("--seed", type=int, default=0, help="of the sample")
    add("--oldest", action="store_true", help="begin with the oldest results kept")
    add("--time-limit", type=float, default=float("inf"), help="seconds for all")
    add("--job-limit", type=float, default=300, help="seconds for one job")
    add("--memory", type=float, default=8, help="GiB for one job")
    add("--resume", action="store_true", help="try again only what was not right")
    add("--cache", type=Path, default=Path(cache))
    add("--export-only", action="store_true")
    add("--untimed", action="store_true", help="compare results alone")
    add("--kept", type=Path, default=KEPT, help="results that --table starts from")
    add("--add", type=Path, action="append", default=[], help="results.jsonl of a run")
    add("--table", type=Path, help="add the results to those kept, and write a table")
    add("--table-only", action="store_true", help="run nothing")
    add("--commit", help="what the results are of; default: git's HEAD")
    add("--list", action="store_true", help="only print what is chosen")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> bool:
    """Runs what the options ask for; returns whether all was done in time."""
    run = Run(options)
    complete = run.run()
    for word, count in collections.Counter(map(verdict, run.done)).most_common():
        print(f"{count:5} {word}")
    if not complete:
        print("zoo: the time was over before all was done")
    return complete


def _tabulate(options: argparse.Namespace) -> None:
    """Of each file the newest result counts; architectures that left the catalogue do not."""
    found = kept.read(options.kept)
    for path in [options.cache / RESULTS, *options.add]:
        found += map(kept.finding, read(path).values())
    known = catalogue.entries()
    found = kept.newest(f for f in found if f.key in known)
    kept.write(options.kept, found)
    options.table.write_text(table(found))


def main() -> int:
    options = _options()
    # Libraries read it when they are imported, in processes that start later.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.list:
        for entry in chosen(options)[0]:
            print(entry.key)
        return 0
    complete = options.table_only or _run(options)
    if options.table is not None:
        _tabulate(options)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
