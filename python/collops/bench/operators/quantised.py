"""Products of int8 beside those of float32 and bfloat16, and a pass over the int8 weight."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from collops.bench.measure import Variant
from collops.bench.operator import Operator, Point, Row
from collops.bench.tables import point_table
from collops.bench.variants import Variants
from collops.terminal.arguments import counts

SHAPES = ((1, 4096, 4096), (64, 4096, 4096), (256, 4096, 4096))
_QUICK_SHAPES = ((1, 96, 80), (24, 96, 80))
OWN = {
    "f32": "float32",
    "bf16": "bfloat16",
    "w8a8": "W8A8, [n, k]",
    "w8a8_kn": "W8A8, [k, n]",
    "w8a16": "W8A16, bfloat16, [n, k]",
    "w8a16_kn": "W8A16, bfloat16, [k, n]",
    "w8a32": "W8A16, float32, [n, k]",
    "w8a32_kn": "W8A16, float32, [k, n]",
    "read": "int8 weight read once",
}


@dataclass(frozen=True, kw_only=True)
class QuantisedPoint(Point):
    """One product."""

    shape: tuple[int, int, int]
    size: int

    @property
    def ranks(self) -> int:
        return self.size

    @property
    def title(self) -> str:
        return f"{' x '.join(map(str, self.shape))} on {self.size} rank(s)"

    def describe(self) -> Row:
        return {**dict(zip("mkn", self.shape, strict=True)), "ranks": self.size}


class QuantisedVariants(Variants):
    """Makes the products of one point, all of the same numbers."""

    point: QuantisedPoint

    def __post_init__(self) -> None:
        super().__post_init__()
        m, k, n = self.point.shape
        self.operations = 2 * m * k * n
        random = np.random.default_rng((self.seed, self.work.rank))
        self._x = random.integers(-128, 128, (m, k)).astype(np.int8)
        self._weight = random.integers(-128, 128, (n, k)).astype(np.int8)
        self._scale = np.full(n, 0.5, np.float32)

    def own_keys(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        try:
            import ml_dtypes  # noqa: F401
        except ModuleNotFoundError:
            self.notes.append("no columns of bfloat16: ml_dtypes is not installed")
            return tuple(key for key in wanted if key[:5] not in ("bf16", "w8a16"))
        return wanted

    def own(self, key: str) -> Variant:
        if key == "read":
            words = self._weight.reshape(-1)[: self._weight.size // 8 * 8].view(np.uint64)
            return Variant(key, OWN[key], [("all", lambda: np.maximum.reduce(words, initial=0))])
        kind, _, straight = key.partition("_")
        x, weight = self._x, self._weight
        if kind in ("bf16", "w8a16"):
            import ml_dtypes

            x = x.astype(ml_dtypes.bfloat16)
        elif kind in ("f32", "w8a32"):
            x = x.astype(np.float32)
        if kind in ("f32", "bf16"):
            weight = weight.astype(x.dtype)
        m, _, n = self.point.shape
        out = np.empty((m, n), np.float32 if kind == "w8a8" else x.dtype)
        laid = np.ascontiguousarray(weight.T) if straight else weight
        product = self.connect().matmul_all_reduce
        call = partial(product, x, laid, trans_weight=not straight, out=out)
        if kind == "w8a8":
            call = partial(call, scale=self._scale, out_dtype="float32")
        elif kind not in ("f32", "bf16"):
            call = partial(call, scale=self._scale)
        return Variant(key, OWN[key], [("all", call)])


class Quantised(Operator):
    """The operator's options, points and tables."""

    name = "quantised"
    description = "Times products of int8, all-reduced, beside those of float32 and bfloat16."
    epilog = "Without arguments: 1 rank, and 1, 64 and 256 rows by a weight of 4096 x 4096."
    quick = "tiny products"
    own = tuple(OWN)
    dtypes = ()
    variants = QuantisedVariants
    ratios = {"/ float32": "to_f32", "/ read": "to_read"}  # noqa: RUF012
    parts = {"all": "time"}  # noqa: RUF012

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.set_defaults(dtype=("f32",))
        add = parser.add_argument
        add("--ranks", type=lambda text: counts(text, ","), metavar="1", default=(1,))
        add(
            "--shape",
            type=lambda text: counts(text, ",", 3),
            action="append",
            metavar="M,K,N",
            help="one product; repeatable",
        )

    def points(self, options: argparse.Namespace) -> Sequence[Point]:
        shapes = options.shape or (_QUICK_SHAPES if options.quick else SHAPES)
        for shape in shapes:
            if len(shape) != 3:
                raise ValueError(f"--shape takes M,K,N, got {','.join(map(str, shape))}")
        return [
            QuantisedPoint(shape=(m, k, n), size=size, dtype="f32")
            for size in options.ranks
            for m, k, n in shapes
        ]

    def compare(self, row: Row, others: dict[str, Row]) -> Row:
        """The row with the ratios of its time to float32's, and to a pass over the weight."""
        ratios = {f"to_{key}": round(row["ms"] / others[key]["ms"], 4) for key in ("f32", "read")}
        return {**row, **ratios}

    def text(self, rows: list[Row]) -> str:
        return point_table(_title(rows[0]), "{}.", self.ratios, rows)

    def save_plot(self, path: Path, points: list[list[Row]]) -> None:
        """A panel for each point, with a bar for each variant."""
        from collops.bench.plot import save_bars

        save_bars(path, self.parts, {_title(rows[0]): rows for rows in points})


def _title(row: Row) -> str:
    shape = (row["m"], row["k"], row["n"])
    return QuantisedPoint(shape=shape, size=row["ranks"], dtype="f32").title


OPERATOR = Quantised()
