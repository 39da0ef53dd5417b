"""Two processes at once, and one that is killed while it writes, leave no half entry to others."""

import os
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import jax
import jaxlib
import pytest

from neorl_core.infrastructure import (
    CompiledPrograms,
    _compiled_programs,
    cache_fault,
    keep_compiled_programs,
    publish_compiled_programs,
)

ENTRY = zlib.compress(b"a program" * 100)

PROGRAM = """
import sys
from pathlib import Path
import jax
from jax import monitoring
from neorl_core.infrastructure import keep_compiled_programs

events = []
monitoring.register_event_listener(lambda event, **_: events.append(event.rsplit("/", 1)[-1]))
keep_compiled_programs(Path(sys.argv[1]))
if "killed" in sys.argv:
    # The system ends the process at the 65th byte of a file.
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
jax.jit(lambda x: x * 2 + 1)(3.0).block_until_ready()
print(events.count("cache_hits"), events.count("cache_misses"))
"""


def run(shared: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A process that compiles one program, in which a warning of JAX's is an error."""
    ours = ("JAX_", "NEORL_COMPILATION_CACHE")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(shared), *words]
    return subprocess.run(command, capture_output=True, text=True, env=clean)


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limit on file size on this system")
def test_a_process_killed_while_it_writes_an_entry_harms_no_other(tmp_path):
    assert run(tmp_path, "killed").returncode == -signal.SIGXFSZ
    halves = list(tmp_path.rglob("*-cache"))
    assert [half.stat().st_size for half in halves] == [64]

    first = run(tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    hits, misses = map(int, first.stdout.split())
    assert hits == 0
    assert misses > 0
    assert not halves[0].exists()

    second = run(tmp_path)
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout.split() == [str(misses), "0"]
    assert not list(tmp_path.glob("*/processes/*"))


def test_an_entry_is_shared_when_it_is_published(tmp_path):
    one, other = CompiledPrograms(tmp_path), CompiledPrograms(tmp_path)
    (one.folder / "a-cache").write_bytes(ENTRY)
    other.take()
    assert not (other.folder / "a-cache").exists()
    one.publish()
    other.take()
    assert (other.folder / "a-cache").read_bytes() == ENTRY
    assert (CompiledPrograms(tmp_path).folder / "a-cache").read_bytes() == ENTRY


@pytest.mark.parametrize(
    "half", [b"", ENTRY[: len(ENTRY) // 2], ENTRY[:-1], b"\x28\xb5\x2f\xfd\x00", b"no entry"]
)
def test_a_half_is_not_published_and_its_rest_is(tmp_path, half):
    one, other = CompiledPrograms(tmp_path), CompiledPrograms(tmp_path)
    (one.folder / "a-cache").write_bytes(half)
    one.publish()
    other.take()
    assert not (other.folder / "a-cache").exists()
    (one.folder / "a-cache").write_bytes(ENTRY)
    one.publish()
    other.take()
    assert (other.folder / "a-cache").read_bytes() == ENTRY


def test_what_is_published_stays_as_it_is(tmp_path):
    one, other = CompiledPrograms(tmp_path), CompiledPrograms(tmp_path)
    for programs, content in ((one, ENTRY), (other, zlib.compress(b"another"))):
        (programs.folder / "a-cache").write_bytes(content)
        programs.publish()
    assert (CompiledPrograms(tmp_path).folder / "a-cache").read_bytes() == ENTRY


def test_an_entry_lost_with_the_power_is_replaced(tmp_path):
    one = CompiledPrograms(tmp_path)
    (tmp_path / "complete" / "a-cache").touch()
    one.take()
    assert not (one.folder / "a-cache").exists()
    (one.folder / "a-cache").write_bytes(ENTRY)
    one.publish()
    assert (tmp_path / "complete" / "a-cache").read_bytes() == ENTRY


def test_the_folder_of_a_dead_process_is_removed_and_that_of_a_live_one_stays(tmp_path):
    live, dead = CompiledPrograms(tmp_path), CompiledPrograms(tmp_path)
    for programs in (live, dead):
        (programs.folder / "a-cache").write_bytes(ENTRY[:9])
    os.close(dead._lock)  # as the system does when the process ends
    (tmp_path / "processes" / "made but not locked").mkdir()
    third = CompiledPrograms(tmp_path)
    assert {*(tmp_path / "processes").iterdir()} == {live.folder, third.folder}
    third.close()
    third.close()
    assert {*(tmp_path / "processes").iterdir()} == {live.folder}


def test_a_fork_leaves_the_folder_of_its_parent_alone(tmp_path, monkeypatch):
    programs = CompiledPrograms(tmp_path)
    with monkeypatch.context() as in_fork:
        in_fork.setattr(os, "getpid", lambda: -1)
        programs.close()
    assert programs.folder.exists()
    programs.close()
    assert not programs.folder.exists()


def test_a_cache_that_is_removed_meanwhile_is_no_error(tmp_path):
    programs = CompiledPrograms(tmp_path / "shared")
    shutil.rmtree(tmp_path / "shared")
    programs.take()
    programs.publish()
    programs.close()


def test_a_folder_without_hard_links_holds_copies(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refused)
    one = CompiledPrograms(tmp_path)
    (one.folder / "a-cache").write_bytes(ENTRY)
    one.publish()
    other = CompiledPrograms(tmp_path)
    assert (other.folder / "a-cache").read_bytes() == ENTRY
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.fixture
def unconfigured(monkeypatch):
    """JAX's configuration without a cache, put back afterwards; nothing is compiled meanwhile."""
    names = (
        "jax_compilation_cache_dir",
        "jax_compilation_cache_max_size",
        "jax_persistent_cache_enable_xla_caches",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setattr(_compiled_programs, "_current", None)
    monkeypatch.delenv(_compiled_programs.VARIABLE, raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("unconfigured")
def test_the_environment_goes_before_the_configuration_before_the_default(tmp_path, monkeypatch):
    assert keep_compiled_programs() is None
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "configured"))
    kept = keep_compiled_programs(tmp_path / "default")
    assert kept.shared == tmp_path / "configured" / f"jaxlib-{jaxlib.__version__}"
    monkeypatch.setenv(_compiled_programs.VARIABLE, str(tmp_path / "named"))
    jax.config.update("jax_compilation_cache_dir", None)
    kept = keep_compiled_programs(tmp_path / "default")
    assert kept.shared.parent == tmp_path / "named"
    assert jax.config.jax_compilation_cache_dir == str(kept.folder)
    assert keep_compiled_programs(tmp_path / "default") is kept
    (kept.folder / "a-cache").write_bytes(ENTRY)
    publish_compiled_programs()
    assert (kept.shared / "complete" / "a-cache").exists()
    kept.close()


@pytest.mark.usefixtures("unconfigured")
def test_what_only_jax_can_handle_is_left_to_it(tmp_path):
    jax.config.update("jax_compilation_cache_dir", "gs://bucket/programs")
    assert keep_compiled_programs() is None
    assert jax.config.jax_compilation_cache_dir == "gs://bucket/programs"
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update("jax_compilation_cache_max_size", 10**9)
    assert keep_compiled_programs() is None
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)


@pytest.mark.usefixtures("unconfigured")
def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "file").touch()
    assert keep_compiled_programs(tmp_path / "file" / "below") is None
    assert jax.config.jax_compilation_cache_dir is None


ASKS = """
import sys
from pathlib import Path
import jax
from neorl_core.infrastructure import _compiled_programs, cache_fault, keep_compiled_programs

keep_compiled_programs(Path(sys.argv[1]))
if "logs" in sys.argv:
    # As the library does that is not Python, for an entry that it then compiles again by itself.
    import os
    program = _compiled_programs._probe
    def probe(x):
        os.write(2, b"E0000 Machine type used for compilation doesn't match the "
                    b"machine type for execution")
        return program(x)
    probe.__name__ = program.__name__
    _compiled_programs._probe = probe
print(cache_fault(), jax.config.jax_enable_compilation_cache)
"""


def test_a_cache_whose_entries_are_rejected_is_switched_off(tmp_path):
    def asked(*words: str) -> str:
        ours = ("JAX_", "NEORL_COMPILATION_CACHE")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        command = [sys.executable, "-W", "error", "-c", ASKS, str(tmp_path), *words]
        done = subprocess.run(command, capture_output=True, text=True, env=clean)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.strip()

    assert asked("logs") == "True"  # the first process cannot know yet
    assert asked() == "True"
    assert asked("logs").endswith("compiles its programs again False")
    (entry,) = tmp_path.glob("*/complete/jit__probe-*-cache")
    entry.write_bytes(ENTRY)  # complete, but no program
    assert asked().endswith("compiles its programs again False")


def test_without_a_cache_there_is_no_fault(monkeypatch):
    monkeypatch.setattr(_compiled_programs, "_current", None)
    assert cache_fault() == ""
