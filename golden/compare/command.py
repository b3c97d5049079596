"""The command `compare`: compares two files of tensors of any program."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..case_files.manifest import MANIFEST, read_manifest
from ..case_files.tensor_files import read_entries, read_outputs
from ..cases import Case, case_layout
from ..data.dtypes import DTYPES, Array, dtype_named
from ..data.reduction import REDUCE_OPS
from ..data.shares import packed
from ..data.words import unknown
from ..explain.evidence import Diagnosis
from ..operators.operator import MOVES
from ..operators.output_layout import OutputLayout, exchange_layout, gather_layout, scatter_layout
from ..operators.spelling import operator_name
from ..operators.table import OPERATORS as TABLE
from .atb_tolerance import MOVING, OPERATORS, tolerance
from .comparison import Comparison, compare
from .html import html_page
from .plot import require_matplotlib, save_plot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `compare` to its parser.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args("a.npy b.npy --op broadcast --dtype int8".split()).tolerance
        'exact'
    """
    parser.add_argument("got", metavar="A", type=Path, help="the outputs: .bin, .npy, .npz or .pt")
    parser.add_argument("expected", metavar="B", type=Path, help="the expected outputs")
    parser.add_argument(
        "--op",
        metavar="OP",
        type=operator_name,
        help=f"one of {', '.join(OPERATORS)}; not needed where B is a case of a manifest.json, "
        "or where the tolerance does not depend on it",
    )
    parser.add_argument(
        "--dtype",
        metavar="T",
        type=_dtype,
        help=f"one of {', '.join(DTYPES)}, or an alias such as f16, fp16 or half; the files' own "
        "must be this",
    )
    parser.add_argument(
        "--tolerance",
        metavar="T",
        default="exact",
        help="exact (the default), atb, atb-percent, or a number: |error| <= T max(1, |expected|)",
    )
    parser.add_argument(
        "--reduce", metavar="R", default="sum", help=f"one of {', '.join(REDUCE_OPS)} (default sum)"
    )
    parser.add_argument(
        "--terms", metavar="K", type=_terms, default=1, help="products per element, for atb (1)"
    )
    parser.add_argument(
        "--counts", metavar="N,N,...", help="elements of each rank's block, in rank order"
    )
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="draw the error")
    parser.add_argument("--html", metavar="FILE.html", type=Path, help="write a page of the result")


def run(options: argparse.Namespace) -> tuple[Comparison, str]:
    """Compare the files that the arguments name; return the result and the text to print.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the arguments or the files do not fit together.

    Example:
        >>> import tempfile
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/a.npy", np.arange(3, dtype=np.int8))
        ...     words = f"{folder}/a.npy {folder}/a.npy --op broadcast --dtype int8"
        ...     print(run(parser.parse_args(words.split()))[1])
        equal: 3 elements of int8, bit for bit
    """
    op = options.op or _op_of_case(options.expected)
    if op not in ("", *OPERATORS):
        raise unknown("operator", op, OPERATORS)
    options.op = op
    if options.plot:
        require_matplotlib(options.plot)
    if options.html and options.html.suffix not in (".html", ".htm"):
        raise ValueError(f"--html {options.html}: a page's file ends in .html")
    for option, path in (("--plot", options.plot), ("--html", options.html)):
        # Before the comparison, which takes long for large files.
        if path and not path.parent.is_dir():
            raise ValueError(f"{option} {path}: there is no folder {path.parent}")
        if path and path.is_dir():
            raise ValueError(f"{option} {path}: is a folder")
    got, dtype = _read(options.got, options.dtype)
    expected, other = _read(options.expected, options.dtype)
    if other != dtype:
        raise ValueError(f"{options.got} holds {dtype}, {options.expected} holds {other}")
    allowed = tolerance(options.tolerance, op, dtype, reduce=options.reduce, terms=options.terms)
    names = _common_names(got, expected, options)
    left, right = list(got.values()), list(expected.values())
    layout = _layout(options, right)
    if op.startswith("moe_"):
        layout = replace(layout, has_tokens=True)
    labels = [name.replace("rank", "rank ") for name in names]
    result = compare(left, right, dtype, tolerance=allowed, layout=layout, labels=labels)
    if result.diagnosis.kind == "rounding" and op in MOVING:
        text = f"{result.diagnosis.text}, but {op} adds nothing up: something converted"
        result = replace(result, diagnosis=Diagnosis("rounding", f"{text} the elements"))
    text = result.text()
    if options.plot and not result.problem:
        pattern = result.diagnosis
        words = pattern.kind if pattern.kind == "no pattern" else pattern.text or "equal"
        title = f"{op} {dtype}: {words}".strip()
        drawn = (left, right, result.masks, dtype)
        save_plot(options.plot, *drawn, layout=layout, names=labels, title=title)
        text += f"\nplot: {options.plot}"
    if options.html:
        heads = (str(options.got), str(options.expected))
        page = html_page(result, left, right, layout=layout, names=labels, files=heads)
        options.html.write_text(page, encoding="utf-8")
        text += f"\npage: {options.html}"
    return result, text


def _op_of_case(path: Path) -> str:
    """Return the operator of the case that a file has in a manifest beside it; empty without."""
    found = (case.operator for case, _, file in _cases_beside(path) if file == path)
    return next(found, "")


def _dtype(text: str) -> str:
    try:
        return dtype_named(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _terms(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return number


def _read(path: Path, dtype: str | None) -> tuple[dict[str, Array], str]:
    outputs, found = read_outputs(path)
    if dtype is not None and found != dtype:
        raise ValueError(f"{path} holds {found}, --dtype says {dtype}")
    return outputs, found


def _common_names(
    got: Mapping[str, Array], expected: Mapping[str, Array], options: argparse.Namespace
) -> list[str]:
    """Return the names of the outputs, which are the same in both files unless there is one."""
    if len(got) == len(expected) == 1:
        return [next(name for name in (*expected, *got))]
    if list(got) != list(expected):
        raise ValueError(
            f"{options.got} has {_listed(got)}, {options.expected} has {_listed(expected)}"
        )
    return list(expected)


def _listed(names: Mapping[str, Array]) -> str:
    return ", ".join(names) if list(names) != [""] else "one tensor"


def _layout(options: argparse.Namespace, expected: Sequence[Array]) -> OutputLayout:
    """Return the ranks' blocks, from --counts or from the inputs of a case's .npz."""
    if options.counts is not None:
        counts = _counts(options.counts)
        for array in expected:
            if sum(counts) != array.size:
                raise ValueError(
                    f"--counts make {sum(counts)} elements, B has {array.size}: give every "
                    "rank's block, one after the other"
                )
        return gather_layout(counts, packed(counts), outputs=len(expected))
    if options.expected.suffix != ".npz":
        return OutputLayout()
    entries = read_entries(options.expected)
    for case, names, file in _cases_beside(options.expected):
        if file == options.expected and case.operator == options.op:
            ranks = range(case.rank_size)
            return case_layout(
                case, [[entries[f"rank{r}/{name}"] for name in names] for r in ranks]
            )
    ranks = range(len(expected))
    xs = [entries[f"rank{r}/x"] for r in ranks if f"rank{r}/x" in entries]
    operator = TABLE.get(options.op) if len(xs) == len(expected) else None
    if operator and operator.accuracy != MOVES and not operator.inputs:
        # Reduces every x: all_reduce and reduce_scatter, which name the reduction differently.
        params = {"allReduceType": options.reduce, "reduceType": options.reduce}
        return operator.layout({"rankSize": len(xs), **params}, [[x] for x in xs])
    names = ("recvCounts", "rdispls")
    if all(f"rank{r}/{name}" in entries for r in ranks for name in names):
        tables = ([entries[f"rank{r}/{name}"].tolist() for r in ranks] for name in names)
        return exchange_layout(*tables)
    if "rank0/sendCounts" in entries and all(f"rank{r}/x" in entries for r in ranks):
        counts, displs = (entries[f"rank0/{name}"].tolist() for name in ("sendCounts", "sdispls"))
        xs = [entries[f"rank{r}/x"] for r in ranks]
        return scatter_layout(xs, counts, displs, options.reduce)
    return OutputLayout()


def _cases_beside(path: Path) -> list[tuple[Case, tuple[str, ...], Path]]:
    """Return the cases of the manifest beside a case's file; none if there is no manifest."""
    manifest = path.parent / MANIFEST
    return read_manifest(manifest) if manifest.exists() else []


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [-1]
    if min(counts) < 0:
        raise ValueError(f"--counts are whole numbers such as 24,40, got {text!r}")
    return counts
