"""Finds the costs of hosts and network from rows of ``collops bench --json``.

The rows of two hosts with one rank each give the network: the costs are those with which the
simulation of these very calls takes the measured times. If hosts of one machine are measured both
with a core each and on one core, the CPU's part is told apart from the network's.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from collops.plan.prediction import ASSUMED, GATHER, REDUCE, Call, Costs, blocks, predict

_OPS = {"all_gather_v": GATHER, "reduce_scatter_v": REDUCE}
_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
# A vector up to this size goes with the heads, or in a short stream: it shows what messages cost.
_SHORT = 16 << 10
# Copies of less are mostly waiting.
_LEAST_COPY = 64 << 10
_PASSES = 60
_GRID = 7
# Of TCP between hosts of one machine, where the sender's system call hands a packet over, and a
# turn is 32 looks; and how much a distance from these costs counts.
_USUAL = {"message_us": 2.0, "latency_us": 1.0, "turn_us": 3.0}
_PRIOR = 1e-2
_ALTERNATIONS = 5


@dataclass(frozen=True)
class Timed:
    """The median time of one call of the bench, and the cores that its ranks shared (0: none)."""

    call: Call
    size: int  # bytes of the vector
    us: float
    shared_cores: int


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that ``collops bench --json`` wrote; several files may be joined.

    Raises:
        OSError: it cannot be read.
        ValueError: it has another form; the message gives file and line.
    """
    rows = []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise ValueError(f"{path}: is not UTF-8 text ({problem.reason})") from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as problem:
            raise ValueError(f"{path}, line {number}: not JSON: {problem}") from None
        if not isinstance(row, dict) or "bench" not in row:
            raise ValueError(f"{path}, line {number}: no row of collops bench --json")
        rows.append(row)
    return rows


def timed(rows: Iterable[dict[str, Any]]) -> list[Timed]:
    """The calls of AllGatherV and ReduceScatterV in plain memory; equal ones by their median.

    Raises:
        ValueError: a row of them lacks a field, or a field has a wrong value.
    """
    found: dict[tuple[Call, int], list[tuple[int, float]]] = {}
    for row in rows:
        if row["bench"] not in _OPS or row.get("column") != "plain":
            continue
        try:
            hosts, ranks = int(row["hosts"]), int(row["ranks"])
            if row["dtype"] not in _DTYPES or ranks % hosts:
                continue
            call = Call(
                _OPS[row["bench"]],
                blocks(hosts, ranks // hosts),
                tuple(map(int, row["counts"])),
                _DTYPES[row["dtype"]],
            )
            shared = int(row.get("cores", 0)) if row.get("one_clock") else 0
            size, us = int(row["bytes"]), float(row["ms"]) * 1e3
            if len(call.counts) != ranks or size < 0 or not 0 < us < math.inf:
                raise ValueError(f"counts of {ranks} ranks, bytes or ms")
        except (LookupError, TypeError, ValueError, ArithmeticError) as problem:
            raise ValueError(
                f"a row of {row['bench']} lacks a field or has a wrong one: {problem!r}"
            ) from None
        found.setdefault((call, shared), []).append((size, us))
    return [
        Timed(call, values[0][0], median(us for _, us in values), shared)
        for (call, shared), values in found.items()
    ]


def calibrate(measured: Sequence[Timed]) -> Costs:
    """The costs of the machines on which these calls were measured.

    Args:
        measured: calls of two hosts with one rank each, and perhaps of one host with several,
            which give what copies and meetings inside a host cost.

    Raises:
        ValueError: there is no call of two hosts with one rank each.
    """
    links = [each for each in measured if each.call.host_of == (0, 1)]
    if not links:
        raise ValueError("no row of all_gather_v or reduce_scatter_v on 2 hosts with 1 rank each")
    costs = _host_costs([each for each in measured if set(each.call.host_of) == {0}])
    on_one = [each for each in links if each.shared_cores == 1]
    apart = [each for each in links if each.shared_cores != 1]
    if not on_one or not apart:
        return _network_alone(costs, links)
    short = [each for each in links if each.size <= _SHORT]
    costs = _short_costs(replace(costs, network_rate=1e9), short or links)
    for stream in sorted({_stream_bytes(each) for each in on_one if each.size > _SHORT}):
        costs = _with_stream(costs, stream, [e for e in on_one if _stream_bytes(e) == stream])
    return _with_rate(costs, [each for each in apart if each.size > _SHORT])


def misfit(costs: Costs, measured: Sequence[Timed]) -> float:
    """The root of the mean square of ln(predicted / measured)."""
    squares = [math.log(predicted_us(costs, each) / each.us) ** 2 for each in measured]
    return math.sqrt(sum(squares) / len(squares))


def _distance(costs: Costs, measured: Sequence[Timed]) -> float:
    """The square of the misfit, and a little for costs that are far from the usual ones.

    Calls of two ranks hardly tell a message's CPU from a turn: of costs that meet the times about
    as well, those near the usual ones are taken.
    """
    far = sum(math.log(getattr(costs, name) / usual) ** 2 for name, usual in _USUAL.items())
    return misfit(costs, measured) ** 2 + _PRIOR * far


def predicted_us(costs: Costs, measured: Timed) -> float:
    """The time that the simulation says of a call that was measured."""
    return predict(measured.call, costs, measured.shared_cores).time_us


def _host_costs(measured: Sequence[Timed]) -> Costs:
    """Meetings and copies: of one host's AllGatherV, t = meeting + copied bytes / rate."""
    gathers = [each for each in measured if each.call.op == GATHER]
    if not gathers:
        return ASSUMED
    meeting = min(each.us for each in gathers)
    rates = []
    for each in gathers:
        ranks = len(each.call.host_of)
        if each.size >= _LEAST_COPY and each.us > meeting:
            # Its own block to its output and for its peers, and theirs.
            rates.append((each.size + each.size / ranks) / (each.us - meeting))
    rate = math.exp(sum(map(math.log, rates)) / len(rates)) if rates else ASSUMED.copy_rate
    ranks = max(len(each.call.host_of) for each in gathers)
    return replace(ASSUMED, meeting_us=meeting, copy_rate=rate, memory_rate=ranks * rate)


def _short_costs(costs: Costs, measured: Sequence[Timed]) -> Costs:
    """What messages, latency and turns cost: the best of a grid, and what is near it."""
    longest = min(each.us for each in measured)
    steps = [longest * 2.0**-power for power in range(_GRID)]
    grid = [
        replace(costs, message_us=message, latency_us=latency, turn_us=turn)
        for message, latency, turn in itertools.product(steps, repeat=3)
    ]
    best = min(grid, key=lambda each: _distance(each, measured))
    return _fitted(best, list(_USUAL), lambda each: _distance(each, measured))


def _network_alone(costs: Costs, links: Sequence[Timed]) -> Costs:
    """Without calls on one core: all that grows with the bytes is the network's."""
    short = [each for each in links if each.size <= _SHORT] or links
    long = [each for each in links if each.size > _SHORT]
    for _ in range(_ALTERNATIONS):
        costs = _fitted(costs, ["latency_us"], lambda each: misfit(each, short))
        costs = _with_rate(costs, long)
    return costs


def _stream_bytes(each: Timed) -> int:
    return each.size // len(each.call.host_of)


def _with_stream(costs: Costs, stream: int, measured: Sequence[Timed]) -> Costs:
    """The point of a stream of so many bytes, with which the measured times are met."""

    def at(us: float) -> Costs:
        return replace(costs, stream_us=(*costs.stream_us, (stream, us)))

    low = costs.stream_us[-1][1] if costs.stream_us else 0.0
    high = max(low, max(each.us for each in measured))
    return at(_met(low, high, lambda us: at(us), measured))


def _with_rate(costs: Costs, measured: Sequence[Timed]) -> Costs:
    if not measured:
        return costs
    # By the time of a byte, which grows with the predicted time.
    most = max(each.us / each.size for each in measured) * 2
    per_byte = _met(1e-9, most, lambda x: replace(costs, network_rate=1 / x), measured)
    return replace(costs, network_rate=1 / per_byte)


def _met(low: float, high: float, at: Callable[[float], Costs], measured: Sequence[Timed]) -> float:
    """The value at which the predicted times are the measured ones, by bisection."""
    for _ in range(_PASSES):
        middle = (low + high) / 2
        costs = at(middle)
        over = sum(math.log(predicted_us(costs, each) / each.us) for each in measured)
        low, high = (low, middle) if over > 0 else (middle, high)
    return (low + high) / 2


def _fitted(costs: Costs, names: Sequence[str], distance: Callable[[Costs], float]) -> Costs:
    """The least distance, one cost after the other, by factors that become smaller."""
    best, factor = distance(costs), 2.0
    for _ in range(_PASSES):
        before = best
        for name in names:
            for step in (factor, 1 / factor):
                tried = replace(costs, **{name: getattr(costs, name) * step})
                found = distance(tried)
                if found < best:
                    costs, best = tried, found
        if best == before:
            factor = math.sqrt(factor)
    return costs
