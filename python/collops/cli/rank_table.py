"""``collops rank-table``: checks a rank table and shows the placement, or makes one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from collops.bench.arguments import count
from collops.launch.rank_table import VERSIONS, make_rank_table, read_rank_table
from collops.terminal.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.launch.rank_table import RankTable

_BACKENDS = ("shm", "ucx", "cuda", "nccl", "hccl")
_OF_ONE_HOST = ("shm", "cuda")


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog="collops rank-table",
        description="Checks or makes rank tables: JSON files in HCCL's format that say which rank "
        "runs on which host and device.",
    )
    words = parser.add_subparsers(dest="word", metavar="check|make", required=True)
    check = words.add_parser(
        "check",
        help="read a table, and print where each rank runs",
        epilog="Exit status: 0 the table is right, 1 the backend of --backend refuses it, "
        "2 it is wrong for every backend.",
    )
    check.add_argument("file", help="the JSON file")
    check.add_argument(
        "--backend",
        choices=_BACKENDS,
        help="also end with 1 if this backend refuses the table (default: hccl's rules are printed "
        "only)",
    )
    make = words.add_parser("make", help="write a table for hosts with equally many devices")
    make.add_argument(
        "--hosts", required=True, help="names or addresses of the hosts, separated by commas: a,b"
    )
    make.add_argument("--devices-per-host", type=count, required=True, help="ranks on each host")
    make.add_argument(
        "--version", choices=VERSIONS, default="1.0", help="format of the table (default: 1.0)"
    )
    make.add_argument("--output", help="the file to write (default: standard output)")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Checks or makes a table; 1: a backend refuses it, 2: the arguments or the table are wrong."""
    options = parser().parse_args(arguments)
    if options.word == "check":
        table = read_rank_table(options.file)
        print("\n".join(describe(table, options.backend or "hccl")))
        return int(options.backend is not None and bool(refusal(table, options.backend)))
    text = make_rank_table(options.hosts.split(","), options.devices_per_host, options.version)
    if options.output is None:
        print(text)
    else:
        Path(options.output).write_text(text + "\n", encoding="utf-8")
    if "," in options.hosts:
        print("device_ip is left out: backend hccl needs it on several hosts", file=sys.stderr)
    return 0


def refusal(table: RankTable, backend: str) -> str:
    """Why a backend refuses a table that is right; empty if it does not, or not yet."""
    if backend in _OF_ONE_HOST and len(table.servers) > 1:
        return f"it runs on one host, but the table places the ranks on {len(table.servers)}"
    return table.device_fault if backend == "hccl" else ""


def describe(table: RankTable, backend: str = "hccl") -> list[str]:
    """The lines that ``check`` prints; the last one is on a backend."""
    form = f"version {table.version}" if table.version else "without a version (group_list)"
    if not table.completed:
        return ['status "initializing": not complete yet; first contact waits until it is']
    lines = [f"{form}, {len(table.servers)} hosts, {len(table.ranks)} ranks"]
    rows = [("rank", "host", "device", "device_ip")]
    for rank, place in enumerate(table.ranks):
        server = table.servers[place.server]
        name = f"{server.name} ({server.host_ip})" if server.host_ip else server.name
        rows.append((str(rank), name, str(place.device_id), place.device_ip or "-"))
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        lines.append(("  " + "  ".join(cells)).rstrip())
    here = table.servers[table.here].name if table.here >= 0 else ""
    lines.append(f"this host: {here}" if here else f"this host: not found: {table.not_here}")
    lines.append(f"backend {backend}: {refusal(table, backend) or 'accepts it'}")
    return lines
