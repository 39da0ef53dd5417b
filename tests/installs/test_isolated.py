"""The check of isolated imports finds an import that nobody declared."""

import shutil
from pathlib import Path

from check_isolated import build_wheels, check


def test_a_planted_import_is_found_where_only_what_is_declared_is_installed(
    clone: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "neorl-deploy"
    shutil.copytree(clone / "packages" / folder.name, folder)
    (folder / "src/neorl_deploy/_planted.py").write_text("import jax\n")
    wheels, scratch = tmp_path / "wheels", tmp_path / "scratch"
    build_wheels([folder], wheels)
    scratch.mkdir()
    (fault,) = check(folder, wheels, scratch)
    assert fault.startswith("neorl_deploy._planted with neorl-deploy: ModuleNotFoundError")
    assert "jax" in fault
