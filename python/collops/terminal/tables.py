"""Tables of text: in aligned columns, or in markdown."""

from __future__ import annotations

from collections.abc import Sequence

Cells = Sequence[str]


def widths_of(rows: Sequence[Cells]) -> list[int]:
    """The width of each column."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def aligned(rows: Sequence[Cells], align: str = "<", indent: str = "") -> list[str]:
    """A line for each row, with two spaces between columns.

    Args:
        rows: the cells, with those of the head first if there is one.
        align: ``<`` or ``>`` for each column; the last one holds for the columns after it.
        indent: begins each line.

    Example:
        >>> aligned([("rank", "ms"), ("0", "1.25")], "<>")
        ['rank    ms', '0     1.25']
    """
    widths = widths_of(rows)
    align = align.ljust(len(widths), align[-1])
    return [
        (indent + "  ".join(map("{:{}{}}".format, row, align, widths))).rstrip() for row in rows
    ]


def markdown_row(cells: Cells, widths: Sequence[int], first: str = ">") -> str:
    """A row of a markdown table, with its cells to the right; the first one as it says."""
    align = first.ljust(len(widths), ">")
    return f"| {' | '.join(map('{:{}{}}'.format, cells, align, widths))} |"


def markdown_head(head: Cells, widths: Sequence[int], first: str = ">") -> str:
    """The head of a markdown table and the rule below it."""
    rule = ["-" * (width - 1) + ":" for width in widths]
    rule[0] = "-" * widths[0] if first == "<" else rule[0]
    return f"{markdown_row(head, widths, first)}\n{markdown_row(rule, widths, first)}"


def markdown_table(head: Cells, rows: Sequence[Cells]) -> str:
    """A markdown table whose columns are aligned; all but the first to the right."""
    widths = widths_of([head, *rows])
    return "\n".join(
        [markdown_head(head, widths, "<"), *(markdown_row(row, widths, "<") for row in rows)]
    )
