"""What torch.compile leaves out of its graphs: a group's calls run as in code without it.

torch.compiler.disable() does so with a wrapper around each function, which makes a call some
microseconds longer, and it imports the compiler, which takes seconds. Here functions are marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from types import FunctionType
from typing import Any, TypeVar

from torch.distributed import ProcessGroup

from collops.torch.private import eval_frame, opaque_object

_T = TypeVar("_T")

_PACKAGE = __name__.partition(".")[0]
_SKIP = eval_frame._FrameAction.SKIP
_EAGER = eval_frame._FrameExecStrategy(_SKIP, _SKIP)  # for a function and for all that it calls
# What torch reads of a group while it traces, and takes for constants.
_CONSTANTS = ("size", "rank", "_get_backend_name", "group_name", "group_desc", "__eq__", "__ne__")


def break_graphs(what: _T) -> _T:
    """Makes torch.compile break its graph at a function, or at the methods of a class."""
    for function in _functions(what):
        # The flag is for a call in code that is traced, the strategy for one in code that is not.
        function.__dict__["_torchdynamo_disable"] = True
        function.__dict__["_torchdynamo_disable_msg"] = "calls of collops are not traced"
        eval_frame.set_code_exec_strategy(function.__code__, _EAGER)
    return what


def register_group(group: type) -> None:
    """Lets code that is traced use all members of a class of groups, of which calls break a graph.

    Without it torch allows those of ``_CONSTANTS`` alone, and every other one ends the compilation
    with an error. It also keeps a graph from another group than that for which it was made.
    """
    if type(ProcessGroup).__name__ == "pybind11_type":
        return  # torch 2.9 to 2.11, for which a group is an object like any other
    opaque = opaque_object()
    kinds = opaque.MemberType
    members = {name: kinds.INLINED for cls in _own_classes(group) for name in vars(cls)}
    members = {name: kind for name, kind in members.items() if not name.startswith("__")}
    members.update(dict.fromkeys(_CONSTANTS, kinds.USE_REAL))
    words = {"members": members, "guard_fn": lambda it: [it.group_name, it.rank(), it.size()]}
    if hasattr(opaque, "register_custom_class"):  # torch 2.15's name
        opaque.register_custom_class(group, typ="symbolic", **words)
    else:
        opaque.register_opaque_type(group, typ="reference", **words)


def _own_classes(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if _is_own(base.__module__)]


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE


def _functions(what: Any) -> Iterator[FunctionType]:
    if isinstance(what, FunctionType):
        if _is_own(what.__globals__["__name__"]):  # not what contextlib puts around one
            yield what
    elif isinstance(what, type):
        for cls in _own_classes(what):
            for name, member in vars(cls).items():
                if name not in _CONSTANTS:  # which torch 2.11 traces
                    yield from _functions(member)
    elif isinstance(what, property):
        yield from _functions(what.fget)
    elif isinstance(what, cached_property):
        yield from _functions(what.func)
