"""The scale of a picture of errors: it fits most errors, and outliers are marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden.compare.plot import error_figure
from golden.operators.output_layout import OutputLayout

pytest.importorskip("matplotlib")


def figure_of(errors: list[float]) -> Any:
    """The picture of one row of errors."""
    right = np.zeros((1, len(errors)), np.float64)
    got = np.array([errors], np.float64)
    return error_figure(
        [got], [right], [got != right], "float64", layout=OutputLayout(), names=[""]
    )


def scale_of(errors: list[float]) -> tuple[Any, list[str], str]:
    """The norm of the colours, the labels of the scale, and its title."""
    panel, bar = figure_of(errors).axes
    labels = [label.get_text() for label in bar.get_yticklabels()]
    return panel.images[0].norm, labels, bar.get_ylabel()


NONE = "absolute error (grey: none"


@pytest.mark.parametrize(
    ("errors", "limits", "labels", "title"),
    [
        ([1, 2, 3, 2, 4, 1e30], (1, 4), ["1", "4"], f"{NONE}, orange: above, up to 1e+30)"),
        ([1, 2, 3, 2, 4, 1e-30], (1, 4), ["1", "4"], f"{NONE}, cyan: below, from 1e-30)"),
        ([2046, 2053], (2046, 2053), ["2046", "2053"], f"{NONE})"),
        ([1, 1 + 1e-9], (1, 1 + 1e-9), ["1", "1.0000000010000001"], f"{NONE})"),
        ([1e200, 0], None, [], f"{NONE}, orange: above, up to 1e+200)"),
        ([3, 3, 0], None, ["3"], f"{NONE})"),
        ([1] * 6 + [59486], None, ["1"], f"{NONE}, orange: above, up to 59486)"),
        ([np.inf, 0], None, [], f"{NONE}, red: infinite or NaN)"),
    ],
)
def test_the_scale_fits_most_errors(
    errors: list[float], limits: tuple[float, float] | None, labels: list[str], title: str
) -> None:
    norm, shown, said = scale_of(errors)
    assert (shown, said) == (labels, title)
    assert limits is None or (norm.vmin, norm.vmax) == limits
