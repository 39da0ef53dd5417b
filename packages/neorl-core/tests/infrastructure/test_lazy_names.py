"""Names that are imported on use, and that commands start without JAX."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import neorl_core
from neorl_core.infrastructure import lazy_names


def test_a_name_comes_from_its_module_and_an_unknown_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late").mkdir()
    (tmp_path / "late/__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from json.decoder import JSONDecodeError as JSONDecodeError\n"
        "    from late import tool as tool\n"
    )
    (tmp_path / "late/tool.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("late")
    attribute, names = lazy_names("late")
    assert attribute("JSONDecodeError").__name__ == "JSONDecodeError"
    assert attribute("tool").__name__ == "late.tool"
    assert {"JSONDecodeError", "tool"} <= {*names()}
    with pytest.raises(AttributeError, match="module 'late' has no attribute 'nothing'"):
        attribute("nothing")


def test_every_public_name_of_core_can_be_used_and_is_listed() -> None:
    for name in neorl_core.__all__:
        assert getattr(neorl_core, name) is getattr(neorl_core, name)
    assert {*neorl_core.__all__} <= {*dir(neorl_core)}


def test_importing_what_commands_share_imports_neither_jax_nor_numpy() -> None:
    code = (
        "import neorl_core.infrastructure.command_line, sys; "
        "sys.exit(bool({'jax', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
