"""``neorl-envs score PLANT``: returns and costs of a policy in training mode and test mode."""

import dataclasses
import functools
import json
from typing import Any

import jax
import numpy as np

from neorl_core import InputError, Policy
from neorl_core.infrastructure import MAX_SEED, head, setting
from neorl_core.infrastructure.command_line import Positional, one_line, parse_options
from neorl_envs._command.plants import Challenges, challenge_plant, complete_plant, import_named
from neorl_envs._command.render import chosen_policy
from neorl_envs.scoring import anchors, robustness, test_mode, within_limits
from neorl_envs.scoring._scores import Robustness

VERSION = 1
"""Version of the JSON document."""


@dataclasses.dataclass(frozen=True)
class Score:
    """Scores a policy on the unchanged plant (train) and with shifted constants (test).

    example: neorl-envs score DMSD-v0 --policy LQR --shift mass 1.5

    Attributes:
        name: One of `neorl-envs list`, or a class or function that makes a plant, as MODULE:NAME.
        policy: reference, random, middle (of every range), one of the plant's controllers, or
            MODULE:NAME of a policy or of a function without arguments that returns one.
        episodes: Number of episodes in each mode, with the same random numbers in both.
        seed: Seed of parameters, initial states and noise.
        spread: Relative spread of the plant's parameters from episode to episode.
        shift: Factors of the constants that differ in test mode; by default those of the plant.
        json: Print JSON instead of text.
    """

    name: Positional[str]
    policy: str = "reference"
    episodes: int = setting(100, low=2)
    seed: int = setting(0, low=0, high=MAX_SEED)
    spread: float = 0.15
    shift: dict[str, float] = dataclasses.field(default_factory=dict)
    challenge: Challenges = dataclasses.field(default_factory=Challenges)
    json: bool = False


def command(words: list[str]) -> None:
    """``neorl-envs score``."""
    options = parse_options(Score, words, program="neorl-envs score")
    env = complete_plant(options.name)
    policy = _policy(env, options.policy)
    factors = options.shift or _declared_mode(env.name)
    keys = jax.random.split(jax.random.key(options.seed), options.episodes)
    around = functools.partial(challenge_plant, chosen=options.challenge)
    plant = around(env)
    try:
        scored = robustness(
            env, policy, keys, factors=factors, around=around, spread=options.spread
        )
    except InputError:
        raise
    except ValueError as error:
        raise InputError(one_line(error)) from error
    plain = not options.challenge.any and ":" not in options.name
    document = comparison(plant, options.policy, scored, plain=plain)
    if options.json:
        print(json.dumps({**head("scores", VERSION), **document}, indent=2))
    else:
        print("\n".join(_lines(document)))


def comparison(env: Any, policy: str, scored: Robustness, *, plain: bool) -> dict[str, Any]:
    """Both modes and their difference as plain values, normalised if the plant has anchors."""
    ends = None
    if plain:
        try:
            ends = anchors(env.name)
        except InputError:  # a third-party plant has no anchors
            ends = None
    loss, error = scored.loss
    document = {
        "plant": env.name,
        "policy": policy,
        "unit": env.reward_unit,
        "episodes": len(scored.train_scores),
        "factors": scored.factors,
        "train": _mode(env, scored.train, scored.train_scores, ends),
        "test": _mode(env, scored.test, scored.test_scores, ends),
        "loss": loss,
        "loss_error": error,
    }
    if ends is not None:
        document["normalised_loss"] = 100 * loss / (ends.reference - ends.random)
    return document


def _mode(env: Any, sums: Any, score: np.ndarray, ends: Any) -> dict[str, Any]:
    root = np.sqrt(len(score))
    names = [channel.name for channel in env.spec.cost]
    mode = {
        "return": float(np.mean(sums.total)),
        "return_error": float(np.std(sums.total, ddof=1) / root),
        "score": float(score.mean()),
        "score_error": float(score.std(ddof=1) / root),
        "cost": dict(zip(names, np.mean(sums.cost, axis=0).tolist(), strict=True)),
        "kept": dict(zip(names, within_limits(env, sums).mean(axis=0).tolist(), strict=True)),
        "trips": float(np.mean(sums.trip)),
    }
    if ends is not None:
        mode["normalised"] = 100 * (mode["score"] - ends.random) / (ends.reference - ends.random)
    return mode


def _lines(d: dict[str, Any]) -> list[str]:
    shift = ", ".join(f"{name} x {factor:g}" for name, factor in d["factors"].items())
    lines = [f"{d['plant']}, {d['policy']}, {d['episodes']} episodes per mode, in {d['unit']}"]
    for mode in ("train", "test"):
        m = d[mode]
        parts = [f"return {m['return']:.5g} ± {m['return_error']:.2g}"]
        parts += [f"score {m['score']:.5g} ± {m['score_error']:.2g}"]
        parts += [f"normalised {m['normalised']:.1f}"] if "normalised" in m else []
        parts += [
            f"{name} within its limit in {100 * share:.3g} %" for name, share in m["kept"].items()
        ]
        parts += [f"trips {100 * m['trips']:.3g} %"]
        lines.append(f"{mode:<6} {', '.join(parts)}")
    parts = [f"{d['loss']:.5g} ± {d['loss_error']:.2g} lost in test ({shift})"]
    parts += [f"{d['normalised_loss']:.1f} normalised"] if "normalised_loss" in d else []
    return [*lines, f"loss   {', '.join(parts)}"]


def _declared_mode(name: str) -> dict[str, float]:
    try:
        return test_mode(name)
    except InputError as error:
        hint = "give --shift NAME FACTOR; `neorl-envs describe --constants` lists the names"
        raise InputError(f"{error}: {hint}") from None


def _policy(env: Any, name: str) -> Policy:
    if ":" not in name or name in env.tunings():
        return chosen_policy(env, name)
    try:
        return import_named(
            name, lambda target: target if hasattr(target, "initial_carry") else target()
        )
    except Exception as error:
        raise InputError(
            f"policy {name} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
