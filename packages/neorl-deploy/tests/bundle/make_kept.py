"""Makes the bundle that ``test_kept.py`` opens, with the oldest JAX that is supported.

Run it again only when that release changes, on the Python that has it, beside the earlier bundles::

    hatch run hatch-test.py3.11:python packages/neorl-deploy/tests/bundle/make_kept.py

Two valves with a linear row between them, whose search is a loop in the program, and a monitor. The
numbers are those of no plant.
"""

import json
import shutil
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents import save_policy
from neorl_agents.networks import init_mlp, tanh
from neorl_agents.policies import NetworkPolicy
from neorl_core import Channel, Spec, highs, lows, standardiser, unit_interval
from neorl_core.control import ConstantPolicy
from neorl_core.infrastructure import head
from neorl_deploy.export import ExportOptions, export_run
from neorl_safety.constraints import constraints_to_dict, declared_constraints
from neorl_safety.guards import default_settings, settings_to_dict

HERE = Path(__file__).parent / "kept"
SPEC = Spec(
    obs=(Channel("level", "m", 0.0, 2.0), Channel("flow", "m3/h", 0.0, 40.0)),
    action=(Channel("inlet", "%", 0.0, 100.0), Channel("outlet", "%", 0.0, 100.0)),
    cost=(),
    dt=10.0,
    horizon=100,
)
LIMITS = [
    {"kind": "rate", "channel": "inlet", "up": 1.0, "down": 1.0},
    {"kind": "sum", "sum": {"inlet": 1.0, "outlet": 1.0}, "at_most": 90.0},
]


def make(run: Path) -> None:
    """Writes the run, as a training run leaves it."""
    policy = NetworkPolicy(
        obs=standardiser(
            jnp.array([1.0, 20.0]),
            jnp.array([0.3, 6.0]),
            span=jnp.array(highs(SPEC.obs)) - jnp.array(lows(SPEC.obs)),
        ),
        network=init_mlp((2, 8, 2), jax.random.key(1), output=tanh),
        action=unit_interval(SPEC.action),
        low=jnp.array(lows(SPEC.action)),
        high=jnp.array(highs(SPEC.action)),
    )
    seen = np.random.default_rng(2).uniform([0.4, 8.0], [1.6, 32.0], (32, 2)).astype(np.float32)
    (run / "policies").mkdir(parents=True)
    held = ConstantPolicy(np.array([40.0, 40.0], np.float32))
    save_policy(run / "policies/bc-0.safetensors", policy, SPEC, seen, {})
    save_policy(run / "policies/fallback.safetensors", held, SPEC, seen, {})
    documents = {
        "run": {**head("run", 1), "status": "finished"},
        "constraints": constraints_to_dict(declared_constraints(SPEC, LIMITS)),
        "guard": settings_to_dict(default_settings(SPEC), SPEC),
        "evaluation": {**head("evaluation", 1), "units": {}, "tables": {}, "results": []},
        "verdict": {
            **head("verdict", 1),
            "answer": "cannot tell",
            "sentence": "Nothing was judged: this bundle is kept to be opened.",
            "clauses": [],
            "candidate": "bc-0",
            "artefact": "policies/bc-0.safetensors",
        },
    }
    for name, document in documents.items():
        (run / f"{name}.json").write_text(json.dumps(document))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "runs" / "0001"
        make(run)
        bundle = export_run(run, ExportOptions(out=run.parent / "kept.bundle"))
        out = HERE / f"jax-{bundle.manifest.jax}"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(bundle.path, out)
        print(f"{out}: {bundle!r}")
