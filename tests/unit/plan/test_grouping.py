"""Groups of flows: labels, order, the two that a headline compares, and what is refused."""

import re
from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.experiment import GroupKind
from outcast.plan import grouping
from outcast.plan.grouping import Comparison
from outcast.plan.model import PlannedMember


def flow(number: int, **changes: object) -> PlannedMember:
    values: dict[str, object] = {
        "flow": number,
        "name": None,
        "hops": 2,
        "congestion_control": "cubic",
        "ingress": "s1-eth2",
        "src": f"h{number + 2}",
    }
    return PlannedMember(**{**values, **changes})


TWO = [
    flow(0, name="cubic"),
    flow(1, name="bbr", congestion_control="bbr", ingress="s1-eth10"),
    flow(2, name="bbr", congestion_control="bbr", ingress="s1-eth3", hops=10),
]


def numbers(groups: Mapping[str, list[PlannedMember]]) -> dict[str, list[int]]:
    return {label: [member.flow for member in members] for label, members in groups.items()}


def test_each_kind_has_its_labels_in_its_order():
    assert get_args(GroupKind) == tuple(grouping.GROUPINGS)
    assert numbers(grouping.every(TWO)["name"]) == {"cubic": [0], "bbr": [1, 2]}
    assert list(grouping.every(TWO)["hops"]) == ["2-hop", "10-hop"]
    assert list(grouping.every(TWO)["congestion_control"]) == ["cubic", "bbr"]
    assert list(grouping.every(TWO)["port"]) == ["s1-eth2", "s1-eth3", "s1-eth10"]
    assert list(grouping.every(TWO)["sender"]) == ["h2", "h3", "h4"]
    bare = flow(1, congestion_control=None, ingress=None)
    assert list(grouping.every([TWO[0], bare])["name"]) == ["cubic", "unnamed"]
    assert list(grouping.every([bare])["congestion_control"]) == ["UDP"]
    assert list(grouping.every([bare])["port"]) == ["no port"]
    groups = grouping.every(TWO, TWO[1:])
    assert numbers(groups["hops"]) == {"2-hop": [1], "10-hop": [2], "no class": [0]}
    assert numbers(groups["name"]) == {"cubic": [0], "bbr": [1, 2]}
    assert grouping.comparison(None, None, groups) == Comparison("hops", ("10-hop", "2-hop"))


def test_names_are_shown_where_any_flow_has_one():
    unnamed = [flow(0), flow(1)]
    assert grouping.chosen(None, grouping.every(unnamed)) == "hops"
    assert grouping.chosen(None, grouping.every([*unnamed, TWO[1]])) == "name"
    assert grouping.chosen("port", grouping.every(TWO)) == "port"
    assert "name" not in grouping.every(unnamed)
    assert list(grouping.every(TWO)) == list(grouping.GROUPINGS)
    assert grouping.every([]) == {}


@pytest.mark.parametrize(
    ("group_by", "compare", "kind"),
    [
        (None, ("bbr", "cubic"), "name"),
        ("hops", ("bbr", "cubic"), "name"),  # by name and by control these are the same flows
        ("congestion_control", ("bbr", "cubic"), "congestion_control"),
        (None, ("10-hop", "2-hop"), "hops"),
        (None, ("s1-eth2", "s1-eth10"), "port"),
        (None, ("h4", "h2"), "sender"),
    ],
)
def test_labels_of_any_grouping_can_be_compared(group_by, compare, kind):
    assert grouping.comparison(group_by, compare, grouping.every(TWO)) == Comparison(kind, compare)


def test_without_a_wish_the_hop_classes_are_compared():
    hops = Comparison("hops", ("10-hop", "2-hop"))
    assert grouping.comparison(None, None, grouping.every(TWO)) == hops
    assert grouping.comparison(None, None, grouping.every(TWO[:2])) is None
    assert grouping.comparison(None, None, grouping.every([])) is None


@pytest.mark.parametrize(
    ("compare", "flows", "said"),
    [
        (("brr", "cubic"), TWO, "or by sender: h2, h3, h4; did you mean 'bbr'?"),
        (("bbr", "2-hop"), TWO, "'bbr' and '2-hop' are groups of different kinds; allowed are"),
        (("a", "b"), [flow(0)], "'a' is no group of flows; there are no two groups"),
        (("a", "b"), [], "'a' is no group of flows; there are no two groups"),
    ],
)
def test_what_cannot_be_compared(compare, flows, said):
    with pytest.raises(ValueError, match=re.escape(said)) as refused:
        grouping.comparison(None, compare, grouping.every(flows))
    assert "\n" not in str(refused.value)


LABELS = st.sampled_from(["cubic", "bbr", "h2", "2-hop", "s1-eth2", "unnamed", "UDP"])


@given(
    st.lists(
        st.builds(
            flow,
            st.integers(0, 99),
            name=st.none() | LABELS,
            hops=st.integers(1, 12),
            congestion_control=st.none() | LABELS,
            ingress=st.none() | LABELS,
            src=LABELS,
        ),
        max_size=8,
    ),
    st.none() | st.sampled_from(list(grouping.GROUPINGS)),
    st.tuples(LABELS, LABELS),
)
def test_groups_share_out_all_flows(flows, group_by, compare):
    for groups in grouping.every(flows).values():
        assert sorted(id(f) for mine in groups.values() for f in mine) == sorted(map(id, flows))
    try:
        chosen = grouping.comparison(group_by, compare, grouping.every(flows))
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert set(chosen.groups) <= grouping.every(flows)[chosen.kind].keys()
