"""The scale of a picture of errors: it fits most errors, and outliers are marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden.compare.limits import robust_limits
from golden.compare.plot import error_figure
from golden.operators.output_layout import OutputLayout

pytest.importorskip("matplotlib")


def figure_of(errors: list[float]) -> Any:
    """The picture of one row of errors."""
    right = np.zeros((1, len(errors)), np.float64)
    got = np.array([errors])
    return error_figure(
        [got], [right], [got != right], "float64", layout=OutputLayout(), names=[""]
    )


def colours_of(errors: list[float]) -> list[tuple[float, ...]]:
    """The colour of each error."""
    image = figure_of(errors).axes[0].images[0]
    return [tuple(colour) for colour in image.cmap(image.norm(image.get_array()))[0].tolist()]


def scale_of(errors: list[float]) -> tuple[Any, list[str], str]:
    """The norm of the colours, the labels of the scale, and its title."""
    panel, bar = figure_of(errors).axes
    labels = [label.get_text() for label in bar.get_yticklabels()]
    return panel.images[0].norm, labels, bar.get_ylabel()


def test_one_outlier_does_not_stretch_the_scale() -> None:
    norm, labels, title = scale_of([1.0, 2.0, 3.0, 2.0, 4.0, 1e30])
    assert (norm.vmin, norm.vmax) == (1.0, 4.0)
    assert labels == ["1", "4"]
    assert "orange: above, up to 1e+30" in title


def test_a_small_outlier_does_not_either() -> None:
    norm, _, title = scale_of([1.0, 2.0, 3.0, 2.0, 4.0, 1e-30])
    assert (norm.vmin, norm.vmax) == (1.0, 4.0)
    assert "above" not in title
    assert "cyan: below, from 1e-30" in title


def test_an_error_below_the_scale_has_a_colour_of_its_own() -> None:
    _, labels, title = scale_of([2046.0, 2050.0, 2053.0, 2046.0, 2051.0, 1.0])
    assert labels == ["2046", "2053"]
    assert title == "absolute error (grey: none, cyan: below, from 1)"
    colours = colours_of([2046.0, 2050.0, 2053.0, 2046.0, 2051.0, 1.0])
    assert colours[-1] == (0.0, 1.0, 1.0, 1.0)
    assert len(set(colours)) == 5


def test_close_errors_have_two_labels_that_differ() -> None:
    assert scale_of([2046.0, 2053.0])[1] == ["2046", "2053"]
    labels = scale_of([1.0, 1.0 + 1e-9])[1]
    assert labels == ["1", "1.0000000010000001"]


def test_errors_beyond_every_scale_are_drawn() -> None:
    _, labels, title = scale_of([1e200, 0.0])
    assert labels == []
    assert "orange: above, up to 1e+200" in title


def test_equal_errors_have_one_label_and_no_other_value() -> None:
    norm, labels, title = scale_of([3.0, 3.0, 0.0])
    assert labels == ["3"]
    assert norm.vmax / norm.vmin < 1.03
    assert title == "absolute error (grey: none)"


def test_an_outlier_of_equal_errors_is_not_their_label() -> None:
    _, labels, title = scale_of([1.0] * 6 + [59486.0])
    assert labels == ["1"]
    assert "up to 59486" in title


def test_infinite_errors_alone_have_no_numbers() -> None:
    _, labels, title = scale_of([np.inf, 0.0])
    assert labels == []
    assert title == "absolute error (grey: none, red: infinite or NaN)"


def test_errors_of_many_sizes_are_all_within_the_limits() -> None:
    values = np.logspace(-6, 6, 50)
    assert robust_limits(values) == (values[0], values[-1])
    assert robust_limits(np.array([2.0])) == (2.0, 2.0)
