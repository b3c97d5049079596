"""Products with experts, and a whole layer of them, beside the same without fused calls."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collops.bench.elements import Bits
from collops.bench.measure import Run, Variant
from collops.bench.operator import Operator, Point, Row
from collops.bench.tables import number, point_table
from collops.bench.variants import Variants
from collops.terminal.arguments import count, counts, words
from collops.terminal.tables import markdown_table

EXPERTS, TOP_K = 8, 2
OWN = {
    "fused": "fused",
    "unfused": "exchange, then products",
    "product": "grouped product alone",
    "dispatch": "dispatch, products, combine",
    "gather": "every token on every rank",
}
# What a point measures of them. The layer's fused calls are compared with gathering.
_OF = {
    "5": ("fused", "unfused", "product"),
    "6": ("fused", "unfused", "product"),
    "layer": ("fused", "dispatch", "gather"),
}
_ROUTINGS = ("even", "4:1")
_X, _WEIGHT, _ROUTING = 0, 1, 2
_SKEWED = 4  # times as many tokens for the first half of the experts
Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ExpertsPoint(Point):
    """A product, or the layer, for one number of tokens and one routing."""

    kind: str  # ATB's type, or the layer of both
    size: int
    tokens: int  # of a rank
    routing: str
    hidden: int
    inner: int

    @property
    def ranks(self) -> int:
        return self.size

    @property
    def title(self) -> str:
        name = "layer" if self.kind == "layer" else f"type {self.kind}"
        return (
            f"{name}, {self.size} ranks, {self.hidden} x {self.inner}, {self.tokens} tokens a "
            f"rank, {self.routing}"
        )

    def describe(self) -> Row:
        names = ("kind", "tokens", "routing", "hidden", "inner", "dtype", "ranks")
        return {name: getattr(self, name) for name in names}


class ExpertsVariants(Variants):
    """Makes the variants of one point. All use one routing and the same weights."""

    point: ExpertsPoint

    def __post_init__(self) -> None:
        super().__post_init__()
        point, comm = self.point, self.work
        random = np.random.default_rng((self.seed, comm.rank, _ROUTING))
        likely = np.where(np.arange(EXPERTS) < EXPERTS // 2, _SKEWED, 1.0)
        drawn = np.log(likely) + random.gumbel(size=(point.tokens, EXPERTS))
        steps = np.arange(TOP_K) * (EXPERTS // TOP_K)  # a token's experts are on several ranks
        turns = TOP_K * np.arange(point.tokens)[:, None] + steps + comm.rank
        skewed = point.routing != "even"
        ids = np.argsort(-drawn, 1)[:, :TOP_K] if skewed else turns % EXPERTS
        self.ids = np.ascontiguousarray(ids)
        self.each = EXPERTS // comm.size
        self.order = np.argsort(self.ids.reshape(-1), kind="stable")
        sent = np.bincount(self.ids.reshape(-1), minlength=EXPERTS)
        self.sends = sent.reshape(comm.size, self.each)
        everyone = comm.all_gatherv(sent[None], [1] * comm.size)
        mine = slice(comm.rank * self.each, (comm.rank + 1) * self.each)
        self.receives = np.ascontiguousarray(everyone[:, mine])
        self.rows = int(self.receives.sum())
        self.operations = 2 * self.rows * point.hidden * point.inner
        self.operations *= 2 if point.kind == "layer" else 1
        self.up = self._weight(0, point.hidden, point.inner)
        self.down = self._weight(1, point.inner, point.hidden)

    def _weight(self, which: int, k: int, n: int) -> Array:
        bits = self.element.matrix(self.each * k, n)
        self.element.fill(bits, (self.seed, self.work.rank, _WEIGHT, which), 1 / 8)
        return np.asarray(self.element.numbers(bits).reshape(self.each, k, n))

    def own_keys(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(key for key in wanted if key in _OF[self.point.kind])

    def own(self, key: str) -> Variant:
        makers = {"5": self._type_5, "6": self._type_6, "layer": self._layer}
        return makers[self.point.kind](key)

    @cached_property
    def _alone(self) -> Any:
        """A communicator of this rank alone."""
        return self.kept.enter_context(self.work.split(self.work.rank))

    @cached_property
    def _by_expert(self) -> Array:
        """Where the rows in the order of this rank's experts are among those by their source."""
        ends = np.cumsum(self.receives.reshape(-1)).reshape(self.receives.shape)
        begins = ends - self.receives
        parts = [
            np.arange(begins[s, e], ends[s, e])
            for e in range(self.each)
            for s in range(self.work.size)
        ]
        return np.concatenate(parts).astype(np.int64)

    def _product(self, x: Array, weight: Array, out: Array) -> Run:
        """This rank's experts' products of rows that are here."""
        own = self.receives.sum(0)[None]
        call = self._alone.all_to_allv_grouped_matmul
        return partial(call, x, weight, own, own, out=out)

    def _filled(self, rows: int, columns: int) -> Bits:
        x = self.element.matrix(rows, columns)
        self.element.fill(x, (self.seed, self.work.rank, _X), 1 / 8)
        return x

    def _sent(self, columns: int, rows: int) -> Row:
        """Bytes that a rank sends to others, the mean of all ranks."""
        total = self.work.all_reduce(np.array([rows * columns * 4.0]))[0]
        return {"sent_mib": round(float(total) / self.work.size / 2**20, 4)}

    def _exchanged(self) -> tuple[int, int]:
        """Rows that leave this rank for experts, and that come from others."""
        rank = self.work.rank
        there, back = (int(t.sum() - t[rank].sum()) for t in (self.sends, self.receives))
        return there, back

    def _type_5(self, key: str) -> Variant:
        comm, numbers, point = self.connect(), self.element.numbers, self.point
        there, _ = self._exchanged()
        if key == "product":
            x = self._filled(self.rows, point.hidden)
            out = np.empty((self.rows, point.inner), np.float32)
            run = self._product(numbers(x), self.up, out)
            return Variant(key, OWN[key], [("all", run)], x)
        x = self._filled(int(self.sends.sum()), point.hidden)
        result = self.element.poisoned(self.rows, point.inner)
        facts = self._sent(point.hidden, there)
        if key == "fused":
            call = comm.all_to_allv_grouped_matmul
            tables = self.sends, self.receives
            run = partial(call, numbers(x), self.up, *tables, out=numbers(result))
            return Variant(key, OWN[key], [("all", run)], x, result, facts=facts)
        came, sorted_rows = (np.empty((self.rows, point.hidden), np.float32) for _ in range(2))
        sends, receives = (t.sum(1).tolist() for t in (self.sends, self.receives))
        product = self._product(sorted_rows, self.up, numbers(result))

        def unfused() -> None:
            comm.all_to_allv(numbers(x), sends, receives, out=came)
            np.take(came, self._by_expert, axis=0, out=sorted_rows)
            product()

        return Variant(key, OWN[key], [("all", unfused)], x, result, facts=facts)

    def _type_6(self, key: str) -> Variant:
        comm, numbers, point = self.connect(), self.element.numbers, self.point
        _, back = self._exchanged()
        x = self._filled(self.rows, point.inner)
        made, by_source = (np.empty((self.rows, point.hidden), np.float32) for _ in range(2))
        product = self._product(numbers(x), self.down, made)
        if key == "product":
            return Variant(key, OWN[key], [("all", product)], x)
        result = self.element.poisoned(int(self.sends.sum()), point.hidden)
        facts = self._sent(point.hidden, back)
        if key == "fused":
            call = comm.grouped_matmul_all_to_allv
            tables = self.sends, self.receives
            run = partial(call, numbers(x), self.down, *tables, out=numbers(result))
            return Variant(key, OWN[key], [("all", run)], x, result, facts=facts)
        sends, receives = (t.sum(1).tolist() for t in (self.sends, self.receives))
        to_source = np.argsort(self._by_expert)

        def unfused() -> None:
            product()
            np.take(made, to_source, axis=0, out=by_source)
            comm.all_to_allv(by_source, receives, sends, out=numbers(result))

        return Variant(key, OWN[key], [("all", unfused)], x, result, facts=facts)

    def _layer(self, key: str) -> Variant:
        """Halves and quarters weigh the experts, so that every sum is exact."""
        point, hidden = self.point, self.point.hidden
        x, result = self._filled(point.tokens, hidden), self.element.poisoned(point.tokens, hidden)
        weights = np.tile(np.array([0.5, 0.25], np.float32), (point.tokens, 1))
        numbers = self.element.numbers
        there, back = self._exchanged()
        ways = {"fused": self._fused_layer, "dispatch": self._dispatched, "gather": self._gathered}
        run = partial(ways[key](), numbers(x), weights, numbers(result))
        rows, others = there + back, self.work.size - 1
        if key == "gather":
            # Tokens to everybody, with the ids and weights of each; and sums back.
            rows = 2 * point.tokens * others
        facts = self._sent(hidden, rows)
        return Variant(key, OWN[key], [("all", run)], x, result, facts=facts)

    def _experts(self, rows: Array, of_experts: Array, out: Array) -> None:
        """The products of rows that are here, those of one expert after those of the other."""
        own = of_experts[None]
        call = self._alone.all_to_allv_grouped_matmul
        inner = call(rows, self.up, own, own)
        call(np.maximum(inner, 0, out=inner), self.down, own, own, out=out)

    def _fused_layer(self) -> Any:
        comm = self.connect()

        def run(x: Array, weights: Array, y: Array) -> None:
            inner = comm.all_to_allv_grouped_matmul(
                *(x[self.order // TOP_K], self.up, self.sends, self.receives)
            )
            np.maximum(inner, 0, out=inner)
            rows = comm.grouped_matmul_all_to_allv(*(inner, self.down, self.sends, self.receives))
            back = np.empty_like(rows)
            back[self.order] = rows
            np.einsum("tkh,tk->th", back.reshape(len(x), TOP_K, -1), weights, out=y)

        return run

    def _dispatched(self) -> Any:
        comm = self.connect()

        def run(x: Array, weights: Array, y: Array) -> None:
            rows, of_experts, handle = comm.moe_dispatch(x, self.ids, EXPERTS)
            made = np.empty_like(rows)
            self._experts(rows, of_experts, made)
            comm.moe_combine(made, weights, handle, out=y)

        return run

    def _gathered(self) -> Any:
        comm, sizes = self.connect(), [self.point.tokens] * self.work.size
        first = self.work.rank * self.each

        def run(x: Array, weights: Array, y: Array) -> None:
            xs, ids, ws = comm.all_gatherv([x, self.ids, weights], sizes)
            flat = ids.reshape(-1)
            order = np.argsort(flat, kind="stable")
            begin, end = np.searchsorted(flat[order], [first, first + self.each])
            mine = order[begin:end]
            of_experts = np.bincount(flat[mine] - first, minlength=self.each)
            made = np.empty((len(mine), xs.shape[1]), np.float32)
            self._experts(xs[mine // TOP_K], of_experts, made)
            made *= ws.reshape(-1)[mine, None]
            total = np.zeros_like(xs)
            for k in range(TOP_K):  # a token is once at most among those of one k
                of_k = mine % TOP_K == k
                total[mine[of_k] // TOP_K] += made[of_k]
            comm.reduce_scatterv(total, sizes, out=y)

        return run


class Experts(Operator):
    """The operator's options, points and tables."""

    name = "experts"
    description = (
        "Times LinearParallel's types with experts (5 and 6), and a layer of experts made of them, "
        "beside the grouped product alone, the same unfused, and every token on every rank."
    )
    epilog = (
        "Without arguments: 2 and 4 ranks, 1, 64 and 1024 tokens a rank, 1024 x 2048 and 1024 x "
        "64,\n8 experts, 2 for a token, routed evenly and 4:1 (the first half of them four times "
        "as often)."
    )
    quick = "a small layer"
    own, reference = tuple(OWN), "fused"
    dtypes = ()
    variants = ExpertsVariants
    ratios = {"/ product": "to_product", "/ unfused": "to_unfused", "/ gather": "to_gather"}  # noqa: RUF012
    parts = {"all": "time"}  # noqa: RUF012

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        parser.set_defaults(dtype=("f32",))
        kinds = tuple(_OF)
        add("--kind", type=lambda text: words(text, kinds), metavar=",".join(kinds))
        add("--ranks", type=lambda text: counts(text, ","), metavar="2,4")
        add("--tokens", type=lambda text: counts(text, ","), metavar="1,64,1024", help="of a rank")
        add("--routing", type=lambda text: words(text, _ROUTINGS), metavar=",".join(_ROUTINGS))
        add("--hidden", type=count, metavar="N", help="columns of a token (1024)")
        add("--inner", type=lambda text: counts(text, ","), metavar="2048,64")

    def points(self, options: argparse.Namespace) -> Sequence[Point]:
        quick = options.quick
        ranks = options.ranks or ((2,) if quick else (2, 4))
        for number_of in ranks:
            if EXPERTS % number_of:
                raise ValueError(f"--ranks {number_of}: must divide the {EXPERTS} experts")
        return [
            ExpertsPoint(
                kind=kind,
                size=size,
                tokens=tokens,
                routing=routing,
                hidden=options.hidden or (24 if quick else 1024),
                inner=inner,
                dtype="f32",
            )
            for size in ranks
            for kind in options.kind or _OF
            for inner in options.inner or ((40,) if quick else (2048, 64))
            for tokens in options.tokens or ((5,) if quick else (1, 64, 1024))
            for routing in options.routing or _ROUTINGS
        ]

    def compare(self, row: Row, others: dict[str, Row]) -> Row:
        """The row with the ratios of its time to those of other variants."""
        ratios = {
            f"to_{key}": round(row["ms"] / others[key]["ms"], 4) if key in others else None
            for key in ("product", "unfused", "gather")
        }
        return {**row, **ratios}

    def text(self, rows: list[Row]) -> str:
        sent = ", ".join(
            f"{row['label']} {row['sent_mib']:.4f}" for row in rows if "sent_mib" in row
        )
        said = f"{{}}; MiB that leave a rank: {sent}."
        return point_table(_title(rows[0]), said, self.ratios, rows)

    def summary(self, points: list[list[Row]]) -> str:
        """One line of ratios for each point, all from one run."""
        lines = []
        for rows in points:
            of = {row["column"]: row for row in rows}
            fused, gather = of["fused"], of.get("gather")
            sent = fused["sent_mib"] / gather["sent_mib"] if gather else None
            ratios = [fused[key] for key in self.ratios.values()]
            cells = [number(each, ".3f") for each in (fused["ms"], *ratios)]
            through = of["dispatch"]["to_gather"] if gather else None
            lines.append(
                [_title(fused), *cells, number(through, ".3f"), number(sent and sent * 100, ".0f")]
            )
        head = ("", "fused ms", *self.ratios, "dispatch / gather", "% of gather's bytes")
        return f"### Summary\n\n{markdown_table(head, lines)}"

    def save_plot(self, path: Path, points: list[list[Row]]) -> None:
        """A panel for each point, with a bar for each variant."""
        from collops.bench.plot import save_bars

        save_bars(path, self.parts, {_title(rows[0]): rows for rows in points})


def _title(row: Row) -> str:
    names = ("kind", "tokens", "routing", "hidden", "inner", "dtype")
    return ExpertsPoint(size=row["ranks"], **{name: row[name] for name in names}).title


OPERATOR = Experts()
