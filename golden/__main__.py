"""Command line: list cases, write their tensors to files, compare tensors.

python -m golden list [FILE.csv ...] [--op NAME] [--filter TEXT|NUMBERS]
python -m golden generate DIR [--op NAME] [--filter TEXT] [--seed N]
python -m golden compare A B --op OP --dtype T [--tolerance T] [--counts N,N] [--plot FILE.png]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .case_files.csv_cases import check_filter, scan_rows, selector
from .case_files.csv_cells import meant_operation
from .case_files.csv_plan import plan_row
from .case_files.csv_row import CsvRow, RowError
from .case_files.manifest import Shows, write_cases
from .case_files.row_inputs import missing_file
from .case_files.tables import case_table, row_table
from .cases import OPERATORS, Case, all_cases
from .compare import command as compare_command
from .operators.spelling import operator_name
from .operators.table import OPERATIONS, operator_of


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(
    arguments: Sequence[str] | None = None,
    shows: Shows | None = None,
    kind: type[argparse.ArgumentParser] = _Parser,
) -> int:
    """Run the command line and return its exit status.

    0: success; 1: the tensors differ, or a file cannot be written; 2: wrong arguments. `shows` is
    called with the number of written cases and that of all, after each of them. `kind` is the class
    of the parser.
    """
    # `collops golden` passes arguments; `python -m golden` in a checkout passes none.
    module = arguments is None or not __package__.startswith("collops.")
    program = f"python -m {__package__}" if module else "collops golden"
    given = sys.argv[1:] if arguments is None else [*arguments]
    if module and given[:1] == ["run"]:
        print(f"{program}: run needs an installed collops: collops golden run", file=sys.stderr)
        return 2
    options = parser_of(program, kind).parse_args(given)
    options.shows = shows
    said = f"{program} {options.command}"
    try:
        status = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; the interpreter's last flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ValueError as error:
        print(f"{said}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"{said}: {where}{error.strerror}", file=sys.stderr)
        return 1 if options.run is _generate else 2
    return int(status)


def _list(options: argparse.Namespace) -> int:
    print(row_table(_rows(options)) if options.files else case_table(_cases(options)))
    return 0


def _generate(options: argparse.Namespace) -> int:
    cases = _cases(options)
    manifest = write_cases(cases, Path(options.directory), options.shows)
    print(f"{len(cases)} cases in {manifest}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    result, text = compare_command.run(options)
    print(text)
    return 0 if result.accepted else 1


def _cases(options: argparse.Namespace) -> list[Case]:
    cases = all_cases(options.op, text=options.filter, seed=options.seed)
    if not cases:
        raise ValueError(f"no case has {options.filter!r} in its id; `list` prints them all")
    return cases


def _rows(options: argparse.Namespace) -> list[CsvRow | RowError]:
    """Return the rows of case files that the filter and the operator choose."""
    chosen = selector(options.filter)
    operation = operator_of(options.op).operation if options.op is not None else ""
    every = [row for file in options.files for row in scan_rows(Path(file))]
    rows = [
        _checked(row)
        for row in every
        if chosen(row.number, row.name) and (not operation or _operator(row) == operation)
    ]
    if not rows:
        of = f"of {options.op} " if options.op else ""
        has = (
            f"has {options.filter!r} in its name or as its number" if options.filter else "is there"
        )
        raise ValueError(f"no row {of}{has}")
    check_filter(options.filter, [row.number for row in every])
    return rows


def _checked(row: CsvRow | RowError) -> CsvRow | RowError:
    """Return the row, or the problem of one that names a file which is not there."""
    if isinstance(row, RowError) or plan_row(row).action == "skip":
        return row
    return missing_file(row) or row


def _operator(row: CsvRow | RowError) -> str:
    """Return a row's operator; for a misspelt operator, the one that is meant."""
    return row.operator if row.operator in OPERATIONS else meant_operation(row.operator) or ""


def parser_of(
    program: str, kind: type[argparse.ArgumentParser] = _Parser
) -> argparse.ArgumentParser:
    """Return the parser of the command line that is called by these words.

    Example:
        >>> parser_of("golden").parse_args(["list", "--op", "send"]).op
        'send'
    """
    parser = kind(
        prog=program,
        description="Golden cases of the operators: inputs and expected outputs.",
        epilog=f"example: {program} generate cases --op all_gather_v --filter p2.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="list|generate|compare")
    listing = commands.add_parser("list", help="print a table of golden's cases, or of case files")
    listing.add_argument("files", metavar="FILE.csv", nargs="*", help="case file in ATB's format")
    generating = commands.add_parser(
        "generate",
        aliases=["write"],
        help="write one .npz per case and manifest.json",
        description="Write one .npz per case (inputs and expected output of every rank, bfloat16 "
        "as uint16 bits) and manifest.json, which describes every case. The same seed gives the "
        "same bytes.",
    )
    generating.add_argument("directory", metavar="DIR", help="output folder, created if needed")
    for command, run in ((listing, _list), (generating, _generate)):
        command.add_argument(
            "--op", metavar="NAME", type=operator_name, help=f"one of {', '.join(OPERATORS)}"
        )
        command.add_argument(
            "--filter", metavar="TEXT", default="", help="only cases whose id contains TEXT"
        )
        command.set_defaults(seed=0, run=run)
    generating.add_argument("--seed", metavar="N", type=int, help="seed of the data (default 0)")
    comparing = commands.add_parser(
        "compare",
        help="compare tensors from files, and show where and how they differ",
        description="Compare outputs A with expected outputs B. Exit status 0: equal, "
        "1: different, 2: wrong arguments.",
    )
    compare_command.add_arguments(comparing)
    comparing.set_defaults(run=_compare)
    return parser


if __name__ == "__main__":
    sys.exit(main())
