"""Place: where the ranks of a benchmark hold their data, and how their calls are timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from collops.bench.elements import Element
from collops.bench.measure import Times, interleave, num_rewrites, place_us
from collops.bench.memory import added_bytes

# Waits for all ranks, and rewrites a variant's x.
Meet = Callable[[], None]
Rewrite = Callable[[Any], None]

if TYPE_CHECKING:
    from collops.bench.operator import Operator
    from collops.bench.variant import Maker, Run, Variant, Variants


class Rounds(NamedTuple):
    """How often the variants of a point are called in turn, as interleave() has it."""

    number: int
    burst: int


class Place:
    """The host: numpy's arrays, and the clock that all processes share.

    Attributes:
        backend: the backend of the calls that are measured; empty: the host's usual one.
        stream: of the calls; None where there are no streams.
    """

    backend = ""
    stream: Any = None

    def element(self, dtype: str) -> Element:
        """The type of the elements, which makes matrices here."""
        return Element(dtype)

    def others(self, variants: Variants) -> Iterator[tuple[str, Maker]]:
        """The variants that a collective has here beside its own calls."""
        del variants
        yield from ()

    def own_keys(self, operator: Operator, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The variants of collops, of the wanted ones."""
        del operator
        return wanted

    def reference(self, operator: Operator) -> str:
        """The variant with whose result the others are compared."""
        return operator.reference

    def shared(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` returns, made once for ranks of one process that ask for the same key."""
        del key
        return make()

    def repeat(self, variant: Variant, make: Maker, of: Variants) -> None:
        """Makes a variant again on other memory, where calls take turns; a call of all ranks.

        Args:
            variant: what `make` has made.
            make: the function that makes it.
            of: the variants of the point.
        """

    def added_bytes(self, call: Run, meet: Meet) -> tuple[int, int] | None:
        """Makes a call; the private and the shared bytes that it adds, where that can be told."""
        return added_bytes(call, meet)

    def barrier_us(self, meet: Meet) -> float | None:
        """Microseconds of a barrier, where they show how near the ranks are to each other."""
        return round(place_us(meet), 2)

    def checked_call(self, turn: Variant, meet: Meet) -> None:
        """Makes a call of all ranks whose result is checked, as calls are timed; ends with it."""
        meet()
        turn.run()

    def times(self, variants: list[Variant], rounds: Rounds, rewrite: Rewrite, meet: Meet) -> Times:
        """Seconds of the calls of each variant on this rank, as interleave() returns them."""
        return interleave(variants, rounds.number, rewrite, meet, rounds.burst)

    def num_rewrites(self, rounds: Rounds) -> int:
        """How often times() rewrites a variant's x."""
        return num_rewrites(*rounds)

    def calls_in(self, rounds: Rounds) -> int:
        """How many calls of a variant count."""
        return rounds.number * rounds.burst

    def facts(self) -> dict[str, Any]:
        """What every row says of the place."""
        return {}


HOST = Place()
