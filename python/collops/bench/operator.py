"""Operator: the description of an operator that its module in ``operators/`` gives the bench."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collops.bench.elements import NAMES
from collops.bench.peers import PEERS
from collops.bench.request import Point

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
class Listing:
    """One table of all points, in place of a table for each, and its plot."""

    head: Callable[[Row], str]  # the lines above those of a launch, from a row
    lines: Callable[[list[Row]], list[str]]  # of a point
    foot: Callable[[list[list[Row]]], str]  # what stands below those of a launch; may be empty
    save_plot: Callable[[Path, list[list[Row]]], None]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """The options, points and variants of an operator, and the columns of its tables."""

    name: str
    description: str
    epilog: str  # help text: the points without arguments
    quick: str  # help text of --quick
    add_options: Callable[[argparse.ArgumentParser], None]
    points: Callable[[argparse.Namespace], list[Point]]  # ValueError: contradicting options
    variants: Callable[..., Any]  # arguments: point, work, peers, seed
    own: tuple[str, ...]  # variants of collops, in the order in which they are shown
    on_gpu: tuple[str, ...] = ()  # the same on a GPU; empty: it has no benchmark there
    reference: str  # the variant with whose result the others are compared
    torch_peers: tuple[str, ...]  # the peers that need torch
    torch_columns: str  # the name of their columns in notes
    compare: Callable[[Row, dict[str, Row]], Row]  # adds a row's ratios to other rows of the point
    listing: Listing | None = None  # if given, the next six fields are not used
    title: Callable[[Row], str] = str  # the name of a row's point in tables and plots
    # The line above a point's table, with the given text.
    headline: Callable[[Row, str], str] = lambda row, text: text
    ratios: dict[str, str] = field(default_factory=dict)  # columns: head -> key of the row
    summary: Callable[[list[list[Row]]], Lines] = lambda points: ((), [])  # of all points
    # Part of a call -> its name in plots, in the order of the stack.
    parts: dict[str, str] = field(default_factory=dict)
    unplotted: tuple[str, ...] = ()  # variants without a bar
    sweep: Sweep | None = None
    peers: tuple[str, ...] = PEERS  # what --peers may name
    default_peers: tuple[str, ...] | None = None  # without --peers; None: all of them
    dtypes: tuple[str, ...] = tuple(NAMES)  # --dtype's default
    several_hosts: bool = False  # whether its ranks may be on several hosts
