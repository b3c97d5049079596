"""Draws the error over a tensor, with the borders of the ranks' blocks (needs matplotlib)."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.deviation import absolute_error
from ..data.dtypes import Array
from ..operators.output_layout import OutputLayout
from .limits import robust_limits

# Dots per inch of a picture.
DPI = 120
_MOST_PANELS = 8
# A panel has more pixels than these per side, so that drawing drops no point.
_MOST_PIXELS = 240
_FOLDED = 64
_LETTERS_PER_PANEL = 42
# How far a scale reaches beyond the errors if they are all equal.
_ONE_VALUE = 1.01
_ABOVE, _BELOW, _INFINITE = "darkorange", "cyan", "red"
# Labels of blocks that are closer than this part of a panel's height share a line.
_CLOSE = 0.05


class NoMatplotlibError(ValueError):
    """matplotlib is not installed.

    Example:
        >>> print(NoMatplotlibError("a.png"))
        a.png cannot be drawn without matplotlib: pip install matplotlib
    """

    def __init__(self, file: str) -> None:
        super().__init__(f"{file} cannot be drawn without matplotlib: pip install matplotlib")


def error_grid(error: Array, wrong: Array, *, most: int = _MOST_PIXELS) -> npt.NDArray[np.float64]:
    """Return the errors of a tensor as a picture: rows by columns, NaN where nothing is wrong.

    A tensor of one column is folded. A picture has at most `most` by `most` points; each is the
    largest error of its part of the tensor, so that no wrong element gets lost.

    Args:
        error: absolute errors, of the tensor's shape.
        wrong: True where an element is wrong.
        most: points per side.

    Example:
        >>> error = np.array([[0.0, 3.0], [0.0, 0.0], [1.0, 0.0]])
        >>> error_grid(error, error > 0, most=2).tolist()
        [[nan, 3.0], [1.0, nan]]
    """
    shown = np.where(wrong, error, np.nan).reshape(-1)
    rows, width = sides(error.shape)
    padded = np.full(rows * width, np.nan)
    padded[: shown.size] = shown
    grid = padded.reshape(rows, width)
    for axis in (0, 1):
        size = grid.shape[axis]
        if size > most:
            starts = np.arange(most) * size // most
            # -inf is less than every error, and becomes NaN again.
            filled = np.where(np.isnan(grid), -np.inf, grid)
            grid = np.maximum.reduceat(filled, starts, axis=axis)
            grid = np.where(np.isneginf(grid), np.nan, grid)
    return grid


def error_figure(
    got: Sequence[Array],
    expected: Sequence[Array],
    masks: Sequence[npt.NDArray[np.bool_]],
    dtype: str,
    *,
    layout: OutputLayout,
    names: Sequence[str],
    title: str = "",
) -> Any:
    """Return a figure of matplotlib with the errors of outputs: one panel per output.

    The scale of the colours fits most errors; larger and smaller ones have colours of their own.

    Args:
        got, expected: the outputs.
        masks: True where an element is wrong, per output.
        dtype: name of their dtype.
        layout: the blocks whose borders are drawn, as far as they are known.
        names: the outputs' names.
        title: a line above the panels.

    Raises:
        ImportError: matplotlib is not installed.

    Example:
        >>> a, b = np.zeros((2, 2), np.int8), np.eye(2, dtype=np.int8)
        >>> error_figure([a], [b], [a != b], "int8", layout=OutputLayout(),
        ...              names=["rank 0"])  # doctest: +SKIP
    """
    from matplotlib.figure import Figure

    panels = _panels(got, expected, masks, dtype)
    columns = min(len(panels), 4)
    lines = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(1.2 + 3.4 * columns, 1.4 + 3.6 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).reshape(-1)
    for unused in axes[len(panels) :]:
        unused.set_visible(False)
    norm = _norm([grid for _, grid in panels])
    image: Any = None
    for axis, (output, grid) in zip(axes, panels, strict=False):
        image = _draw(axis, grid, expected[output].shape, norm)
        _borders(axis, expected[output].shape, layout.of(output))
        _ring(axis, masks[output])
        count = int(masks[output].sum())
        head = f"{names[output]}: " if names[output] else ""
        ringed = ", the first ringed" if count else ""
        axis.set_title(f"{head}{count} of {masks[output].size} wrong{ringed}", fontsize=9)
    if any(mask.any() for mask in masks):
        _bar(figure, image, list(axes[: len(panels)]), [grid for _, grid in panels])
    more = f" ({len(panels)} of {len(got)} outputs)" if len(panels) < len(got) else ""
    lines_of_title = textwrap.wrap(title + more, _LETTERS_PER_PANEL * columns, max_lines=6)
    figure.suptitle("\n".join(lines_of_title), fontsize=10)
    return figure


def save_plot(file: Path, *outputs: Any, **described: Any) -> None:
    """Write what error_figure() draws of these arguments into a .png.

    Raises:
        NoMatplotlibError: (a ValueError) matplotlib is not installed.
        ValueError: the file is no .png.
        OSError: the file cannot be written.

    Example:
        >>> a, b = np.zeros((2, 2), np.int8), np.eye(2, dtype=np.int8)
        >>> save_plot(Path("error.png"), [a], [b], [a != b], "int8", layout=OutputLayout(),
        ...           names=["rank 0"])  # doctest: +SKIP
    """
    require_matplotlib(file)
    error_figure(*outputs, **described).savefig(file, dpi=DPI)


def require_matplotlib(file: Path) -> None:
    """Raise ValueError unless `file` ends in .png and matplotlib is installed.

    Example:
        >>> require_matplotlib(Path("error.jpg"))
        Traceback (most recent call last):
        ...
        ValueError: error.jpg: a plot's file ends in .png
    """
    if file.suffix != ".png":
        raise ValueError(f"{file}: a plot's file ends in .png")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise NoMatplotlibError(str(file)) from None


def sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of a tensor's picture, in which a single column is folded.

    Example:
        >>> sides((8, 2, 3)), sides((300,))
        ((8, 6), (18, 17))
    """
    size, width = math.prod(shape), math.prod(shape[1:])
    if width == 1:
        width = max(1, min(_FOLDED, math.isqrt(size)))
    return max(1, -(-size // max(1, width))), max(1, width)


def _panels(
    got: Sequence[Array],
    expected: Sequence[Array],
    masks: Sequence[npt.NDArray[np.bool_]],
    dtype: str,
) -> list[tuple[int, npt.NDArray[np.float64]]]:
    """Return the pictures of the first outputs, those with errors before the others."""
    order = sorted(range(len(got)), key=lambda i: (not masks[i].any(), i))[:_MOST_PANELS]
    return [
        (i, error_grid(absolute_error(got[i], expected[i], dtype), masks[i])) for i in sorted(order)
    ]


def _norm(grids: Sequence[npt.NDArray[np.float64]]) -> Any:
    """Return the scale of the colours, from the least to the largest error but for outliers."""
    from matplotlib.colors import LogNorm

    values = np.concatenate([grid[np.isfinite(grid) & (grid > 0)] for grid in grids])
    low, high = robust_limits(values) if values.size else (1.0, 1.0)
    # More decades cannot be distinguished, and the ends of float64 would overflow.
    high = min(high, 1e100)
    low = max(min(low, high), high * 1e-30, 1e-250)
    return LogNorm(low, high) if high > low else LogNorm(low / _ONE_VALUE, low * _ONE_VALUE)


def _draw(axis: Any, grid: npt.NDArray[np.float64], shape: tuple[int, ...], norm: Any) -> Any:
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    rows, width = sides(shape)
    # An error of 0 is a zero of the other sign; it gets the lowest colour.
    shown = np.where(grid == 0, norm.vmin, grid)
    image = axis.imshow(
        np.ma.masked_invalid(np.where(np.isinf(shown), np.nan, shown)),
        cmap=colormaps["viridis"].with_extremes(bad="0.92", under=_BELOW, over=_ABOVE),
        norm=norm,
        extent=(0, width, rows, 0),
        aspect="auto",
        interpolation="nearest",
    )
    if np.isinf(shown).any():
        red = np.zeros((*shown.shape, 4))
        red[np.isinf(shown)] = (1.0, 0.0, 0.0, 1.0)
        axis.imshow(red, extent=(0, width, rows, 0), aspect="auto", interpolation="nearest")
    folded = math.prod(shape[1:]) == 1 and len(shape) > 0
    axis.set_xlabel(f"element modulo {width}" if folded else "column", fontsize=8)
    axis.set_ylabel(f"element div {width}" if folded else "row", fontsize=8)
    axis.tick_params(labelsize=7)
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(MaxNLocator(integer=True))
    return image


def _bar(
    figure: Any, image: Any, axes: Sequence[Any], grids: Sequence[npt.NDArray[np.float64]]
) -> None:
    """Draw the scale of the errors; it ends in an arrow where some are beyond it."""
    low, high = image.norm.vmin, image.norm.vmax
    every = np.concatenate([grid[~np.isnan(grid)] for grid in grids])
    finite = every[np.isfinite(every)]
    above, infinite = bool((finite > high).any()), bool(np.isinf(every).any())
    below = finite[(finite > 0) & (finite < low)]
    if infinite and not above:
        image.set_cmap(image.get_cmap().with_extremes(over=_INFINITE))
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}
    ends = extend.get((below.size > 0, above or infinite), "neither")
    bar = figure.colorbar(image, ax=list(axes), extend=ends, shrink=0.8)
    notes = ["grey: none"]
    notes += [f"orange: above, up to {finite.max():.6g}"] if above else []
    notes += [f"{_BELOW}: below, from {below.min():.6g}"] if below.size else []
    notes += ["red: infinite or NaN"] if infinite else []
    bar.set_label(f"absolute error ({', '.join(notes)})", fontsize=8)
    bar.ax.tick_params(which="both", labelsize=7)
    ticks = _ticks(low, high, finite)
    if ticks is not None:
        # With powers of ten several ticks would have the same label, or none.
        bar.minorticks_off()
        bar.set_ticks(list(ticks), labels=list(ticks.values()))


def _ticks(low: float, high: float, finite: npt.NDArray[np.float64]) -> dict[float, str] | None:
    """Return ticks and labels of a scale too short for powers of ten; None for a longer one."""
    upto = finite[finite <= high]
    if not upto.size:
        return {}
    inside = upto[upto >= low]
    if not inside.size or inside.min() == inside.max():
        # The scale reaches beyond its only value, which may be a zero of the other sign.
        return {math.sqrt(low) * math.sqrt(high): f"{upto.max():.6g}"}
    if high > 10 * low:
        return None
    form = ".6g" if f"{low:.6g}" != f"{high:.6g}" else ".17g"
    return {value: f"{value:{form}}" for value in (low, high)}


def _ring(axis: Any, mask: npt.NDArray[np.bool_]) -> None:
    """Draw a ring around the first wrong element, which may be smaller than a point."""
    if mask.any():
        width = sides(mask.shape)[1]
        row, column = divmod(int(np.argmax(mask.reshape(-1))), width)
        style = {"marker": "o", "fillstyle": "none", "clip_on": False, "zorder": 5}
        for color, thick in (("white", 3.5), ("deeppink", 1.8)):
            axis.plot(
                [column + 0.5],
                [row + 0.5],
                color=color,
                markersize=11,
                markeredgewidth=thick,
                **style,
            )


def _borders(axis: Any, shape: tuple[int, ...], blocks: Sequence[Any]) -> None:
    """Draw a line around every block, which may begin and end inside a row; right, its rank."""
    rows, width = sides(shape)
    for position in sorted({edge for block in blocks for edge in (block.start, block.stop)}):
        row, column = divmod(position, width)
        steps = [(0, row + 1), (column, row + 1), (column, row), (width, row)]
        xs, ys = zip(*(steps if column else steps[2:]), strict=True)
        axis.plot(xs, ys, color="black", linewidth=0.6, alpha=0.7, clip_on=True)
    for height, ranks in _labels(rows, width, blocks):
        words = ", ".join(map(str, ranks)) if len(ranks) < 4 else f"{ranks[0]} .. {ranks[-1]}"
        place = (1.02, 1 - height / rows)
        axis.text(*place, f"rank {words}", fontsize=6, va="center", transform=axis.transAxes)
    axis.set_xlim(0, width)
    axis.set_ylim(rows, 0)


def _labels(rows: int, width: int, blocks: Sequence[Any]) -> list[tuple[float, list[int]]]:
    """Return the labels beside a panel: the row that they stand at, and the ranks they name."""
    labels: list[tuple[float, list[int]]] = []
    for block in sorted(blocks, key=lambda block: int(block.start)):
        if not block.count:
            continue
        height = (block.start + block.stop) / 2 / width
        if labels and height - labels[-1][0] < _CLOSE * rows:
            labels[-1][1].append(block.rank)
        else:
            labels.append((height, [block.rank]))
    return labels
