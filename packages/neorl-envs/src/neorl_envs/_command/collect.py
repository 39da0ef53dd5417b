"""``neorl-envs collect --out FILE``: record a plant under its controllers and operators."""

import dataclasses
import os
from pathlib import Path
from typing import Any, Literal

import jax

from neorl_core import InputError, Spec
from neorl_core.infrastructure import MAX_SEED, setting
from neorl_core.infrastructure.command_line import one_line, parse_options
from neorl_envs._command.convert import check_destination
from neorl_envs._command.plants import Challenges, challenge_plant, complete_plant
from neorl_envs._command.shard import check_manifest_name
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import write_dataset
from neorl_envs.datasets._shards import SUFFIX, is_manifest, read_manifest, stored_bytes
from neorl_envs.ingest._readers import read_dataset
from neorl_envs.published import compare_log, log_size
from neorl_envs.recording._behaviour import quality
from neorl_envs.recording._collect import collect_log
from neorl_envs.recording._collect_shards import collect_shards

COPIES = 3
"""Number of copies of the log in memory while it is collected."""


@dataclasses.dataclass(frozen=True)
class Collect:
    """Records a plant under its own controllers and operators, and writes a dataset file.

    example: neorl-envs collect ChemicalReactor-v0 --steps 100000 --out log.h5
             neorl-envs collect DMSD-v0 --quality random --log-prob --out random.h5
             neorl-envs collect --steps 50000000 --shard-rows 1000000 --out big.shards.json

    Attributes:
        out: The file to write; an existing file is an error without --overwrite. With --shard-rows,
            a manifest, NAME.shards.json; an incomplete one is continued.
        environment: One of `neorl-envs list`, or a class or function that makes a plant, as
            MODULE:NAME.
        quality: random: uniform actions; medium: the first tuning; mixed: all tunings; expert: the
            reference without operators.
        steps: Smallest number of rows. The log may have more, because episodes are complete and
            each controller acts in the same number of episodes.
        size: Instead of --steps, a size whose hash is published: small (2,000 rows) or full (0.1 to
            3 million).
        shard_rows: Write a log larger than memory: a new file after at least this many rows, and a
            manifest. After an interruption, the same command continues.
        seed: Random seed; the same seed gives the same file content on one machine.
        spread: Relative spread of the plant's parameters from episode to episode.
        log_prob: Record every action as requested, before the plant's own limits (requested), and
            the log-density of what was drawn for it (behaviour_log_prob).
        overwrite: Replace an existing file.
    """

    out: Path
    environment: str = "ChemicalReactor-v0"
    quality: str = "mixed"
    steps: int = setting(100_000, low=1)
    size: Literal["", "small", "full"] = ""
    shard_rows: int = setting(0, low=0)
    seed: int = setting(0, low=0, high=MAX_SEED)
    spread: float = 0.15
    challenge: Challenges = dataclasses.field(default_factory=Challenges)
    log_prob: bool = False
    overwrite: bool = False


def command(words: list[str]) -> None:
    """``neorl-envs collect``."""
    if words and not words[0].startswith("-"):
        words = ["--environment", *words]
    options = parse_options(Collect, words, program="neorl-envs collect")
    _check_out(options)
    env = challenge_plant(complete_plant(options.environment), options.challenge)
    if options.size:
        options = dataclasses.replace(options, steps=log_size(env.name, options.size))
    dataset = _collect(env, options)
    print(
        f"{options.out}: {dataset.n_rows} rows, {dataset.n_episodes} episodes, mean return "
        f"{dataset.episode_returns().mean():.2f}, {stored_bytes(options.out) / 1e6:.1f} MB, "
        f"{dataset.content_hash}"
    )
    if options.challenge.any or options.log_prob:
        return  # logs of harder plants, or with densities, are not published
    compared = compare_log(
        env,
        dataset,
        options.quality,
        seed=options.seed,
        n_steps=options.steps,
        spread=options.spread,
    )
    print(compared.sentence)


def _check_out(options: Collect) -> None:
    """Raises for an unusable destination before simulating; an incomplete log may be continued."""
    if options.shard_rows:
        check_manifest_name(options.out)
        if options.overwrite and is_manifest(options.out):
            options.out.unlink()
        incomplete = is_manifest(options.out) and read_manifest(options.out, complete=False).request
        check_destination(options.out, bool(incomplete))
        return
    if options.out.name.endswith(SUFFIX):
        raise InputError(f"{options.out} names a manifest: give --shard-rows as well, or log.h5")
    check_destination(options.out, options.overwrite)


def _collect(env: Any, options: Collect) -> Dataset:
    """Collects and writes the log; it is returned in memory, or mapped if in several files."""
    _require_memory(env.spec, min(options.steps, options.shard_rows or options.steps))
    try:
        policies, plan = quality(env, options.quality)
        arguments: dict[str, Any] = {
            "plan": plan,
            "n_steps": options.steps,
            "key": jax.random.key(options.seed),
            "spread": options.spread,
            "log_prob": options.log_prob,
        }
        if options.shard_rows:
            collect_shards(
                options.out, env, policies, rows=options.shard_rows, say=print, **arguments
            )
            return read_dataset(options.out, memory_map=True)
        dataset = collect_log(env, policies, **arguments)
    except InputError:
        raise
    except ValueError as error:  # an option whose value the plant refuses
        raise InputError(one_line(error)) from error
    write_dataset(options.out, dataset)
    return dataset


def _require_memory(spec: Spec, steps: int) -> None:
    """Raises if collecting the log would need more memory than this machine has."""
    row = 4 * (2 * spec.n_obs + 4 * spec.n_action + spec.n_cost + 1) + 16
    required_bytes = COPIES * row * steps
    try:
        installed_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # a system that does not report its memory
        return
    if required_bytes > installed_bytes:
        raise InputError(
            f"--steps {steps} would need about {required_bytes / 1e9:.3g} GB of memory, and this "
            f"machine has {installed_bytes / 1e9:.3g} GB; at most about "
            f"{int(installed_bytes / COPIES / row)} steps fit, or any number in several files, "
            "with --shard-rows"
        )
