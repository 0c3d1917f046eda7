"""Experiment files and locks that ask for what cannot be."""

from __future__ import annotations

import hashlib
import tomllib
from typing import TYPE_CHECKING

from clusterdp.owner.plan import WOULD_BE_REJECTED
from clusterdp.spec.fields import SECTIONS
from soak.attempts import Tried, damaged, run_command
from soak.sound_folders import table

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

_TABLE = {
    "unit": '"user"',
    "arm": '"treated"',
    "cluster": '"market"',
    "outcomes": '["clicks=0..3"]',
}
_SOUND = [
    {"mechanism": '"cluster-dp"', "noise_scale": "4", "prior_floor": "0.05", "epsilon": "2.0"},
    {
        "mechanism": '"uniform-prior-dp"',
        "epsilon": "2",
        "passthrough": '["tier"]',
        "sums_share": "0.1",
    },
    {"mechanism": '"noisy-histogram"', "epsilon": "1.5", "baseline": '"mean:1,std:1"'},
    {"mechanism": '"optimal"', "epsilon": "2.0", "prior": "[4, 3, 2, 1]", "min_cell_size": "2"},
    {
        "mechanism": '"uniform-prior-dp"',
        "epsilon": "1",
        "delta": "1e-6",
        "control": "1",
        "n_units": "48",
        "n_clusters": "3",
        "within_share": "0.5",
    },
]
_TEXTS = ("unit", "arm", "cluster", "mechanism")
_POSITIVE = (
    "epsilon",
    "noise_scale",
    "prior_floor",
    "resample_prob",
    "within_share",
    "min_cell_size",
)
_SHARES = ("totals_share", "sums_share", "breakdown_share")
_NO_PURPOSE = ('"all"', '"segments:0"', '"segments:2"', '"segments:"', '"breakdowns"', "1", '""')
_NO_TEXT = ("1", "1.5", "true", "[]", "{}", "{a = 1}", "1979-05-27", "nan", "[[1]]")
_NO_NUMBER = (
    '"two"',
    "true",
    "[]",
    "[1]",
    "{}",
    "1979-05-27",
    "07:32:00",
    '""',
    "nan",
    "-1",
    "0",
    "-inf",
    "-1e308",
)
_NO_SPACES = (
    *("few", "", "1", "1..0", "0..0", "0..99999999999", "0..1..2", "0x0..2", "-5..-9", ",,", "0,0"),
    *("0,nan", "0,inf", "1e400,1", f"0,{10**400}", "bins:", "bins:1,1", "bins:0,inf"),
    *("bins:0,1,2 as 0", "number:", "number:4..0", "number:0..inf", "number:0..1e400"),
)
_NO_OUTCOMES = (
    *(f'["clicks={space}"]' for space in _NO_SPACES),
    *("[]", '""', "1", "[1]", "[nan]", "[[]]", "true", '["clicks"]', '["=0,1"]', '["nowhere=0,1"]'),
    '["clicks=0..3", "clicks=0..3"]',
)
_NO_METRICS = ('["visits"]', '["clicks>"]', '["clicks*"]', '["clicks"]', "1", "[1]", '[""]')
_NO_CONSTRAINTS = ('["clicks"]', '["clicks -> visits"]', '["-> clicks"]', "1", '["a -> b -> c"]')
_NO_WEIGHTS = ('["clicks=0"]', '["clicks=nan"]', '["visits=2"]', '["clicks"]', "1", '["=2"]')
_NO_NAME = ('""', '"nowhere"', '"\\u0000"', '"a\\nb"', '"' + "x" * 5000 + '"', '"*"', '"^.*$"')
_NO_PLACE = (
    *_NO_NAME,
    '"nowhere.csv"',
    '"duckdb:"',
    '"duckdb://"',
    '"duckdb:///x.db"',
    '"sqlite:///x.db"',
    '"postgresql://[/x"',
    '"["',
    '"http://nowhere"',
    '"file.parquet\\u0000.csv"',
)
_NO_LIST = (
    '"a"',
    "[-1, 1, 1, 1]",
    "[nan, 1, 1, 1]",
    "[1]",
    '["a", "b", "c", "d"]',
    "[[1]]",
    "[]",
    "[0, 0, 0, 0]",
    f"[{10**400}, 1, 1, 1]",
    "[inf, 1, 1, 1]",
    '""',
    '"mean:9,std:1"',
    '"mean:x,std:1"',
    "true",
)


_NO_TARGET = (
    '""',
    '"/"',
    '"nowhere/out"',
    '"\\u0000"',
    '"' + "x" * 5000 + '"',
    '"x.partial"',
    "1",
    '"/proc/out"',
    "[]",
    "nan",
)


def try_request(rng: np.random.Generator, folder: Path) -> Tried:
    """Ask for the impossible with an experiment file or a lock."""
    source = folder / "clicks.parquet"
    if not source.exists():
        table().write_parquet(source)
    asked = {**_TABLE, "input": f'"{source}"', **_SOUND[int(rng.integers(len(_SOUND)))]}
    if rng.random() < 0.3:
        return _try_damaged(asked, rng, folder)
    mutation = _spoil(asked, rng)
    path = folder / "request.toml"
    dry = () if "out" in asked else ("--dry-run",)
    if rng.random() < 0.5:
        path.write_text(_sections(asked), encoding="utf-8")
        ran = run_command("plan", path)
    else:
        _write_lock(path, _toml(asked).encode())
        ran = run_command("release", path, *dry)
    if ran.fault:
        return Tried(mutation, "traceback", ran.fault)
    # A plan spends nothing: it notes what a release would reject.
    refused = ran.exit_code or WOULD_BE_REJECTED in ran.stdout
    return Tried(mutation, "refused" if refused else "accepted")


_PLACES = {
    option: (section, key) for section, keys in SECTIONS.items() for key, option in keys.items()
}


def _sections(asked: dict[str, str]) -> str:
    """The request as an experiment file; what has no key there is a key of `privacy`."""
    sections: dict[str, list[str]] = {"outcomes": ['clicks = { type = "count", max = 3 }']}
    for option, value in asked.items():
        section, key = _PLACES.get(option, ("privacy", option))
        if option != "outcomes":
            sections.setdefault(section, []).append(f"{key} = {value}")
        elif value != _TABLE["outcomes"]:
            sections["outcomes"] = [f"clicks = {value}"]
    return "".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())


def _write_lock(path: Path, lock: bytes) -> None:
    """The request as the lock of a file that says nothing."""
    path.write_bytes(b"")
    checksum = hashlib.sha256(b"").hexdigest()
    path.with_suffix(".lock").write_bytes(f'experiment = "{checksum}"\n'.encode() + lock)


def _toml(asked: dict[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in asked.items())


def _try_damaged(asked: dict[str, str], rng: np.random.Generator, folder: Path) -> Tried:
    """Damage the text; what then still reads as TOML may be a request as good as any."""
    sound = _toml(asked).encode()
    mutation, content = damaged(
        sound, rng, [b"\xff\xfe", b"a = " + b"[" * 9999, b"a = " + b"9" * 9999]
    )
    path = folder / "request.toml"
    _write_lock(path, content)
    ran = run_command("release", path, "--dry-run")
    if ran.fault:
        return Tried(f"text, {mutation}", "traceback", ran.fault)
    if ran.exit_code:
        return Tried(f"text, {mutation}", "refused")
    try:
        reads = tomllib.loads(content.decode())
    except (ValueError, RecursionError):
        return Tried(f"text, {mutation}", "accepted", "it is not TOML")
    same = reads == tomllib.loads(sound.decode())
    return Tried(f"text, {mutation}", "harmless" if same else "sound")


def _spoil(asked: dict[str, str], rng: np.random.Generator) -> str:
    """Make a request impossible, and say how."""

    def pick(choices: tuple[str, ...]) -> str:
        return choices[int(rng.integers(len(choices)))]

    spoilt: dict[str, tuple[str, str]] = {
        "unknown key": (pick(("colour", "epsilonn", "Epsilon", "sha256", '""')), "1"),
        "no text": (pick(_TEXTS), pick(_NO_TEXT)),
        "no number": (pick(_POSITIVE[:-1]), pick(_NO_NUMBER)),
        "no share": ("optimize_for", pick(_NO_PURPOSE)),
        "no size": ("min_cell_size", pick((*_NO_NUMBER, "1.5", "inf", "1" + "0" * 30))),
        "no space": ("outcomes", pick(_NO_OUTCOMES)),
        "no metric": ("metric", pick(_NO_METRICS)),
        "no constraint": ("constraint", pick(_NO_CONSTRAINTS)),
        "no weight": ("weight", pick(_NO_WEIGHTS)),
        "no name": (pick(_TEXTS), pick(_NO_NAME)),
        "no place": ("input", pick(_NO_PLACE)),
        "no prior": (pick(("prior", "baseline")), pick(_NO_LIST)),
        "no delta": ("delta", pick(("-1", "1", "2.0", "nan", "inf", '"x"', "true", "[0]", "-inf"))),
        "no flag": ("clip", pick(('"yes"', "1", "0", "[]", "nan"))),
        "no columns": (
            "passthrough",
            pick(
                (
                    "[1]",
                    "true",
                    '"nowhere"',
                    '["clicks"]',
                    '["user"]',
                    "[[]]",
                    '["tier", "tier"]',
                    "1.5",
                    '["\\u0000"]',
                )
            ),
        ),
        "no arm": ("control", pick(('"nobody"', "7", "1.5", "[]", "nan", '""', "[0]"))),
        "no ledger": (
            "ledger",
            pick(
                (
                    '"nowhere.db"',
                    '"\\u0000"',
                    "1",
                    '"http://a"',
                    '""',
                    '"postgresql://"',
                    '"' + "x" * 5000 + '"',
                    '"/"',
                )
            ),
        ),
        "no plan": (pick(("n_units", "n_clusters")), pick(('"x"', "1.5", "true", "[]"))),
        "no share of epsilon": (pick(_SHARES), pick(("1", "1.5", "-0.1", "nan", "inf", '"x"'))),
        "no mechanism": ("mechanism", pick(('"magic"', '""', '"Optimal"', '"cluster_dp "'))),
        "contradiction": ("resample_prob", "0.5"),
        "no target": ("out", pick(_NO_TARGET)),
        "too large": (pick((*_POSITIVE, "delta", "n_units")), "1" + "0" * 400),
        "too much": ("epsilon", pick(("1001", "1e9", "1e30", "1e308"))),
        "population alone": ("population", '"users"'),
    }
    mutation = str(rng.choice(list(spoilt)))
    key, value = spoilt[mutation]
    asked[key] = value
    if key == "ledger":
        asked["population"] = '"users"'
    return f"{mutation}: {key} = {value[:30]}"
