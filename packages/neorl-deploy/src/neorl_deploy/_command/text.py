"""Text about a bundle that the commands print; the same information is available as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # only reading a bundle needs NumPy; the help text of a command does not
    from neorl_deploy.bundle._manifest import ChannelEntry
    from neorl_deploy.bundle._read import Bundle

LONGEST_LINE = 1_000


def verdict_lines(bundle: Bundle) -> Iterator[str]:
    """The verdict, with a prominent warning unless it is "deploy"."""
    from neorl_deploy.bundle._manifest import permitted_use

    verdict = bundle.manifest.verdict
    document = bundle.manifest.document["verdict"]
    yield f"Verdict of run {bundle.manifest.run}: {verdict}"
    if verdict != "deploy":
        yield f"  *** {verdict.upper()} *** This bundle is {permitted_use(verdict)}."
    sentence = document.get("sentence") or document.get("reason")
    if isinstance(sentence, str) and sentence:
        yield f"  {sentence}"


def bundle_lines(bundle: Bundle) -> Iterator[str]:
    """Identity, proofs and contents of a verified bundle."""
    from neorl_deploy.bundle._promise import promise_text

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
    yield (
        f"             beyond rounding, which explains differences of at most "
        f"{parity['rounding']:.1e}"
    )
    provenance = document["provenance"]
    policy, fallback = provenance["policy"], provenance["fallback"]
    yield f"  policy     {policy['file']} ({policy['kind']}), run {provenance['run']}"
    if origin := _origin(policy.get("metadata")):
        yield f"             {origin}"
    yield f"  fallback   {fallback['file']} ({fallback['kind']})"
    rows = _rows(provenance.get("record"))
    yield f"  data       {provenance['data_hash'] or 'not recorded'}{rows}"
    platforms = ", ".join(bundle.manifest.platforms)
    yield f"  programs   StableHLO for {platforms}, calling convention " + str(
        bundle.manifest.calling_convention
    )
    yield f"             {promise_text(bundle.manifest)}"
    yield from _form_lines(bundle)
    for renewal in provenance.get("renewals", []):
        yield f"  renewed    from {renewal['digest']}, whose programs were by JAX {renewal['jax']}"


def _origin(metadata: Any) -> str:
    """What was trained, and on which data, as far as the run recorded it."""
    forms = {
        "algorithm": "{}", "origin": "from {}", "seed": "seed {}", "updates": "{} updates",
        "source": "on {}",
    }  # fmt: skip
    named = metadata if isinstance(metadata, dict) else {}
    known = {key: named[key] for key in forms if named.get(key) not in (None, "")}
    return ", ".join(forms[key].format(value) for key, value in known.items())


def _rows(record: Any) -> str:
    dataset = record.get("dataset") if isinstance(record, dict) else None
    if not isinstance(dataset, dict) or "rows" not in dataset:
        return ""
    return f", {dataset['rows']} rows in {dataset.get('episodes', 'unknown')} episodes"


def _form_lines(bundle: Bundle) -> Iterator[str]:
    """The additional forms with their sizes, or the reason why there is none."""
    from neorl_deploy.bundle._files import FORMS

    texts = {"numpy": "NumPy alone, guard included", "onnx": "ONNX, the policy without its guard"}
    for form, names in FORMS.items():
        if form in bundle.manifest.forms:
            size = sum(len(bundle.files[name]) for name in names) / 1024
            record = "; the form of record" if form == bundle.manifest.form_of_record else ""
            yield f"             {texts[form]}: {', '.join(names)}, {size:.0f} KiB{record}"
    if why := bundle.manifest.document["programs"].get("without_numpy"):
        yield f"             not for NumPy alone: {why}; the program is the form of record"


def proof_lines(bundle: Bundle, *, trusted: bool) -> Iterator[str]:
    """States what the verification has shown and what it has not.

    The bundle is ``trusted`` if it carries the required signature by a key that the user named.
    """
    if trusted:
        yield "Every byte is as signed with your key."
        return
    yield "Every file matches checksums.json: none was damaged since it was written."
    if bundle.signed_by:
        yield "The signature is valid, but anybody can sign: only --public-key detects a forger."
    else:
        yield "It is not signed, so this does not rule out a forger: compare the digest with"
        yield "the one that the export printed, or export with --sign, verify with --public-key."


def inspect_lines(bundle: Bundle) -> Iterator[str]:
    """Everything that a person needs to know before mapping a bundle to tags."""
    yield from bundle_lines(bundle)
    manifest = bundle.manifest
    yield f"Control period {manifest.dt:g} s"
    yield from _channel_lines("Observations", manifest.obs)
    yield from _channel_lines("Actions", manifest.action)
    costs = manifest.document["spec"]["cost"]
    if costs:
        yield "Costs that the verdict judges but no part of the bundle enforces"
    for cost in costs:
        unit, per = cost["unit"], cost["per"]
        yield f"  {cost['name']} at most {cost['limit']:g} {unit} per {per}"
    yield from limit_lines(bundle)
    yield f"Carry between steps: {len(manifest.carry)} arrays (listed in manifest.json)"
    yield from verdict_lines(bundle)


def limit_lines(bundle: Bundle) -> Iterator[str]:
    """What the policy does, as far as words say it, its hard limits, and the fallback."""
    document = bundle.manifest.document
    policy = document["provenance"]["policy"]
    if policy["words"]:
        yield f"Policy ({policy['kind']}): {policy['words']}"
    yield "Hard limits of the action"
    for sentence in document["constraint_words"]:
        yield f"  {sentence}"
    fallback = document["provenance"]["fallback"]
    text = f": {fallback['words']}" if fallback["words"] else ""
    yield f"Fallback, where the policy cannot act ({fallback['kind']}){text}"
    yield "Supervision"
    for sentence in document["guard"]["words"]:
        yield f"  {sentence}"


def command_prefix() -> str:
    """The command line by which the user started this program."""
    environment = os.environ.get("HATCH_ENV_ACTIVE")
    which = "" if environment == "default" else f"{environment}:"
    return f"python -m hatch run {which}neorl-deploy" if environment else "neorl-deploy"


def one_line(text: str) -> str:
    """Makes text from a bundle safe to print: it can neither forge nor hide another line.

    Line breaks, control characters and bidirectional text marks are escaped, and text longer than
    1,000 characters is cut.
    """
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode()
        for c in text[:LONGEST_LINE]
    )
    return f"{shown} ..." if len(text) > LONGEST_LINE else shown


def _channel_lines(title: str, channels: tuple[ChannelEntry, ...]) -> Iterator[str]:
    yield f"{title} ({len(channels)})"
    for channel in channels:
        yield f"  {channel.name:<24} {channel.low:g} to {channel.high:g} {channel.unit}"
