"""Runs the Python tests with pytest and the C++ tests with ctest, then prints a summary.

The Python tests run side by side (pytest-xdist), and meanwhile the C++ tests are compiled at a low
priority: ranks mostly wait for each other. A run says first how long it will take, and at its end
which files were slow.
Arguments are passed to pytest; with a selection (-k, -m or a path) the C++ tests run as well.
Behind --fuzz they are for tests/fuzz alone, which run in full then.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import alone
from alone import Again
from patience import factor, patience

ROOT = Path(__file__).resolve().parent.parent
# Where setup.py has compiled the core for the package.
BUILD = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"
REPORTS = ROOT / "build" / "reports"
# How many run at once: one more than there are cores, as half of a test's time is spent waiting.
# Each starts several ranks, so more would make limits of time fail.
CORES = len(os.sched_getaffinity(0))
SIDE_BY_SIDE = min(CORES + 1, 8)
# A test that computes takes two of these, one that waits one (tests/cpp/CMakeLists.txt).
CTEST_JOBS = str(3 * CORES)
# What the last whole run took here, and the reference run, on two quiet cores.
LAST = ROOT / "build" / "test-seconds.json"
REFERENCE = ROOT / ".ci" / "seconds"
SLOWEST = 10
FUZZ_LIMIT_S = 900  # for one test: its examples are 20 times those of make test
# Tests that need more than this environment, and the targets that run them.
ELSEWHERE = (
    "tests/gpu: make test-gpu; tests/npu: make test-npu; tests/devices: both; "
    "tests/multihost: make test-multihost; tests/torch: make test-torch; "
    "tests/clients: make test-clients; tests/jax: make test-jax; "
    "the MPIs and torchrun of tests/launchers: make test-launchers"
)
# Where to note what has failed, for a second run; only `.ci/run` says so.
NOTES = os.environ.get("CI_AGAIN", "")
# The stamp with the reason why torch is missing, for the tests and the summary.
TORCH_STAMP = Path(sys.prefix) / "stamps" / "torch"


@dataclass
class Outcome:
    """The result of one kind of tests."""

    name: str
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    skipped: Counter[str] = field(default_factory=Counter)
    # How long each file took.
    files: Counter[str] = field(default_factory=Counter)
    problem: str = ""
    required_as: str = "test"
    # What has failed, to be run again; a problem beside it is not one of tests.
    again: list[Again] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """The number of tests that failed."""
        return len(self.failures)

    @property
    def good(self) -> bool:
        """Whether tests ran, none failed, and, if all are required, none was skipped."""
        ran_well = not self.problem and self.failed == 0 and self.passed > 0
        return ran_well and not self.lacks_tests

    @property
    def lacks_tests(self) -> bool:
        """Whether tests were skipped that are required."""
        return self.skipped.total() > 0 and is_required(self.required_as)

    def add(self, other: Outcome) -> None:
        """Counts those of another run of the same kind too."""
        self.passed += other.passed
        self.failures += other.failures
        self.skipped += other.skipped
        self.files += other.files
        self.problem = self.problem or other.problem

    def text(self) -> str:
        """The result in one line, then the name of each test that failed."""
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped.total()} skipped"
        why = f"  ({self.problem})" if self.problem else ""
        line = f"  {self.name:<7} {counts}, {self.seconds:.0f} s{why}"
        return "\n".join([line, *(f"  failed  {failure}" for failure in self.failures)])

    def slowest(self) -> str:
        """The files that took longest, in one line."""
        most = self.files.most_common(SLOWEST)
        return ", ".join(f"{name.removeprefix('tests.')} {took_s:.0f} s" for name, took_s in most)


def load_text() -> str:
    """What to know of a test whose time ran out."""
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    limits = f"limits were {factor():g} times those of a quiet machine"
    return f"load in the last 1, 5, 15 minutes: {loads} on {CORES} cores; {limits}"


def ucx_folder() -> str:
    """The folder of the libraries in PyPI's libucx; empty if it is not installed."""
    spec = importlib.util.find_spec("libucx")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return f"{folders[0]}/lib" if folders else ""


factor()  # which the variables have then
# The tools of this environment come first; the flags of the outer make are removed.
ENV = {
    **{name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}},
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "COLLOPS_TEST_UCX_FOLDER": ucx_folder(),
    # As setup.py has it, for the precompiled headers.
    "CCACHE_SLOPPINESS": os.environ.get("CCACHE_SLOPPINESS", "pch_defines,time_macros"),
}


def is_required(name: str) -> bool:
    """Whether CI_REQUIRE names it; skipped tests then count as failed."""
    return name in os.environ.get("CI_REQUIRE", "").split(",")


def run(*command: str) -> int:
    """Runs a command in the checkout."""
    return subprocess.run(command, cwd=ROOT, env=ENV).returncode


def configure() -> bool:
    """Adds the C++ tests to the package's build; without one, builds the core alone."""
    command = ["cmake", "-S", ".", "-B", str(BUILD), "-DBUILD_TESTING=ON"]
    if (BUILD / "CMakeCache.txt").exists() and run(*command) == 0:
        return True
    # Its cache may name tools that no longer exist.
    shutil.rmtree(BUILD, ignore_errors=True)
    command += ["-DCMAKE_BUILD_TYPE=Release"]
    command += ["-GNinja"] if shutil.which("ninja", path=ENV["PATH"]) else []
    return run(*command) == 0


class CppTests:
    """The C++ tests, with the package's core: built beside other work, then run."""

    def __init__(self) -> None:
        self._jobs = str(CORES)
        self._log = REPORTS / "cpp-build.log"
        self._build: subprocess.Popen[bytes] | None = None
        self._command = ["cmake", "--build", str(BUILD), "-j", self._jobs]
        # Some Python tests need the core as a library, which usually exists.
        if configure() and run(*self._command, "--target", "collops") == 0:
            self._build = self._start("nice", "-n", "15")
            atexit.register(self._stop)

    def _start(self, *before: str) -> subprocess.Popen[bytes]:
        """Starts the build, in a group of processes of its own."""
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [*before, *self._command],
                cwd=ROOT,
                env=ENV,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _build_now(self) -> int:
        """The status of the build. It goes on at the usual priority: beside programs that never
        rest it would not end at the low one."""
        assert self._build is not None
        if self._build.poll() is None:
            self._stop()
            self._build = self._start()
        return self._build.wait()

    def _stop(self) -> None:
        """Also where this program is interrupted, which the build's group does not hear."""
        if self._build is not None and self._build.poll() is None:
            os.killpg(self._build.pid, signal.SIGINT)
            self._build.wait()

    def run(self) -> Outcome:
        """Waits for the build and runs what it has built."""
        outcome = Outcome("C++")
        start = time.monotonic()
        report = REPORTS / "ctest.xml"
        test = ["ctest", "--test-dir", str(BUILD), "--output-on-failure"]
        test += ["-j", CTEST_JOBS]
        test += ["--timeout", f"{patience(120):.0f}"]
        if self._build is None:
            outcome.problem = "the core could not be built"
        elif self._build_now() != 0:
            print(self._log.read_text(errors="replace"))
            outcome.problem = "the build failed"
        else:
            run_ctest(test, report, outcome)
        outcome.seconds = time.monotonic() - start
        return outcome


class PythonTests:
    """Runs of pytest at once, each with its arguments; `options` are those of a second run too."""

    def __init__(self, python: str | Path = sys.executable, options: Sequence[str] = ()) -> None:
        self._outcome = Outcome("Python")
        self._start = time.monotonic()
        self._command = [str(python), "-m", "pytest", *options]

    def begin(
        self, name: str, arguments: list[str], log: IO[bytes] | None = None
    ) -> Callable[[], None]:
        """Starts pytest; returns what waits for its end and reads its report."""
        report, cache = REPORTS / f"{name}.xml", REPORTS / f"{name}.cache"
        report.unlink(missing_ok=True)
        command = [*self._command, f"--junitxml={report}", *arguments]
        if NOTES:  # a list of failures of its own, from which a developer's --lf is apart
            shutil.rmtree(cache, ignore_errors=True)
            command += ["-o", f"cache_dir={cache}"]
        process = subprocess.Popen(
            command, cwd=ROOT, env=ENV, stdout=log, stderr=log and subprocess.STDOUT
        )

        def end() -> None:
            status = process.wait()
            own = Outcome(name)
            read_report(report, own)
            if status not in (0, 1):
                own.problem = f"pytest ended with status {status}"
            elif status == 1 and own.failed == 0:
                own.problem = "pytest failed outside the tests"
            self._outcome.add(own)
            if own.problem:  # which tests have run is unknown
                self._note(" ".join(arguments), arguments)
            else:
                for test in failed_tests(cache):
                    self._note(test, [test])

        return end

    def _note(self, name: str, arguments: list[str]) -> None:
        self._outcome.again.append(Again(name, [*self._command, *arguments], own_env()))

    def outcome(self) -> Outcome:
        """The result of all that has ended."""
        self._outcome.seconds = time.monotonic() - self._start
        return self._outcome


def run_python(
    arguments: list[str], python: str | Path = sys.executable, options: Sequence[str] = ()
) -> Outcome:
    """Runs pytest in the environment of an interpreter."""
    tests = PythonTests(python, options)
    tests.begin("pytest", arguments)()
    return tests.outcome()


def run_python_halves(first: list[str], second: list[str]) -> Outcome:
    """Runs the Python tests of `first` here, and the others beside it."""
    log_path = REPORTS / "pytest-others.log"
    tests = PythonTests()
    with log_path.open("wb") as log:
        end_others = tests.begin("pytest-others", second, log)
        tests.begin("pytest", first)()
        end_others()
    print(log_path.read_text(errors="replace"))
    return tests.outcome()


def side_by_side() -> list[str]:
    """The arguments with which pytest runs tests side by side; none where it cannot."""
    if importlib.util.find_spec("xdist") is None:
        return []
    # The tests of a file share what is costly: built packages, golden's results. The files that
    # took longest last time come first (tests/conftest.py).
    return ["-n", str(SIDE_BY_SIDE), "--dist", "loadfile", "--no-loadscope-reorder"]


def failed_tests(cache: Path) -> list[str]:
    """The tests that pytest has noted there as failed, by the names that it takes."""
    path = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(path.read_text())) if path.exists() else []


def own_env() -> dict[str, str]:
    """The variables that a tool has set for its tests."""
    return {name: value for name, value in ENV.items() if os.environ.get(name) != value}


def read_report(report: Path, outcome: Outcome) -> None:
    """Counts the test cases of a JUnit file, the skipped ones by their reason."""
    if not report.exists():
        outcome.problem = "no report was written"
        return
    for case in ET.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        outcome.files[case.get("classname") or ""] += float(case.get("time") or 0)
        problems = [*case.iterfind("failure"), *case.iterfind("error")]
        if problems:
            room, name = case.get("classname"), case.get("name")
            message = (problems[0].get("message") or "").partition("\n")[0]
            name = name if room == name else f"{room}::{name}"  # ctest has no rooms
            message = message[:200]
            if "timeout" in message.lower():
                message += f" ({load_text()})"
            outcome.failures.append(f"{name}: {message}")
        elif skipped is not None:
            outcome.skipped[skipped.get("message") or "no reason given"] += 1
        else:
            outcome.passed += 1


def run_ctest(
    command: Sequence[str], report: Path, outcome: Outcome, chosen: Sequence[str] = ()
) -> None:
    """Runs ctest, perhaps with a choice of its tests, and reads its report."""
    report.unlink(missing_ok=True)
    status = run(*command, "--output-junit", str(report), *chosen)
    read_report(report, outcome)
    if status != 0 and outcome.failed == 0:
        outcome.problem = f"ctest ended with status {status}"
    names = [failure.partition(":")[0] for failure in outcome.failures]
    outcome.again = [Again(name, [*command, "-R", f"^{name}$"], own_env()) for name in names]


def status_of(outcomes: Sequence[Outcome]) -> int:
    """The status to end with. Where nothing is wrong but tests that failed, notes them."""
    if all(outcome.good for outcome in outcomes):
        return 0
    of_tests = all(o.good or (o.again and not o.lacks_tests) for o in outcomes)
    if NOTES and of_tests:
        alone.note(Path(NOTES), [again for outcome in outcomes for again in outcome.again])
    return 1


def print_summary(outcomes: list[Outcome]) -> None:
    """The tests that ran, those that did not, with reasons, and what took longest."""
    print("\nSummary")
    for outcome in outcomes:
        print(outcome.text())
    torch = TORCH_STAMP.read_text().splitlines()[1:] if TORCH_STAMP.exists() else []
    if torch and torch[0] != "installed":
        print(f"  torch   {torch[0]}\n          (remembered; delete {TORCH_STAMP} to try again)")
    for outcome in outcomes:
        for reason, count in outcome.skipped.most_common():
            print(f"  skipped {count} x {reason}")
    for outcome in outcomes:
        print(f"  slow    {outcome.name}: {outcome.slowest()}")


def minutes(seconds: float) -> str:
    """A time that is an estimate."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def expected() -> str:
    """How long all tests will take, and how that is known."""
    if LAST.exists():
        last = json.loads(LAST.read_text())
        seconds, then = last["seconds"], last["factor"]
        known = f"{minutes(seconds)} last time, when this machine was {then:g} times as slow"
    else:
        lines = dict(map(str.split, REFERENCE.read_text().splitlines()))
        seconds, then = float(lines["test"]), 1.0
        known = f"{minutes(seconds)} on two quiet cores"
    now = f"it is {factor():g} times as slow as a quiet one now"
    return f"about {minutes(seconds * factor() / then)}: {known}, and {now}"


def fuzz(arguments: list[str]) -> int:
    """Runs tests/fuzz in full, from a seed that a second run has too."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    ENV["HYPOTHESIS_PROFILE"] = "fuzz"
    seed = f"--hypothesis-seed={secrets.randbelow(10**6)}"
    limit = f"--timeout={patience(FUZZ_LIMIT_S):.0f}"
    outcome = run_python(["tests/fuzz", *arguments], options=[seed, limit])
    outcome.required_as = "fuzz"
    print_summary([outcome])
    return status_of([outcome])


def main() -> int:
    """Runs both kinds of tests, even if the first one fails."""
    if sys.argv[1:2] == ["--fuzz"]:
        return fuzz(sys.argv[2:])
    REPORTS.mkdir(parents=True, exist_ok=True)
    for old in REPORTS.glob("*.xml"):
        old.unlink()
    begin = time.monotonic()
    if not sys.argv[1:]:
        print(f"all tests take {expected()}", flush=True)
    cpp = CppTests()
    outcomes = [run_python(sys.argv[1:] or side_by_side()), cpp.run()]
    print_summary(outcomes)
    print(f"  not collected here  {ELSEWHERE}")
    if not sys.argv[1:] and not any(outcome.problem for outcome in outcomes):
        took = {"seconds": round(time.monotonic() - begin), "factor": factor()}
        LAST.write_text(json.dumps({**took, "files": dict(outcomes[0].files)}))
    return status_of(outcomes)


if __name__ == "__main__":
    raise SystemExit(main())
