"""Normalised scores of published benchmarks, with their authors' formula and reference returns."""

from neorl_core.statistics import normalised_score
from neorl_envs import Dataset
from neorl_train.judging._results import Score
from neorl_train.judging._tables import Estimate, PolicyRow

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


def score_of(dataset: Dataset, log: PolicyRow) -> Score | None:
    """The score of a NeoRL-2 log; ``None`` for any other, because its references are not known.

    Args:
        dataset: The log; its provenance identifies it.
        log: Row of its recorded episodes.

    Returns:
        The score with its interval.
    """
    provenance = dataset.attributes.get("provenance", {})
    task = str(dataset.attributes.get("name", "")).split("-")[0]
    is_neorl2 = str(provenance.get("format", "")).startswith("NeoRL-2")
    if not is_neorl2 or task not in NEORL2_RETURNS:
        return None
    low, high = NEORL2_RETURNS[task]
    ends = (log.returns.value, log.returns.low, log.returns.high)
    scored = Estimate(*(float(normalised_score(end, low=low, high=high)) for end in ends))
    return Score(f"NeoRL-2 {task}", low, high, scored)
