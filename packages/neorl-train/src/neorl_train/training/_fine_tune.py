"""Training on a simulated plant, after offline training or from scratch, seeds in parallel."""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_agents import Explorer, Learner, LearnerState
from neorl_agents.learning import for_run, reads_costs, restarted
from neorl_agents.online import for_fine_tuning
from neorl_core import InputError, Policy, Spec, as_arrays
from neorl_core.statistics import range_statistics
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_safety.constraints import AnyConstraints
from neorl_train.configuration._online import (
    CollectionSettings,
    FineTuningConfig,
    OnlineConfig,
    check_collection,
    check_fine_tuning,
)
from neorl_train.data._source import require_same_channels
from neorl_train.data._training_data import TrainingData, training_data
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.training._loop import (
    UNWATCHED,
    Trained,
    Validate,
    Watcher,
    never,
    run_loop,
)
from neorl_train.training._plan import Plan, check_learner, check_trainable
from neorl_train.training._plant_sources import Collection, Counts, PlantAndLog, PlantReplay
from neorl_train.training._queues import Feed, MemoryFeed, NoRows, SeedQueues, devices_for, run_keys

PLAN, SETTINGS, ONLINE = Plan(), FineTuningConfig(), OnlineConfig()


def fine_tune(
    algorithm: Explorer,
    states: Sequence[LearnerState],
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
    """Continues offline learners on a **simulated** plant: collect, store, update.

    Before the first update ``settings.warm_up`` steps are collected with the offline policy. Then,
    for every step of all parallel episodes, the learner takes its updates on batches of which the
    fraction ``settings.share`` comes from the log and the rest from the collected rows. Rows are in
    physical units with the reward penalised as in the log, and the learner scales both by the maps
    that it was trained with. Exploration may violate limits; never run this on a real plant.

    Args:
        algorithm: Learner with plain numbers, as it was trained offline.
        states: Its state for each seed (:meth:`Trained.states`).
        data: The log on which it was trained.
        environment: The simulated plant.
        seeds: Seeds of the fine-tuning, one for each state.
        plan: Number of online critic gradient steps; the chunk is a multiple of those that follow
            one step of all episodes.
        settings: How much is collected, stored and mixed; ``run`` and ``environment`` have no
            effect here.
        penalty: Penalty per unit of each cost, by name, as in the log; by default what the plant
            declares.
        constraints: Hard limits of the filter between policy and plant; none by default.
        fallback: Acts inside the filter if the policy cannot; by default the plant's reference.
        watcher: Observer of all events.
        checkpoints: Checkpoints to resume from and save to; the online buffer is part of them.
        validate: Function that evaluates a policy, called at every checkpoint.
        stop: Called once per chunk; true ends training when the running chunk ends.

    Returns:
        The final policies and states; :func:`online_counts` returns the counts of events on the
        plant.

    Raises:
        InputError: If the learner cannot be fine-tuned, the plant has other channels than the log,
            a number is invalid, or a metric is not finite.
    """
    if isinstance(data, Dataset):
        data = training_data(data)
    check_trainable(algorithm, data, plan)
    check_fine_tuning(settings, algorithm, chunk=plan.chunk, where="settings")
    require_same_channels(environment.spec, data.spec, environment.name)
    if len(states) != len(seeds):
        raise InputError(
            f"there are {len(states)} states for {len(seeds)} seeds; give one state for each seed"
        )
    learner = for_run(for_fine_tuning(algorithm, settings.variant), plan.updates)
    learner.validate()
    collection = _collection(
        learner, environment, data.spec, penalty, constraints, fallback, settings.environments
    )
    share, later_reward = settings.share, _later_reward(learner, data)
    source = _plant_and_log(settings, learner, collection, share=share, later_reward=later_reward)
    feed = MemoryFeed(learner, data, devices_for(seeds))

    def begin(i: int) -> LearnerState:
        return as_arrays(restarted(states[i]))

    queues = _queues(learner, feed, source, begin, seeds)
    return run_loop(queues, learner, plan, watcher, checkpoints, validate, stop)


def train_online(
    learner: Explorer,
    environment: Plant,
    seeds: Sequence[int] = (0,),
    plan: Plan = PLAN,
    *,
    settings: CollectionSettings = ONLINE,
    spec: Spec | None = None,
    penalty: Mapping[str, float] | None = None,
    constraints: AnyConstraints | None = None,
    fallback: Policy | None = None,
    watcher: Watcher = UNWATCHED,
    checkpoints: Checkpoints | None = None,
    validate: Validate | None = None,
    stop: Callable[[], bool] = never,
) -> Trained:
    """Trains a learner on a **simulated** plant, without a log.

    Observations and actions are scaled by their declared ranges; rewards keep their own unit.
    Exploration may violate limits; never run this on a real plant.

    Args:
        learner: Learner with plain numbers that explores.
        environment: The simulated plant.
        seeds: Seeds of the training runs.
        plan: Number of critic gradient steps; the chunk is a multiple of those that follow one step
            of all episodes if the learner samples from the buffer.
        settings: How much is collected and stored. A learner that learns from fresh rollouts
            (``given.rollouts(steps)``) uses only ``environments``.
        spec: Channels with the cost limits of the run; by default those of the plant.
        penalty: Penalty per unit of each cost, by name, for a learner that does not read costs; by
            default what the plant declares.
        constraints: Hard limits of the filter between policy and plant; none by default.
        fallback: Acts inside the filter if the policy cannot; by default the plant's reference.
        watcher: Observer of all events.
        checkpoints: Checkpoints to resume from and save to; the buffer is part of them.
        validate: Function that evaluates a policy, called at every checkpoint.
        stop: Called once per chunk; true ends training when the running chunk ends.

    Returns:
        The final policies and states; :func:`online_counts` returns the counts of events on the
        plant.

    Raises:
        InputError: If the learner does not explore, or needs training on a log first; if a number
            is invalid, or a metric is not finite.
    """
    check_learner(learner, plan)
    check_online(learner, environment, settings, chunk=plan.chunk, where="settings")
    spec = environment.spec if spec is None else spec
    learner = for_run(learner, plan.updates)
    collection = _collection(
        learner, environment, spec, penalty, constraints, fallback, settings.environments
    )
    source = _plant_and_log(settings, learner, collection, share=0.0, later_reward=0.0)
    statistics = range_statistics(spec)

    def begin(i: int) -> LearnerState:
        return learner.init(spec, statistics, run_keys(seeds[i])[0])

    queues = _queues(learner, NoRows(), source, begin, seeds)
    return run_loop(queues, learner, plan, watcher, checkpoints, validate, stop)


def check_online(
    learner: Learner,
    environment: Plant,
    settings: CollectionSettings,
    *,
    chunk: int,
    where: str = "online",
) -> None:
    """Refuses a learner that cannot be trained on a plant from scratch, and invalid settings.

    The learner qualifies if it explores, needs no log for a fit, and its source either samples from
    the buffer or collects rollouts. Nothing is compiled.
    """
    check_collection(settings, learner, chunk=chunk, where=where, buffered=False)
    assert isinstance(learner, Explorer)  # refused above
    if learner.fits():
        raise InputError(
            f"{type(learner).__name__} fits {', '.join(learner.fits())} on a log first, and this "
            "training has no log; train it on a log"
        )
    spec = environment.spec
    collection = _collection(learner, environment, spec, None, None, None, settings.environments)
    source = _plant_and_log(settings, learner, collection, share=0.0, later_reward=0.0)
    used_source = learner.source(source)
    if isinstance(used_source, PlantAndLog | PlantReplay):
        by_priority = isinstance(used_source, PlantReplay)
        check_collection(settings, learner, chunk=chunk, where=where, by_priority=by_priority)


def _collection(
    learner: Explorer,
    environment: Plant,
    spec: Spec,
    penalty: Mapping[str, float] | None,
    constraints: AnyConstraints | None,
    fallback: Policy | None,
    episodes: int,
) -> Collection:
    weights = environment.penalty_weights() if penalty is None else penalty
    penalty_weights = jnp.asarray([weights.get(c.name, 0.0) for c in spec.cost], jnp.float32)
    return Collection(
        environment=environment,
        constraints=constraints,
        fallback=_fallback(environment, fallback) if constraints is not None else None,
        penalty_weights=None if reads_costs(learner) else penalty_weights,
        spec=spec,
        episodes=episodes,
    )


def _queues(
    learner: Explorer,
    feed: Feed,
    source: PlantAndLog,
    begin: Callable[[int], LearnerState],
    seeds: Sequence[int],
) -> SeedQueues:
    """The trainings of all seeds on a plant, each on its device."""
    keys, devices = [online_key(seed) for seed in seeds], devices_for(seeds)
    sources, spec = as_arrays(source), source.collection.spec
    return SeedQueues(as_arrays(learner), feed, begin, keys, seeds, devices, spec, source=sources)


def _plant_and_log(
    settings: CollectionSettings,
    learner: Explorer,
    collection: Collection,
    *,
    share: float,
    later_reward: float,
) -> PlantAndLog:
    steps = settings.environments * settings.updates_per_step
    return PlantAndLog(
        collection=collection,
        beyond=jnp.asarray(later_reward, jnp.float32),
        share=float(share),
        capacity=settings.capacity,
        first_steps=-(-settings.warm_up // settings.environments),
        cycle=steps // learner.batches_per_update,
    )


def online_key(seed: int) -> PRNGKeyArray:
    """The key of a fine-tuning, which differs from those of the seed's offline training."""
    return jax.random.fold_in(jax.random.key(seed), 0x0FF)


def online_counts(trained: Trained) -> list[Counts]:
    """Counts of events on the plant while each seed was trained, on the host.

    Args:
        trained: Result of :func:`fine_tune`.

    Returns:
        One entry for each seed.
    """
    return [jax.tree.map(np.asarray, training.memory.counts) for training in trained.trainings()]


def _later_reward(learner: Explorer, data: TrainingData) -> float:
    """The assumed return after a truncation, as for the returns of a log (``returns_to_go``)."""
    discount = float(learner.discount)
    return data.mean_reward(learner) / (1 - discount) if discount < 1 else 0.0


def _fallback(environment: Plant, fallback: Policy | None) -> Policy:
    return environment.tunings()[environment.reference] if fallback is None else fallback
