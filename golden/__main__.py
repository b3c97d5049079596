"""Command line: list the cases, or write their tensors to files.

python -m golden list [--op NAME] [--filter TEXT]
python -m golden write DIR [--op NAME] [--filter TEXT] [--seed N]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .case_files import write_cases
from .cases import OPERATORS, Case, all_cases

_PROGRAM = f"python -m {__package__}"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {_PROGRAM} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 (cannot write), 2 (wrong request)."""
    options = _parser().parse_args(arguments)
    try:
        cases = all_cases(options.op, text=options.filter, seed=options.seed)
        if not cases:
            raise ValueError(f"no case has {options.filter!r} in its id; see {_PROGRAM} list")
    except ValueError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return 2
    try:
        if options.command == "write":
            manifest = write_cases(cases, Path(options.directory))
            print(f"{len(cases)} cases in {manifest}")
        else:
            print(_table(cases))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough; keep the interpreter's last flush quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"{_PROGRAM}: cannot write: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> _Parser:
    parser = _Parser(
        prog=_PROGRAM,
        description="Golden cases of the operators: what goes in, and what must come out.",
        epilog=f"example: {_PROGRAM} write cases --op all_gather_v --filter p2.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="list|write")
    listing = commands.add_parser("list", help="print a table of the cases")
    writing = commands.add_parser(
        "write",
        help="write one .npz per case and manifest.json",
        description="Write one .npz per case (inputs and expected output of every rank, bfloat16 "
        "as uint16 bits) and manifest.json, which states every case. Same seed, same bytes.",
    )
    writing.add_argument("directory", metavar="DIR", help="folder to write to; made if needed")
    for command in (listing, writing):
        command.add_argument("--op", metavar="NAME", help=f"one of {', '.join(OPERATORS)}")
        command.add_argument("--filter", metavar="TEXT", default="", help="part of the case's id")
        command.set_defaults(seed=0)
    writing.add_argument("--seed", metavar="N", type=int, help="seed of the data (default 0)")
    return parser


def _table(cases: Sequence[Case]) -> str:
    head = ("case", "ranks", "dtype", "reduce", "data", "counts", "rows of output")
    rows = [head] + [
        (
            case.id,
            str(case.rank_size),
            case.dtype,
            case.op or "-",
            case.kind,
            " ".join(map(str, case.counts)),
            " ".join(map(str, case.rows)),
        )
        for case in cases
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([line.rstrip() for line in lines] + [f"{len(cases)} cases"])


if __name__ == "__main__":
    sys.exit(main())
