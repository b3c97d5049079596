"""Works and futures: who may wait, and what is there when they say that a call has ended."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from patience import patience

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from collops.torch.collective_calls import reduce_scatter_single  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402

# The result is copied to its place after the call, which takes long enough to be seen.
ROWS = 1 << 19


def spread(value: float) -> torch.Tensor:
    """A tensor that is not contiguous."""
    return torch.full((ROWS, 2), value)[:, 0]


def test_a_call_that_is_polled_has_its_values() -> None:
    def work(rank: int) -> list[list[float]]:
        found = []
        for _ in range(5):
            outs = [spread(-1.0) for _ in range(2)]
            call = dist.all_gather(outs, spread(float(rank)), async_op=True)
            deadline = time.monotonic() + patience(20)
            while not call.is_completed():
                assert time.monotonic() < deadline
            found.append([float(out.sum()) / ROWS for out in outs])
            call.wait()
        return found

    assert run_group(work, 2) == [[[0.0, 1.0]] * 5] * 2


class _Noted:
    """The core's methods, whose names it notes when they are looked up to be called."""

    def __init__(self, plain: Any, names: list[str]) -> None:
        self._plain, self._names = plain, names

    def __getattr__(self, name: str) -> Any:
        self._names.append(name)
        return getattr(self._plain, name)


def _path_of(call: Any, crossings: list[str]) -> tuple[list[str], list[str]]:
    """The frames of collops.torch after a call's arguments are read, and its ways into the core.

    `crossings` is where _Noted notes them: a profile of Python 3.11 sees no call(*args).
    """
    frames: list[str] = []
    noted: list[str] = []
    crossings.clear()

    def note(frame: Any, event: str, function: Any) -> None:
        code = frame.f_code
        if event == "call" and "/collops/torch/" in code.co_filename:
            if frames or code.co_name == "_move":
                frames.append(code.co_name)
        elif event == "c_call" and getattr(function, "__module__", "") == "collops._core":
            noted.append(function.__name__)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return frames, crossings + [name for name in noted if name not in crossings]


def test_an_asynchronous_call_is_a_start_and_a_wait() -> None:
    def work(rank: int) -> dict[str, Any]:
        x, whole = torch.ones(4), torch.ones(8)
        group: Any = default_group()
        names: list[str] = []
        calls = {
            "all_reduce": lambda: dist.all_reduce(x, async_op=True),
            "broadcast": lambda: dist.broadcast(x, 1, async_op=True),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, x, async_op=True),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(x, whole, async_op=True),
            "all_to_allv": lambda: dist.all_to_all_single(whole, whole + 1, async_op=True),
            "reduce": lambda: dist.reduce(x, 1, async_op=True),
            "barrier": lambda: dist.barrier(async_op=True),
        }
        for call in calls.values():
            call().wait()
        group._plain = _Noted(group._plain, names)
        group._starting = _Noted(group._starting, names)
        return {n: _path_of(lambda call=call: call().wait(), names) for n, call in calls.items()}

    for paths in run_group(work, 2):
        for name, (frames, crossings) in paths.items():
            assert crossings == [name, "wait"]
            assert frames == ["_move", "add", "__init__", "wait"]


def test_a_small_sum_like_an_earlier_one_is_one_frame_and_one_way_into_the_core() -> None:
    """Most of a small call's time is in Python's frames."""

    def work(rank: int) -> Any:
        group: Any = default_group()
        names: list[str] = []
        dist.all_reduce(torch.ones(4))  # the first call of a thread is noted
        group._plain = _Noted(group._plain, names)
        found = []
        shapes = [(4,), (3, 3), (3, 3), (3, 2), (3, 2)]
        for x in (*map(torch.ones, shapes), torch.ones(8)[::2]):
            before = x + rank
            x.copy_(before)
            frames, crossings = _frames_of(lambda x=x: dist.all_reduce(x), names)
            found.append((crossings, "_move" in frames))
            assert torch.equal(x, 2 * before + (1 if rank == 0 else -1))
        return found

    plain = (["all_reduce_at_once"], False)
    general = (["all_reduce_at_once", "all_reduce"], True)
    assert run_group(work, 2) == [[plain, general, plain, general, general, general]] * 2


def _frames_of(call: Any, crossings: list[str]) -> tuple[list[str], list[str]]:
    """All frames of collops.torch in a call, and what _Noted has noted."""
    frames: list[str] = []
    crossings.clear()

    def note(frame: Any, event: str, function: Any) -> None:
        if event == "call" and "/collops/torch/" in frame.f_code.co_filename:
            frames.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return frames, list(crossings)


def _numbers(rank: int) -> torch.Tensor:
    return torch.arange(4.0) + 10 * rank


def _apart(columns: int) -> list[torch.Tensor]:
    """Outputs of four rows that are not contiguous."""
    return list(torch.full((4, 2 * columns), -1.0).split(2, dim=1))


def _first(pair: torch.Tensor) -> torch.Tensor:
    return pair[:, 0]


def _gathered(rank: int) -> Any:
    outs = [_first(pair) for pair in _apart(2)]
    return dist.all_gather(outs, _numbers(rank), async_op=True), outs, [_numbers(0), _numbers(1)]


def _swapped(rank: int) -> Any:
    outs = [_first(pair) for pair in _apart(2)]
    parts = [_numbers(rank), _numbers(rank + 2)]
    call = dist.all_to_all(outs, parts, async_op=True)
    return call, outs, [_numbers(rank * 2), _numbers(rank * 2 + 1)]


def _summed(rank: int) -> Any:
    [out] = map(_first, _apart(1))
    out.copy_(_numbers(rank))
    return dist.all_reduce(out, async_op=True), [out], [_numbers(0) + _numbers(1)]


def _scattered(rank: int) -> Any:
    [out] = map(_first, _apart(1))
    whole = torch.cat([_numbers(rank), _numbers(rank + 2)])
    call = reduce_scatter_single(out, whole, async_op=True)
    return call, [out], [_numbers(2 * rank) + _numbers(2 * rank + 1)]


def _together(rank: int) -> Any:
    outs = [_first(pair) for pair in _apart(2)]
    for number, out in enumerate(outs):
        out.copy_(_numbers(rank + number))
    with dist._coalescing_manager(async_ops=True) as manager:
        for out in outs:
            dist.all_reduce(out)
    [call] = manager.works
    return call, outs, [_numbers(0) + _numbers(1), _numbers(1) + _numbers(2)]


def _received(rank: int) -> Any:
    [out] = map(_first, _apart(1))
    call = dist.irecv(out, 1 - rank)
    dist.isend(_numbers(rank), 1 - rank).wait()
    return call, [out], [_numbers(1 - rank)]


def _by_another_thread(call: Any, outs: list[torch.Tensor], mode: Any) -> list[torch.Tensor]:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call.wait).result(30)
    return outs


def _seen_by_a_callback(call: Any, outs: list[torch.Tensor], mode: Any) -> list[torch.Tensor]:
    seen = call.get_future().then(lambda _: [out.clone() for out in outs])
    return list(seen.wait())


def _written_by_a_callback(call: Any, outs: list[torch.Tensor], mode: Any) -> list[torch.Tensor]:
    """As DDP's hooks write. The future's own thread runs it, or this one if the call has ended."""
    with mode():
        written = call.get_future().then(lambda _: [out.add_(1).sub_(1) for out in outs])
    return list(written.wait())


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_a_call_ends_in_the_mode_in_which_it_was_started(mode: Any) -> None:
    def work(rank: int) -> dict[str, str]:
        told = {}
        for make in (_gathered, _swapped, _summed, _scattered, _together, _received):
            for end in (_by_another_thread, _seen_by_a_callback, _written_by_a_callback):
                with mode():
                    call, outs, want = make(rank)
                try:
                    found = end(call, outs, mode)
                    right = all(map(torch.equal, found, want))
                    told[f"{make.__name__}{end.__name__}"] = "" if right else str(found)
                except Exception as error:
                    told[f"{make.__name__}{end.__name__}"] = str(error)
        return {key: text for key, text in told.items() if text}

    assert run_group(work, 2) == [{}, {}]


def test_a_callback_makes_a_call_and_waits_for_its_future() -> None:
    def work(rank: int) -> float:
        def twice(future: Any) -> torch.Tensor:
            [x] = future.value()
            return dist.all_reduce(x, async_op=True).get_future().wait()[0]

        x = torch.tensor([rank + 1.0])
        return float(dist.all_reduce(x, async_op=True).get_future().then(twice).wait())

    assert run_group(work, 2, timeout_s=patience(20)) == [6.0, 6.0]


def test_callbacks_and_the_program_start_calls_at_the_same_time() -> None:
    """Each thread has messages of its own, so that their order does not matter."""

    def work(rank: int) -> bool:
        def exchange(tag: int) -> None:
            for turn in range(200):
                out = torch.zeros(1)
                sent = dist.isend(torch.tensor([float(turn)]), 1 - rank, tag=tag)
                dist.irecv(out, 1 - rank, tag=tag).wait()
                sent.wait()
                assert float(out) == turn

        other = threading.Thread(target=exchange, args=(1,))
        other.start()
        exchange(2)
        other.join(patience(30))
        return not other.is_alive()

    assert run_group(work, 2) == [True, True]


def test_a_message_of_another_thread_does_not_wait_for_a_call() -> None:
    """Rank 1 comes to the call only once it has the message of rank 0's other thread."""

    def work(rank: int) -> float:
        x, word = torch.tensor([rank + 1.0]), torch.zeros(1)
        dist.send(word, 1 - rank) if rank == 0 else dist.recv(word, 0)
        begun = threading.Event()

        def tell() -> None:
            dist.isend(torch.ones(1), 1, tag=1).wait()
            begun.set()
            dist.isend(torch.ones(1), 1, tag=2).wait()

        if rank == 0:
            other = threading.Thread(target=tell)
            other.start()
            begun.wait(patience(20))
            dist.all_reduce(x)
            other.join(patience(20))
        else:
            dist.recv(word, 0, tag=1)
            dist.recv(word, 0, tag=2)
            dist.all_reduce(x)
        return float(x)

    assert run_group(work, 2, timeout_s=patience(20)) == [3.0, 3.0]


def test_an_error_stays_an_error() -> None:
    def work(rank: int) -> list[str]:
        found = []
        call = dist.all_reduce(torch.ones(2 + rank), async_op=True)
        for ask in (call.wait, call.wait, call.get_future().wait, call.result):
            try:
                ask()
                found.append("")
            except Exception as error:
                found.append("disagree" if "disagree" in str(error) else str(error))
        assert call.is_completed() and not call.is_success()
        return found

    assert run_group(work, 2) == [["disagree"] * 4] * 2


def test_the_future_of_an_ended_call_is_done_at_once() -> None:
    """It needs no thread, and later calls need none either."""

    def work(rank: int) -> list[Any]:
        found: list[Any] = []
        calls = [
            dist.all_reduce(torch.tensor([rank + 1.0]), async_op=True),
            dist.isend(torch.ones(1), 1 - rank),
            dist.irecv(torch.empty(1), 1 - rank),
        ]
        for call in calls:
            call.wait()
            future = call.get_future()
            found.append(future.done())
            future.then(lambda _: found.append(threading.current_thread().name))
            found.append(future.wait()[0].item())
        found.append(default_group().futures.asked)
        return found

    for found in run_group(work, 2):
        assert found == [
            *(True, "MainThread", 3.0),
            *(True, "MainThread", 1.0),
            *(True, "MainThread", 1.0),
            False,
        ]


def test_callbacks_have_run_when_wait_returns() -> None:
    """As with gloo, also where another thread has been faster."""

    def work(rank: int) -> list[bool]:
        found = []
        for turn in range(20):
            ran: list[int] = []
            call = dist.all_reduce(torch.ones(1), async_op=True)

            def note(future: Any, ran: list[int] = ran) -> None:
                time.sleep(0.005)
                ran.append(1)

            call.get_future().add_done_callback(note)
            if turn % 2:
                time.sleep(0.002)  # the futures' thread has begun
            call.wait()
            found.append(ran == [1])
        return found

    for backend in ("gloo", "collops"):
        assert run_group(work, 2, backend=backend) == [[True] * 20] * 2


def test_a_callback_may_wait_for_its_own_call() -> None:
    def work(rank: int) -> bool:
        call = dist.all_reduce(torch.ones(1), async_op=True)
        asked = call.get_future().then(lambda _: call.wait())
        call.wait()
        return bool(asked.wait())

    assert run_group(work, 2, timeout_s=patience(20)) == [True, True]


def test_the_future_of_a_failed_call_is_done_at_once() -> None:
    def work(rank: int) -> list[Any]:
        call = dist.all_reduce(torch.ones(2 + rank), async_op=True)
        with pytest.raises(Exception, match="disagree"):
            call.wait()
        future = call.get_future()
        done = future.done()
        with pytest.raises(Exception, match="disagree"):
            future.wait()
        return [done, future.done()]

    assert run_group(work, 2) == [[True, True]] * 2
