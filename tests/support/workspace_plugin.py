"""What the test suites of all packages share: daily tests, order, kept programs, their cost.

No connection leaves the machine, and garbage is collected seldom: a process full of traced programs
is mostly none, and looking through it took an eighth of the time of core's table.

Every test's cost stands in the JUnit file, for ``tools/test_times.py``: the programs it compiled
(found on disk or not), the processor time that it and its child processes took, in seconds of a
machine that does :func:`_reference` in ``REFERENCE`` seconds, and the most memory that its process
had had by then. The time of a set-up that several tests share stands apart, beside the test that
happened to make it.
"""

import ctypes
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import pytest
from jax import monitoring

import daily_set
from machine import browser as browser
from machine import shared_data as shared_data
from neorl_core.infrastructure import keep_compiled_programs
from network import refuse_connections

COMPILED = "/jax/core/compile/backend_compile_duration"
REFERENCE = 0.0035
STRICT = {"neorl-core", "neorl-envs", "neorl-safety"}
MOST_PROGRAMS = 400, 700
"""Compiled programs that a process keeps beyond a file, and beyond a test.

A thousand take about a gigabyte, of which a process may have three; and each takes several memory
mappings, of which Linux gives a process 65,530.
"""

COLLECTED = pytest.StashKey[list[pytest.Item]]()
"""Every test that was collected, before any is left out."""

TOGETHER = {
    "tests/main_job/test_packages_agree.py": "tests/main_job/test_demo.py",
    "tests/main_job/test_online_run.py": "tests/main_job/test_outsider.py",
}
"""Files that run in the process of another one, whose session fixture takes long to make."""

_compilations = 0
_cleared_at = 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nightly",
        action="store_true",
        help="run rare and long tests too, and compile every program with all optimisations",
    )
    parser.addoption(
        "--daily", action="store_true", help="run only the tests that `hatch test` runs every day"
    )
    parser.addoption(
        "--choose-daily",
        action="store_true",
        help="choose in the file of durations a daily test for everything that has no cheap one",
    )
    parser.addoption("--compilations", action="store_true", help="print the cost of every file")


def pytest_configure(config: pytest.Config) -> None:
    refuse_connections()
    gc.set_threshold(100_000, 50, 1000)
    _keep_programs()
    if not config.getoption("--nightly"):
        _compile_quickly()
    monitoring.register_event_duration_secs_listener(_count)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves nightly tests out, and with ``--daily`` all others that are not daily.

    Dear files come first, so that no process is left alone with one at the end.
    """
    durations, rule = daily_set.stored(), daily_set.rule()
    config.stash[COLLECTED] = list(items)
    if config.getoption("--choose-daily"):
        daily_set.write_chosen(items)
    if config.getoption("--daily"):
        _keep(config, items, daily_set.daily(items, durations, rule))
    elif not config.getoption("--nightly"):
        _keep(config, items, [i for i in items if not i.get_closest_marker("nightly")])
    seconds = Counter()
    for item in items:
        seconds[item.path] += daily_set.duration(item, durations)
    items.sort(key=lambda item: -seconds[item.path])


def _keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Deselects all tests but some."""
    names = {item.nodeid for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, keeps the files of ``TOGETHER`` in one process too."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return TOGETHER.get(file, file)

    return Scheduling(config, log)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: looking through it for garbage took seconds a time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After each file, what was compiled goes to the other processes, and theirs comes here.

    Mixed dtypes raise in ``STRICT`` packages alone: optax, which the others use, mixes them.
    """
    strict = not STRICT.isdisjoint(item.path.parts)
    jax.config.update("jax_numpy_dtype_promotion", "strict" if strict else "standard")
    item.stash[_START] = (_compilations, _processor_seconds())
    done = yield
    if nextitem is None or nextitem.path != item.path:
        _slowness.clear()
        programs = keep_compiled_programs()
        if programs is not None:
            programs.publish()
            programs.take()
        _forget_programs(MOST_PROGRAMS[0])
    else:
        _forget_programs(MOST_PROGRAMS[1])
    return done


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Iterator[Any]:
    """Records apart what a set-up costs that several tests share."""
    if fixturedef.scope == "function":
        return (yield)
    before, nested = _processor_seconds(), len(_setups)
    try:
        return (yield)
    finally:
        within = sum(seconds for _, seconds in _setups[nested:])
        key = daily_set.setup_key(fixturedef, getattr(request, "param_index", 0))
        _setups.append((key, _processor_seconds() - before - within))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Records the cost; of the teardown too, so that it is known before that is reported."""
    done = yield
    compilations, seconds = item.stash[_START]
    shared = sum(taken for _, taken in _setups)
    taken = (_processor_seconds() - seconds - shared) / _slowness_now()
    item.user_properties.append(("compilations", _compilations - compilations))
    item.user_properties.append(("processor_seconds", round(taken, 3)))
    item.user_properties.append(("peak_megabytes", _peak_megabytes()))
    item.user_properties.append(("test", item.nodeid))
    for key, setup in _setups:
        item.user_properties.append((daily_set.SETUP + key, round(setup / _slowness_now(), 3)))
    _setups.clear()
    return done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests were skipped, a line a reason; and the table of ``--compilations``."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")
    if not terminalreporter.config.getoption("--compilations"):
        return
    compilations, seconds = Counter(), Counter()
    for report in terminalreporter.getreports("") + terminalreporter.getreports("passed"):
        if report.when == "teardown":
            cost = dict(report.user_properties)
            file = report.nodeid.split("::")[0]
            compilations[file] += cost["compilations"]
            seconds[file] += cost["processor_seconds"]
            seconds[file] += sum(v for k, v in cost.items() if k.startswith(daily_set.SETUP))
    terminalreporter.section("compilations, processor seconds")
    for file, taken in seconds.most_common():
        terminalreporter.write_line(f"{compilations[file]:6d} {taken:8.1f}  {file}")
    terminalreporter.write_line(f"{compilations.total():6d} {seconds.total():8.1f}  in all")


def _keep_programs() -> None:
    """Our commands, started by a test, share this process's folder; plain JAX writes nowhere."""
    programs = keep_compiled_programs()
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    if programs is not None:
        os.environ["NEORL_COMPILATION_CACHE"] = str(
            programs.shared.parent
        )  # the one for every jaxlib


def _compile_quickly() -> None:
    """Compiles with few optimisations here and in processes that tests start.

    Most of the tests is compiling. With ``--nightly`` all compile as users do, and so do the lines
    of the README in environments of their own. XLA reads its flags when the first device is asked
    for.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
    # XLA ends the process for a flag that it does not know, and newer ones do not know the first.
    if jax.__version_info__ < (0, 11):
        before = os.environ.get("XLA_FLAGS", "")
        flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        os.environ["XLA_FLAGS"] = f"{before} {flags}".strip()
    jax.devices()


_START = pytest.StashKey[tuple[int, float]]()
_slowness: list[float] = []
_setups: list[tuple[str, float]] = []
"""Shared set-ups that the present test made, with their processor seconds."""


def _count(event: str, _: float, **__: object) -> None:
    global _compilations
    _compilations += event == COMPILED


def _forget_programs(most: int) -> None:
    """Lets go of all compiled programs where there may be more than ``most``."""
    global _cleared_at
    if _compilations - _cleared_at > most:
        jax.clear_caches()
        gc.collect()
        _give_memory_back()
        _cleared_at = _compilations


def _give_memory_back() -> None:
    """Returns freed memory to the system, where the C library keeps it otherwise (glibc does)."""
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)


def _processor_seconds() -> float:
    """Of this process and of the children that have ended."""
    return sum(os.times()[:4])


def _peak_megabytes() -> int:
    """The most memory so far of this process, or of one that it started; 0 where nobody counts."""
    if sys.platform != "linux":
        return 0
    import resource

    whose = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return max(resource.getrusage(who).ru_maxrss for who in whose) * 1024 // 1_000_000


def _slowness_now() -> float:
    """How much longer than ``REFERENCE`` the reference takes; measured once a file."""
    if not _slowness:
        _slowness.append(min(_reference() for _ in range(3)) / REFERENCE)
    return _slowness[0]


def _reference() -> float:
    """Processor seconds of a fixed piece of work."""
    start, x = time.process_time(), 0
    for i in range(100_000):
        x = (x * 31 + i) % 65521
    return time.process_time() - start
