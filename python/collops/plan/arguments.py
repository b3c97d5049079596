"""The options of ``collops plan``, and the call that they describe."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path

from collops.bench.arguments import count, counts, dtype
from collops.bench.collectives.points import size_of
from collops.bench.collectives.skew import EVEN, WORDS, share, skew
from collops.core import core
from collops.launch.rank_table import read_rank_table
from collops.plan.prediction import GATHER, REDUCE, Call, blocks, item_bytes
from collops.terminal.parser import Parser

OPS = (GATHER, REDUCE)
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
_DESCRIPTION = """
Predicts the cost of a call on hosts that need not exist: bytes, messages, connections, memory and
time of each host and link, how each grows, and which limit is reached first. The schedule comes
from the code that the backend ucx runs; the times come from a simulation with the costs of --links.
"""
_STATUS = """
docs/multihost.md explains the figures, and how close the times are to measured times.
Exit status: 0 success, 2 wrong arguments.
"""


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog="collops plan",
        description=_DESCRIPTION,
        epilog=_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--rank-table", metavar="FILE", help="hosts and ranks, as in a job")
    where.add_argument(
        "--hosts",
        type=lambda text: counts(text, ","),
        metavar="H",
        help="number of hosts; several numbers, such as 2,16,125, are compared in one table",
    )
    add("--ranks-per-host", type=count, metavar="N", default=8, help="for --hosts (8)")
    add("--op", type=_op, required=True, metavar="|".join(OPS), help="the call")
    add(
        "--bytes",
        type=_sizes,
        required=True,
        metavar="16m",
        help="bytes of the whole vector, with k, m or g for a power of 1024; or a list with the "
        "bytes of each rank, separated by commas",
    )
    add("--per-rank", action="store_true", help="--bytes is the size of each rank's block or slice")
    add("--skew", type=skew, default=EVEN, metavar=EVEN, help=f"how the ranks share it: {WORDS}")
    add("--dtype", type=_dtype, default="float32", metavar="f32", help="element type (f32)")
    add("--reduce", choices=REDUCTIONS, default="sum", help="reduction of reduce_scatterv (sum)")
    add(
        "--links",
        type=Path,
        metavar="FILE",
        help="rows of collops bench --json, from which the costs are calibrated; without it they "
        "are assumed: 25 GB/s and 2 us between hosts",
    )
    add(
        "--shared-cores",
        type=count,
        default=0,
        metavar="C",
        help="the ranks of all hosts share C cores, as network namespaces do (default: a core for "
        "each rank)",
    )
    add("--json", metavar="FILE", help="write one JSON object; - prints it, and nothing else")
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; ends the program if one is wrong."""
    own = parser()
    options = own.parse_args(arguments)
    if len(options.bytes) > 1 and (options.per_rank or options.skew != EVEN):
        own.error("--bytes with a number for each rank takes no --per-rank and no --skew")
    if options.hosts and len(options.hosts) > 1 and (options.json or len(options.bytes) > 1):
        own.error("--hosts with several numbers takes one number of --bytes, and no --json")
    return options


def placements(options: argparse.Namespace) -> list[tuple[tuple[int, ...], list[str]]]:
    """The host of each rank and the hosts' names, of each number of hosts.

    Raises:
        ArgumentError: the rank table is wrong.
        ValueError: it is not complete.
    """
    if options.hosts:
        return [
            (blocks(hosts, options.ranks_per_host), [f"host {i}" for i in range(hosts)])
            for hosts in options.hosts
        ]
    table = read_rank_table(options.rank_table)
    if not table.completed:
        raise ValueError(f'{options.rank_table}: status "initializing": it has no ranks yet')
    return [(tuple(rank.server for rank in table.ranks), [host.name for host in table.servers])]


def call_on(options: argparse.Namespace, host_of: tuple[int, ...]) -> Call:
    """The call on these ranks.

    Raises:
        ValueError: --bytes has a number for each of other ranks.
    """
    ranks, given = len(host_of), options.bytes
    item = item_bytes(options.dtype)
    if len(given) > 1:
        if len(given) != ranks:
            raise ValueError(f"--bytes has {len(given)} numbers, there are {ranks} ranks")
        elements = tuple(each // item for each in given)
    else:
        total = given[0] // item * (ranks if options.per_rank else 1)
        elements = share(total, ranks, options.skew)
    return Call(options.op, host_of, elements, options.dtype, options.reduce)


def _op(text: str) -> str:
    # The operator's other name, all_gather_v.
    name = f"{text[:-2]}v" if text.endswith("_v") else text
    if name in OPS:
        return name
    near = difflib.get_close_matches(text, OPS, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"must be one of {', '.join(OPS)}"
    raise argparse.ArgumentTypeError(f"{text!r}: {hint}")


def _dtype(text: str) -> str:
    # collops has some types, such as uint16, that golden has not.
    name = text.lower() if text.lower() in core().DTYPES else dtype(text)
    if name.startswith(("complex", "bool")):
        raise argparse.ArgumentTypeError(f"{text!r}: pass a type of whole or real numbers")
    return name


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(0 if part.strip() == "0" else size_of(part.strip()) for part in text.split(","))
