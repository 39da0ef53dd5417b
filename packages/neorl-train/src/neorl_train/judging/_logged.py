"""Evaluation without a simulator: the log's own results, and the distance of policies to it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import jax.numpy as jnp
import numpy as np

from neorl_core import Policy, Spec, Transition, highs, lows
from neorl_core.control import ConstantPolicy, StateFeedback
from neorl_core.statistics import normalised_score
from neorl_envs import Dataset
from neorl_envs.blocks import Term
from neorl_train.configuration._sections import EvaluationConfig
from neorl_train.data._source import known_plant
from neorl_train.judging._pool import Pool, as_pool, check_names
from neorl_train.judging._results import (
    LINE,
    LOG,
    MEAN,
    ChannelExcitation,
    Evaluation,
    LogDescription,
    LogScore,
    PolicyResult,
    Stretch,
)
from neorl_train.judging._rollouts import recorded_episodes
from neorl_train.judging._shadow import action_fits, declared_bands, shown_channels, stretches
from neorl_train.judging._summary import policy_rows
from neorl_train.judging._tables import Estimate, PolicyRow, ResultTables
from neorl_train.judging._wording import no_simulator

NEORL2_RETURNS = {
    "Pipeline": (-296.0, 751.0),
    "Simglucose": (9.75, 475.0),
    "RocketRecovery": (-176.0, 208.0),
    "RandomFrictionHopper": (-3.0, 503.0),
    "DMSD": (30.60, 849.51),
    "Fusion": (-107.601, 98.05),
    "SafetyHalfCheetah": (-283.0, 2507.0),
    "Salespromotion": (357.62, 602.21),
}
"""Returns of the poor and the good reference, from ``neorl2/envs/info.py`` in polixir/NeoRL2."""


def score_of(dataset: Dataset, log: PolicyRow) -> LogScore | None:
    """The score of a NeoRL-2 log; ``None`` for any other, because its references are not known."""
    provenance = dataset.attributes.get("provenance", {})
    task = str(dataset.attributes.get("name", "")).split("-")[0]
    is_neorl2 = str(provenance.get("format", "")).startswith("NeoRL-2")
    if not is_neorl2 or task not in NEORL2_RETURNS:
        return None
    low, high = NEORL2_RETURNS[task]
    ends = (log.returns.value, log.returns.low, log.returns.high)
    scored = Estimate(*(float(normalised_score(end, low=low, high=high)) for end in ends))
    return LogScore(f"NeoRL-2 {task}", low, high, scored)


NO_LOG = LogDescription(
    name="no log", rows=0, episodes=0, content_hash="", attribution="", excitation=()
)
"""Describes an evaluation without a log."""


def source_of(dataset: Dataset | None) -> LogDescription:
    """Description of a dataset; :data:`NO_LOG` if there is none."""
    if dataset is None:
        return NO_LOG
    return LogDescription(
        name=str(dataset.attributes.get("name", "log")),
        rows=dataset.n_rows,
        episodes=dataset.n_episodes,
        content_hash=dataset.content_hash,
        attribution=str(dataset.attributes.get("attribution", "")),
        excitation=tuple(_excitation(entry) for entry in _channels(dataset)),
    )


def _channels(dataset: Dataset) -> list[Mapping[str, Any]]:
    excitation = dataset.attributes.get("excitation", {})
    return list(excitation.get("channels", [])) if isinstance(excitation, Mapping) else []


def _excitation(entry: Mapping[str, Any]) -> ChannelExcitation:
    return ChannelExcitation(
        channel=str(entry.get("channel", "")),
        unit=str(entry.get("unit", "")),
        signal=float(entry.get("prbs_amplitude", math.nan)),
        manual=float(entry.get("manual_fraction_of_steps", math.nan)),
        deviation=float(entry.get("action_std", math.nan)),
    )


ROWS_AT_ONCE = 65_536


class LoggedActions(Protocol):
    """Rows in memory or in a file, read for their observations and actions."""

    def actions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Observations and actions, one block at a time."""
        ...


Training: TypeAlias = LoggedActions | Transition


def evaluate_offline(
    policies: Pool | Mapping[str, Policy],
    *,
    dataset: Dataset,
    held_out: Dataset,
    training: Training,
    candidate: str | None = None,
    spec: Spec | None = None,
    controllers: Mapping[str, Policy] | None = None,
    held_out_episodes: Sequence[int] = (),
    loops: Sequence[str] = (),
    guard: Callable[[Policy], Policy] | None = None,
    level: float = EvaluationConfig.level,
    episode_margin: float = EvaluationConfig.episode_margin,
) -> Evaluation:
    """Evaluates without running a policy on a plant: statistics of the log, and shadow actions.

    Args:
        policies: Candidates, or policies by name; may be empty to compare only the controllers.
        dataset: Complete log.
        held_out: Those of its episodes on which no policy was trained.
        training: Training data; classical imitators are fitted to them and compared with the
            learned policies.
        candidate: Name of the policy that would be exported; by default the first of ``policies``.
        spec: Channels with the cost limits of the run; by default those of the log.
        controllers: Classical controllers fitted to the log, by name; their actions are listed with
            those of the imitators.
        held_out_episodes: Numbers of the episodes in ``held_out``, to mark them in trends.
        loops: Controlled variables to show in the trends.
        guard: Wraps the candidate in its guard for the trends; without it, they show the policy's
            own proposals.
        level: Confidence level of all intervals.
        episode_margin: Margin for single episodes that the rule would apply with a simulator.

    Returns:
        Tables with the log as the only row, the distance of each policy's actions from the log's,
        and the proposals of the candidate in the best, the median and the worst stretch of the log.

    Raises:
        ValueError: If the candidate is unknown or the log has fewer than two episodes.
    """
    spec = dataset.spec if spec is None else spec
    imitators = {**classical_imitators(training, spec), **(controllers or {})}
    pool = as_pool(policies)
    candidate = next(iter(pool.policies), "") if candidate is None else candidate
    check_names([*pool.policies], candidate=candidate, reserved=[LOG, *imitators])
    if dataset.n_episodes < 2:
        raise ValueError(
            f"intervals need at least two episodes, and the log has {dataset.n_episodes}"
        )
    plant = known_plant(None, dataset)
    log = PolicyResult(LOG, LOG, LOG, False, recorded_episodes(dataset, spec))
    rows = policy_rows(
        [log], spec, reference="", level=level, detailed={(LOG, False)}, terms=logged_terms(dataset)
    )
    tables = ResultTables(
        environment="",
        reason=no_simulator("NAME" if plant is None else plant.name),
        spec=spec,
        reward_unit=reward_unit(dataset),
        level=level,
        n_starts=0,
        candidate=candidate,
        reference="",
        rows=rows,
        pooled=(),
        episode_margin=episode_margin,
    )
    bands = declared_bands(dataset, spec)
    proposed: tuple[Stretch, ...] = ()
    if candidate:
        proposed = stretches(
            guard(pool[candidate].policy) if guard else pool[candidate].policy,
            dataset,
            name=candidate,
            channels=shown_channels(dataset, spec, loops, bands),
            held_out=held_out_episodes,
        )
    return Evaluation(
        tables=tables,
        results=(log,),
        traces=(),
        bands=bands,
        imitation=action_fits(pool, held_out, level=level, controllers=imitators),
        score=score_of(dataset, rows[0]),
        source=source_of(dataset),
        stretches=proposed,
    )


def logged_terms(dataset: Dataset) -> tuple[Term, ...]:
    """The terms of a log's reward according to its ``plant.toml``; none if it lists none."""
    if dataset.term is None:
        return ()
    terms = dataset.attributes.get("terms", ())
    return tuple(
        Term(str(term["name"]), str(term["unit"]), float(term.get("worth", 0.0))) for term in terms
    )


def reward_unit(dataset: Dataset) -> str:
    """The unit of the reward, if the log states one."""
    reward = dataset.attributes.get("reward")
    return str(reward.get("unit", "")) or "reward" if isinstance(reward, dict) else "reward"


def classical_imitators(training: Training, spec: Spec) -> dict[str, Policy]:
    """Baselines without learning: the mean logged action, and the best linear feedback.

    Args:
        training: Logged rows on the host, or in their file; read one block at a time.
        spec: Action channels with their ranges.

    Returns:
        ``"mean action"``, and ``"linear feedback"``: least squares of the logged action on the
        observation, clipped to the range.
    """
    obs_mean, action_mean, slope = _least_squares(training)
    ends = [jnp.asarray(end, jnp.float32) for end in (lows(spec.action), highs(spec.action))]
    numbers = [jnp.asarray(x, jnp.float32) for x in (-slope.T, obs_mean, action_mean)]
    return {
        MEAN: ConstantPolicy(numbers[2]),
        LINE: StateFeedback(*numbers, *ends),
    }


def _least_squares(training: Training) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean observation, mean action and the slope between them, by QR block after block."""
    count, sums = 0, []
    for obs, action in _actions(training):
        count += len(obs)
        sums.append([part.sum(axis=0, dtype=np.float64) for part in (obs, action)])
    obs_mean, action_mean = (np.sum(part, axis=0) / count for part in zip(*sums, strict=True))
    upper: Any = np.zeros((0, len(obs_mean) + len(action_mean)))
    for obs, action in _actions(training):
        block = np.concatenate([obs - obs_mean, action - action_mean], axis=1)
        upper = np.linalg.qr(np.concatenate([upper, block]), mode="r")
    # The cut-off of lstsq for all rows, not just for the few rows of the factor.
    rcond = np.finfo(np.float64).eps * max(count, len(obs_mean))
    left, right = upper[:, : len(obs_mean)], upper[:, len(obs_mean) :]
    return obs_mean, action_mean, np.linalg.lstsq(left, right, rcond=rcond)[0]


def _actions(training: Training) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if not isinstance(training, Transition):
        yield from training.actions()
        return
    obs, action = np.asarray(training.obs), np.asarray(training.action)
    for start in range(0, len(obs), ROWS_AT_ONCE):
        block = slice(start, start + ROWS_AT_ONCE)
        yield obs[block], action[block]
