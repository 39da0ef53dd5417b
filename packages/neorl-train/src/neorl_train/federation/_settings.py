"""A federation as its file describes it: its sections, sites, simulated faults, and checks."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from neorl_core import InputError
from neorl_core.infrastructure import require_settings, setting, unknown_name
from neorl_train.configuration._sections import Config, config_to_dict, update

Rule = Literal[
    "mean",
    "median",
    "trimmed-mean",
    "krum",
    "multi-krum",
    "bulyan",
    "geometric-median",
    "centred-clipping",
    "gossip",
]

ROBUST: dict[str, tuple[int, int]] = {
    "median": (2, 1),
    "trimmed-mean": (2, 1),
    "krum": (2, 3),
    "multi-krum": (2, 3),
    "bulyan": (4, 3),
    "geometric-median": (2, 1),
    "centred-clipping": (2, 1),
}
"""``(a, b)`` of every robust rule: to withstand ``f`` faulty sites it needs ``a f + b`` sites."""


@dataclasses.dataclass(frozen=True)
class FederationConfig:
    """How sites train one policy together, or retune their controllers together.

    Attributes:
        method: What the sites do: ``"training"`` trains one policy for all; ``"retuning"`` lets
            each propose gains of ``retuning.controller``, and vote on those of all in the plant
            model of its log, after which every site takes what its own log supports.
        rounds: Number of exchanges between the sites; of retuning, most attempts at the one vote.
        local_updates: Gradient steps that every site takes between two exchanges.
        rule: How updates are combined: ``"mean"`` is federated averaging, ``"gossip"`` exchanges
            with neighbours and has no server, the others withstand faulty sites.
        byzantine: Number of sites that may send arbitrary updates; required by robust rules.
        proximal: Strength of FedProx's pull of every site towards the common parameters; 0 for
            none.
        weights: Whether sites are weighted by their rows or equally; robust rules always weight
            them equally.
        largest_share: Largest share of a mean that one site may have, however many rows it claims.
        participation: Probability that a site takes part in a round, independently in every round.
        least_sites: Smallest number of sites that must answer for a round to count.
        patience: Number of consecutive rounds that may fail before training stops.
        radius: Norm to which ``"centred-clipping"`` clips updates.
        scaling: Whether networks are scaled by the merged statistics of all sites, or by the
            declared ranges of the channels, for which no statistics are sent.
    """

    method: Literal["training", "retuning"] = "training"
    rounds: int = setting(40, low=1)
    local_updates: int = setting(250, low=1)
    rule: Rule = "mean"
    byzantine: int = setting(0, low=0)
    proximal: float = setting(0.0, low=0)
    weights: Literal["rows", "equal"] = "rows"
    largest_share: float = setting(0.5, above=0, high=1)
    participation: float = setting(1.0, above=0, high=1)
    least_sites: int = setting(1, low=1)
    patience: int = setting(3, low=1)
    radius: float = setting(1.0, above=0)
    scaling: Literal["merged", "declared"] = "merged"


@dataclasses.dataclass(frozen=True)
class GossipConfig:
    """Which sites exchange parameters without a server; used only with ``rule = "gossip"``.

    Attributes:
        graph: A ring in the order of the sites, a star around the first, all pairs, a hierarchy of
            ``groups``, or the declared ``links``.
        links: Pairs of names of sites, each an undirected link.
        groups: Members of a group at each level of a hierarchy, lowest level first: ``(4, 3)``
            means three groups of four sites, in the order of the sites. Every level averages once,
            and after the last one all sites have the exact mean, if none is absent.
        steps: Number of times that every site mixes with its neighbours in a round.
        exact: Whether a round mixes until all sites have the exact mean, in as many steps as the
            graph needs, instead of ``steps``.
    """

    graph: Literal["ring", "star", "complete", "hierarchical", "links"] = "ring"
    links: tuple[tuple[str, ...], ...] = ()
    groups: tuple[int, ...] = setting((), low=1)
    steps: int = setting(1, low=1)
    exact: bool = False


@dataclasses.dataclass(frozen=True)
class PrivacyConfig:
    """Differential privacy of the sites; active if ``noise_multiplier`` is positive.

    Attributes:
        noise_multiplier: Standard deviation of the noise in multiples of ``clip_norm``; 0 for no
            privacy.
        clip_norm: Largest Euclidean norm of a site's update in a round.
        delta: Probability with which the privacy guarantee may fail; well below one over the number
            of sites.
        added_by: Who adds the noise: the ``"server"``, which must then be trusted, or the
            ``"sites"``, each a share behind the masks of ``messages.secure_sum``.
        dishonest: With noise of the sites, the number of sites that may leave out their share or
            reveal it to the server; the others add more noise in their place.
    """

    noise_multiplier: float = setting(0.0, low=0)
    clip_norm: float = setting(1.0, above=0)
    delta: float = setting(1e-5, above=0, below=1)
    added_by: Literal["server", "sites"] = "server"
    dishonest: int = setting(0, low=0)


@dataclasses.dataclass(frozen=True)
class MessagesConfig:
    """How updates are sent.

    Attributes:
        secure_sum: Whether masks that cancel in pairs hide all but the sum of the updates from the
            server.
        groups: Number of groups of sites, drawn anew in every round, whose masked sums the server
            sees; a robust rule combines their means as if each were one site.
        largest: Largest magnitude of a coordinate in a masked sum; larger ones are cut to it.
        bits: Bits of a number in an update: 32 unrounded, 16 or 8 rounded.
        fraction: Fraction of the coordinates that are sent, the largest ones; the rest is added to
            the next update.
    """

    secure_sum: bool = False
    groups: int = setting(1, low=1)
    largest: float = setting(1.0, above=0)
    bits: Literal[8, 16, 32] = 32
    fraction: float = setting(1.0, above=0, high=1)


@dataclasses.dataclass(frozen=True)
class Federation:
    """All settings of a federation.

    Attributes:
        federation: Rounds, rule and weights.
        gossip: Graph without a server.
        privacy: Noise and clipping.
        messages: Form of the messages.
    """

    federation: FederationConfig = FederationConfig()
    gossip: GossipConfig = GossipConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    messages: MessagesConfig = MessagesConfig()

    @property
    def private(self) -> bool:
        """Whether updates are clipped and noise is added."""
        return self.privacy.noise_multiplier > 0

    @property
    def noise_of_sites(self) -> bool:
        """Whether every site adds a share of the noise itself."""
        return self.private and self.privacy.added_by == "sites"

    @property
    def compressed(self) -> bool:
        """Whether a message contains less than the update."""
        return self.messages.bits < 32 or self.messages.fraction < 1


GROUP = 2
"""Smallest number of sites in a group whose masked sum the server may see."""


def sites_needed(rule: str, byzantine: int) -> int:
    """The smallest number of sites with which a rule withstands this many faulty ones."""
    slope, offset = ROBUST.get(rule, (0, 1))
    return slope * byzantine + offset


def max_byzantine(rule: str, sites: int) -> int:
    """The largest number of faulty sites that a rule withstands among these; -1 if none."""
    slope, offset = ROBUST.get(rule, (0, 1))
    return (sites - offset) // slope if slope else 0


def check_federation(settings: Federation, names: list[str]) -> None:
    """Refuses settings that do not fit together or do not fit the sites, before any training."""
    federation = settings.federation
    if len(names) < 2:
        raise InputError(
            f"a federation needs two sites or more, got {len(names)}; add a section [sites.NAME] "
            "for each, or train on one log with `neorl-train run`"
        )
    require_settings(settings, "")
    if federation.least_sites > len(names):
        raise InputError(
            f"federation.least_sites is {federation.least_sites}, but there are only {len(names)} "
            "sites"
        )
    _check_rule(federation, len(names))
    _check_together(settings, len(names))


def _check_rule(federation: FederationConfig, sites: int) -> None:
    rule, faulty = federation.rule, federation.byzantine
    if rule in ROBUST:
        needed, maximum = sites_needed(rule, faulty), max_byzantine(rule, sites)
        if sites < needed:
            advice = (
                f"at most {maximum} of {sites} sites may be faulty"
                if maximum >= 0
                else "choose another rule, such as median"
            )
            raise InputError(
                f"{rule} needs {needed} sites or more to tolerate {faulty} faulty sites, and there "
                f"are {sites}; {advice}"
            )
    elif faulty:
        raise InputError(
            f"federation.byzantine is {faulty}, but {rule} tolerates no faulty site; choose one of "
            f"{', '.join(ROBUST)}"
        )
    if federation.largest_share < 1 / sites and rule == "mean":
        raise InputError(
            f"federation.largest_share is {federation.largest_share:g}, but the shares of {sites} "
            f"sites cannot all be below {1 / sites:.3g}; raise it to that or more"
        )


def _check_together(settings: Federation, sites: int) -> None:
    rule, messages = settings.federation.rule, settings.messages
    not_mean = rule != "mean"
    for name, chosen, why in (
        (
            "privacy.noise_multiplier",
            settings.private,
            "the privacy bound is derived only for the mean",
        ),
        ("messages.secure_sum", messages.secure_sum and messages.groups == 1, "a masked sum hides "
            "the single updates, which other rules need; robust rules can combine messages.groups"),
        ("messages.fraction and messages.bits", settings.compressed and rule == "gossip",
         "in gossip, sites exchange parameters, which cannot be compressed like updates"),
    ):  # fmt: skip
        if not_mean and chosen:
            raise InputError(f'{name} needs federation.rule = "mean", got "{rule}": {why}')
    if messages.secure_sum and settings.compressed:
        raise InputError(
            "messages.secure_sum sends every coordinate as a masked integer: leave "
            "messages.bits at 32 and messages.fraction at 1"
        )
    if settings.private and settings.compressed:
        raise InputError(
            "privacy and compressed messages cannot be combined, because error feedback adds back "
            "what was clipped; leave messages.bits at 32 and messages.fraction at 1"
        )
    if settings.noise_of_sites:
        _check_noise_of_sites(settings, sites)
    if messages.groups > 1:
        _check_groups(settings, sites)
    if messages.secure_sum and sites < 3:
        raise InputError(
            "messages.secure_sum needs three sites or more, because with two each "
            "site could compute the other's update"
        )


def check_retuning_rounds(settings: Federation) -> None:
    """Refuses settings of training that a vote has no use for."""
    for name, chosen in (
        ('federation.rule = "gossip"', settings.federation.rule == "gossip"),
        ("privacy.noise_multiplier", settings.private),
        ("messages.fraction or messages.bits", settings.compressed),
        ("federation.proximal", settings.federation.proximal > 0),
    ):
        if chosen:
            raise InputError(
                f"{name} is a setting of training, and sites that retune exchange only tunings and "
                "votes on them; leave it out"
            )


def _check_noise_of_sites(settings: Federation, sites: int) -> None:
    """Requires masks, no draw of sites by the server, and honest sites that hide one another."""
    if not settings.messages.secure_sum:
        raise InputError(
            'privacy.added_by is "sites", which needs messages.secure_sum: without masks, the '
            "server would see single updates with a small share of the noise"
        )
    if settings.federation.participation < 1:
        raise InputError(
            'privacy.added_by is "sites", so the server is not trusted, and it draws the sites '
            "that take part; leave federation.participation at 1"
        )
    if sites - settings.privacy.dishonest < GROUP:
        raise InputError(
            f"privacy.dishonest is {settings.privacy.dishonest}, but among {sites} sites there "
            f"must be {GROUP} honest ones or more; lower it"
        )


def _check_groups(settings: Federation, sites: int) -> None:
    """Requires groups that hide their members and are enough for the rule."""
    rule, faulty = settings.federation.rule, settings.federation.byzantine
    groups, needed = settings.messages.groups, sites_needed(rule, faulty)
    if not settings.messages.secure_sum or rule not in ROBUST:
        raise InputError(
            f"messages.groups is {groups}, which needs messages.secure_sum and a robust "
            f"federation.rule, one of {', '.join(ROBUST)}; leave it at 1"
        )
    if groups < needed or sites < GROUP * groups:
        raise InputError(
            f"messages.groups is {groups} for {sites} sites: {rule} needs {needed} groups against "
            f"{faulty} faulty sites, and a group hides its members only with {GROUP} sites or "
            f"more, so give at least {needed} groups and {GROUP * needed} sites"
        )


FaultKind = Literal["dead", "late", "scaled", "flipped", "nan", "miscounts"]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of a site in a range of rounds.

    Attributes:
        site: Name of the site.
        kind: ``"dead"`` loses its state and does not answer; ``"late"`` answers after the end of
            the round; ``"scaled"`` multiplies its update by ``factor``, ``"flipped"`` also reverses
            its sign, ``"nan"`` sends a NaN in every coordinate; ``"miscounts"`` claims ``factor``
            times its rows.
        first: First round with the fault, from 0.
        last: Last round with the fault; -1 for all remaining rounds.
        factor: See ``kind``.
    """

    site: str = ""
    kind: FaultKind = "dead"
    first: int = 0
    last: int = -1
    factor: float = 10.0

    def at(self, round_: int) -> bool:
        """Whether the fault is active in a round."""
        return self.first <= round_ and (self.last < 0 or round_ <= self.last)


def check_faults(
    faults: Sequence[Fault], names: Sequence[str], *, secure_sum: bool = False
) -> None:
    """Refuses faults of unknown sites, and those that masks would hide."""
    for fault in faults:
        if fault.site not in names:
            raise unknown_name("site of a fault", fault.site, names)
        if secure_sum and fault.kind in ("scaled", "flipped", "nan"):
            raise InputError(
                f"the fault {fault.kind!r} of {fault.site} cannot be simulated with "
                "messages.secure_sum, because single updates are not visible; leave one of them out"
            )
        if fault.first < 0:
            raise InputError(
                f"the fault of {fault.site} begins in round {fault.first}, and rounds "
                "count from 0; give a round of 0 or more"
            )


SECTIONS = {
    "federation": FederationConfig,
    "gossip": GossipConfig,
    "privacy": PrivacyConfig,
    "messages": MessagesConfig,
}
"""Sections of a federation's file in addition to those of a run, ``sites`` and ``faults``."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclasses.dataclass(frozen=True)
class FederationPlan:
    """A federation plan in which only the data are missing.

    Attributes:
        settings: Rounds, rule and messages.
        sites: Configuration of every site's run, by its name.
        faults: Faults to simulate.
        directory: Folder of the numbered federations.
    """

    settings: Federation
    sites: dict[str, Config]
    faults: tuple[Fault, ...]
    directory: Path

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the federations; the same for all sites."""
        return next(iter(self.sites.values())).training.seeds

    @property
    def algorithm(self) -> str:
        """The learner; the same for all sites. Sites that retune have none."""
        return next(iter(self.sites.values())).training.algorithms[0]

    @property
    def retunes(self) -> bool:
        """Whether the sites retune their controllers instead of training a policy."""
        return self.settings.federation.method == "retuning"

    def to_dict(self) -> dict[str, Any]:
        """Nested plain dictionaries with everything that influences the result."""
        plain = {name: dataclasses.asdict(getattr(self.settings, name)) for name in SECTIONS}
        return {
            **plain,
            "faults": [dataclasses.asdict(fault) for fault in self.faults],
            "sites": {name: config_to_dict(config) for name, config in self.sites.items()},
        }


def federation_plan(
    shared: Config,
    settings: Federation,
    sites: Mapping[str, Mapping[str, Any]],
    faults: tuple[Fault, ...] = (),
) -> FederationPlan:
    """Makes the plan from sections that all sites share and sections of each site.

    Raises:
        InputError: If a site's name is not a plain word, or it has an unknown section or other
            learners, seeds or lengths than the rest; or if the settings do not fit the sites.
    """
    for name in sites:
        if not PLAIN_NAME.fullmatch(name):
            raise InputError(
                f"the site name {name!r} must be letters, digits, dashes and underscores"
            )
    check_federation(settings, list(sites))
    retunes = settings.federation.method == "retuning"  # then a false site masks false votes
    check_faults(faults, list(sites), secure_sum=settings.messages.secure_sum and not retunes)
    shared = _for_retuning(shared, settings) if retunes else _for_training(shared)
    if shared.training.on != "log" or shared.finetune.run:
        raise InputError("sites train on their logs; leave training.on and finetune.run out")
    federation = settings.federation
    length = federation.rounds * federation.local_updates
    training = dataclasses.replace(shared.training, updates=length, chunk=federation.local_updates)
    checkpoints = dataclasses.replace(shared.checkpoints, interval=length)
    shared = dataclasses.replace(shared, training=training, checkpoints=checkpoints)
    configs = {}
    for name, section_of_site in sites.items():
        for section in ("training", "algorithms", "checkpoints", "output", "finetune"):
            if section in section_of_site:
                raise InputError(
                    f"[sites.{name}.{section}] is not allowed, because all sites share this "
                    f"section; move it to [{section}]"
                )
        try:
            configs[name] = update(shared, section_of_site)
        except InputError as error:
            raise InputError(f"sites.{name}: {error}") from None
        if retunes:
            _require_controller(name, configs[name])
    return FederationPlan(settings, configs, faults, Path(shared.output.directory))


LEARNER = ("td3_bc",)
"""The learner of a federation that names none."""


def _for_training(shared: Config) -> Config:
    """The sections of sites that train one learner."""
    if len(shared.training.algorithms) != 1:
        raise InputError(
            "sites train one learner together, but training.algorithms names "
            f"{', '.join(shared.training.algorithms) or 'none'}; name one learner, such as td3_bc"
        )
    return shared


def _require_controller(name: str, config: Config) -> None:
    """Refuses a site without a controller to retune."""
    if not config.retuning.controller:
        raise InputError(
            f'federation.method is "retuning", and site {name} names no controller to retune; '
            "name the one that runs today with --retuning.controller, such as a tuning of the "
            'plant, a declared controller or "incumbent"'
        )


def _for_retuning(shared: Config, settings: Federation) -> Config:
    """The sections of sites that retune and train no learner."""
    check_retuning_rounds(settings)
    algorithms = shared.training.algorithms
    if algorithms not in ((), LEARNER):
        raise InputError(
            f'federation.method is "retuning", and training.algorithms names '
            f"{', '.join(algorithms)}, which no site trains; leave it out"
        )
    return dataclasses.replace(shared, training=dataclasses.replace(shared.training, algorithms=()))
