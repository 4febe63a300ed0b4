"""How often 95 % intervals of few runs hold the true value, by simulation with known truth.

    .venv/bin/python benchmarks/coverage.py [--samples 4000] [-o docs/results/coverage.json]

Draws samples of 3, 5 and 10 runs from distributions whose mean (or geometric mean) is known, makes
their intervals by each method, and counts how many hold it. `ours` is what outcast uses
(outcast/analysis/statistics.py): for a geometric mean Student's t of the logarithms, otherwise
Student's t. Prints the shares as a table in Markdown. With 4000 samples the standard error of a
share of 0.95 is 0.0034. The file is what docs/steady-state.md shows (scripts/fill_numbers.py).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from outcast.analysis import statistics
from outcast.files import write_text

SIZES = (3, 5, 10)
RESAMPLES = 999
SEED = 1
Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]
Methods = dict[str, Callable[[Floats], tuple[Floats, Floats]]]


@dataclass(frozen=True)
class Truth:
    """A distribution, and the value that intervals should hold.

    Attributes:
        geometric: whether the value is the geometric mean, as for ratios.
        limits: the least and the greatest value that can be drawn.
    """

    name: str
    draw: Draw
    value: float
    geometric: bool = False
    limits: statistics.Limits = statistics.UNLIMITED


def outcast_ratio(draw: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Ratios as seeds give them: most alike, one of six far above, where the lone flow starves."""
    usual = draw.normal(math.log(5), 0.35, shape)
    far = draw.random(shape) < 1 / 6
    return np.asarray(np.exp(usual + far * draw.gamma(2, 0.6, shape)))


TRUTHS = (
    Truth("normal: mean", lambda draw, shape: draw.normal(10, 2, shape), 10),
    Truth(
        "lognormal, sigma 0.5: mean",
        lambda draw, shape: draw.lognormal(0, 0.5, shape),
        math.exp(0.125),
    ),
    Truth(
        "lognormal, sigma 0.5: geometric mean",
        lambda draw, shape: draw.lognormal(0, 0.5, shape),
        1,
        geometric=True,
    ),
    Truth(
        "lognormal, sigma 1: mean",
        lambda draw, shape: draw.lognormal(0, 1, shape),
        math.exp(0.5),
    ),
    Truth(
        "lognormal, sigma 1: geometric mean",
        lambda draw, shape: draw.lognormal(0, 1, shape),
        1,
        geometric=True,
    ),
    Truth(
        "skewed as outcast ratios: geometric mean",
        outcast_ratio,
        math.exp(math.log(5) + 2 * 0.6 / 6),
        geometric=True,
    ),
    Truth(
        "Jain's index near 1, beta(40, 2): mean",
        lambda draw, shape: draw.beta(40, 2, shape),
        40 / 42,
        limits=(0, 1),
    ),
    Truth(
        "a share near 0, beta(1, 9): mean",
        lambda draw, shape: draw.beta(1, 9, shape),
        0.1,
        limits=(0, 1),
    ),
    Truth(
        "counts, Poisson of 4: mean",
        lambda draw, shape: draw.poisson(4, shape).astype(np.float64),
        4,
        limits=(0, math.inf),
    ),
)


def methods(limits: statistics.Limits) -> Methods:
    """The methods by name: from samples in rows to the bounds of their intervals."""

    def bootstrap(kind: Any) -> Callable[[Floats], tuple[Floats, Floats]]:
        def bounds(samples: Floats) -> tuple[Floats, Floats]:
            found = stats.bootstrap(
                (samples,),
                np.mean,
                axis=-1,
                n_resamples=RESAMPLES,
                batch=50,
                method=kind,
                rng=np.random.default_rng(SEED),
            ).confidence_interval
            return np.asarray(found.low), np.asarray(found.high)

        return bounds

    def student(samples: Floats) -> tuple[Floats, Floats]:
        reach = stats.t.ppf(0.975, samples.shape[1] - 1) * stats.sem(samples, axis=1)
        means = samples.mean(axis=1)
        return np.maximum(means - reach, limits[0]), np.minimum(means + reach, limits[1])

    return {"percentile": bootstrap("percentile"), "BCa": bootstrap("BCa"), "t": student}


def held(bounds: tuple[Floats, Floats], value: float) -> float:
    """The share of the intervals that hold the value. One that is not defined does not."""
    low, high = bounds
    return float(np.mean((low <= value) & (value <= high)))


def ours(samples: Floats, truth: Truth) -> tuple[Floats, Floats]:
    """The intervals that outcast gives."""
    kind: statistics.Kind = "geometric" if truth.geometric else "mean"
    intervals = [statistics.central(list(row), kind, truth.limits) for row in samples]
    none = math.nan
    low = [none if found.low is None else found.low for found in intervals]
    high = [none if found.high is None else found.high for found in intervals]
    return np.array(low), np.array(high)


def coverage(truth: Truth, size: int, count: int) -> dict[str, float]:
    """The share of intervals that hold the truth, by method.

    The bootstraps of a geometric mean resample logarithms, as ours takes them.
    """
    samples = truth.draw(np.random.default_rng(SEED), (count, size))
    plain, of_logs = methods(truth.limits), methods(statistics.UNLIMITED)
    shares: dict[str, float] = {}
    for name in plain:
        if name == "t" or not truth.geometric:
            shares[name] = held(plain[name](samples), truth.value)
        if (name == "t" or truth.geometric) and samples.min() > 0:
            low, high = of_logs[name](np.log(samples))
            label = "t of logs" if name == "t" else name
            shares[label] = held((np.exp(low), np.exp(high)), truth.value)
    return {**shares, "ours": held(ours(samples, truth), truth.value)}


def two_samples(size: int, count: int) -> dict[str, dict[str, float]]:
    """As `coverage`, of a difference of two points' means, by ours alone."""
    draw = np.random.default_rng(SEED)
    first, second = draw.normal(10, 3, (count, size)), draw.normal(20, 1, (count, size))
    pairs = [(list(former), list(latter)) for former, latter in zip(first, second, strict=True)]
    found = [statistics.difference(*pair) for pair in pairs]
    holds = [
        each.low is not None and each.high is not None and each.low <= -10 <= each.high
        for each in found
    ]
    return {"difference of means, sigma 3 and 1": {"ours": float(np.mean(holds))}}


def measure(count: int) -> dict[str, dict[str, dict[str, float]]]:
    """By the name of what is estimated and by the number of runs: the shares by method."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for truth in TRUTHS:
        for size in SIZES:
            table.setdefault(truth.name, {})[str(size)] = coverage(truth, size, count)
    for size in SIZES:
        for name, shares in two_samples(size, count).items():
            table.setdefault(name, {})[str(size)] = shares
    return table


def markdown(table: dict[str, dict[str, dict[str, float]]]) -> str:
    """The table as Markdown: a row for each distribution and number of runs."""
    names = ["percentile", "BCa", "t", "t of logs", "ours"]
    lines = [f"| what | runs | {' | '.join(names)} |", "|" + "---|" * (len(names) + 2)]
    for what, sizes in table.items():
        for size, shares in sizes.items():
            cells = [f"{shares[name]:.3f}" if name in shares else "" for name in names]
            lines.append(f"| {what} | {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Simulates, prints the table and writes the file. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("-o", type=Path, dest="file")
    options = parser.parse_args(arguments)
    # Where all runs of a sample are equal nothing can be resampled, and the row counts as a miss.
    warnings.simplefilter("ignore")
    table = measure(options.samples)
    print(markdown(table))
    if options.file is not None:
        content = {"command": "benchmarks/coverage.py", "samples": options.samples, "table": table}
        write_text(options.file, json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
