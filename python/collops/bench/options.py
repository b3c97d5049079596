"""The command line of a benchmark: common options, those on GPUs, and what they mean together."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path

from collops.bench import gpu
from collops.bench.elements import NAMES, missing_package
from collops.bench.operator import OnGpu, Operator
from collops.bench.peers import GPU_PEERS
from collops.golden.data.dtypes import dtype_named
from collops.terminal.arguments import Parser, count, none_of, words

BACKENDS = ("cuda", "nccl")
_CALLS, _QUICK_CALLS = 20, 2
_STATUS = """
All variants run in turn on the same ranks in one run; docs/bench.md explains how they are measured.
Exit status: 0 success, 1 ranks failed or a result was wrong, 2 wrong arguments.
"""
_ON_GPUS = """
Ranks are threads of one process, each with a stream; a time is the mean of --calls
calls between two events on the slowest rank's stream. For comparison, copies of as many
bytes (limit) or the product alone are measured, and --peers nccl (the backend nccl),
torch_nccl and torch_symm.
"""


def parse(operator: Operator, arguments: Sequence[str]) -> argparse.Namespace:
    """The options with their defaults; ends the program if one is wrong."""
    parser = parser_of(operator)
    options = parser.parse_args(arguments)
    _choose_dtypes(parser, options, ("f32",) if options.quick else operator.dtypes)
    options.own = options.own or operator.own
    options.iterations = options.iterations or operator.iterations[options.quick]
    if options.peers is None:
        options.peers = GPU_PEERS if options.backend else operator.usual_peers
    operator.settle(options)
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


def parser_of(operator: Operator) -> Parser:
    """The parser of an operator's benchmark."""
    parser = Parser(
        prog=f"collops bench {operator.name}",
        description=operator.description,
        epilog=operator.epilog + _STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    absent = ("rank_table", "own", "peers", "backend", "dtype")
    parser.set_defaults(**dict.fromkeys(absent), sweep=False, algorithms=False, mpi=[])
    operator.add_options(parser)
    add = parser.add_argument
    usual = operator.iterations[0]
    add("--iterations", type=count, metavar="N", help=f"measured rounds ({usual})")
    add("--quick", action="store_true", help=f"{operator.quick}, to check that everything works")
    add("--json", type=Path, metavar="FILE", help="write one JSON object per row")
    add("--plot", type=Path, metavar="FILE.png", help=operator.plotted)
    if operator.dtypes:
        add(
            "--dtype",
            type=dtypes,
            metavar=",".join(NAMES),
            help="element types; aliases such as float32 and fp32 are accepted",
        )
    if operator.peers:
        _add_peers(parser, operator)
    if operator.several_hosts:
        add(
            "--rank-table",
            metavar="FILE",
            help="start the ranks that this table places on this host; run the same command on its "
            "other hosts (or run it on every rank with collops run)",
        )
    return parser


def _add_peers(parser: Parser, operator: Operator) -> None:
    """Adds the options of the other libraries and of GPUs."""
    add = parser.add_argument
    known = operator.peers + (GPU_PEERS if operator.on_gpu else ())
    add(
        "--peers",
        "--compare",
        type=lambda text: () if text == "none" else words(text, known),
        metavar="LIST",
        help=f"libraries to compare with: some of {','.join(operator.peers)}, or none "
        f"({'all that are installed' if operator.usual_peers else 'none'})",
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
    add = parser.add_argument_group("on GPUs", _ON_GPUS.strip()).add_argument
    add("--backend", choices=BACKENDS, help="measure the calls of this backend, on GPUs")
    add(
        "--devices",
        type=_devices,
        metavar="0,1",
        help="indices of the GPUs; rank r uses entry r modulo their number (0, for all ranks)",
    )
    add("--calls", type=count, metavar="N", help=f"calls between two events ({_CALLS})")
    add("--graph", action="store_true", help="capture the calls in a graph once, time its replay")


def on_gpu(operator: Operator, options: argparse.Namespace, launched: int) -> OnGpu | None:
    """The part of the request for GPUs; None: the benchmark runs on the host.

    `launched` is the number of ranks that something else has started, or 0.

    Raises:
        ValueError: the options do not fit together, or the backend cannot run here.
    """
    backend = options.backend
    if backend is None:
        if operator.peers:
            _refuse_without_backend(options)
        return None
    if not operator.on_gpu:
        raise ValueError(f"--backend {backend}: {operator.name} has no benchmark on GPUs")
    refused = {
        "a rank table": options.rank_table or launched,
        "--mpi": options.mpi,
        "--sweep": options.sweep,
        "--algorithms": options.algorithms,
    }
    for name, given in refused.items():
        if given:
            raise ValueError(
                f"--backend {backend} cannot be combined with {name}: "
                "its ranks are threads of one process"
            )
    foreign = [peer for peer in options.peers if peer not in GPU_PEERS]
    if foreign:
        raise ValueError(f"--peers {foreign[0]} cannot be combined with --backend {backend}")
    devices = options.devices or (0,)
    gpu.check(backend, devices)
    calls = options.calls or (_QUICK_CALLS if options.quick else _CALLS)
    return OnGpu(backend=backend, devices=devices, calls=calls, graph=options.graph)


def _refuse_without_backend(options: argparse.Namespace) -> None:
    given = {"--devices": options.devices, "--calls": options.calls, "--graph": options.graph}
    named = {f"--peers {peer}": peer in GPU_PEERS for peer in options.peers}
    for name, is_given in {**given, **named}.items():
        if is_given:
            raise ValueError(f"{name} needs --backend {' or '.join(BACKENDS)}")


def _devices(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError(f"numbers of GPUs such as 0,1 are needed, got {text!r}")
    return tuple(map(int, text.split(",")))


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
