"""The steps of gpu_all.sh: builds, checks and times collops on one GPU, and writes one JSON."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_targets

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
ALL_S = 580.0
_LAST_CHARACTERS = 2000
_GRACE_S = 10.0
RANKS, SHORT_RANKS = "8", "2"
# +-50 %: shares of 3 and 1 are 1.5 and 0.5 of the mean.
SKEWS = "even,3:1"
BENCHES = {
    "all_gather_v": ("--sizes", "64m", "--skew", SKEWS, "--dtype", "bf16", "--graph"),
    "reduce_scatter_v": ("--sizes", "64m", "--skew", SKEWS, "--dtype", "bf16", "--graph"),
    "all_gather_v 1k": ("--sizes", "1k", "--skew", "even", "--dtype", "bf16", "--graph"),
    "linear_parallel": (
        *("--type", "1,2", "--dtype", "bf16", "--rows-share", "1:1"),
        *("--shapes", "1024,8192,8192;4096,8192,8192", "--graph"),
    ),
}
SHORT_BENCHES = {
    "all_gather_v": ("--sizes", "1k", "--skew", SKEWS, "--dtype", "f32", "--graph"),
    "linear_parallel": ("--type", "2", "--dtype", "f32", "--shapes", "8,8,8", "--graph"),
}
# Conformance of every operator on CUDA tensors, with the driver that the loader finds: the variable
# chooses the tensors. Ranks that are threads of one GPU need a stream each, which these runs do not
# give them. A tree that has no such runs selects nothing, which is pytest's status 5.
CONFORMANCE = ["-m", "pytest", "-q", "tests/conformance/test_conformance.py", "-k"]
CHOICE, SHORT_CHOICE = "cuda and not threads", "cuda and all_gather_v and atb and p2"
CUDA_TENSORS = {
    "COLLOPS_SIM_GPU": os.environ.get("COLLOPS_SIM_GPU", "none"),
    # All ranks are on one GPU, as those of `collops bench`, which sets the same.
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "NCCL_MAX_CTAS": "16",
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
}
NONE_SELECTED = 5


@dataclass
class Step:
    """A command with its time limit, and why it cannot run, if that is known before."""

    name: str
    words: list[str]
    limit_s: float
    missing: str = ""
    env: dict[str, str] = field(default_factory=dict)
    tests: bool = False  # whether it is pytest, which may have selected nothing
    rows: Path | None = None  # what it writes: a JSON object per line


class Run:
    """Runs steps one after the other, and keeps what they gave."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._end = time.monotonic() + ALL_S
        self.found: dict[str, Any] = {
            "made_by": "bench/gpu_all.sh",
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "commit": said("git", "-C", str(ROOT), "rev-parse", "HEAD"),
            "gpu": said("nvidia-smi", "--query-gpu=name,driver_version,clocks.sm", "--format=csv"),
            "simulated": None,
            "steps": [],
        }

    def step(self, step: Step) -> bool:
        """Runs a step within its limit and what is left of all; whether it passed."""
        left_s = self._end - time.monotonic()
        done: dict[str, Any] = {"name": step.name, "rows": []}
        if step.missing or left_s <= 0:
            done |= {"state": "not run", "reason": step.missing or "no time was left"}
        else:
            begin = time.monotonic()
            limit_s = min(step.limit_s, left_s)
            status, text = limited(step, limit_s)
            done |= outcome(step, status, limit_s)
            done |= {"seconds": round(time.monotonic() - begin, 1)}
            done |= {"output": text[-_LAST_CHARACTERS:].replace(str(ROOT), "."), "rows": rows(step)}
        self.found["steps"].append(done)
        self._write()
        print(f"{step.name}: {done['state']}{': ' if 'reason' in done else ''}"
              f"{done.get('reason', '')}", flush=True)  # fmt: skip
        return bool(done["state"] == "passed")

    def _write(self) -> None:
        """After each step, so that a run that is ended keeps what it has."""
        steps = self.found["steps"]
        every = [row for step in steps for row in step["rows"]]
        self.found["simulated"] = any(row["simulated"] for row in every) if every else None
        self.found["not_run"] = {
            step["name"]: step["reason"] for step in steps if step["state"] == "not run"
        }
        self.found["targets"] = gpu_targets.judged(every)
        self._output.write_text(json.dumps(self.found, indent=1) + "\n")


def outcome(step: Step, status: int | None, limit_s: float) -> dict[str, str]:
    """The state of a step that has ended with a status, or was ended."""
    if status == 0:
        return {"state": "passed"}
    if status is None:
        return {"state": "failed", "reason": f"did not end within {limit_s:.0f} s"}
    if step.tests and status == NONE_SELECTED:
        return {"state": "not run", "reason": "no test was selected"}
    return {"state": "failed", "reason": f"status {status}"}


def limited(step: Step, limit_s: float) -> tuple[int | None, str]:
    """Runs a command with all its children; its status, None if it was ended, and its output."""
    process = subprocess.Popen(
        step.words,
        cwd=ROOT,
        env={**os.environ, **step.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    status: int | None = None
    try:
        text, _ = process.communicate(timeout=limit_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        text = ended(process)
    return status, text


def ended(process: subprocess.Popen[str]) -> str:
    """Ends a command; its output. An interrupt lets it end the ranks, which have own sessions."""
    for sent in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_GRACE_S)[0]
    return ""  # it waits in the driver


def rows(step: Step) -> list[dict[str, Any]]:
    """The rows that a benchmark has written."""
    if step.rows is None or not step.rows.exists():
        return []
    return [json.loads(line) for line in step.rows.read_text().splitlines()]


def said(*words: str) -> str | None:
    """What a program prints; None if it is not there or fails."""
    if shutil.which(words[0]) is None:
        return None
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def bench(python: str, backend: str, ranks: str, name: str, words: tuple[str, ...]) -> list[str]:
    """The words of a benchmark."""
    operator = name.split()[0]
    command = [python, "-m", "collops", "bench", operator, "--backend", backend]
    return [*command, "--ranks", ranks, *words]


def steps(python: str, folder: Path, *, short: bool) -> list[Step]:
    """All steps behind the environment's."""
    ranks, quick = (SHORT_RANKS, ("--quick",)) if short else (RANKS, ())
    made = [Step("doctor", [python, "-m", "collops", "doctor"], 30)]
    for name, words in (SHORT_BENCHES if short else BENCHES).items():
        file = folder / f"{name.replace(' ', '-')}.jsonl"
        command = bench(python, "cuda", ranks, name, (*words, *quick, "--json", str(file)))
        made.append(Step(f"bench {name}", command, 100 if "linear" in name else 60, rows=file))
    tests = [python, *CONFORMANCE, SHORT_CHOICE if short else CHOICE]
    made.append(Step("conformance on CUDA tensors", tests, 120, env=CUDA_TENSORS, tests=True))
    sanitizer = shutil.which("compute-sanitizer")
    missing = "" if sanitizer else "compute-sanitizer is not installed"
    small = ("--sizes", "1k", "--skew", "3:1", "--quick", "--peers", "none")
    for tool in ("memcheck", "racecheck"):
        for name in ("all_gather_v", "reduce_scatter_v"):
            words = bench(python, "cuda", SHORT_RANKS, name, small)
            checked = [sanitizer or "", "--tool", tool, "--target-processes", "all"]
            checked += ["--error-exitcode", "9", *words]
            made.append(Step(f"{tool} {name}", checked, 40, missing))
    return made


def main() -> int:
    """Runs everything; 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        default=ROOT / "build" / "gpu_all.json",
        help="the JSON file to write (build/gpu_all.json)",
    )
    parser.add_argument("--short", action="store_true", help="only two ranks and small sizes")
    parser.add_argument(
        "--here", action="store_true", help="use this Python's collops instead of building one"
    )
    options = parser.parse_args()
    folder = options.output.resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(options.output)
    python = sys.executable
    if not options.here:
        python = str(VENV / "bin" / "python")
        words = [sys.executable, "tools/environment.py", str(VENV), "package", "test"]
        if not run.step(Step("environment", words, 240)):
            print(run.found["steps"][-1]["output"])
            return 1
    for step in steps(python, folder, short=options.short):
        if step.rows is not None:
            step.rows.unlink(missing_ok=True)
        run.step(step)
    print(f"All of it is in {options.output}")
    return 1 if any(step["state"] == "failed" for step in run.found["steps"]) else 0


if __name__ == "__main__":
    raise SystemExit(main())
