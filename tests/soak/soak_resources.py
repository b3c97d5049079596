"""What a process holds of the system, and whether it holds more at the end of a soak."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MIB = 1 << 20


class Resources(NamedTuple):
    """Of one process; memory is what it has in use, shared memory included."""

    memory_bytes: int
    descriptors: int
    threads: int
    mappings: int

    @classmethod
    def of_this_process(cls) -> Resources:
        words = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
        status = {word[0].rstrip(":"): word[1] for word in words if len(word) > 1}
        kib = sum(int(status[name]) for name in ("RssAnon", "RssShmem"))
        descriptors = len(os.listdir("/proc/self/fd")) - 1  # without the one that lists them
        mappings = Path("/proc/self/maps").read_text().count("\n")
        return cls(kib << 10, descriptors, int(status["Threads"]), mappings)


# What may be more at the end: allocators keep some memory, in some mappings, and a communicator
# that was closed keeps its descriptors until the next one is made.
SLACK = Resources(memory_bytes=16 * MIB, descriptors=6, threads=0, mappings=24)


def growth(measured: Sequence[Resources]) -> Resources:
    """How much more a process had at the end than after its warm-up.

    Of each half of the phases after the first one the least counts: what is there for a while is
    no leak.
    """
    after = measured[1:] if len(measured) > 2 else measured
    middle = max(1, len(after) // 2)
    begin, end = after[:middle], after[middle:] or after[-1:]
    return Resources(*(min(e) - min(b) for b, e in zip(zip(*begin), zip(*end))))  # noqa: B905


def leaks(measured: Sequence[Resources]) -> list[str]:
    """What has grown by more than SLACK, in words."""
    grown = growth(measured)
    return [
        f"{name} grew by {more}, from {getattr(measured[0], name)} after the first phase to "
        f"{getattr(measured[-1], name)} at the end"
        for name, more, slack in zip(grown._fields, grown, SLACK, strict=True)
        if more > slack
    ]


def in_words(measured: Sequence[Resources]) -> str:
    """Of a process: memory after each phase, and the other numbers at the begin and the end."""
    memory = " ".join(f"{one.memory_bytes / MIB:.0f}" for one in measured)
    first, last = measured[0], measured[-1]
    others = (
        f"{name} {getattr(first, name)} -> {getattr(last, name)}" for name in last._fields[1:]
    )
    return f"memory {memory} MiB, {', '.join(others)}"
