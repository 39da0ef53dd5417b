"""The learning curve as a table: means and deviations of the seeds, at about ten points."""

import json

import numpy as np
import pytest

from neorl_core import InputError
from neorl_train.pages import learning_table


@pytest.fixture
def run(tmp_path):
    """A folder with the records of a run, as it writes them line by line."""

    def write(*records):
        (tmp_path / "config.toml").write_text("[evaluation]\ncurve_starts = 8\n")
        lines = [
            json.dumps({
                "kind": "validation", "algorithm": algorithm, "seed": seed, "step": step,
                "time": 0.0, "metrics": {metric: value},
            })
            for algorithm, seed, step, metric, value in records
        ]  # fmt: skip
        (tmp_path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return tmp_path

    return write


def test_a_row_is_the_mean_and_the_deviation_of_the_seeds(run):
    """NumPy's, with one degree of freedom less; a learner without a point gets a dash."""
    written = run(
        ("bc", 0, 10, "plant_return", -1.0),
        ("bc", 1, 10, "plant_return", -2.0),
        ("bc", 0, 20, "plant_return", 2.0),
        ("bc", 1, 20, "plant_return", 5.0),
        ("iql", 0, 20, "plant_return", 1234.5),
        ("bc", 0, 10, "held_out_distance", 0.1),
    )
    title, head, first, second = learning_table(written).splitlines()
    assert title == (
        "return while training, 8 episodes a seed, mean ± standard deviation over 2 seeds"
    )
    assert head.split() == ["updates", "bc", "iql"]
    deviations = [np.std([-1, -2], ddof=1), np.std([2, 5], ddof=1)]
    assert first.split("  ")[-1].strip() == "\N{EN DASH}"
    assert first.startswith("10 ")
    assert f" \N{MINUS SIGN}1.50 ± {deviations[0]:.3f} " in first
    assert second.startswith("20")
    assert f"3.50 ± {deviations[1]:.2f}" in second
    assert second.endswith("1\N{THIN SPACE}234")


def test_a_long_curve_shows_ten_points_with_its_first_and_last(run):
    written = run(*[("bc", 0, step * 500, "plant_return", step) for step in range(1, 101)])
    shown = [line.split()[0] for line in learning_table(written).splitlines()[2:]]
    assert len(shown) == 10
    assert (shown[0], shown[-1]) == ("500", "50000")


def test_a_curve_needs_returns_at_two_points(run):
    for metric, steps in (("held_out_distance", (10, 20)), ("plant_return", (10,))):
        written = run(*[("bc", 0, step, metric, 1.0) for step in steps])
        with pytest.raises(InputError, match="has no returns at two points of its training; name"):
            learning_table(written)
