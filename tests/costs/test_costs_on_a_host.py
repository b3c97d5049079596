"""What a rank costs as the ranks of its host become more, and that it costs no more than that."""

from __future__ import annotations

from multiprocessing import Barrier

from collops.testing import run_ranks
from patience import patience
from tests.costs.growth import Law, Place, breaches, table, worst
from tests.costs.rank_costs import measure

SIZES = (2, 8, 32)
LIMIT_S = patience(100.0)
LAWS = (
    Law("private_kib", rank=16, noise=1024),
    # The stage of a rank, and what it tells the others.
    Law("shared_kib", rank=2304, noise=512),
    Law("descriptors", rank=2, noise=4),
    Law("connections"),
    # Of the thread that makes the call.
    Law("contact_cpu_ms", rank=0.25, noise=50),
    Law("first_call_cpu_ms", rank=0.25, noise=100),
)
# Of all ranks together, as they are threads of one process.
THREADS = (
    Law("private_kib", rank=512, noise=4096),
    Law("shared_kib", rank=2304, noise=512),
    Law("descriptors", rank=4, noise=8),
    Law("connections"),
)


def measured(size: int, threads: bool) -> dict[str, float]:
    # A page that the parent writes becomes private to the ranks that were there before: as it
    # starts the next one, so nobody measures before the last is there.
    all_there = Barrier(size)

    def measure_rank(_: int) -> dict[str, float]:
        all_there.wait(LIMIT_S)
        return measure("shm")

    return worst(run_ranks(measure_rank, size, timeout=LIMIT_S, threads=threads))


def check(sizes: tuple[int, ...], laws: tuple[Law, ...], threads: bool) -> None:
    """Measures at every size, shows the table, and compares it with the laws."""
    costs = {Place(1, size): measured(size, threads) for size in sizes}
    print(table(laws, costs))
    assert breaches(laws, costs) == []


def test_processes() -> None:
    check(SIZES, LAWS, threads=False)


def test_threads() -> None:
    check(SIZES, THREADS, threads=True)


def test_faster_growth_is_found() -> None:
    law = Law("descriptors", rank=3, host=2, noise=4)
    sizes = (*SIZES, 128)
    linear = {Place(1, size): 3.0 * size + 10 for size in sizes}
    assert law.breaches(linear) == []
    quadratic = {Place(1, size): 1.0 + size * size / 4 for size in sizes}
    assert law.breaches(quadratic) == [
        "descriptors: 257 at 1 x 32, at most 96 after 2 at 1 x 2 (3 per rank of its host, "
        "2 per other host)",
        "descriptors: 4097 at 1 x 128, at most 384 after 2 at 1 x 2 (3 per rank of its host, "
        "2 per other host)",
    ]
    hosts = {Place(2, 2): 30.0, Place(8, 2): 48.0, Place(8, 8): 80.0}
    assert law.breaches(hosts) == [
        "descriptors: 48 at 8 x 2, at most 46 after 30 at 2 x 2 (3 per rank of its host, "
        "2 per other host)",
        "descriptors: 80 at 8 x 8, at most 64 after 30 at 2 x 2 (3 per rank of its host, "
        "2 per other host)",
    ]
