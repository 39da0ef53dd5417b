"""The NumPy-only form of a guarded policy, with a check that it answers as trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neorl_deploy.bundle._manifest import PARITY_TOLERANCE, ArrayEntry
from neorl_deploy.bundle._test_vectors import relative_difference
from neorl_deploy.export._operations import NoSuchOperationError, operation_list
from neorl_deploy.export._read import GuardedParts, entries
from neorl_deploy.export._stablehlo import carry_entries, flat_step
from neorl_deploy.runtime._decision import findings
from neorl_deploy.runtime._numpy_form import operation_files
from neorl_deploy.runtime._operations import as_function


def numpy_form(
    guarded: GuardedParts, flags: Mapping[str, int], vectors: Mapping[str, Mapping[str, np.ndarray]]
) -> tuple[dict[str, bytes], str]:
    """The files of the NumPy-only form, if the guarded policy has one.

    There is none if the program contains something that NumPy operations cannot express, such as a
    loop, or if its answer to a test vector differs from the training side's.

    Returns:
        Content by name, empty if there is no such form; and the reason, empty if there is one.
    """
    import jax

    policy, spec = guarded.policy, guarded.spec
    inputs = [
        *carry_entries(policy),
        ArrayEntry("obs", (spec.n_obs,), "float32"),
        ArrayEntry("last_sent", (spec.n_action,), "float32"),
    ]
    try:
        operations = operation_list(flat_step(policy), inputs)
    except NoSuchOperationError as error:
        return {}, f"it holds {error}"
    initial = [np.asarray(leaf) for leaf in jax.tree.leaves(policy.initial_carry())]
    run, worst, same_flags = as_function(operations), 0.0, True
    for section, stored in vectors.items():
        actions, raised_flags = _answers(run, initial, stored, fresh=section == "single")
        difference = relative_difference(
            entries(spec.action), actions, stored["action"], stored["rounding"]
        )
        checked_bits = np.uint32(findings(flags))
        worst = max(worst, difference)
        same_flags = same_flags and np.array_equal(
            raised_flags & checked_bits, stored["flags"] & checked_bits
        )
    if not (worst <= PARITY_TOLERANCE and same_flags):
        comparison = "equal" if same_flags else "different"
        return {}, f"its answers differ by {worst:.1e} of a channel's size, flags are {comparison}"
    return operation_files(operations, initial), ""


def _answers(
    run: Any, initial: Sequence[np.ndarray], stored: Mapping[str, np.ndarray], *, fresh: bool
) -> tuple[np.ndarray, np.ndarray]:
    carry, actions, flags = tuple(initial), [], []
    for obs, last_sent in zip(stored["obs"], stored["last_sent"], strict=True):
        outputs = run(*(initial if fresh else carry), obs, last_sent)
        carry = outputs[: len(initial)]
        actions.append(outputs[len(initial)])
        flags.append(outputs[len(initial) + 1])
    return np.stack(actions), np.array(flags, np.uint32)
