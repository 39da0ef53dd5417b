"""OfflineRL-Kit's measures of doubt about predicted steps, in float64, for tests of neorl-agents.

The penalties of its dynamics are computed by its own method, on a model whose answers are recorded
numbers. In an environment of its own, with a checkout of `github.com/yihaosun1124/OfflineRL-Kit` at
e3ce697:

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
    stub_modules("gym", "gym.spaces", "tqdm", "tensorboard", "torch.utils.tensorboard", "pandas")
    stub_modules("matplotlib", "matplotlib.pyplot", "gym.envs", "gym.envs.mujoco")
    dynamics = imported(arguments.kit, "offlinerlkit.dynamics.ensemble_dynamics")
    rng, shape = np.random.default_rng(11), (MEMBERS, BATCH, OBS + 1)
    given = {"mean": rng.normal(size=shape), "log_variance": rng.uniform(-2, 1, size=shape)}
    origin = np.array(f"OfflineRL-Kit e3ce697, torch {torch.__version__}, float64")
    np.savez_compressed(arguments.out, origin=origin, **given, **penalties(dynamics, given))
    print(f"{arguments.out.stat().st_size / 1024:.0f} KiB in {arguments.out}")


def penalties(code: Any, given: Arrays) -> Arrays:
    def model(inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Recorded means and logarithms of variances, whatever is asked."""
        return torch.from_numpy(given["mean"]), torch.from_numpy(given["log_variance"])

    model.random_elite_idxs = lambda batch: np.zeros(batch, int)
    identity = SimpleNamespace(transform=lambda x: x)
    of_mode = {}
    for mode in ("aleatoric", "pairwise-diff", "ensemble_std"):
        dynamics = code.EnsembleDynamics(
            model, None, identity, lambda *_: np.zeros((BATCH, 1), bool), 1.0, mode
        )
        info = dynamics.step(np.zeros((BATCH, OBS)), np.zeros((BATCH, ACT)))[3]
        of_mode[mode.replace("-", "_")] = info["penalty"][:, 0]
    return of_mode


if __name__ == "__main__":
    main()
