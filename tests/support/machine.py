"""What a machine may lack: reference data beside the checkout, a browser. Tests say so and skip.

The reasons are fixed texts, so that a continuous integration run can count them.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

SHARED_DATA_VARIABLE = "NEORL_SHARED_DATA"
BESIDE_CHECKOUT = Path(__file__).resolve().parents[2].parent / "shared" / "data"
NO_SHARED_DATA = f"no shared data folder (set {SHARED_DATA_VARIABLE}, or lay it at ../shared/data)"
NO_BROWSER = "no browser (install Chromium)"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_shared_data(*parts: str) -> Path:
    """A file or folder of the reference data, or the test is skipped and counted.

    The folder is named by the environment variable ``NEORL_SHARED_DATA``; without it, it is
    ``shared/data`` beside this checkout.

    Args:
        *parts: Path below the folder, such as ``"neorl2", "DMSD"``.

    Returns:
        An existing path.

    Raises:
        FileNotFoundError: If the folder is there and the path below it is not.
    """
    named = os.environ.get(SHARED_DATA_VARIABLE)
    folder = Path(named) if named else BESIDE_CHECKOUT
    if not folder.is_dir():
        pytest.skip(NO_SHARED_DATA)
    path = folder.joinpath(*parts)
    if not path.exists():
        raise FileNotFoundError(f"{path}: the shared data folder {folder} has no such entry")
    return path


def find_browser() -> str:
    """Path of a Chromium, or the test is skipped and counted."""
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        pytest.skip(NO_BROWSER)
    return path


@pytest.fixture(scope="session")
def shared_data() -> Callable[..., Path]:
    """:func:`find_shared_data`."""
    return find_shared_data


@pytest.fixture(scope="session")
def browser() -> str:
    """:func:`find_browser`."""
    return find_browser()
