"""Programs on the order of a group's calls on streams: who waits for whom, and that the host does
not. Each runs on the ranks of a group and returns what PROGRAMS expects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from collops.torch.devices.streams import DeviceStreams
from patience import patience
from tests.torch.groups import default_group


class Place(NamedTuple):
    """A rank's device: torch.npu or torch.cuda, and how a test keeps a stream from beginning."""

    device: torch.device
    module: Any
    held: Callable[[Any], AbstractContextManager[Any]]

    def full(self, count: int, value: float) -> torch.Tensor:
        """A tensor of equal numbers on the device."""
        return torch.full((count,), value).to(self.device)

    def own_stream(self) -> Any:
        """The stream of the group's asynchronous calls, which exists after the first one."""
        dist.all_reduce(self.full(1, 1), async_op=True).wait()
        self.module.synchronize()
        calls = default_group()._device_calls([torch.empty(0, device=self.device)])
        return calls.streams.own


class Program(NamedTuple):
    """What every rank runs, on how many ranks, and what each returns."""

    run: Callable[[Place], Any]
    ranks: int
    result: Any


def _waits_on_the_stream(here: Place) -> tuple[bool, bool, list[float]]:
    stream, x = here.own_stream(), here.full(1000, 3)
    with here.held(stream):
        begun = time.monotonic()
        call = dist.all_reduce(x, async_op=True)
        early = call.is_completed()
        call.wait()
        doubled = x * 2
        host_went_on = time.monotonic() - begun < patience(40)
        time.sleep(0.05)  # the multiplication would run now, if nothing kept it
    return early, host_went_on, doubled[:2].tolist()


def _comes_after_the_work_before_it(here: Place) -> list[float]:
    here.own_stream()
    x = here.full(2, 0)
    with here.held(here.module.current_stream()):
        x.add_(default_group().rank() + 1)
        call = dist.all_reduce(x, async_op=True)
        time.sleep(0.05)
    call.wait()
    return x.tolist()


def _three_streams(here: Place) -> tuple[list[bool], list[float]]:
    """An asynchronous call, one on the current stream, and one on a third stream."""
    own, current, other = here.own_stream(), here.module.current_stream(), here.module.Stream()
    x, y, z = (here.full(2, i + 1) for i in range(3))
    here.module.synchronize()
    with here.held(own):
        call = dist.all_reduce(x, async_op=True)
        dist.all_reduce(y)
        with here.module.stream(other):
            dist.all_reduce(z)
        time.sleep(0.3)
        ended = [bool(stream.query()) for stream in (current, other)]
    call.wait()
    here.module.synchronize()
    return ended, [t[0].item() for t in (x, y, z)]


def _waits_for_the_stream_before(here: Place) -> tuple[bool, list[float]]:
    """Without a call of the backend's, which a simulation may keep in order by itself."""
    streams, x = DeviceStreams(here.device), here.full(2, 1)
    with streams.apart([x]):
        x.add_(1)
    here.module.synchronize()
    with here.held(streams.own), here.module.stream(here.module.Stream()):
        with streams.apart([]):
            x.add_(1)
        streams.join()
        x.mul_(2)
        time.sleep(0.1)
        ended = bool(here.module.current_stream().query())
    here.module.synchronize()
    return ended, x.tolist()


def _memory_that_a_call_reads(here: Place) -> list[float]:
    """The copy of a view that a call reads, and that nobody else holds."""
    stream, x = here.own_stream(), torch.arange(1024.0).view(2, 512).to(here.device)
    out = torch.empty(2 * 1024, device=here.device)
    here.module.synchronize()
    with here.held(stream):
        call = dist.all_gather_into_tensor(out, x.t(), async_op=True)
        others = [here.full(1024, -1) for _ in range(8)]
        here.module.current_stream().synchronize()
    call.wait()
    del others
    return out[:4].tolist()


def _memory_of_a_call_that_fails(here: Place) -> list[float]:
    """The part that is on the stream still reads it."""
    streams, out = DeviceStreams(here.device), here.full(1024, 0)
    with streams.apart([out]):
        out.add_(0)
    here.module.synchronize()
    with here.held(streams.own):
        x = here.full(1024, 7)
        try:
            with streams.apart([x, out]):
                out.copy_(x)
                raise RuntimeError("the next part of the call")
        except RuntimeError:
            del x
        others = [here.full(1024, -1) for _ in range(8)]
        here.module.current_stream().synchronize()
    here.module.synchronize()
    del others
    return out[:2].tolist()


def _callback_of_a_future(here: Place) -> list[float]:
    stream, x = here.own_stream(), here.full(2, 5)
    with here.held(stream):
        future = dist.all_reduce(x, async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        time.sleep(0.05)
    return doubled.wait().tolist()


def _future_of_a_batch(here: Place) -> list[float]:
    stream, x, y = here.own_stream(), here.full(2, 5), here.full(2, 7)
    with here.held(stream):
        with dist._coalescing_manager(async_ops=True) as several:
            dist.all_reduce(x)
            dist.all_reduce(y)
        side = here.module.Stream()
        with here.module.stream(side):
            several.works[0].get_future().wait()
            doubled = x * 2
        time.sleep(0.05)
    side.synchronize()
    several.wait()
    return [*doubled.tolist(), *y.tolist()]


def _barrier(here: Place) -> bool:
    stream, x, release = here.own_stream(), here.full(2, 1), threading.Event()

    def hold() -> None:
        here.module.set_device(here.device)
        with here.held(stream):
            held.set()
            release.wait()

    held, holder = threading.Event(), threading.Thread(target=hold)
    holder.start()
    held.wait()
    call = dist.all_reduce(x, async_op=True)
    threading.Timer(0.3, release.set).start()
    dist.barrier()
    ended = call.is_completed()
    holder.join()
    return ended


PROGRAMS = {
    "an asynchronous call is waited for on the stream": Program(
        _waits_on_the_stream, 2, (False, True, [12.0, 12.0])
    ),
    "an asynchronous call comes after the work before it": Program(
        _comes_after_the_work_before_it, 2, [3.0, 3.0]
    ),
    "calls on three streams keep their order": Program(
        _three_streams, 2, ([False, False], [2.0, 4.0, 6.0])
    ),
    "a stream waits for that of the call before": Program(
        _waits_for_the_stream_before, 1, (False, [6.0, 6.0])
    ),
    "memory that a call reads is not given out again": Program(
        _memory_that_a_call_reads, 2, [0.0, 512.0, 1.0, 513.0]
    ),
    "memory of a call that fails half-way is not given out again": Program(
        _memory_of_a_call_that_fails, 1, [7.0, 7.0]
    ),
    "a callback of a future waits for the call": Program(_callback_of_a_future, 2, [20.0, 20.0]),
    "a future of a batch waits for its calls": Program(
        _future_of_a_batch, 2, [20.0, 20.0, 14.0, 14.0]
    ),
    "a barrier waits for the work so far": Program(_barrier, 3, True),
}
