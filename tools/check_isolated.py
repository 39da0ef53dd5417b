"""Import every module of every wheel where only its declared dependencies are installed.

Usage:
    hatch run installs:isolated              all packages
    hatch run installs:isolated core deploy  these

Builds the wheels, then makes one fresh environment per package and per extra that a module needs.
A module imports with the package's base dependencies unless the package says otherwise in its
pyproject.toml, where a module stands for those below it too:

    [tool.neorl.extras]
    testing = ["neorl_core.testing"]

Such a module must fail in the base environment, so that the table cannot go stale, and import in
an environment with its extra.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROBE = """
import importlib, sys
for name in sys.stdin.read().split():
    try:
        importlib.import_module(name)
    except BaseException as error:  # a module may call sys.exit, and the rest must still be tried
        why = str(error).splitlines()
        print(f"{name}\\t{type(error).__name__}: {why[0] if why else ''}")
print("done")
"""


def build_wheels(folders: list[Path], target: Path) -> None:
    """Builds with the hatchling of the running environment, without asking an index."""
    for folder in folders:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def modules(wheel: Path) -> list[str]:
    """Dotted names of all modules in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if name.endswith(".py")]
    dotted = [name.removesuffix(".py").replace("/", ".") for name in files]
    return sorted(name.removesuffix(".__init__") for name in dotted)


def extras(folder: Path) -> dict[str, list[str]]:
    """The `[tool.neorl.extras]` table of a package."""
    settings = tomllib.loads((folder / "pyproject.toml").read_text())
    return settings.get("tool", {}).get("neorl", {}).get("extras", {})


def below(name: str, roots: list[str]) -> bool:
    """Whether a module is one of the roots or stands below one."""
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def import_failures(requirement: str, wheels: Path, names: list[str], place: Path) -> dict:
    """Installs a requirement in a fresh environment and returns the modules that fail there."""
    python = place / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
    install = [*uv, "pip", "install", "--quiet", "--python", str(python)]
    install += ["--find-links", str(wheels), requirement]
    # Outside the checkout: uv would take the siblings from the workspace instead of the wheels.
    subprocess.run(install, check=True, cwd=place)
    probe = [str(python), "-I", "-W", "error", "-c", PROBE]
    completed = subprocess.run(
        probe, check=True, cwd=place, input="\n".join(names), capture_output=True, text=True
    )
    lines = completed.stdout.splitlines()
    if lines[-1:] != ["done"]:
        raise RuntimeError(f"the probe of {requirement} ended early, after: {lines[-3:]}")
    return dict(line.split("\t", 1) for line in lines if "\t" in line)


def check(folder: Path, wheels: Path, scratch: Path) -> list[str]:
    """One line for every module of one package that breaks the rule."""
    (wheel,) = wheels.glob(f"{folder.name.replace('-', '_')}-*.whl")
    names, table = modules(wheel), extras(folder)
    optional = [root for roots in table.values() for root in roots]
    failures = import_failures(folder.name, wheels, names, scratch / folder.name)
    base = [name for name in names if not below(name, optional)]
    faults = [f"{name} with {folder.name}: {failures[name]}" for name in base if name in failures]
    for root in optional:
        if root not in failures:
            faults.append(f"{root} imports without its extra: take it out of [tool.neorl.extras]")
    for extra, roots in table.items():
        wanted = [name for name in names if below(name, roots)]
        requirement = f"{folder.name}[{extra}]"
        failures = import_failures(requirement, wheels, wanted, scratch / f"{folder.name}-{extra}")
        faults += [f"{name} with {requirement}: {why}" for name, why in failures.items()]
    print(f"{folder.name}: {len(base)} modules with the base, {len(names) - len(base)} with extras")
    return faults


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Import every module of every wheel in isolation.")
    parser.add_argument("package", nargs="*", help="core, envs, ...: default all")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args(arguments)
    folders = sorted((options.root / "packages").glob("neorl-*"))
    chosen = [f for f in folders if f.name.removeprefix("neorl-") in options.package] or folders
    with tempfile.TemporaryDirectory() as scratch:
        wheels = Path(scratch) / "wheels"
        build_wheels(folders, wheels)
        faults = [fault for folder in chosen for fault in check(folder, wheels, Path(scratch))]
    print("\n".join(faults) if faults else "isolated: every module imports")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
