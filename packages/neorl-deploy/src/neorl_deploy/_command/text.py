"""What the commands print for people; the same figures exist as JSON."""

from collections.abc import Iterator

import numpy as np

from neorl_deploy._command.trend import trend, typical_episode
from neorl_deploy.bundle._manifest import ChannelEntry
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.shadow._replay import Replay

MOST_TRENDS = 3


def verdict_lines(bundle: Bundle) -> Iterator[str]:
    """The verdict, loud where it is not "deploy"."""
    verdict = bundle.manifest.verdict
    document = bundle.manifest.document["verdict"]
    yield f"Verdict of run {bundle.manifest.run}: {verdict}"
    if verdict != "deploy":
        yield f"  *** {verdict.upper()} *** This bundle is for shadow mode only."
    sentence = document.get("sentence") or document.get("reason")
    if isinstance(sentence, str) and sentence:
        yield f"  {sentence}"


def bundle_lines(bundle: Bundle) -> Iterator[str]:
    """Identity, proofs and contents of a verified bundle."""
    document = bundle.manifest.document
    size = sum(len(data) for data in bundle.files.values())
    yield f"Bundle {bundle.path} ({len(bundle.files)} files, {size / 1024:.0f} KiB)"
    yield f"  digest     sha256:{bundle.digest}"
    yield f"  signature  {bundle.signed_by or 'none'}"
    parity = document["parity"]
    yield (
        f"  parity     {parity['worst']:.1e} of a channel's size on the test vectors, in a fresh "
        f"process without {', '.join(parity['kept_out'])}"
    )
    provenance = document["provenance"]
    policy, fallback = provenance["policy"], provenance["fallback"]
    yield f"  policy     {policy['file']} ({policy['kind']}), run {provenance['run']}"
    yield f"  fallback   {fallback['file']} ({fallback['kind']})"
    yield f"  data       {provenance['data_hash'] or 'not recorded'}"
    platforms = ", ".join(bundle.manifest.platforms)
    yield f"  programs   StableHLO for {platforms}, calling convention " + str(
        bundle.manifest.calling_convention
    )


def proof_lines(bundle: Bundle, *, trusted: bool) -> Iterator[str]:
    """What the verification has shown, and what it has not.

    Args:
        bundle: A verified bundle.
        trusted: Whether a signature by a key that the user named was demanded, and is there.
    """
    if trusted:
        yield "Every byte is as it was signed with your key."
        return
    yield "Every file fits checksums.json: no accident since they were written."
    if bundle.signed_by:
        yield "The signature fits, and anybody can sign: only --public-key finds a forger."
    else:
        yield "It is not signed, so this does not rule out a forger: compare the digest with"
        yield "the one that the export printed, or export with --sign, verify with --public-key."


def inspect_lines(bundle: Bundle) -> Iterator[str]:
    """Everything that a person wants to know before binding a bundle to tags."""
    yield from bundle_lines(bundle)
    manifest = bundle.manifest
    yield f"Control period {manifest.dt:g} s"
    yield from _channel_lines("Observations", manifest.obs)
    yield from _channel_lines("Actions", manifest.action)
    yield "Hard limits of the action"
    for record in manifest.document["constraints"].get("constraints", []):
        order = {name: record[name] for name in ("low", "high", "up", "down") if name in record}
        text = ", ".join(f"{k} {'none' if v is None else f'{v:g}'}" for k, v in order.items())
        text += " per second" if record.get("kind") == "rate" else ""
        yield f"  {record.get('channel', '?'):<24} {record.get('kind', '?'):<6} {text}"
    yield "Carry between steps: " + (
        ", ".join(f"{entry.name} {entry.dtype}{list(entry.shape)}" for entry in manifest.carry)
        or "nothing"
    )
    yield from verdict_lines(bundle)


def _channel_lines(title: str, channels: tuple[ChannelEntry, ...]) -> Iterator[str]:
    yield f"{title} ({len(channels)})"
    for channel in channels:
        yield f"  {channel.name:<24} {channel.low:g} to {channel.high:g} {channel.unit}"


def replay_lines(replay: Replay) -> Iterator[str]:
    """Differences, filter activity, observations and a typical episode."""
    report = replay.report
    log, active = report["log"], report["filter"]
    yield (
        f"Shadow over {log['rows']} rows of {log['episodes']} episodes of {log['path']} "
        f"({log['rows_skipped']} rows skipped)"
    )
    if log["learned_from"]:
        yield "  This is the log that the policy learned from."
    elif log["learned_from"] is None:
        named = "The run names this file as the log that the policy learned from"
        open_ = "Whether the policy learned from this log is not known"
        yield f"  {named if log['named_by_run'] else open_}: an .npz has no content"
        yield "  hash by which to check it."
    if log["attribution"]:
        yield f"  {log['attribution']}"
    yield "Difference of the bundle's action to the logged one"
    titles = " ".join(f"{title:>11}" for title in ("mean", "mean size", "95 % below", "largest"))
    yield f"  {'channel':<20} {titles}  unit"
    for name, row in report["difference"].items():
        figures = " ".join(f"{_plain(row[k]):>11}" for k in ("mean", "mean_size", "p95", "max"))
        yield f"  {name:<20} {figures}  {row['unit']} (range {row['range']:g})"
    yield (
        f"The filter changed {active['changed']:.1%} of the steps; the fallback acted in "
        f"{active['fallback']:.1%}"
    )
    yield "  In shadow each step starts from the logged action, so the limit on the rate of change"
    yield "  acts wherever policy and log differ: in the loop it acts less often."
    for name, fraction in active["flags"].items():
        if fraction:
            yield f"  {name:<24} {fraction:>7.2%} of the steps"
    for name, row in active["channels"].items():
        limits = [k for k in row if k not in ("moved_mean", "moved_max", "unit") and row[k]]
        if limits:
            fractions = ", ".join(f"{k} {row[k]:.1%}" for k in limits)
            most = f"{_plain(row['moved_max'])} {row['unit']}"
            yield f"  {name:<24} {fractions}; moved by at most {most}"
    seen = report["observations"]
    yield (
        f"Observations out of their measuring range in {seen['out_of_range']:.2%} of the steps, "
        f"not finite in {seen['not_finite']:.2%}"
    )
    for name, fraction in seen["out_of_range_channels"].items():
        yield f"  {name:<24} {fraction:>7.2%}"
    yield from _trend_lines(replay)


def _plain(value: float) -> str:
    """Four significant digits without an exponent, as far as people read them."""
    text = f"{value:.4g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e9 else text


def _trend_lines(replay: Replay) -> Iterator[str]:
    log, names = replay.log, list(replay.report["difference"])
    rows = np.asarray(np.isfinite(log.action).all(axis=1))
    spans = np.array([row["range"] for row in replay.report["difference"].values()])
    apart = np.abs(replay.shadow.action - np.where(rows[:, None], log.action, 0)) / spans
    episode = typical_episode(log.starts, apart.mean(axis=1), len(log.obs))
    shown = np.flatnonzero(rows[episode]) + episode.start
    if not len(shown):
        return
    yield f"A typical episode, rows {episode.start} to {episode.stop - 1}"
    yield "  . logged   o bundle   @ both"
    for i, name in enumerate(names[:MOST_TRENDS]):
        yield f"  {name} [{replay.report['difference'][name]['unit']}]"
        for line in trend(log.action[shown, i], replay.shadow.action[shown, i]):
            yield f"  {line}"
