"""How a group makes a call of its communicator: at once or started, with its errors and its log."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from weakref import WeakSet

import torch

from collops.errors import ErrorCode, raise_status, status_error
from collops.torch.devices.kinds import may_be_used
from collops.torch.graph_breaks import break_graphs
from collops.torch.memory import Target
from collops.torch.private import c10d
from collops.torch.reductions import Reduction, reduction_of
from collops.torch.window_pool import WindowPool
from collops.torch.works import Caller, CallLog, EndedWork, Futures, StartedWork, together

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator


_NONE = timedelta(0)
_F = TypeVar("_F", bound="Callable[..., Any]")
# What may be passed in place of options, and the members of these that have it.
_MEMBERS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}
_OPTIONS = frozenset(
    kind
    for name, kind in vars(c10d).items()
    if name.endswith("Options") and hasattr(kind, "asyncOp")
)


class ArgumentForms:
    """The forms in which a call takes its arguments: those of torch's ProcessGroup.

    torch.distributed passes lists of tensors and an object of options. Others that call a group,
    such as hooks, torchft and torch's DDP, also pass a single tensor, no options or what options
    hold: ``group.allreduce(x, ReduceOp.MAX, timeout=limit)``.

    Args:
        options: the name of the class of its options.
        names: of its arguments, in order. A ``|`` is between those of one argument, ``*`` follows
            a list of tensors and ``**`` a list of such lists; a list of one item may be the item.
            After the tensors come the options, or in their place op, root and timeout.
    """

    def __init__(self, options: str, names: str) -> None:
        self._options = getattr(c10d, options)
        words = [(word.rstrip("*").split("|"), word.count("*")) for word in names.split()]
        self._settings = [names[0] for names, _ in words if names[0] in _MEMBERS]
        self._tensors = [(names[0], depth) for names, depth in words if names[0] not in _MEMBERS]
        self._known = {name: names[0] for names, _ in words for name in names} | {"opts": "opts"}

    def options_last(
        self, call: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """The arguments as torch.distributed passes them: tensors, then options."""
        count = len(self._tensors)
        has_options = len(args) > count and (args[count] is None or type(args[count]) in _OPTIONS)
        names = [name for name, _ in self._tensors] + (["opts"] if has_options else self._settings)
        if len(args) > len(names):
            raise TypeError(f"{call}: got {len(args)} arguments, at most {len(names)} are possible")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            own = self._known.get(name, "")
            if not own or own in given:
                fault = "is given twice" if own else "is none of the arguments"
                raise TypeError(f"{call}: {name!r} {fault}")
            given[own] = value
        if missing := [name for name, _ in self._tensors if name not in given]:
            raise TypeError(f"{call}: the argument {missing[0]!r} is missing")
        lists = [_nested(given.pop(name), depth) for name, depth in self._tensors]
        opts = given.pop("opts", None)
        if opts is not None and given:
            raise TypeError(f"{call}: {next(iter(given))!r} is given beside opts, which has it")
        if opts is None:
            opts = self._options()
        for name, value in given.items():
            if value is not None:
                setattr(opts, _MEMBERS[name], value)
        return (*lists, opts)

    def tensors(self, args: Sequence[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The inputs and the outputs among what options_last() returns."""
        sides: tuple[list[torch.Tensor], list[torch.Tensor]] = [], []
        for (name, _), value in zip(self._tensors, args, strict=False):
            sides[name.startswith("output")].extend(_flat(value))
        return sides


def _flat(value: Any) -> list[torch.Tensor]:
    """The tensors of what may be one, a list of them, a list of such lists, or a list of sizes."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for item in value for x in _flat(item)] if isinstance(value, (list, tuple)) else []


def _nested(value: Any, depth: int) -> Any:
    """A list, or a list of lists, of what may be one item of it."""
    if depth and isinstance(value, torch.Tensor):
        return [value]
    if depth == 2 and value and isinstance(value[0], torch.Tensor):
        return [value]
    return value


def refusing(operation: str, called: str, options: str, names: str) -> Callable[[_F], _F]:
    """Makes a method the call of torch.distributed that it describes.

    The method returns the communicator's call, its arguments, the tensors of the Work and what
    follows the call, None: nothing; or the Work of calls that it has made. An error that it raises
    is sent to the ranks that wait in the call; the call's own errors have been sent already.

    Args:
        operation: the core's name of the call.
        called: torch.distributed's.
        options: with `names` the call's arguments, for ArgumentForms.
        names: see there.
    """
    forms = ArgumentForms(options, names)

    def decorate(method: _F) -> _F:
        @functools.wraps(method)
        def refused(self: Calls, *args: Any, **kwargs: Any) -> Any:
            if may_be_used() and (own := self._device_calls((*args, *kwargs.values()))) is not None:
                return getattr(own, method.__name__)(*args, **kwargs)
            with self.lock:
                if self._thread != threading.get_ident():
                    self._note_thread()
                self._began = False
                try:
                    if kwargs or not args or type(args[-1]) not in _OPTIONS:
                        args = forms.options_last(method.__name__, args, kwargs)
                    found = method(self, *args)
                    if type(found) is not tuple:
                        return found
                    return self._move(args[-1], called, *found)
                except Exception as error:
                    if not self._began:
                        self._comm.refuse(operation, error)
                    raise

        refused.forms = forms  # type: ignore[attr-defined]
        return refused  # type: ignore[return-value]

    return decorate


def placed(method: _F) -> _F:
    """Sends a call of a group on tensors of an NPU or a GPU to the group's calls for these."""

    @functools.wraps(method)
    def on_device(self: Calls, *args: Any, **kwargs: Any) -> Any:
        if may_be_used() and (own := self._device_calls((*args, *kwargs.values()))) is not None:
            return getattr(own, method.__name__)(*args, **kwargs)
        return method(self, *args, **kwargs)

    return on_device  # type: ignore[return-value]


def several(options: str, names: str) -> Callable[[_F], _F]:
    """For a call of several tensors, of which each is a call by itself."""
    forms = ArgumentForms(options, names)

    def decorate(method: _F) -> _F:
        @placed
        @functools.wraps(method)
        def each(self: Calls, *args: Any, **kwargs: Any) -> Any:
            return method(self, *forms.options_last(method.__name__, args, kwargs))

        each.forms = forms  # type: ignore[attr-defined]
        return each  # type: ignore[return-value]

    return decorate


@break_graphs
def refuse(comm: Communicator, operation: str, code: int, message: str) -> NoReturn:
    """Raises an error of this rank's arguments, and sends it to the ranks that wait in the call."""
    error = status_error(code, message)
    comm.refuse(operation, error)
    raise error


class Calls(Caller):
    """What all calls of a group share. Any thread may make one; their order is the program's.

    Attributes:
        in_place: whether reduce, gathers and scatters may read and write the same memory.

    As long as one thread makes them all, a call that is not asynchronous runs at once. Afterwards,
    and once a future may have callbacks, each is started, so that no thread waits for another's.
    """

    in_place = True

    def __init__(self, communicator: Communicator, name: str) -> None:
        self._comm = communicator
        self._plain, self._starting = communicator._plain, communicator._plain.starting()
        self._rank, self._size = communicator.rank, communicator.size
        self.log = CallLog(communicator.rank, name)
        self.futures = Futures()
        self._windows = WindowPool(communicator)
        self._coalesced: list[Any] | None = None
        self._began = False
        self.lock = threading.RLock()  # held while a call begins
        self._thread = 0  # the one that makes the calls
        self._shared = False
        _made.add(self)

    def _device_calls(self, args: Any) -> Any:
        """The object that makes a call with these arguments on an NPU or a GPU, or None."""
        return None

    def _scratch(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Flat memory for the tensors of a list, or for a result that is copied afterwards."""
        return self._windows.scratch(elements, dtype)

    def _reduction(self, call: str, op: Any, dtype: torch.dtype) -> Reduction:
        """How the communicator makes a reduction of torch's."""
        return reduction_of(call, op, dtype)

    def _note_thread(self) -> None:
        """Notices the first thread that makes a call, or another one; with the lock held."""
        self._shared = self._shared or self._thread not in (0, threading.get_ident())
        self._thread = threading.get_ident()

    def _move(
        self,
        opts: Any,
        called: str,
        name: str,
        args: tuple[Any, ...],
        tensors: Any,
        finish: Any = None,
    ) -> Any:
        """Makes a call of the communicator, or starts it if the options say so.

        The core's plain level is called itself, with all arguments in its order.
        """
        self.log.add(called, tensors)
        self._began = True
        limit_s = opts.timeout.total_seconds() if opts.timeout > _NONE else 0.0  # 0.0: the group's
        if opts.asyncOp or limit_s or self._shared or self.futures.asked:
            work: Any = StartedWork(getattr(self._starting, name)(*args), tensors, self)
            work.finish, work.timeout_s = finish, limit_s
        else:
            try:
                value = getattr(self._plain, name)(*args)
            except Exception as error:
                self.log.explain(error)
                raise
            if finish is not None:
                finish(value)
            work = EndedWork(tensors)
        return work if self._coalesced is None else self._noted(work)

    def _noted(self, work: Any) -> Any:
        """Keeps the work for _end_coalescing()."""
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _each(self, operation: str, make: Callable[..., Any], *lists: Sequence[Any]) -> Any:
        """Makes a call of each group of items. After an error the others are refused as well.

        So this rank and the others are at the same call afterwards.
        """
        left = max(len(items) for items in lists)
        works = []
        with self.lock:
            try:
                if min(len(items) for items in lists) != left:
                    self._began = False
                    raise_status(
                        ErrorCode.ERROR_INVALID_PARAM,
                        f"{operation}: the lists must have the same length, got "
                        f"{[len(items) for items in lists]}",
                    )
                for items in zip(*lists, strict=True):
                    left -= 1  # a call that fails is refused by itself
                    works.append(make(*items))
            except Exception as error:
                for _ in range(left):
                    self._comm.refuse(operation, error)
                raise
        return self._together(works)

    def _together(self, works: list[Any]) -> Any:
        """The Work of several calls."""
        return together(works, self)

    def _check_list(self, call: str, parts: Sequence[torch.Tensor]) -> None:
        """A list has a tensor for each rank."""
        if len(parts) != self._size:
            raise_status(
                ErrorCode.ERROR_INVALID_PARAM,
                f"{call}: the list must have {self._size} tensors, one per rank, got {len(parts)}",
            )

    def _check_own(self, call: str, parts: Sequence[torch.Tensor], own: torch.Tensor) -> None:
        """A list has a tensor for each rank; this rank's has the size of its own tensor."""
        rank = self._rank
        self._check_list(call, parts)
        if parts[rank].numel() != own.numel() or parts[rank].dtype != own.dtype:
            raise_status(
                ErrorCode.ERROR_INVALID_TENSOR_DIM,
                f"{call}: tensor {rank} of the list is {list(parts[rank].shape)} "
                f"{parts[rank].dtype}, this rank's tensor {list(own.shape)} {own.dtype}",
            )

    def _refuse_parts(
        self, call: str, whole: torch.Tensor, part: torch.Tensor, label: str, label_of_part: str
    ) -> NoReturn:
        """A tensor of all ranks' parts must have as many elements as they have together."""
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_DIM,
            f"{call}: the {label} must have {self._size} times the elements of the "
            f"{label_of_part}, one part per rank, got {list(whole.shape)} and {list(part.shape)}",
        )

    def _apart(self, own: Target) -> Target:
        """Other memory for a result that would overwrite the input."""
        packed = self._scratch(own.memory.numel(), own.memory.dtype).view(own.memory.shape)

        def bring() -> None:
            own.memory.copy_(packed)
            if own.finish is not None:
                own.finish()

        return Target(packed, bring)

    @staticmethod
    def _finish(out: Target, reduction: Reduction | None = None) -> Callable[[Any], object] | None:
        """What follows the core's call; None: nothing."""
        finish = out.finish
        after = None if reduction is None else reduction.after
        if after is None:
            return None if finish is None else lambda _: finish()

        def complete(_: Any) -> None:
            after(out.memory)
            if finish is not None:
                finish()

        return complete


_made: WeakSet[Calls] = WeakSet()


def _unlock() -> None:
    """Frees the locks of threads that a forked child has not: its calls are refused at once."""
    for calls in _made:
        calls.lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock)
