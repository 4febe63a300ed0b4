"""The error rates and the power of the rule that ends a comparison, by simulation."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from outcast.uses.comparison.sequential_test import LEAST_PAIRS, difference, looks

PAIRS = 30
COMPARISONS = 600

Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def settled(draw: Draw, most: int = PAIRS, **how: float) -> tuple[Counter[str], float]:
    """How comparisons over drawn pairs end, and the mean number of pairs that they take."""
    random, ends, taken = np.random.default_rng(1), Counter[str](), 0
    for _ in range(COMPARISONS):
        a, b = draw(random)
        for count in looks(most):
            found = difference("goodput", a[:count], b[:count], most, **how)
            if found.verdict != "not settled":
                break
        ends[found.verdict] += 1
        taken += count
    return ends, taken / COMPARISONS


def pairs(effect: float, skewed: bool = False) -> Draw:
    """A has mean 100 and deviation 4 and shares half of its variance with B."""

    def draw(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        def part() -> np.ndarray:
            drawn = random.exponential(size=PAIRS) - 1 if skewed else random.normal(size=PAIRS)
            return drawn * 4 / np.sqrt(2)

        common = part()
        return 100 + common + part(), 100 + effect + common + part()

    return draw


@pytest.mark.parametrize("skewed", [False, True])
def test_without_a_difference_five_in_a_hundred_are_settled(skewed):
    ends, _ = settled(pairs(0, skewed))
    # Two-sided 5 %, with four standard errors of the simulation above it.
    assert ends["worse"] + ends["no worse"] < COMPARISONS * 0.086
    assert abs(ends["worse"] - ends["no worse"]) < COMPARISONS * 0.04


def test_a_difference_of_three_percent_is_found_with_the_stated_power():
    random = np.random.default_rng(2)
    needed = [difference("goodput", *pairs(-6)(random), PAIRS).pairs_for_half for _ in range(200)]
    for_three = int(np.median([count for count in needed if count]))
    ends, _ = settled(pairs(-3), for_three)
    assert 0.73 * COMPARISONS < ends["worse"] < 0.9 * COMPARISONS
    ends, taken = settled(pairs(-3))
    assert ends["worse"] > COMPARISONS * 0.9
    assert ends["no worse"] == 0
    assert taken < 0.75 * PAIRS


def test_a_margin_allows_what_lies_within_it():
    ends, _ = settled(pairs(-1), margin_share=0.05)
    assert ends["no worse"] > COMPARISONS * 0.95
    ends, _ = settled(pairs(-5), margin_share=0.05)
    # At the margin itself nothing is settled but by chance.
    assert ends["worse"] + ends["no worse"] < COMPARISONS * 0.086


def test_less_can_be_better():
    a, b = pairs(-6)(np.random.default_rng(3))
    assert difference("delay", a, b, PAIRS).verdict == "worse"
    assert difference("delay", a, b, PAIRS, less_is_better=True).verdict == "no worse"
    assert difference("delay", b, a, PAIRS, less_is_better=True).verdict == "worse"


def test_few_pairs_that_are_all_alike_have_no_interval():
    found = difference("goodput", [5.0] * 6, [6.0] * 6, PAIRS)
    assert (found.low, found.high, found.verdict) == (None, None, "not settled")
    assert (found.above, found.below, found.mean) == (6, 0, 1.0)
    # Twelve that all point one way are no chance, unless they are one run again and again.
    found = difference("goodput", [5.0] * 12, [4.0] * 12, PAIRS)
    assert (found.low, found.high, found.verdict) == (-1, -1, "worse")
    assert difference("goodput", [5.0] * 12, [4.0] * 12, PAIRS, copies=True).low is None
    assert difference("goodput", [5.0] * 12, [5.0] * 12, PAIRS).verdict == "not settled"


def test_few_seeds_are_looked_at_less_often():
    assert looks(30) == [6, 12, 18, 24, 30]
    assert looks(8) == [4, 5, 7, 8]
    assert looks(LEAST_PAIRS) == [LEAST_PAIRS]
