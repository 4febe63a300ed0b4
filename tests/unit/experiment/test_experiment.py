from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

import configs
from outcast import experiment
from outcast.errors import ConfigError
from outcast.experiment.parts import FOLDER, UserFile

CONFIGS = Path(__file__).parents[3] / "configs"
FIG3C = CONFIGS / "fig3c.yaml"


@pytest.mark.parametrize("path", configs.everything(), ids=lambda path: path.stem)
def test_every_config_is_accepted_and_survives_a_round_trip(path, tmp_path):
    loaded = experiment.load(path)
    copy = tmp_path / "config.yaml"
    copy.write_text(experiment.dump(loaded))
    assert experiment.load_resolved(copy) == loaded


@pytest.mark.parametrize(
    ("overrides", "begins"),
    [
        (["queue.limt=3KB"], "--set queue.limt: unknown key; "),
        (["queue={kind: tbf, limt: 3KB}"], "--set queue: queue.limt: unknown key; "),
        (["str=1"], "--set str: unknown key; "),
        (
            ["analysis.compare=[a, b, c]"],
            '--set analysis.compare: ["a", "b", "c"]: allowed is at most 2 items',
        ),
        (
            ["links.overrides=[{between: [s1, s2], queue: {kind: tbf, limit: 3KB, limt: 1}}]"],
            "--set links.overrides: links.overrides.0.queue.limt: unknown key; ",
        ),
        (["queue={kind: tbf, tbf: 1, '[': 2}"], "--set queue: queue.tbf: unknown key; "),
        (["queue.limit=x"], "--set queue.limit: 'x' is not a queue limit; "),
        (["queue.limit=x", "queue={kind: red, limit: 1}"], "--set queue: queue.limit: 1 is not "),
        (["queue.kind=tbff"], '--set queue.kind: "tbff" is unknown; '),
        (["flows.1.hosts=0"], "--set flows.1.hosts: 0: "),
        (["engine=virtal"], '--set engine: "virtal": '),
        # The file and an override contradict each other.
        (["duration=5ms", "seed=3"], "{file}:14 with --set duration, --set seed: analysis.bin: "),
        (["links.jitter=6us", "seed=3"], "{file}:4 with --set links.jitter: links: "),
        # An override made the part, which lacks a key.
        (["blackout.at=h8"], "{file} with --set blackout.at: blackout.drops: is missing"),
        (["flows.².hosts=1"], "--set flows.².hosts: this list has no '²'; allowed are 0 to 1"),
        # The file's own mistake, whatever is overridden.
        ([], "{bad}:3: topology.k: 7: "),
        (["seed=2", "name=other"], "{bad}:3: topology.k: 7: "),
    ],
)
def test_a_mistake_is_blamed_on_who_made_it(overrides, begins, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(FIG3C.read_text().replace("k: 4", "k: 7"))
    with pytest.raises(ConfigError) as caught:
        experiment.load(bad if "{bad}" in begins else FIG3C, overrides)
    assert str(caught.value).startswith(begins.format(file=FIG3C, bad=bad))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a mapping of keys is needed"),
        ("- 1\n- 2\n", "a mapping of keys is needed"),
        ("name: [\n", "not valid YAML"),
        ("name: a\nname: b\n", "stands twice"),
        ("? [1, 2]\n: 3\n", "as a key is a word"),
        ("name: x\n", "topology: is missing; its kinds are fattree, file, "),
        ("name: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
        (None, "no such file"),
        ("\udcff", "cannot be read as text"),
    ],
)
def test_files_that_are_no_experiment(text, reason, tmp_path):
    bad = tmp_path / "bad.yaml"
    if text is not None:
        bad.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigError, match=reason):
        experiment.load(bad)


_yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_keys = st.sampled_from(list(experiment.Experiment.model_json_schema()["properties"]))


def accepted_or_refused(tree: dict[str, object]) -> experiment.Experiment | str:
    try:
        return experiment.validate(tree, "config.yaml")
    except ConfigError as error:
        return str(error)


@settings(deadline=None)  # The machine may be busy.
@given(st.dictionaries(_keys | st.text(max_size=8), _yaml_values, max_size=8))
def test_anything_is_accepted_or_refused_in_one_line(tree):
    result = accepted_or_refused(tree)
    assert not isinstance(result, str) or result.startswith("config.yaml: ")


@given(_keys, _yaml_values)
def test_any_value_in_place_of_a_good_one(key, value):
    tree = experiment.load(FIG3C).model_dump(mode="json", by_alias=True, exclude_none=True)
    result = accepted_or_refused({**tree, key: value})
    if isinstance(result, str):
        assert result.startswith("config.yaml: ")
    else:
        again = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert accepted_or_refused(again) == result


def test_the_default_bin_is_cut_to_the_duration_and_no_other():
    short = ["duration=50ms", "analysis={windows: [50ms]}"]
    assert experiment.load(FIG3C, short).analysis.bin_ns == 50_000_000
    assert experiment.load(FIG3C, ["duration=50ms", "analysis={}"]).analysis.bin_ns == 50_000_000
    assert experiment.load(FIG3C, ["analysis={}"]).analysis.bin_ns == 100_000_000
    with pytest.raises(ConfigError, match=r"analysis\.bin: is longer than the duration"):
        experiment.load(FIG3C, ["duration=50ms", "analysis={bin: 100ms}"])


def test_a_group_has_its_own_transport_and_keeps_the_rest():
    loaded = experiment.load(FIG3C, ["flows.1.transport={congestion_control: dctcp, ecn: true}"])
    own = loaded.group_transport(1)
    assert (own.congestion_control, own.ecn) == ("dctcp", True)
    assert own.min_rto_ns == loaded.transport.min_rto_ns
    assert loaded.group_transport(0) == loaded.transport
    paced = "transport={pacing: internal, pacing_rate: 8mbit}"
    loaded = experiment.load(FIG3C, [paced, "flows.1.transport={pacing: none}"])
    own = loaded.group_transport(1)
    assert (own.pacing, own.pacing_rate_bps) == ("none", None)


def test_generated_datagrams_and_the_flows_of_groups_may_have_what_generated_flows_may_not():
    stream = "workloads=[{kind: constant_rate, from: 2-hop, rate: 1mbit}]"
    incast = "workloads=[{kind: incast, block: 9KB, rounds: 1}]"
    for setting in ("transport.mptcp={}", "transport.pacing=fq"):
        experiment.load(FIG3C, [setting, stream])
        experiment.load(FIG3C, [f"flows.0.{setting}", incast])


def test_a_users_file_is_relative_to_the_file_that_names_it():
    reader = TypeAdapter[Path](UserFile)
    folder = {FOLDER: Path("/home/me/study")}
    assert reader.validate_python("tcp_mine.c", context=folder) == Path("/home/me/study/tcp_mine.c")
    assert reader.validate_python("../x.csv", context=folder) == Path("/home/me/x.csv")
    assert reader.validate_python("/abs/x.csv", context=folder) == Path("/abs/x.csv")
    assert reader.validate_python("x.csv") == Path.cwd() / "x.csv"
    assert experiment.read(FIG3C).folder == FIG3C.parent
    for wrong in ("", 3, None, "a\0b"):
        with pytest.raises(ValidationError, match="allowed is the path of a file"):
            reader.validate_python(wrong, context=folder)
