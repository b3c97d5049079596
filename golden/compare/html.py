"""The result of a comparison as one HTML page, which needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from ..data.dtypes import Array
from ..operators.output_layout import Block, OutputLayout
from .comparison import Comparison
from .report import shown

_MOST_ROWS = 60
_SIDE = 64
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; color: #222; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
.equal { color: #1a7f37; } .different { color: #b3261e; }
.pattern { background: #fff7e0; border-left: 4px solid #e0a800; padding: .6em 1em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15em .9em; text-align: right; border-bottom: 1px solid #ddd; }
svg { background: #eef1f4; margin: .3em 1.5em .3em 0; } .wrong { fill: #b3261e; }
figure { display: inline-block; margin: 0; } figcaption { font-size: .85em; color: #666; }
"""


def html_page(
    result: Comparison,
    got: Sequence[Array],
    expected: Sequence[Array],
    *,
    layout: OutputLayout,
    names: Sequence[str],
    files: tuple[str, str],
) -> str:
    """Return the page: the verdict, the pattern, where the errors are, blocks and elements.

    Example:
        >>> from .comparison import compare
        >>> a, b = [np.array([1, 2], np.int8)], [np.array([1, 3], np.int8)]
        >>> one, how = compare(a, b, "int8"), {"layout": OutputLayout(), "names": ["rank 0"]}
        >>> "<h1 class=different>Different</h1>" in html_page(one, a, b, files=("a", "b"), **how)
        True
    """
    word = "equal" if result.accepted else "different"
    lines = [f"<h1 class={word}>{word.capitalize()}</h1>"]
    lines.append(f"<p>{escape(files[0])} compared with the expected {escape(files[1])}</p>")
    report = result.text().splitlines()
    facts = [line for line in report if not line.startswith("pattern: ")]
    # What follows the pattern is the text's own table of rows.
    facts = facts[: len(report) - len(result.lines) - 1] if result.lines else facts
    lines.append(f"<p>{'<br>'.join(map(escape, facts))}</p>")
    if result.diagnosis.text:
        lines.append(f"<p class=pattern>Pattern: {escape(result.diagnosis.text)}</p>")
    if any(mask.any() for mask in result.masks):
        lines.append("<h2>Where</h2>")
        lines += [_picture(m, name) for m, name in zip(result.masks, names, strict=True)]
        lines += _table(
            "Blocks", ("output", "rank", "elements", "wrong"), _blocks(result, layout, names)
        )
        head = ("output", "row", "column", "got", "expected")
        lines += _table("First elements that differ", head, _elements(result, got, expected, names))
    body = "\n".join(lines)
    title = f"<title>collops golden: {word}</title>"
    return (
        f"<!DOCTYPE html>\n<html lang=en><meta charset=utf-8>{title}\n"
        f"<style>{_STYLE}</style>\n<body>\n{body}\n</body></html>\n"
    )


def _table(title: str, head: Sequence[str], rows: Iterator[Sequence[object]]) -> list[str]:
    cells = ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
    if not cells:
        return []
    top = "".join(f"<th>{word}</th>" for word in head)
    return [
        f"<h2>{title}</h2>",
        "<table>",
        f"<tr>{top}</tr>",
        *(f"<tr>{c}</tr>" for c in cells),
        "</table>",
    ]


def _picture(mask: npt.NDArray[np.bool_], name: str) -> str:
    """Return a small picture of an output: a square is red where an element in it is wrong."""
    width = max(1, math.prod(mask.shape[1:]))
    cells = mask.reshape(-1, width) if mask.size else np.zeros((1, 1), np.bool_)
    rows, columns = (min(n, _SIDE) for n in cells.shape)
    at = np.argwhere(cells)
    places = np.unique(at * [rows, columns] // cells.shape, axis=0)
    squares = "".join(
        f"<rect class=wrong x={c} y={r} width=1 height=1 />" for r, c in places.tolist()
    )
    size = f'viewBox="0 0 {columns} {rows}" width={max(40, 4 * columns)} height={max(20, 4 * rows)}'
    caption = escape(f"{name or 'output'}: {int(mask.sum())} of {mask.size} wrong")
    svg = f"<svg {size} preserveAspectRatio=none>{squares}</svg>"
    return f"<figure>{svg}<figcaption>{caption}</figcaption></figure>"


def _blocks(
    result: Comparison, layout: OutputLayout, names: Sequence[str]
) -> Iterator[Sequence[object]]:
    """Yield the blocks that have wrong elements."""
    for output, (mask, name) in enumerate(zip(result.masks, names, strict=True)):
        blocks: Sequence[Block] = layout.of(output)
        for block in blocks:
            wrong = int(mask.reshape(-1)[block.start : block.stop].sum())
            if wrong:
                place = f"{block.start}..{block.stop - 1}"
                yield name or "output", block.rank, place, f"{wrong} of {block.count}"


def _elements(
    result: Comparison, got: Sequence[Array], expected: Sequence[Array], names: Sequence[str]
) -> Iterator[Sequence[object]]:
    left = _MOST_ROWS
    for g, e, mask, name in zip(got, expected, result.masks, names, strict=True):
        width = max(1, math.prod(mask.shape[1:]))
        wrong = np.flatnonzero(mask)[:left]
        left -= wrong.size
        texts = (shown(array.reshape(-1)[wrong], result.dtype) for array in (g, e))
        for at, *both in zip(wrong.tolist(), *texts, strict=True):
            yield (name or "output", *divmod(at, width), *both)
