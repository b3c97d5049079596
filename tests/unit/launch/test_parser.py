"""A misspelt command, word or option gets one line that says which one is meant."""

from __future__ import annotations

import pytest

from collops.cli import main
from collops.cli.main import COMMANDS
from collops.terminal.arguments import Parser, meant
from tests import programs


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pln", "collops: argument COMMAND: invalid choice: 'pln', did you mean 'plan'?"),
        (
            "golden rn",
            "collops golden: argument COMMAND: invalid choice: 'rn', did you mean 'run'?",
        ),
        ("bench all_gatherx", "invalid choice: 'all_gatherx', did you mean 'all_gather'?"),
        ("trace sumary x", "invalid choice: 'sumary', did you mean 'summary'?"),
        ("completion bsh", "invalid choice: 'bsh', did you mean 'bash'? (choose from bash,"),
        ("golden run --tolerance loose x.csv", "'loose' (choose from golden, atb); see collops"),
        ("golden list --oop send", "unrecognized arguments: --oop, did you mean '--op'?"),
        ("run -n 2 --timeout=3 a.py", "arguments: --timeout=3, did you mean '--timeout-s'?"),
        ("tune --quik", "collops tune: unrecognized arguments: --quik, did you mean '--quick'?"),
        ("bench torch --way sync", "unrecognized arguments: --way sync, did you mean '--ways'?"),
        ("run plain.py -n 3", "-n must come before SCRIPT: what follows plain.py is passed to it"),
        ("run plain.py", "collops run: one of the arguments -n --rank-table is required"),
        ("run -np 2 plain.py", "collops run: -np: write -n 2; see collops run --help"),
        ("run --nproc 2 plain.py", "collops run: unknown option --nproc: did you mean -n?"),
        ("run --np=2 plain.py", "collops run: unknown option --np: did you mean -n?"),
        ("doctor --verbose", "collops doctor: unrecognized arguments: --verbose; see collops"),
        ("rank-table make --host a,b", "there is no --host, did you mean '--hosts'?"),
        ("golden compare a.npy b.npy --opp x --dtype f32", "--opp x, did you mean '--op'?"),
        ("bench all_reduce --op add", "all_reduce: unrecognized arguments: --op add; see collops"),
        ("bench torch --calls alreduce", "barrier, ddp, fsdp2, fsdp2_windows; did you mean"),
        ("bench all_reduce --dtype float23", "f16/float16; did you mean 'float32'?"),
        ("run a.py -n 2", "-n must come before SCRIPT: what follows a.py is passed to it"),
        ("rank-table make --hosts a --devices-per-host 0", "of 1 or more is needed, got '0'"),
        (
            "run -n 2 no.py",
            "collops run: no.py: no such script; pass -m for a module, --no-python for another",
        ),
        ("trace summary no.json", "collops trace: no.json: No such file or directory\n"),
        (
            "golden list --op allreduce",
            "collops golden list: operator 'allreduce' is unknown; use one of all_gather_v, ",
        ),
        ("golden compare a b --op send --dtype f33", "int64/i64, bool; did you mean 'f32'?"),
        (
            "golden compare a b --op send --dtype f33",
            "collops golden compare: argument --dtype: dtype 'f33' is unknown; ",
        ),
        ("golden compare a b --op send --dtype f8", "dtype 'f8' is unknown; use one of"),
        ("golden compare a b --op send --dtype uint32", "dtype 'uint32' is unknown; use one of"),
        (
            "golden list --dtype f32",
            "collops golden list: unrecognized arguments: --dtype; see collops golden list --help",
        ),
        (
            "trace summary x --tip 3",
            "collops trace summary: unrecognized arguments: --tip 3, did you mean '--top'?",
        ),
        (
            "trace summary x --top 0",
            "trace summary: argument --top: a whole number of 1 or more is",
        ),
        ("bench linear", "invalid choice: 'linear', did you mean 'linear_parallel'? (choose from"),
        ("golden gen x", "invalid choice: 'gen', did you mean 'generate'? (choose from"),
        ("golden compare a b --tol 1", "arguments: --tol 1, did you mean '--tolerance'?; see"),
        ("golden compare a b --op sned", "; did you mean 'send'?"),
        ("bench cpp --calls all_reduc:f32", "send_recv, send; did you mean 'all_reduce'?; see"),
        ("bench cpp --settings hepa", "default, heap, tuned, shm_heap; did you mean 'heap'?; see"),
        ("plan --hosts 2 --op all_gatherv --bytes 1q", "k, m or g, is needed, got '1q'"),
        ("bench all_gather --sizes 1q", "k, m or g, is needed, got '1q'"),
    ],
)
def test_what_is_misspelt_is_told_in_one_line(words: str, said: str) -> None:
    done = programs.run_forked(main, words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("word", "known", "one"),
    [
        ("--tol", ["--tolerance", "--top"], "--tolerance"),
        ("--opt", ["--op", "--options", "--optimum"], "--op"),
        ("SED", ["Send", "Recv"], "Send"),
        ("TOL", ["Tolerance"], "Tolerance"),
        ("to", ["tolerance"], ""),
    ],
)
def test_the_beginning_of_one_word_goes_before_likeness(
    word: str, known: list[str], one: str
) -> None:
    assert meant(word, known) == (one and f"did you mean {one!r}?")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_this_parser(name: str) -> None:
    done = programs.run_forked(main, [name, "--no-such-option"])
    assert done.returncode == 2
    assert done.stderr.endswith("--help\n")
    assert done.stderr.count("\n") == 1


def test_words_of_a_program_are_its_own() -> None:
    parser = Parser(prog="start")
    parser.add_argument("--ranks")
    parser.add_argument("program", nargs="...")
    assert parser.parse_args(["a.py", "--rank"]).program == ["a.py", "--rank"]


@pytest.mark.parametrize(
    "words",
    [
        "golden list --op {} --filter p2.shares-even",
        "bench {} --help",
        "plan --hosts 2 --op {} --bytes 1k",
    ],
)
def test_an_operator_has_the_spelling_of_its_method_too(words: str) -> None:
    own, method = (
        programs.run_forked(main, words.format(name).split())
        for name in ("all_gather_v", "all_gatherv")
    )
    assert (own.returncode, method.returncode) == (0, 0)
    assert own.stdout == method.stdout


_FLOATS = ("f32", "F32", "fp32", "float", "float32", "FLOAT32", "half", "bf16")
# bench measures floating-point types alone.
_TAKES_DTYPE = {
    "plan --hosts 2 --op all_gatherv --bytes 1k --dtype {}": (*_FLOATS, "i8", "fp64"),
    "golden compare no.npy no.npy --op send --dtype {}": (*_FLOATS, "i8", "fp64"),
    "bench all_gather --peers none --json no/no.json --dtype {}": _FLOATS,
}


@pytest.mark.parametrize(
    ("words", "word"), [(words, word) for words, each in _TAKES_DTYPE.items() for word in each]
)
def test_every_command_takes_the_same_words_of_an_element_type(words: str, word: str) -> None:
    done = programs.run_forked(main, words.format(word).split())
    # The files are not there, which is told once the words are read.
    assert "dtype" not in done.stderr
    assert done.returncode == (0 if words.startswith("plan") else 2)
