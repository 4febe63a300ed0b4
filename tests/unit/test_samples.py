"""The file of raw samples: what is written is read back, and damage is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.errors import InputError
from outcast.records.samples import Sample, SamplesWriter, read_samples

SAMPLES = st.lists(
    st.builds(Sample, st.integers(0, 2**62), st.integers(0, 2**32 - 1), st.binary(max_size=600))
)
NAMES = st.text(st.characters(exclude_categories=["C"]), max_size=12)


@given(st.lists(SAMPLES, max_size=5), st.lists(NAMES))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Sample]], sources: list[str]
) -> None:
    path = tmp_path_factory.mktemp("samples") / "a.zst"
    with SamplesWriter(path, 10_000_000, sources) as writer:
        for batch in batches:
            writer.write(batch)
        assert not path.exists()
    found = read_samples(path)
    assert found.every_ns == 10_000_000
    assert found.sources == tuple(sources)
    assert found.samples == tuple(sample for batch in batches for sample in batch)
    assert [file.name for file in path.parent.iterdir()] == ["a.zst"]


def test_a_failed_run_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with SamplesWriter(tmp_path / "a.zst", 1, []):
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert list(tmp_path.iterdir()) == []


def test_damage_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    with SamplesWriter(path, 1, ["0"]) as writer:
        writer.write([Sample(1, 0, bytes(range(256)) * 40)])
    whole = path.read_bytes()
    for broken in (b"", b"nothing", whole[: len(whole) // 2]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"a\.zst: no file of samples"):
            read_samples(path)
    with pytest.raises(InputError, match="no file of samples"):
        read_samples(tmp_path / "none.zst")
