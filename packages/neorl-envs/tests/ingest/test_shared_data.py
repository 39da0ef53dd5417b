"""What is known of the shared recordings, found again by reader and report."""

from pathlib import Path

import numpy as np
import pytest

from neorl_envs import read_dataset, write_dataset
from neorl_envs.inspection import dataset_report

FACTS = {
    # rows, episodes, shortest, longest, terminated, truncated, mean return
    "DMSD-high-100000-train": (100_000, 1000, 100, 100, 0, 1000, 494.45),
    "DMSD-high-20000-val": (20_000, 200, 100, 100, 0, 200, None),
    "Simglucose-high-100000-train": (100_257, 280, 28, 480, 111, 169, None),
    "Simglucose-high-20000-val": (20_018, 62, None, 480, 30, 32, None),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_the_shared_data(name: str, tmp_path: Path, shared_data) -> None:
    rows, episodes, shortest, longest, terminated, truncated, mean = FACTS[name]
    dataset = read_dataset(shared_data("neorl2", f"{name}.npz"))
    report = dataset_report(dataset)
    assert (report["rows"], report["episodes"]) == (rows, episodes)
    assert (report["terminated"], report["truncated"]) == (terminated, truncated)
    lengths = report["episode_length"]
    assert lengths["max"] == longest
    assert shortest is None or lengths["min"] == shortest
    assert mean is None or round(report["episode_return"]["mean"], 2) == mean
    assert [(c.low, c.high) for c in dataset.spec.action] == [(-1.0, 1.0)] * dataset.spec.n_action
    # Converted once, it is the same data.
    converted = read_dataset(write_dataset(tmp_path / "converted.h5", dataset), memory_map=True)
    assert converted.content_hash == dataset.content_hash
    assert converted.attributes["attribution"] == dataset.attributes["attribution"]


def test_the_report_of_dmsd_says_that_nothing_terminated(shared_data) -> None:
    report = dataset_report(read_dataset(shared_data("neorl2", "DMSD-high-100000-train.npz")))
    assert (len(report["obs"]), len(report["action"])) == (6, 2)
    assert "no row is terminated: a log without a single trip is valid" in report["notes"]
    assert report["duplicate_rows"] == 0


@pytest.mark.nightly
def test_the_report_of_simglucose_finds_what_is_known_of_it(shared_data) -> None:
    dataset = read_dataset(shared_data("neorl2", "Simglucose-high-100000-train.npz"))
    report = dataset_report(dataset)
    assert report["duplicate_rows"] == 145
    assert report["action"][0]["saturated"] == pytest.approx(0.82, abs=0.005)
    # Four channels never move. The list of facts counts the two whose deviation is also zero, to
    # 1e-6, when it is added up in float32.
    constant = [i for i, channel in enumerate(report["obs"]) if channel["constant"]]
    assert constant == [2, 10, 17, 18]
    assert sum(np.asarray(dataset.transitions.obs).std(axis=0) < 1e-6) == 2
