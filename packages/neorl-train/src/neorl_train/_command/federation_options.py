"""Parses the arguments of ``neorl-train federate`` into the plan of a federation."""

import dataclasses
import inspect
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.options import with_flags
from neorl_train._command.run_argument import FLAGS, Flags
from neorl_train.configuration._sections import Config, config_to_dict, config_type
from neorl_train.configuration._toml import dump_toml, updated
from neorl_train.configuration._untrained import refuse_untrained, require_importable
from neorl_train.federated._faults import Fault
from neorl_train.federated._settings import Federation
from neorl_train.federated._sites import SECTIONS, FederationPlan, federation_plan

USAGE = """neorl-train federate [FILE.toml | SOURCE SOURCE ... | FOLDER] [--OPTION VALUE ...]

Trains one policy at several sites. No row of a log leaves its site: sites exchange parameters, and
once, for a common scale, sums and ranges of the channels. FILE.toml has the sections of a run,
which all sites share, and one section [sites.NAME] for each site with its own settings, such as
sites.NAME.data.source. Without a file, each SOURCE (a log or a plant) is a site.
FOLDER is that of an earlier federation, which is continued with bit-identical results. Every site
becomes a run with evaluation, verdict and report, which compares the policy with training on that
site alone and with the plant's controllers.

examples:
  neorl-train federate north.h5 south.h5 east.h5 --penalty overheating 0.5
  neorl-train federate sites.toml --federation.rule median --federation.byzantine 1
  neorl-train federate sites.toml --privacy.noise-multiplier 5 --privacy.clip-norm 0.2
  neorl-train federate sites.toml --messages.bits 8 --messages.fraction 0.1
  neorl-train federate federations/0001
"""

PLAN = "federation.toml"
UNUSED_FLAGS = ("profile",)
"""Flags of a run that a federation does not accept."""
DEFAULTS: dict[str, Any] = {
    "training": {"algorithms": ("td3_bc",), "seeds": (0,)},
    "output": {"directory": "federations", "tracking": False},
}


def read_federation(
    arguments: Sequence[str], algorithms: Mapping[str, type]
) -> tuple[Path | None, FederationPlan, str, Flags]:
    """The plan of a federation, and the folder in which to continue it.

    Args:
        arguments: Arguments after the name of the command.
        algorithms: Class of every algorithm by name.

    Returns:
        The folder of a federation to continue, or ``None`` for a new one; its plan; the plan as
        TOML text; and the flags.

    Raises:
        InputError: If anything is wrong, in one line.
        SystemExit: After ``--help``.
    """
    accepted_flags = {
        flag: field for flag, field in FLAGS.items() if field.name not in UNUSED_FLAGS
    }
    words = [word for word in arguments if word not in accepted_flags]
    flags = Flags(**{field.name: flag in arguments for flag, field in accepted_flags.items()})
    base = updated(config_type(algorithms)(), DEFAULTS)
    require_importable(base, words)
    positional = []
    while words and not words[0].startswith("-"):
        positional.append(words.pop(0))
    folder, document = _document(positional, words)
    kind = _federation_type(with_flags(type(base), without=UNUSED_FLAGS))
    default, sites, faults = _from_document(document, kind(**_fields(base)), positional)
    options = parse_options(
        kind, words, program="neorl-train federate", default=default, description=USAGE,
        by_section=True,
    )  # fmt: skip
    if not positional:
        raise InputError(
            "federate needs a file with sections [sites.NAME], or at least two logs or plants; for "
            "example `neorl-train federate north.h5 south.h5`"
        )
    config = type(base)(**{name: getattr(options, name) for name in _fields(base)})
    refuse_untrained(config, words)
    settings = Federation(**{name: getattr(options, name) for name in SECTIONS})
    plan = federation_plan(config, settings, sites, faults)
    return folder, plan, _text(config, settings, sites, faults), flags


def _document(
    positional: Sequence[str], words: Sequence[str]
) -> tuple[Path | None, dict[str, Any]]:
    """The content of a plan file, or one site per named source; and the folder to continue."""
    if len(positional) == 1 and (Path(positional[0]) / PLAN).is_file():
        if words:
            raise InputError(
                f"{positional[0]} continues with its own settings; leave {words[0]} out, or start "
                f"a new federation with `neorl-train federate {positional[0]}/{PLAN} "
                f"{' '.join(words)}`"
            )
        return Path(positional[0]).absolute(), _read(Path(positional[0]) / PLAN)
    if len(positional) == 1 and positional[0].endswith(".toml"):
        return None, _read(Path(positional[0]))
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


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None


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
        filled = updated(default, rest)
        return filled, sites, tuple(updated(Fault(), fault) for fault in faults)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _federation_type(base: type[Config]) -> type:
    sections = [
        (name, section, dataclasses.field(default_factory=section))
        for name, section in SECTIONS.items()
    ]
    options_type = dataclasses.make_dataclass(
        "FederationOptions", sections, bases=(base,), frozen=True
    )
    # The sections of a federation are listed after the attributes that the run's class describes.
    options_type.__doc__ = "\n".join(
        [
            inspect.cleandoc(base.__doc__ or ""),
            *(
                f"    {name}: {(section.__doc__ or '').partition(chr(10))[0]}"
                for name, section in SECTIONS.items()
            ),
        ]
    )
    return options_type


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


def _fields(options: Any) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
