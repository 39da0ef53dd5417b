"""Shadow mode on a log: compares what a bundle would have done with what was done."""

import dataclasses
import json
import os
import secrets
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._files import MIB, is_in_bundle
from neorl_deploy.bundle._manifest import ChannelEntry, Manifest
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.bundle._strict_json import head
from neorl_deploy.bundle._test_vectors import outside
from neorl_deploy.runtime._forms import FormName, one_line_of, open_form, open_programs
from neorl_deploy.runtime._load import require_trial
from neorl_deploy.shadow._log import Log
from neorl_deploy.training_run import REPLAY, dataset_file

# Replays a whole log: as one compiled scan (extra ``jax``), or row by row with NumPy alone.


class Shadow(NamedTuple):
    """Actions that a bundle would have taken, row by row.

    Attributes:
        action: Proposed action, shape ``(row, act)``, physical units.
        flags: Decisions of the filter, shape ``(row,)``.
        limits: Active limits, shape ``(row, act)``.
        intervention: Distance by which the filter moved each channel, shape ``(row, act)``.
        alarms: Bits of the monitors that raise an alarm, shape ``(row,)``.
    """

    action: np.ndarray
    flags: np.ndarray
    limits: np.ndarray
    intervention: np.ndarray
    alarms: np.ndarray


def shadow(
    bundle: Bundle,
    obs: np.ndarray,
    last_sent: np.ndarray,
    starts_episode: np.ndarray,
    form: FormName = "stablehlo",
) -> Shadow:
    """Runs the exported step over a log, with a fresh carry at the start of each episode.

    Args:
        bundle: A verified bundle.
        obs: Observations, shape ``(row, obs)``, float32.
        last_sent: Action that the plant had received before each row, NaN if unknown, shape ``(row,
            act)``, float32.
        starts_episode: Whether a row is the first of its episode, shape ``(row,)``.
        form: ``"stablehlo"``, compiled, or ``"numpy"``, one row after the other.

    Returns:
        What the bundle would have done, as host arrays.

    Raises:
        BundleError: If the bundle does not have the form, or it does not run.
        DeployError: If the form needs an extra that is not installed.
    """
    if form == "numpy":
        return _row_by_row(bundle, obs, last_sent, starts_episode)
    programs = open_programs(bundle)
    require_trial(bundle)
    import jax
    import jax.numpy as jnp

    fresh = tuple(programs.initial_carry.call())

    def row(carry: tuple[Any, ...], inputs: tuple[Any, Any, Any]) -> tuple[tuple[Any, ...], Any]:
        obs, sent, starts = inputs
        carry = tuple(jnp.where(starts, new, old) for new, old in zip(fresh, carry, strict=True))
        outputs = programs.step.call(*carry, obs, sent)
        return tuple(outputs[: len(fresh)]), Shadow(*outputs[len(fresh) :])

    def rows(inputs: tuple[Any, Any, Any]) -> Shadow:
        return jax.lax.scan(row, fresh, inputs)[1]

    return Shadow(*(np.asarray(out) for out in jax.jit(rows)((obs, last_sent, starts_episode))))


def _row_by_row(
    bundle: Bundle, obs: np.ndarray, last_sent: np.ndarray, starts_episode: np.ndarray
) -> Shadow:
    form = open_form(bundle, "numpy")
    words, rows = form.initial, []
    with one_line_of(bundle, "its operations do not run"):
        for seen, sent, starts in zip(obs, last_sent, starts_episode, strict=True):
            words = form.step(form.initial if starts else words, seen, sent)
            rows.append([form.layout.get(words, name) for name in Shadow._fields])
    return Shadow(*(np.array(column) for column in zip(*rows, strict=True)))


KIND, VERSION = "replay", 1
"""Kind and version in the head of the replay file."""

Report = dict[str, Any]
NAMED_AT_MOST = 4
"""Largest number of channels named in one message."""


@dataclasses.dataclass(frozen=True)
class Replay:
    """A replay with its rows.

    Attributes:
        report: The results, ready for JSON.
        log: The log with the actual actions.
        shadow: The actions that the bundle would have taken.
    """

    report: Report
    log: Log
    shadow: Shadow


def replay(bundle: Bundle, log: Log, form: FormName = "stablehlo") -> Replay:
    """Runs a bundle in shadow over a log; each logged action is reported to it as the one sent.

    Every row is stepped, with a fresh carry at each episode; masked rows and rows whose logged
    action is not finite enter no result.

    Args:
        bundle: A verified bundle.
        log: Log with the channels of the bundle, in the same order and units.
        form: ``"stablehlo"``, compiled (extra ``jax``), or ``"numpy"``, with NumPy only.

    Returns:
        The results and the rows behind them.

    Raises:
        DeployError: If the channels or the control period differ; each difference is named. Also if
            the bundle does not have the form.
    """
    require_channels(bundle, log)
    require_period(bundle, log)
    starts = np.zeros(len(log.obs), bool)
    starts[log.starts] = True
    last_sent = np.full_like(log.action, np.nan)
    last_sent[1:] = log.action[:-1]
    last_sent[starts] = np.nan
    proposed = shadow(bundle, log.obs, last_sent, starts, form)
    return Replay(report_of(bundle, log, proposed), log, proposed)


def require_channels(bundle: Bundle, log: Log) -> None:
    """Raises unless the log has the bundle's channels, in its order and units."""
    pairs = {
        "observation": (bundle.manifest.obs, log.obs_channels),
        "action": (bundle.manifest.action, log.action_channels),
    }
    differences = []
    for kind, (channels, logged) in pairs.items():
        ours, theirs = [(c.name, c.unit) for c in channels], list(logged)
        if ours == theirs:
            continue
        missing = [_title(channel) for channel in ours if channel not in theirs]
        extra = [_title(channel) for channel in theirs if channel not in ours]
        if missing or extra:
            differences.append(
                f"{kind}: the bundle expects {_some(missing)}, the log has {_some(extra)}"
            )
        else:
            differences.append(f"{kind}: the same channels in another order")
    if differences:
        raise DeployError(f"{log.source} is of another plant: {'; '.join(differences)}")


def require_period(bundle: Bundle, log: Log) -> None:
    """Raises if the log states another period: each of its rows is one step of the bundle."""
    dt = bundle.manifest.dt
    # A period in float32 differs from the same one in float64 by 6e-8 of it.
    if np.isfinite(log.dt) and not np.isclose(log.dt, dt, rtol=1e-6, atol=0):
        raise DeployError(
            f"{log.source} has a row every {log.dt:g} s, and the bundle acts every {dt:g} s; "
            "convert the log to the period of the bundle"
        )


def _other_ranges(manifest: Manifest, log: Log) -> list[str]:
    """Channels whose range in the log differs from that in the bundle."""
    channels = [*manifest.obs, *manifest.action]
    ours = np.array([[channel.low, channel.high] for channel in channels])
    same = np.isnan(log.ranges) | np.isclose(log.ranges, ours, rtol=1e-6, atol=0)
    return [channels[i].name for i in np.flatnonzero(~same.all(axis=1))]


def _some(channels: list[str]) -> str:
    """The first few names; ``no other`` if there are none."""
    more = len(channels) - NAMED_AT_MOST
    named = ", ".join(channels[:NAMED_AT_MOST]) or "no other"
    return f"{named} and {more} more" if more > 0 else named


def _title(channel: tuple[str, str]) -> str:
    return f"{channel[0]!r} [{channel[1]}]"


def report_of(bundle: Bundle, log: Log, proposed: Shadow) -> Report:
    """The comparison of a bundle's proposals with the actual actions, over comparable rows."""
    manifest = bundle.manifest
    counted = log.mask & np.isfinite(log.action).all(axis=1)
    if not counted.any():
        raise DeployError(f"{log.source} has no row to compare: all are masked or have no action")
    return {
        **head(KIND, VERSION),
        "bundle": {
            "path": str(bundle.path),
            "digest": bundle.digest,
            "run": manifest.run,
            "verdict": manifest.verdict,
        },
        "log": {
            "path": log.source,
            "content_hash": log.content_hash,
            "attribution": log.attribution,
            "rows": len(log.obs),
            "episodes": len(log.starts),
            "rows_skipped": int((~counted).sum()),
            "other_ranges": _other_ranges(manifest, log),
            **_origin(manifest, log),
        },
        "difference": {
            channel.name: _differences(
                channel, proposed.action[counted, i] - log.action[counted, i].astype(np.float64)
            )
            for i, channel in enumerate(manifest.action)
        },
        "filter": _filter_activity(manifest, Shadow(*(column[counted] for column in proposed))),
        "monitors": _alarms(manifest, log, proposed.alarms),
        "observations": _observations(manifest.obs, log.obs[counted]),
        "finite": bool(np.isfinite(proposed.action).all()),
    }


def _origin(manifest: Manifest, log: Log) -> Report:
    """Whether the policy learned from this log; ``None`` if the log has no hash to decide this."""
    provenance = manifest.document["provenance"]
    learned_from = log.content_hash == provenance["data_hash"] if log.content_hash else None
    file = dataset_file(provenance.get("record"))
    named_by_run = file is not None and Path(file).resolve() == Path(log.source).resolve()
    return {"learned_from": learned_from, "named_by_run": named_by_run}


def _filter_activity(manifest: Manifest, proposed: Shadow) -> Report:
    """Fractions of the compared steps, per decision and per limit of each channel."""
    return {
        "changed": float((proposed.intervention > 0).any(axis=1).mean()),
        "fallback": _fraction(proposed.flags, manifest.flags.get("fallback_used", 0)),
        "flags": {name: _fraction(proposed.flags, bit) for name, bit in manifest.flags.items()},
        "channels": {
            channel.name: {
                **{
                    name: _fraction(proposed.limits[:, i], bit)
                    for name, bit in manifest.limits.items()
                },
                "moved_mean": float(proposed.intervention[:, i].mean()),
                "moved_max": float(proposed.intervention[:, i].max()),
                "unit": channel.unit,
            }
            for i, channel in enumerate(manifest.action)
        },
    }


def _alarms(manifest: Manifest, log: Log, alarms: np.ndarray) -> Report:
    """How often each monitor alarmed, in steps and in episodes, compared with its promised rate."""
    episode = np.cumsum(np.isin(np.arange(len(alarms)), log.starts)) - 1
    promised = {
        monitor["name"]: monitor["false_alarms"]
        for monitor in manifest.document["guard"]["monitors"]
    }
    of_monitor = {}
    for i, name in enumerate(manifest.monitors):
        alarm = ((alarms >> np.uint32(i)) & 1).astype(bool) & log.mask
        of_monitor[name] = {
            "steps": float(alarm[log.mask].mean()),
            "episodes": len(np.unique(episode[alarm])),
            "of_episodes": len(log.starts),
            "promised": promised[name],
        }
    return of_monitor


def _observations(channels: tuple[ChannelEntry, ...], obs: np.ndarray) -> Report:
    low = np.array([channel.low for channel in channels])
    high = np.array([channel.high for channel in channels])
    beyond = outside(obs, low, high)
    return {
        "not_finite": float((~np.isfinite(obs)).any(axis=1).mean()),
        "out_of_range": float(beyond.any(axis=1).mean()),
        "out_of_range_channels": {
            channel.name: float(beyond[:, i].mean())
            for i, channel in enumerate(channels)
            if beyond[:, i].any()
        },
    }


def _differences(channel: ChannelEntry, difference: np.ndarray) -> dict[str, Any]:
    size = np.abs(difference)
    return {
        "unit": channel.unit,
        "mean": float(difference.mean()),
        "mean_size": float(size.mean()),
        "p95": float(np.quantile(size, 0.95)),
        "max": float(size.max()),
        "range": channel.high - channel.low,
    }


def _fraction(flags: np.ndarray, bit: int) -> float:
    return float(((flags & np.uint32(bit)) != 0).mean())


# Writes the results of a replay without overwriting any other file.


LARGEST_REPORT = 16 * MIB
ADVICE = "choose a place with --json"


def replay_path(bundle: Path) -> Path:
    """Default file for the results: ``replay.json`` beside the bundle."""
    return bundle.resolve().parent / REPLAY


def require_place(path: Path) -> None:
    """Refuses an unsuitable output path before any computing time is spent."""
    reason = ""
    if path.is_dir():
        reason = "it is a folder"
    elif not path.parent.is_dir():
        reason = f"there is no folder {path.parent}"
    elif is_in_bundle(path):
        reason = "it lies in a bundle, which a further or changed file would break"
    elif not os.access(path.parent, os.W_OK):
        reason = "permission denied"
    elif os.path.lexists(path) and _earlier(path) is None:
        reason = "it exists and is not an earlier replay"
    if reason:
        raise DeployError(f"cannot write {path}: {reason}; {ADVICE}")


def require_same_log(path: Path, log: Log) -> None:
    """Refuses to replace the results of another log; those of the same log are recomputed."""
    earlier = _earlier(path) if path.exists() else None
    if earlier is None:
        return
    content_hash = earlier.get("content_hash")
    if content_hash and log.content_hash:
        same = content_hash == log.content_hash
    else:
        same = Path(str(earlier.get("path"))).resolve() == Path(log.source).resolve()
    if not same:
        raise DeployError(
            f"cannot write {path}: it holds the replay of another log, {earlier.get('path')}; "
            f"{ADVICE}, or remove it"
        )


def write_replay(path: Path, value: object) -> None:
    """Writes the results as JSON, completely or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DeployError(f"cannot write {path}: {error.strerror}; {ADVICE}") from error


def _earlier(path: Path) -> dict[str, Any] | None:
    """What an earlier replay states about its log; ``None`` if the file is not a replay."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_REPORT:
            return None
        report = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(report, dict) or report.get("format") != head(KIND, VERSION)["format"]:
        return None
    return report["log"] if isinstance(report.get("log"), dict) else None
