"""Evaluation where there is no simulator: the log's own results, and the distance to them."""

from collections.abc import Mapping

from neorl_core import Policy
from neorl_envs import Dataset
from neorl_train._evaluate_episodes import recorded_episodes
from neorl_train._evaluate_results import (
    LOG,
    Evaluation,
    PolicyResult,
    check_names,
    source_of,
)
from neorl_train._evaluate_score import score_of
from neorl_train._evaluate_shadow import action_fits
from neorl_train._evaluate_summary import policy_rows
from neorl_train._evaluate_tables import ResultTables
from neorl_train._intervals import LEVEL

NO_SIMULATOR = (
    "there is no simulator of this plant, only its log, so what another policy would have "
    "brought about was not observed"
)


def evaluate_offline(
    policies: Mapping[str, Policy],
    *,
    dataset: Dataset,
    held_out: Dataset,
    candidate: str,
    reason: str = NO_SIMULATOR,
) -> Evaluation:
    """What can be said without running a policy: statistics of the log, and shadow actions.

    Args:
        policies: Learned policies by name.
        dataset: The whole log.
        held_out: Episodes of it that no policy was trained on.
        candidate: Name of the policy that would be exported.
        reason: Why there is no simulation; part of the verdict.

    Returns:
        Tables with the log as only row, and how far each policy's actions are from the log's.

    Raises:
        ValueError: If the candidate is unknown or the log has fewer than two episodes.
    """
    check_names(list(policies), candidate=candidate, taken=[LOG])
    if dataset.n_episodes < 2:
        raise ValueError(
            f"the log has {dataset.n_episodes} episode; intervals need at least two episodes"
        )
    log = PolicyResult(LOG, LOG, LOG, False, recorded_episodes(dataset))
    rows = policy_rows([log], dataset.spec, reference="")
    tables = ResultTables(
        environment="",
        reason=reason,
        spec=dataset.spec,
        reward_unit="reward",
        level=LEVEL,
        n_starts=0,
        candidate=candidate,
        reference="",
        rows=rows,
        pooled=(),
    )
    return Evaluation(
        tables=tables,
        results=(log,),
        traces=(),
        bands=(),
        imitation=action_fits(policies, held_out),
        score=score_of(dataset, rows[0]),
        source=source_of(dataset),
    )
