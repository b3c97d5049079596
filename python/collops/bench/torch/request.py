"""What a run of ``collops bench torch`` measures."""

from __future__ import annotations

from dataclasses import dataclass

from collops.bench.torch.gpt import gpt_bytes

# Both ways of dp_attention. gloo has no uneven calls: it pads in both.
ATTENTION_WAYS = ("padded", "uneven")
# Calls that train, and their ways: sequences of 64 letters in a rank's batch. The more it has, the
# smaller is the share of a step that is communication.
TRAINING = ("ddp", "fsdp2", "fsdp2_windows")
SEQUENCES = {"batch-1": 1, "batch-8": 8}
FUNCTIONAL = (
    "all_reduce",
    "broadcast",
    "all_gather_single",
    "reduce_scatter_single",
    "all_to_all_single",
)
BACKENDS = ("collops", "gloo")
_MOST_ATTENTION = 4 << 20


@dataclass(frozen=True)
class Point:
    """One call in one way with tensors of one size.

    Attributes:
        call: one of bench.torch_arguments.CALLS.
        way: one of its WAYS, of ATTENTION_WAYS or of SEQUENCES.
        size: bytes of each rank's input, of float32, and at most 4 MiB of dp_attention's; 0 for a
            barrier; those of all parameters for a call that trains.
    """

    call: str
    way: str
    size: int


@dataclass(frozen=True)
class TorchRequest:
    """The points of a run, which all ranks measure in this order."""

    points: tuple[Point, ...]
    iterations: int
    threads: int


def points_of(
    calls: tuple[str, ...], ways: tuple[str, ...], sizes: tuple[int, ...]
) -> tuple[Point, ...]:
    """Every call in every way that torch has for it, with every size."""
    return tuple(
        Point(call, way, size)
        for call in calls
        for size in _sizes_of(call, sizes)
        for way in _ways_of(call, ways)
        if way != "functional" or call in FUNCTIONAL
    )


def _ways_of(call: str, ways: tuple[str, ...]) -> tuple[str, ...]:
    if call in TRAINING:
        return tuple(SEQUENCES)
    return ATTENTION_WAYS if call == "dp_attention" else ways


def _sizes_of(call: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    if call in TRAINING:
        return (gpt_bytes(),)
    if call == "barrier":
        return (0,)
    if call == "dp_attention":  # 8192 tokens; a larger product says nothing of communication
        return tuple(size for size in sizes if size <= _MOST_ATTENTION)
    return sizes
