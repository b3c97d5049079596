"""What failed in `.ci/run` runs once more, alone: what a busy machine has failed passes then.

Whatever runs tests notes in the file $CI_AGAIN what has failed, with the command that runs it
again. At its end `.ci/run` calls this program, which runs all of it and deletes the file of each
step that is good after all. Arguments: FOLDER SECONDS, the folder of those files and the time that
is left; or `note FILE NAME COMMAND...`, for a step that is one program.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from patience import factor

ROOT = Path(__file__).resolve().parent.parent
# Of earlier runs, and not mended yet.
LIST = ROOT / "tests" / "passed_only_alone.txt"
MOST = 10  # more failures than these do not come from load
MOST_LINES = 80  # of what failed twice


@dataclass(frozen=True)
class Again:
    """A test that failed, or a program, and how it runs again."""

    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


def note(path: Path, failed: Sequence[Again]) -> None:
    """Writes down what a step has to run again."""
    path.write_text(json.dumps([asdict(again) for again in failed]))


def noted(path: Path) -> list[Again]:
    """What a step has to run again."""
    return [Again(**again) for again in json.loads(path.read_text())]


def not_yet_mended(text: str) -> list[str]:
    """The names in a list of tests that passed only alone; a line with # is a comment."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def runs_well(again: Again, log: Path, limit_s: float) -> bool:
    """Runs it; what it started ends with it."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            again.command,
            cwd=ROOT,
            env={**os.environ, **again.env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            out.write(b"not over in the time that is left\n")
            return False
        finally:
            end_all(process)


def end_all(process: subprocess.Popen[bytes]) -> None:
    """Kills the processes of its session that are left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_all(steps: Mapping[Path, Sequence[Again]], limit_s: float) -> dict[str, str]:
    """Runs all, one after another, and says of each name of a failure why it is red, or nothing."""
    end = time.monotonic() + limit_s
    mended = set(not_yet_mended(LIST.read_text()) if LIST.exists() else [])
    results: dict[str, str] = {}
    for path, failed in steps.items():
        red = False
        for number, again in enumerate(failed):
            begin, log = time.monotonic(), path.with_suffix(f".{number}.log")
            print(f"== alone: {again.name} of {path.stem}", flush=True)
            if end - begin < 1:
                why = "no time was left to run it again"
            elif not runs_well(again, log, end - begin):
                why = "failed alone too"
                print(f"   FAILED again; the end of {log}:")
                print("\n".join(log.read_text(errors="replace").splitlines()[-MOST_LINES:]))
            elif again.name in results or again.name in mended:
                why = "passed only alone a second time: mend it"
            else:
                why = ""
                print(f"   passed, {time.monotonic() - begin:.0f} s", flush=True)
            red = red or why != ""
            results[again.name] = results.get(again.name) or why
        if not red:
            path.unlink()
    return results


def main(folder: Path, limit_s: float) -> int:
    """Runs what was noted in that folder; 0 if all of it passed now, for the first time."""
    steps = {path: noted(path) for path in sorted(folder.glob("*.json"))}
    count = sum(map(len, steps.values()))
    if count > MOST:
        print(f"red: {count} tests failed, more than {MOST}: none of them runs again")
        return 1
    factor()  # as it is now
    results = run_all(steps, limit_s)
    for name, why in results.items():
        print(f"red: {name}: {why}" if why else f"passed only alone: {name}")
    return 1 if any(results.values()) else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["note"]:
        note(Path(sys.argv[2]), [Again(sys.argv[3], sys.argv[4:])])
        raise SystemExit
    raise SystemExit(main(Path(sys.argv[1]), float(sys.argv[2])))
