"""Fine-tuning of offline learners on a simulated plant, all seeds side by side."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents import Algorithm
from neorl_agents.algorithms import for_run
from neorl_agents.online import for_fine_tuning, restarted
from neorl_core import InputError, Policy, as_arrays
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_safety.constraints import AnyConstraints
from neorl_train.configuration._fine_tuning import FineTuningConfig, check_fine_tuning
from neorl_train.evaluation._checks import require_same_channels
from neorl_train.experience._training_data import TrainingData, training_data
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.training._collect import Collection, Counts
from neorl_train.training._feeds import MemoryFeed
from neorl_train.training._loop import (
    UNWATCHED,
    Plan,
    Trained,
    Validate,
    Watcher,
    check_trainable,
    never,
    run_loop,
)
from neorl_train.training._online import FineTuning, begin_online, fine_tune_chunk
from neorl_train.training._queues import Device, SeedQueues, devices_for

PLAN, SETTINGS = Plan(), FineTuningConfig()


def fine_tune(
    algorithm: Algorithm,
    states: Sequence[Any],
    data: TrainingData | Dataset,
    environment: Plant,
    seeds: Sequence[int] = (0,),
    plan: Plan = PLAN,
    *,
    settings: FineTuningConfig = SETTINGS,
    penalty: Mapping[str, float] | None = None,
    constraints: AnyConstraints | None = None,
    fallback: Policy | None = None,
    watcher: Watcher = UNWATCHED,
    checkpoints: Checkpoints | None = None,
    validate: Validate | None = None,
    stop: Callable[[], bool] = never,
) -> Trained:
    """Goes on with offline learners on a **simulated** plant: collect, store, update.

    Before the first update ``settings.warm_up`` steps are collected with the offline policy. Then,
    for every step of all episodes side by side, the learner takes its updates on batches of which
    ``settings.share`` comes from the log and the rest from what was collected. Rows are in physical
    units with the reward penalised as in the log, and the learner scales both by the maps that it
    was trained with. What is tried explores: it may break limits, so a real plant is not for it.

    Args:
        algorithm: Learner with plain numbers, as it was trained offline.
        states: Its state for each seed (:meth:`Trained.states`).
        data: The log that it was trained on.
        environment: The simulated plant.
        seeds: Seeds of the fine-tuning, one for each state.
        plan: Number of critic gradient steps online; the chunk is a multiple of those that follow
            one step of all episodes.
        settings: How much is collected, stored and mixed; ``run`` and ``environment`` have no
            effect here.
        penalty: Reward that one unit of each cost takes off, by name; as in the log, by default
            what the plant declares.
        constraints: Hard limits of the filter between policy and plant; none by default.
        fallback: Takes over inside the filter; the plant's reference by default.
        watcher: Observer that is told everything.
        checkpoints: Checkpoints to resume from and save to; the online buffer is part of them.
        validate: Function that judges a policy, called at every checkpoint.
        stop: Function asked once a chunk; true ends training when the running chunk ends.

    Returns:
        The policies and states reached; :func:`online_counts` says what happened on the way.

    Raises:
        InputError: If the learner has no fine-tuning, the plant has other channels than the log,
            a number is bad, or a metric is not finite.
    """
    if isinstance(data, Dataset):
        data = training_data(data)
    check_trainable(algorithm, data, plan)
    check_fine_tuning(settings, algorithm, chunk=plan.chunk, where="settings")
    require_same_channels(environment.spec, data.spec, environment.name)
    if len(states) != len(seeds):
        raise InputError(
            f"there are {len(states)} states for {len(seeds)} seeds; give one for each"
        )
    learner = for_run(for_fine_tuning(algorithm, settings.variant), plan.updates)
    learner.validate()
    weights = environment.penalty_weights() if penalty is None else penalty
    collection = Collection(
        environment=environment,
        constraints=constraints,
        fallback=_fallback(environment, fallback) if constraints is not None else None,
        penalty=jnp.asarray([weights.get(c.name, 0.0) for c in data.spec.cost], jnp.float32),
        spec=data.spec,
        episodes=settings.environments,
    )
    queues = OnlineSeeds(learner, data, collection, settings, states, seeds, devices_for(seeds))
    return run_loop(queues, learner, plan, watcher, checkpoints, validate, stop)


class OnlineSeeds(SeedQueues):
    """The fine-tuning of all seeds of one learner, each on its device.

    Args:
        algorithm: Learner with plain numbers and the settings of its fine-tuning.
        data: The log.
        collection: How rows are collected.
        settings: How much is collected, stored and mixed.
        states: State of the learner for each seed.
        seeds: Seeds of the fine-tuning.
        devices: Devices, to which the seeds are dealt in turn.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        data: TrainingData,
        collection: Collection,
        settings: FineTuningConfig,
        states: Sequence[Any],
        seeds: Sequence[int],
        devices: Sequence[Device],
    ) -> None:
        steps = settings.environments * settings.updates_per_step
        arrays = as_arrays(
            FineTuning(
                algorithm=algorithm,
                collection=collection,
                beyond=_beyond(algorithm, data),
                share=float(settings.share),
                capacity=settings.capacity,
                first_steps=-(-settings.warm_up // settings.environments),
                cycle=steps // algorithm.batches_per_update,
            )
        )
        keys = [online_key(seed) for seed in seeds]
        learner: Any = arrays.algorithm
        super().__init__(
            MemoryFeed(algorithm, data, list(devices)[: len(seeds)], fine_tune_chunk),
            arrays,
            keys,
            lambda i: begin_online(arrays, as_arrays(restarted(states[i])), keys[i]),
            lambda state: learner.policy(state.learner),
            seeds,
            devices,
        )


def online_key(seed: int) -> PRNGKeyArray:
    """The key of a fine-tuning; another one than those of the offline training of that seed."""
    return jax.random.fold_in(jax.random.key(seed), 0x0FF)


def online_counts(trained: Trained) -> list[Counts]:
    """What happened on the plant while each seed was fine-tuned, on the host.

    Args:
        trained: From :func:`fine_tune`.

    Returns:
        One for each seed.
    """
    return [jax.tree.map(np.asarray, state.counts) for state in trained.states()]


def _beyond(algorithm: Any, data: TrainingData) -> Float[Array, ""]:
    """As the returns of a log go on behind a truncation (``returns_to_go``)."""
    discount = float(getattr(algorithm, "discount", 1.0))
    mean = float(np.asarray(data.rows.reward, np.float64).mean())
    return jnp.asarray(mean / (1 - discount) if discount < 1 else 0.0, jnp.float32)


def _fallback(environment: Plant, fallback: Policy | None) -> Policy:
    return environment.tunings()[environment.reference] if fallback is None else fallback
