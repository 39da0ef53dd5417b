"""What OfflineRL-Kit makes of predicted steps, in float64, stored for the tests of neorl-agents.

The penalties of its dynamics, MOBILE's penalty, RAMBO's adversarial loss and COMBO's loss of a
critic are computed by its own methods, on models, critics and actors that are plain functions of
recorded numbers. In an environment of its own, with a checkout of
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
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1]))
from _updates import FIXTURES, imported, stub_modules

MEMBERS, BATCH, OBS, ACT, DRAWS = 3, 8, 4, 2, 5
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
    policies = {
        name: imported(arguments.kit, f"offlinerlkit.policy.model_based.{name}")
        for name in ("mobile", "rambo", "combo")
    }
    terms = penalties(dynamics, given)
    terms["inconsistency"] = inconsistency(policies["mobile"], given)
    terms |= adversarial(policies["rambo"], given)
    terms["combo_loss"] = conservative(policies["combo"], given)
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
        "next_draws": rng.normal(size=(DRAWS, MEMBERS, BATCH, OBS)),
        "critics": rng.normal(size=(2, OBS + ACT + 1)),
        "acting": rng.normal(size=(OBS, ACT)),
        "uniform": rng.uniform(-1, 1, size=(BATCH, ACT)),
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


def critic(given: Arrays, number: int) -> nn.Module:
    """A plane over observation and action."""
    *slope, offset = given["critics"][number]

    class Plane(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = nn.Parameter(torch.tensor(slope)[:, None])

        def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
            return (
                torch.cat([torch.as_tensor(obs), torch.as_tensor(action)], -1) @ self.slope + offset
            )

    return Plane()


def acted(given: Arrays) -> Any:
    """An action and a log-density that are functions of the observation."""
    acting = torch.from_numpy(given["acting"])

    def actforward(obs: torch.Tensor, deterministic: bool = False) -> Any:
        return torch.tanh(obs @ acting), -(obs**2).mean(-1, keepdim=True)

    return actforward


def penalties(code: Any, given: Arrays) -> Arrays:
    of_mode = {}
    identity = SimpleNamespace(transform=lambda x: x)
    for mode in ("aleatoric", "pairwise-diff", "ensemble_std"):
        dynamics = code.EnsembleDynamics(Model(given), None, identity, ends(given), 1.0, mode)
        info = dynamics.step(given["obs"], given["action"])[3]
        of_mode[mode.replace("-", "_")] = info["penalty"][:, 0]
    return of_mode


def policy_of(kind: type, given: Arrays, **fields: Any) -> Any:
    """A policy whose networks are functions of recorded numbers."""
    policy = kind.__new__(kind)
    nn.Module.__init__(policy)
    policy.actforward = acted(given)
    for name, value in fields.items():
        setattr(policy, name, value)
    return policy


def inconsistency(code: Any, given: Arrays) -> np.ndarray:
    draws = torch.from_numpy(given["next_draws"])
    dynamics = SimpleNamespace(sample_next_obss=lambda obs, action, number: draws)
    critics = nn.ModuleList([critic(given, 0), critic(given, 1)])
    policy = policy_of(
        code.MOBILEPolicy, given, dynamics=dynamics, critics_old=critics, _num_samples=DRAWS
    )
    return policy.compute_lcb(*tensors(given, "obs", "action")).numpy()[:, 0]


def adversarial(code: Any, given: Arrays) -> Arrays:
    noise = torch.from_numpy(given["noise"])
    model = SimpleNamespace(
        scaler=SimpleNamespace(transform=lambda x: x), model=Model(given), terminal_fn=ends(given)
    )
    policy = policy_of(
        code.RAMBOPolicy, given, dynamics=model, critic1=critic(given, 0), critic2=critic(given, 1),
        _include_ent_in_adv=False, _gamma=0.9, _adv_weight=0.0,
        _dynmics_adv_optim=SimpleNamespace(zero_grad=lambda: None, step=lambda: None),
    )  # fmt: skip
    sample = patch.object(
        torch.distributions.Normal, "sample", lambda normal: normal.mean + normal.stddev * noise
    )
    logged = tensors(given, "obs", "action", "next_obs", "reward")
    with sample:
        _, _, losses = policy.dynamics_step_and_forward(given["obs"], given["action"], *logged)
    names = {"adv_loss": "adversarial_loss", "adv_log_prob": "log_density"}
    return {ours: np.array(losses[f"adv_dynamics_update/{name}"]) for name, ours in names.items()}


def conservative(code: Any, given: Arrays) -> np.ndarray:
    """The loss of the first critic; the first half of the rows are of the log."""
    one, two = critic(given, 0), critic(given, 1)
    still = SimpleNamespace(zero_grad=lambda: None, step=lambda: None)
    policy = policy_of(
        code.COMBOPolicy, given, critic1=one, critic2=two, critic1_old=one, critic2_old=two,
        _alpha=0.0, _is_auto_alpha=False, _max_q_backup=False, _deterministic_backup=True,
        _gamma=0.9, _rho_s="mix", _num_repeat_actions=1, _temperature=1.0, _cql_weight=0.6,
        _with_lagrange=False, _tau=0.0, actor_optim=still, critic1_optim=still,
        critic2_optim=still, actor=SimpleNamespace(device="cpu"),
        action_space=SimpleNamespace(low=[-1.0], high=[1.0]),
    )  # fmt: skip
    policy._sync_weight = lambda: None
    names = {
        "observations": "obs", "actions": "action", "next_observations": "next_obs",
        "rewards": "reward", "terminals": "terminated",
    }  # fmt: skip
    half = BATCH // 2
    columns = {theirs: tensors(given, ours)[0] for theirs, ours in names.items()}
    parts = {
        "real": {name: column[:half] for name, column in columns.items()},
        "fake": {name: column[half:] for name, column in columns.items()},
    }
    uniform = torch.from_numpy(given["uniform"])
    with patch.object(torch.Tensor, "uniform_", lambda tensor, *_: uniform):
        parameter = nn.Parameter(torch.zeros(()))
        policy.actforward = lambda obs, deterministic=False: tuple(
            x + 0 * parameter for x in acted(given)(obs)
        )
        return np.array(policy.learn(parts)["loss/critic1"])


if __name__ == "__main__":
    main()
