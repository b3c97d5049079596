"""The program collops: its commands, and what runs the one that the first argument names."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import collops
from collops.terminal import Progress
from collops.terminal.arguments import Parser, status_of_command, subparsers
from collops.terminal.streams import OutputError, standard_streams


class Command(NamedTuple):
    """A command: its purpose, and the module with its main() and parser(), imported when called."""

    purpose: str
    module: str


COMMANDS = {
    "run": Command("start the ranks of a job on this host", "cli.run"),
    "golden": Command(
        "run golden's cases and ATB's case files, compare tensors, explain differences", ""
    ),
    "rank-table": Command("check an HCCL rank table, or make one", "cli.rank_table"),
    "doctor": Command("list what works on this machine, what does not, and why", "cli.doctor"),
    "npu-check": Command(
        "check the backend hccl on this machine's NPUs, and write a report", "npu_check.command"
    ),
    "bench": Command("measure operators on one or more hosts, next to MPI, gloo and torch", ""),
    "trace": Command(
        "merge the traces of a run's ranks, and list the calls with late ranks", "cli.trace"
    ),
    "tune": Command(
        "measure the sizes at which AllReduce should switch its algorithm on this machine",
        "bench.tune",
    ),
    "plan": Command(
        "predict the cost of a call on many hosts, and which limit it reaches first",
        "plan.command",
    ),
    "c-flags": Command("print what a C compiler needs for collops_c.h", "cli.c_flags"),
    "completion": Command("print the completion script for bash, zsh or fish", "cli.completion"),
    "demo": Command(
        "run a transformer layer over an uneven batch, and compare it with one process",
        "demo.__main__",
    ),
}
GOLDEN_COMMANDS = {
    "run": "run cases or case files on several ranks, and compare with golden",
    "list": "print golden's own cases, or the rows of case files",
    "generate": "write golden's cases: one .npz each, and manifest.json",
    "compare": "compare two files of tensors, and explain a difference",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    program = " ".join(["collops", *given[:1]])
    try:
        with standard_streams(passes_on=given[:1] == ["run"]):
            return _run(program, given)
    except OutputError as failed:
        if failed.unread:
            return 128 + signal.SIGPIPE  # as a program that ends by it, without a word
        print(f"{program}: standard output: {failed.reason}", file=sys.stderr)
        return 1


def _run(program: str, arguments: Sequence[str]) -> int:
    name = _chosen(_parser(), arguments)
    if name is None:
        return 2
    return status_of_command(program, lambda: int(_main_of(name)(arguments[1:])))


def _main_of(name: str) -> Callable[[Sequence[str]], int]:
    own = {"golden": _golden, "bench": _bench}.get(name)
    return own or _module(COMMANDS[name].module).main


def _golden(arguments: Sequence[str]) -> int:
    """Runs one of golden's commands; only `run` needs the core."""
    word = _chosen(_golden_parser(), arguments)
    if word is None:
        return 2
    if word == "run":
        return int(_module("golden_run.command").main(arguments[1:]))
    progress: list[Progress] = []

    def show(done: int, total: int) -> None:
        if not progress:
            progress.append(Progress(total))
        progress[0].show(done, "cases written")
        if done == total:
            progress[0].clear()

    return int(_module("golden.__main__").main(arguments, show, Parser))


def _bench(arguments: Sequence[str]) -> int:
    """Runs one benchmark."""
    spelling = _module("golden.operators.spelling")
    name = _chosen(_bench_parser(), [spelling.operator_name(word) for word in arguments[:1]])
    if name is None:
        return 2
    if name == "cpp":
        return int(_module("bench.programs").main(arguments[1:]))
    return int(_module("bench.command").main(name, arguments[1:]))


def every_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line, in which every command has its options."""
    golden = subparsers(_module("golden.__main__").parser_of("collops golden"))
    run = _module("golden_run.command").parser()
    bench = _module("bench.operators")
    own = {name: _module("bench.options").parser_of(bench.load(name)) for name in bench.OPERATORS}
    cpp = _module("bench.programs").parser()
    parsers = {
        name: _module(command.module).parser()
        for name, command in COMMANDS.items()
        if command.module
    }
    # Without the other name of generate, which only `python -m golden` takes.
    known = {word: golden[word] for word in GOLDEN_COMMANDS if word in golden}
    parsers["golden"] = _complete(_golden_parser(), {"run": run, **known})
    parsers["bench"] = _complete(_bench_parser(), {**own, "cpp": cpp})
    return _complete(_parser(), parsers)


def _parser() -> Parser:
    """The parser of the command's name."""
    parser = _parser_of_words(
        "collops",
        "Uneven collectives, the same on CPUs, GPUs and NPUs.",
        "COMMAND",
        {name: command.purpose for name, command in COMMANDS.items()},
    )
    parser.add_argument("--version", action="version", version=f"collops {collops.__version__}")
    return parser


def _golden_parser() -> Parser:
    purpose = "Lists, writes and runs the operators' reference cases, and compares tensors."
    return _parser_of_words("collops golden", purpose, "COMMAND", GOLDEN_COMMANDS)


def _bench_parser() -> Parser:
    words = {
        **_module("bench.operators").OPERATORS,
        "cpp": "the same calls from C++, in turn with those of MPIs",
    }
    purpose = "Measures operators on one host or several, beside other libraries."
    return _parser_of_words("collops bench", purpose, "BENCH", words)


def _parser_of_words(
    program: str, description: str, metavar: str, words: Mapping[str, str]
) -> Parser:
    """A parser of the word that follows `program`; `words` have their purposes."""
    epilog = f"Run '{program} {metavar} --help' for details."
    parser = Parser(prog=program, description=description, epilog=epilog)
    choices = parser.add_subparsers(dest="word", metavar=metavar)
    for word, purpose in words.items():
        choices.add_parser(word, help=purpose, add_help=False)
    return parser


def _chosen(parser: Parser, arguments: Sequence[str]) -> str | None:
    """The first argument; without arguments None, after printing the help to stderr."""
    word: str | None = parser.parse_args(arguments[:1]).word
    if word is None:
        parser.print_help(sys.stderr)
    return word


def _complete(parser: Parser, parsers: Mapping[str, argparse.ArgumentParser]) -> Parser:
    """The parser with those of its words, which else parse their own arguments later."""
    subparsers(parser).update(parsers)
    return parser


def _module(name: str) -> Any:
    return importlib.import_module(f"collops.{name}")
