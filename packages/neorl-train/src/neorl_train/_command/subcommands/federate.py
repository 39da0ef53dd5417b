"""``neorl-train federate``: trains one policy at several sites that share no data."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neorl_agents import ALGORITHMS
from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.shared import Flags, print_json, run_results
from neorl_train._command.subcommands.run import fields_of, part_of
from neorl_train._process.progress import IMPORTS, REST_OF_IMPORTS, Reporter, Timings
from neorl_train.configuration._sections import (
    Config,
    config_to_dict,
    config_type,
    dump_toml,
    read_toml,
    update,
)
from neorl_train.configuration._validation import refuse_untrained, require_importable
from neorl_train.federation._settings import (
    LEARNER,
    SECTIONS,
    Fault,
    Federation,
    FederationConfig,
    FederationPlan,
    GossipConfig,
    MessagesConfig,
    PrivacyConfig,
    federation_plan,
)

USAGE = """neorl-train federate [FILE.toml | SOURCE SOURCE ... | FOLDER] [--OPTION VALUE ...]

Trains one policy at several sites. No row of a log leaves its site: sites exchange parameters, and
once, for a common scale, sums and ranges of the channels. FILE.toml has the sections of a run,
which all sites share, and one section [sites.NAME] for each site with its own settings, such as
sites.NAME.data.source. Without a file, each SOURCE (a log or a plant) is a site.
With --federation.method retuning the sites exchange tunings and their votes on them, and every
site takes what the others prefer and its own log supports.
FOLDER is that of an earlier federation, which is continued with bit-identical results. Every site
becomes a run with evaluation, verdict and report, which compares the policy with training on that
site alone and with the plant's controllers.

examples:
  neorl-train federate north.h5 south.h5 east.h5 --penalty overheating 0.5
  neorl-train federate sites.toml --federation.rule median --federation.byzantine 1
  neorl-train federate sites.toml --privacy.noise-multiplier 5 --privacy.clip-norm 0.2
  neorl-train federate sites.toml --messages.bits 8 --messages.fraction 0.1
  neorl-train federate sites.toml --federation.method retuning --retuning.controller incumbent
  neorl-train federate federations/0001
"""


PLAN = "federation.toml"
DEFAULTS: dict[str, Any] = {
    "training": {"algorithms": LEARNER, "seeds": (0,)},
    "output": {"directory": "federations", "tracking": False},
}


@dataclasses.dataclass(frozen=True)
class FederationOptions(Flags, Config):
    """The options of ``federate``."""

    federation: FederationConfig = dataclasses.field(default_factory=FederationConfig)
    gossip: GossipConfig = dataclasses.field(default_factory=GossipConfig)
    privacy: PrivacyConfig = dataclasses.field(default_factory=PrivacyConfig)
    messages: MessagesConfig = dataclasses.field(default_factory=MessagesConfig)


def command(arguments: list[str]) -> None:
    """``neorl-train federate [FILE.toml | SOURCE SOURCE ... | FOLDER] [--OPTION VALUE ...]``."""
    timings = Timings.since_start(IMPORTS)
    folder, plan, file, flags = read_federation(arguments, ALGORITHMS)
    with timings.stage(REST_OF_IMPORTS):  # not needed for a misspelt option
        from neorl_train.federation._job import new_federation, run_federation
        from neorl_train.runs._directory import RunDirectory
    reporter = Reporter(quiet=flags.quiet)
    if folder is None:
        folder = new_federation(plan, file, reporter)
    sentence = run_federation(folder, plan, reporter, timings)
    if flags.json:
        sites = {
            path.name: run_results(RunDirectory(path.absolute()))
            for path in sorted((folder / "sites").iterdir())
        }
        print_json("federation", {"folder": str(folder), "sentence": sentence, "sites": sites})
        return
    print(sentence)
    if flags.timings:
        print(timings.table())
    print(f"written to {folder}; every site is a run: `neorl-train inspect {folder}/sites/NAME`")


def read_federation(
    arguments: Sequence[str], algorithms: Mapping[str, type]
) -> tuple[Path | None, FederationPlan, str, Flags]:
    """The plan of a federation, and the folder in which to continue it.

    The folder is ``None`` for a new federation; the text is the plan as TOML.
    """
    names = {f"--{name}": name for name in fields_of(Flags())}
    words = [word for word in arguments if word not in names]
    flags = Flags(**{name: flag in arguments for flag, name in names.items()})
    base = update(config_type(algorithms)(), DEFAULTS)
    require_importable(base, words)
    positional = []
    while words and not words[0].startswith("-"):
        positional.append(words.pop(0))
    folder, document = _document(positional, words)
    kind = dataclasses.make_dataclass(
        "Options", [], bases=(FederationOptions, type(base)), frozen=True
    )
    default, sites, faults = _from_document(document, kind(**fields_of(base)), positional)
    options = parse_options(kind, words, program="neorl-train federate", default=default)
    if not positional:
        raise InputError(
            "federate needs a file with sections [sites.NAME], or at least two logs or plants; for "
            "example `neorl-train federate north.h5 south.h5`"
        )
    config = part_of(options, base)
    refuse_untrained(config, words)
    settings = Federation(**{name: getattr(options, name) for name in SECTIONS})
    plan = federation_plan(config, settings, sites, faults)
    return folder, plan, _text(config, settings, sites, faults), flags


def _document(
    positional: Sequence[str], arguments: Sequence[str]
) -> tuple[Path | None, dict[str, Any]]:
    """The content of a plan file, or one site per named source; and the folder to continue."""
    if len(positional) == 1 and (Path(positional[0]) / PLAN).is_file():
        if arguments:
            raise InputError(
                f"{positional[0]} continues with its own settings; leave {arguments[0]} out, or "
                f"start a new federation with `neorl-train federate {positional[0]}/{PLAN} "
                f"{' '.join(arguments)}`"
            )
        return Path(positional[0]).absolute(), read_toml(Path(positional[0]) / PLAN)
    if len(positional) == 1 and positional[0].endswith(".toml"):
        return None, read_toml(Path(positional[0]))
    if len(positional) == 1 and Path(positional[0]).is_dir():
        raise InputError(
            f"{positional[0]} contains no {PLAN}, so it is not the folder of a federation; name "
            "such a folder, for example federations/0001"
        )
    sites: dict[str, Any] = {}
    for source in positional:
        stem = Path(source).stem
        name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in stem)
        number = 2
        while name in sites:
            name, number = f"{name.rstrip('0123456789')}{number}", number + 1
        sites[name] = {"data": {"source": source}}
    return None, {"sites": sites} if positional else {}


def _from_document(
    document: dict[str, Any], default: Any, positional: Sequence[str]
) -> tuple[Any, dict[str, Any], tuple[Fault, ...]]:
    """The sections with their values, the sites, and the settings of faults."""
    rest = dict(document)
    sites, faults = rest.pop("sites", {}), rest.pop("faults", [])
    where = positional[0] if positional else ""
    if not isinstance(sites, dict) or not all(isinstance(site, dict) for site in sites.values()):
        raise InputError(f"{where}: write each site as a section [sites.NAME]")
    if not isinstance(faults, list):
        raise InputError(f"{where}: write each fault as [[faults]], with two brackets")
    try:
        filled = update(default, rest)
        return filled, sites, tuple(update(Fault(), fault) for fault in faults)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _text(
    config: Config, settings: Federation, sites: dict[str, Any], faults: tuple[Fault, ...]
) -> str:
    """The complete plan as TOML, from which the same plan can be read again."""
    plain = config_to_dict(config)
    plain |= {name: dataclasses.asdict(getattr(settings, name)) for name in SECTIONS}
    plain["sites"] = sites
    if faults:
        plain["faults"] = [dataclasses.asdict(fault) for fault in faults]
    return dump_toml(plain)
