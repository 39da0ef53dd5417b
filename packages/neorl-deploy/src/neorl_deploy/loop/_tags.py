"""The tag map: which plant tag is which channel of the bundle, and the rules for each."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._manifest import ChannelEntry, Manifest
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.bundle._strict_json import dump_compact

TODO = "TODO"
"""Placeholder in a drafted tag map where a person has to enter a tag."""

Row = TypeVar("Row")


@dataclasses.dataclass(frozen=True)
class Input:
    """A measurement: its tag and the conditions for trusting its value.

    Attributes:
        channel: Name of the observation in the bundle.
        tag: Address in the plant.
        unit: Unit of the channel, as the bundle has it.
        scale: Factor from the value of the tag to the unit of the channel.
        offset: Added after the factor, in the unit of the channel.
        uncertain: Whether a value of uncertain quality counts as ``"good"`` or ``"bad"``.
        max_age: Seconds after which a value counts as lost; infinite for a source without time
            stamps.
        low: Lowest credible value of the channel.
        high: Highest credible value of the channel.
        frozen: Seconds without any change after which a value counts as lost.
        hold: Seconds for which the last good value replaces one that is lost; with 0 the fallback
            acts immediately.
    """

    channel: str
    tag: str
    unit: str
    scale: float = 1.0
    offset: float = 0.0
    uncertain: str = "bad"
    max_age: float = math.inf
    low: float = -math.inf
    high: float = math.inf
    frozen: float = math.inf
    hold: float = 0.0


@dataclasses.dataclass(frozen=True)
class Output:
    """An actuator: the tag to write, and the tag that shows the value it received.

    With a block on the plant's side, ``tag`` is the proposal and ``read_back`` the set point.

    Attributes:
        channel: Name of the action in the bundle.
        tag: Address that is written in the closed loop.
        read_back: Address that shows the value in force; usually the same.
        unit: Unit of the channel, as the bundle has it.
        scale: Factor from the value of the tag to the unit of the channel.
        offset: Added after the factor, in the unit of the channel.
        tolerance: Largest difference between a read-back and the written value, in the unit of the
            channel; beyond it, another controller has moved the actuator.
        advice: Address that is written in advisory mode; empty for none.
        raw_low: Lowest number that may be written to the tag.
        raw_high: Highest number that may be written to the tag.
        permit: Tag by which the plant permits direct writing to this actuator while it is 1; empty
            for none. With a block, the block looks after the permits.
    """

    channel: str
    tag: str
    read_back: str
    unit: str
    tolerance: float
    scale: float = 1.0
    offset: float = 0.0
    advice: str = ""
    permit: str = ""
    raw_low: float = -math.inf
    raw_high: float = math.inf


@dataclasses.dataclass(frozen=True)
class LoopSettings:
    """Conditions under which the loop stops trusting itself or the plant.

    Attributes:
        late: Fraction of the control period that reading and deciding may take; a later decision is
            not written.
        most_misses: Consecutive missed periods after which the fallback takes over permanently.
        clean: Consecutive steps without a fault that are required before the loop is closed.
        most_failures: Consecutive periods without a connection, or with a refused write, after
            which the loop releases the actuators.
        clock_jump: Jump of this machine's clock, in seconds, that is recorded.
        ahead: Seconds by which the clock of a source may be ahead of this machine's.
        heartbeat: Tag of a counter that the loop increments while it owns the actuators; empty for
            none. The plant takes over by itself if the counter stops.
        plant_heartbeat: Tag that the plant keeps changing; empty for none.
        plant_silence: Seconds for which that tag may stay unchanged.
        mode: Tag by which a person requests a mode (0 manual, 1 shadow, 2 advisory, 3 closed loop);
            empty for none. It rises by one step at a time, and 3 is needed as long as the loop is
            closed.
        stop: Tag by which a person stops the loop as long as it is not 0; empty for none.
        patience: Periods beyond ``clean`` after which a request for the closed loop lapses.
        unattended: For direct writing without permits or heartbeat, the words
            ``"the plant has no permit and watches no heartbeat"``.
    """

    late: float = 0.5
    most_misses: int = 3
    clean: int = 5
    most_failures: int = 3
    clock_jump: float = 1.0
    ahead: float = 1.0
    heartbeat: str = ""
    plant_heartbeat: str = ""
    plant_silence: float = math.inf
    mode: str = ""
    stop: str = ""
    patience: int = 10
    unattended: str = ""

    @property
    def named(self) -> dict[str, str]:
        """The tags of the loop that are read, by what they are; empty for none."""
        return {
            "heartbeat": self.heartbeat,
            "plant": self.plant_heartbeat,
            "mode": self.mode,
            "stop": self.stop,
        }


@dataclasses.dataclass(frozen=True)
class Block:
    """Tags of the block on the plant's side; its ``BEAT`` and ``ALIVE`` stand in ``[loop]``.

    Attributes:
        owner: Session number of the loop; written and read.
        decided: ``SEQUENCE`` that the loop had read when it decided; written.
        state: Mode of the loop; written.
        granted: Owner that a person has granted.
        sequence: Counter of the events on the plant's side.
        active: 1 while the set points are those of the loop.
        reason: Why the proposal is or is not taken.
    """

    owner: str
    decided: str
    state: str
    granted: str
    sequence: str
    active: str
    reason: str

    @property
    def written(self) -> tuple[str, ...]:
        """The tags that the loop writes."""
        return self.owner, self.decided, self.state


@dataclasses.dataclass(frozen=True)
class TagMap:
    """Everything that binds a bundle to a plant.

    Attributes:
        bundle: Digest of the bundle that it was written for.
        connection: Kind of the connection and its settings, as in the file.
        inputs: One for every observation of the bundle, in its order.
        outputs: One for every action of the bundle, in its order.
        loop: Conditions under which the loop stops trusting itself or the plant.
        block: Tags of the block on the plant's side; ``None`` for direct writing.
    """

    bundle: str
    connection: dict[str, Any]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    loop: LoopSettings
    block: Block | None = None

    @property
    def named(self) -> dict[str, str]:
        """The tags of the loop, the block and the permits that are read, by what they are."""
        tags = self.loop.named
        if self.block is not None:
            names = ("owner", "granted", "sequence", "active", "reason")
            tags |= {name: getattr(self.block, name) for name in names}
        return tags | {f"permit {o.channel}": o.permit for o in self.outputs if o.permit}

    @property
    def read(self) -> tuple[str, ...]:
        """Every tag that is read, in a fixed order: inputs, read-backs, and those of the loop."""
        return (
            *(row.tag for row in self.inputs),
            *(row.read_back for row in self.outputs),
            *(tag for tag in self.named.values() if tag),
        )

    @property
    def digest(self) -> str:
        """SHA-256 of everything that it says."""
        return hashlib.sha256(dump_compact(_plain(dataclasses.asdict(self)))).hexdigest()

    @property
    def watched(self) -> tuple[str, ...]:
        """Tags that are read once more directly before a write: all that are read but inputs."""
        return self.read[len(self.inputs) :]

    @property
    def writable(self) -> frozenset[str]:
        """Every tag that the loop may write; it writes no other."""
        tags = {self.loop.heartbeat, *(self.block.written if self.block else ())}
        tags.update(tag for output in self.outputs for tag in (output.tag, output.advice))
        return frozenset(tags - {""})


def _plain(value: Any) -> Any:
    """A value without infinities, which JSON cannot hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def read_tags(path: Path, bundle: Bundle) -> TagMap:
    """Reads a tag map and checks it against its bundle.

    Args:
        path: TOML file, drafted by ``neorl-deploy init``.
        bundle: The bundle for which it was written.

    Returns:
        The tag map, in the order of the bundle's channels.

    Raises:
        DeployError: If it cannot be read, is incomplete, or does not fit the bundle; one line that
            names the table and the channel.
    """
    if not path.exists():
        raise DeployError(
            f"there is no tag map {path}; draft one with `neorl-deploy init "
            f"{shlex.quote(str(bundle.path))} --out {shlex.quote(str(path))}`"
        )
    return tags_of(read_toml(path, f"the tag map {path}"), bundle, str(path))


def read_toml(path: Path, called: str) -> dict[str, Any]:
    """The tables of a TOML file; an error calls it by the given name.

    Raises:
        DeployError: If it cannot be read or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DeployError(f"cannot read {called}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        raise DeployError(f"{called} is not valid TOML: {error}") from error


def tags_of(document: dict[str, Any], bundle: Bundle, source: str) -> TagMap:
    """As :func:`read_tags`, for a document that is already parsed.

    Args:
        document: The tables of the tag map, as nested dictionaries.
        bundle: The bundle for which it was written.
        source: Name of its file, for messages.

    Returns:
        The tag map, in the order of the bundle's channels.

    Raises:
        DeployError: As :func:`read_tags`.
    """
    odd = sorted(set(document) - {"bundle", "connection", "input", "output", "loop", "block"})
    if odd:
        raise DeployError(f"{source}: unknown entries {', '.join(odd)}")
    digest = f"sha256:{bundle.digest}"
    if document.get("bundle") != digest:
        raise DeployError(
            f"{source} is for the bundle {document.get('bundle', '(none named)')}, this one is "
            f"{digest}; draft it anew with `neorl-deploy init`, or compare every channel "
            "and then write this digest into the tag map"
        )
    connection = document.get("connection")
    if not isinstance(connection, dict) or not isinstance(connection.get("kind"), str):
        raise DeployError(f"{source} needs a table [connection] with a kind such as opcua")
    manifest = bundle.manifest
    inputs = _rows(document.get("input"), Input, manifest.obs, f"{source}, [[input]]")
    outputs = _rows(document.get("output"), Output, manifest.action, f"{source}, [[output]]")
    loop = read_row(document.get("loop", {}), LoopSettings, f"{source}, [loop]")
    table = document.get("block")
    block = None if table is None else read_row(table, Block, f"{source}, [block]")
    tags = TagMap(digest, connection, inputs, outputs, loop, block)
    _check(tags, manifest, source)
    return tags


def shared_tags(tags: TagMap, source: Path | str) -> list[str]:
    """One line for every tag that several measurements use, which is usually a typing error."""
    channels: dict[str, list[str]] = {}
    for row in tags.inputs:
        channels.setdefault(row.tag, []).append(row.channel)
    return [
        f"{source}: {' and '.join(names)} are read from the same tag {tag!r}; is that intended?"
        for tag, names in channels.items()
        if len(names) > 1
    ]


def _rows(
    tables: Any, kind: type[Row], channels: tuple[ChannelEntry, ...], where: str
) -> tuple[Row, ...]:
    if not isinstance(tables, list):
        raise DeployError(f"{where}: there are none; {len(channels)} are needed")
    rows: dict[str, Row] = {}
    names = [channel.name for channel in channels]
    for number, table in enumerate(tables, 1):
        row: Any = read_row(table, kind, f"{where} number {number}")
        if row.channel not in names:
            near = difflib.get_close_matches(row.channel, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DeployError(f"{where}: the bundle has no channel {row.channel!r}{hint}")
        if row.channel in rows:
            raise DeployError(f"{where}: the channel {row.channel!r} is mapped twice")
        channel = channels[names.index(row.channel)]
        if row.unit != channel.unit:
            raise DeployError(
                f"{where}, {row.channel}: the bundle has it in {channel.unit!r}, the tag map says "
                f"{row.unit!r}; write the bundle's unit, and the conversion as scale and offset"
            )
        rows[row.channel] = row
    missing = [name for name in names if name not in rows]
    if missing:
        raise DeployError(f"{where}: no tag for {', '.join(missing)}")
    return tuple(rows[name] for name in names)


def read_row(table: Any, kind: type[Row], where: str) -> Row:
    """Builds a dataclass from a table after checking the type of every text and number."""
    if not isinstance(table, dict):
        raise DeployError(f"{where} is not a table")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # pyright: ignore
    odd = sorted(set(table) - set(fields))
    if odd:
        near = difflib.get_close_matches(odd[0], fields, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise DeployError(f"{where}: unknown entry {odd[0]!r}{hint}")
    values = {}
    for name, field in fields.items():
        if name not in table:
            if field.default is dataclasses.MISSING:
                raise DeployError(f"{where}: {name} is missing")
            continue
        value, needed = table[name], str(field.type)
        fits = {
            "str": isinstance(value, str),
            "float": type(value) in (int, float) and not math.isnan(value),
            "int": type(value) is int and value > 0,
        }.get(needed, True)
        if not fits:
            kinds = {"str": "text", "float": "a number", "int": "an integer above zero"}
            raise DeployError(f"{where}: {name} must be {kinds[needed]}, got {value!r}")
        values[name] = float(value) if needed == "float" else value
    return kind(**values)


def _check(tags: TagMap, manifest: Manifest, source: str) -> None:
    for row in (*tags.inputs, *tags.outputs):
        where = f"{source}, {row.channel}"
        addresses = (row.tag, row.read_back) if isinstance(row, Output) else (row.tag,)
        if TODO in addresses or "" in addresses:
            raise DeployError(f"{where}: no tag is written yet; complete every TODO")
        if not math.isfinite(row.scale) or row.scale == 0 or not math.isfinite(row.offset):
            raise DeployError(
                f"{where}: scale must be finite and not zero, and offset finite, got {row.scale:g} "
                f"and {row.offset:g}"
            )
        if isinstance(row, Output):
            _check_output(row, where)
        else:
            _check_input(row, where)
    _check_loop(tags, manifest, source)


def _check_output(row: Output, where: str) -> None:
    if not 0 < row.tolerance < math.inf:
        raise DeployError(
            f"{where}: tolerance must be above zero and finite, got {row.tolerance:g}"
        )
    if not row.raw_low < row.raw_high:
        raise DeployError(
            f"{where}: raw_low must be below raw_high, got {row.raw_low:g} and {row.raw_high:g}"
        )


def _check_input(row: Input, where: str) -> None:
    if row.uncertain not in ("good", "bad"):
        raise DeployError(f'{where}: uncertain must be "good" or "bad", got {row.uncertain!r}')
    if not row.low < row.high:
        raise DeployError(f"{where}: low must be below high, got {row.low:g} and {row.high:g}")
    for name in ("max_age", "frozen"):
        if getattr(row, name) <= 0:
            raise DeployError(
                f"{where}: {name} must be above zero seconds, got {getattr(row, name):g}"
            )
    if not 0 <= row.hold < math.inf:
        raise DeployError(f"{where}: hold must be finite and not negative, got {row.hold:g}")


def _check_loop(tags: TagMap, manifest: Manifest, source: str) -> None:
    loop = tags.loop
    written = [tag for output in tags.outputs for tag in (output.tag, output.advice) if tag]
    written += [loop.heartbeat] if loop.heartbeat else []
    if tags.block is not None:
        written += tags.block.written
        if not (loop.heartbeat and loop.plant_heartbeat) or any(o.permit for o in tags.outputs):
            raise DeployError(
                f"{source}, [block]: it needs heartbeat (BEAT) and plant_heartbeat (ALIVE) in "
                "[loop], and looks after the permits itself: leave permit out of [[output]]"
            )
        if any(output.tag == output.read_back for output in tags.outputs):
            raise DeployError(
                f"{source}, [block]: tag is the proposal and read_back the set point; they differ"
            )
    if len(set(written)) < len(written):
        twice = next(tag for tag in written if written.count(tag) > 1)
        raise DeployError(
            f"{source}: the tag {twice} is named for two values that are written; give each its own"
        )
    orders = {tag: name for name, tag in tags.named.items() if name not in ("heartbeat", "owner")}
    if own := [tag for tag in written if tag in orders]:
        raise DeployError(
            f"{source}: the loop would write {own[0]!r}, by which the plant tells it "
            f"{orders[own[0]]}: it would obey itself; name another tag"
        )
    times = min(loop.clock_jump, loop.plant_silence, loop.ahead)
    if not (0 < loop.late <= 1 and times > 0):
        raise DeployError(
            f"{source}, [loop]: late must be above 0 and at most 1, and times above 0"
        )
    if loop.plant_heartbeat and loop.plant_silence < manifest.dt:
        raise DeployError(f"{source}, [loop]: plant_silence is shorter than a control period")


# Drafts a tag map from what a bundle states about its channels.


HEAD = """\
# Assigns a tag of the plant to each channel of the bundle. Complete every {todo}, then run
#   neorl-deploy serve BUNDLE {name} --directory loop
bundle = {digest}

[connection]
kind = "opcua"
address = "opc.tcp://localhost:4840"

[loop]
late = 0.5          # fraction of the period after which a decision is too late to be written
most_misses = 3     # periods missed in a row before the fallback takes over for good
clean = 5           # steps without a fault before the loop may be closed
most_failures = 3   # periods without connection or with refused writes before it goes to manual
heartbeat = ""      # tag of a counter that shows the plant that the loop is alive
mode = ""           # tag that requests a mode: 0 manual, 1 shadow, 2 advisory, 3 closed loop
stop = ""           # tag that stops the loop as long as it is not 0
"""


def draft_tags(bundle: Bundle, *, plant: Path | None = None, name: str = "tags.toml") -> str:
    """The text of a tag map for the user to complete.

    Largest ages are three control periods, or what the bundle requires; limits are the measuring
    ranges widened by 5 %, as in the bundle's own monitor; tolerances are 1 % of an actuator's
    range.

    Args:
        bundle: The bundle.
        plant: The ``plant.toml`` of the log, which supplies the tag names.
        name: Name of the file, for the line that states the next step.

    Returns:
        TOML.

    Raises:
        DeployError: If the ``plant.toml`` cannot be read, or has a channel in another unit.
    """
    known = {} if plant is None else _plant_tags(plant)
    manifest = bundle.manifest
    parts = [HEAD.format(todo=TODO, name=name, digest=_text(f"sha256:{bundle.digest}"))]
    for channel in manifest.obs:
        tag = _tag(channel, known, plant)
        slack = 0.05 * (channel.high - channel.low)
        age = min(manifest.max_age.get(channel.name, 3 * manifest.dt), 3 * manifest.dt)
        parts.append(
            f"[[input]]\nchannel = {_text(channel.name)}\ntag = {_text(tag)}\n"
            f"unit = {_text(channel.unit)}\n"
            f"scale = 1.0          # channel = scale * tag + offset\noffset = 0.0\n"
            f'uncertain = "bad"    # what a value of uncertain quality counts as\n'
            f"max_age = {float(age)!r}       # seconds; "
            "inf for a setpoint, whose time is that of its last change\n"
            f"low = {_short(channel.low - slack)}\nhigh = {_short(channel.high + slack)}\n"
            f"frozen = inf         # seconds without any change after which it counts as lost\n"
            f"hold = 0.0           # seconds for which the last good value replaces a lost one\n"
        )
    for channel in manifest.action:
        tag = _tag(channel, known, plant)
        parts.append(
            f"[[output]]\nchannel = {_text(channel.name)}\ntag = {_text(tag)}\n"
            f"read_back = {_text(tag)}\nunit = {_text(channel.unit)}\n"
            f"scale = 1.0          # channel = scale * tag + offset\noffset = 0.0\n"
            f"tolerance = {_short(0.01 * (channel.high - channel.low))}\n"
            f"raw_low = {_short(channel.low)}    # limits of what is written to the tag\n"
            f"raw_high = {_short(channel.high)}\n"
            f'advice = ""\n'
            f'permit = ""           # tag that is 1 while the plant permits writing\n'
        )
    return "\n".join(parts)


def _tag(channel: ChannelEntry, known: dict[str, dict[str, Any]], plant: Path | None) -> str:
    entry = known.get(channel.name)
    if entry is None:
        return TODO
    unit = entry.get("unit", "")
    if unit != channel.unit:
        raise DeployError(
            f"{plant}: {channel.name} is in {unit!r} there, the bundle has it in {channel.unit!r}; "
            "this is not the log that the policy was trained on"
        )
    return str(entry.get("tag", channel.name))


def _plant_tags(plant: Path) -> dict[str, dict[str, Any]]:
    tables = read_toml(plant, str(plant)).get("tag", [])
    if not isinstance(tables, list):
        raise DeployError(f"{plant} has no [[tag]], so it is not a plant.toml")
    return {t["name"]: t for t in tables if isinstance(t, dict) and isinstance(t.get("name"), str)}


def _short(value: float) -> str:
    """A number as a person would write it, without binary rounding digits."""
    return repr(float(f"{value:.10g}"))


def _text(value: str) -> str:
    """A TOML string: as in JSON, except for the one control character that JSON does not escape."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
