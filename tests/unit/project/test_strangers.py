"""A stranger's archive, run, submission, capture, network and config, given to every verb."""

import shutil
from pathlib import Path

import pytest

from outcast.cli import VERBS
from tests.golden import class_folder, hostile, strangers

SECRET = "nobody-may-read-this"
X = "X"
"""Where the input's path goes."""

WAYS: dict[str, tuple[str, ...]] = {
    "run": ("run", X, "-o", "out"),
    "exec": ("exec", X, "--", "true"),
    "sweep": ("sweep", X, "--dry-run"),
    "topo": ("topo", X),
    "compare": ("compare", "own.yaml", X, "-o", "out"),
    "results": ("results", X),
    "reproduce": ("reproduce", X),
    "analyze": ("analyze", X),
    "show": ("show", X, "--all"),
    "report": ("report", X),
    "figure": ("figure", X, "goodput", "-o", "out.png"),
    "pack": ("pack", X, "-o", "out.zip"),
    "replay": ("replay", X),
    "whatif": ("whatif", X, "--packet", "3", "--fate", "drop", "-o", "out"),
    "fate": ("fate", X, "--at", "0:10ms:5ms", "--outcome", "starved", "-o", "out"),
    "trace": ("trace", X, "-o", "out"),
    "join FILE": ("join", X),
    "join": ("join", "--in", f"a={X}", "--out", "b=own.pcap", "-o", "out.csv"),
    "inspect": ("inspect", X),
    "export": ("export", X, "--pcapng", "out.pcapng"),
    "why": ("why", X),
    "assignment check": ("assignment", "check", X),
    "assignment pack": ("assignment", "pack", X, "-o", "out.zip"),
    "assignment lint": ("assignment", "lint", X),
    "assignment grade": ("assignment", "grade", "CLASS", X, "-o", "out"),
}
"""Every way to give a verb something of a stranger's."""

TAKES = {
    **dict.fromkeys(("run", "exec", "sweep", "topo"), ("config", "topology", "graph")),
    **dict.fromkeys(("join FILE", "join", "inspect"), ("capture", "table")),
    "assignment grade": ("tar", "submission"),
    **dict.fromkeys(("assignment check", "assignment pack"), ("zip", "submission")),
}
"""The inputs that a way is for, if not runs and their archives."""
FEW = {"reproduce": 10, "assignment grade": 30}
"""N: a way gets every Nth of all other inputs; a way that is not listed gets every third."""

TAKE_NOTHING = {"doctor", "guest", "clean", "completion"}
YOUR_OWN = {"run", "exec", "sweep", "topo"}
"""These take a configuration as a program of the user's own (SECURITY.md)."""


@pytest.fixture(scope="module")
def class_path(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("class")
    return class_folder.make_class(folder / "class", "ana").path


def test_every_verb_is_tried():
    assert {words[0] for words in WAYS.values()} | TAKE_NOTHING == set(VERBS)


def wrong_with(
    way: str, name: str, place: Path, bases: hostile.Bases, server: hostile.Server, class_path: Path
) -> list[str]:
    """What is wrong with a verb's answer to an input."""
    for folder in ("given", "precious", "here", "tmp"):
        (place / folder).mkdir(parents=True)
    secret = place / "precious/file"
    secret.write_text(f"{SECRET}\n")
    (place / "here/own.pcap").write_bytes(bases.captures[0])
    shutil.copyfile(hostile.CONFIGS / "linear-12.yaml", place / "here/own.yaml")
    path = strangers.INPUTS[name](place / "given", bases)
    words = [str(class_path) if w == "CLASS" else w.replace(X, str(path)) for w in WAYS[way]]
    answer = server.ask(words, place)
    # Notes may come before an error.
    wrong = hostile.judge("inspect", answer)
    is_own = way in YOUR_OWN and name.startswith(("config:", "topology"))
    if answer.opened and not is_own:
        wrong.append(f"opened {answer.opened}")
    left = [file for file in place.rglob("*") if file.is_file() and not file.is_symlink()]
    told = [file.name for file in left if file != secret and SECRET.encode() in file.read_bytes()]
    if SECRET in answer.out + answer.err or told:
        wrong.append(f"tells the file's content: {told}")
    if [file.name for file in (place / "precious").iterdir()] != ["file"]:
        wrong.append("ran or wrote something")
    return [f"{' '.join(map(ascii, words))}: {each}" for each in wrong]


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_a_strangers_harms(way, tmp_path, bases, server, class_path):
    wrong = []
    takes = TAKES.get(way, ("run", "pack", "zip", "tar"))
    for number, name in enumerate(strangers.INPUTS):
        if not name.startswith(takes) and number % FEW.get(way, 3):
            continue
        wrong += wrong_with(way, name, tmp_path / str(number), bases, server, class_path)
        shutil.rmtree(tmp_path / str(number))
    assert wrong == []
