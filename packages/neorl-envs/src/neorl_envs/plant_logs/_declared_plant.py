"""Facts about the plant in ``plant.toml``: uncontrolled channels, reward, costs, interlocks."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core import InputError, Spec
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.plant_logs._configuration import BEFORE
from neorl_envs.plant_logs._expressions import Expression
from neorl_envs.plant_logs._interlocks import (
    DeclaredInterlocks,
    Formula,
    UntranslatableError,
    always_active,
    declared_interlocks,
    evaluate,
    formula_of,
    interlock_activity,
    interlocks_of,
    require_translation,
)

ROWS = 20_000
"""Largest number of logged rows with which a declared reward or cost is compared."""
TOLERANCE = 1e-3
"""Largest allowed difference from the logged values, in their standard deviations."""


@dataclasses.dataclass(frozen=True)
class DeclaredObjective:
    """Reward and costs of a step as functions of its observations and actions.

    Objects are hashable and compare by value, so they may be static arguments.

    Attributes:
        outputs: Formulas of the reward and of every cost; ``None`` for one that cannot be computed
            from the columns.
        sources: For every name, the argument that holds its value and the index in it.
    """

    outputs: tuple[Formula | None, ...]
    sources: tuple[tuple[str, tuple[str, int]], ...]

    def __call__(
        self,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
        last_action: Float[Array, " act"],
    ) -> Float[Array, " outcome"]:
        """Reward and costs; NaN for those without a formula.

        Args:
            obs: Observation before the step.
            action: Action of the step.
            next_obs: Observation after the step.
            last_action: Action of the previous step.
        """
        inputs = {"obs": obs, "action": action, "next_obs": next_obs, "last_action": last_action}
        columns = {name: inputs[field][index] for name, (field, index) in self.sources}
        values = [
            jnp.asarray(jnp.nan if one is None else evaluate(one, columns), obs.dtype)
            for one in self.outputs
        ]
        return jnp.stack(values)


@dataclasses.dataclass(frozen=True)
class DeclaredPlant:
    """What the ``plant.toml`` of a converted log declares about the plant.

    Attributes:
        exogenous: Observations of setpoints and disturbances, including their past values.
        objective: Declared reward and costs; ``None`` if none of them can be used.
        interlock: Declared interlocks; ``None`` if there are none.
        notes: One sentence on each declaration: whether it is used, and if not, why.
        setpoints: Those of ``exogenous`` that are setpoints.
    """

    exogenous: tuple[str, ...] = ()
    objective: DeclaredObjective | None = None
    interlock: DeclaredInterlocks | None = None
    notes: tuple[str, ...] = ()
    setpoints: tuple[str, ...] = ()


def declared_plant(dataset: Dataset) -> DeclaredPlant:
    """Reads the declarations about the plant from the ``plant.toml`` of a converted log.

    A declared reward or cost is used if its expression contains only observed and manipulated
    variables without a transport delay, and reproduces the values in the dataset.

    Args:
        dataset: Any dataset; one that was not converted from a historian's export declares nothing
            but the interlocks in its attribute ``interlocks``, if it has one.

    Returns:
        The uncontrolled channels, and the reward, the costs and the interlocks as functions.

    Raises:
        InputError: If the condition of an interlock holds in every row of the log.
    """
    interlock, interlock_notes = _interlock(dataset)
    configuration = dataset.attributes.get("provenance", {}).get("configuration", {})
    if not isinstance(configuration, Mapping) or "tag" not in configuration:
        return DeclaredPlant(interlock=interlock, notes=tuple(interlock_notes))
    tags: Sequence[Mapping[str, Any]] = configuration["tag"]
    exogenous = _names_of_role(dataset.spec, tags, "setpoint", "disturbance")
    texts = [configuration["reward"]["expression"]]
    texts += [cost["expression"] for cost in configuration.get("cost", ())]
    sources = _sources(dataset.spec, {tag["name"] for tag in tags if tag.get("delay_s")})
    logged = _logged_rows(dataset)
    names = ["reward", *(f"cost {channel.name}" for channel in dataset.spec.cost)]
    outputs, notes = [], []
    for index, (name, text) in enumerate(zip(names, texts, strict=True)):
        try:
            formula = _formula(text, name, sources)
            _require_agreement(formula, sources, logged, index)
            outputs.append(formula)
        except (InputError, UntranslatableError) as error:
            outputs.append(None)
            notes.append(f"{name} is learned and its expression not used: {error}")
    used = [name for name, one in zip(names, outputs, strict=True) if one is not None]
    if used:
        notes.insert(0, f"computed by the expressions of plant.toml: {', '.join(used)}")
    if exogenous:
        notes.append(
            f"taken from the log, as setpoints and disturbances are: {', '.join(exogenous)}"
        )
    objective = DeclaredObjective(tuple(outputs), tuple(sources.items())) if used else None
    setpoints = _names_of_role(dataset.spec, tags, "setpoint")
    return DeclaredPlant(exogenous, objective, interlock, (*notes, *interlock_notes), setpoints)


def _names_of_role(spec: Spec, tags: Sequence[Mapping[str, Any]], *roles: str) -> tuple[str, ...]:
    """Observations whose tags have one of some roles, with their earlier values."""
    names = {tag["name"] for tag in tags if tag["role"] in roles}
    return tuple(c.name for c in spec.obs if c.name.partition("[-")[0] in names)


def _interlock(dataset: Dataset) -> tuple[DeclaredInterlocks | None, list[str]]:
    """The declared interlocks as a function, and a sentence on each."""
    checked = declared_interlocks(dataset)
    if not checked:
        return None, []
    names = [[c.name for c in channels] for channels in (dataset.spec.obs, dataset.spec.action)]
    interlock = interlocks_of(checked, *names)
    rows: Any = dataset.transitions
    known = np.flatnonzero(np.asarray(rows.mask[:ROWS], bool))
    require_translation(checked, dataset.spec, rows.obs[known], rows.action[known])
    notes = []
    for one in interlock_activity(dataset, checked):
        if one.always:
            raise InputError(always_active(one))
        differs = sum(found.rows for found in one.contradictions)
        contradicted = f", but the log contradicts it in {differs} rows" if differs else ""
        notes.append(
            f"interlock {one.name!r} overrides every action of the plant model: {one.sentence}; "
            f"it was active in {one.active} of {one.rows} logged rows{contradicted}"
        )
    return interlock, notes


def _sources(spec: Spec, delayed: set[str]) -> dict[str, tuple[str, int]]:
    """Maps every name that an expression may use to its value; see the page on ``plant.toml``."""
    sources: dict[str, tuple[str, int]] = {}
    for now, before, channels in (
        ("next_obs", "obs", spec.obs),
        ("action", "last_action", spec.action),
    ):
        for index, channel in enumerate(channels):
            if channel.name not in delayed:
                sources[channel.name] = (now, index)
                sources[BEFORE + channel.name] = (before, index)
    return sources


def _formula(text: str, name: str, sources: Mapping[str, tuple[str, int]]) -> Formula:
    try:
        expression = Expression(text, list(sources), name)
    except InputError as error:
        raise UntranslatableError(
            f"{text!r} needs more than the observed and manipulated variables without a delay"
        ) from error
    return formula_of(expression.tree())


def _logged_rows(dataset: Dataset) -> dict[str, np.ndarray]:
    """The first known rows of the log that follow another row of the same episode."""
    rows: Any = dataset.transitions
    part = slice(ROWS)
    used = np.asarray(rows.mask[part], bool).copy()
    used[1:] &= np.asarray(rows.mask[part], bool)[:-1]
    starts = np.asarray(dataset.episode_starts)
    used[starts[starts < len(used)]] = False
    action = np.asarray(rows.action[part], np.float32)
    reward = np.asarray(rows.reward[part], np.float64)[:, None]
    outcome = [reward] if rows.cost is None else [reward, np.asarray(rows.cost[part], np.float64)]
    columns = {
        "obs": np.asarray(rows.obs[part], np.float32),
        "action": action,
        "next_obs": np.asarray(rows.next_obs[part], np.float32),
        "last_action": np.roll(action, 1, axis=0),
        "outcome": np.concatenate(outcome, axis=1),
    }
    return {name: column[used] for name, column in columns.items()}


def _require_agreement(
    formula: Formula,
    sources: Mapping[str, tuple[str, int]],
    logged: Mapping[str, np.ndarray],
    index: int,
) -> None:
    stored = logged["outcome"][:, index]
    if not len(stored):
        raise UntranslatableError("no row of the log can be compared with it")
    columns = {name: jnp.asarray(logged[field][:, i]) for name, (field, i) in sources.items()}
    recomputed = np.asarray(jax.jit(evaluate, static_argnums=0)(formula, columns), np.float64)
    difference = float(np.max(np.abs(np.broadcast_to(recomputed, stored.shape) - stored)))
    largest = max((float(np.abs(column).max()) for column in columns.values()), default=0.0)
    # Columns have single precision; the expression was evaluated in double precision.
    allowed = TOLERANCE * float(stored.std()) + 1e-6 + 4 * np.finfo(np.float32).eps * largest
    if not difference <= allowed:
        raise UntranslatableError(
            f"it differs from the logged values by up to {difference:.3g}, where {allowed:.3g} is "
            "allowed"
        )
