"""The controllers of a run that are not trained: fitted to its log, declared, or retuned."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neorl_agents.classical import (
    CLASSICAL,
    LQG,
    MPC,
    DeclaredLoop,
    ImitatedPID,
    Loop,
    SmithPID,
    Task,
    TunedPID,
    declared_bank,
)
from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import SearchSettings
from neorl_core import InputError, Policy, Spec, Transition
from neorl_core.control import PID
from neorl_core.infrastructure import MAX_SEED, Binder, setting, unknown_name

Records = Sequence[Mapping[str, Any]]
"""The loops of one controller as a file states them."""


def declared_loops(name: str, records: Records) -> tuple[DeclaredLoop, ...]:
    """The loops of a declared controller."""
    where = f"classical.declared.{name}"
    if not records:
        raise InputError(f"{where} has no loop; write each as a table [[{where}]]")
    several = tuple[DeclaredLoop, ...]
    return _in(where, lambda: Binder().bound(several, list(records), where))


def declared_controller(
    name: str, records: Records, spec: Spec, log: Transition | None = None
) -> Policy:
    """A declared controller as a policy for the channels of a run.

    Loops that declare no bias take it from the log of training episodes.
    """
    loops = declared_loops(name, records)
    return _in(f"classical.declared.{name}", lambda: declared_bank(loops, spec, log))


def check_declared(declared: Mapping[str, Records]) -> None:
    """Refuses declared controllers that are invalid without regard to any channels."""
    for name, records in declared.items():
        if not re.fullmatch(r"[\w. +()-]+", name):  # it also names a file
            raise InputError(
                f"classical.declared has the name {name!r}, which also names a file; use letters, "
                "digits, spaces and the characters _ . + ( ) -"
            )
        if name in CLASSICAL:
            raise InputError(
                f"classical.declared has {name}, which is the name of a controller that is fitted "
                "on a log; give the declared one another name"
            )
        declared_loops(name, records)


def _in(where: str, build: Callable[[], Any]) -> Any:
    """What a function returns; its error names the place in the configuration."""
    try:
        return build()
    except InputError as error:
        text = str(error)
        raise InputError(text if where in text else f"{where}: {text}") from None


@dataclasses.dataclass(frozen=True)
class ClassicalConfig:
    """Classical controllers that are fitted to the log and compared with the learners.

    Attributes:
        controllers: Their names in ``neorl_agents.classical.CLASSICAL``, such as ``"pid"``,
            ``"lqg"`` and ``"mpc"``; none by default.
        manipulated: Action channel for each controlled variable, by name of the latter; if empty,
            the loops of the plant's reference PID are used.
        setpoint: Setpoint of each controlled variable, in its unit; if an observation carries the
            setpoint, name that observation in ``setpoint_channel`` instead.
        setpoint_channel: Observation channel that carries the setpoint, if there is one.
        measured: Additional observation channels that describe the state, for models and observers.
        declared: Controllers with known numbers, by name: loops with the fields of
            ``neorl_agents.classical.DeclaredLoop``; in a file, tables
            ``[[classical.declared.NAME]]``.
        pid: Settings of the tuned PID, such as its closed-loop time (lambda).
        pid_imitation: Settings of the PID that is fitted to the logged actions.
        smith: Settings of the Smith predictor.
        lqg: Settings of the linear-quadratic controller, such as its weights.
        mpc: Settings of the predictive controller, such as its horizon and weights.
    """

    controllers: tuple[str, ...] = ()
    manipulated: dict[str, str] = dataclasses.field(default_factory=dict)
    setpoint: dict[str, float] = dataclasses.field(default_factory=dict)
    setpoint_channel: dict[str, str] = dataclasses.field(default_factory=dict)
    measured: tuple[str, ...] = ()
    declared: dict[str, tuple[dict[str, Any], ...]] = dataclasses.field(default_factory=dict)
    pid: TunedPID = dataclasses.field(default_factory=TunedPID)
    pid_imitation: ImitatedPID = dataclasses.field(default_factory=ImitatedPID)
    smith: SmithPID = dataclasses.field(default_factory=SmithPID)
    lqg: LQG = dataclasses.field(default_factory=LQG)
    mpc: MPC = dataclasses.field(default_factory=MPC)

    @property
    def names(self) -> tuple[str, ...]:
        """All controllers of the run: those that are fitted on the log, and the declared ones."""
        return (*self.controllers, *self.declared)


def check_classical(classical: ClassicalConfig) -> None:
    """Refuses invalid settings before any data is read.

    Raises:
        InputError: If a controller is unknown or does not consist of loops, one of its settings is
            invalid, or a setpoint is missing or given twice.
    """
    for name in classical.controllers:
        if name not in CLASSICAL:
            raise unknown_name("classical controller", name, CLASSICAL)
        if name == "base_stock":
            raise InputError(
                "classical.controllers has base_stock, which orders items and does not control a "
                "loop; fit neorl_agents.classical.BaseStockLevels in Python"
            )
        try:
            getattr(settings_of(classical, name), "validate", lambda: None)()
        except InputError as error:
            raise InputError(f"classical.{name}: {error}") from error
    _check_loops(classical)
    check_declared(classical.declared)


def _check_loops(classical: ClassicalConfig) -> None:
    """Refuses loops without setpoints, setpoints without loops, and loops without controllers."""
    for controlled in classical.manipulated:
        given = (controlled in classical.setpoint) + (controlled in classical.setpoint_channel)
        if given != 1:
            raise InputError(
                f"classical.manipulated has {controlled}, which needs one setpoint: give it with "
                f"`--classical.setpoint {controlled} NUMBER`, or the observation that carries it "
                f"with `--classical.setpoint-channel {controlled} CHANNEL`"
            )
    for section in ("setpoint", "setpoint_channel"):
        for controlled in getattr(classical, section):
            if controlled not in classical.manipulated:
                raise InputError(
                    f"classical.{section} has {controlled}, which classical.manipulated pairs with "
                    "no action"
                )
    if classical.manipulated and not classical.controllers:
        raise InputError(
            "classical.manipulated has no effect without classical.controllers; add "
            "`--classical.controllers pid`, or leave it out"
        )


def settings_of(classical: ClassicalConfig, name: str) -> Any:
    """The configured controller of a name; the default one if another distribution added it."""
    built_in = name in {field.name for field in dataclasses.fields(classical)}
    return getattr(classical, name) if built_in else CLASSICAL.find(name)()


def task_of(classical: ClassicalConfig, spec: Spec, reference: Any) -> Task:
    """The task that the classical controllers solve.

    Raises:
        InputError: If no loop is declared and the reference is not a PID.
    """
    loops = [
        Loop(name, action, classical.setpoint_channel.get(name, classical.setpoint.get(name, 0.0)))
        for name, action in classical.manipulated.items()
    ]
    if not loops:
        if not isinstance(reference, PID):
            raise InputError(
                f"classical.controllers is {', '.join(classical.controllers)}, and no PID states "
                "which variables they control; pair variables with `--classical.manipulated "
                f"{spec.obs[0].name} {spec.action[0].name}` and give their setpoints, as a number "
                f"with `--classical.setpoint {spec.obs[0].name} NUMBER` or as the observation that "
                f"carries it with `--classical.setpoint-channel {spec.obs[0].name} CHANNEL`"
            )
        loops = [
            Loop(spec.obs[measured].name, channel.name, float(setpoint))
            for channel, measured, setpoint in zip(
                spec.action, reference.measured, reference.setpoint, strict=True
            )
        ]
    return Task(tuple(loops), classical.measured)


INCUMBENT = "incumbent"
"""Refers to the controller that runs on the plant today, as the one to retune."""


@dataclasses.dataclass(frozen=True)
class RetuningConfig:
    """A controller that is retuned in a plant model learned from the log.

    Attributes:
        controller: Name of a tuning of the plant, one of ``classical.controllers`` or one of
            ``classical.declared``; ``"incumbent"`` is the controller that runs on the plant today,
            also if ``evaluation.incumbent`` names its file. If empty, none is retuned.
        exogenous: Observations that no controller influences, such as weather, demand or
            setpoints; a plant declares its own.
        updates: Gradient steps of each network of the model.
        generations: Generations of each search.
        residual: Whether a network of bounded authority is trained on top of the retuned
            controller, in the same model.
        modes: Whether the other modes of the log are candidates too: the tunings of the plant that
            recorded a part of it; without a plant, an imitation by ``classical.pid_imitation`` of
            the mode or shift that ran the plant best, if the log shows which one did.
        held_out_modes: Largest number of other controllers of the log whose episodes are left out
            of a further fit, which then predicts them. The model is not used if it errs too much; a
            gain must not be small beside this error. Each takes as long as the model itself; zero
            for none.
        seed: Seed of the model, of the search and of the network.
    """

    controller: str = ""
    exogenous: tuple[str, ...] = ()
    updates: int = setting(HistoryModelSettings.updates, low=1)
    generations: int = setting(SearchSettings.generations, low=1)
    residual: bool = False
    modes: bool = False
    held_out_modes: int = setting(0, low=0)
    seed: int = setting(0, low=0, high=MAX_SEED)


def check_retuning(
    retuning: RetuningConfig, tunings: Sequence[str], controllers: Sequence[str]
) -> None:
    """Refuses a controller that the run does not have."""
    if retuning.modes and not retuning.controller:
        raise InputError(
            "retuning.modes has no effect without a pool of candidates; name the controller to "
            "retune with --retuning.controller, or select a mode with --evaluation.candidate"
        )
    known = [*tunings, *controllers]
    if retuning.controller and retuning.controller not in known:
        choice = f"choose one of {', '.join(known)}, or" if known else "no controller is known yet;"
        raise InputError(
            f"retuning.controller is {retuning.controller!r}; {choice} fit one on the log with "
            "--classical.controllers pid_imitation and name that, or declare its loops as "
            "[[classical.declared.NAME]]"
        )
