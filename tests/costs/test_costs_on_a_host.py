"""What a rank costs as the ranks of its host become more, and that it costs no more than that."""

from __future__ import annotations

import pytest
from growth import Law, Place, breaches, table, worst
from rank_costs import measure

from collops.testing import run_ranks

SIZES = (2, 8, 32, 128)
LIMIT_S = 100.0
LAWS = (
    Law("private_kib", "ranks of its host", 4096),
    Law("shared_kib", "ranks of its host", 1024),
    Law("descriptors", "ranks of its host", 8),
    Law("connections", "nothing", 0),
    # A rank hears of all others.
    Law("contact_cpu_ms", "ranks of its host", 50, 3),
    Law("first_call_cpu_ms", "ranks of its host", 50, 3),
    # Ranks that share a core wait for each other besides, and for other programs.
    Law("contact_ms", "ranks of its host", 5000, 3),
    Law("first_call_ms", "ranks of its host", 5000, 3),
)


def measure_rank(_: int) -> dict[str, float]:
    return measure("shm")


def check(sizes: tuple[int, ...], threads: bool) -> None:
    """Measures at every size, shows the table, and compares it with the laws."""
    costs = {
        Place(1, size): worst(run_ranks(measure_rank, size, timeout=LIMIT_S, threads=threads))
        for size in sizes
    }
    print(table(LAWS, costs))
    assert breaches(LAWS, costs) == []


def test_processes() -> None:
    check(SIZES, threads=False)


def test_threads() -> None:
    """All in one process, whose descriptors and memory they share: the costs of all of them."""
    check(SIZES[:3], threads=True)


def test_faster_growth_is_found() -> None:
    law = Law("descriptors", "ranks of its host", 2)
    linear = {Place(1, size): 3.0 * size + 10 for size in SIZES}
    assert law.breaches(linear) == []
    quadratic = {Place(1, size): float(size * size) for size in SIZES}
    [first, *_] = law.breaches(quadratic)
    assert first.startswith("descriptors: 64 at 1 x 8, at most 26, as it grows with ranks of its")
    with pytest.raises(KeyError):
        Law("descriptors", "the weather", 0).breaches(linear)
