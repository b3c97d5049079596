"""The size up to which one step is taken, from planted times."""

from __future__ import annotations

import numpy as np
import pytest

from collops.bench.tune import Timed, choose

SIZES = tuple(1 << bits for bits in range(10, 22))
K = 1 << 10


def table(ratios: list[float], one_us: float = 10.0) -> list[Timed]:
    """Times whose two steps take these multiples of one step, from 1 KiB on."""
    return [
        Timed(size, one_us, one_us * ratio)
        for size, ratio in zip(SIZES[: len(ratios)], ratios, strict=True)
    ]


FASTER, SLOWER = 1.08, 1 / 1.08  # one step against two


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([FASTER] * 4 + [SLOWER] * 4, 8 * K),
        ([1.5, 1.3, 1.1, 1.02, 0.98, 0.9, 0.7], 8 * K),
        ([FASTER] * 8, SIZES[7]),  # always one step, as far as was measured
        ([SLOWER] * 8, 0),  # never one step
        # One size was disturbed, by far: its neighbours outweigh it.
        ([FASTER, FASTER, 0.1, FASTER, FASTER, SLOWER, SLOWER, SLOWER], 16 * K),
        ([FASTER, FASTER, SLOWER, SLOWER, 50, SLOWER, SLOWER], 2 * K),
        ([0.02, FASTER, FASTER, FASTER, SLOWER, SLOWER, SLOWER], 8 * K),
        ([FASTER, FASTER, FASTER, SLOWER, SLOWER, SLOWER, 90], 4 * K),
        ([FASTER], K),
        ([SLOWER], 0),
    ],
)
def test_the_crossing_is_found(ratios: list[float], expected: int) -> None:
    for now in (0, 1 << 40, expected):
        found = choose(table(ratios), now)
        unmeasured = expected == SIZES[len(ratios) - 1] and now > expected
        assert found == (now if unmeasured else expected)


@pytest.mark.parametrize("now", [0, 1, 300, 2 * K, 3 * K, 64 * K, 1 << 40])
def test_what_nothing_measured_can_improve_stays(now: int) -> None:
    assert choose(table([1.0] * 8), now) == now
    assert choose([], now) == now


@pytest.mark.parametrize(
    ("now", "expected"),
    [(0, K), (K, K), (5 * K, 5 * K), (8 * K, 8 * K), (16 * K, 8 * K), (1 << 30, 8 * K)],
)
def test_of_several_best_sizes_the_nearest_is_taken(now: int, expected: int) -> None:
    assert choose(table([FASTER, 1.0, 1.0, 1.0, SLOWER, SLOWER]), now) == expected


def test_several_numbers_of_ranks_choose_one_size_together() -> None:
    three, four = [FASTER, FASTER, FASTER, SLOWER], [FASTER, 0.97, 0.95, SLOWER]
    assert choose(table(three), 0) == 4 * K
    assert choose(table(four), 0) == K
    assert choose(table(three) + table(four), 0) == 4 * K
    assert choose(table(four) + table(three), 0) == 4 * K


def test_times_count_by_their_ratio_alone() -> None:
    ratios = [FASTER, 1.02, SLOWER, SLOWER]
    slow = [
        Timed(each.size, each.one_step_us * number, each.two_steps_us * number)
        for number, each in enumerate(table(ratios), 1)
    ]
    assert choose(slow, 0) == choose(table(ratios, 1e-3), 0) == 2 * K


def test_with_noise_and_a_disturbed_size_the_choice_is_near_the_crossing() -> None:
    random = np.random.default_rng(1)
    missed = []
    for _ in range(300):
        crossing = random.integers(0, len(SIZES) + 1)
        right = np.where(np.arange(len(SIZES)) < crossing, 1.15, 1 / 1.15)
        noisy = right * np.exp(random.normal(0, 0.03, len(SIZES)))
        noisy[random.integers(len(SIZES))] = random.choice([0.05, 20.0])
        chosen = choose(table(noisy.tolist()), 0)
        taken = sum(size <= chosen for size in SIZES)
        missed.append(abs(taken - int(crossing)))
    # A disturbed size beside the crossing moves the choice past itself, one farther off seldom.
    assert max(missed) <= 2
    assert sum(number > 0 for number in missed) < 0.15 * len(missed)
