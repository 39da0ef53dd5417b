"""What OfflineRL-Kit makes of predicted steps, in float64, stored for the tests of neorl-agents.

The penalties of its dynamics are computed by its own method, on a model that gives recorded
numbers; its losses are in ``rollout_updates.py``. In an environment of its own, with a checkout of
`github.com/yihaosun1124/OfflineRL-Kit` at e3ce697:

    uv venv /tmp/torch
    uv pip install --python /tmp/torch/bin/python torch==2.13.0 numpy
    /tmp/torch/bin/python tools/studies/oracles/rollouts/rollout_terms.py /tmp/OfflineRL-Kit
"""

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))
from _updates import FIXTURES, imported, stub_modules

MEMBERS, BATCH, OBS, ACT = 3, 8, 4, 2
Arrays = dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kit", type=Path, help="checkout of OfflineRL-Kit")
    parser.add_argument("--out", type=Path, default=FIXTURES / "rollout_terms.npz")
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    stub_modules("gym", "gym.spaces", "tqdm", "tensorboard", "torch.utils.tensorboard", "pandas")
    stub_modules("matplotlib", "matplotlib.pyplot", "gym.envs", "gym.envs.mujoco")
    given = drawn()
    dynamics = imported(arguments.kit, "offlinerlkit.dynamics.ensemble_dynamics")
    terms = penalties(dynamics, given)
    origin = np.array(f"OfflineRL-Kit e3ce697, torch {torch.__version__}, float64")
    np.savez_compressed(arguments.out, origin=origin, **given, **terms)
    print(f"{arguments.out.stat().st_size / 1024:.0f} KiB in {arguments.out}")


def drawn() -> Arrays:
    rng = np.random.default_rng(11)
    shape = (MEMBERS, BATCH, OBS + 1)
    return {
        "mean": rng.normal(size=shape),
        "log_variance": rng.uniform(-2, 1, size=shape),
        "noise": rng.normal(size=shape),
        "obs": rng.normal(size=(BATCH, OBS)),
        "action": rng.uniform(-1, 1, size=(BATCH, ACT)),
        "reward": rng.normal(size=(BATCH, 1)),
        "next_obs": rng.normal(size=(BATCH, OBS)),
        "terminated": rng.uniform(size=(BATCH, 1)) < 0.3,
        "chosen": rng.integers(MEMBERS, size=BATCH),
    }


def tensors(given: Arrays, *names: str) -> list[torch.Tensor]:
    return [torch.from_numpy(given[name].astype(float)) for name in names]


class Model:
    """A model whose answers are the recorded ones, whatever it is asked."""

    def __init__(self, given: Arrays) -> None:
        self.given = given
        self.elites = SimpleNamespace(data=torch.arange(MEMBERS))
        self.max_logvar = self.min_logvar = torch.zeros(OBS + 1, requires_grad=True)

    def __call__(self, inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Means and logarithms of variances."""
        mean, spread = tensors(self.given, "mean", "log_variance")
        return mean, spread

    def train(self) -> None:
        """Nothing to do."""

    eval = train

    def random_elite_idxs(self, batch: int) -> np.ndarray:
        """The recorded members."""
        return self.given["chosen"]

    def get_decay_loss(self) -> float:
        """None."""
        return 0.0


def ends(given: Arrays) -> Any:
    return lambda obs, action, next_obs: given["terminated"]


def penalties(code: Any, given: Arrays) -> Arrays:
    of_mode = {}
    identity = SimpleNamespace(transform=lambda x: x)
    for mode in ("aleatoric", "pairwise-diff", "ensemble_std"):
        dynamics = code.EnsembleDynamics(Model(given), None, identity, ends(given), 1.0, mode)
        info = dynamics.step(given["obs"], given["action"])[3]
        of_mode[mode.replace("-", "_")] = info["penalty"][:, 0]
    return of_mode


if __name__ == "__main__":
    main()
