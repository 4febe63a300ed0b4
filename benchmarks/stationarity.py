"""How often the test for a trend in docs/steady-state.md is wrong, on series of a known truth.

    .venv/bin/python -m benchmarks.stationarity [--write]

Shares are an autoregressive process of first order: each bin keeps PHI of the last one's
deviation. To that come nothing, a rise over the whole interval by three standard deviations, or a
step by three after 70 % of it. Prints how many of 400 series are called not stationary. `--write`
puts the table into docs/results/measured.json.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks import stored
from outcast.analysis.measure.fairness import PARTS, has_trend

SERIES = 400


def shares(draw: np.random.Generator, bins: int, phi: float) -> npt.NDArray[np.float64]:
    """A stationary series with variance 1."""
    series = draw.normal(size=bins)
    for place in range(1, bins):
        series[place] = phi * series[place - 1] + np.sqrt(1 - phi**2) * series[place]
    return series


def doubted(series: npt.NDArray[np.float64]) -> bool:
    """Whether the test finds a trend."""
    return has_trend(np.array([part.mean() for part in np.array_split(series, PARTS)]))


def table() -> list[list[str]]:
    """The shares of series that are called not stationary, by bins and correlation."""
    rows = [
        [
            "bins",
            "correlation of neighbouring bins",
            "wrongly doubted",
            "a rise found",
            "a step found",
        ]
    ]
    draw = np.random.default_rng(1)
    for bins in (50, 100):
        place = np.arange(bins) / bins
        changes = (0 * place, 3 * place, 3.0 * (place > 0.7))
        for phi in (0.0, 0.5, 0.8, 0.9):
            found = [
                np.mean([doubted(shares(draw, bins, phi) + change) for _ in range(SERIES)])
                for change in changes
            ]
            rows.append([str(bins), str(phi), *(f"{share:.0%}" for share in found)])
    return rows


def main() -> None:
    """Prints the table as Markdown."""
    parser = stored.parser(__doc__)
    arguments = parser.parse_args()
    entry = stored.Entry(
        "python -m benchmarks.stationarity --write", stored.state_of_code(), table()
    )
    stored.tell("stationarity", entry, write=arguments.write)


if __name__ == "__main__":
    main()
