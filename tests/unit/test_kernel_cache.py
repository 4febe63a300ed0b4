"""Kernels of the virtual engine: found by their keys, and verified."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from outcast.engines.guest import kernels, parts
from outcast.engines.guest.kernels import Kernel
from outcast.errors import KernelError

OURS = parts.PINNED


@pytest.fixture
def keep(tmp_path) -> Callable[..., Kernel]:
    """Puts a kernel into a cache as scripts/guest/build does, ours if nothing else is said."""

    def kept(key: str = OURS.kernel, **others: Any) -> Kernel:
        record = {
            "source": OURS.source,
            "version": OURS.version,
            "recipe": OURS.recipe,
            "release": "7.3.4",
            "built_s": 200.0,
            "sha256": hashlib.sha256(b"elf").hexdigest(),
            "congestion_controls": ["reno"],
            "own": [],
            "compiler": OURS.compiler,
            **others,
        }
        folder = tmp_path / key
        folder.mkdir()
        (folder / "linux").write_bytes(b"elf")
        (folder / "kernel.json").write_text(json.dumps(record))
        kernel = kernels.read(folder)
        assert kernel is not None
        return kernel

    return kept


def test_the_pinned_kernel_is_found(tmp_path, keep):
    assert kernels.find(tmp_path) is None
    newer = keep("ab" * 10, version="7.3.5-1")
    assert kernels.find(tmp_path) is None
    ours = keep()
    assert ours.key == OURS.kernel
    assert kernels.find(tmp_path) == ours
    assert kernels.find_key(newer.key[:6], tmp_path) == newer
    assert len(kernels.find_all(tmp_path)) == 2


def test_a_damaged_program_is_refused(keep):
    kept = keep()
    kernels.verify(kept)
    kept.program.write_text("elg")
    with pytest.raises(KernelError, match=r"linux is damaged: .*/build --again") as caught:
        kernels.verify(kept)
    assert "\n" not in str(caught.value)
    kept.program.unlink()
    with pytest.raises(KernelError, match="is damaged"):
        kernels.verify(kept)


@pytest.mark.parametrize("damage", ["record", "program", "half a record"])
def test_what_is_not_whole_is_not_there(tmp_path, damage, keep):
    kept = keep()
    record = kept.program.with_name("kernel.json")
    match damage:
        case "record":
            record.unlink()
        case "program":
            kept.program.unlink()
        case _:
            record.write_text(record.read_text()[:40])
    assert kernels.find(tmp_path) is None
