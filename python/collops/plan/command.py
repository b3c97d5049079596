"""``collops plan``: its options, the call that they describe, and the command."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from collops.bench.options import dtype
from collops.bench.shares import EVEN, WORDS, share, size_of, skew
from collops.core import core
from collops.errors import nearest
from collops.launch.rank_table import read_rank_table
from collops.plan.calibration import calibrate, misfit, read_rows, timed
from collops.plan.prediction import (
    ASSUMED,
    GATHER,
    REDUCE,
    Call,
    Costs,
    Prediction,
    blocks,
    item_bytes,
    limits,
    predict,
)
from collops.plan.report import (
    as_object,
    growth_lines,
    headline,
    host_tables,
    limit_table,
    scale_table,
)
from collops.terminal import Progress
from collops.terminal.arguments import Parser, count, counts, status_of_command

OPS = (GATHER, REDUCE)
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
_DESCRIPTION = """
Predicts the cost of a call on hosts that need not exist: bytes, messages, connections, memory and
time of each host and link, how each grows, and which limit is reached first. The schedule comes
from the code that the backend ucx runs; the times follow from it and from the costs of --links.
"""
_STATUS = """
docs/multihost.md explains the figures, and what the times leave out.
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
    near = nearest(text, OPS, 0.5)
    hint = f"did you mean {near}?" if near else f"must be one of {', '.join(OPS)}"
    raise argparse.ArgumentTypeError(f"{text!r}: {hint}")


def _dtype(text: str) -> str:
    # collops has some types, such as uint16, that golden has not.
    name = text.lower() if text.lower() in core().DTYPES else dtype(text)
    if name.startswith(("complex", "bool")):
        raise argparse.ArgumentTypeError(f"{text!r}: pass a type of whole or real numbers")
    return name


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(0 if part.strip() == "0" else size_of(part.strip()) for part in text.split(","))


def main(arguments: Sequence[str]) -> int:
    """Predicts and prints; 0: success, 2: wrong arguments."""
    options = parse(arguments)
    return status_of_command("collops plan", lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Prints what the options ask for.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: a file, or a number, is wrong.
    """
    costs, source = _costs(options.links)
    found: list[tuple[Call, list[str], Prediction]] = []
    every = placements(options)
    progress = Progress(len(every))
    try:
        for host_of, names in every:
            call = call_on(options, host_of)
            progress.show(len(found), f"{len(host_of)} ranks on {len(names)} hosts")
            found.append((call, names, predict(call, costs)))
    finally:
        progress.clear()
    call, names, largest = found[-1]
    if options.json:
        text = json.dumps(as_object(call, names, largest, costs, options.links is not None))
        if options.json == "-":
            print(text)
            return 0
        Path(options.json).write_text(f"{text}\n", encoding="utf-8")
    print(headline(call, names, source))
    if len(found) > 1:
        print(scale_table([(each, prediction) for each, _, prediction in found]))
    else:
        print(host_tables(call, names, largest))
    print(f"\n{growth_lines(call)}\n\n{limit_table(call, limits(call, largest))}")
    return 0


def _costs(path: Path | None) -> tuple[Costs, str]:
    """The costs, and where they come from."""
    if path is None:
        return ASSUMED, (
            f"ASSUMED, not measured: {ASSUMED.network_rate / 1000:g} GB/s and "
            f"{ASSUMED.latency_us:g} us between hosts (--links FILE reads measured ones)"
        )
    rows = read_rows(path)
    try:
        measured = timed(rows)
        costs = calibrate(measured)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    off = misfit(costs, [each for each in measured if each.call.host_of == (0, 1)])
    return costs, f"measured, {path}; which predicts its calls within {off:.0%}"
