"""Fetches what a lock pins: several files at a time, each with a deadline, each checked by hash."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from outcast import handed_in
from outcast.engines.kernel.programs import Programs
from outcast.engines.root.lock import Package, Pinned, Wheel
from outcast.engines.root.places import Places
from outcast.errors import CommandError, InputError, RootError, gist

AT_A_TIME = 6
SILENCE_S = 20.0
"""A server that sends nothing for this long is given up."""
PAUSES_S = (0.5, 2.0)
"""Before the second and the third try of one address."""
LEAST_BYTES_PER_S = 20_000
"""A file that comes more slowly than this, after a start of LEAST_S, is given up."""
LEAST_S = 60.0
_BLOCK_BYTES = 1 << 18
_ANOTHER = "another file than the lock pins (its SHA-256 differs)"
REMEDY = (
    "name another mirror with --mirror URL or an archive of old packages with --snapshot URL, give "
    "the files with --packages FOLDER, or install the wheel outcast-guest"
)


class _Unusable(Exception):
    """A place does not have the file, or not the one that is pinned. The text says why."""


class _Unreachable(_Unusable):
    """A place does not answer as it should, which may pass."""


@contextlib.contextmanager
def packages(
    pinned: Sequence[Package],
    places: Places,
    into: Path,
    on_fetched: Callable[[Package], None] = lambda package: None,
) -> Iterator[Iterator[Path]]:
    """Fetches packages. The block gets their files in the given order, each as soon as it is there.

    Raises:
        RootError: a package cannot be had anywhere; it names the package and says why.
        OSError: a file cannot be written.
    """

    def fetch(package: Package) -> Path:
        path = _package(package, places, into)
        on_fetched(package)
        return path

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        futures: list[Future[Path]] = [pool.submit(fetch, package) for package in pinned]
        try:
            yield (future.result() for future in futures)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _package(package: Package, places: Places, into: Path) -> Path:
    path = into / package.path.rpartition("/")[2]
    reasons = []
    if places.folder is not None:
        try:
            path.write_bytes(_handed_in(package, path.name, places.folder))
            return path
        except _Unusable as error:
            reasons.append(str(error))
    for address in places.addresses:
        try:
            _download_patiently(f"{address}/{package.path}", package, path)
        except _Unusable as error:
            reasons.append(f"{address}: {error}")
        else:
            return path
    raise RootError(
        f"the package {package.name} {package.version} ({path.name}) cannot be fetched: "
        f"{'; '.join(reasons)}; {REMEDY}"
    )


def _handed_in(pinned: Pinned, name: str, folder: Path) -> bytes:
    """The pinned file in a user's folder. Raises _Unusable where it is missing or another one."""
    # An epoch's colon is %3a in a file's name, and people save files under either name.
    for candidate in dict.fromkeys((name, name.replace("%3a", ":"))):
        source = folder / candidate
        try:
            data = handed_in.read_bytes(source, pinned.size)
        except FileNotFoundError:
            continue
        except InputError as error:
            raise _Unusable(str(error)) from None
        if hashlib.sha256(data).hexdigest() != pinned.sha256:
            raise _Unusable(f"{source}: {_ANOTHER}")
        return data
    raise _Unusable(f"{folder} has no {name}")


def _download_patiently(address: str, pinned: Pinned, path: Path) -> None:
    """Does as `_download`, and tries again where a name server or a mirror is busy."""
    for pause_s in PAUSES_S:
        try:
            return _download(address, pinned, path)
        except _Unreachable:
            time.sleep(pause_s)
    _download(address, pinned, path)


def _download(address: str, pinned: Pinned, path: Path) -> None:
    """Writes a file from an address. Raises _Unusable where it cannot be had or is another one."""
    end = time.monotonic() + LEAST_S + pinned.size / LEAST_BYTES_PER_S
    digest = hashlib.sha256()
    size = 0
    request = urllib.request.Request(address, headers={"User-Agent": "outcast"})
    with path.open("wb") as stream:
        for block in _blocks(request, end):
            size += len(block)
            if size > pinned.size:
                break
            digest.update(block)
            stream.write(block)
    if (size, digest.hexdigest()) != (pinned.size, pinned.sha256):
        raise _Unusable(_ANOTHER)


def _blocks(request: urllib.request.Request, end: float) -> Iterator[bytes]:
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_S) as response:
            while block := response.read(_BLOCK_BYTES):
                yield block
                if time.monotonic() > end:
                    raise _Unreachable(f"slower than {LEAST_BYTES_PER_S // 1000} kB/s")
    except urllib.error.HTTPError as error:
        kind = _Unreachable if error.code >= 500 else _Unusable
        raise kind(f"HTTP {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _Unreachable(_words(error.reason)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _Unreachable(_words(error)) from None


def _words(error: object) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing came for {SILENCE_S:g} s"
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return gist(str(error)) or type(error).__name__


def wheels(pinned: Sequence[Wheel], folder: Path | None, into: Path, run: Programs) -> list[Path]:
    """Fetches wheels: from the user's folder where it has them, else by pip from its index.

    pip knows the machine's index, proxies and certificates. It checks every hash itself, too.

    Raises:
        RootError: a wheel cannot be had; the error says why.
        OSError: a file cannot be written.
    """
    if not pinned:
        return []
    lacking = []
    for wheel in pinned:
        try:
            if folder is None:
                raise _Unusable("no folder was given")
            (into / wheel.file).write_bytes(_handed_in(wheel, wheel.file, folder))
        except _Unusable:
            lacking.append(wheel)
    if lacking:
        _by_pip(lacking, into, run)
    for wheel in lacking:
        try:
            _handed_in(wheel, wheel.file, into)
        except _Unusable as error:
            raise RootError(f"pip fetched another wheel than the lock pins: {error}") from None
    return [into / wheel.file for wheel in pinned]


def _by_pip(lacking: Sequence[Wheel], into: Path, run: Programs) -> None:
    requirements = into / "requirements.txt"
    requirements.write_text(
        "".join(
            f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in lacking
        ),
        encoding="utf-8",
    )
    settings = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    }
    options = ["--only-binary=:all:", "--no-deps", "--require-hashes", "--python-version=3.11"]
    platforms = sorted({tag for wheel in lacking for tag in _platforms(wheel.file)})
    try:
        run.run(
            [
                *(sys.executable, "-I", "-m", "pip", "download", "--quiet"),
                *("--disable-pip-version-check", "--no-input", "--no-cache-dir", *options),
                *(f"--platform={platform}" for platform in platforms),
                *("--dest", str(into), "--requirement", str(requirements)),
            ],
            cwd=into,
            environment=settings,
        )
    except CommandError as error:
        names = ", ".join(wheel.file for wheel in lacking[:2])
        more = f" and {len(lacking) - 2} more" if len(lacking) > 2 else ""
        raise RootError(
            f"pip cannot fetch the guest's wheels {names}{more}: {_pip_words(error.stderr)}; give "
            "the files with --packages FOLDER, or install the wheel outcast-guest"
        ) from None


def _platforms(file: str) -> list[str]:
    """The platform tags in a wheel's file name."""
    return [tag for tag in file.removesuffix(".whl").rpartition("-")[2].split(".") if tag != "any"]


def _pip_words(said: str) -> str:
    """The first error of pip, without the warnings and tries before it."""
    errors = [part for part in said.split(" | ") if part.startswith("ERROR:")]
    return gist(errors[0].removeprefix("ERROR: ") if errors else said) or "it wrote no reason"
