"""What an experiment may not say: each row of refusals.txt gets one line that names its key."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import configs
from outcast.errors import ConfigError
from outcast.experiment import read
from outcast.networks import resolve
from outcast.plan.make import make_plan
from tests.unit.emulation.test_programs import BASE as WEB


def rows() -> Iterator[tuple[str, list[str], list[str]]]:
    """The configuration, the settings, and what the refusal says."""
    config, common = "", [""]
    for line in Path(__file__).with_name("refusals.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            config, *common = line.removeprefix("== ").split(" && ")
        elif line and not line.startswith("#"):
            settings, *said = line.split(" >> ")
            yield config, [*common, *settings.split(" && ")], said


@pytest.mark.parametrize(("config", "settings", "said"), list(rows()))
def test_a_refusal_is_one_line_that_names_the_key(config, settings, said, tmp_path):
    path = tmp_path / "web.yaml"
    path.write_text(WEB, encoding="utf-8")
    found = path if config == "web" else configs.find(config)
    with pytest.raises(ConfigError) as refused:
        make_plan(resolve.experiment_of(read(found, settings)).resolved("virtual"))
    text = str(refused.value)
    assert [words for words in said if words not in text] == [], text
    assert "\n" not in text
