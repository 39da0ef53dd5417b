"""What a run records of a learner from elsewhere, whose version may hide that its code changed."""

import hashlib
import importlib
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, MOPO
from neorl_core import InputError
from neorl_core.control import ConstantPolicy
from neorl_envs import write_dataset
from neorl_train import configure, start
from neorl_train._job.artefacts import require_storable, write_policies
from neorl_train._job.job import note_other_versions
from neorl_train._job.resolution import origin_of
from neorl_train.runs import create_run

FILES = {"__init__.py": "", "law.py": "from neorl_agents import IQL\n\n\nclass Law(IQL): ...\n"}


def test_code_that_changed_under_one_version_is_recorded_and_named_on_resuming(
    tmp_path, monkeypatch
):
    info, package = tmp_path / "lawful-0.3.dist-info", tmp_path / "lawful"
    for folder in (info, package):
        folder.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lawful\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[neorl.algorithms]\nlawful = lawful.law:Law\n")
    for name, text in FILES.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    digest = hashlib.sha256("".join(FILES.values()).encode()).hexdigest()[:16]
    before = f"lawful 0.3, code sha256:{digest}"
    assert origin_of(ALGORITHMS, "lawful") == before
    assert origin_of(ALGORITHMS, "iql") == ""

    record = {"algorithms": ["iql", "lawful"], "origins": {"algorithm": {"lawful": before}}}
    run, lines = create_run(tmp_path / "runs", "", {**record, "versions": {}}), []
    reporter = SimpleNamespace(print_line=lines.append)
    note_other_versions(run, run.record(), reporter)
    assert "lawful" not in lines.pop()
    (package / "law.py").write_text(FILES["law.py"] + "\n\nRATE = 2\n")
    note_other_versions(run, run.record(), reporter)
    after = origin_of(ALGORITHMS, "lawful")
    assert f"lawful {before}, this is {after}, so its results" in lines[-1]
    assert [one["versions"].get("lawful") for one in run.record()["resumed_with"]] == [
        before,
        after,
    ]


def test_a_policy_of_a_class_that_no_file_can_hold_is_one_line(tmp_path, make_log):
    run, spec = create_run(tmp_path, "", {}), make_log().spec
    policies, rows = {0: Own(jnp.zeros(spec.n_action))}, np.zeros((2, spec.n_obs))
    message = r"^a Own cannot be stored .* entry point in neorl\.policies, .*, then resume the run$"
    with pytest.raises(InputError, match=message):
        write_policies(run, "mine", policies, spec, rows, {})


class Own(ConstantPolicy): ...


def test_such_a_policy_is_refused_before_any_learner_is_trained(
    tmp_path, monkeypatch, make_line, make_log
):
    """Beside one of ours that would be trained first; no run is left behind."""

    class Mine(make_line):
        def policy(self, state):
            return Own(state.parameters["weight"][0])

    def trained(*_):
        raise AssertionError("training began")

    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)
    monkeypatch.setattr("neorl_train._job.stages._train_all", trained)
    monkeypatch.setitem(ALGORITHMS._registered, "mine", Mine)
    write_dataset(tmp_path / "log.h5", make_log())
    config = configure(
        data={"source": str(tmp_path / "log.h5")},
        training={"algorithms": ["bc", "mine"], "updates": 20, "chunk": 10},
        checkpoints={"interval": 10},
        output={"directory": str(tmp_path / "runs"), "tracking": False},
        algorithms={"bc": {"steps": {"batch_size": 16}}},
    )
    message = r"^mine: a Own cannot be stored .* nothing was trained, and .*0001 is removed$"
    with pytest.raises(InputError, match=message):
        start(config, quiet=True)
    assert not list((tmp_path / "runs").glob("0*"))


def test_so_is_that_of_a_learner_which_fits_a_model_first(make_log):
    class Mine(MOPO):
        def policy(self, state):
            return Own(state.preparation.low)

    require_storable("mopo", MOPO(), make_log().spec)
    with pytest.raises(InputError, match=r"^mine: a Own cannot be stored"):
        require_storable("mine", Mine(), make_log().spec)
