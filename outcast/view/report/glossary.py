"""The words that a report uses, for readers without the documentation at hand."""

from __future__ import annotations

from outcast.view.report.markup import Element, element
from outcast.view.report.page import section

OF_FLOWS = (
    ("2-hop, 6-hop", "a class of flows: so many links are between sender and receiver"),
    (
        "group",
        "flows summed up together: by name, hop count, congestion control, input port or sender",
    ),
    (
        "goodput",
        "application data, each byte counted once, when it leaves the bottleneck towards the "
        "receiver",
    ),
    (
        "outcast ratio",
        "the mean goodput of the class with the most hops over that of the class with the fewest; "
        "above 1 the near flows are worse off",
    ),
    ("Jain's index", "1 where all n flows get the same, 1/n where one gets all"),
)
OF_ALL = (
    ("bottleneck", "the output port of a switch where each flow's share of the rate is least"),
    ("chain", "consecutive packets of one input port that were all dropped"),
    ("blackout", "a chain during which packets of other input ports got through"),
    ("timeout", "the sender waited for an acknowledgement in vain, and began anew with one packet"),
)
_OF_RUNS = ("2-hop, 6-hop", "outcast ratio", "bottleneck", "timeout")


def words(with_flows: bool, of_captures: bool = False) -> Element:
    """Returns the words with their meaning, as in docs/concepts.md.

    Without flows of the configuration, words on classes are left out. Generated flows have none.
    Words for what joined captures do not tell are left out of their report.
    """
    listed: tuple[tuple[str, str], ...] = (*OF_FLOWS, *OF_ALL) if with_flows else OF_ALL
    if of_captures:
        listed = tuple(part for part in listed if part[0] not in _OF_RUNS)
    return section(
        "words",
        "Words",
        element(
            "dl",
            *(
                part
                for word, meaning in listed
                for part in (element("dt", word), element("dd", meaning))
            ),
            class_="words",
        ),
    )
