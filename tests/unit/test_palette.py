"""The colours are told apart, and not shared without need."""

import numpy as np
from matplotlib.colors import to_rgb

from outcast.view.palette import SERIES, VERMILION, class_colours, group_colours, shaded


def test_thirteen_flows_are_told_apart():
    classes = group_colours(["2-hop", "6-hop"], "2-hop")
    groups = {0: "2-hop", **dict.fromkeys(range(1, 13), "6-hop")}
    colours = shaded(groups, classes)
    assert classes["2-hop"] == colours[0] == VERMILION
    assert VERMILION not in SERIES
    assert list(class_colours([6, 2]).values()) == list(classes.values())
    assert len(set(colours.values())) == 13
    # Neighbours differ in luminance (ITU-R BT.709), which everyone sees.
    light = [np.dot(to_rgb(colours[flow]), (0.2126, 0.7152, 0.0722)) for flow in range(1, 13)]
    assert min(abs(np.diff(light))) > 0.1
