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
from .plot import sides
from .report import shown

_MOST_ROWS = 60
_SIDE = 64
_FAINTEST = 0.3
_STYLE = """
:root { color-scheme: light dark; --text: #222; --faint: #666; --line: #ddd; --empty: #eef1f4;
  --good: #1a7f37; --bad: #b3261e; --note: #fff7e0; --back: #fff; }
@media (prefers-color-scheme: dark) { :root { --text: #ddd; --faint: #999; --line: #444;
  --empty: #2b2f33; --good: #4cc26a; --bad: #ff6b5f; --note: #3a3218; --back: #17191b; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; padding: 0 1em; max-width: 60em;
  color: var(--text); background: var(--back); overflow-wrap: anywhere; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
.equal { color: var(--good); } .different { color: var(--bad); }
.pattern { background: var(--note); border-left: 4px solid #e0a800; padding: .6em 1em; }
.wide { overflow-x: auto; overflow-wrap: normal; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .15em .9em; text-align: right; border-bottom: 1px solid var(--line); }
svg { background: var(--empty); display: block; shape-rendering: crispEdges; }
.wrong { fill: var(--bad); }
figure { display: inline-block; vertical-align: top; margin: .3em 1.5em .6em 0; }
figcaption { font-size: .85em; color: var(--faint); }
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
        pictures = [_picture(m, name) for m, name in zip(result.masks, names, strict=True)]
        lines += pictures
        if any(" opacity=" in picture for picture in pictures):
            lines.append("<p>The redder a square, the more of its elements are wrong.</p>")
        blocks = list(_blocks(result, layout, names))
        lines += _table(
            "Blocks with wrong elements", ("output", "rank", "elements", "wrong"), blocks
        )
        rows = list(_elements(result, got, expected, names))
        marked = sum(int(mask.sum()) for mask in result.masks)
        first = "Elements" if len(rows) == marked else f"The first {len(rows)} of {marked} elements"
        head = ("output", "row", "column", "got", "expected")
        lines += _table(f"{first} that differ", head, rows)
    body = "\n".join(lines)
    title = f"<title>collops golden: {word}</title>"
    return (
        f"<!DOCTYPE html>\n<html lang=en><meta charset=utf-8>\n"
        f"<meta name=viewport content='width=device-width'>{title}\n"
        f"<style>{_STYLE}</style>\n<body>\n{body}\n</body></html>\n"
    )


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return a table; without its first column if that is empty, as of a file of one tensor."""
    if not rows:
        return []
    named = int(not any(row[0] for row in rows))
    top = "".join(f"<th>{word}</th>" for word in head[named:])
    cells = ["".join(f"<td>{escape(str(cell))}</td>" for cell in row[named:]) for row in rows]
    return [
        f"<h2>{title}</h2>",
        "<div class=wide><table>",
        f"<tr>{top}</tr>",
        *(f"<tr>{c}</tr>" for c in cells),
        "</table></div>",
    ]


def _picture(mask: npt.NDArray[np.bool_], name: str) -> str:
    """Return a small picture of an output: a square is the redder the more of it is wrong."""
    cells = _folded(mask)
    rows, columns = (min(n, _SIDE) for n in cells.shape)
    lines, across = (
        [slice(i * size // n, (i + 1) * size // n) for i in range(n)]
        for n, size in zip((rows, columns), cells.shape, strict=True)
    )
    wrong = np.array([[np.count_nonzero(cells[a, b]) for b in across] for a in lines])
    shares = wrong / np.maximum(_elements_of(lines, across, mask.size), 1)
    squares = "".join(
        f"<rect class=wrong x={c} y={r} width=1 height=1{_opacity(float(shares[r, c]))} />"
        for r, c in np.argwhere(shares).tolist()
    )
    size = f'viewBox="0 0 {columns} {rows}" width={max(40, 4 * columns)} height={max(20, 4 * rows)}'
    folded = f", {cells.shape[1]} in a line" if cells.shape[1] != math.prod(mask.shape[1:]) else ""
    caption = escape(f"{name or 'output'}: {int(mask.sum())} of {mask.size} wrong{folded}")
    svg = f"<svg {size} preserveAspectRatio=none>{squares}</svg>"
    return f"<figure>{svg}<figcaption>{caption}</figcaption></figure>"


def _elements_of(
    lines: Sequence[slice], across: Sequence[slice], size: int
) -> npt.NDArray[np.int64]:
    """Return how many of an output's elements each square has; the last line may be cut short."""
    heights, widths = (np.array([one.stop - one.start for one in s]) for s in (lines, across))
    counts = np.outer(heights, widths)
    last = size - (lines[-1].stop - 1) * across[-1].stop
    counts[-1] -= [one.stop - min(max(one.start, last), one.stop) for one in across]
    return counts


def _opacity(share: float) -> str:
    return "" if share == 1 else f" opacity={_FAINTEST + (1 - _FAINTEST) * share:.2f}"


def _folded(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return a mask as rows by columns; one long column is folded, as in a plot."""
    width = max(1, math.prod(mask.shape[1:]))
    if width == 1 and mask.size > _SIDE:
        _, width = sides(mask.shape)
    cells = np.zeros(max(1, -(-mask.size // width)) * width, np.bool_)
    cells[: mask.size] = mask.reshape(-1)
    return cells.reshape(-1, width)


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
                yield name, block.rank, place, f"{wrong} of {block.count}"


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
            yield (name, *divmod(at, width), *both)
