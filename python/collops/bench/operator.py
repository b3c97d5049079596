"""What the bench is told of an operator by its module in ``operators/``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collops.bench.request import Point
from collops.bench.variant import Variants

# One variant's figures and the point's own, as --json writes them.
Row = dict[str, Any]
# The heads of a table and the cells of its lines.
Lines = tuple[tuple[str, ...], list[list[str]]]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What --sweep measures: one size after the other, without other libraries."""

    help: str
    own: tuple[str, ...]  # the variants that it takes
    lines: Callable[[list[list[Row]]], Lines]  # of the table, from the rows of each point


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Its options, points and variants, and what its rows and tables say beyond times."""

    name: str
    description: str
    epilog: str  # what is measured without arguments
    quick: str  # what --quick measures
    add_options: Callable[[argparse.ArgumentParser], None]
    points: Callable[[argparse.Namespace], list[Point]]  # ValueError: options that do not fit
    variants: Callable[..., Variants]  # of a point on one rank: point, work, peers, seed
    own: tuple[str, ...]  # variants of collops, in the order in which they are shown
    reference: str  # the one with whose result the others' are compared
    torch_peers: tuple[str, ...]  # those of the peers that need torch
    torch_columns: str  # what a note calls their columns
    compare: Callable[[Row, dict[str, Row]], Row]  # a row with its ratios to the point's others
    title: Callable[[Row], str]  # how tables and plots call a row's point
    headline: Callable[[Row, str], str]  # what stands above a point's table, around the given text
    ratios: dict[str, str]  # columns of a point's table: head -> key of the row
    summary: Callable[[list[list[Row]]], Lines]  # of the table of all points
    parts: dict[str, str]  # part of a call -> how a plot calls it, in the order of the stack
    unplotted: tuple[str, ...] = ()  # variants without a bar
    sweep: Sweep | None = None
