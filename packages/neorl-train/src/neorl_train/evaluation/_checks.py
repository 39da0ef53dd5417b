"""Refusals before anything is run."""

from collections.abc import Sequence

from neorl_core import Spec


def check_names(names: Sequence[str], *, candidate: str, taken: Sequence[str]) -> None:
    """Refuses a candidate that is not there and a policy that bears the name of another.

    Raises:
        ValueError: With the known names.
    """
    if candidate not in names:
        raise ValueError(
            f"the candidate {candidate!r} is not among the policies: {', '.join(names) or 'none'}"
        )
    clash = sorted(set(names) & set(taken))
    if clash:
        raise ValueError(f"{', '.join(clash)}: already the name of a controller; rename the policy")


def check_spec(spec: Spec, dataset_spec: Spec, environment: str) -> None:
    """Refuses a log of another plant than the simulator's.

    Raises:
        ValueError: Naming what differs.
    """
    for field in ("obs", "action", "cost", "dt"):
        ours, theirs = getattr(spec, field), getattr(dataset_spec, field)
        if ours != theirs:
            raise ValueError(
                f"the log is of another plant than {environment}: its {field} is {theirs}, "
                f"the simulator's {ours}; evaluate without environment"
            )
