"""``collops doctor``: what works on this machine, what does not, and why."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from collops.cli.pinning import pinning
from collops.core import core
from collops.errors import Error
from collops.golden_run.backends import check_replacement
from collops.launch.init import OWN_VARIABLES, PREFIX, unknown_variables, variable_fault
from collops.launch.rank_table import read_rank_table
from collops.terminal import colored
from collops.terminal.arguments import Parser
from collops.terminal.installation import (
    PACKAGES,
    cann_advice,
    cores,
    installation_line,
    is_installed,
    system,
    version,
)
from collops.terminal.tables import aligned

_RANK, _SIZE, _LOCAL = "COLLOPS_RANK", "COLLOPS_RANK_SIZE", "COLLOPS_LOCAL_RANK"


def variable_problems(module: ModuleType) -> dict[str, str]:
    """Maps the name of each variable that is set to what is wrong with it, "" if nothing is."""
    known = [name for name, _, _ in module.env_variables()]
    unknown = unknown_variables(known)
    faults = {name: fault for name, fault, _ in module.env_problems()}
    found = {}
    for name in sorted(os.environ):
        if not name.startswith(PREFIX):
            continue
        if name not in known:
            found[name] = _unknown(unknown[name]) if name in unknown else ""
        elif name in faults:
            found[name] = faults[name]
        else:
            check = _CHECKS.get(name)
            found[name] = check(module, os.environ[name]) if check and os.environ[name] else ""
    return found


def shown_value(name: str) -> str:
    """A variable's value; a key's value is hidden, as users share this output."""
    # A misspelt name may hold the key, too.
    if "KEY" in name:
        return "set, not shown"
    value = os.environ[name]
    return value if value.isprintable() else repr(value)


def _unknown(meant: str) -> str:
    return "unknown variable" + (f"; did you mean {meant}?" if meant else "")


def _backend(module: ModuleType, text: str) -> str:
    """Checks that the backend that replaces a struct's is known and can run here."""
    try:
        check_replacement(text)
    except ValueError as problem:
        return str(problem)
    return ""


def _isa(module: ModuleType, text: str) -> str:
    return str(module.isa_fault())


def _trace(module: ModuleType, text: str) -> str:
    """Checks that the file of a trace can be made; a number asks for lines."""
    return "" if text.isdecimal() else str(module.trace_folder_fault(text))


def _number(name: str, least: int) -> Callable[[ModuleType, str], str]:
    def check(module: ModuleType, text: str) -> str:
        if text.isascii() and text.isdecimal() and int(text) >= least:
            return _of_each_other(name)
        return f"must be a whole number of {least} or more, got {text!r}"

    return check


def _of_each_other(name: str) -> str:
    """What is wrong with a rank and the number of ranks together; "" if one is not a number."""
    rank, size = os.environ.get(_RANK, ""), os.environ.get(_SIZE, "")
    if (
        name not in (_RANK, _SIZE)
        or (rank and not rank.isdecimal())
        or (size and not size.isdecimal())
    ):
        return ""
    if not rank or not size:
        return f"{_RANK} and {_SIZE} must both be set, or none"
    if name == _RANK and int(rank) >= int(size):
        return f"must be below {_SIZE}={size}, got {rank}"
    return ""


def _file(module: ModuleType, text: str) -> str:
    return "" if Path(text).is_file() else f"there is no file {text}"


def _library(module: ModuleType, text: str) -> str:
    """Checks a path; a name without a folder is left to the dynamic loader, which searches it."""
    return _file(module, text) if "/" in text else ""


def _server_id(module: ModuleType, text: str) -> str:
    path = os.environ.get("RANK_TABLE_FILE", "")
    try:
        table = read_rank_table(path) if path else None
    except Error:
        return ""  # the part on the hosts says why the table cannot be read
    return table.not_here if table is not None and table.completed and table.here < 0 else ""


_CHECKS: dict[str, Callable[[ModuleType, str], str]] = {
    "COLLOPS_BACKEND": _backend,
    "COLLOPS_ISA": _isa,
    "COLLOPS_KERNELS": _file,
    "COLLOPS_UCX_LIBRARY": _library,
    "COLLOPS_SERVER_ID": _server_id,
    "COLLOPS_TRACE": _trace,
    _RANK: _number(_RANK, 0),
    _SIZE: _number(_SIZE, 1),
    _LOCAL: _number(_LOCAL, 0),
    "COLLOPS_RESTARTS": _number("COLLOPS_RESTARTS", 0),
}


Row = tuple[str, str]

# By the value of HCCL_DETERMINISTIC; HCCL's documents say in which products each has an effect.
SUMS_OF_HCCL = {
    "false": "HCCL's order of additions, and so the last bits, may change from run to run",
    "true": "HCCL documents the same bits on every run with the same hardware and data",
    "strict": "as true, and with the same order of additions for every element",
}
_COLORS = {
    ("ready", "yes", "found", "runs"): "green",
    ("no:", "not found", "not:", "backend "): "yellow",
}
_GIB = 1 << 30
_MIB = 1 << 20


def parser() -> Parser:
    """The parser of the command, which has no options."""
    return Parser(
        prog="collops doctor",
        description="Lists what works on this machine, what does not, and why; checks the COLLOPS_ "
        "variables. Copy the last part into the text of an issue.",
        epilog="Exit status: 0 a backend can run here and there are no problems, 1 otherwise. "
        "Problems are wrong COLLOPS_ variables, and on a machine with Ascend's software or "
        "torch_npu that the structs' default backend cannot load.",
    )


def main(arguments: Sequence[str]) -> int:
    """Prints the report; 0 if at least one backend can run here and no variable is wrong."""
    parser().parse_args(arguments)
    print_rows("Versions", versions())
    try:
        module = core()
    except Error as error:
        print_rows("Core", [("no", str(error))])
        return 1
    backends = module.backends()
    problems = variable_problems(module)
    states = [
        (name, reason or "; ".join(filter(None, ("ready", sums))))
        for name, reason, _, sums in backends
    ]
    print_rows("Backends", states)
    print_rows(
        "Engines of LinearParallel, on several ranks of shm",
        engines(module, [name for name, *_ in backends]),
    )
    print_rows("CUDA", module.backend_facts("cuda"))
    print_rows("NCCL", module.backend_facts("nccl"))
    of_npus, why_no_npus = next((name, why) for name, why, memory, _ in backends if memory == "npu")
    print_rows("HCCL", [*hccl(why_no_npus), *module.backend_facts(of_npus)])
    print_rows("UCX", module.backend_facts("ucx"))
    print_rows("Machine", machine(module))
    print_rows("Cores of the ranks that run on this host", pinning())
    print_rows("Job", job(module))
    print_rows("Hosts", hosts())
    print_rows("Environment", environment(problems))
    wrong = [f"{name}: {problem}" for name, problem in problems.items() if problem]
    wrong += default_problem(why_no_npus)
    print_rows("Summary, for the text of an issue", summary(backends, problems, wrong))
    runs = any(not reason for _, reason, _, _ in backends)
    return 0 if runs and not wrong else 1


def print_rows(title: str, rows: Sequence[Row]) -> None:
    """Prints one part of the report, aligned."""
    print(colored(title, "bold"))
    for line in aligned([(name, _colored_state(text)) for name, text in rows], indent="  "):
        print(line)


def _colored_state(text: str) -> str:
    """The text, in a colour if its first word says that something works or is wrong."""
    if "  WRONG: " in text:
        return colored(text, "red")
    for words, color in _COLORS.items():
        if text.startswith(words):
            return colored(text, color)
    return text


def versions() -> list[Row]:
    """collops, Python, the system, and the packages beside it."""
    rows = [
        ("collops", version("collops")),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("system", system()),
    ]
    return rows + [(name, version(name)) for name in PACKAGES]


def engines(module: ModuleType, backends: Sequence[str]) -> list[Row]:
    """For each engine of LinearParallel: whether it runs here, why not, and where it runs."""
    if module.env_problems():
        return [("not known", "a COLLOPS_ variable is wrong: see below")]
    answers = module.linear_engines()
    chosen = next(name for name, why in answers if not why)
    rest = {True: "runs", False: "can run: Operation(param, engine=...) chooses it"}
    rows = []
    for engine, why in answers:
        others = [name for name in backends if why and (engine, "") in module.linear_engines(name)]
        elsewhere = f"; runs on {', '.join(others)}" if others else ""
        rows.append((engine, f"not: {why}{elsewhere}" if why else rest[engine == chosen]))
    return rows


def default_problem(why_not: str) -> list[str]:
    """Why the structs' default backend cannot load, on a machine on which somebody means it to."""
    is_meant = cann_advice() or is_installed("torch_npu")
    if not why_not or not is_meant or os.environ.get("COLLOPS_BACKEND"):
        return []
    return [f"the default of structs: {why_not}"]


def hccl(why_not: str) -> list[Row]:
    """How to find CANN, and what HCCL_DETERMINISTIC means for sums.

    HCCL reads the variable when a communicator is made.
    """
    advice = cann_advice() if why_not else ""
    return [*([("CANN", advice)] if advice else []), _sums_of_hccl()]


def _sums_of_hccl() -> Row:
    name = "HCCL_DETERMINISTIC"
    value = os.environ.get(name)
    said = SUMS_OF_HCCL.get((value or "false").lower())
    if said is None:
        return name, f"{value}: not a valid value, which are {', '.join(SUMS_OF_HCCL)}"
    return name, f"{'not set' if value is None else value or 'empty'}: {said}"


def machine(module: ModuleType) -> list[Row]:
    """Cores, kernels, how the end of a rank is seen, and the memory that segments need."""
    free, shown = available_memory()
    need = module.segment_bytes
    why = module.without_pidfds()
    try:
        isa, runnable, _ = module.kernels()
        kernels = f"{isa} (this CPU runs {', '.join(runnable)})"
    except Error as error:
        kernels = f"no: {error}"
    return [
        ("cores", f"{cores()} may be used"),
        ("kernels", kernels),
        ("pidfds", f"no: {why}; a rank's end is seen by its socket alone" if why else "yes"),
        ("memory", shown),
        ("segment", ", ".join(f"{n} ranks {need(n) / _MIB:.1f} MiB" for n in (2, 8, 64))),
        ("fits", "yes" if free is None or need(8) < free else "no: 8 ranks need more"),
    ]


def available_memory() -> tuple[int | None, str]:
    """The bytes of memory that are available, as a number and as text."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
            return free, f"{free / _GIB:.1f} GiB available"
    return None, "not known"


def job(module: ModuleType) -> list[Row]:
    """The launcher of this process, and the job of its ranks."""
    try:
        name, rank, size = module.launcher(strict=False)
        place = _place(name, rank, size)
        many = "--rank-table FILE" if os.environ.get("RANK_TABLE_FILE") else "-n N"
        none = f"none: start the ranks with collops run {many}, or pass rank and rank_size"
        who = f"{name} (collops run, run_ranks or by hand)" if name == OWN_VARIABLES else name
        rows = [("launcher", f"{who}, {place}" if name else none)]
    except Error as error:
        rows = [("launcher", str(error))]
    try:
        identity, source = module.job_identity()
        rows.append(("identity", f"{identity}, from {source}"))
    except Error as error:
        rows.append(("identity", str(error)))
    return rows


def _place(launcher: str, rank: int, size: int) -> str:
    """This process's rank and their number; -1: the launcher does not say it."""
    if rank >= 0 and size >= 0:
        return f"rank {rank} of {size}"
    known = f"rank {rank}" if rank >= 0 else f"one of {size} ranks" if size >= 0 else "no rank"
    if launcher != OWN_VARIABLES:
        return f"{known}; it does not say the {'rank' if rank < 0 else 'number of ranks'}"
    names = [name for name, said in (("rank", rank), ("rank_size", size)) if said < 0]
    return f"{known}; {'; '.join(map(variable_fault, names))}"


def hosts() -> list[Row]:
    """Where RANK_TABLE_FILE places the ranks, or why it does not."""
    path = os.environ.get("RANK_TABLE_FILE", "")
    if not path:
        return [("none", "RANK_TABLE_FILE is not set: the launcher names the hosts")]
    try:
        table = read_rank_table(path)
    except Error as error:
        return [("no", str(error))]
    if not table.completed:
        return [("no", f'{path}: status "initializing"; first contact waits until it is complete')]
    backend = "shm" if len(table.servers) == 1 else "ucx"
    size = f"{len(table.servers)} host(s), {len(table.ranks)} ranks"
    rows = [("table", f"{path}: {size}, backend {backend} for CPU tensors")]
    if table.here < 0:
        return [*rows, ("this host", f"not found: {table.not_here}")]
    ranks = [str(r) for r, place in enumerate(table.ranks) if place.server == table.here]
    return [*rows, ("this host", f"{table.servers[table.here].name}, ranks {', '.join(ranks)}")]


def environment(problems: Mapping[str, str]) -> list[Row]:
    """The COLLOPS_ variables that are set, and what is wrong with them."""
    rows = [
        (name, shown_value(name) + (f"  WRONG: {problem}" if problem else ""))
        for name, problem in problems.items()
    ]
    return rows or [("none", "no COLLOPS_ variable is set")]


def summary(
    backends: Sequence[tuple[str, str, str, str]],
    problems: Mapping[str, str],
    wrong: Sequence[str],
) -> list[Row]:
    """The facts that an issue needs first."""
    ready = [name for name, reason, _, _ in backends if not reason]
    others = [name for name, reason, _, _ in backends if reason]
    told = f"{', '.join(ready) or 'none'}; not ready: {', '.join(others) or 'none'}"
    return [
        ("installed", installation_line()),
        ("backends", told),
        ("variables", "; ".join(f"{name}={shown_value(name)}" for name in problems) or "none"),
        ("problems", "; ".join(wrong) or "none"),
    ]
