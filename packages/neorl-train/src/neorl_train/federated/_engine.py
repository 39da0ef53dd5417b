"""The engine inside one process: all sites in turn, resumable after every round."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neorl_agents import Algorithm, Learner
from neorl_agents.learning import for_run
from neorl_core import InputError, Policy
from neorl_train.experience._training_data import TrainingData
from neorl_train.federated._client import (
    Client,
    federated_learner,
    named_clients,
    proximal_strength,
)
from neorl_train.federated._coordinator import Coordinator
from neorl_train.federated._exchange import Exchange
from neorl_train.federated._faults import Fault, check_faults
from neorl_train.federated._gossip import mixings
from neorl_train.federated._parameters import Vector
from neorl_train.federated._privacy import epsilon
from neorl_train.federated._rounds import RoundRecord, worst_words
from neorl_train.federated._settings import Federation, check_federation
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.training._checks import check_learner, check_trainable
from neorl_train.training._plan import Plan

DEFAULT = Federation()
Watch = Callable[[RoundRecord], None]


@dataclasses.dataclass(frozen=True)
class Federated:
    """Results of a federation.

    Attributes:
        policies: Policy of every site: the common one, or its own without a server.
        parameters: Parameters of every site.
        rounds: Number of rounds done.
        records: Rounds of this call.
        epsilon: Privacy lost at ``privacy.delta`` in all rounds; infinite without noise.
        finished: Whether all rounds were done; false after a request to stop.
    """

    policies: dict[str, Policy]
    parameters: dict[str, Vector]
    rounds: int
    records: tuple[RoundRecord, ...]
    epsilon: float
    finished: bool


def never() -> bool:
    """No request to stop."""
    return False


def ignore(record: RoundRecord) -> None:
    """Watches nothing."""


def federate(
    learner: Learner,
    sites: Mapping[str, TrainingData],
    settings: Federation = DEFAULT,
    *,
    seed: int = 0,
    faults: Sequence[Fault] = (),
    secret: np.ndarray | None = None,
    checkpoints: Checkpoints | None = None,
    watch: Watch = ignore,
    say: Callable[[str], None] = print,
    stop: Callable[[], bool] = never,
) -> Federated:
    """Trains one learner on the data of several sites, which stay with their clients.

    The result is a function of learner, data, settings, seed, faults and, with privacy, of the
    secret: not of where it was interrupted.

    Args:
        learner: Learner with plain numbers; schedules of length -1 take that of all rounds.
        sites: Training data of every site, by name.
        settings: How they train together.
        seed: Decides everything that is drawn.
        faults: Sites that fail or lie, to rehearse it.
        secret: Four whole numbers below 2^32 that decide the noise of privacy; drawn from the
            operating system by default, and kept in the checkpoints.
        checkpoints: Checkpoints to resume from and save to, once a round; closed on return.
        watch: Called after every round with its record.
        say: Called with lines that a person should read.
        stop: Called once a round; training ends when it returns true.

    Returns:
        Policies and parameters of all sites, and the rounds.

    Raises:
        InputError: In one line: settings, sites or learner do not fit each other, or too few sites
            answered several rounds in a row; the last checkpoint is kept.
    """
    names = list(sites)
    check_federation(settings, names)
    check_faults(faults, names, secure_sum=settings.messages.secure_sum)
    learner = checked_learner(learner, sites, settings)
    clients = named_clients(learner, sites, settings, seed=seed)
    coordinator = Coordinator(
        settings, [one.introduce() for one in clients], seed=seed, secret=secret
    )
    merged = coordinator.merged()
    vectors = [client.begin(merged) for client in clients]
    if settings.federation.proximal:
        proximal_strength(learner, clients[0].parameter_tree, settings.federation.proximal)
    if isinstance(learner, Algorithm):
        _ = clients[0].policy  # refused before anything is compiled
    _, over = coordinator.shares(names)
    for name in over * (settings.federation.rule == "mean"):
        say(
            f"site {name} claims {coordinator.rows[name]} of {sum(coordinator.rows.values())} "
            f"rows; its weight is limited to federation.largest_share = "
            f"{settings.federation.largest_share:g}"
        )
    engine = _Engine(coordinator, clients, vectors[0], faults, say)
    try:
        return engine.run(checkpoints, watch, stop)
    finally:
        if checkpoints is not None:
            checkpoints.close()


def checked_learner(
    learner: Learner, sites: Mapping[str, TrainingData], settings: Federation
) -> Learner:
    """The learner with its schedules settled, if sites can train it.

    Raises:
        InputError: Naming the learner and what does not fit.
    """
    local = settings.federation.local_updates
    plan = Plan(local * settings.federation.rounds, local, local)
    check_learner(learner, plan)
    for name, data in sites.items():
        if not isinstance(data, TrainingData):
            raise InputError(
                f"site {name}: its log stays on the disk, and sites train on logs in memory; raise "
                "data.memory"
            )
        try:
            check_trainable(learner, data, plan)
        except InputError as error:
            raise InputError(f"site {name}: {error}") from error
    return for_run(federated_learner(learner), plan.updates)


def federation_checkpoints(
    folder: Path, identity: Mapping[str, Any], *, keep: int = 2, say: Callable[[str], None] = print
) -> Checkpoints:
    """Checkpoints of one federation, which others do not continue.

    Args:
        folder: Folder of the checkpoints.
        identity: Description of the federation, as plain JSON.
        keep: How many are kept.
        say: Called with a line about each damaged one.
    """
    return Checkpoints(folder, identity=identity, interval=1, keep=keep, say=say)


class _Engine:
    def __init__(
        self,
        coordinator: Coordinator,
        clients: Sequence[Client],
        vector: Vector,
        faults: Sequence[Fault],
        say: Callable[[str], None],
    ) -> None:
        self.settings = coordinator.settings
        self.coordinator, self.clients = coordinator, list(clients)
        gossip = self.settings.federation.rule == "gossip"
        matrices = mixings(self.settings.gossip, coordinator.names) if gossip else None
        self.exchange = Exchange(coordinator, clients, faults, matrices)
        self.vectors = [vector.copy() for _ in (clients if gossip else [0])]
        self.round, self.failed, self.say = 0, 0, say

    def run(
        self, checkpoints: Checkpoints | None, watch: Watch, stop: Callable[[], bool]
    ) -> Federated:
        restored = checkpoints and checkpoints.restore(self._tree())
        if restored:
            self._restore(restored.step, restored.tree)
        records, rounds = [], self.settings.federation.rounds
        while self.round < rounds and not stop():
            self.vectors, record = self.exchange.round(self.round, self.vectors)
            self.round += 1
            self.failed = 0 if record.counted else self.failed + 1
            watch(record)
            records.append(record)
            self._heed(record)
            if checkpoints is not None:
                # A round that failed is kept too, so that it is not tried for ever.
                last = self.round == rounds or stop()
                checkpoints.save(self.round, self._tree(), force=last)
        return self._result(records, finished=self.round >= rounds)

    def _heed(self, record: RoundRecord) -> None:
        if not record.counted:
            self.say(f"round {record.round}: too few sites answered ({worst_words(record)})")
        if self.failed >= self.settings.federation.patience:
            raise InputError(
                f"no round has counted since round {record.round - self.failed + 1}: "
                f"{worst_words(record)}; bring the sites back and give the command again, which "
                f"goes on from the last checkpoint"
            )

    def _tree(self) -> dict[str, Any]:
        return {
            "vectors": np.stack(self.vectors),
            "failed": np.asarray(self.failed, np.int32),
            "secret": self.coordinator.secret,
            "sites": {client.name: client.snapshot() for client in self.clients},
        }

    def _restore(self, step: int, tree: Mapping[str, Any]) -> None:
        self.round, self.failed = step, int(tree["failed"])
        self.vectors = list(np.asarray(tree["vectors"]))
        self.coordinator.secret = np.asarray(tree["secret"])
        for client in self.clients:
            client.restore(tree["sites"][client.name])

    def _result(self, records: Sequence[RoundRecord], *, finished: bool) -> Federated:
        own = self.vectors * (len(self.clients) if len(self.vectors) == 1 else 1)
        parameters = dict(zip(self.coordinator.names, own, strict=True))
        for client in self.clients:
            client.adopt(parameters[client.name])
        policies = {
            client.name: client.policy
            for client in self.clients
            if isinstance(client.learner, Algorithm)
        }
        federation, privacy = self.settings.federation, self.settings.privacy
        lost = (
            epsilon(
                rounds=self.round, noise_multiplier=privacy.noise_multiplier,
                participation=federation.participation, delta=privacy.delta,
            )
            if self.settings.private
            else float("inf")
        )  # fmt: skip
        return Federated(policies, parameters, self.round, tuple(records), lost, finished)
