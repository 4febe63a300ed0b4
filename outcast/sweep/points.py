"""The runs of a sweep: all combinations of values, each with its repetitions and seeds.

Nothing here touches a file, and the same configuration gives the same runs on every machine.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outcast.errors import ConfigError
from outcast.experiment import Sweep

_LONGEST_NAME = 80
MOST_POINTS = 100_000


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
        settings: the swept keys, with dots between levels, and their values in this run.
        seed: the run's seed. No other run has it, and it does not depend on the sweep's other
            points and repetitions.
        name: the name of the run's folder. No other run has it.
    """

    settings: Mapping[str, Any]
    repetition: int
    seed: int
    name: str


def combinations(sweep: Sweep) -> list[dict[str, Any]]:
    """The settings of every point: the cross product of the lists, for each of `points`.

    Raises ConfigError: two points have the same settings, or there are more than MOST_POINTS.
    """
    keys = list(sweep.lists)
    count = math.prod(len(values) for values in sweep.lists.values()) * max(1, len(sweep.points))
    if count > MOST_POINTS:
        raise ConfigError(f"sweep: {count} points; allowed are {MOST_POINTS}")
    product = [
        {**point, **dict(zip(keys, values, strict=True))}
        for point in (sweep.points or ({},))
        for values in itertools.product(*sweep.lists.values())
    ]
    seen: set[str] = set()
    for settings in product:
        text = canonical(settings)
        if text in seen:
            raise ConfigError(f"sweep: the point {text} is listed twice; allowed is each once")
        seen.add(text)
    return product


def points(sweep: Sweep, repetitions: int, seed: int) -> list[Point]:
    """All runs, in the order in which they start.

    If `seed` is swept, its values are the runs' seeds. Otherwise each run's seed is derived from
    `seed`, the settings and the repetition.

    Raises ConfigError: as `combinations`, or `seed` is swept and there are repetitions.
    """
    runs = list(_all(sweep, repetitions, seed))
    if sweep.order == "random":
        random.Random(f"{seed} sweep order").shuffle(runs)
    return runs


def _all(sweep: Sweep, repetitions: int, seed: int) -> Iterator[Point]:
    for settings in combinations(sweep):
        if "seed" in settings and repetitions > 1:
            raise ConfigError(
                "sweep: seed is swept and repetitions are above 1; allowed is one of the two"
            )
        for repetition in range(repetitions):
            run_seed = settings.get("seed", derived_seed(seed, settings, repetition))
            yield Point(settings, repetition, run_seed, _name(settings, repetition, run_seed))


def derived_seed(seed: int, settings: Mapping[str, Any], repetition: int) -> int:
    """A seed of 63 bits from these three values; the order of the keys does not matter."""
    text = f"{seed} {canonical(settings)} {repetition}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def canonical(settings: Mapping[str, Any]) -> str:
    """A text that is the same for the same settings, whatever the order of their keys."""
    return json.dumps(dict(settings), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def as_text(value: Any) -> str:
    """A swept value as tables show it: `16KB`, `6`, or `tbf limit=16KB` for a mapping."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        parts = [f"{key}={as_text(part)}" for key, part in value.items() if key != "kind"]
        return " ".join([as_text(value["kind"]), *parts] if "kind" in value else parts)
    return json.dumps(value, sort_keys=True)


def swept_keys(runs: Sequence[Point]) -> list[str]:
    """All keys that a point sets, in the order of their first use."""
    return list(dict.fromkeys(key for run in runs for key in run.settings))


def _name(settings: Mapping[str, Any], repetition: int, seed: int) -> str:
    """A readable name, which a digest makes unique: `limit=16KB,k=4,r0-1f0c9a3be2d4`."""
    words = [f"{key.rpartition('.')[2]}={_word(value)}" for key, value in settings.items()]
    readable = ",".join([*words, f"r{repetition}"])[:_LONGEST_NAME]
    text = f"{canonical(settings)} {repetition} {seed}"
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_.")
