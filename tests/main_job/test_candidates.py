"""Candidates of every family are judged by the same rule and sealed by the same export."""

import json
from pathlib import Path
from typing import Any

import pytest

from neorl_agents import load_policy
from neorl_deploy.bundle import read_bundle
from neorl_deploy.export import export_run
from neorl_train import Run, configure, start

pytestmark = pytest.mark.nightly

MODE = "PI feed-forward"
LITTLE: dict[str, Any] = {
    "training": {"algorithms": ["bc"], "seeds": [0, 1], "updates": 2, "chunk": 1},
    "checkpoints": {"interval": 2},
    "algorithms": {"bc": {"steps": {"batch_size": 16}, "networks": {"hidden": [8]}}},
    "classical": {
        "controllers": ["lqg"],
        "manipulated": {"C_A": "T_c"},
        "setpoint_channel": {"C_A": "C_A_SP"},
    },
}


def finished(here: Path, evaluation: dict[str, Any], **sections: Any) -> Run:
    output = {"directory": str(here / "runs"), "tracking": False}
    given = {"starts": 32, "curve_starts": 0, **evaluation}
    data = {"source": "CSTR-v0", "steps": 6_000}
    return start(
        configure(**LITTLE, output=output, data=data, evaluation=given, **sections), quiet=True
    )


@pytest.fixture(autouse=True)
def _same_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)


def require_sealed(run: Run, name: str) -> str:
    """Requires that a policy was judged behind its guard and is what the bundle holds."""
    decided = json.loads((run.path / "verdict.json").read_text())
    assert (decided["candidate"], decided["reference"]) == (name, "PI")
    assert decided["answer"] in ("deploy", "do not deploy", "cannot tell")
    assert run.evaluation.tables.row(name, guarded=True).n_episodes == 32
    artefact = load_policy(run.path / decided["artefact"])
    assert run.record["policies"][f"{name}.safetensors"] == artefact.digest
    sealed = read_bundle(export_run(run.path).path)
    provenance = json.loads(sealed.files["manifest.json"])["provenance"]["policy"]
    assert (provenance["file"], provenance["digest"]) == (
        f"policies/{name}.safetensors",
        artefact.digest,
    )
    return artefact.kind


@pytest.mark.parametrize(
    ("wanted", "name", "kind"),
    [
        ("lqg", "lqg-0", "linear_quadratic"),
        (MODE, f"{MODE}-0", "feedforward_pid"),
        ("bc-mean", "bc-mean", "average"),
    ],
)
def test_a_candidate_is_named(tmp_path: Path, wanted: str, name: str, kind: str) -> None:
    assert require_sealed(finished(tmp_path, {"candidate": wanted}), name) == kind


def test_all_families_compete_and_the_choice_is_sealed(tmp_path: Path) -> None:
    retuning = {"controller": "incumbent", "modes": True, "updates": 200, "generations": 5}
    run = finished(tmp_path, {}, retuning=retuning)
    choice = run.record["choice"]
    mode, mean = f"{MODE}-0 (mode {MODE} of the log)", "bc-mean (mean of 2 seeds)"
    for name in ("retuned-0", "bc-0", "lqg-0", mode, mean):
        assert sum(line.startswith(f"{name}: predicted gain ") for line in choice) == 1, name
    require_sealed(run, run.verdict.candidate)
