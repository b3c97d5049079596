"""What the backend hccl declares of CANN, held against the headers in a torch_npu wheel.

The functions are those that the backend looks up; tests/npu/declarations/names.txt pairs the other
names with CANN's, and oldest_wheels.txt says which wheels have them. A compiler does the rest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from environment import ROOT

OPS = ROOT / "ops"
FOLDER = ROOT / "tests" / "npu" / "declarations"
BACKEND = "collops/comm/backends/hccl"
CORE = ("collops/core/dtype.h", "collops/core/status.h")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LOOKED_UP = re.compile(r'\bFind(?:IfThere)?\(\s*"(\w+)",\s*&(?:.*(?:\.|->))?(\w+)\.(\w+)\)')
_STRUCT = re.compile(r"^struct (\w+) \{(.*?)^\};", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(r"\(\*(\w+)\)\(")
# Where torch_npu has the types of what it looks up: typedef ... (*_aclCreateTensor)(...);
_TYPEDEFS = "op-plugin/op_plugin/utils/op_api_common_base.h"
_TYPEDEF = re.compile(r"typedef [^;{}]*\(\*_(\w+)\)\([^;{}]*\);")
_ENUM = re.compile(r"enum class (\w+)[^{]*\{([^}]*)\}")
_CONSTANT = re.compile(r"^constexpr \w+ (k\w+) =", re.MULTILINE)


def without_comments(path: Path) -> str:
    """A source's text without its comments."""
    return _COMMENT.sub(" ", path.read_text())


@dataclass(frozen=True)
class Backend:
    """What the backend in a folder like ops/ declares.

    `headers` have the structs of functions; `functions` are their members, such as ``Api::free``,
    with CANN's names; `names` the enumerators and constants.
    """

    ops: Path
    headers: list[str]
    functions: dict[str, str]
    members: frozenset[str]
    names: frozenset[str]

    @staticmethod
    def read(ops: Path = OPS) -> Backend:
        """Reads the headers with structs of functions, and the sources that fill them."""
        folder = ops / BACKEND
        looked_up: dict[str, str] = {}
        for source in sorted(folder.rglob("*.cpp")):
            for name, variable, member in _LOOKED_UP.findall(source.read_text()):
                looked_up[f"{variable.capitalize()}::{member}"] = name
        structs = {name.partition("::")[0] for name in looked_up}
        headers, members, names = [], set(), set()
        for header in sorted(folder.rglob("*.h")):
            text = without_comments(header)
            found = [(name, body) for name, body in _STRUCT.findall(text) if name in structs]
            if found:
                headers.append(str(header.relative_to(ops)))
                names |= set(_CONSTANT.findall(text)) | enumerators(text)
                members |= {f"{name}::{m}" for name, body in found for m in _MEMBER.findall(body)}
        return Backend(ops, headers, looked_up, frozenset(members), frozenset(names))

    def text(self) -> str:
        """The headers, without comments."""
        return "\n".join(without_comments(self.ops / header) for header in self.headers)

    def core_names(self) -> frozenset[str]:
        """The core's element types and formats."""
        text = without_comments(self.ops / "collops" / "core" / "dtype.h")
        kinds = {"DType", "Format"}
        return frozenset(name for name in enumerators(text) if name.split("::")[0] in kinds)


def enumerators(text: str) -> set[str]:
    """The enumerators in a header, such as ``Result::kSuccess``."""
    return {
        f"{kind}::{name}"
        for kind, body in _ENUM.findall(text)
        for name in re.findall(r"\b(k\w+)\b", body)
    }


class Wheel:
    """The headers of a torch_npu wheel: the folder with acl/inc and hccl/inc."""

    def __init__(self, third_party: Path, version: str) -> None:
        self.version = version
        acl, hccl = third_party / "acl" / "inc", third_party / "hccl" / "inc"
        self.includes = [third_party.parent, acl, hccl]
        rooms = (acl / "acl", hccl / "hccl")
        texts = [without_comments(path) for room in rooms for path in sorted(room.rglob("*.h"))]
        typedefs = third_party / _TYPEDEFS
        text = without_comments(typedefs) if typedefs.is_file() else ""
        self.typedefs = {match[1]: match[0] for match in _TYPEDEF.finditer(text)}
        self._words = frozenset(re.findall(r"\w+", " ".join(texts)))

    def has(self, name: str) -> bool:
        """Whether a name of CANN stands in the headers."""
        return name in self._words

    def should_have(self, name: str) -> bool:
        """Whether oldest_wheels.txt says so."""
        first = read_oldest().get(name)
        return first is None or (first != "none" and _version(self.version) >= _version(first))


def _version(text: str) -> tuple[int, ...]:
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?", text)
    assert numbers is not None, text
    return tuple(int(number or 0) for number in numbers.groups())


def read_lines(file: str) -> list[list[str]]:
    """The words of every line of a table in tests/npu/declarations."""
    lines = (FOLDER / file).read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def read_oldest() -> dict[str, str]:
    """CANN's names that the oldest wheel lacks, with the oldest that has them."""
    return dict(read_lines("oldest_wheels.txt"))


@dataclass
class Comparison:
    """The lines of compared.h; what was left out, and what is wrong with the tables."""

    lines: list[str]
    left_out: list[str]
    problems: list[str]


def compared(backend: Backend, wheel: Wheel) -> Comparison:
    """The comparisons of all names that the backend declares and the wheel has."""
    found = Comparison([], [], unnamed(backend))
    declared = backend.names | backend.core_names()
    declared |= set(re.findall(r"\b(?:using|struct) (\w+)\b", backend.text()))
    structs = {words[0]: words[1] for kind, *words in read_lines("names.txt") if kind == "struct"}
    for kind, *words in read_lines("names.txt"):
        ours, theirs = words[0].split(".")[0], words[-1]
        if kind == "own" or not (kind == "size" or ours in declared or words[0] in declared):
            continue
        if kind == "field":
            if wheel.has(structs[ours]):
                own_field = words[0].split(".")[1]
                _add(
                    found,
                    wheel,
                    theirs,
                    f"SAME_FIELD({ours}, {own_field}, {structs[ours]}, {theirs});",
                )
        elif kind == "grows":
            # HCCL adds fields at the end, and counts the version up.
            if _has_all(found, structs[ours]):
                found.lines.append(f"SAME_VALUE({words[1]}, {theirs});")
        else:
            pair = theirs if kind == "size" else f"{words[0]}, {theirs}"
            _add(found, wheel, theirs, f"SAME_{kind.upper()}({pair});")
    for ours, theirs in structs.items():
        if ours in declared and _has_all(found, theirs):
            found.lines.append(f"SAME_ROOM({ours}, {theirs});")
    for member, name in sorted(backend.functions.items()):
        if not wheel.has(name) and read_oldest().get(name) == "none":
            if name in wheel.typedefs:
                text = " ".join(wheel.typedefs[name].split())
                found.lines.append(f"{text} SAME_TYPEDEF({member}, _{name});")
            else:
                found.left_out.append(name)
        else:
            _add(found, wheel, name, f"SAME_FUNCTION({member}, {name});")
    return found


def _has_all(found: Comparison, struct: str) -> bool:
    """Whether a struct of CANN is compared with every field that it has here."""
    lines = [words[1:] for words in read_lines("names.txt") if words[0] in ("struct", "field")]
    [own] = [ours for ours, theirs in lines if theirs == struct]
    names = {theirs for ours, theirs in lines if ours.split(".")[0] == own}
    return names.isdisjoint(found.left_out)


def _add(found: Comparison, wheel: Wheel, theirs: str, line: str) -> None:
    present, expected = wheel.has(theirs), wheel.should_have(theirs)
    if present != expected:
        state = "has" if present else "lacks"
        found.problems.append(
            f"torch_npu {wheel.version} {state} {theirs}, unlike oldest_wheels.txt"
        )
    if present:
        found.lines.append(line)
    else:
        found.left_out.append(theirs)


def compare(backend: Backend, wheel: Wheel, folder: Path) -> Comparison:
    """compared(), with what a compiler says of it among the problems; it writes into `folder`."""
    found = compared(backend, wheel)
    said = compile_comparison(backend, wheel, found.lines, folder)
    if said:
        found.problems.append(said)
    return found


def unnamed(backend: Backend) -> list[str]:
    """What the backend declares and nothing compares."""
    paired = {words[-2] if words[0] != "own" else words[1] for words in read_lines("names.txt")}
    missing = (backend.names | backend.core_names()) - paired
    problems = [f"names.txt has no line for {name}" for name in sorted(missing)]
    never = backend.members - backend.functions.keys()
    return problems + [f"{member} is never looked up" for member in sorted(never)]


def compile_comparison(backend: Backend, wheel: Wheel, lines: list[str], folder: Path) -> str:
    """Compiles the comparison, whose header goes into `folder`; the compiler's errors, or none."""
    (folder / "compared.h").write_text("\n".join(lines) + "\n")
    included = "".join(f'#include "{header}"\n' for header in backend.headers)
    (folder / "declared.h").write_text(included)
    compiler = os.environ.get("CXX") or shutil.which("c++") or "c++"
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    command += [f"-I{backend.ops}", f"-I{folder}"]
    command += [f"-isystem{include}" for include in wheel.includes]
    command += [str(FOLDER / "declarations.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return done.stderr if done.returncode else ""
