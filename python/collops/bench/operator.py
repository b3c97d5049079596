"""Operator: the description of an operator that its module in ``operators/`` gives the bench."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collops.bench.elements import NAMES
from collops.bench.peers import PEERS
from collops.bench.request import Point
from collops.bench.variant import Variants

# The figures of a variant and the parameters of its point, as --json writes them.
Row = dict[str, Any]
# The column heads of a table and the cells of its lines.
Lines = tuple[tuple[str, ...], list[list[str]]]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The measurement of --sweep: several sizes, without other libraries."""

    help: str
    own: tuple[str, ...]  # the measured variants
    lines: Callable[[list[list[Row]]], Lines]  # of the table, from the rows of each point


@dataclass(frozen=True, kw_only=True)
class Operator:
    """The options, points and variants of an operator, and the columns of its tables."""

    name: str
    description: str
    epilog: str  # help text: the points without arguments
    quick: str  # help text of --quick
    add_options: Callable[[argparse.ArgumentParser], None]
    points: Callable[[argparse.Namespace], list[Point]]  # ValueError: contradicting options
    variants: Callable[..., Variants]  # arguments: point, work, peers, seed
    own: tuple[str, ...]  # variants of collops, in the order in which they are shown
    reference: str  # the variant with whose result the others are compared
    torch_peers: tuple[str, ...]  # the peers that need torch
    torch_columns: str  # the name of their columns in notes
    compare: Callable[[Row, dict[str, Row]], Row]  # adds a row's ratios to other rows of the point
    title: Callable[[Row], str]  # the name of a row's point in tables and plots
    headline: Callable[[Row, str], str]  # the line above a point's table, with the given text
    ratios: dict[str, str]  # columns of a point's table: head -> key of the row
    summary: Callable[[list[list[Row]]], Lines]  # the table of all points
    parts: dict[str, str]  # part of a call -> its name in plots, in the order of the stack
    unplotted: tuple[str, ...] = ()  # variants without a bar
    sweep: Sweep | None = None
    peers: tuple[str, ...] = PEERS  # what --peers may name
    dtypes: tuple[str, ...] = tuple(NAMES)  # --dtype's default
    several_hosts: bool = False  # whether its ranks may be on several hosts
