"""Runs every command and program of README and docs/ in an empty environment: `make docs-commands`.

README comes first, in a clone of this repository and a HOME that is empty: it installs what the
other pages use. Each further page has a clone of its own. In a page:

- an indented or fenced block of commands is run line by line in one shell; one of a console, whose
  commands stand behind `$ `, has their output too, and `[status 1]` where one is to fail;
- a block with a title is a file of that name;
- any other block of Python is a program; those of a tutorial build on each other, and are one;
- `<!-- no-run: reason -->` leaves out the block below it;
- `<!-- before: command -->`, which no reader sees, makes what a command needs;
- `<!-- pipe: 1 -->` is the status of the pipes in the block below it, where a command is to fail.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(tempfile.gettempdir()) / "collops-documented"  # outside of every checkout
URL = "URL-OF-THIS-REPOSITORY"  # as README has it: the clone is one of this tree
# The programs of the commands in indented blocks, which have no other mark of a language.
PROGRAMS = (
    ". apt cat cc cd cmake collops cp ctest docker eval export g++ git kubectl make mkdir "
    "mpiexec mpirun pdsh pip pkg-config podman python python3 sbatch sed sh srun sudo torchrun"
).split()
SHELL = {"sh", "bash", "console"}
SOURCE = {"python", "c", "cpp", "cmake"}
MARK = re.compile(r"\s*<!-- (no-run|before|pipe): (.+?) -->\s*$")
FENCE = re.compile(r"```(\w*)(?: title=\"([^\"]+)\")?\s*$")
# One command in the environment that the commands before it have left behind. Without pipefail the
# last command of a pipe would hide that another one fails.
SHELL_PROGRAM = """
state=$1
[ -f "$state" ] && . "$state"
set -o pipefail
eval "$2"
set -- $?
export -p > "$state"; printf 'cd %q\\n' "$PWD" >> "$state"
exit $1
"""
TAIL = 15  # lines of what has failed


@dataclass(frozen=True)
class Step:
    """What one page asks of its reader at one place."""

    page: str
    line: int
    kind: str  # "shell", "file", "program", or "source": one that is neither
    text: str
    title: str = ""
    status: int = 0
    reason: str | None = None  # why it is left out
    hidden: bool = False

    def name(self) -> str:
        """The command, or the first line of a program."""
        first = next((line for line in self.text.splitlines() if line.strip()), "")
        return f"{self.page}:{self.line}: {self.title or first.strip()}"


def pages() -> list[Path]:
    """README and what it leads to; a page in Chinese has the blocks of its twin, by a test."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]
    return [page for page in found if ".zh-CN" not in page.name]


def program_of(command: str) -> str:
    """The program of a command, behind the variables that are set for it."""
    words = re.sub(r"^(\w+=(\"[^\"]*\"|\S*) +)*", "", command.strip()).split()
    return words[0] if words else ""


def is_command(line: str) -> bool:
    """Whether a line of a block without a language is a command, not what a program says."""
    says = re.match(r"collops( [a-z-]+)?( \d|:)", line)
    return line.startswith("$ ") or (program_of(line) in PROGRAMS and not says)


def is_python(text: str) -> bool:
    """Whether an indented block is Python rather than a formula: it imports or calls."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return False
    return any(
        isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        for node in body
    )


def commands_of(lines: list[str], begin: int) -> Iterator[tuple[int, str, int]]:
    """The commands of a block, each with its line and the status that is shown behind it."""
    console = any(line.startswith("$ ") for line in lines)
    found: list[tuple[int, str, int]] = []
    joined = False
    for number, line in enumerate(lines, begin):
        status = re.fullmatch(r"\[status (\d+)\]", line)
        if console and not line.startswith("$ ") and not joined:
            if status and found:
                found[-1] = (*found[-1][:2], int(status[1]))
            continue
        command = line.removeprefix("$ ") if console else line
        if joined:
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{command}", 0)
        elif command.strip() and not command.startswith("#"):
            found.append((number, command, 0))
        joined = line.endswith(("\\", " &"))
    yield from found


class Reader:
    """Reads the steps of one page."""

    def __init__(self, path: Path) -> None:
        self.page = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
        self.lines = path.read_text().splitlines()
        self.reason: str | None = None
        self.pipe = 0

    def steps(self) -> Iterator[Step]:
        """All steps in their order."""
        number = 0
        while number < len(self.lines):
            line = self.lines[number]
            if mark := MARK.match(line):
                if mark[1] == "before":
                    yield Step(self.page, number + 1, "shell", mark[2], hidden=True)
                elif mark[1] == "pipe":
                    self.pipe = int(mark[2])
                else:
                    self.reason = mark[2]
                number += 1
                continue
            end = number + 1
            if line.lstrip().startswith("```"):
                while not self.lines[end].lstrip().startswith("```"):
                    end += 1
                yield from self._fenced(number, end)
                end += 1
                self.reason, self.pipe = None, 0
            elif line.startswith("    ") and (number == 0 or not self.lines[number - 1].strip()):
                while end < len(self.lines) and self.lines[end].startswith("    "):
                    end += 1
                yield from self._indented(number, end)
                self.reason, self.pipe = None, 0
            elif line.strip():
                self.reason, self.pipe = None, 0
            number = end

    def _fenced(self, number: int, end: int) -> Iterator[Step]:
        opening = FENCE.match(self.lines[number].lstrip())
        language, title = opening.groups() if opening else ("", None)
        body = self.lines[number + 1 : end]
        text = "".join(f"{line}\n" for line in body)
        if title and self.reason is None:
            yield Step(self.page, number + 2, "file", text, title)
        elif language in SHELL or (language in {"", "text"} and is_command("".join(body[:1]))):
            yield from self._commands(body, number + 2)
        elif language in SOURCE:
            kind = "program" if language == "python" else "source"
            yield Step(self.page, number + 2, kind, text, reason=self.reason)

    def _indented(self, number: int, end: int) -> Iterator[Step]:
        body = [line[4:] for line in self.lines[number:end]]
        if is_command(body[0]):
            yield from self._commands(body, number + 1)
        elif is_python(text := "".join(f"{line}\n" for line in body)):
            yield Step(self.page, number + 1, "program", text, reason=self.reason)

    def _commands(self, body: list[str], begin: int) -> Iterator[Step]:
        for line, command, shown in commands_of(body, begin):
            status = self.pipe if " | " in command else shown
            yield Step(self.page, line, "shell", command, status=status, reason=self.reason)


def steps_of(path: Path) -> list[Step]:
    """The steps of a page; the programs of a tutorial are one, at the place of the last."""
    steps = list(Reader(path).steps())
    programs = [step for step in steps if step.kind == "program" and step.reason is None]
    if path.parent.name != "tutorials" or not programs:
        return steps
    whole = Step(programs[0].page, programs[0].line, "program", "".join(s.text for s in programs))
    return [whole if step is programs[-1] else step for step in steps if step not in programs[:-1]]


class Runner:
    """Runs steps in a folder: clones, a HOME, and what the shell keeps from one to the next."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self.folder = folder
        self.limit_s = limit_s
        self.state = folder / "state"
        self.log = folder / "log"
        (folder / "home").mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        """A PATH without this interpreter's environment, and where pip finds packages."""
        own = os.path.dirname(sys.executable)
        path = [part for part in os.environ["PATH"].split(os.pathsep) if part != own]
        return {
            **{key: text for key, text in os.environ.items() if key.lower().endswith("_proxy")},
            **pip_settings(),
            "PATH": os.pathsep.join(path),
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
        }

    def enter(self, place: Path, clone: bool) -> None:
        """Makes the folder of a page the shell's."""
        if clone and not place.exists():
            subprocess.run(["git", "clone", "-q", "--shared", ROOT, place], check=True)
        place.mkdir(parents=True, exist_ok=True)
        with self.state.open("a") as file:
            file.write(f"cd {shlex.quote(str(place))}\n")

    def run(self, step: Step) -> str:
        """Runs one step; returns "" or what has failed."""
        if step.kind == "file":
            self._shell(
                f"cat > {shlex.quote(step.title)} <<'END-OF-FILE'\n{step.text}END-OF-FILE\n"
            )
            return ""
        if step.kind == "source":
            return "no program runs this: give it a title, or a mark with the reason"
        if step.kind == "shell":
            command = step.text.replace(URL, shlex.quote(str(ROOT)))
        else:
            script = self.folder / "program.py"
            script.write_text("\n" * (step.line - 1) + step.text)
            command = f"python {shlex.quote(str(script))}"
        status, output = self._shell(command)
        if status == step.status:
            return ""
        return "\n".join([f"status {status}, not {step.status}", *output.splitlines()[-TAIL:]])

    def _shell(self, command: str) -> tuple[int | str, str]:
        process = subprocess.Popen(
            ["bash", "-c", SHELL_PROGRAM, "bash", self.state, command],
            env=self.environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        status: int | str
        try:
            output, _ = process.communicate(timeout=self.limit_s)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            status = f"none after {self.limit_s:g} s"
        with self.log.open("a") as file:
            file.write(f"$ {command}\n{output}[status {status}]\n")
        return status, output


def pip_settings() -> dict[str, str]:
    """What this machine's pip is told, as variables: the empty HOME has no file of it."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = re.findall(
        r"^(?:global|user|site|:env:)\.([\w-]+)='(.*)'$", listed.stdout, re.MULTILINE
    )
    return {f"PIP_{key.upper().replace('-', '_')}": text for key, text in found}


def run_page(runner: Runner, path: Path) -> tuple[list[int], list[str], list[str]]:
    """Runs a page: how many steps ran, failed, were left out; those that failed; the others."""
    counts, failures, left_out = [0, 0, 0], [], []
    is_first = path.name == "README.md" and path.parent == ROOT
    name = "readme" if is_first else re.sub(r"\W", "_", str(path.relative_to(ROOT)))
    runner.enter(runner.folder / name, clone=not is_first)
    for step in steps_of(path):
        if step.reason is not None:
            counts[2] += 1
            left_out.append(f"{step.name()}\n    {step.reason}")
            continue
        begin = time.monotonic()
        failed = runner.run(step)
        if not step.hidden or failed:
            counts[1 if failed else 0] += step.kind != "file"
        if failed:
            failures.append(f"{step.name()}\n{failed}")
        if step.kind != "file":
            word = "FAILED" if failed else "ran"
            print(f"{word:>6} {time.monotonic() - begin:6.1f} s  {step.name()}", flush=True)
    return counts, failures, left_out


def main() -> int:
    """Runs the pages, README first; 1 if something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "pages", nargs="*", type=Path, help="some pages, after a whole run in FOLDER"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="new, or of a run")
    parser.add_argument("--limit-s", type=float, default=1200, help="the time of one command")
    arguments = parser.parse_args()
    runner = Runner(arguments.folder.resolve(), arguments.limit_s)
    chosen = [page.resolve() for page in arguments.pages] or pages()
    if not arguments.pages and runner.state.exists():
        parser.error(f"{runner.folder} is not empty: remove it for a whole run")
    rows, failures, left_out = [], [], []
    for path in chosen:
        counts, failed, left = run_page(runner, path)
        rows.append((str(path.relative_to(ROOT)), counts))
        failures += failed
        left_out += left
    print("\nLeft out, and why:\n")
    print("\n".join(left_out))
    print("\nFailed:\n" if failures else "")
    print("\n".join(failures))
    print(f"\n{'page':40} {'ran':>5} {'failed':>6} {'left out':>8}")
    for name, counts in [*rows, ("all", [sum(c) for c in zip(*(c for _, c in rows), strict=True)])]:
        if any(counts):
            print(f"{name:40} {counts[0]:5} {counts[1]:6} {counts[2]:8}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
