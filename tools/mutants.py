"""Mutation check: do the tests find the faults of tests/mutants/faults.toml?

`build` copies the tree to build/mutants/tree with all faults in it, and builds it there; a fault is
on where TESTED_MUTANT has its number. `run [NUMBER ...]` switches them on one by one, and runs
tests until one fails: those that should find it, then those of its layer. With all that are left
it runs all tests at last, and what fails once more with each. A failure counts if it comes twice,
and not without the fault. `--compare OLD NEW` prints what NEW finds no more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environment import ROOT, say, tomllib

DATA = ROOT / "tests" / "mutants"
HOME = ROOT / "build" / "mutants"
TREE = HOME / "tree"
SUITES = "build/suites.json"  # in the tree: how each suite runs there
UNRELATED = HOME / "unrelated.json"  # tests that fail without a fault, by suite
TABLE = ROOT / "out" / "mutants.json"
VARIABLE, MARK = "TESTED_MUTANT", "MUTANT_RUN"  # the mark is on all that a run starts
NOT_FOUND = "NOT FOUND"
SWITCHES = {"ops/collops/core/mutants.h": "switch.h", "python/collops/mutants.py": "switch.py"}
INCLUDE = '#include "collops/core/mutants.h"\n'
FUTURE = "from __future__ import annotations\n"
IMPORT = f"{FUTURE}\nfrom collops.mutants import MUTANT\n"
# What looks at sources, packages or the machine, not at behaviour, stays out.
NOT_HERE = ("bench", "docs", "house", "package", "typing")
LIMITS_S = {"near": 300.0, "layer": 600.0, "all": 1500.0}  # of a run on a quiet machine
MOST, TRIES = 25, 5  # failures of all tests; and of one after the other that are not by the fault


@dataclass(frozen=True)
class Fault:
    """One fault: see faults.toml."""

    number: int
    layer: str
    sentence: str
    file: str
    find: str
    replace: str
    near: Sequence[str]


def read_faults() -> list[Fault]:
    """The faults, in their order."""
    return [Fault(**row) for row in tomllib.loads((DATA / "faults.toml").read_text())["fault"]]


def mutated(fault: Fault, text: str) -> str:
    """The text of a file with a fault, which is at one place."""
    if text.count(fault.find) != 1:
        raise SystemExit(f"fault {fault.number}: {text.count(fault.find)} places in {fault.file}")
    text = text.replace(fault.find, fault.replace)
    if fault.file.endswith(".py"):
        return text if IMPORT in text else text.replace(FUTURE, IMPORT, 1)
    return text if text.startswith(INCLUDE) else INCLUDE + text


def write_tree() -> None:
    """Copies what git knows. What is as it was is not written, so that a second build is short."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    names = [name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()]
    contents = {name: (ROOT / name).read_bytes() for name in names}
    contents |= {name: (DATA / own).read_bytes() for name, own in SWITCHES.items()}
    for fault in read_faults():
        contents[fault.file] = mutated(fault, contents[fault.file].decode()).encode()
    for folder in {name.partition("/")[0] for name in contents}:
        for path in (TREE / folder).rglob("*"):
            if path.is_file() and str(path.relative_to(TREE)) not in contents:
                path.unlink()
    for name, data in contents.items():
        path = TREE / name
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            if name not in SWITCHES:
                shutil.copymode(ROOT / name, path)


def build() -> None:
    """Makes the tree, its environment, and what its suites need."""
    say(f"writing {TREE}")
    write_tree()
    setup = [sys.executable, "tools/environment.py", ".venv", "package", "test", "torch", "ucx"]
    for command in (setup, [".venv/bin/python", "tools/mutants.py", "suites"]):
        subprocess.run(command, cwd=TREE, check=True)
    UNRELATED.unlink(missing_ok=True)
    for name, suite in json.loads((TREE / SUITES).read_text()).items():
        say(f"{name}: {suite['reason'] or 'ready'}")


def describe_suites() -> None:
    """In the tree: builds the C++ tests and the simulators, and writes down how suites run."""
    import gpu
    import multihost
    import npu
    import pytorch
    import run_tests
    from run_tests import BUILD, CTEST_JOBS, ENV

    jobs = str(len(os.sched_getaffinity(0)))
    if not run_tests.configure() or run_tests.run("cmake", "--build", str(BUILD), "-j", jobs) != 0:
        raise SystemExit("the C++ tests could not be built")
    found: dict[str, dict[str, Any]] = {}

    def add(name: str, command: list[str], rooms: list[str], reason: str = "", **env: str) -> None:
        env = {key: value for key, value in ENV.items() if os.environ.get(key) != value} | env
        found[name] = {"command": command, "rooms": rooms, "env": env, "reason": reason}

    conformance = "tests/conformance/test_conformance.py"
    pytest = [sys.executable, "-m", "pytest"]
    add("cpp", ["ctest", "--test-dir", str(BUILD), "-j", CTEST_JOBS, "--output-on-failure"], [])
    add("python", pytest, ["tests", *(f"--ignore=tests/unit/{room}" for room in NOT_HERE)])
    add("torch", pytest, ["tests/torch"], pytorch.reason_not_to_run(), COLLOPS_TEST_TORCH="1")
    gpu.build_simulator()
    add("gpu", pytest, ["tests/gpu", "tests/devices", conformance], **gpu.variables())
    venv, made = npu.make_environment()
    reason = "" if made == "installed" else made
    if not reason:
        npu.build_simulator()
    simulated = {
        "COLLOPS_SIM_CANN": str(npu.SIMULATOR),
        "LD_LIBRARY_PATH": f"{npu.SIMULATOR}:{os.environ.get('LD_LIBRARY_PATH', '')}".strip(":"),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    add(
        "npu",
        [str(venv.python), *pytest[1:]],
        ["tests/npu", "tests/devices", conformance],
        reason,
        **simulated,
    )
    programs, reason = str(BUILD / "tests" / "cpp"), multihost.reason_not_to_run()
    add("multihost", pytest, multihost.TESTS, reason, COLLOPS_TEST_PROGRAMS=programs)
    (ROOT / SUITES).write_text(json.dumps(found, indent=1))


def end_all(mark: str) -> None:
    """Kills what a run has started and not ended, wherever it has gone."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


class Runner:
    """Runs tests of the tree with a fault, or with none: number 0."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._suites = json.loads((TREE / SUITES).read_text())
        self._layers = tomllib.loads((DATA / "faults.toml").read_text())["layers"]
        known = UNRELATED.exists()
        self._unrelated: dict[str, list[str]] = json.loads(UNRELATED.read_text()) if known else {}

    def failed(
        self, numbers: Sequence[int], suite: str, args: Sequence[str], stage: str
    ) -> list[str]:
        """The first test that fails, of stage "all" more; what does not end has failed."""
        own, left_out = self._suites[suite], self._unrelated.get(suite, [])
        log, cache, mark = HOME / "run.log", HOME / "cache", uuid.uuid4().hex
        shutil.rmtree(cache, ignore_errors=True)
        command = [*own["command"], *args]
        if suite == "cpp":
            command += ["--timeout", f"{120 * self._patience:.0f}"]
            command += [] if stage == "all" else ["--stop-on-failure"]
            command += ["-E", f"^({'|'.join(left_out)})$"] if left_out else []
        else:
            most = MOST if stage == "all" else 1
            command += [f"--maxfail={most}", "-v", "-o", f"cache_dir={cache}"]
            command += [f"--deselect={name}" for name in left_out]
        path = f"{TREE}/.venv/bin:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, **own["env"], MARK: mark}
        env[VARIABLE] = ",".join(map(str, numbers))
        env["COLLOPS_TEST_PATIENCE"] = f"{self._patience:g}"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=TREE,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
            )
            try:
                status = process.wait(LIMITS_S[stage] * self._patience)
            except subprocess.TimeoutExpired:
                status = -1
            finally:
                process.kill()
                process.wait()
                end_all(mark)
        # pytest ends with 4 or 5 where there are no such tests.
        if status in (0, 4, 5):
            return []
        text = log.read_text(errors="replace")
        noted = cache / "v" / "cache" / "lastfailed"
        if noted.exists():
            return list(json.loads(noted.read_text())) or ["pytest"]
        ended = re.findall(r"^\s*\d+ - (\S+) \(", text, re.MULTILINE)
        begun = re.findall(r"^(?: +Start +\d+: (?=\S+$))?(\S+_test$|tests/\S+::.*\S)", text, re.M)
        return ended or begun[-1:] or [f"{suite} ended with {status}"]

    def passes(self, suite: str, test: str) -> bool:
        """Whether the test passes without a fault; one that does not is left out from now on."""
        if not self.failed([], suite, self.only(suite, test), "near"):
            return True
        say(f"  {suite}: {test} fails without a fault: left out from now on")
        self._unrelated.setdefault(suite, []).append(test)
        UNRELATED.write_text(json.dumps(self._unrelated, indent=1))
        return False

    @staticmethod
    def only(suite: str, test: str) -> list[str]:
        """The arguments that run one test."""
        return ["-R", f"^{test}$"] if suite == "cpp" else [test]

    def finds(self, number: int, stage: str, suite: str, args: Sequence[str]) -> str:
        """The test of these that fails by the fault alone; "" if there is none."""
        for _ in range(0 if self._suites[suite]["reason"] else TRIES):
            test = next(iter(self.failed([number], suite, args, stage)), "")
            if not test or self.causes([number], suite, test):
                return test
        return ""

    def parts(self, fault: Fault) -> Iterator[tuple[str, str, list[str]]]:
        """What runs for a fault, in its order: stage, suite and arguments."""
        for entry in fault.near:
            suite, *args = shlex.split(entry)
            # For pytest a path that is no more would be an error.
            args = [x for x in args if not x.startswith("tests/") or (TREE / x).exists()]
            if not args:
                continue
            rooms = self._suites[suite]["rooms"] if args[0].startswith("-") else []
            yield "near", suite, ["-R", *args] if suite == "cpp" else [*rooms, *args]
        folders, rooms, others = (words.split() for words in self._layers[fault.layer])
        tests = [path for f in folders for path in (TREE / "tests/cpp" / f).rglob("*_test.cpp")]
        if tests:
            yield "layer", "cpp", ["-R", f"^({'|'.join(path.stem for path in tests)})$"]
        if rooms := [room for room in rooms if (TREE / room).exists()]:
            yield "layer", "python", rooms
        for suite in others:
            yield "layer", suite, self._suites[suite]["rooms"]

    def run(self, fault: Fault, depth: str) -> dict[str, Any]:
        """Runs the tests near to a fault until one finds it; the row of the table."""
        begin = time.monotonic()
        row: dict[str, Any] = {"layer": fault.layer, "sentence": fault.sentence}
        row |= {"found_by": NOT_FOUND, "suite": "", "stage": depth}
        for stage, suite, args in self.parts(fault):
            if stage == "layer" and depth == "near":
                break
            if test := self.finds(fault.number, stage, suite, args):
                row |= {"found_by": test, "suite": suite, "stage": stage}
                break
        return row | {"seconds": round(time.monotonic() - begin)}

    def causes(self, numbers: Sequence[int], suite: str, test: str) -> list[int]:
        """By which of these faults the test fails; by none if it fails without them."""
        one, found, left = self.only(suite, test), [], [*numbers]
        if not self.passes(suite, test):
            return []
        while left and self.failed(left, suite, one, "near"):
            each = (n for n in left if len(left) == 1 or self.failed([n], suite, one, "near"))
            if (number := next(each, None)) is None:
                break
            found.append(number)
            left.remove(number)
        return found

    def run_all(self, rows: dict[str, dict[str, Any]], numbers: list[int]) -> None:
        """Runs every test with all these faults, and what fails with each."""
        for suite, own in self._suites.items():
            left = [n for n in numbers if rows[str(n)]["found_by"] == NOT_FOUND]
            if own["reason"] or not left:
                continue
            say(f"all of {suite} with {left}")
            for test in self.failed(left, suite, own["rooms"], "all"):
                say(f"  {test}")
                for number in self.causes(left, suite, test):
                    rows[str(number)] |= {"found_by": test, "suite": suite, "stage": "all"}
                    left.remove(number)
                    say(f"  finds {number}")
            write_tables(rows)


def write_tables(rows: dict[str, dict[str, Any]]) -> None:
    """out/mutants.json and .md."""
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(json.dumps(rows, indent=1) + "\n")
    keys = ("layer", "sentence", "found_by", "suite", "seconds")
    table = [["fault", *keys], ["---"] * 6, *([n, *(r[k] for k in keys)] for n, r in rows.items())]
    lines = ["| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in table]
    TABLE.with_suffix(".md").write_text("\n".join(lines) + "\n")


def run(numbers: Sequence[int], depth: str, patience: float) -> None:
    """Runs the faults, by default all, and adds each to the table at once."""
    rows: dict[str, dict[str, Any]] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    runner = Runner(patience)
    for fault in read_faults():
        if not numbers or fault.number in numbers:
            say(f"{fault.number}: {fault.sentence}")
            row = rows[str(fault.number)] = runner.run(fault, depth)
            say(f"  {row['found_by']} ({row['suite'] or depth}), {row['seconds']} s")
            rows = {number: rows[number] for number in sorted(rows, key=int)}
            write_tables(rows)
    if depth == "all":
        runner.run_all(rows, list(numbers) or [fault.number for fault in read_faults()])


def found_in(path: Path) -> dict[str, str]:
    """The tests that found faults, by their numbers: of a table, or of tests/mutants/found.json."""
    rows = json.loads(path.read_text())
    names = {n: row if isinstance(row, str) else row["found_by"] for n, row in rows.items()}
    return {number: name for number, name in names.items() if name != NOT_FOUND}


def compare(old: Path, new: Path) -> int:
    """Prints what was found and is no more; 1 if there is any."""
    before, after = found_in(old), found_in(new)
    lost = [number for number in before if number not in after]
    for number in lost:
        print(f"{number}: was found by {before[number]}")
    print(f"{len(before)} were found, {len(after)} are; {len(lost)} are no more")
    return 1 if lost else 0


def main() -> int:
    """Does what the command line says."""
    parser = argparse.ArgumentParser(prog="mutants.py", description=__doc__)
    parser.add_argument("word", nargs="?", choices=["build", "run", "suites"])
    parser.add_argument("numbers", nargs="*", type=int, help="of the faults to run; default: all")
    parser.add_argument("--depth", choices=LIMITS_S, default="all", help="where run stops")
    parser.add_argument("--patience", type=float, default=3.0, help="multiplies all time limits")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    given = parser.parse_args()
    if given.compare:
        return compare(*given.compare)
    if given.word == "run":
        run(given.numbers, given.depth, given.patience)
    else:
        {"build": build, "suites": describe_suites}.get(given.word or "", parser.print_help)()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
