"""The page that compares learners says what the stored cells hold."""

import json
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cell_table import add_also, add_cell, read_table
from learner_settings import flat_settings
from learning_page import (
    OFFICIAL,
    RESULTS,
    difference_to_cloning,
    missing,
    read_cells,
    trips,
)
from limits import limits_table
from neorl_agents import ALGORITHMS, TD3BCLag


def test_cells_of_a_learner_have_one_setting_each_seed_once_and_equal_episodes() -> None:
    tables = sorted(RESULTS.glob("*.jsonl"))
    assert RESULTS / f"{OFFICIAL}.jsonl" in tables
    for path in tables:
        for name, result in read_cells(path).items():
            # A setting that came later has its default in the cells of before.
            usual = flat_settings(ALGORITHMS[name]())
            every = {field for one in result for field in one["hyperparameters"]}
            settings = {
                str(
                    [one["hyperparameters"].get(field, usual.get(field)) for field in sorted(every)]
                )
                for one in result
            }
            assert len(settings) == 1, (path, name)
            assert len({one["seed"] for one in result}) == len(result), (path, name)
            assert len({len(one.get("scores", ())) for one in result}) == 1, (path, name)


def test_the_difference_to_cloning_is_over_the_seeds_and_episodes_that_both_ran() -> None:
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=(2, 5)), rng.normal(size=(3, 8))
    difference = difference_to_cloning({"bc": few.tolist(), "dt": many.tolist()}, "dt")
    cut = difference_to_cloning({"bc": few.tolist(), "dt": many[:2, :5].tolist()}, "dt")
    assert difference == cut
    assert difference[0] == pytest.approx(np.mean(many[:2, :5] - few), abs=1e-6)
    # The episodes of a shorter run are the first ones of a longer: their keys are split from one.
    few_keys, many_keys = (jax.random.split(jax.random.key(1), count) for count in (32, 200))
    assert bool(jnp.all(few_keys == many_keys[:32]))


def test_a_table_of_cells_comes_back_and_a_changed_one_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert read_table(path) == ([], {})
    cells = [
        {"algorithm": "bc", "updates": 10, "hyperparameters": {"rate": 1e-3}, "seed": seed}
        for seed in (0, 1, 2)
    ]
    for cell in reversed(cells):
        add_cell(path, cell, ("algorithm", "seed"))
    add_also(path, "controllers", {"PID": [1.0]})
    assert read_table(path) == (cells, {"controllers": {"PID": [1.0]}})
    # The settings stand once, however many seeds there are.
    assert path.read_text().count('"rate"') == 1
    for text in (path.read_text().replace("1.0", "2.0"), path.read_text().partition("\n")[2]):
        path.write_text(text)
        with pytest.raises(ValueError, match="not the digest of the lines before it"):
            read_table(path)


def test_every_stored_table_is_what_was_written() -> None:
    results = RESULTS.parent
    tables = sorted(results.rglob("*.jsonl"))
    assert {path.parent.name for path in tables} >= {"learning", "fine_tuning"}
    for path in tables:
        assert read_table(path).cells, path


def test_the_plants_that_lack_a_learner_under_limits_are_named() -> None:
    named = limits_table.unmeasured("no such learner")
    assert {"CSTR", "ChemicalReactor", "PowerGrid"} <= set(named)
    assert "DMSD" not in named  # it has no costs
    assert "ChemicalReactor" not in limits_table.unmeasured("bc_safe")


def test_a_point_under_limits_says_whether_the_cost_critics_have_converged() -> None:
    """As the report of a run says it: `td3_bc_lag` needs 40,000 updates."""
    watcher = limits_table.Chunks("td3_bc_lag", 0)
    for step in range(1_000, 60_001, 1_000):
        watcher.chunk(step, [{"cost_q": 10 * (1 - math.exp(-step / 10_000))}])
    found = [watcher.of_critics(TD3BCLag(), updates) for updates in (5_000, 30_000, 60_000)]
    assert [one["converged"] for one in found] == [False, False, True]
    assert found[2]["cost_q"] == pytest.approx(10, rel=0.01)
    watcher.lines = [line | {"metrics": {"loss": 1.0}} for line in watcher.lines]
    assert watcher.of_critics(TD3BCLag(), 60_000) == {}


def test_a_table_under_limits_has_a_row_for_every_length_of_training(tmp_path: Path) -> None:
    point = {"over": [0.2, 0.0], "over_any": 0.2, "return": 2.0, "score": 1.0, "trips": 0.0}
    longer = [point | {"updates": n, "over_any": n / 1e5} for n in range(10_000, 60_001, 10_000)]
    longer[-1] |= {"converged": True}
    seeds = [{"points": [point | {"updates": 5_000}]}, {"points": longer}]
    log = {**point, "episodes": 7}
    results = {"limits": ["a", "b"], "log": log, "controllers": {"PID": point}, "reference": "PID"}
    path = tmp_path / "ChemicalReactor-v0.json"
    path.write_text(json.dumps(results | {"learners": {"iql_lag": {"seeds": seeds}}}))
    table = limits_table.table(path)
    assert "| `iql_lag`, 1 of 5 seeds | 5,000 | 20% |" in table
    assert "| `iql_lag`, 1 of 5 seeds | 60,000, 1 of 1 converged | 20% | 0% | 60% |" in table
    assert "| `iql_lag`, 1 of 5 seeds | 10% / 1 | 20% / 1 | 30% / 1 |" in table


def test_the_page_counts_the_trainings_whose_cost_critics_have_not_converged() -> None:
    whole = [
        [seed["points"][-1]["converged"] for seed in seeds]
        for path in sorted(limits_table.RESULTS.glob("*.json"))
        for cell in json.loads(path.read_text())["learners"].values()
        if (seeds := limits_table.of_length(cell, limits_table.UPDATES))
        and "converged" in seeds[0]["points"][-1]
    ]
    page = limits_table.ROOT / "docs/results/learners-under-limits.md"
    (said,) = re.findall(r"(\d+) of (\d+) trainings with cost critics", page.read_text())
    assert [int(number) for number in said] == [sum(not all(one) for one in whole), len(whole)]


def above_cloning(name: str, log: str) -> bool:
    """Whether the stored cells of a log show a learner above `bc`."""
    cells = read_cells(RESULTS / f"{log}.jsonl")
    assert len(cells[name]) == len(cells["bc"]) >= 3
    runs = {key: [one["scores"] for one in cells[key]] for key in (name, "bc")}
    return difference_to_cloning(runs, name)[1] > 0


@pytest.mark.parametrize(
    ("name", "log", "seeds"),
    [
        ("td3_bc", "DMSD-v0-mixed", 5),
        ("iql", "DMSD-v0-mixed", 5),
        ("iql", "CSTR-v0-mixed", 3),
    ],
)
def test_a_learner_is_above_cloning_on_a_mixed_log(name: str, log: str, seeds: int) -> None:
    """Row N13: TD3+BC and IQL are surely above cloning on a mixed log."""
    assert len(read_cells(RESULTS / f"{log}.jsonl")[name]) == seeds
    assert above_cloning(name, log)


def test_cql_is_above_cloning_on_a_medium_log_and_on_no_mixed_one() -> None:
    """Row N13: CQL is surely above cloning on a medium log alone, as its page says."""
    assert above_cloning("cql", "DMSD-v0-medium")
    mixed = [path.stem for path in RESULTS.glob("*-mixed.jsonl")]
    assert len(mixed) == 11
    assert not [log for log in mixed if above_cloning("cql", log)]


def test_a_row_says_how_often_it_tripped_and_the_page_which_rows_there_are_not() -> None:
    cells = [{"trips": 0.25, "scores": [1.0]}, {"trips": 0.0, "scores": [2.0]}]
    assert trips(cells) == "12.5 %"
    assert trips([], 0.5) == "50 %"
    assert trips([{"scores": [1.0]}]) == ""  # not recorded, which is not the same as none
    assert "`no such learner`, `nor this` on CSTR medium, CSTR mixed" in missing(
        ("bc", "no such learner", "nor this")
    )


def test_the_difference_to_cloning_is_paired_by_seed_and_episode() -> None:
    rng = np.random.default_rng(0)
    episode = 100 * rng.standard_normal(200)  # what all policies meet alike is no difference
    seeds = rng.standard_normal(5)
    runs = {"bc": [list(episode)] * 5, "iql": [list(episode + 7 + own) for own in seeds]}
    mean, low, high = difference_to_cloning(runs, "iql")
    assert mean == pytest.approx(7 + seeds.mean(), abs=1e-4)
    among = stats.t.interval(0.95, 4, loc=mean, scale=stats.sem(seeds))
    assert (low, high) == pytest.approx(among, abs=1e-3)
