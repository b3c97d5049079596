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
BACKEND = "comm/backends/hccl"
CORE = ("core/dtype.h", "core/status.h")
# What a wheel's version must be for a name to be expected in it, where no line says so.
_OLDEST = "2.1.0.post8"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LOOKED_UP = re.compile(r'\bFind(?:IfThere)?\(\s*"(\w+)",\s*&(?:\w+(?:\.|->))*(\w+)\)')
_MEMBER = re.compile(r"\(\*(\w+)\)\(")
_ENUM = re.compile(r"enum class (\w+)[^{]*\{([^}]*)\}")
_CONSTANT = re.compile(r"^constexpr \w+ (k\w+) =", re.MULTILINE)


def without_comments(path: Path) -> str:
    """A source's text without its comments."""
    return _COMMENT.sub(" ", path.read_text())


@dataclass(frozen=True)
class Backend:
    """What the backend in a folder like ops/ declares.

    `functions` are the members of Api with CANN's names; `names` the enumerators and constants.
    """

    ops: Path
    header: str
    functions: dict[str, str]
    members: frozenset[str]
    names: frozenset[str]

    @staticmethod
    def read(ops: Path = OPS) -> Backend:
        """Reads api.h, wherever it stands in the backend, and the sources that fill it."""
        folder = ops / BACKEND
        [api] = folder.rglob("api.h")
        text = without_comments(api)
        looked_up: dict[str, str] = {}
        for source in sorted(folder.rglob("*.cpp")):
            looked_up |= {member: name for name, member in _LOOKED_UP.findall(source.read_text())}
        names = set(_CONSTANT.findall(text)) | enumerators(text)
        return Backend(
            ops,
            str(api.relative_to(ops)),
            looked_up,
            frozenset(_MEMBER.findall(text)),
            frozenset(names),
        )

    def core_names(self) -> frozenset[str]:
        """The core's element types and formats."""
        text = without_comments(self.ops / "core" / "dtype.h")
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
    """The headers of a torch_npu wheel: the folder with acl/inc and, in newer ones, hccl/inc."""

    def __init__(self, third_party: Path, version: str) -> None:
        self.version = version
        acl, hccl = third_party / "acl" / "inc", third_party / "hccl" / "inc"
        self.includes = [third_party.parent, acl, hccl]
        rooms = (acl / "acl", hccl / "hccl")
        texts = [without_comments(path) for room in rooms for path in sorted(room.rglob("*.h"))]
        self._words = frozenset(re.findall(r"\w+", " ".join(texts)))

    def has(self, name: str) -> bool:
        """Whether a name of CANN stands in the headers."""
        return name in self._words

    def should_have(self, name: str) -> bool:
        """Whether oldest_wheels.txt says so."""
        first = read_oldest().get(name, [_OLDEST])
        if first == ["none"]:
            return False
        own = _version(self.version)
        branches = [_version(text) for text in first]
        return own >= branches[-1] or any(own[:3] == at[:3] and own >= at for at in branches)


def _version(text: str) -> tuple[int, ...]:
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?", text)
    assert numbers is not None, text
    return tuple(int(number or 0) for number in numbers.groups())


def read_lines(file: str) -> list[list[str]]:
    """The words of every line of a table in tests/npu/declarations."""
    lines = (FOLDER / file).read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def read_oldest() -> dict[str, list[str]]:
    """CANN's names with the oldest wheels that have them; each release branch may have one."""
    return {name: versions for name, *versions in read_lines("oldest_wheels.txt")}


@dataclass
class Comparison:
    """The lines of compared.h; what was left out, and what is wrong with the tables."""

    lines: list[str]
    left_out: list[str]
    problems: list[str]


def compared(backend: Backend, wheel: Wheel) -> Comparison:
    """The comparisons of all names that the backend declares and the wheel has."""
    found = Comparison([], [], unnamed(backend))
    header = without_comments(backend.ops / backend.header)
    declared = backend.names | backend.core_names()
    declared |= set(re.findall(r"\b(?:using|struct) (\w+)\b", header))
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
        if not wheel.has(name) and read_oldest().get(name) == ["none"]:
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
    return problems + [f"Api::{member} is never looked up" for member in sorted(never)]


def compile_comparison(backend: Backend, wheel: Wheel, lines: list[str], folder: Path) -> str:
    """Compiles the comparison, whose header goes into `folder`; the compiler's errors, or none."""
    (folder / "compared.h").write_text("\n".join(lines) + "\n")
    compiler = os.environ.get("CXX") or shutil.which("c++") or "c++"
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    command += [f'-DAPI_HEADER="{backend.header}"', f"-I{backend.ops}", f"-I{folder}"]
    command += [f"-isystem{include}" for include in wheel.includes]
    command += [str(FOLDER / "declarations.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return done.stderr if done.returncode else ""
