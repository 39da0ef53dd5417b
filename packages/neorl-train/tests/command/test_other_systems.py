"""The command on a system that is not POSIX, as far as one that is can show it."""

import os
import subprocess
import sys

# What Windows has not, taken from neorl's own modules: other packages have their own ways there,
# which this process cannot take. They are imported before anything is taken away.
WITHOUT_POSIX = """
import builtins, os, signal, sys, time, types
from pathlib import Path

import equinox, filelock, gymnasium, h5py, jax, optax, orbax.checkpoint, rich.console

MODULES = {"fcntl", "grp", "posix", "pwd", "resource", "syslog", "termios", "tty"}
NAMES = {
    os: "chown fchmod fchown fork getuid killpg mkfifo posix_fallocate pread pwrite "
        "sched_getaffinity setsid sysconf uname",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGQUIT SIGUSR1",
    time: "CLOCK_BOOTTIME",
}
original = builtins.__import__

def without(name, globals=None, locals=None, fromlist=(), level=0):
    ours = str((globals or {}).get("__name__", "")).startswith("neorl_")
    if ours and not level and name in MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return original(name, globals, locals, fromlist, level)

for module, names in NAMES.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
builtins.__import__ = without
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, LK_UNLCK=0, locking=lambda *_: None)
assert not [name for name in sys.modules if name.startswith("neorl_")]

from neorl_train._command.main import main

assert main(["--help"]) == 0
assert main(["list"]) == 0

from neorl_train.runs import create_run, holder, locked, require_free_space

run = create_run(Path("runs"), "", {"status": "running"})
assert holder(run) is None
with locked(run):
    assert holder(run) == str(os.getpid())
    try:
        with locked(run):
            raise SystemExit("two at once")
    except ValueError as error:
        assert f"in use by process {os.getpid()};" in str(error), error
assert holder(run) is None
require_free_space(run.path, 1)
try:
    require_free_space(run.path, 1 << 60)
    raise SystemExit("a disk of an exbibyte")
except OSError:
    pass
print("ended well")
"""


def test_it_starts_lists_and_locks_without_what_windows_has_not(tmp_path):
    # Compiled programs of its own: to the feigned lock, every other process looks dead.
    environment = os.environ | {"NEORL_COMPILATION_CACHE": str(tmp_path / "programs")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage: neorl-train" in done.stdout
    assert "ChemicalReactor-v0" in done.stdout
    assert done.stdout.endswith("ended well\n")
