"""A peer's text is read within its place and is a text in Python, whatever the peer wrote there."""

from __future__ import annotations

import os

from collops.testing import run_ranks
from patience import patience
from tests.faults.lying_texts import lie, tell

PEER_LOST, MISMATCH, ABORTED = 101, 102, 104
CODES = {"leaves": PEER_LOST, "aborts": ABORTED, "refuses": MISMATCH, "refuses a message": MISMATCH}
PLACE_BYTES = 1024
STRANGE = "\N{REPLACEMENT CHARACTER}"


def test_bytes_without_an_end_that_are_no_text() -> None:
    heard, overwritten = run_ranks(lie, 2, os.pipe(), os.pipe(), timeout=patience(60))
    assert all(texts == 1 for texts, _ in overwritten.values()), overwritten
    for case, code in CODES.items():
        assert heard[case][0] == code, heard[case]
        message = heard[case][1]
        assert "rank 1" in message
        assert PLACE_BYTES // 2 < message.count(STRANGE) < PLACE_BYTES
        assert len(message) < 2 * PLACE_BYTES
        assert message.encode().decode() == message


def test_exceptions_whose_text_is_none() -> None:
    heard = run_ranks(tell, 2, os.pipe(), timeout=patience(60))[0]
    assert len(heard) == 6
    for case, (code, message) in heard.items():
        assert code == CODES[case.partition(",")[0]], (case, message)
        word = r"\udcff" if "file" in case else "Unprintable"
        assert word in message or case == "aborts, no text at all", (case, message)
