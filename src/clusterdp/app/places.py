"""The names of files and folders on this machine, for choosing one. No content is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# A folder with more is not listed to its end; its path can be typed.
_MOST = 2_000


def list_names(under: str) -> dict[str, Any]:
    """What is in a folder: names of folders, and of files.

    Args:
        under: The folder, or something in it; the home folder if it is empty.
    """
    place = Path(os.path.expanduser(under.replace("\0", "") or "~"))  # noqa: PTH111 - of anyone
    while not os.path.isdir(place) and place != place.parent:  # noqa: PTH112 - of any length
        place = place.parent
    place = Path(os.path.abspath(place))  # noqa: PTH100 - links stay as they are named
    folders: list[str] = []
    names: list[str] = []
    problem = ""
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    (folders if entry.is_dir() else names).append(entry.name)
    except OSError as error:
        problem = f"This folder cannot be read: {error.strerror}."
    every = len(folders) + len(names)
    if every > _MOST:
        problem = f"Only {_MOST:,} of {every:,} names are listed. Type the path instead."
    folders.sort(key=str.casefold)
    names.sort(key=str.casefold)
    return {
        "place": str(place),
        "above": str(place.parent) if place != place.parent else None,
        "folders": folders[:_MOST],
        "files": names[: max(0, _MOST - len(folders))],
        "problem": problem,
    }
