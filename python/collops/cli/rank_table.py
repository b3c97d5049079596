"""``collops rank-table``: checks a rank table and shows the placement, or makes one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collops.launch.rank_table import VERSIONS, make_rank_table, read_rank_table
from collops.terminal.arguments import Parser, count
from collops.terminal.tables import aligned

if TYPE_CHECKING:
    from collops.launch.rank_table import RankTable


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
        "--backend", metavar="NAME", help="end with 1 if this backend refuses the table, say why"
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


def main(arguments: Sequence[str]) -> int:
    """Checks or makes a table; 1: a backend refuses it, 2: the arguments or the table are wrong."""
    options = parser().parse_args(arguments)
    if options.word == "check":
        table, backend = read_rank_table(options.file), options.backend
        if backend is not None and backend not in table.refusals:
            known = ", ".join(table.refusals)
            parser().error(f"check: --backend must be one of {known}, got {backend!r}")
        print("\n".join(describe(table, backend)))
        return int(bool(table.refusals.get(backend)))
    text = make_rank_table(options.hosts.split(","), options.devices_per_host, options.version)
    if options.output is None:
        print(text)
    else:
        Path(options.output).write_text(text + "\n", encoding="utf-8")
    if "," in options.hosts:
        print("device_ip is left out: backend hccl needs it on several hosts", file=sys.stderr)
    return 0


def describe(table: RankTable, backend: str | None = None) -> list[str]:
    """The lines that ``check`` prints; the last one is on a backend, hccl where none is given."""
    form = f"version {table.version}" if table.version else "without a version (group_list)"
    if not table.completed:
        return ['status "initializing": not complete yet; first contact waits until it is']
    lines = [f"{form}, {len(table.servers)} hosts, {len(table.ranks)} ranks"]
    rows = [("rank", "host", "device", "device_ip")]
    for rank, place in enumerate(table.ranks):
        server = table.servers[place.server]
        name = f"{server.name} ({server.host_ip})" if server.host_ip else server.name
        rows.append((str(rank), name, str(place.device_id), place.device_ip or "-"))
    lines += aligned(rows, indent="  ")
    here = table.servers[table.here].name if table.here >= 0 else ""
    lines.append(f"this host: {here}" if here else f"this host: not found: {table.not_here}")
    refused = table.device_fault if backend is None else table.refusals[backend]
    lines.append(f"backend {backend or 'hccl'}: {refused or 'accepts it'}")
    return lines
