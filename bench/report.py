"""Commands that answer a question each, with a limit each, and the report of what they said."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LAST_CHARACTERS = 12000
_STACKS_S, _GRACE_S = 2.0, 8.0
# pytest's status if it has selected no test.
_NONE_SELECTED = 5


Row = dict[str, Any]
Judged = Callable[[list[Row]], list[Row]]


@dataclass
class Question:
    """A command with its limit, and why it cannot run, if that is known before."""

    name: str
    words: list[str]
    limit_s: float
    missing: str = ""
    env: dict[str, str] = field(default_factory=dict)
    tests: bool = False  # whether it is pytest, which may have selected nothing
    rows: Path | None = None  # where it writes a JSON object per line; None: in its output
    told: dict[str, Any] = field(default_factory=dict)  # what is added to each row
    must: bool = False  # whether no other question makes sense if it fails


class Report:
    """Asks one question after the other; the file is written anew after each.

    Args:
        output: the JSON file.
        all_s: for all questions together; one that begins later is not asked.
        made_by: the program.
        judged: compares the rows of all questions with goals.
    """

    def __init__(self, output: Path, all_s: float, made_by: str, judged: Judged) -> None:
        self._output = output
        self._judged = judged
        self._end = time.monotonic() + all_s
        self.found: dict[str, Any] = {
            "made_by": made_by,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "commit": said("git", "-C", str(ROOT), "rev-parse", "HEAD"),
            "gpu": said("nvidia-smi", "--query-gpu=name,driver_version,clocks.sm", "--format=csv"),
            "cpu": cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "simulated": None,
            "questions": [],
        }

    def ask(self, question: Question) -> bool:
        """Runs it within its limit and what is left of all; whether it passed."""
        left_s = self._end - time.monotonic()
        done: dict[str, Any] = {"name": question.name, "rows": []}
        if question.missing or left_s <= 0:
            done |= {"state": "not run", "reason": question.missing or "no time was left"}
        else:
            begin = time.monotonic()
            limit_s = min(question.limit_s, left_s)
            status, text = limited(question, limit_s)
            done |= outcome(question, status, limit_s)
            done |= {"seconds": round(time.monotonic() - begin, 1)}
            done |= {"output": text[-_LAST_CHARACTERS:].replace(str(ROOT), ".")}
            done |= {"rows": rows(question, text)}
        self.found["questions"].append(done)
        self.write()
        self._say(done)
        return bool(done["state"] == "passed")

    def write(self) -> None:
        """Also before the end, so that a run that is ended keeps what it has."""
        asked = self.found["questions"]
        every = [row for question in asked for row in question["rows"]]
        known = [row["simulated"] for row in every if "simulated" in row]
        self.found["simulated"] = any(known) if known else None
        self.found["not_run"] = {
            question["name"]: question["reason"]
            for question in asked
            if question["state"] == "not run"
        }
        self.found["goals"] = self._judged(every)
        self._output.write_text(json.dumps(self.found, indent=1) + "\n")

    def _say(self, done: dict[str, Any]) -> None:
        reason = f": {done['reason']}" if "reason" in done else ""
        took = f" ({done['seconds']} s)" if "seconds" in done else ""
        print(f"## {done['name']}: {done['state']}{reason}{took}", flush=True)
        if done["state"] == "failed":
            print(done["output"][-1500:].rstrip(), flush=True)


def outcome(question: Question, status: int | None, limit_s: float) -> dict[str, str]:
    """The state of a question whose command has ended with a status, or was ended."""
    if status == 0:
        return {"state": "passed"}
    if status is None:
        return {"state": "failed", "reason": f"did not end within {limit_s:.0f} s"}
    if question.tests and status == _NONE_SELECTED:
        return {"state": "not run", "reason": "no test was selected"}
    return {"state": "failed", "reason": f"status {status}"}


def limited(question: Question, limit_s: float) -> tuple[int | None, str]:
    """Runs a command with all its children; its status, None if it was ended, and its output."""
    process = subprocess.Popen(
        question.words,
        cwd=ROOT,
        # For the stacks of one that hangs.
        env={**os.environ, "PYTHONFAULTHANDLER": "1", **question.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=limit_s)
        return process.returncode, text
    except subprocess.TimeoutExpired:
        return None, ended(process)


def ended(process: subprocess.Popen[str]) -> str:
    """Ends a command that hangs, with all its children; its output, with what hung.

    The states of all threads, then, by SIGABRT, the Python stacks of the youngest children, which
    are ranks; an interrupt lets the others end theirs, which have sessions of their own.
    """
    children = descendants(process.pid)
    states = [f"pid {pid}: {thread_states(pid)}" for pid in [process.pid, *children]]
    usage = said("nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader")
    parents = {parent_of(pid) for pid in children}
    for pid in children:
        if pid not in parents:
            send(pid, signal.SIGABRT)
    text = ""
    for sent, wait_s in ((0, _STACKS_S), (signal.SIGINT, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        send(process.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            text = process.communicate(timeout=wait_s)[0]
            break
    for pid in children:  # none is left that has hidden in a session of its own
        send(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        text = text or process.communicate(timeout=_GRACE_S)[0]
    return "\n".join([text, "-- when it was ended --", *states, f"GPU: {usage}"])


def descendants(pid: int) -> list[int]:
    """All children of a process, and theirs, before their own children."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


def thread_states(pid: int) -> str:
    """How many threads of a process are in which state, by name and by what they wait for."""
    counts: dict[str, int] = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
            words = (task / "comm").read_text().strip(), (task / "wchan").read_text(), state
            name = " ".join(words)
            counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "gone"


def send(pid: int, sent: int) -> None:
    """Sends a signal to a process, if it is there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sent)


def rows(question: Question, text: str) -> list[dict[str, Any]]:
    """The JSON objects, a line each, of the file that a command writes, else of its output."""
    if question.rows is not None:
        text = question.rows.read_text() if question.rows.exists() else ""
    lines = [line for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    return [{**json.loads(line), **question.told} for line in lines]


def cpu() -> str | None:
    """The processor's name."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return None


def said(*words: str) -> str | None:
    """What a program prints; None if it is not there or fails."""
    if shutil.which(words[0]) is None:
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
        return done.stdout.strip() if done.returncode == 0 else None
    return None
