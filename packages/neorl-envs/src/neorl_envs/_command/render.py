"""``neorl-envs render PLANT``: a plot or an animation of an episode under a chosen policy."""

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core import InputError, Policy, highs, lows
from neorl_core.control import ConstantPolicy, UniformPolicy
from neorl_core.infrastructure import MAX_SEED, install_line, setting, unknown_name, write_bytes
from neorl_core.infrastructure.command_line import Positional, parse_options
from neorl_envs._command.convert import check_destination
from neorl_envs._command.plants import complete_plant
from neorl_envs.scoring import run_episode

KINDS = (".png", ".gif")


@dataclasses.dataclass(frozen=True)
class Render:
    """Draws one episode of a plant as trends; needs the extra `render`.

    example: neorl-envs render ChemicalReactor-v0 --policy random --out run.gif

    Attributes:
        name: One of `neorl-envs list`, or a class or function that makes a plant, as MODULE:NAME.
        out: The file to write: .png for a plot, .gif for an animation.
        policy: reference, random, middle (of every range), or one of the plant's controllers.
        seed: Seed of parameters, initial state and noise.
        channels: Measurements to draw, each in its own panel; `all` for every channel. By default
            those with a limit or a setpoint, or all in groups if there are none.
        preset: plant, or clean, which has no noise, delays or disturbances.
        overwrite: Replace an existing file.
    """

    name: Positional[str]
    out: Path
    policy: str = "reference"
    seed: int = setting(0, low=0, high=MAX_SEED)
    channels: tuple[str, ...] = ()
    preset: str = "plant"
    overwrite: bool = False


def command(words: list[str]) -> None:
    """``neorl-envs render``."""
    options = parse_options(Render, words, program="neorl-envs render")
    env = complete_plant(options.name)
    _check(options)
    policy = chosen_policy(env, options.policy)
    key = jax.random.key(options.seed)
    try:
        rows = run_episode(env, policy, key, preset=options.preset)
    except ValueError as error:
        raise InputError(str(error)) from error
    from neorl_envs.render import animate, png, trends

    title = f"{env.name}, {options.policy}"
    plot_options: dict[str, Any] = {"bands": env.bands(), "tracked": env.tracked, "title": title}
    plot_options["channels"] = options.channels or None
    if options.out.suffix == ".gif":
        animate(env.spec, rows, options.out, **plot_options)
    else:
        write_bytes(options.out, png(trends(env.spec, rows, **plot_options)))
    costs = ", ".join(
        f"{channel.name} {float(cost):.4g} {channel.unit if channel.unit != '1' else ''}".rstrip()
        for channel, cost in zip(env.spec.cost, np.asarray(rows.cost).sum(axis=0), strict=True)
    )
    print(
        f"{options.out}: {len(rows.reward)} steps, return {float(rows.reward.sum()):.4g} "
        f"{env.reward_unit}{', costs: ' if costs else ''}{costs}"
    )


def chosen_policy(env: Any, name: str) -> Policy:
    """The policy of that name.

    Raises an ``InputError`` if the name is unknown; the message suggests the nearest one.
    """
    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))
    known: dict[str, Any] = {
        "random": UniformPolicy(low, high),
        "middle": ConstantPolicy((low + high) / 2),
        "reference": env.tunings()[env.reference],
        **env.tunings(),
    }
    if name not in known:
        raise unknown_name("policy", name, known)
    return known[name]


def _check(options: Render) -> None:
    path = options.out
    if path.suffix not in KINDS:
        raise InputError(f"--out must end with .png or .gif, got {path}")
    check_destination(path, options.overwrite)
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(f"pictures need the extra render: {install_line('neorl-envs[render]')}")
