"""Parses the manifest of a bundle without trusting it."""

import dataclasses
import datetime
import math
import re
from collections.abc import Mapping
from typing import Any

from neorl_deploy._errors import BundleError
from neorl_deploy.bundle._files import FORMS
from neorl_deploy.bundle._promise import promised_until
from neorl_deploy.bundle._strict_json import parse_strict, require_head

# Checks that a verdict is consistent: its answer, its clauses and their numbers.


DEPLOY, REFUSE, UNKNOWN = "deploy", "do not deploy", "cannot tell"
TRIAL = "worth a trial"
ANSWERS = (DEPLOY, TRIAL, REFUSE, UNKNOWN)
RELATIONS = (">", "<=")


def permitted_use(verdict: str) -> str:
    """What a bundle that is not for deployment may be used for, as the end of a sentence."""
    if verdict == TRIAL:
        return "for shadow mode, and for a trial with `serve --trial`"
    return "for shadow mode only"


def contradiction(verdict: Mapping[str, Any]) -> str:
    """Describes how a verdict contradicts itself; empty if it does not.

    "deploy" and "worth a trial" need at least one clause, and all must hold; "do not deploy" needs
    a clause that does not hold; "cannot tell" may have any. A clause must be marked as holding
    exactly if its bound satisfies the stated relation to its limit. The sentences are written for
    people and are not parsed.
    """
    answer, clauses = verdict.get("answer"), verdict.get("clauses")
    if not isinstance(clauses, list):
        return f"its clauses are {clauses!r}, expected a list"
    failed = []
    for number, clause in enumerate(clauses, start=1):
        fault = _clause_fault(clause, number)
        if fault:
            return fault
        if not clause["holds"]:
            failed.append(clause["name"])
    if answer in (DEPLOY, TRIAL) and failed:
        return f"the verdict is {answer!r} and its clause {failed[0]!r} does not hold"
    if answer in (DEPLOY, TRIAL) and not clauses:
        return f"the verdict is {answer!r} and no clause says why"
    if answer == REFUSE and not failed:
        return f"the verdict is {answer!r} and {'every' if clauses else 'no'} clause " + (
            "holds" if clauses else "says why"
        )
    return ""


def _clause_fault(clause: Any, number: int) -> str:
    if not isinstance(clause, Mapping) or not isinstance(clause.get("name"), str):
        return f"its clause {number} is not an object with a name"
    name, relation, holds = clause["name"], clause.get("relation"), clause.get("holds")
    try:
        bound, limit = _number(clause.get("bound")), _number(clause.get("limit"))
    except TypeError as error:
        return f"its clause {name!r} compares {error}, which is not a number"
    if relation not in RELATIONS or not isinstance(holds, bool):
        return (
            f"its clause {name!r} says {relation!r} and holds = {holds!r}; expected one of "
            f"{', '.join(RELATIONS)} and true or false"
        )
    # A comparison with NaN is false, so such a clause cannot hold.
    if holds != (bound > limit if relation == ">" else bound <= limit):
        return (
            f"its clause {name!r} says holds = {holds}, and {bound:g} {relation} {limit:g} says "
            "otherwise"
        )
    return ""


def _number(value: Any) -> float:
    """A number from a result: JSON has no NaN (stored as ``null``) and no infinity (as text)."""
    if value is None:
        return math.nan
    if value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(repr(value))
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


KIND, VERSION = "bundle", 1
PARITY_TOLERANCE = 1e-6
MAX_ROUNDING = 1e-4
"""Fraction of a channel's size; stated rounding cannot excuse a larger difference."""
FIELDS = frozenset(
    {
        "format",
        "version",
        "spec",
        "programs",
        "carry",
        "flags",
        "limits",
        "constraints",
        "constraint_words",
        "guard",
        "provenance",
        "evaluation",
        "verdict",
        "parity",
        "signature",
    }
)


MONITOR_FIELDS = frozenset({"kind", "name", "false_alarms", "episodes"})


@dataclasses.dataclass(frozen=True)
class ChannelEntry:
    """One channel: name, unit and range in that unit."""

    name: str
    unit: str
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class ArrayEntry:
    """One array of the carry: its path in the policy, its shape and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The parsed manifest.

    Attributes:
        obs: Observed channels, in the order of the program's inputs.
        action: Manipulated channels, in the order of the program's outputs.
        dt: Control period in seconds.
        horizon: Steps per episode.
        carry: The arrays passed from one step to the next, in the order of the program's inputs.
        flags: Bit of every named decision of the filter.
        limits: Bit of every named limit of a channel.
        platforms: Platforms for which the programs were lowered.
        calling_convention: Version of the exported calling convention.
        monitors: Names of the guard's monitors, in the order of the bits of ``alarms``.
        max_age: Seconds after which a measurement counts as lost, by channel name.
        verdict: ``"deploy"``, ``"worth a trial"``, ``"do not deploy"`` or ``"cannot tell"``.
        forms: Additional forms of the step: ``"numpy"``, ``"onnx"``.
        form_of_record: ``"numpy"``, or ``"stablehlo"`` if the step has no NumPy form: the form on
            which the seal rests, and that lasts.
        jax: Release of JAX that wrote the programs; empty if it is not recorded.
        promised_until: The last day on which a JAX may be released that is promised to open the
            programs; ``None`` if it is unknown.
        document: The complete manifest as JSON.
    """

    obs: tuple[ChannelEntry, ...]
    action: tuple[ChannelEntry, ...]
    dt: float
    horizon: int
    carry: tuple[ArrayEntry, ...]
    flags: Mapping[str, int]
    limits: Mapping[str, int]
    platforms: tuple[str, ...]
    calling_convention: int
    monitors: tuple[str, ...]
    max_age: Mapping[str, float]
    verdict: str
    forms: tuple[str, ...]
    form_of_record: str
    jax: str
    promised_until: datetime.date | None
    document: Mapping[str, Any]

    @property
    def run(self) -> str:
        """Name of the run that the policy comes from."""
        return str(self.document["provenance"]["run"])

    def flag_names(self, bits: int) -> tuple[str, ...]:
        """Names of the set decision bits, lowest first."""
        return tuple(name for name, bit in self.flags.items() if int(bits) & bit)

    def alarm_names(self, bits: int) -> tuple[str, ...]:
        """Names of the monitors that raise an alarm."""
        return tuple(name for i, name in enumerate(self.monitors) if int(bits) >> i & 1)


def parse_manifest(data: bytes, source: str, *, proven: bool = True) -> Manifest:
    """Parses and checks a manifest.

    Args:
        data: Content of ``manifest.json``.
        source: Name of the file for messages.
        proven: Whether parity must have been demonstrated; false only during export.

    Returns:
        The manifest.

    Raises:
        BundleError: If it is not JSON, has another format or version, has a missing, unknown or
            malformed field, or its verdict contradicts itself.
    """
    document = parse_strict(data, source)
    require_head(document, KIND, VERSION, source, BundleError)
    odd = sorted(set(document) ^ FIELDS)
    _require(not odd, source, f"the fields {', '.join(odd)} are missing or unknown")
    try:
        manifest = _manifest_of(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        fault = f"it lacks {error}" if isinstance(error, KeyError) else repr(error)
        raise BundleError(f"{source} is malformed: {fault}; export the bundle again") from error
    conflict = contradiction(document["verdict"])
    advice = "the bundle was changed after the export, fetch it again"
    _require(not conflict, source, f"{conflict}; {advice}")
    if proven:
        _require_parity(document["parity"], source)
    return manifest


def _manifest_of(document: dict[str, Any]) -> Manifest:
    spec, programs = document["spec"], document["programs"]
    answer = document["verdict"]["answer"]
    if answer not in ANSWERS:
        raise ValueError(f"verdict {answer!r} is none of {', '.join(ANSWERS)}")
    provenance = document["provenance"]
    for name in ("policy", "fallback"):
        if not all(isinstance(provenance[name][key], str) for key in ("file", "kind", "words")):
            raise TypeError(f"provenance does not say what the {name} is")
    if not isinstance(provenance["run"], str):
        raise TypeError("provenance names no run")
    for renewal in provenance.get("renewals", []):
        if not all(isinstance(renewal[key], str) for key in ("digest", "seal", "jax")):
            raise TypeError("a renewal in provenance does not say what it was made from")
    if not isinstance(provenance["data_hash"], str | None):
        raise TypeError("data_hash of provenance is neither text nor null")
    text = document["constraint_words"]
    if not isinstance(text, list) or not all(isinstance(sentence, str) for sentence in text):
        raise TypeError("constraint_words must be a list of sentences")
    _check_claim(document["signature"])
    monitors, max_age = _guard_fields(document["guard"], spec)
    _check_costs(spec["cost"])
    dt = float(spec["dt"])
    if not (math.isfinite(dt) and dt > 0):
        raise ValueError(f"dt must be a number of seconds above zero, got {dt}")
    return Manifest(
        obs=_channels(spec["obs"]),
        action=_channels(spec["action"]),
        dt=dt,
        horizon=int(spec["horizon"]),
        carry=tuple(_array(entry) for entry in document["carry"]),
        flags=_bits(document["flags"]),
        limits=_bits(document["limits"]),
        platforms=tuple(str(name) for name in programs["platforms"]),
        calling_convention=int(programs["calling_convention"]),
        monitors=monitors,
        max_age=max_age,
        verdict=answer,
        forms=_forms(programs),
        form_of_record=_form_of_record(programs),
        **_promise(programs, provenance),
        document=document,
    )


def _forms(programs: dict[str, Any]) -> tuple[str, ...]:
    if not {"forms", "without_numpy"} & set(programs):
        return ()  # a bundle written before additional forms existed
    forms = tuple(str(name) for name in programs["forms"])
    if len(set(forms)) != len(forms) or not set(forms) <= set(FORMS):
        raise ValueError(f"forms must be among {', '.join(FORMS)}, got {', '.join(forms)}")
    if not isinstance(programs["without_numpy"], str):
        raise TypeError("without_numpy gives no reason")
    return forms


def _form_of_record(programs: dict[str, Any]) -> str:
    """As stated; a bundle from before it was stated has the NumPy form of record if it has one."""
    has = "numpy" if "numpy" in _forms(programs) else "stablehlo"
    stated = programs.get("form_of_record", has)
    if stated != has:
        raise ValueError(f"form_of_record is {stated!r}; expected {has!r} with these forms")
    return has


def _promise(programs: dict[str, Any], provenance: dict[str, Any]) -> dict[str, Any]:
    """The release that wrote the programs and its promise.

    An older bundle states neither: its release is that of the export, and its promise, as one that
    was unknown at the export, is what this package knows now.
    """
    jax = programs.get("jax", provenance.get("versions", {}).get("jax", ""))
    if not isinstance(jax, str):
        raise TypeError("jax of programs is not text")
    stated = programs.get("promised_until")
    until = promised_until(jax) if stated is None else datetime.date.fromisoformat(stated)
    return {"jax": jax, "promised_until": until}


def _guard_fields(
    guard: dict[str, Any], spec: dict[str, Any]
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Names of the monitors, and the largest ages by channel."""
    if set(guard) != {"supervisor", "fallbacks", "max_age", "monitors", "words"}:
        raise ValueError("guard must state supervisor, fallbacks, max_age, monitors and words")
    for name in ("words", "fallbacks"):
        if not all(isinstance(text, str) for text in guard[name]):
            raise TypeError(f"{name} of guard must be a list of texts")
    for monitor in guard["monitors"]:
        if set(monitor) != MONITOR_FIELDS:
            raise ValueError(
                f"every monitor of guard must have {', '.join(sorted(MONITOR_FIELDS))}"
            )
        rate = monitor["false_alarms"]
        if rate is not None and not (type(rate) is float and 0 < rate < 1):
            raise ValueError(
                f"monitor {monitor['name']!r} promises false alarms of {rate!r}, not a fraction"
            )
    monitors = tuple(str(monitor["name"]) for monitor in guard["monitors"])
    ages = {str(name): float(age) for name, age in guard["max_age"].items()}
    observed = {channel["name"] for channel in spec["obs"]}
    if not set(ages) <= observed or not all(0 < age < math.inf for age in ages.values()):
        raise ValueError("max_age of guard names other channels or is not positive")
    return monitors, ages


def _check_costs(costs: list[dict[str, Any]]) -> None:
    for cost in costs:
        if not all(isinstance(cost[key], str) for key in ("name", "unit", "per")):
            raise TypeError("a cost of spec does not say its name, its unit and per what it counts")
        if not math.isfinite(float(cost["limit"])) or isinstance(cost["limit"], str):
            raise ValueError(f"cost {cost['name']!r} has a limit of {cost['limit']!r}, no number")


def _channels(entries: list[dict[str, Any]]) -> tuple[ChannelEntry, ...]:
    channels = tuple(
        ChannelEntry(str(e["name"]), str(e["unit"]), float(e["low"]), float(e["high"]))
        for e in entries
    )
    names = {channel.name for channel in channels}
    if not channels or len(names) != len(channels):
        raise ValueError("channels are missing or share a name")
    for channel in channels:
        if not -math.inf < channel.low < channel.high < math.inf:
            raise ValueError(f"channel {channel.name!r} has an invalid range")
    return channels


def _array(entry: dict[str, Any]) -> ArrayEntry:
    shape = tuple(int(length) for length in entry["shape"])
    if min(shape, default=0) < 0:
        raise ValueError(f"carry {entry['name']!r} has shape {shape}")
    return ArrayEntry(str(entry["name"]), shape, str(entry["dtype"]))


def _bits(entries: dict[str, int]) -> dict[str, int]:
    bits = {str(name): int(bit) for name, bit in entries.items()}
    if any(bit <= 0 or bit & (bit - 1) or bit >= 2**32 for bit in bits.values()):
        raise ValueError("a flag is not one bit of 32")
    # In the order of the bits: the file sorts its keys by name.
    return dict(sorted(bits.items(), key=lambda item: item[1]))


def _check_claim(claim: Any) -> None:
    if claim is None:
        return
    if set(claim) != {"algorithm", "public_key"} or claim["algorithm"] != "ed25519":
        raise ValueError("the claimed signature is of an unknown kind")
    if not re.fullmatch("[0-9a-f]{64}", claim["public_key"]):
        raise ValueError("the claimed public key is not a key")


def _require_parity(parity: Any, source: str) -> None:
    parity = parity if isinstance(parity, dict) else {}
    worst, rounding, kept_out = (parity.get(name) for name in ("worst", "rounding", "kept_out"))
    _require(
        isinstance(worst, int | float)
        and 0 <= worst <= PARITY_TOLERANCE
        and isinstance(rounding, int | float)
        and 0 <= rounding <= MAX_ROUNDING
        and isinstance(kept_out, list)
        and all(isinstance(name, str) for name in kept_out),
        source,
        f"parity with the training side within {PARITY_TOLERANCE} was not shown; export it again",
    )


def _require(condition: bool, source: str, message: str) -> None:
    if not condition:
        raise BundleError(f"{source}: {message}")
