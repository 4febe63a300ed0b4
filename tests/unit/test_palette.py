"""The colours are told apart by everyone, and not shared without need."""

from itertools import combinations

import numpy as np
import pytest

from outcast.analysis.compiled import Array
from outcast.view.palette import (
    SERIES,
    VERMILION,
    class_colours,
    group_colours,
    shaded,
)

# Machado, Oliveira and Fernandes, 2009, severity 1: what people without a kind of cone see.
SIGHTS = {
    "all": np.eye(3),
    "protanopia": np.array(
        [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]
    ),
    "deuteranopia": np.array(
        [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    ),
    "tritanopia": np.array(
        [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9309, 0.1476], [0.0047, 0.6914, 0.3039]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ @ np.ones(3)


def linear(colour: str) -> Array:
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: Array) -> Array:
    relative = TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    x, y, z = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHTS)
def test_kinds_are_told_apart(sight):
    seen = {colour: lab(SIGHTS[sight] @ linear(colour)) for colour in (VERMILION, *SERIES)}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 15, (one, other)


def test_thirteen_flows_are_told_apart():
    classes = group_colours(["2-hop", "6-hop"], "2-hop")
    groups = {0: "2-hop", **dict.fromkeys(range(1, 13), "6-hop")}
    colours = shaded(groups, classes)
    assert classes["2-hop"] == colours[0] == VERMILION
    assert list(class_colours([6, 2]).values()) == list(classes.values())
    assert len(set(colours.values())) == 13
    light = [lab(linear(colours[flow]))[0] for flow in range(1, 13)]
    assert min(abs(np.diff(light))) > 15
