"""A note for a comparison of learners whose networks or batches differ in size."""

from collections.abc import Mapping
from typing import Any

from neorl_agents import BaseLearner

SIZES = ("networks.hidden", "steps.batch_size")


def size_notes(learners: Mapping[str, Any]) -> list[str]:
    """Says so if learners that are compared have networks or batches of different sizes.

    The defaults of a run are small for some learners and those of the papers for the others, so a
    comparison with the defaults would also compare sizes.

    Args:
        learners: The learners that are compared, by name; those that are not made with
            ``BaseLearner`` have no common sizes and are left out.

    Returns:
        One sentence, or none if the sizes are equal.
    """
    names: dict[str, list[str]] = {}
    for name, learner in learners.items():
        if isinstance(learner, BaseLearner):
            names.setdefault(_sizes(learner), []).append(name)
    if len(names) < 2:
        return []
    groups = "; ".join(f"{', '.join(group)}: {sizes}" for sizes, group in names.items())
    return [
        f"the learners differ in size ({groups}); to compare the methods alone, give all of them "
        f"the same {' and '.join(SIZES)}"
    ]


def _sizes(learner: BaseLearner) -> str:
    hidden = " ".join(map(str, learner.networks.hidden))
    return f"hidden layers of {hidden}, batches of {learner.steps.batch_size}"
