"""How a program is called, and where its compiled programs are kept."""

import shutil
import sys
from pathlib import Path

import pytest

from neorl_core.infrastructure.command_line import cache_directory, command_prefix


def test_the_cache_is_where_the_user_keeps_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "neorl" / "jax"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_directory() == tmp_path / "home" / ".cache" / "neorl" / "jax"


def test_a_program_is_named_as_the_user_can_call_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HATCH_ENV_ACTIVE", "default")
    assert command_prefix("neorl-envs") == "python -m hatch run neorl-envs"
    monkeypatch.setenv("HATCH_ENV_ACTIVE", "lint")
    assert command_prefix("neorl-envs") == "python -m hatch run lint:neorl-envs"
    monkeypatch.delenv("HATCH_ENV_ACTIVE")
    beside = str(Path(sys.executable).parent / "neorl-envs")
    monkeypatch.setattr(shutil, "which", lambda program: beside)
    assert command_prefix("neorl-envs") == "neorl-envs"
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert command_prefix("neorl-envs").endswith(" -m neorl_envs")
