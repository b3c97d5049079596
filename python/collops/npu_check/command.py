"""``collops npu-check``: its arguments, and the parts of its report in their order."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from collops.launch.processes import signal_name
from collops.launch.programs import answers
from collops.npu_check.checks import CALLS, SIZES, TIMED, check_names
from collops.npu_check.facts import MARK
from collops.terminal.arguments import Parser, seconds, whole_number
from collops.terminal.installation import cann_advice
from collops.terminal.tables import aligned

State = Literal["passed", "FAILED", "not supported"]
STATES: tuple[State, ...] = ("passed", "FAILED", "not supported")


class Report:
    """Lines on standard output and in a file; close() ends the file.

    Once `simulated` is set, every line begins with the word: nothing in such a report was measured
    on an NPU.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self.simulated = False
        self.counts: Counter[State] = Counter()

    def line(self, text: str) -> None:
        """Adds lines."""
        for one in text.splitlines() or [""]:
            marked = f"simulated: {one}".rstrip() if self.simulated else one
            print(marked, flush=True)
            self._file.write(marked + "\n")
            self._file.flush()

    def rows(self, title: str, rows: list[tuple[str, str]]) -> None:
        """Adds a part of the report, aligned."""
        self.line(title)
        cells = []
        for name, text in rows:
            first, *more = text.splitlines() or [""]
            cells += [(name, first), *(("", other) for other in more)]
        for line in aligned(cells, indent="  "):
            self.line(line)

    def outcome(self, name: str, state: State, text: str) -> None:
        """Adds the outcome of a check, and counts it."""
        self.counts[state] += 1
        first, *more = text.splitlines() or [""]
        self.line(f"  {name:<34} {state}{': ' if first else ''}{first}")
        for other in more:
            self.line(f"      {other}")

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


PROGRAM = "collops npu-check"
# A part ends its ranks itself; only if it hangs is it ended from outside, so much later.
_GRACE_S = 30.0
_LAST_LINES = 8
# HCCL's default of HCCL_CONNECT_TIMEOUT; it ends up to 20 s later.
CONNECT_S, LATER_S = 120.0, 30.0
_INSTALL = """\
what to install: Ascend's driver and firmware; the CANN toolkit and its kernels, whose set_env.sh
adds the folder of libascendcl.so, libhccl.so and libopapi.so to LD_LIBRARY_PATH; torch, and
torch_npu of the same version
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks; 0: something passed, nothing failed; 1: no NPU or a failure; 2: wrong arguments."""
    options = parser().parse_args(arguments)
    try:
        report = Report(options.output)
    except OSError as problem:
        print(f"{PROGRAM}: --output {options.output}: {problem.strerror}", file=sys.stderr)
        return 2
    try:
        return check(report, options)
    except KeyboardInterrupt:
        report.line("interrupted")
        return 130
    finally:
        report.close()


def check(report: Report, options: argparse.Namespace) -> int:
    """Writes the whole report, and returns the exit status."""
    facts = run_part("facts", [], options.seconds + _GRACE_S)
    report.simulated = bool(facts.get("simulated"))
    report.line("collops npu-check" + ("; no NPU was used" if report.simulated else ""))
    write_facts(report, facts)
    reason = why_not(facts)
    if reason:
        report.line(f"no NPU can be used: {reason}\n{cann_advice() or _INSTALL}")
        print(f"{PROGRAM}: {reason}", file=sys.stderr)
        return 1
    ranks: int = options.ranks
    if ranks > facts["devices"]:
        # ATB's operators have at least two ranks, so one NPU is not enough for any.
        reason = f"--ranks {ranks}: each rank needs an NPU, and torch_npu finds {facts['devices']}"
        report.line(reason)
        print(f"{PROGRAM}: {reason}", file=sys.stderr)
        return 1
    report.line(
        f"golden's smallest case of each operator, and what no case has: {ranks} ranks, "
        "backend hccl"
    )
    for name in filter(lambda one: options.only in one, check_names()):
        arguments = [name, "--ranks", str(ranks), "--seconds", str(options.seconds)]
        found = run_part("checks", arguments, options.seconds + _GRACE_S)
        _add(report, name, found, found.get("case", ""))
    write_times(report, ranks, options)
    return summarize(report, options.output)


def run_part(module: str, arguments: list[str], timeout: float) -> dict[str, Any]:
    """Runs a program of this package; returns what it told, or how it failed as {"problem": ...}.

    A crash or a hang ends that part alone, with every process it has started.
    """
    command = [sys.executable, "-m", f"collops.npu_check.{module}", *arguments]
    # torch loads torch_npu by itself where that is installed; where CANN is missing, torch fails.
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **os.environ}
    [(status, out, err)] = answers([(command, environment)], timeout)
    for line in out.splitlines():
        if line.startswith(MARK):
            told: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return told
    if status is None:
        how = f"did not end within {timeout:g} s; it was ended"
    elif status < 0:
        how = f"ended by {signal_name(-status)}"
    else:
        how = f"exited with status {status} without a result"
    last = "\n".join(err.splitlines()[-_LAST_LINES:])
    return {"problem": f"{how}\n{last}".strip()}


def write_facts(report: Report, facts: dict[str, Any]) -> None:
    """The part of the report on this machine."""
    if "problem" in facts:
        report.rows("machine", [("not known", str(facts["problem"]))])
        return
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    rows = [("system", system), ("python", platform.python_version())]
    rows += facts["packages"].items()
    rows += facts["libraries"].items()
    rows += [("driver", facts["driver"]), ("CANN", facts["cann"])]
    rows += [("import torch_npu", facts["torch_npu"]), ("NPUs", str(facts["devices"]))]
    rows.append(("SoC", facts["soc"] or "not known"))
    rows += [(name, text) for name, text in facts["resources"]]
    report.rows("machine", rows)
    unset = [("none", "no HCCL_, ASCEND_ or COLLOPS_ variable is set")]
    report.rows("environment", list(facts["variables"].items()) or unset)


def why_not(facts: dict[str, Any]) -> str:
    """Why nothing can be checked; empty if it can."""
    if "problem" in facts:
        return f"the program that loads CANN and torch_npu failed: {facts['problem']}"
    for name in facts["missing"]:
        return str(facts["libraries"][name])
    if not facts["torch_npu"].startswith("imported"):
        return str(facts["torch_npu"])
    if facts["devices"]:
        return ""
    return "torch_npu finds no NPU (npu-smi info lists those of the driver)"


def write_times(report: Report, ranks: int, options: argparse.Namespace) -> None:
    """The part of the report with times."""
    report.line(
        f"times of a call on a float32 vector, shares 1 : 2 : ..., {ranks} ranks: median of "
        f"{CALLS}, each on its slowest rank, from the call to the end of its stream"
    )
    for operator in TIMED:
        for size, size_bytes in SIZES.items():
            name = f"{operator}, {size}"
            if options.only not in name:
                continue
            arguments = [operator, "--ranks", str(ranks), "--size", str(size_bytes)]
            arguments += ["--seconds", str(options.seconds)]
            found = run_part("checks", arguments, options.seconds + _GRACE_S)
            text = f"{found['median_s'] * 1e6:.1f} us" if "median_s" in found else ""
            _add(report, name, found, text)


def _add(report: Report, name: str, found: dict[str, Any], passed: str) -> None:
    if "problem" in found:
        report.outcome(name, "FAILED", str(found["problem"]))
        return
    state = next(one for one in STATES if one == found["state"])
    report.outcome(name, state, passed if state == "passed" else str(found["text"]))


def own_limit(environment: Mapping[str, str]) -> float:
    """Seconds after which HCCL has given up connecting, and has said why."""
    text = environment.get("HCCL_CONNECT_TIMEOUT", "")
    return (float(text) if text.isdecimal() else CONNECT_S) + LATER_S


def summarize(report: Report, output: Path) -> int:
    """The last part of the report, and the exit status."""
    counts = ", ".join(f"{report.counts[state]} {state}" for state in STATES)
    report.line(f"summary: {counts}")
    if report.simulated:
        report.line("nothing here was measured on an NPU")
    else:
        report.line(
            f"please attach {output} to an issue of collops, with the machine's product name"
        )
    good = report.counts["passed"] > 0 and report.counts["FAILED"] == 0
    return 0 if good else 1


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog=PROGRAM,
        description="Checks the backend hccl on this machine's NPUs and writes a report: what is "
        "installed, every operator's smallest case compared with golden, and times. A check that "
        "crashes or hangs does not stop the others.",
        epilog="Exit status: 0 a check passed and none failed, 1 too few NPUs or a check failed, "
        "2 wrong arguments. A check that the backend does not support counts neither as passed nor "
        "as failed. Lines from the simulated CANN of the tests begin with 'simulated'.",
    )
    add = parser.add_argument
    default = Path("collops-npu-report.txt")
    add("--output", metavar="FILE", type=Path, default=default, help=f"the report ({default})")
    add(
        "--ranks",
        metavar="N",
        type=whole_number(2, 64),
        default=2,
        help="number of ranks, each with an NPU of its own (2)",
    )
    wait = own_limit(os.environ)
    add(
        "--seconds",
        metavar="S",
        type=seconds,
        default=wait,
        help=f"time-out of each check ({wait:g}, later than HCCL's own)",
    )
    add("--only", metavar="TEXT", default="", help="run only checks whose name contains TEXT")
    return parser
