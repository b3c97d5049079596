"""What ``collops plan`` prints: tables of a prediction, and the object of --json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np

from collops.plan.prediction import (
    THIS_VERSION,
    Call,
    Costs,
    Limit,
    Prediction,
    descriptors,
    growth,
    host_bytes,
    limits,
    total_bytes,
)
from collops.terminal.tables import markdown_table

# Label and figure of each line of the table of hosts.
_FIGURES = (
    ("bytes sent", "sent_bytes"),
    ("bytes received", "received_bytes"),
    ("messages sent", "sent_messages"),
    ("messages received", "received_messages"),
    ("messages of a rank", "most_messages"),
    ("peers of a rank", "most_peers"),
    ("connections", "all_peers"),
    ("meetings", "meetings"),
    ("copied by a rank, bytes", "copied_bytes"),
    ("segment, bytes", "segment_bytes"),
    ("heads of a rank, bytes", "heads_bytes"),
    ("scratch of a rank, bytes", "scratch_bytes"),
    ("slices of a rank, bytes", "shared_bytes"),
    ("plans of a rank, bytes", "plan_bytes"),
    ("time us", "time_us"),
    ("of that, network us", "network_us"),
    ("CPU for messages us", "messages_us"),
    ("copies and sums us", "copies_us"),
    ("meetings us", "meetings_us"),
)
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def headline(call: Call, names: Sequence[str], source: str) -> str:
    """What is predicted, and with which costs."""
    hosts = f"{len(call.host_of)} ranks on {len(names)} host{'s' if len(names) > 1 else ''}"
    what = f"{call.op} of {size(total_bytes(call))} {call.dtype}"
    return f"{what}, {hosts}\ncosts: {source}\n"


def host_tables(call: Call, names: Sequence[str], found: Prediction) -> str:
    """Time, the figures of hosts, and the bytes of links."""
    bounds = Counter(map(found.bound, range(len(found.hosts))))
    by = ", ".join(f"{bound} on {number}" for bound, number in bounds.most_common())
    rows = []
    for label, name in _FIGURES:
        values = [float(host[name]) for host in found.hosts]
        if not any(values):
            continue
        rows.append([label, *spread(values), names[found.most(name)]])
    figures = markdown_table(("per host", "least", "median", "most", "host with most"), rows)
    lines = [f"predicted: {found.time_us:,.1f} us; bottleneck: {by}", "", figures]
    links = _links(found)
    if links.size:
        _, row, column = _worst_link(found)
        cells = [["bytes", *spread(links.tolist()), f"{names[row]} to {names[column]}"]]
        lines += [
            "",
            markdown_table(("per link", "least", "median", "most", "link with most"), cells),
        ]
    return "\n".join(lines)


def growth_lines(call: Call) -> str:
    """How each need grows."""
    lines = [f"  {what}: {how}" for what, how in growth(call)]
    heading = "Growth, for P ranks on H hosts with n each and b bytes for each rank:"
    return "\n".join([heading, *lines])


def limit_table(call: Call, every: Sequence[Limit]) -> str:
    """The limits, nearest first, and whether this version refuses the call."""
    rows = [_limit_row(limit, len(call.host_of)) for limit in every]
    head = ("limit, nearest first", "needed", "available", "part", "reached at ranks", "source")
    over = [limit.name for limit in every if limit.part > 1]
    said = f"Limits exceeded: {', '.join(over)}." if over else "No limit is exceeded."
    if any(limit.part > 1 and limit.source == THIS_VERSION for limit in every):
        said += " This version refuses such a group."
    return f"{markdown_table(head, rows)}\n{said}"


def scale_table(every: Sequence[tuple[Call, Prediction]]) -> str:
    """One line for each number of hosts, with the figures of the most loaded host."""
    head = (
        *("ranks", "hosts", "sent by a host", "messages", "connections of a rank"),
        *("descriptors", "meetings", "memory of a host", "time us", "bottleneck"),
    )
    rows = []
    for call, found in every:
        per_host = Counter(call.host_of)
        memory = max(host_bytes(found, host, per_host[host]) for host in per_host)
        figures = {name: max(each[name] for each in found.hosts) for name in found.hosts[0]}
        rows.append(
            [
                f"{len(call.host_of):,}",
                f"{len(found.hosts):,}",
                size(figures["sent_bytes"]),
                f"{figures['sent_messages']:,}",
                f"{figures['most_peers']:,}",
                f"{descriptors(found):,}",
                f"{figures['meetings']:,}",
                size(memory),
                f"{found.time_us:,.0f}",
                found.bound(found.most("time_us")),
            ]
        )
    return markdown_table(head, rows)


def as_object(
    call: Call, names: Sequence[str], found: Prediction, costs: Costs, measured: bool
) -> dict[str, Any]:
    """The object of --json."""
    links = _links(found)
    worst, row, column = _worst_link(found) if links.size else (0, 0, 0)
    return {
        "op": call.op,
        "dtype": call.dtype,
        "bytes": total_bytes(call),
        "ranks": len(call.host_of),
        "costs": asdict(costs),
        "measured": measured,
        "time_us": found.time_us,
        "hosts": [
            {"name": names[i], "bound": found.bound(i), **host}
            for i, host in enumerate(found.hosts)
        ],
        "links": {
            "least": int(links.min()) if links.size else 0,
            "median": float(np.median(links)) if links.size else 0.0,
            "most": worst,
            "worst": [names[row], names[column]],
        },
        "limits": [
            {**asdict(limit), "part": limit.part, "reached_at": limit.reached_at(len(call.host_of))}
            for limit in limits(call, found)
        ],
    }


def size(number: float) -> str:
    """Bytes in the largest unit that is not above the number, such as "1.5 MiB"."""
    for unit, factor in _UNITS:
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number:.0f} B"


def spread(values: Sequence[float]) -> list[str]:
    """The least, the median and the most of a figure."""
    found = (min(values), median(values), max(values))
    whole = all(float(value).is_integer() for value in found)
    return [f"{value:,.0f}" if whole else f"{value:,.1f}" for value in found]


def _links(found: Prediction) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bytes from each host to each other one."""
    return np.asarray(found.links[~np.eye(len(found.hosts), dtype=bool)])


def _worst_link(found: Prediction) -> tuple[int, int, int]:
    """The most bytes of a link, from which host, and to which."""
    row, column = divmod(int(found.links.argmax()), len(found.hosts))
    return int(found.links[row, column]), row, column


def _limit_row(limit: Limit, ranks: int) -> list[str]:
    show = size if limit.name.startswith("memory") else lambda number: f"{number:,.0f}"
    at = limit.reached_at(ranks)
    return [
        limit.name,
        show(limit.need),
        show(limit.most),
        f"{limit.part:.2f}",
        "-" if at is None else f"{at:,}",
        limit.source,
    ]
