"""The page that compares learners says what the stored cells hold."""

import numpy as np
import pytest
from scipy import stats

from learner_numbers import PAGES, current, page_of
from learning_page import OFFICIAL, PAGE, RESULTS, difference_to_cloning, page, read_cells


@pytest.mark.nightly
def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "python tools/tables/learning_page.py writes it anew"


@pytest.mark.parametrize("name", PAGES)
def test_the_numbers_of_a_learner_are_current(name: str) -> None:
    text = page_of(name).read_text()
    assert text == current(name, text), "python tools/tables/learner_numbers.py writes them anew"


def test_cells_of_a_learner_have_one_setting_each_seed_once_and_equal_episodes() -> None:
    folders = [path for path in RESULTS.iterdir() if path.is_dir()]
    assert RESULTS / OFFICIAL in folders
    for folder in folders:
        episodes = set()
        for name, found in read_cells(folder).items():
            assert len({str(one["hyperparameters"]) for one in found}) == 1, (folder, name)
            assert len({one["seed"] for one in found}) == len(found), (folder, name)
            episodes |= {len(one.get("scores", ())) for one in found}
        assert len(episodes) == 1, folder


@pytest.mark.parametrize("name", ["td3_bc", "iql", "cql"])
def test_a_learner_is_above_cloning_on_a_mixed_log(name: str) -> None:
    folders = [RESULTS / "CSTR-v0-mixed", RESULTS / "DMSD-v0-mixed"]
    lowest = []
    for folder in folders:
        cells = read_cells(folder)
        if name in cells:
            assert len(cells[name]) == len(cells["bc"]) == 5
            runs = {key: [one["scores"] for one in cells[key]] for key in (name, "bc")}
            lowest.append(difference_to_cloning(runs, name)[1])
    assert max(lowest) > 0


def test_the_difference_to_cloning_is_paired_by_seed_and_episode() -> None:
    rng = np.random.default_rng(0)
    episode = 100 * rng.standard_normal(200)  # what all policies meet alike is no difference
    seeds = rng.standard_normal(5)
    runs = {"bc": [list(episode)] * 5, "iql": [list(episode + 7 + own) for own in seeds]}
    mean, low, high = difference_to_cloning(runs, "iql")
    assert mean == pytest.approx(7 + seeds.mean(), abs=1e-4)
    among = stats.t.interval(0.95, 4, loc=mean, scale=stats.sem(seeds))
    assert (low, high) == pytest.approx(among, abs=1e-3)
