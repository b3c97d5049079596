"""Reads, compares and writes the file of the messages that are expected."""

from __future__ import annotations

import re
from pathlib import Path

from tests.messages.scene import Heard

REPORTED = re.compile(r" \(reported by rank (\d+)\)")
PAIR = re.compile(
    r"is (.+?) (on rank \d+(?: \(pid <\d+>\))?) and (.+?) (on rank \d+(?: \(pid <\d+>\))?)"
)
HEADER = """\
# Every message that ranks hear when a call fails, by scene, case and rank: the error's code and
# its text ("0": no error). "pid <N>" is the process of rank N. Several lines of one rank: any of
# them, as it depends on who comes first. Where a scene says "racing" and a text "(reported by
# rank N)", each of the ranks may be the one that finds it; the finder names itself first.
# Written by: COLLOPS_UPDATE_MESSAGES=1 python -m pytest {test}
# (COLLOPS_UPDATE_MESSAGES=add keeps what is there and adds what is new.)
"""


def read(path: Path) -> dict[str, Heard]:
    """The scenes of a file."""
    scenes: dict[str, Heard] = {}
    heard: Heard = {}
    case = ""
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith("== "):
            heard = scenes.setdefault(line[3:], {})
        elif line.startswith("  "):
            ranks, text = line.strip().split(": ", 1)
            for rank in ranks.removeprefix("rank ").removeprefix("ranks ").split(", "):
                heard.setdefault(case, {}).setdefault(int(rank), []).append(text)
        elif line and not line.startswith("#"):
            case = line
    return scenes


def write(path: Path, test: str, scenes: dict[str, Heard]) -> None:
    """Replaces the file."""
    lines = [HEADER.format(test=test)]
    for name, heard in scenes.items():
        lines.append(f"\n== {name}\n")
        for case, ranks in heard.items():
            lines.append(f"{case}\n")
            by_text: dict[str, list[int]] = {}
            for rank in sorted(ranks):
                for text in sorted(ranks[rank]):
                    by_text.setdefault(text, []).append(rank)
            for text, who in by_text.items():
                label = "rank" if len(who) == 1 else "ranks"
                lines.append(f"  {label} {', '.join(map(str, who))}: {text}\n")
    path.write_text("".join(lines))


def is_accepted(text: str, rank: int, ranks: dict[int, list[str]], racing: bool) -> bool:
    """Whether a rank may hear that, where a case's texts are these."""
    own = ranks.get(rank, [])
    if text in own or not racing:
        return text in own
    # Only where one rank may report what another one has found.
    if not any(REPORTED.search(one) for one in [text, *own]):
        return False
    return said(text) in [said(one) for texts in ranks.values() for one in texts]


def said(text: str) -> str:
    """The finding, without who found it and in whose call, with the lower rank first."""
    return PAIR.sub(in_order, REPORTED.sub("", text).partition(": ")[2])


def in_order(match: re.Match[str]) -> str:
    one, other = (match[1], match[2]), (match[3], match[4])
    first, second = sorted([one, other], key=lambda side: side[1])
    return f"is {first[0]} {first[1]} and {second[0]} {second[1]}"


def differences(heard: Heard, expected: Heard, racing: bool) -> list[str]:
    """Two texts: the unexpected messages, and the expected messages that are missing."""
    found = []
    for case in [*expected, *(case for case in heard if case not in expected)]:
        accepted, spoken = expected.get(case, {}), heard.get(case, {})
        for rank in sorted({*accepted, *spoken}):
            texts = spoken.get(rank, [])
            wrong = [text for text in texts if not is_accepted(text, rank, accepted, racing)]
            if wrong or not texts:
                listed = "\n    or ".join(accepted.get(rank, ["nothing"]))
                got = "\n     + ".join(wrong) or "nothing"
                found.append(f"{case}, rank {rank}:\n  got {got}\n  not {listed}")
    return found


def tidied(heard: Heard) -> Heard:
    """Of a racing scene: without what is accepted as long as the rest is listed."""
    tidy: Heard = {}
    for case, ranks in heard.items():
        kept = {rank: list(texts) for rank, texts in ranks.items()}
        for rank, texts in kept.items():
            for text in list(filter(REPORTED.search, texts)):
                others = {**kept, rank: [one for one in texts if one != text]}
                if others[rank] and is_accepted(text, rank, others, racing=True):
                    texts.remove(text)
        tidy[case] = kept
    return tidy
