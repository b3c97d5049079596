"""``collops rank-table``: checks a rank table and shows the placement, or makes one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collops.core import core
from collops.launch.rank_table import (
    VERSIONS,
    make_rank_table,
    read_rank_table,
    table_refusal,
)
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
    check.add_argument(
        "--soc",
        metavar="NAME",
        default="",
        help="backend hccl: the rules of this NPU, such as Ascend910B3 (default: this machine's)",
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
        table = read_rank_table(options.file)
        known = [name for name, *_ in core().backend_kinds()]
        if options.backend not in (None, *known):
            text = ", ".join(known)
            parser().error(f"check: --backend must be one of {text}, got {options.backend!r}")
        lines = describe(table)
        refused = table_refusal(options.file, options.backend or for_npus(), options.soc)
        if table.completed:
            lines += judged(options.file, table.version, options.backend, options.soc, refused)
        print("\n".join(lines))
        return int(options.backend is not None and bool(refused))
    text = make_rank_table(options.hosts.split(","), options.devices_per_host, options.version)
    if options.output is None:
        print(text)
    else:
        Path(options.output).write_text(text + "\n", encoding="utf-8")
    if "," in options.hosts and options.version == "1.0":
        print("device_ip is left out: backend hccl needs it on several hosts", file=sys.stderr)
    return 0


def describe(table: RankTable) -> list[str]:
    """The placement that ``check`` prints."""
    form = f"version {table.version}" if table.version else "without a version (group_list)"
    if not table.completed:
        return ['status "initializing": not complete yet; first contact waits until it is']
    lines = [f"{form}, {len(table.servers)} hosts, {len(table.ranks)} ranks"]
    rows = [("rank", "host", "device", "device_ip")]
    for rank, place in enumerate(table.ranks):
        server = table.servers[place.server]
        known = server.address == server.name
        name = server.name if known else f"{server.name} ({server.address})"
        rows.append((str(rank), name, str(place.device_id), place.device_ip or "-"))
    lines += aligned(rows, indent="  ")
    here = table.servers[table.here].name if table.here >= 0 else ""
    lines.append(f"this host: {here}" if here else f"this host: not found: {table.not_here}")
    return lines


def for_npus() -> str:
    """The backend of NPUs, whose tables these are."""
    return next(str(name) for name, memory, _ in core().backend_kinds() if memory == "npu")


def judged(path: str, version: str, backend: str | None, soc: str, refused: str) -> list[str]:
    """What a backend says of a table, the last line of ``check``; that of NPUs by default."""
    lines, of_npus = [], for_npus()
    if backend is None and (others := table_refusal(path, "ucx")):
        lines.append(f"every backend but {of_npus}: {others}")
    if backend in (None, of_npus):
        own = core().soc_name(of_npus)
        form = f"version {version}" if version else "a group_list"
        chip = soc or (f"{own}, of this machine" if own else f"the chip that {form} is for")
        lines.append(f"HCCL's rules: those of {chip}" + ("" if soc else "; --soc names another"))
    return [*lines, f"backend {backend or of_npus}: {refused or 'accepts it'}"]
