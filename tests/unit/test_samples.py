"""The file of raw samples: what is written is read back, and damage is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from outcast.errors import InputError
from outcast.records.samples import Sample, SamplesWriter, read_samples

NAMES = st.lists(st.text(st.characters(exclude_categories=["C"]), max_size=12), min_size=1)


def samples_of(sources: list[str]) -> st.SearchStrategy[list[list[Sample]]]:
    """Samples in a few batches, each of one of the sources."""
    sample = st.builds(
        Sample,
        st.integers(0, 2**62 - 1),
        st.integers(0, len(sources) - 1),
        st.binary(max_size=600),
    )
    return st.lists(st.lists(sample), max_size=5)


@given(NAMES.flatmap(lambda sources: st.tuples(st.just(sources), samples_of(sources))))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    sources_and_batches: tuple[list[str], list[list[Sample]]],
) -> None:
    sources, batches = sources_and_batches
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


@pytest.mark.parametrize(
    ("sample", "problem"),
    [
        (Sample(1, 2, b""), "a sample of source 2; allowed are 0 to 1"),
        (Sample(-1, 0, b""), "a sample at -1 ns"),
        (Sample(2**62, 0, b""), "a sample at 4611686018427387904 ns"),
    ],
)
def test_a_sample_of_no_source_or_time_is_refused(
    tmp_path: Path, sample: Sample, problem: str
) -> None:
    with SamplesWriter(tmp_path / "a.zst", 1, ["a", "b"]) as writer:
        writer.write([sample])
    with pytest.raises(InputError, match=problem):
        read_samples(tmp_path / "a.zst")


@pytest.mark.parametrize(
    "header",
    [
        {"every_ns": 0, "sources": []},
        {"every_ns": 1.5, "sources": []},
        {"every_ns": 1, "sources": "ab"},
        {"every_ns": 1, "sources": [1]},
        {"every_ns": 1},
        [],
    ],
)
def test_a_header_of_another_form_is_refused(tmp_path: Path, header: object) -> None:
    text = json.dumps(header).encode()
    whole = len(text).to_bytes(4, "little") + text
    (tmp_path / "a.zst").write_bytes(zstandard.ZstdCompressor().compress(whole))
    with pytest.raises(InputError, match="no file of samples"):
        read_samples(tmp_path / "a.zst")
