"""``collops trace``: merges the traces of the ranks of a run, and lists calls with late ranks."""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

from collops.bench.plot import require_matplotlib
from collops.errors import ArgumentError, ErrorCode, raise_status
from collops.terminal.arguments import Parser, count
from collops.trace.merge import (
    MergedTrace,
    between,
    merge,
    missing_ranks,
    read_merged,
    read_rank_file,
)
from collops.trace.summary import summary


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog="collops trace",
        description="Merges or summarises the traces that ranks write with "
        "COLLOPS_TRACE=FILE.json.",
    )
    words = parser.add_subparsers(dest="word", metavar="merge|summary", required=True)
    join = words.add_parser("merge", help="merge the files of a run for Perfetto or Chrome")
    join.add_argument("files", nargs="+", help="FILE.rank0.json FILE.rank1.json ...")
    join.add_argument("-o", "--output", required=True, type=Path, help="the file to write")
    join.add_argument("--plot", type=Path, help="also draw a picture (.png, .svg or .pdf)")
    for option, default, does in (("--from", 0.0, "begins"), ("--to", math.inf, "ends")):
        said = f"where the part to merge {does}, in seconds since the first call"
        join.add_argument(option, dest=does, type=_moment, default=default, metavar="S", help=said)
    late = words.add_parser(
        "summary", help="list the calls whose last rank entered longest after the first"
    )
    late.add_argument("files", nargs="+", help="the files of a run, or a merged file")
    late.add_argument("--top", type=count, default=10, help="number of calls (default: 10)")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Merges traces or summarises them; 2 where the arguments or the files are wrong."""
    options = parser().parse_args(arguments)
    if options.word == "summary":
        print(summary(_read(options.files), options.top))
        return 0
    if options.plot is not None:
        try:
            require_matplotlib(options.plot)
        except ValueError as problem:
            parser().error(str(problem))
    if options.begins >= options.ends:
        parser().error(f"--to must be above --from, got {options.begins:g} and {options.ends:g}")
    _check_output(options.output, options.files)
    _write(merge(options.files), options.output, options.plot, (options.begins, options.ends))
    return 0


def _moment(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"must be a number of seconds, 0 or more, got {text!r}")
    return value


def _read(files: Sequence[str]) -> MergedTrace:
    merged = read_merged(files[0]) if len(files) == 1 else None
    return merged or merge(files)


def _check_output(output: Path, files: Sequence[str]) -> None:
    """Refuses an output that would replace a trace of a rank."""
    if not output.is_file():
        return
    given = any(Path(file).exists() and output.samefile(file) for file in files)
    if not given:
        try:
            read_rank_file(output)
        except ArgumentError:
            return
    what = "one of the files to merge" if given else "the trace of a rank"
    raise_status(
        ErrorCode.ERROR_INVALID_PARAM,
        f"--output {output}: is {what}, which would be lost: name another file",
    )


def _write(
    trace: MergedTrace, output: Path, plot: Path | None, range_s: tuple[float, float]
) -> None:
    part = trace if range_s == (0.0, math.inf) else between(trace, *range_s)
    try:
        output.write_text(json.dumps(part.as_json(), separators=(",", ":")), encoding="utf-8")
    except OSError as error:
        raise_status(ErrorCode.ERROR_INVALID_PARAM, f"--output {output}: {error.strerror}")
    if plot is not None:
        from collops.trace.plot import save_timeline

        save_timeline(trace, plot, range_s)
        print(f"plot: {plot}")
    if missing := missing_ranks(trace.ranks, trace.events):
        print(missing, file=sys.stderr)
    for clock in trace.clocks[1:]:
        print(clock.describe(), file=sys.stderr)
