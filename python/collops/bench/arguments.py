"""The command line of a benchmark: common options, and parsing for those of an operator."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from collops.bench.elements import NAMES, missing_package
from collops.bench.gpu.options import add_options as add_gpu_options
from collops.bench.operator import Operator
from collops.bench.peers import GPU_PEERS
from collops.golden.data.dtypes import dtype_named
from collops.terminal.arguments import Parser, count, none_of, words

_ITERATIONS, _QUICK_ITERATIONS = 15, 3
_PLOT = ("draw the time as stacked parts", "draw time and bandwidth by size, and the limit")
_STATUS = """
All variants run in turn on the same ranks in one run; docs/bench.md explains how they are measured.
Exit status: 0 success, 1 ranks failed or a result was wrong, 2 wrong arguments.
"""


def parse(operator: Operator, arguments: Sequence[str]) -> argparse.Namespace:
    """The options with their defaults; ends the program if one is wrong."""
    parser = parser_of(operator)
    options = parser.parse_args(arguments)
    _choose_dtypes(parser, options, ("f32",) if options.quick else operator.dtypes)
    options.own = options.own or operator.own
    options.iterations = options.iterations or (_QUICK_ITERATIONS if options.quick else _ITERATIONS)
    if options.peers is None:
        options.peers = GPU_PEERS if options.backend else _usual(operator)
    if options.sweep:
        options.peers = ()
    return options


def _choose_dtypes(parser: Parser, options: argparse.Namespace, usual: tuple[str, ...]) -> None:
    """The element types; without --dtype those of the usual ones that can be measured here."""
    given: tuple[str, ...] = options.dtype or usual
    missing = {one: missing_package(one, options.backend is not None) for one in given}
    needs = [f"{one} needs {packages}" for one, packages in missing.items() if packages]
    if options.dtype and needs:
        parser.error(f"--dtype {needs[0]}")
    options.dtype = tuple(one for one, packages in missing.items() if not packages)
    options.left_out = needs


def _usual(operator: Operator) -> tuple[str, ...]:
    """The other libraries of the host without --peers."""
    return operator.peers if operator.default_peers is None else operator.default_peers


def parser_of(operator: Operator) -> Parser:
    """The parser of an operator's benchmark."""
    parser = Parser(
        prog=f"collops bench {operator.name}",
        description=operator.description,
        epilog=operator.epilog + _STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(sweep=False, rank_table=None, own=None, algorithms=False)
    operator.add_options(parser)
    add = parser.add_argument
    add(
        "--dtype",
        type=dtypes,
        metavar=",".join(NAMES),
        help="element types; aliases such as float32 and fp32 are accepted",
    )
    add("--iterations", type=count, metavar="N", help=f"measured rounds ({_ITERATIONS})")
    known = operator.peers + (GPU_PEERS if operator.on_gpu else ())
    add(
        "--peers",
        "--compare",
        type=lambda text: () if text == "none" else words(text, known),
        metavar="LIST",
        help=f"libraries to compare with: some of {','.join(operator.peers)}, or none "
        f"({'all that are installed' if _usual(operator) else 'none'})",
    )
    add(
        "--mpi",
        type=Path,
        action="append",
        default=[],
        metavar="PREFIX",
        help="folder that contains an MPI's bin/mpiexec; repeatable, one launch for each (the "
        "mpirun on PATH)",
    )
    if operator.several_hosts:
        add(
            "--rank-table",
            metavar="FILE",
            help="start the ranks that this table places on this host; run the same command on its "
            "other hosts (or run it on every rank with collops run)",
        )
    if operator.sweep:
        add("--sweep", action="store_true", help=operator.sweep.help)
    add("--quick", action="store_true", help=f"{operator.quick}, to check that everything works")
    add("--json", type=Path, metavar="FILE", help="write one JSON object per row")
    add("--plot", type=Path, metavar="FILE.png", help=_PLOT[operator.listing is not None])
    add_gpu_options(parser, count)
    return parser


def threads() -> int:
    """Threads of a rank: COLLOPS_NUM_THREADS, or 1.

    Raises:
        ValueError: the variable is not a whole number of 1 or more.
    """
    text = os.environ.get("COLLOPS_NUM_THREADS") or "1"
    try:
        return count(text)
    except argparse.ArgumentTypeError as problem:
        raise ValueError(f"COLLOPS_NUM_THREADS: {problem}") from None


def dtype(text: str) -> str:
    """An element type's name in numpy, of every word that golden knows."""
    try:
        return dtype_named(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def dtypes(text: str) -> tuple[str, ...]:
    """The element types of a list, by the bench's names; accepts every name that golden knows."""
    short = {name: word for word, name in NAMES.items()}
    found = []
    for word in text.split(","):
        try:
            found.append(short[dtype_named(word)])
        except (KeyError, ValueError):
            listed = ", ".join(f"{one}/{name}" for one, name in NAMES.items())
            raise none_of(word, listed, [*NAMES, *short]) from None
    return tuple(dict.fromkeys(found))
