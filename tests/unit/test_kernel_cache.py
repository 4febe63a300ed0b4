import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from outcast.engines.kernel import cache
from outcast.engines.kernel.cache import Kernel
from outcast.engines.kernel.recipe import OURS, Recipe
from outcast.errors import KernelError
from tests import records

PINNED = records.package("linux-source-7.3", "7.3.4-1")
LOCKED = "gcc-12 12.2, packages abc"


@pytest.fixture
def recipe(tmp_path) -> Recipe:
    fragment = tmp_path / "fragment.config"
    fragment.write_text("# why\nCONFIG_NET=y\nCONFIG_HZ=1000\n")
    patch = tmp_path / "0001.patch"
    patch.write_text("-a\n+b\n")
    return Recipe(fragment, (patch,))


@pytest.fixture
def folder(tmp_path) -> Path:
    made = tmp_path / "kernels"
    made.mkdir()
    return made


@pytest.fixture
def keep(tmp_path, folder, recipe) -> Callable[..., Kernel]:
    """Keeps a kernel, as from a build by the lock's compiler if nothing else is said."""

    def kept(content: str = "elf", **others: Any) -> Kernel:
        program = tmp_path / "built"
        program.write_text(content)
        program.chmod(0o755)
        usual = {"version": "7.3.4-1", "recipe": recipe.digest, "compiler": LOCKED, "sha256": "abc"}
        kernel = Kernel(
            source="linux-source-7.3",
            release="7.3.4",
            built_s=200.0,
            program=program,
            **usual | others,
        )
        return cache.keep(kernel, folder)

    return kept


def test_what_is_kept_is_found(folder, recipe, keep):
    assert cache.find(folder, recipe, PINNED) is None
    kept = keep()
    assert kept.program.read_text() == "elf"
    assert os.access(kept.program, os.X_OK)
    assert cache.find(folder, recipe, PINNED) == kept
    for version, compiler, found in (
        ("7.3.4-1", LOCKED, kept),
        ("7.3.5-1", LOCKED, None),
        ("7.3.4-1", "gcc-14", None),
    ):
        key = cache.key("linux-source-7.3", version, recipe.digest, compiler)
        assert cache.read(folder / key) == found


def test_a_damaged_program_is_refused(keep):
    kept = keep(sha256=hashlib.sha256(b"elf").hexdigest())
    cache.verify(kept)
    kept.program.write_text("elg")
    with pytest.raises(KernelError, match=r"linux is damaged: .* kernel build --again") as caught:
        cache.verify(kept)
    assert "\n" not in str(caught.value)
    kept.program.unlink()
    with pytest.raises(KernelError, match="is damaged"):
        cache.verify(kept)


def test_another_recipe_is_another_kernel(folder, recipe, keep):
    keep()
    recipe.patches[0].write_text("-a\n+c\n")
    assert cache.find(folder, recipe, PINNED) is None


def test_the_source_of_the_lock_serves_and_no_newer_one(folder, recipe, keep):
    locked = keep()
    newer = keep(version="7.3.5-1")
    os.utime(locked.program, (1, 1))
    assert cache.find(folder, recipe, PINNED) == locked
    assert cache.find_all(folder) == [newer, locked]


def test_the_compiler_of_the_lock_comes_before_the_machines(folder, recipe, keep):
    machines = keep(compiler="gcc 14", compiler_note="why")
    assert cache.find(folder, recipe, PINNED) == machines
    locked = keep()
    os.utime(locked.program, (1, 1))
    assert cache.find(folder, recipe, PINNED) == locked
    assert locked.key != machines.key


def test_building_again_replaces(folder, keep):
    keep()
    assert keep("new").program.read_text() == "new"
    assert len(list(folder.glob("*/kernel.json"))) == 1


@pytest.mark.parametrize("damage", ["record", "program", "half a record"])
def test_what_is_not_whole_is_not_there(folder, recipe, damage, keep):
    kept = keep()
    record = kept.program.with_name("kernel.json")
    match damage:
        case "record":
            record.unlink()
        case "program":
            kept.program.unlink()
        case _:
            record.write_text(record.read_text()[:40])
    assert cache.find(folder, recipe, PINNED) is None


def test_the_workshop_is_for_one_and_cleans_up(folder):
    left = folder / "unfinished-killed"
    left.mkdir()
    (left / "big").touch()
    told = threading.Event()

    def wait() -> bool:
        with cache.workshop(folder, told.set) as another:
            return not any(another.iterdir())

    with ThreadPoolExecutor(1) as pool:
        with cache.workshop(folder) as workshop:
            assert not left.exists()
            (workshop / "object.o").touch()
            second = pool.submit(wait)
            assert told.wait(60)
            assert not second.done()
        assert second.result(60)
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_a_folder_that_cannot_be_made_is_named_with_the_remedy(tmp_path):
    (tmp_path / "file").touch()
    unusable = pytest.raises(KernelError, match="file/kernels: Not a directory; let XDG_CACHE_HOME")
    with unusable, cache.workshop(tmp_path / "file/kernels"):
        pass


def test_a_full_disk_is_named(folder, tmp_path):
    full = pytest.raises(KernelError, match=rf"^{folder}: No space left on device$")
    with full, cache.workshop(folder):
        raise OSError(28, "No space left on device")
    with pytest.raises(FileNotFoundError), cache.workshop(folder):
        (tmp_path / "none").read_text()
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_the_recipe_says_what_the_configuration_lacks(recipe):
    recipe.require_configured("CONFIG_NET=y\nCONFIG_HZ=1000\nCONFIG_X=y\n")
    with pytest.raises(KernelError, match="CONFIG_HZ=1000"):
        recipe.require_configured("CONFIG_NET=y\n# CONFIG_HZ is not set\nCONFIG_HZ=100\n")
    with recipe.fragment.open("a") as stream:
        stream.write("\n# Only in some versions\nCONFIG_OLD=y\n")
    recipe.require_configured("CONFIG_NET=y\nCONFIG_HZ=1000\n")


def test_our_recipe_has_what_the_experiments_name():
    words = [word for word in OURS.fragment.read_text().split() if word.startswith("CONFIG_")]
    assert len(words) == len(set(words))
    for name in ("RED", "SFQ", "HTB", "TBF", "NETEM", "FQ", "CODEL", "FQ_CODEL", "PIE", "CAKE"):
        assert f"CONFIG_NET_SCH_{name}=y" in words
    for name in ("BIC", "CUBIC", "DCTCP", "BBR", "VEGAS", "HTCP"):
        assert f"CONFIG_TCP_CONG_{name}=y" in words
    numbers = [path.name[:5] for path in OURS.patches]
    assert numbers == sorted(set(numbers))
    assert set(OURS.optional) <= {path.name for path in OURS.patches}
    assert len(numbers) >= 6
