"""Checks the COLLOPS_ variables of this environment: is each known, and is its value valid."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from collops.errors import Error
from collops.golden_run.backends import check_replacement
from collops.launch.misspelt_variables import PREFIX, unknown_variables
from collops.launch.rank_table import read_rank_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_RANK, _SIZE, _LOCAL = "COLLOPS_RANK", "COLLOPS_RANK_SIZE", "COLLOPS_LOCAL_RANK"


def variable_problems(module: ModuleType) -> dict[str, str]:
    """Maps the name of each variable that is set to what is wrong with it, "" if nothing is.

    Args:
        module: the core.
    """
    known = [name for name, _, _ in module.env_variables()]
    unknown = unknown_variables(known)
    refused = dict(module.env_problems())
    found = {}
    for name in sorted(os.environ):
        if not name.startswith(PREFIX):
            continue
        if name not in known:
            found[name] = _unknown(unknown[name]) if name in unknown else ""
        elif name in refused:
            found[name] = _without_name(name, refused[name])
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


def _without_name(name: str, problem: str) -> str:
    """A problem without the variable's name and value, beside which it is printed."""
    for start in (f"{name}={os.environ[name]}: ", f"{name}: ", f"{name} "):
        problem = problem.removeprefix(start)
    return problem


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
    try:
        module.kernels()
    except Error as error:
        return _without_name("COLLOPS_ISA", error.message)
    return ""


def _trace(module: ModuleType, text: str) -> str:
    """Checks that the file of a trace can be made; a number asks for lines."""
    if text.isdecimal():
        return ""
    try:
        module.check_trace_path(text)
    except Error as error:
        return _without_name("COLLOPS_TRACE", error.message)
    return ""


def _number(name: str, least: int) -> Callable[[ModuleType, str], str]:
    def check(module: ModuleType, text: str) -> str:
        if text.isascii() and text.isdecimal() and int(text) >= least:
            return _of_each_other(name)
        return f"must be a whole number of {least} or more, got {text!r}"

    return check


def _of_each_other(name: str) -> str:
    """What is wrong with a rank and the number of ranks together; "" if one is not a number."""
    rank, size = os.environ.get(_RANK, ""), os.environ.get(_SIZE, "")
    if name == _LOCAL or (rank and not rank.isdecimal()) or (size and not size.isdecimal()):
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
}
