"""Declarations of the library against a vendor's header, by a compiler."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from environment import ROOT
from patience import patience

OPS = ROOT / "ops"
FOLDER = Path(__file__).resolve().parent
COMMENT = re.compile(r"//[^\n]*")
LOOKED_UP = re.compile(r'Find(?:IfThere)?\("(\w+)",\s*&api(?:->|\.)(\w+)\)')
MEMBER = re.compile(r"\(\*(\w+)\)\(")
DECLARED = re.compile(r"^(?:using|struct) (\w+)(?= [={])", re.MULTILINE)
CONSTANT = re.compile(r"^constexpr \w+ (k\w+) =", re.MULTILINE)
ENUM = re.compile(r"enum class (\w+)[^{]*\{([^}]*)\}")
NUMBERS = (
    "char|signed char|unsigned char|short|unsigned short|int|unsigned int|long|unsigned long|"
    "long long|unsigned long long|float"
).split("|")


def given_folders(header: str) -> list[Path]:
    """The folders of GPU_HEADERS, which `make test-gpu` sets in CI, with a header."""
    folders = map(Path, filter(None, os.environ.get("GPU_HEADERS", "").split(os.pathsep)))
    return [folder for folder in folders if (folder / header).is_file()]


def include_folders(headers: tuple[str, ...], first: Path | None = None) -> list[Path]:
    """The folders with `headers`: `first`, or of GPU_HEADERS, NCCL_HOME, CUDA_HOME, nvcc, or wheels
    of PyPI; else skips."""
    nvcc = shutil.which("nvcc")
    homes = [Path(os.environ["NCCL_HOME"])] if "NCCL_HOME" in os.environ else []
    homes += [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]
    homes += [Path(nvcc).resolve().parent.parent] if nvcc else []
    folders = [first] if first is not None else []
    folders += [folder for header in headers for folder in given_folders(header)]
    folders += [home / "include" for home in homes]
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        folders += sorted(Path(place).glob("*/include"))
    found = []
    for header in headers:
        folder = next((folder for folder in folders if (folder / header).is_file()), None)
        if folder is None:
            pytest.skip(
                f"no {header} here: neither GPU_HEADERS, NCCL_HOME, CUDA_HOME, nvcc nor a wheel "
                "has one"
            )
        found += [folder] if folder not in found else []
    return found


@dataclass(frozen=True)
class Comparison:
    """The files of one comparison; those of the library are relative to ops/."""

    name: str  # NAME.txt lists the names
    headers: tuple[str, ...]  # the vendor's, and what it includes of other packages
    folder: str
    types: str  # the file of the types, enumerations and constants
    api: str  # the file of the table of functions
    table: str
    load: str  # the file in which the functions are looked up
    namespace: str  # every name of ours is from there
    before: str = ""  # what stands before the vendor's header
    theirs: str = ""  # what else is declared of the vendor's
    more: str = ""  # what else is true

    def names(self) -> list[list[str]]:
        """The lines of NAME.txt, as words."""
        lines = (FOLDER / f"{self.name}.txt").read_text().splitlines()
        return [line.split() for line in lines if line and not line.startswith("#")]

    def text(self, ops: Path, file: str) -> str:
        return COMMENT.sub("", (ops / self.folder / file).read_text())

    def functions(self, ops: Path) -> dict[str, str]:
        """The members of the table, with the names by which they are looked up."""
        found = LOOKED_UP.findall(self.text(ops, self.load))
        assert len(found) == len({member for _, member in found})
        return {member: name for name, member in found}

    def program(self, ops: Path) -> str:
        """What is only compiled: a difference is an error of the compiler."""
        lines = [self.before, f"#include <{self.headers[0]}>"]
        lines += [f'#include "{self.folder}/{self.types}"', '#include "same.h"']
        lines += ["namespace declarations {", f"using namespace {self.namespace};", self.theirs]
        lines += [*self.plain(), *self.compared(ops), self.more, "}"]
        return "\n".join(lines) + "\n"

    def plain(self) -> list[str]:
        """How each type travels."""
        travels = {number: f"decltype(Travelling<{number}>())" for number in NUMBERS}
        for kind, ours, theirs in self.names():
            if kind in ("enum", "struct", "beginning"):
                travels[ours] = travels[theirs] = f"std::tuple<{ours}, int>"
            elif kind == "opaque":
                travels[theirs] = "Plain<void*>::type"
        return [
            f"template <>\nstruct Plain<{name}> {{\n  using type = {same};\n}};"
            for name, same in travels.items()
        ]

    def compared(self, ops: Path) -> list[str]:
        """An assertion for each name."""
        true = [
            f"kSame<decltype({self.table}::{member}), decltype(&{name})>"
            for member, name in self.functions(ops).items()
        ]
        structs = {ours: theirs for kind, ours, theirs in self.names() if kind != "field"}
        for kind, ours, theirs in self.names():
            if kind == "value":
                true.append(f"Equal({ours}, {theirs})")
            elif kind == "oldest":
                true.append(f"static_cast<int64_t>({ours}) <= static_cast<int64_t>({theirs})")
            elif kind == "field":
                struct, field = ours.split(".")
                where = f"{structs[struct]}, {theirs}"
                true.append(f"offsetof({struct}, {field}) == offsetof({where})")
                theirs = f"{structs[struct]}::{theirs}"
                true.append(f"sizeof({struct}::{field}) == sizeof({theirs})")
            elif kind == "callback":
                true.append(f"kSame<{ours}, {theirs}>")
            elif kind == "beginning":
                true.append(f"sizeof({ours}) <= sizeof({theirs})")
                true.append(f"alignof({ours}) == alignof({theirs})")
            else:
                true.append(f"kSameRoom<{ours}, {theirs}>")
        return [f"static_assert({condition});" for condition in true]

    def errors(self, ops: Path, folder: Path, first: Path | None = None) -> str:
        """Compiles the program, which it writes in `folder`; the compiler's errors, or none.

        `first`: where the vendor's headers are looked for before all other places.
        """
        (folder / "main.cpp").write_text(self.program(ops))
        compiler = os.environ.get("CXX") or "c++"
        command = [compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Werror"]
        command += [f"-I{place}" for place in (ops, OPS, FOLDER)]
        command += [f"-isystem{place}" for place in include_folders(self.headers, first)]
        command += [str(folder / "main.cpp")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(100))
        return done.stderr if done.returncode else ""

    def changed(self, ops: Path, right: str, wrong: str) -> Path:
        """A copy in `ops` of the files that are compared, with another text in one of them."""
        shutil.copytree(OPS / self.folder, ops / self.folder)
        files = {self.types, self.api, self.load}
        [path] = [
            ops / self.folder / file
            for file in files
            if right in (OPS / self.folder / file).read_text()
        ]
        text = path.read_text()
        assert text.count(right) == 1, right
        path.write_text(text.replace(right, wrong))
        return ops

    def unnamed(self, ops: Path) -> set[str]:
        """What is declared and NAME.txt lacks, and functions that are never looked up."""
        text = self.text(ops, self.types)
        declared = set(DECLARED.findall(text)) | set(CONSTANT.findall(text))
        for kind, body in ENUM.findall(text):
            declared |= {kind} | {f"{kind}::{name}" for name in re.findall(r"\b(k\w+)\b", body)}
        members = set(MEMBER.findall(self.text(ops, self.api)))
        named = {words[1] for words in self.names()} | {self.table}
        return (declared - named) | (members ^ self.functions(ops).keys())
