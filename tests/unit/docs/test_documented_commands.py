"""Each command of README and docs/ can be run by tools/documented_commands.py, or says why not."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

import documented_commands as documented
from collops.cli.main import every_parser
from documented_commands import ROOT, Step

STEPS = [step for page in documented.pages() for step in documented.steps_of(page)]
SHELL = [step for step in STEPS if step.kind == "shell"]
RUN = [step for step in SHELL if step.reason is None]
# What a page may not ask of the machine that runs them all.
ELSEWHERE = set("apt docker kubectl mpiexec mpirun pdsh podman sbatch srun sudo".split())
TARGETS = re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def parts_of(command: str) -> list[list[str]]:
    """The words of each command of a line, without comments and the variables that are set."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if re.fullmatch(r"[|&;<>()]+", word):
            parts.append([])
        elif parts[-1] or not re.match(r"\w+=", word):
            parts[-1].append(word)
    return parts


def collops_calls() -> list[tuple[Step, list[str]]]:
    """The arguments of every `collops ...`, also of those that are not run."""
    return [
        (step, words[1:])
        for step in SHELL
        for words in parts_of(step.text)
        if words[:1] == ["collops"]
    ]


def test_there_are_commands() -> None:
    assert len(RUN) > 60
    assert len(collops_calls()) > 50


@pytest.mark.parametrize("step", RUN, ids=Step.name)
def test_what_is_run_can_run_anywhere(step: Step) -> None:
    program = documented.program_of(step.text)
    assert program not in ELSEWHERE, "it needs a mark: <!-- no-run: reason -->"
    assert program in documented.PROGRAMS or "/" in program or shutil.which(program), program


def test_nothing_else_is_left_without_a_mark() -> None:
    """A block in a language that is no program, and what a page left out without a word."""
    assert [step.name() for step in STEPS if step.kind == "source" and step.reason is None] == []
    assert [step.name() for step in STEPS if step.reason is not None and len(step.reason) < 8] == []


def test_make_has_every_target() -> None:
    targets = [(step, parts_of(step.text)[0]) for step in SHELL]
    named = [
        (step.name(), words[1]) for step, words in targets if words[:1] == ["make"] and words[1:]
    ]
    assert len(named) > 10
    assert [name for name, target in named if target not in TARGETS] == []


@pytest.mark.parametrize(
    ("step", "arguments"), collops_calls(), ids=lambda value: getattr(value, "line", "")
)
def test_collops_takes_the_options(step: Step, arguments: list[str]) -> None:
    try:
        every_parser().parse_args(arguments)
    except SystemExit as ended:
        assert ended.code == 0, step.name()


def test_scripts_that_are_run_are_there() -> None:
    """Each is a file of the tree, or the page or a command before it makes it."""
    missing = []
    for step in RUN:
        made = "".join(
            f"{each.title} {each.text}"
            for each in STEPS
            if each.page == step.page and each.line < step.line
        )
        for word in parts_of(step.text)[0]:
            if word.endswith(".py") and not (ROOT / word).exists() and word not in made:
                missing.append(step.name())
    assert missing == []


PAGE = """# A page

    make test
    collops run -n 2 train.py \\
        --epochs 3

<!-- no-run: it needs a GPU -->

    collops doctor

    y = x + 1

```python title="train.py"
print(1)
```

```console
$ false
nothing
[status 1]
$ true
```

    import collops

<!-- before: touch x -->
```sh
sleep 1 &
wait
```

<!-- pipe: 1 -->

    collops doctor | cat
    collops doctor

    collops doctor | cat
"""


def test_a_page_is_read(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    steps = documented.steps_of(path)
    assert [
        (s.line, s.kind, s.text.strip(), s.title, s.status, s.reason, s.hidden) for s in steps
    ] == [
        (3, "shell", "make test", "", 0, None, False),
        (4, "shell", "collops run -n 2 train.py \\\n    --epochs 3", "", 0, None, False),
        (9, "shell", "collops doctor", "", 0, "it needs a GPU", False),
        (14, "file", "print(1)", "train.py", 0, None, False),
        (18, "shell", "false", "", 1, None, False),
        (21, "shell", "true", "", 0, None, False),
        (24, "program", "import collops", "", 0, None, False),
        (26, "shell", "touch x", "", 0, None, True),
        (28, "shell", "sleep 1 &\nwait", "", 0, None, False),
        (34, "shell", "collops doctor | cat", "", 1, None, False),
        (35, "shell", "collops doctor", "", 0, None, False),
        (37, "shell", "collops doctor | cat", "", 0, None, False),
    ]


def test_commands_run_one_after_the_other_in_one_shell(tmp_path: Path) -> None:
    runner = documented.Runner(tmp_path / "run", limit_s=60)
    runner.enter(tmp_path / "place", clone=False)
    commands = ["export X=1; mkdir new; cd new", 'test "$X" = 1 -a "${PWD##*/}" = new', "exit 3"]
    said = [runner.run(Step("page.md", 1, "shell", command)) for command in commands]
    assert [text.splitlines()[:1] for text in said] == [[], [], ["status 3, not 0"]]
    assert runner.run(Step("page.md", 1, "shell", "false", status=1)) == ""
    assert runner.run(Step("page.md", 1, "shell", "false | true")) == "status 1, not 0"


def test_a_command_that_does_not_end_is_killed(tmp_path: Path) -> None:
    runner = documented.Runner(tmp_path, limit_s=0.3)
    assert "none after 0.3 s" in runner.run(Step("page.md", 1, "shell", "sleep 60"))
