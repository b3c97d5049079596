"""Padded batches beside uneven ones, by torch's public calls: options, points, tables; no torch."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from collops.bench.operator import Operator, Request, Row, module_with_torch
from collops.terminal.arguments import count, counts
from collops.terminal.tables import markdown_table

_DESCRIPTION = """
A layer of data-parallel serving: every rank has tokens of its own, all ranks need those of all
(a gather), and each gets its part of the sum of what all have computed (a scatter that adds up).
A program pads each rank's tokens to the most that a rank has and calls torch.distributed's
single forms (all_gather_into_tensor, reduce_scatter_tensor), on gloo and on collops; or it
calls collops.torch.all_gatherv and reduce_scatterv with the tokens as they are. All three have
memory that is allocated before; the padded ones copy the tokens into theirs, unless no rank
pads. "calls" are the gather and the scatter alone; "layer" has an MLP between them, whose
hidden units are shared out over the ranks. The ranks take turns on the same data in one run.
collops's times are medians of the rounds, gloo's the 10th percentile.
"""
_EPILOG = """
Without arguments: 2 and 4 ranks, 1 to 4096 tokens of rank 0, and a skew of 1:1 to 8:1.
Tokens are float32 vectors of --hidden elements, the MLP has 4 times as many hidden units.
"""
GLOO, PADDED, UNEVEN = "gloo padded", "collops padded", "collops uneven"
WAYS = (GLOO, PADDED, UNEVEN)
CALLS, LAYER = "calls", "layer"
HIDDEN = 512
_TOKENS, _QUICK_TOKENS = (1, 8, 64, 512, 4096), (1, 64)
_SKEWS, _QUICK_SKEWS = ((1, 1), (2, 1), (4, 1), (8, 1)), ((1, 1), (4, 1))
_COLORS = {GLOO: "#f58518", PADDED: "#bab0ac", UNEVEN: "#4c78a8"}
HEAD = (
    *("ranks", "tokens", "skew", "what", "gloo padded us", "collops padded us"),
    *("collops uneven us", "padded / uneven", "gloo / uneven", "results"),
)


@dataclass(frozen=True)
class PaddingPoint:
    """A batch, and whether an MLP is between its two calls."""

    sizes: tuple[int, ...]  # tokens of each rank; rank 0 has the most
    skew: tuple[int, int]  # of rank 0's tokens to each other's
    what: str  # CALLS or LAYER
    hidden: int

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.sizes)

    @property
    def title(self) -> str:
        """The name of the point in notes."""
        return f"{self.what}, tokens {':'.join(map(str, self.sizes))}"

    def describe(self) -> Row:
        """The parameters of the point, for its row."""
        return {
            "ranks": self.ranks,
            "tokens": self.sizes[0],
            "skew": ":".join(map(str, self.skew)),
            "sizes": list(self.sizes),
            "what": self.what,
            "hidden": self.hidden,
        }


def points_of(
    ranks: Iterable[int], tokens: Sequence[int], skews: Sequence[tuple[int, int]], hidden: int
) -> tuple[PaddingPoint, ...]:
    """Every batch with both contents; no skew that whole tokens do not show."""
    return tuple(
        PaddingPoint((most, *[most * small // large] * (size - 1)), (large, small), what, hidden)
        for size in ranks
        for what in (CALLS, LAYER)
        for most in tokens
        for large, small in skews
        if most * small >= large
    )


class Padding(Operator):
    """The options, points and tables of padded and uneven batches."""

    name, description, epilog = "padding", _DESCRIPTION, _EPILOG
    quick = "2 ranks, two numbers of tokens, two skews, few rounds"
    iterations, dtypes, plotted = (15, 3), (), "draw the ratios by tokens"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        usual = {"--ranks": "numbers of ranks, on this host (2,4)"}
        usual["--tokens"] = f"those of rank 0 ({','.join(map(str, _TOKENS))})"
        for name, words in usual.items():
            add(name, type=lambda text: counts(text, ","), metavar="LIST", help=words)
        add(
            "--skew",
            type=_skews,
            metavar="LIST",
            help="rank 0's tokens to those of each other rank (1:1,2:1,4:1,8:1)",
        )
        add(
            "--hidden",
            type=count,
            default=HIDDEN,
            metavar="N",
            help=f"elements of a token ({HIDDEN})",
        )

    def points(self, options: argparse.Namespace) -> tuple[PaddingPoint, ...]:
        ranks = options.ranks or ((2,) if options.quick else (2, 4))
        tokens = options.tokens or (_QUICK_TOKENS if options.quick else _TOKENS)
        skews = options.skew or (_QUICK_SKEWS if options.quick else _SKEWS)
        points = points_of(ranks, tokens, skews, options.hidden)
        if not points:
            raise ValueError("with so few tokens the other ranks have none: give more --tokens")
        for size in ranks:
            if size < 2 or 4 * options.hidden % size:
                raise ValueError(
                    f"--ranks {size}: 2 or more are needed, by which the MLP's "
                    f"{4 * options.hidden} hidden units divide"
                )
        _with_torch()
        return points

    def measure(self, request: Request, store: str) -> Iterator[Row]:
        lines: Iterator[Row] = _with_torch().measure_points(request, store)
        return lines

    def rows(self, record: Row) -> list[Row]:
        return [row_of(record)]

    def text(self, rows: list[Row]) -> str:
        """Nothing: the table is one of all points."""
        return ""

    def summary(self, points: list[list[Row]]) -> str:
        """Every point, then how many times longer the padded ways take, as README shows it."""
        rows = [row for rows in points for row in rows]
        return f"{markdown_table(HEAD, [cells(row) for row in rows])}\n\n{ratios(rows)}"

    def spread(self, row: Row) -> float:
        return float(row["spread"])

    def is_wrong(self, row: Row) -> bool:
        return not row["equal"]

    def save_plot(self, path: Path, points: list[list[Row]]) -> None:
        """A panel for each number of ranks and content, a line for each skew and padded way."""
        from collops.bench.plot import Panel, save_panels

        every = [row for rows in points for row in rows]
        panels = []
        for ranks, what in dict.fromkeys((row["ranks"], row["what"]) for row in every):
            rows = [row for row in every if (row["ranks"], row["what"]) == (ranks, what)]
            lines: dict[str, tuple[list[float], list[float]]] = {}
            for row in rows:
                xs, ys = lines.setdefault(row["skew"], ([], []))
                xs.append(row["tokens"])
                ys.append(row["padded_ratio"])
            title = f"{what}, {ranks} ranks: collops padded / uneven"
            panels.append(Panel(title, "tokens of rank 0", "times", lines, marked=1.0))
        save_panels(path, panels, across=2)


OPERATOR = Padding()


def _with_torch() -> Any:
    return module_with_torch("collops.bench.torch.padding")


def _skews(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [counts(part, ":", 2) for part in text.split(",")]
    for pair in pairs:
        if len(pair) != 2 or pair[0] < pair[1]:
            given = ":".join(map(str, pair))
            raise argparse.ArgumentTypeError(f"two numbers as 4:1 are needed, got {given!r}")
    return tuple((large, small) for large, small in pairs)


def row_of(record: Row) -> Row:
    """A record's times in microseconds, and how many times longer the padded ways take."""
    row = {name: value for name, value in record.items() if name not in ("record", "seconds")}
    seconds = record["seconds"]
    gloo = sorted(seconds[GLOO])[(len(seconds[GLOO]) - 1) // 10]
    padded, uneven = (statistics.median(seconds[way]) for way in (PADDED, UNEVEN))
    row |= {"gloo_us": round(gloo * 1e6, 2), "padded_us": round(padded * 1e6, 2)}
    row |= {"uneven_us": round(uneven * 1e6, 2)}
    row |= {"padded_ratio": round(padded / uneven, 3), "gloo_ratio": round(gloo / uneven, 3)}
    own = sorted(seconds[UNEVEN])
    return {**row, "spread": round(own[-1 - len(own) // 20] / own[0], 3)}


def cells(row: Row) -> list[str]:
    """The texts of a row, in the order of HEAD."""
    times = (f"{row[name]:.1f}" for name in ("gloo_us", "padded_us", "uneven_us"))
    factors = (f"{row[name]:.2f}" for name in ("padded_ratio", "gloo_ratio"))
    batch = (str(row["ranks"]), str(row["tokens"]), row["skew"], row["what"])
    return [*batch, *times, *factors, "equal" if row["equal"] else "DIFFER"]


def ratios(rows: Iterable[Row]) -> str:
    """For each number of ranks a table of each padded way: how many times longer it takes.

    A cell has the ratio of the two calls alone, and that of the layer with its MLP.
    """
    every = list(rows)
    tables = []
    for ranks, (way, name) in product(
        dict.fromkeys(row["ranks"] for row in every),
        (("padded_ratio", "collops"), ("gloo_ratio", "gloo")),
    ):
        found: dict[tuple[int, str], dict[str, str]] = {}
        for row in (row for row in every if row["ranks"] == ranks):
            cell = found.setdefault((row["tokens"], row["skew"]), {})
            cell[row["what"]] = f"{row[way]:.{2 if row[way] < 10 else 0}f}"
        skews = list(dict.fromkeys(skew for _, skew in found))
        body = [
            [str(most), *(", ".join(found.get((most, skew), {"": "-"}).values()) for skew in skews)]
            for most in dict.fromkeys(most for most, _ in found)
        ]
        head = [f"{ranks} ranks, padded on {name} / uneven: tokens of rank 0", *skews]
        tables.append(markdown_table(head, body))
    return "\n\n".join(tables)
