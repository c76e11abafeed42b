"""A run: the exports and checks to make, and the result of each, as lines of JSON."""

from __future__ import annotations

import argparse
import collections
import datetime
import fnmatch
import importlib.metadata
import json
import random
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.report import cpu_model

from . import catalogue, kept
from .check import Task
from .entries import FORMS, Entry, usual_forms
from .files import stem
from .jobs import Job, Outcome, Pool, preload
from .kept import Origin
from .verdicts import UNCOUNTED, brief, verdict

RESULTS = "results.jsonl"
_EXPORTED = {"mixed": "fp32"}
"""Types that are checked with the file of another."""
_SETTLED = ("right", *UNCOUNTED)
"""Verdicts that are kept when a run is resumed; the rest is tried again."""
_MODULE = {"mixed": "fp16"}
"""And those whose module is of another type, which says how exact results can be."""
_ORDER = ("fp32", "fp16", "bf16")


def chosen(options: argparse.Namespace) -> tuple[list[Entry], list[str]]:
    """The architectures of a run, and the libraries that it does without."""
    entries = list(catalogue.entries().values())
    if options.library:
        entries = [e for e in entries if e.library in options.library]
    if options.only:
        entries = [
            e for e in entries if any(fnmatch.fnmatch(e.key, o) for o in options.only)
        ]
    entries = _in_turns(entries)
    if options.oldest:
        ages = _ages(options)
        entries.sort(key=lambda e: ages.get(e.key, ""))
    libraries = {e.library for e in entries}
    missing = sorted(name for name in libraries if not catalogue.installed(name))
    entries = [e for e in entries if e.library not in missing]
    if options.sample is not None:
        count = min(options.sample, len(entries))
        entries = random.Random(options.seed).sample(entries, count)
    return entries, missing


def _in_turns(entries: list[Entry]) -> list[Entry]:
    """The architectures, one of each library in turn, so that a run that ends early has
    some of each."""
    places: dict[str, int] = collections.defaultdict(int)
    ranked = []
    for entry in entries:
        ranked.append((places[entry.library], entry.library))
        places[entry.library] += 1
    order = sorted(
        range(len(entries)), key=lambda i: ranked[i][0] / places[ranked[i][1]]
    )
    return [entries[i] for i in order]


def _ages(options: argparse.Namespace) -> dict[str, str]:
    """When each architecture's oldest result on the device and of the types was found;
    without those that have none."""
    ages: dict[str, str] = {}
    types = options.types.split(",")
    for one in kept.read(options.kept):
        if one.device == options.device and one.type in types:
            ages[one.key] = min(one.origin.when, ages.get(one.key, one.origin.when))
    return ages


def forms(choice: str, key: str) -> Iterable[str]:
    if choice == "usual":
        return usual_forms(key)
    return FORMS if choice == "all" else choice.split(",")


def _output(*command: str) -> str:
    """The output of a command; empty if the command is missing or fails."""
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def _machine(device: str) -> str:
    if device == "cpu":
        return cpu_model()
    query = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    names = _output(*query).splitlines() or ["a GPU"]
    return f"{names[0]}; {cpu_model()}"


def origin(options: argparse.Namespace) -> Origin:
    """Of the results of a run that begins now."""
    asked = dict.fromkeys(["torch", *catalogue.LIBRARIES, "onnxruntime"])
    names = filter(catalogue.installed, asked)
    # A module may come from a package of another name: onnxruntime-gpu.
    packages = importlib.metadata.packages_distributions()
    versions = ", ".join(
        f"{name} {importlib.metadata.version(packages[name][0])}" for name in names
    )
    now = datetime.datetime.now(datetime.UTC)
    when = now.isoformat(" ", "seconds").removesuffix("+00:00")
    commit = options.commit or _output("git", "rev-parse", "--short", "HEAD")
    return Origin(when, _machine(options.device), commit, versions)


def read(path: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """Results by architecture, form, type and device; of each the last."""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text().splitlines())
    return {(r["key"], r["form"], r["type"], r["device"]): r for r in lines}


class Run:
    """Exports what is not there, and checks what is."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._types = options.types.split(",")
        self._files = sorted(
            {"fp32", *(_MODULE.get(t, t) for t in self._types)}, key=_ORDER.index
        )
        self._cache: Path = options.cache.absolute()
        self._cache.mkdir(parents=True, exist_ok=True)
        self._results = self._cache / RESULTS
        known = read(self._results) if options.resume else {}
        self._known = {k: r for k, r in known.items() if verdict(r) in _SETTLED}
        self._origin = vars(origin(options))
        self.done: list[dict[str, Any]] = []
        checks = options.checks if options.device == "cpu" else options.gpu_jobs
        self._pool = Pool({"export": options.jobs, "check": checks})
        self._exports: dict[str, tuple[Entry, str]] = {}
        self._checks: dict[str, dict[str, Any]] = {}

    def run(self) -> bool:
        """Whether all was done before the time was over."""
        end = time.monotonic() + self._options.time_limit
        entries, missing = chosen(self._options)
        for library in missing:
            print(
                f"zoo: {library} is not installed; its models are left out", flush=True
            )
        preload(["zoo.export", "torch", *sorted({e.library for e in entries})])
        for entry in entries:
            for form in forms(self._options.forms, entry.key):
                self._export(entry, form)
        return self._pool.run(self._ended, end)

    # ---- Exports ----

    def _spec(self, key: str, form: str, kind: str) -> Path:
        return self._cache / f"{stem(key, form, kind)}.json"

    def _export(self, entry: Entry, form: str) -> None:
        version = importlib.metadata.version(entry.library)
        if all(self._current(entry.key, form, kind, version) for kind in self._files):
            self._check_all(entry.key, form)
            return
        name = stem(entry.key, form, "export")
        self._exports[name] = entry, form
        arguments = (entry.key, form, tuple(self._files), str(self._cache), version)
        self._add(name, "export", "zoo.export:export", arguments)

    def _current(self, key: str, form: str, kind: str, version: str) -> bool:
        spec = self._spec(key, form, kind)
        return spec.exists() and json.loads(spec.read_text())["version"] == version

    def _add(
        self, name: str, lane: str, target: str, arguments: tuple[Any, ...]
    ) -> None:
        log = self._cache / "logs" / f"{name}.log"
        limit = self._options.job_limit
        memory = self._options.memory
        self._pool.add(Job(name, target, arguments, log, lane, limit, memory))

    # ---- Checks ----

    def _check_all(self, key: str, form: str) -> None:
        for kind in self._types:
            spec = self._spec(key, form, _EXPORTED.get(kind, kind))
            base = {
                "key": key,
                "form": form,
                "type": kind,
                "device": self._options.device,
            }
            if tuple(base.values()) in self._known:
                self.done.append(self._known[tuple(base.values())])
                continue
            facts = json.loads(spec.read_text()) if spec.exists() else None
            if facts is None:
                self._keep(base | {"stage": "export", "error": "FP32 was not exported"})
            elif "error" in facts:
                self._keep(base | {"stage": "export", "error": facts["error"]})
            elif not self._options.export_only:
                self._check(base, spec)

    def _check(self, base: dict[str, Any], spec: Path) -> None:
        options = self._options
        name = stem(base["key"], base["form"], f"{base['type']}.{base['device']}")
        result = self._cache / "checks" / f"{name}.json"
        result.parent.mkdir(exist_ok=True)
        result.unlink(missing_ok=True)
        self._checks[name] = base | {"result": result}
        task = Task(
            str(spec),
            base["type"],
            str(result),
            options.device,
            options.threads,
            not options.untimed,
            options.level,
            self._torch_errors(base),
        )
        self._add(name, "check", "zoo.check:check", (task,))

    def _torch_errors(self, base: dict[str, Any]) -> dict[str, float]:
        """How far the module is from FP32 in the type that the device multiplies in."""
        kind = _MODULE.get(base["type"], base["type"])
        spec = self._spec(base["key"], base["form"], kind)
        facts = json.loads(spec.read_text()) if spec.exists() else {}
        return facts.get("torch_errors", {})

    # ---- Outcomes ----

    def _ended(self, outcome: Outcome) -> None:
        if outcome.job.lane == "export":
            self._exported(outcome)
        else:
            self._checked(outcome)

    def _exported(self, outcome: Outcome) -> None:
        entry, form = self._exports[outcome.job.name]
        if outcome.trouble is None:
            self._check_all(entry.key, form)
            return
        for kind in self._types:
            base = {"key": entry.key, "form": form, "type": kind}
            failed = {"stage": "export", "error": f"the exporter {outcome.trouble}"}
            self._keep(base | {"device": self._options.device} | failed)

    def _checked(self, outcome: Outcome) -> None:
        base = self._checks[outcome.job.name]
        path: Path = base.pop("result")
        found = json.loads(path.read_text()) if path.exists() else {"stage": "start"}
        if outcome.trouble is not None:
            found["crash"] = outcome.trouble
            found["error"] = f"the process {outcome.trouble}"
        self._keep(base | found | {"check_s": outcome.seconds})

    def _keep(self, found: dict[str, Any]) -> None:
        result = found | {"run": self._origin}
        self.done.append(result)
        with self._results.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(
            f"{verdict(result):12} {result['key']} {result['form']} {result['type']}",
            brief(result),
            flush=True,
        )
