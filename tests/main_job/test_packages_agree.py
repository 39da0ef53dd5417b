"""What one package writes and another reads without sharing code."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from neorl_agents import load_policy
from neorl_deploy.bundle import read_bundle
from neorl_deploy.loop import draft_plan
from neorl_deploy.runtime import Runtime
from neorl_deploy.shadow import read_log
from neorl_envs import read_dataset
from neorl_safety.constraints import constraints_from_dict
from neorl_safety.guards import guard
from neorl_train.judging import BrokenEpisodes, trial_plan


def test_the_two_readers_of_a_dataset_agree(finished: Path) -> None:
    written, read = read_dataset(finished / "dataset.h5"), read_log(finished / "dataset.h5")
    np.testing.assert_array_equal(read.obs, written.transitions.obs)
    np.testing.assert_array_equal(read.action, written.transitions.action)
    np.testing.assert_array_equal(read.starts, written.episode_starts)
    assert read.content_hash == written.content_hash
    assert read.obs_channels == tuple((c.name, c.unit) for c in written.spec.obs)


def test_the_bundle_acts_as_the_guarded_policy_of_the_run(workplace: Path, finished: Path) -> None:
    candidate = json.loads((finished / "verdict.json").read_text())["artefact"]
    learned = load_policy(finished / candidate)
    fallback = load_policy(finished / "policies" / "fallback.safetensors")
    limits = constraints_from_dict(json.loads((finished / "constraints.json").read_text()))
    guarded = guard(learned.policy, limits, fallback.policy, learned.spec)
    log = read_log(finished / "dataset.h5")
    n_rows = min(200, int(log.starts[1]))

    @jax.jit
    def step(carry, obs, last_sent):
        return guarded(guarded.sent(carry, last_sent), obs)

    runtime = Runtime(read_bundle(min(workplace.rglob("*.bundle"))))
    carry, last_sent = guarded.initial_carry(), np.full(learned.spec.n_action, np.nan, np.float32)
    size = np.array([channel.high - channel.low for channel in learned.spec.action])
    for obs, action in zip(log.obs[:n_rows], log.action[:n_rows], strict=True):
        carry, expected = step(carry, obs, last_sent)
        decided = runtime.step(obs, last_sent)
        assert (np.abs(decided.action - expected) <= 1e-6 * size).all()
        last_sent = action


def test_a_run_is_what_its_page_says(checkout: Path, finished: Path) -> None:
    page = (checkout / "docs/pages/reference/run-directory.md").read_text(encoding="utf-8")
    for path in finished.iterdir():
        assert f"`{path.name}`" in page, path
    for name in ("run", "verdict"):
        document = json.loads((finished / f"{name}.json").read_text())
        section = page.split(f"## Fields of `{name}.json`", 1)[1].split("\n## ", 1)[0]
        cells = re.findall(r"^\| (`.+?) \|", section, flags=re.MULTILINE)
        stated = {field for cell in cells for field in re.findall(r"`(\w+)`", cell)}
        assert stated <= {*document}, stated - {*document}
        if name == "verdict":
            assert stated == {*document} - {"format", "version"}
    for name in ("run", "verdict", "evaluation", "traces", "constraints", "guard"):
        document = json.loads((finished / f"{name}.json").read_text())
        assert list(document.items())[:2] == [("format", f"neorl-{name}"), ("version", 1)]
        assert f"| `{name}.json` | `neorl-{name}` 1 |" in page
    clause = json.loads((finished / "verdict.json").read_text())["clauses"][0]
    described = page.split("A clause has", 1)[1].split("\n\n", 1)[0]
    assert {*re.findall(r"`(\w+)`", described)} - {"deploy"} == {*clause}
    for line in (finished / "metrics.jsonl").read_text().splitlines():
        assert {*json.loads(line)} == {"kind", "algorithm", "seed", "step", "time", "metrics"}


def test_a_bundle_is_what_its_page_says(checkout: Path, workplace: Path, finished: Path) -> None:
    page = (checkout / "docs/pages/reference/bundle.md").read_text(encoding="utf-8")
    bundle = min(workplace.rglob("*.bundle"))
    for path in bundle.iterdir():
        assert f"`{path.name}`" in page, path
    manifest = json.loads((bundle / "manifest.json").read_text())
    section = page.split("## `manifest.json`", 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| (`.+?) \|", section, flags=re.MULTILINE)
    assert {field for cell in cells for field in re.findall(r"`(\w+)`", cell)} == {*manifest}
    assert manifest["constraint_words"]
    assert manifest["provenance"]["fallback"]["words"]


def test_the_words_of_the_verdict_say_how_many_episodes_a_trial_takes():
    sentence = trial_plan("the PID in use", 0.5, 1.5, "EUR", BrokenEpisodes(3, 60))
    document = {"verdict": {"sentence": sentence}}
    manifest: Any = SimpleNamespace(document=document, run="0001", horizon=40, obs=())
    (turns,) = re.findall(r"(?m)^turns = (\d+) .* as the verdict recommends$", draft_plan(manifest))
    # A gain of 2.8 standard errors is detected at 5 % with a probability of 80 %.
    assert int(turns) == math.ceil(2 * (2.8 * 1.5 / 0.5) ** 2)
