"""A layer on the tokens of all ranks: padded, on gloo and on collops, and as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist

import collops.torch
from collops.bench.measure import BEGIN, END, Rounds, Variant, interleave
from collops.bench.operator import Request, Row
from collops.bench.operators.padding import GLOO, LAYER, PADDED, UNEVEN, WAYS, PaddingPoint
from collops.bench.torch.ranks import Ranks
from collops.torch.collective_calls import all_gather_single, reduce_scatter_single

Step = Callable[[], torch.Tensor]
_ROUND_TOKENS, _MOST_CALLS = 256, 20
_LARGE_TOKENS, _LARGE_ROUNDS = 2048, 7
_EXPANSION = 4  # hidden units of the MLP for an element of a token


def measure_points(request: Request, store: str) -> Iterator[Row]:
    """Measures every point of the request; the lines of rank 0."""
    ranks = Ranks(store, request.threads)
    with torch.inference_mode():
        for point in request.points:
            record = measure(ranks, point, request.iterations)
            yield from [record] if ranks.rank == 0 else ()
    dist.barrier()
    dist.destroy_process_group()


class Layer:
    """This rank's tokens, its part of the MLP's weights, and the results' memory.

    All are small whole numbers, so that every sum is exact and all ways have the same bits.
    """

    def __init__(self, point: PaddingPoint, rank: int) -> None:
        self.sizes, self.rows, hidden = point.sizes, point.sizes[rank], point.hidden
        self.has_mlp = point.what == LAYER
        numbers = torch.Generator().manual_seed(rank)

        def whole(*shape: int) -> torch.Tensor:
            return torch.randint(-2, 3, shape, generator=numbers).float()

        units = _EXPANSION * hidden // point.ranks
        self.tokens = whole(self.rows, hidden)
        self.up, self.down = whole(hidden, units), whole(units, hidden)
        self.every = self.tokens.new_empty(sum(self.sizes), hidden)
        self.mine = torch.full_like(self.tokens, -1.0)

    def between(self, rows: torch.Tensor) -> torch.Tensor:
        """What this rank makes of all ranks' tokens: its part of the MLP's sum, or the same."""
        return torch.relu(rows @ self.up) @ self.down if self.has_mlp else rows

    def uneven(self, group: dist.ProcessGroup) -> torch.Tensor:
        """One layer; this rank's part of the result."""
        sizes = self.sizes
        every = collops.torch.all_gatherv(self.tokens, sizes, group=group, out=self.every)
        made = self.between(every)
        return collops.torch.reduce_scatterv(made, sizes, group=group, out=self.mine)


class Padded:
    """The same layer with every rank's tokens padded to the most that a rank has."""

    def __init__(self, layer: Layer, group: dist.ProcessGroup) -> None:
        self._layer, self._group = layer, group
        most, hidden = max(layer.sizes), layer.tokens.shape[1]
        self._pads = min(layer.sizes) < most
        self._own = layer.tokens.new_zeros(most, hidden) if self._pads else layer.tokens
        self._every = layer.tokens.new_empty(len(layer.sizes) * most, hidden)
        self._mine = torch.full_like(self._own, -1.0)

    def run(self) -> torch.Tensor:
        """One layer; this rank's part of the result."""
        rows = self._layer.rows
        if self._pads:
            self._own[:rows].copy_(self._layer.tokens)
        all_gather_single(self._every, self._own, group=self._group)
        made = self._layer.between(self._every)
        reduce_scatter_single(self._mine, made, group=self._group)
        return self._mine[:rows]


def measure(ranks: Ranks, point: PaddingPoint, iterations: int) -> Row:
    """The seconds of the slowest rank in each round, by way, and whether all results are equal."""
    layer = Layer(point, ranks.rank)
    steps: dict[str, Step] = {
        GLOO: Padded(layer, ranks.groups["gloo"]).run,
        PADDED: Padded(layer, ranks.groups["collops"]).run,
        UNEVEN: partial(layer.uneven, ranks.groups["collops"]),
    }
    results = [steps[way]().clone() for way in WAYS]
    large = sum(point.sizes) > _LARGE_TOKENS
    rounds = min(iterations, _LARGE_ROUNDS) if large else iterations
    variants = [
        Variant(
            way,
            way,
            [("all", steps[way])],
            calls=max(1, min(_MOST_CALLS, _ROUND_TOKENS // point.sizes[0])),
            cores=ranks.all_cores if way == GLOO else frozenset(),
            meet=partial(ranks.meet, "gloo" if way == GLOO else "collops"),
        )
        for way in WAYS
    ]
    times = interleave(variants, Rounds(rounds), lambda x: None, lambda: None)
    differ = not all(torch.equal(result, results[0]) for result in results)
    own = (times[..., END] - times[..., BEGIN]).ravel().tolist()
    told = torch.tensor([*own, float(differ)], dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    *seconds, differs = told.tolist()
    return {
        "record": "point",
        **point.describe(),
        "rounds": rounds,
        "calls": variants[0].calls,
        "seconds": {way: seconds[i * rounds : (i + 1) * rounds] for i, way in enumerate(WAYS)},
        "equal": not differs,
    }
