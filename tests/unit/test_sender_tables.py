"""The tables that are worked out from the kernel's events have their declared columns."""

from pathlib import Path

import polars as pl
import pytest

from outcast.records import sender_tables
from outcast.records.tables import read_table


@pytest.mark.parametrize("name", sender_tables.TABLES)
def test_a_table_without_rows_has_its_columns(tmp_path: Path, name: str) -> None:
    sender_tables.write_sender_table(tmp_path, name, sender_tables.empty(name))

    table = read_table(tmp_path / f"{name}.parquet")

    assert dict(table.schema) == dict(sender_tables.TABLES[name])


def test_values_get_the_declared_types(tmp_path: Path) -> None:
    row = dict.fromkeys(sender_tables.DROPS) | {"t_ns": 5, "flow": 1, "reason": "QDISC_DROP"}
    frame = pl.DataFrame([row], infer_schema_length=None)

    sender_tables.write_sender_table(tmp_path, "drops", frame)

    table = read_table(tmp_path / "drops.parquet")
    assert dict(table.schema) == dict(sender_tables.DROPS)
    assert table["reason"].to_list() == ["QDISC_DROP"]
