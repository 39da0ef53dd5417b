"""What a machine may lack: reference data beside the checkout, a browser. Tests say so and skip.

The reasons are fixed texts, so that a continuous integration run can count them.
"""

import os
import shutil
from pathlib import Path

import pytest

SHARED_DATA_VARIABLE = "NEORL_SHARED_DATA"
NO_SHARED_DATA = f"no shared data folder (set {SHARED_DATA_VARIABLE}, or lay it at ../shared/data)"
NO_BROWSER = "no browser (install Chromium)"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def shared_data(*parts: str) -> Path:
    """A file or folder of the reference data, or the test is skipped and counted.

    The folder is named by the environment variable ``NEORL_SHARED_DATA``; without it, it is
    ``shared/data`` beside the checkout that holds the working directory.

    Args:
        *parts: Path below the folder, such as ``"neorl2", "DMSD"``.

    Returns:
        An existing path.

    Raises:
        FileNotFoundError: If the folder is there and the path below it is not.
    """
    named = os.environ.get(SHARED_DATA_VARIABLE)
    folder = Path(named) if named else _beside_checkout()
    if folder is None or not folder.is_dir():
        pytest.skip(NO_SHARED_DATA)
    path = folder.joinpath(*parts)
    if not path.exists():
        raise FileNotFoundError(f"{path}: the shared data folder {folder} has no such entry")
    return path


def browser() -> str:
    """Path of a Chromium, or the test is skipped and counted."""
    browser_path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser_path is None:
        pytest.skip(NO_BROWSER)
    return browser_path


def _beside_checkout() -> Path | None:
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        if (folder / "packages" / "neorl-core").is_dir():
            return folder.parent / "shared" / "data"
    return None
