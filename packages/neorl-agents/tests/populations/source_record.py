"""Numbers recorded from the source's own learner, in the form of ours."""

from pathlib import Path

import jax
import numpy as np

from neorl_agents.networks import NoisyAffine, QuantileNetwork
from neorl_agents.populations import UpdateDraws, Windows

RECORD = np.load(Path(__file__).parent / "sorrel_2a24efc.npz")


def network(of) -> QuantileNetwork:
    """Weights of the source, whose advantages and values are two layers."""
    both = [
        np.concatenate([of(f"advantage.{part}"), of(f"value.{part}")], axis=-1)
        for part in ("weight", "bias", "sigma_weight", "sigma_bias")
    ]
    hidden = (of(f"ff_1.{part}") for part in ("weight", "bias", "sigma_weight", "sigma_bias"))
    return QuantileNetwork(
        NoisyAffine(of("head1.weight"), of("head1.bias")),
        NoisyAffine(of("cos_embedding.weight"), of("cos_embedding.bias")),
        NoisyAffine(*hidden),
        NoisyAffine(*both),
    )


def recorded(where: str):
    return jax.device_put(network(lambda name: RECORD[f"{where}/{name}"]))


def noise(where: str):
    def of(layer: str):
        weight, bias = (RECORD[f"{where}/{layer}.epsilon_{part}"] for part in ("weight", "bias"))
        return np.concatenate([weight, bias[None]])

    head = np.concatenate([of("advantage"), of("value")], axis=1)
    return np.concatenate([of("ff_1").ravel(), head.ravel()])


def batch(step: int) -> Windows:
    def column(name: str):
        return RECORD[f"{step}/{name}"]

    discount = np.float32(0.99**3) * (1 - column("done")[:, 0])
    windows = Windows(
        column("obs"), column("action")[:, 0].astype(np.int32), column("reward")[:, 0],
        column("next_obs"), discount, column("valid")[:, 0],
    )  # fmt: skip
    return jax.device_put(windows)


def draws(step: int) -> UpdateDraws:
    names = ("next_online", "next_target", "online")
    levels = [RECORD[f"{step}/{name}/tau"] for name in names]
    return jax.device_put(UpdateDraws(*levels, tuple(noise(f"{step}/{name}") for name in names)))
