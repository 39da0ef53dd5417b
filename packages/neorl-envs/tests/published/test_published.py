"""Published logs: settings of all, content of some by day and of all at night, and comparisons."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from neorl_core import InputError
from neorl_envs import Dataset, collect_log, environment_names, make
from neorl_envs.published import (
    SIZES,
    SPREAD,
    compare_log,
    log_size,
    numerical_environment,
    published_logs,
    settings_digest,
)
from neorl_envs.published._logs import _instructions
from neorl_envs.recording import quality

SMALL = log_size("", "small")
QUALITIES = ("random", "medium", "mixed", "expert")


def collected(env: Any, name: str) -> Dataset:
    who, plan = quality(env, name)
    return collect_log(env, who, plan=plan, n_steps=SMALL, key=jax.random.key(0), spread=SPREAD)


@pytest.fixture(scope="module")
def mixed() -> Dataset:
    return collected(make("DMSD-v0"), "mixed")


def test_settings_of_every_published_log_are_current() -> None:
    """Fails where plant, controllers or operators changed; ``published_logs.py`` mends it."""
    outdated = []
    for record in published_logs():
        digest = settings_digest(
            make(record.plant),
            record.quality,
            seed=record.seed,
            n_steps=record.steps,
            spread=SPREAD,
        )
        if digest != record.settings or not record.content:
            outdated.append(record[:4])
    assert outdated == []
    known = {record[:4] for record in published_logs()}
    small = {(name, chosen, 0, SMALL) for name in environment_names() for chosen in QUALITIES}
    assert small - known == set(), "record by tools/studies/tables/published_logs.py"


def test_a_full_log_has_the_promised_size() -> None:
    """Row N08: the logs of the plants have the sizes that are promised."""
    full = [record for record in published_logs() if record.steps != SMALL]
    assert {record.plant for record in full} == set(SIZES)
    for record in full:
        assert record.steps == log_size(record.plant, "full") <= record.rows


def test_settings_tell_what_decides_a_log() -> None:
    env = make("DMSD-v0")

    def digest(plant: Any = env, chosen: str = "medium", **changed: Any) -> str:
        numbers = {"seed": 0, "n_steps": 100, "spread": 0.15} | changed
        return settings_digest(plant, chosen, **numbers)

    heavier = type(
        "DMSD", (type(env),), {"constants": env.constants._replace(mass=env.constants.mass)}
    )
    assert digest(heavier()) == digest()
    mass = dataclasses.replace(env.constants.mass, value=(20.0, 20.001))
    moved = type("DMSD", (type(env),), {"constants": env.constants._replace(mass=mass)})
    wider = dataclasses.replace(env.constants.mass, spread=0.1)
    drawn = type("DMSD", (type(env),), {"constants": env.constants._replace(mass=wider)})
    others = [
        digest(chosen="mixed"),
        digest(chosen="expert"),
        digest(seed=1),
        digest(n_steps=101),
        digest(spread=0.2),
        digest(moved()),
        digest(drawn()),
        digest(dataclasses.replace(env, horizon=99)),
    ]
    assert len({digest(), *others}) == 1 + len(others)


def test_content_of_two_plants(mixed: Dataset) -> None:
    """Row R03: a published log is generated again from its seed and has its hash."""
    check("DMSD-v0", "mixed", mixed)
    env = make("SupplyChain-v0")
    for chosen in ("medium", "expert"):  # one compiled program
        check("SupplyChain-v0", chosen, collected(env, chosen))


def check(name: str, chosen: str, log: Dataset) -> None:
    """Equal bits where this environment has a record, else agreeing statistics; never nothing."""
    actual = compare_log(make(name), log, chosen, seed=0, n_steps=SMALL)
    record = next(x for x in published_logs() if x[:4] == (name, chosen, 0, SMALL))
    known = numerical_environment() in record.content
    # A model of processor with the same instructions may round otherwise.
    assert actual.verdict in (("equal", "close") if known else ("close",)), actual.sentence
    # The statistics hold whatever is known of the bits.
    elsewhere = compare_log(make(name), log, chosen, seed=0, n_steps=SMALL, environment="elsewhere")
    assert elsewhere.verdict == "close", elsewhere.sentence


def test_what_is_not_the_published_log_is_said(mixed: Dataset) -> None:
    env = make("DMSD-v0")

    def verdict(log: Dataset, plant: Any = env, chosen: str = "mixed", **changed: Any) -> Any:
        return compare_log(plant, log, chosen, **({"seed": 0, "n_steps": SMALL} | changed))

    rows = mixed.transitions
    obs = np.array(rows.obs)
    obs[5, 0] = np.nextafter(obs[5, 0], np.float32(9))
    bit = dataclasses.replace(mixed, transitions=rows._replace(obs=obs))
    known = next(x for x in published_logs() if x[:4] == ("DMSD-v0", "mixed", 0, SMALL)).content
    here = next(iter(known))
    result = verdict(bit, environment=here)
    # Another model of processor may round so, and the sentence says that the bits are others.
    assert result.verdict == "close"
    assert f"NOT bit for bit the published log, which is {known[here]}" in result.sentence
    assert verdict(bit, environment="elsewhere").verdict == "close"  # of equal statistics
    shifted = dataclasses.replace(mixed, transitions=rows._replace(obs=rows.obs + 0.5))
    result = verdict(shifted, environment="elsewhere")
    assert result.verdict == "differs"
    assert "the mean of observation x1" in result.sentence
    worse = dataclasses.replace(mixed, transitions=rows._replace(reward=rows.reward - 1))
    assert "the mean return" in verdict(worse, environment="elsewhere").sentence
    half = mixed.select_episodes(np.arange(mixed.n_episodes // 2))
    assert "rows; the published log has" in verdict(half, environment="elsewhere").sentence
    assert verdict(mixed, seed=7).verdict == "unpublished"
    assert verdict(mixed, spread=0.3).verdict == "unpublished"
    assert verdict(mixed, n_steps=SMALL + 1).verdict == "unpublished"
    longer = dataclasses.replace(env, horizon=101)
    assert verdict(mixed, longer).verdict == "other settings"


def test_the_command_says_whether_the_log_is_the_published_one(
    command: Any, tmp_path: Path
) -> None:
    words = ["collect", "SupplyChain-v0", "--quality", "expert"]
    output = command(*words, "--size", "small", "--out", tmp_path / "a.h5")
    assert "sha256:" in output
    said = ("equal to the published log", "no hash is published for", "NOT bit for bit")
    assert sum(text in output for text in said) == 1
    out = command(*words, "--steps", "60", "--out", tmp_path / "b.h5")
    assert "there is no published log" in out
    command.refused(*words, "--size", "large", "--out", tmp_path / "c.h5")
    with pytest.raises(InputError, match="size must be 'small' or 'full', got 'large'"):
        log_size("SupplyChain-v0", "large")


def test_the_numerical_environment_names_compiler_and_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    plain = numerical_environment()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    assert numerical_environment() == plain
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert numerical_environment() == f"{plain}, --xla_cpu_enable_fast_math=true"
    info = tmp_path / "cpuinfo"
    info.write_text("processor: 0\nflags\t: fpu sse4_2 avx avx2 fma\nflags: avx512f\n")
    assert _instructions(info) == "avx2"
    info.write_text("Features: asimd\n")
    assert _instructions(info) == ""
    assert _instructions(tmp_path / "none") == ""


@pytest.mark.nightly
@pytest.mark.parametrize("name", environment_names())
def test_content_of_every_small_log(name: str) -> None:
    for chosen in QUALITIES:
        check(name, chosen, collected(make(name), chosen))


@pytest.mark.nightly
def test_threads_do_not_change_a_bit(tmp_path: Path) -> None:
    for flags in ("--xla_cpu_multi_thread_eigen=false", "--xla_cpu_multi_thread_eigen=true"):
        out = tmp_path / f"{flags[-5:]}.h5"
        words = ["collect", "ChemicalReactor-v0", "--size", "small", "--out", str(out)]
        environment = {**os.environ, "XLA_FLAGS": flags}
        subprocess.run([sys.executable, "-m", "neorl_envs", *words], check=True, env=environment)
    one, other = (path.read_bytes() for path in sorted(tmp_path.glob("*.h5")))
    assert one == other
