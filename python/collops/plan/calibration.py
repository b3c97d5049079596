"""Finds the costs of hosts and network from rows of ``collops bench --json``.

The rows of two hosts with one rank each give the network, those of one host give meetings and
copies. What grows with the bytes between two hosts counts as the network's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from collops.plan.prediction import ASSUMED, GATHER, REDUCE, Call, Costs, blocks, predict

_OPS = {"all_gather_v": GATHER, "reduce_scatter_v": REDUCE}
_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
# A vector up to this size goes with the heads: it shows what a trip costs.
_SHORT = 4 << 10
# Of less, copies and streams are mostly waiting.
_LEAST_COPY = 64 << 10
# The CPU's part of such a call, at either end; calls of two ranks do not tell it apart.
_MESSAGE_PART = 0.25


@dataclass(frozen=True)
class Timed:
    """The median time of one call of the bench."""

    call: Call
    size: int  # bytes of the vector
    us: float


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
    found: dict[Call, list[tuple[int, float]]] = {}
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
            size, us = int(row["bytes"]), float(row["ms"]) * 1e3
            if len(call.counts) != ranks or size < 0 or not 0 < us < math.inf:
                raise ValueError(f"counts of {ranks} ranks, bytes or ms")
        except (LookupError, TypeError, ValueError, ArithmeticError) as problem:
            raise ValueError(
                f"a row of {row['bench']} lacks a field or has a wrong one: {problem!r}"
            ) from None
        found.setdefault(call, []).append((size, us))
    return [
        Timed(call, values[0][0], median(us for _, us in values)) for call, values in found.items()
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
    short = [each.us for each in links if each.size <= _SHORT] or [min(each.us for each in links)]
    message = _MESSAGE_PART * median(short)
    costs = replace(costs, message_us=message, latency_us=median(short) - 2 * message)
    rates = [rate for each in links if (rate := _network_rate(each, costs)) > 0]
    return replace(costs, network_rate=median(rates)) if rates else costs


def misfit(costs: Costs, measured: Sequence[Timed]) -> float:
    """The root of the mean square of ln(predicted / measured)."""
    squares = [math.log(predict(each.call, costs).time_us / each.us) ** 2 for each in measured]
    return math.sqrt(sum(squares) / len(squares))


def _network_rate(each: Timed, costs: Costs) -> float:
    """The rate with which a call takes the measured time; 0 if it is too short to show one."""
    free = predict(each.call, replace(costs, network_rate=math.inf, message_us=0.0))
    left_us = each.us - free.time_us
    crossing = max(max(host["sent_bytes"], host["received_bytes"]) for host in free.hosts)
    return float(crossing) / left_us if each.size >= _LEAST_COPY and left_us > 0 else 0.0


def _host_costs(measured: Sequence[Timed]) -> Costs:
    """Meetings and copies: of one host's AllGatherV, t = meetings + copied bytes / rate."""
    gathers = [each for each in measured if each.call.op == GATHER]
    if not gathers:
        return ASSUMED
    shortest = min(each.us for each in gathers)
    rates = []
    for each in gathers:
        if each.size >= _LEAST_COPY and each.us > shortest:
            [host] = predict(each.call, ASSUMED).hosts
            rates.append(host["copied_bytes"] / (each.us - shortest))
    rate = math.exp(sum(map(math.log, rates)) / len(rates)) if rates else ASSUMED.copy_rate
    ranks = max(len(each.call.host_of) for each in gathers)
    meetings = predict(gathers[0].call, ASSUMED).hosts[0]["meetings"]
    return replace(
        ASSUMED, meeting_us=shortest / max(meetings, 1), copy_rate=rate, memory_rate=ranks * rate
    )
