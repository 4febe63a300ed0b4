"""The stored results of benchmarks, and what pages say of them."""

from benchmarks import stored

ENTRY = stored.Entry("c", "s", [["a", "b"], ["1", "2"]], {"x": "7"})


def test_an_entry_is_read_as_it_was_stored_and_others_stay(tmp_path):
    path = tmp_path / "measured.json"
    path.write_text("{}")
    stored.store("first", ENTRY, path)
    stored.store("second", stored.Entry("d", "t"), path)
    stored.store("first", stored.Entry("e", "s", [["a"], ["3"]]), path)
    assert stored.read(path) == {
        "first": stored.Entry("e", "s", [["a"], ["3"]]),
        "second": stored.Entry("d", "t"),
    }


def test_the_committed_entries_can_be_written_as_they_are(tmp_path):
    copy = tmp_path / "measured.json"
    copy.write_text(stored.PATH.read_text(encoding="utf-8"), encoding="utf-8")
    name, entry = next(iter(stored.read().items()))
    stored.store(name, entry, copy)
    assert stored.read(copy) == stored.read()
