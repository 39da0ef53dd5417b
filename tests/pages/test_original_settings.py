"""The settings of published scripts on the pages of MOBILE and RAMBO: those of the scripts."""

import re
import tomllib
from functools import reduce
from pathlib import Path

import pytest

from neorl_train import configure

ROOT = Path(__file__).resolve().parents[2]
FACTS = tomllib.loads(
    (ROOT / "packages/neorl-agents/tests/algorithms/fixtures/published_defaults.toml").read_text()
)
IN_OUR_TERMS = {
    "deterministic-backup": "original",
    "lr-scheduler": -1,  # half a cosine over the run
    "norm-reward": "none",
    "target-entropy": -1.0,
}
"""What a value of a script is in a field of ours, where they are not the same."""
LEFT_OUT = {"dynamics-max-epochs"}  # a length, in another unit


@pytest.mark.parametrize("name", ["mobile", "rambo"])
def test_they_are_those_of_the_script(name, tmp_path):
    page = (ROOT / "docs/pages/learners" / f"{name}.md").read_text()
    (block,) = re.findall(r"```toml\n(.+?)```", page, flags=re.DOTALL)
    (tmp_path / "run.toml").write_text(f'[training]\nalgorithms = ["{name}"]\n\n{block}')
    learner = getattr(configure(tmp_path / "run.toml").algorithms, name)
    facts = FACTS["learners"][name]["arguments"]
    published = {argument: value for argument, value, *_ in facts}
    rollout = published["rollout-batch-size"] * published["rollout-length"]
    kept = {"model-retain-epochs": rollout * published["model-retain-epochs"]}  # rows
    terms = {**published, **IN_OUR_TERMS, **kept}
    compared = [(a, field) for a, _, field, *_ in facts if field and a not in LEFT_OUT]
    for argument, field in compared:
        ours = reduce(getattr, field.split("."), learner)
        ours = list(ours) if isinstance(ours, tuple) else ours
        assert ours == pytest.approx(terms[argument]), (argument, field)
    assert len(compared) > 15
    assert learner.variant == "original"
