"""``collops bench cpp``: the same calls from C++, in turn with those of MPIs, in one run.

Builds a program for collops by CMake and one for each MPI by its own mpicxx, runs all of them in
turn in each round, writes one file with the machine, the peers' settings and all points, and prints
the table of ratios. The sources are in bench/ of a checkout.

An MPI has several settings. ``default`` is what it does by itself. ``heap`` lets glibc keep freed
memory: temporaries of the library are then not mapped, faulted in and unmapped in every call.
``tuned`` is ``heap`` with variables that are meant to move long messages in another way: without
copies by the kernel from one process to another (CMA), or without Intel MPI's forward cells.
``shm_heap`` is Intel MPI's library for a heap in shared memory. Which one is faster depends on the
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collops.bench import runs
from collops.bench.operator import Row
from collops.bench.peers.mpi_launcher import Mpi, find_mpis
from collops.bench.plot import require_matplotlib
from collops.launch.programs import Programs, answers
from collops.terminal.arguments import Parser, count, status_of_command, whole_number, words

# The checkout that this is run in; else the one that this module is in.
_FOLDERS = (Path.cwd(), *Path.cwd().parents, Path(__file__).resolve().parents[3])
ROOT = next((each for each in _FOLDERS if (each / "bench" / "measure.h").exists()), Path.cwd())
SOURCES = ROOT / "bench"
# The package's own build, if there is one: a second build of the core would take minutes.
_PACKAGE_BUILD = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"
# As collops itself, and with all instructions of this machine for the sums that MPI's ways make.
MPI_FLAGS = ["-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-DNDEBUG"]
MPI_FLAGS += ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow"]
_HEAP = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
# Environment variables by MPI and setting; an MPI that is not named here has the first two.
_COMMON: dict[str, dict[str, str]] = {"default": {}, "heap": _HEAP}
SETTINGS: dict[str, dict[str, dict[str, str]]] = {
    "Open MPI": {**_COMMON, "tuned": {**_HEAP, "OMPI_MCA_smsc": "^cma"}},
    "MPICH": {**_COMMON, "tuned": {**_HEAP, "MPIR_CVAR_CH4_CMA_ENABLE": "0"}},
    "Intel MPI": {
        **_COMMON,
        "tuned": {**_HEAP, "I_MPI_SHM_CELL_FWD_SIZE": "0"},
        "shm_heap": {"LD_PRELOAD": "libmpi_shm_heap_proxy.so", "I_MPI_SHM_HEAP": "1"},
    },
}
# Variables of this process that would change a library's settings; the ranks do not get them.
_DROPPED = (
    *("COLLOPS_", "MALLOC_", "LD_PRELOAD", "OMPI_", "OPAL_", "PMIX_", "PRTE_", "I_MPI_"),
    *("FI_", "UCX_", "HYDRA_", "MPIR_", "MPICH_", "PMI_", "OMP_"),
)
_BUILD_S, _LAUNCH_S, _ASK_S = 1800, 600.0, 30
_LOOK_S = 1.0  # rarely, because a look takes time from the ranks
_LAST_LINES = 5
# The operators of bench/measure.cpp.
OPERATORS = (
    *("all_gather_v", "reduce_scatter_v", "all_reduce", "broadcast"),
    *("all_to_all_v", "send_recv", "send"),
)
_CALLS = "all_gather_v:f32,reduce_scatter_v:f32,reduce_scatter_v:bf16,all_reduce:f32"
_CALLS += ",broadcast:f32,all_to_all_v:f32,send_recv:f32"
_SIZES, _SHARES, _ROUNDS = "64,1k,16k,256k,4m,64m", "3:5,1:2:3:4", 3
_QUICK = {"calls": "all_gather_v:f32,reduce_scatter_v:bf16", "sizes": "1k", "skew": "3:5"}
# What lscpu says of the machine; nothing that names it.
_LSCPU = (
    *("Architecture", "Vendor ID", "Model name", "CPU family", "Model", "Stepping", "CPU(s)"),
    *("Thread(s) per core", "Core(s) per socket", "Socket(s)", "NUMA node(s)", "L1d cache"),
    *("L2 cache", "L3 cache", "Hypervisor vendor"),
)
_INSTRUCTIONS = (
    *("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "sve", "bf16"),
)


class NotBuiltError(RuntimeError):
    """A program cannot be built; the text says why."""


@dataclass(frozen=True)
class Peer:
    """A library with its settings, and the program that measures it."""

    name: str
    program: Path
    version: str
    settings: dict[str, str] = field(default_factory=dict)  # environment variables
    mpi: Mpi | None = None  # what starts the ranks; None: the program itself

    def command(self, ranks: int, arguments: list[str]) -> list[str]:
        """The words that start the ranks."""
        launcher = self.mpi.command(ranks) if self.mpi else []
        return [*launcher, str(self.program), *arguments]

    def environment(self, ranks: int) -> dict[str, str]:
        """All environment variables of the ranks."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
        return {**kept, **(self.mpi.variables(ranks) if self.mpi else {}), **self.settings}

    def record(self, ranks: list[int]) -> Row:
        """What the run's file says of this peer; no path of the machine."""
        record: Row = {"name": self.name, "version": self.version, "settings": self.settings}
        if self.mpi:
            record["launcher"] = self.mpi.command(max(ranks))[1:]
            record["launcher_variables"] = {
                str(number): {
                    name: value
                    for name, value in self.mpi.variables(number).items()
                    if name not in self.mpi.environment
                }
                for number in ranks
            }
        return record


@dataclass(frozen=True)
class Case:
    """What every peer is measured with: one launch for all sizes."""

    operator: str
    shares: str
    sizes: str
    iterations: int
    counted: bool = False

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.shares.count(":") + 1

    @property
    def name(self) -> str:
        """As notes print it."""
        return f"{self.operator} {self.shares}"

    def arguments(self) -> list[str]:
        """The program's arguments; all its ways."""
        operator, _, dtype = self.operator.partition(":")
        words = [operator, dtype or "f32", self.sizes, self.shares, str(self.iterations), "all"]
        return [*words, "count"] if self.counted else words


def build_collops(folder: Path, prefix: Path | None = None, name: str = runs.COLLOPS) -> Peer:
    """Builds collops's program in a folder; without `prefix` it installs this checkout first.

    Raises:
        NotBuiltError: a tool is missing, or the build failed.
    """
    if shutil.which("cmake") is None:
        raise NotBuiltError("cmake is missing (pip install cmake)")
    if prefix is None:
        prefix = _install_core(folder)
    build = folder / name.replace(" ", "-")
    # A kept cache may lead to another installed collops.
    (build / "CMakeCache.txt").unlink(missing_ok=True)
    options = [f"-DCMAKE_PREFIX_PATH={prefix.resolve()}", f"-DCOLLOPS_WERROR={_warnings_end()}"]
    _run("cmake", "-S", SOURCES, "-B", build, *options)
    _run("cmake", "--build", build, "-j", _jobs())
    program = build / "collops_bench"
    return Peer(name, program, _first_line([str(program), "--version"]))


def build_mpi(mpi: Mpi, folder: Path, settings: Sequence[str]) -> list[Peer]:
    """Builds an MPI's program in a folder; a peer for each of the settings (empty: all).

    Raises:
        NotBuiltError: the MPI has no compiler or no header, or the build failed.
    """
    compiler = Path(mpi.program).parent / "mpicxx"
    if not os.access(compiler, os.X_OK):
        raise NotBuiltError(f"{mpi.name}: there is no mpicxx beside {Path(mpi.program).name}")
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"{mpi.name.lower().replace(' ', '_')}_bench"
    sources = [SOURCES / name for name in ("mpi.cpp", "board.cpp", "measure.cpp")]
    flags = [*MPI_FLAGS, *(["-Werror"] if _warnings_end() == "ON" else [])]
    environment = {**os.environ, **mpi.environment}
    _run(compiler, *flags, "-I", SOURCES, *sources, "-o", program, environment=environment)
    version = _first_line([str(program), "--version"], environment)
    return [
        Peer(f"{mpi.name} {name}", program, version, variables, mpi)
        for name, variables in SETTINGS.get(mpi.name, _COMMON).items()
        if name in settings or not settings
    ]


def _install_core(folder: Path) -> Path:
    """Builds and installs this checkout's core, in the package's build if there is one."""
    build = _PACKAGE_BUILD
    if not (build / "CMakeCache.txt").exists():
        build = folder / "core"
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF"]
        options += [f"-DPython_EXECUTABLE={sys.executable}"]  # its pip may have the JSON headers
        _run("cmake", "-S", ROOT, "-B", build, *options)
    _run("cmake", "--build", build, "--target", "collops", "-j", _jobs())
    prefix = folder / "prefix"
    shutil.rmtree(prefix, ignore_errors=True)
    _run("cmake", "--install", build, "--prefix", prefix, "--component", "Unspecified")
    return prefix


def _warnings_end() -> str:
    """Whether a warning is an error: where all compilers are known."""
    return "ON" if os.environ.get("CI") else "OFF"


def _jobs() -> str:
    return str(len(os.sched_getaffinity(0)))


def _run(*words: str | Path, environment: dict[str, str] | None = None) -> None:
    command, name = [str(word) for word in words], Path(words[0]).name
    try:
        [(status, out, err)] = answers([(command, environment or os.environ)], _BUILD_S)
    except OSError as problem:
        raise NotBuiltError(f"{name}: {problem}") from None
    if status != 0:
        lines = [*out.splitlines(), *err.splitlines()]
        shown = [line for line in lines if "rror" in line][:3] or lines[-3:]
        how = f"did not end in {_BUILD_S} s" if status is None else "failed"
        raise NotBuiltError(f"{name} {how}: {' | '.join(shown)}")


def _first_line(command: list[str], environment: dict[str, str] | None = None) -> str:
    """The first line that a command prints; empty if it cannot run."""
    return _said(command, environment).partition("\n")[0].strip()


def _said(command: list[str], environment: dict[str, str] | None = None) -> str:
    """What a command prints; empty if it cannot run."""
    try:
        [answer] = answers([(command, environment or os.environ)], _ASK_S)
    except OSError:
        return ""
    return answer.out + answer.err


def _revision() -> str:
    """The checkout's commit, with "+" if files differ from it; empty outside a checkout."""
    commit = _first_line(["git", "-C", str(ROOT), "rev-parse", "HEAD"])
    if len(commit) != 40:
        return ""
    return commit + ("+" if _said(["git", "-C", str(ROOT), "status", "--porcelain"]) else "")


def machine_facts() -> Row:
    """What lscpu, the kernel and /proc say."""
    cpu: dict[str, str] = {}
    waiting = json.loads(
        _said(["lscpu", "--json"], {**os.environ, "LC_ALL": "C"}) or '{"lscpu": []}'
    )["lscpu"]
    while waiting:  # newer versions nest the fields
        row = waiting.pop(0)
        cpu[row["field"].strip().removesuffix(":")] = row.get("data") or ""
        waiting = [*row.get("children", []), *waiting]
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "lscpu": {name: cpu[name] for name in _LSCPU if name in cpu},
        "instructions": [name for name in _INSTRUCTIONS if name in cpu.get("Flags", "").split()],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "huge_pages": pages.read_text().strip() if pages.exists() else "",
    }


def turns(rounds: int, cases: list[Case], peers: list[Peer]) -> Iterator[tuple[int, Case, Peer]]:
    """Every launch of a run, in its order.

    In each round all peers measure a case before the next case begins, so they see the machine in
    the same minutes; who begins changes from case to case and from round to round.
    """
    for number in range(rounds):
        for position, case in enumerate(cases):
            first = (number + position) % len(peers)
            for peer in [*peers[first:], *peers[:first]]:
                yield number + 1, case, peer


def launch(
    peer: Peer,
    case: Case,
    limit_s: float = _LAUNCH_S,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[list[Row], Row]:
    """One launch: the lines of its points, and what went wrong, which is empty if nothing did.

    It is ended after `limit_s` seconds, or as soon as `stopped`, asked again and again, says so.
    """
    command = peer.command(case.ranks, case.arguments()), peer.environment(case.ranks)
    deadline = time.monotonic() + limit_s
    status: int | str | None = None
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        with Programs([command], output) as programs:
            while status is None and not stopped() and time.monotonic() < deadline:
                [status] = programs.wait(min(_LOOK_S, limit_s))
        output.seek(0)
        lines = output.read().splitlines()
    points = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    if status == 0:
        return points, {}
    said = [line for line in lines if line.strip() and not line.startswith("{")]
    shown = [line.replace(str(ROOT), ".").replace(str(Path.home()), "~") for line in said]
    status = f"ended after {limit_s:g} s" if status is None else status
    return points, {"status": status, "output": shown[-_LAST_LINES:]}


def parser() -> Parser:
    """The parser of the command."""
    made = Parser(
        prog="collops bench cpp",
        description="Compares collops with MPIs, from C++, in one interleaved run; or shows the "
        "tables of stored runs.",
        epilog="docs/bench.md explains what is measured. Exit status: 0 success, 1 a launch failed "
        "or a result was wrong, 2 nothing could be measured.",
    )
    add = made.add_argument
    add("runs", nargs="*", type=Path, metavar="RUN.json", help="show these, and measure nothing")
    add(
        "--mpi",
        action="append",
        type=Path,
        default=[],
        metavar="PREFIX",
        help="an MPI installed with bin/mpiexec in PREFIX; repeatable (those on PATH)",
    )
    of_mpis = {name: None for settings in SETTINGS.values() for name in settings}
    add(
        "--settings",
        metavar="LIST",
        type=lambda text: words(text, list(of_mpis)),
        default=(),
        help=f"settings of MPIs, some of {','.join(of_mpis)} (all)",
    )
    add("--collops", type=Path, metavar="PREFIX", help="use the collops installed in PREFIX")
    add("--before", type=Path, metavar="PREFIX", help="compare with the collops in PREFIX, too")
    add("--calls", metavar="LIST", type=_calls, default=_CALLS, help=f"OPERATOR:TYPE ({_CALLS})")
    add("--sizes", metavar="LIST", default=_SIZES, help=f"bytes of the whole vector ({_SIZES})")
    add("--skew", metavar="LIST", default=_SHARES, help=f"shares of the ranks ({_SHARES})")
    add("--iterations", metavar="N", type=whole_number(0), default=0, help="of a point (0: usual)")
    add("--rounds", metavar="N", type=count, default=_ROUNDS, help=f"of the run ({_ROUNDS})")
    add("--instructions", action="store_true", help="count those of a call, where that is possible")
    add("--quick", action="store_true", help="one round of two calls of 1 KiB")
    folder = ROOT / "build" / "bench"
    add("--folder", metavar="DIR", type=Path, default=folder, help="of the builds (build/bench)")
    add("--json", metavar="FILE", type=Path, help="the file of the results (DIR/run.json)")
    add("--summary", action="store_true", help="one shorter table, of all runs together")
    add("--plot", metavar="FILE.png", type=Path, help="draw the ratios by size")
    return made


def _calls(text: str) -> str:
    """The calls of a list, whose operators are known before anything is built."""
    for call in text.split(","):
        words(call.partition(":")[0], OPERATORS)
    return text


def build(options: argparse.Namespace) -> list[Peer]:
    """The programs that can be built; says which cannot, and why."""
    own = build_collops(options.folder, options.collops)
    peers = [own]
    if options.before:
        before = build_collops(options.folder, options.before, runs.BEFORE)
        peers = [before, own, Peer(runs.AGAIN, before.program, before.version)]
    mpis = find_mpis(options.mpi)
    if not mpis:
        say("missing: an MPI: none on PATH; pass --mpi with the folder that contains bin/mpiexec")
    for number, mpi in enumerate(mpis, 1):
        try:
            peers += build_mpi(mpi, options.folder / f"mpi-{number}", options.settings)
        except NotBuiltError as problem:
            say(f"missing: {problem}")
    return peers


def run(options: argparse.Namespace, peers: list[Peer], stopped: Callable[[], bool]) -> Row:
    """All rounds; the file is written after each launch, so a run cut short leaves its part."""
    cases = [
        Case(operator, shares, options.sizes, options.iterations, options.instructions)
        for shares in options.skew.split(",")
        for operator in options.calls.split(",")
    ]
    begun = time.time()
    result: Row = {
        "begun": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun)),
        "minutes": 0.0,
        "revision": _revision(),
        "machine": machine_facts(),
        "load_before": _load(),
        "compiler": _first_line([os.environ.get("CXX", "c++"), "--version"]),
        "mpi_flags": MPI_FLAGS,
        "rounds": options.rounds,
        "peers": [peer.record(sorted({case.ranks for case in cases})) for peer in peers],
        "failed": [],
        "launches": [],
    }
    planned = list(turns(options.rounds, cases, peers))
    for position, (number, case, peer) in enumerate(planned, 1):
        points, problem = launch(peer, case, stopped=stopped)
        ends = stopped()
        if ends:
            problem = {"status": "interrupted", "output": problem.get("output", [])}
        result["launches"].append(runs.launch_record(number, peer.name, points))
        if problem:
            one = {"round": number, "peer": peer.name, "case": case.name, **problem}
            result["failed"].append(one)
            say("\n  ".join([f"failed: {peer.name}, {case.name}", *problem["output"]]))
        result["minutes"] = round((time.time() - begun) / 60, 1)
        result["load_after"] = _load()
        write(options.json, result)
        say(f"{position} of {len(planned)}: round {number}, {case.name}, {peer.name}")
        if ends:
            break
    return result


def _load() -> list[float]:
    """The load averages of 1, 5 and 15 minutes: whether other programs ran."""
    return [round(value, 2) for value in os.getloadavg()]


def stop_signals() -> Callable[[], bool]:
    """From now on SIGINT and SIGTERM end the launch and the run; tells whether one has come."""
    came: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: came.append(got))
    return lambda: bool(came)


def write(path: Path, result: Row) -> None:
    """The run's file, with a line for each launch."""
    lists = {name: result[name] for name in ("peers", "failed", "launches")}
    head = {name: value for name, value in result.items() if name not in lists}
    text = json.dumps(head, indent=1).removesuffix("\n}")
    for name, records in lists.items():
        lines = ",\n".join(f"  {json.dumps(record)}" for record in records)
        text += f',\n "{name}": [\n{lines}\n ]'
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.half")
    half.write_text(f"{text}\n}}\n")
    half.replace(path)


def say(text: str) -> None:
    """A note beside the tables."""
    print(text, file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    """0: success, 1: a launch failed or a result was wrong, 2: nothing could be measured."""
    options = parser().parse_args(words)
    if options.quick:
        vars(options).update(_QUICK, rounds=1)
    options.json = options.json or options.folder / "run.json"
    return status_of_command("collops bench cpp", lambda: _measure_or_show(options))


def _measure_or_show(options: argparse.Namespace) -> int:
    if options.plot:
        require_matplotlib(options.plot)
    found: list[Any]
    if options.runs:
        found = runs.read_runs(options.runs)
    elif (SOURCES / "measure.h").exists():
        try:
            found = [run(options, build(options), stop_signals())]
        except NotBuiltError as problem:
            raise ValueError(str(problem)) from None
    else:
        raise ValueError("its programs are built in a checkout of collops: run it there")
    points = [point for each in found for point in runs.points_of(each)]
    if options.summary:
        print(runs.summary(points), end="")
    else:
        print("\n".join(map(runs.report, found)))
    if options.plot:
        runs.save_plot(options.plot, points)
        print(f"\nplot: {options.plot}")
    return 0 if all(map(runs.is_good, found)) else 1
