"""An evidence file: what a bundle and its run hold for an assessor, statement by statement.

The headings follow Annex IV of Regulation (EU) 2024/1689 (the AI Act) and the clauses of ISO/IEC TR
5469:2024. Every statement is read from a file, which is named with its place in it and its digest.
A heading for which no file says anything reads *not provided*; nothing is added to what the files
say, and what an organisation must state itself stays open.
"""

from __future__ import annotations

import dataclasses
import hashlib
import html
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neorl_deploy._errors import DeployError
from neorl_deploy.audit._chain import records, verify_chain
from neorl_deploy.bundle._files import CHECKSUMS, EVALUATION, MANIFEST, SIGNATURE, VERDICT
from neorl_deploy.bundle._manifest import permitted_use
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.bundle._strict_json import read_json
from neorl_deploy.training_run import RECORD, REPLAY, REPORT

__all__ = ["HEADINGS", "NOT_PROVIDED", "Evidence", "Heading", "Statement", "dossier", "evidence_of"]

NOT_PROVIDED = "*not provided*"
LONGEST = 400
"""Characters of a statement; a longer one is cut and stands in full in its file."""
MOST_CHANGES = 20
"""Changes of mode that are listed one by one."""
SHEETS = "change-*.html"
CONFIG = "config.toml"
NOT_DECISIVE = ("output", "checkpoints", "devices")
"""Sections of a configuration that do not influence results."""


class Statement(NamedTuple):
    """Something that a file says.

    Attributes:
        text: The statement.
        file: The file that says it.
        place: Where in the file, such as ``"provenance.policy"``; empty for the whole file.
    """

    text: str
    file: Path
    place: str = ""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The files of a bundle, of the run that it came from, and of a loop that ran it.

    Attributes:
        bundle: The verified bundle.
        run: Directory of its run, if it is there; ``None`` otherwise.
        loop: Folder of a loop that ran the bundle, if one was named.
    """

    bundle: Bundle
    run: Path | None = None
    loop: Path | None = None

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest as plain data."""
        return self.bundle.manifest.document

    def sealed(self, text: str, place: str, name: str = MANIFEST) -> Statement:
        """A statement from a file of the bundle."""
        return Statement(text, self.bundle.path / name, place)

    @property
    def record(self) -> Mapping[str, Any]:
        """The record of the run that is sealed in the bundle; empty if none is."""
        document = self.manifest["provenance"].get("record")
        return document if isinstance(document, dict) else {}

    def recorded(self, text: str, place: str) -> Statement:
        """A statement from that record."""
        return self.sealed(text, f"provenance.record.{place}")


def evidence_of(bundle: Bundle, loop: Path | None = None) -> Evidence:
    """The evidence for a bundle: the run is the directory in which it lies.

    A run of another number or identity than the one that the bundle names is not used.

    Raises:
        DeployError: If ``loop`` is not the folder of a loop that ran this bundle.
    """
    run = bundle.path.resolve().parent
    if loop is not None:
        if not (loop / "audit").is_dir():
            raise DeployError(f"{loop} is not the folder of a loop: it has no folder audit")
        ran = {record.get("bundle") for record, _ in records(loop / "audit")}
        if f"sha256:{bundle.digest}" not in ran:
            raise DeployError(
                f"{loop}: no record of its audit log names this bundle, sha256:{bundle.digest}; "
                "name the folder of a loop that ran it"
            )
    alone = Evidence(bundle, loop=loop)
    if run.name != bundle.manifest.run or not (run / RECORD).is_file():
        return alone
    beside = read_json(run / RECORD)
    own = isinstance(beside, dict) and beside.get("id") == alone.record.get("id")
    return dataclasses.replace(alone, run=run) if own else alone


# What the files say, heading by heading.


def _purpose(evidence: Evidence) -> Iterator[Statement]:
    manifest = evidence.bundle.manifest
    for title, channels in (("Measured", manifest.obs), ("Manipulated", manifest.action)):
        words = ", ".join(f"{c.name} ({c.low:g} to {c.high:g} {c.unit})" for c in channels)
        place = "spec.obs" if title == "Measured" else "spec.action"
        yield evidence.sealed(f"{title} every {manifest.dt:g} s: {words}", place)
    answer = manifest.verdict
    use = "for the plant that it was judged for" if answer == "deploy" else permitted_use(answer)
    yield evidence.sealed(f"Verdict {answer}: this bundle is {use}", "answer", VERDICT)


def _provider(evidence: Evidence) -> Iterator[Statement]:
    if evidence.bundle.signed_by:
        text = f"Signed with the ed25519 key {evidence.bundle.signed_by}"
        yield evidence.sealed(text, "public_key", SIGNATURE)


def _version(evidence: Evidence) -> Iterator[Statement]:
    provenance = evidence.manifest["provenance"]
    yield evidence.sealed(f"Bundle sha256:{evidence.bundle.digest}", "", CHECKSUMS)
    yield evidence.sealed(f"Made from run {provenance['run']}", "provenance.run")
    versions = provenance.get("versions") or {}
    if versions:
        words = ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
        yield evidence.sealed(f"Software: {words}", "provenance.versions")


def _environment(evidence: Evidence) -> Iterator[Statement]:
    manifest = evidence.bundle.manifest
    forms = ", ".join((*manifest.forms, "stablehlo"))
    yield evidence.sealed(
        f"Forms of the step: {forms}; form of record {manifest.form_of_record}", "programs.forms"
    )
    yield evidence.sealed(f"Platforms: {', '.join(manifest.platforms)}", "programs.platforms")
    if manifest.promised_until is not None:
        until = manifest.promised_until.isoformat()
        text = f"Programs open with a JAX released until {until} at least"
        yield evidence.sealed(text, "programs.promised_until")


def _development(evidence: Evidence) -> Iterator[Statement]:
    policy = evidence.manifest["provenance"]["policy"]
    yield evidence.sealed(
        f"Policy {policy['file']} of the kind {policy['kind']}, digest {policy['digest']}",
        "provenance.policy",
    )
    known = {
        key: value
        for key, value in (policy.get("metadata") or {}).items()
        if isinstance(value, str | int | float) and value != ""
    }
    if known:
        words = ", ".join(f"{key} {value}" for key, value in sorted(known.items()))
        yield evidence.sealed(f"Origin: {words}", "provenance.policy.metadata")
    record = evidence.record
    facts = {
        "started": "Run begun at {}",
        "config_hash": "All its settings, with the digest {}",
        "commit": "Source code of the commit {}",
    }
    for key, text in facts.items():
        if record.get(key):
            yield evidence.recorded(text.format(record[key]), key)
    resumed = record.get("resumed_with")
    for later in resumed if isinstance(resumed, list) else ():
        words = ", ".join(f"{name} {version}" for name, version in later["versions"].items())
        yield evidence.recorded(f"Resumed at {later['time']} with {words}", "resumed_with")
    if evidence.run is not None and (evidence.run / CONFIG).is_file():
        file, sealed = evidence.run / CONFIG, record.get("config_hash")
        same = settings_digest(file) == sealed
        text = (
            "Every setting of the run, with that digest" if same else "Settings that were changed"
        )
        yield Statement(
            text if sealed else "Settings of the run, of which no digest is sealed", file
        )
    for kind, names in (record.get("origins") or {}).items():
        for name, origin in names.items():
            yield evidence.recorded(f"From third parties: {kind} {name}, {origin}", "origins")


def settings_digest(file: Path) -> str:
    """The digest of all settings that decide a result, as the record of a run states it.

    Raises:
        DeployError: If the file is not TOML.
    """
    try:
        settings = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise DeployError(f"{file} is not the configuration of a run: {error}") from error
    decisive = {name: settings[name] for name in settings if name not in NOT_DECISIVE}
    text = json.dumps(decisive, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _logic(evidence: Evidence) -> Iterator[Statement]:
    for part in ("policy", "fallback"):
        entry = evidence.manifest["provenance"][part]
        if entry["words"]:
            text = f"The {part}: {entry['words']}"
            yield evidence.sealed(text, f"provenance.{part}.words")
    changes = evidence.record.get("changes") or ()  # they have a heading of their own
    for sentence in evidence.record.get("controllers") or ():
        if sentence in changes:
            continue
        yield evidence.recorded(sentence, "controllers")
    choice = evidence.record.get("choice")
    for sentence in choice if isinstance(choice, list) else ():
        if isinstance(sentence, str):
            yield evidence.recorded(sentence, "choice")


def _data(evidence: Evidence) -> Iterator[Statement]:
    digest = evidence.manifest["provenance"]["data_hash"]
    if digest:
        text = f"Learned from the log with the digest {digest}"
        yield evidence.sealed(text, "provenance.data_hash")
    dataset = evidence.record.get("dataset") or {}
    if "rows" in dataset:
        text = f"The log has {dataset['rows']} rows in {dataset.get('episodes')} episodes"
        yield evidence.recorded(text, "dataset")
    for row in _rows(evidence):
        if row.get("role") == "log":
            text = f"The log itself: {_result(evidence, row)}"
            yield evidence.sealed(text, f"tables.rows {row.get('name')}", EVALUATION)


def _oversight(evidence: Evidence) -> Iterator[Statement]:
    """Changes of mode with their reasons, which name the person who ordered them."""
    if evidence.loop is None:
        return
    folder, file, changes = evidence.loop / "audit", Path(), 0
    for record, _ in records(folder):
        if record["kind"] == "file":
            file = folder / f"audit-{record['file']:06d}.jsonl"
        if record["kind"] == "cycle" and record.get("mode") != record.get("before"):
            changes += 1
            if changes <= MOST_CHANGES:
                text = f"From {record['before']} to {record['mode']}: {record['reason']}"
                yield Statement(text, file, f"record {record['n']}")
    if changes > MOST_CHANGES:
        yield Statement(f"{changes} changes of mode in all", file)


def _guard(evidence: Evidence) -> Iterator[Statement]:
    for sentence in evidence.manifest["constraint_words"]:
        yield evidence.sealed(sentence, "constraint_words")
    for sentence in evidence.manifest["guard"]["words"]:
        yield evidence.sealed(sentence, "guard.words")


def _limitations(evidence: Evidence) -> Iterator[Statement]:
    for cost in evidence.manifest["spec"]["cost"]:
        yield evidence.sealed(
            f"{cost['name']} at most {cost['limit']:g} {cost['unit']} per {cost['per']} is judged "
            "by the verdict, and no part of the bundle enforces it",
            "spec.cost",
        )
    reason = evidence.manifest["verdict"].get("reason")
    if reason:
        yield evidence.sealed(f"What cannot be told: {reason}", "reason", VERDICT)
    why = evidence.manifest["programs"].get("without_numpy")
    if why:
        yield evidence.sealed(f"No form for NumPy alone: {why}", "programs.without_numpy")


def _monitoring(evidence: Evidence) -> Iterator[Statement]:
    for monitor in evidence.manifest["guard"]["monitors"]:
        rate = monitor["false_alarms"]
        promise = (
            f"a false alarm in at most {100 * rate:g} % of episodes is promised, by "
            f"{monitor['episodes']} held-out episodes"
            if rate is not None
            else "no rate of false alarms is promised"
        )
        yield evidence.sealed(f"Monitor {monitor['name']}: {promise}", "guard.monitors")
    for name, age in evidence.bundle.manifest.max_age.items():
        text = f"{name} counts as lost when it is older than {age:g} s"
        yield evidence.sealed(text, "guard.max_age")


def _validation(evidence: Evidence) -> Iterator[Statement]:
    for row in _rows(evidence):
        if row.get("role") != "log" and "returns" in row:
            guard = "behind its guard" if row.get("guarded") else "without a guard"
            text = f"{row.get('name')} {guard}: {_result(evidence, row)}"
            yield evidence.sealed(text, f"tables.rows {row.get('name')}", EVALUATION)
    parity = evidence.manifest["parity"]
    yield evidence.sealed(
        f"The sealed program differs from the trained policy by {parity['worst']:.1e} of a "
        f"channel's size at most on the test vectors, beyond rounding",
        "parity",
    )
    for name in (REPLAY, REPORT):
        if evidence.run is not None and (evidence.run / name).is_file():
            what = {REPLAY: "Replay of the bundle on a log", REPORT: "Report of the run"}[name]
            yield Statement(what, evidence.run / name)


def _metrics(evidence: Evidence) -> Iterator[Statement]:
    verdict = evidence.manifest["verdict"]
    if verdict.get("rule"):
        yield evidence.sealed(f"Rule: {verdict['rule']}", "rule", VERDICT)
    for clause in verdict["clauses"]:
        words = clause.get("sentence") or (
            f"{clause['name']}: {clause['bound']} {clause['relation']} {clause['limit']} "
            f"{clause.get('unit', '')}".rstrip()
        )
        kept = "holds" if clause["holds"] else "does not hold"
        yield evidence.sealed(f"{words} ({kept})", f"clauses {clause['name']}", VERDICT)
    if verdict.get("sentence") and not verdict["clauses"]:  # else it repeats them
        yield evidence.sealed(verdict["sentence"], "sentence", VERDICT)


def _security(evidence: Evidence) -> Iterator[Statement]:
    text = "Every file of the bundle matches the list of digests; nothing in it is source code"
    yield evidence.sealed(text, "", CHECKSUMS)
    if evidence.bundle.signed_by:
        text = "The list of digests is signed"
        yield evidence.sealed(text, "signature", SIGNATURE)


def _changes(evidence: Evidence) -> Iterator[Statement]:
    for sentence in evidence.record.get("changes") or ():
        yield evidence.recorded(sentence, "changes")
    for sheet in sorted(evidence.run.glob(SHEETS)) if evidence.run is not None else ():
        yield Statement("Change sheet of a loop, with its roll-back values", sheet)
    for one in evidence.manifest["provenance"].get("renewals", []):
        text = f"Renewed from {one['digest']}, whose programs were by JAX {one['jax']}"
        yield evidence.sealed(text, "provenance.renewals")


def _logging(evidence: Evidence) -> Iterator[Statement]:
    if evidence.loop is None:
        return
    chain = verify_chain(evidence.loop / "audit")
    yield Statement(
        f"The audit log is whole: {chain.records} records, each holding the hash of the one before,"
        f" up to {chain.head}",
        chain.files[-1],
    )


def _nothing(evidence: Evidence) -> Iterator[Statement]:
    """Of what an organisation states itself, no file of a bundle or run says anything."""
    yield from ()


class Heading(NamedTuple):
    """A heading of the evidence file.

    Attributes:
        title: Its words.
        asked: Where an assessor's list asks for it.
        statements: What the evidence says under it.
    """

    title: str
    asked: str
    statements: Callable[[Evidence], Iterator[Statement]]


HEADINGS: Sequence[Heading] = (
    Heading("Intended purpose", "Annex IV 1(a)", _purpose),
    Heading("Provider", "Annex IV 1(a)", _provider),
    Heading("Version", "Annex IV 1(a), 1(c)", _version),
    Heading("Hardware and software around it", "Annex IV 1(b) to 1(e); TR 5469, 8.6", _environment),
    Heading("Instructions for use", "Annex IV 1(g), 1(h)", _nothing),
    Heading("How it was developed", "Annex IV 2(a); TR 5469, 7", _development),
    Heading("Design and logic", "Annex IV 2(b), 2(c); TR 5469, 8.1, 8.3", _logic),
    Heading("Data and their limits", "Annex IV 2(d); TR 5469, 8.4", _data),
    Heading("Human oversight", "Annex IV 2(e), 3; TR 5469, 8.2", _oversight),
    Heading("Validation and tests", "Annex IV 2(g); TR 5469, 9", _validation),
    Heading("Security", "Annex IV 2(h); TR 5469, 8.5", _security),
    Heading("Guard and what it guarantees", "Annex IV 3; TR 5469, 10", _guard),
    Heading("Limitations", "Annex IV 3; TR 5469, 8.4", _limitations),
    Heading("Monitors", "Annex IV 3; TR 5469, 8.4.2", _monitoring),
    Heading("Logging", "Article 12", _logging),
    Heading("Why these measures of performance", "Annex IV 4", _metrics),
    Heading("Risk management", "Annex IV 5; TR 5469, 11", _nothing),
    Heading("Usage level in safety functions", "TR 5469, 6.2", _nothing),
    Heading("Maturity of the technology", "TR 5469, 8.7", _nothing),
    Heading("Changes", "Annex IV 2(f), 6", _changes),
    Heading("Standards applied", "Annex IV 7", _nothing),
    Heading("Declaration of conformity", "Annex IV 8", _nothing),
    Heading("Monitoring after it is in use", "Annex IV 9", _nothing),
)
"""All headings, in the order of the file."""


def dossier(evidence: Evidence, folder: Path) -> str:
    """The evidence file as Markdown.

    Args:
        evidence: From :func:`evidence_of`.
        folder: Where the file will lie; links are relative to it.

    Returns:
        The text: every heading with its statements, then all files with size and SHA-256.
    """
    digests: dict[Path, tuple[int, str]] = {}
    lines = [
        f"# Evidence for {evidence.bundle.path.name}",
        "",
        "Laid out along Annex IV of Regulation (EU) 2024/1689 and ISO/IEC TR 5469:2024. Every "
        "statement was read from the file behind it, of which the digest is given. A heading for "
        f"which no file says anything reads {NOT_PROVIDED}. This file asserts no conformity.",
    ]
    for heading in HEADINGS:
        lines += ["", f"## {heading.title}", "", f"{heading.asked}.", ""]
        said = list(dict.fromkeys(heading.statements(evidence)))
        for one in said:
            if one.file not in digests:
                digests[one.file] = _digest(one.file)
            place = f" {_plain(one.place)}" if one.place else ""
            lines.append(
                f"- {_plain(one.text)} ([{one.file.name}]({_link(one.file, folder)}){place}, "
                f"{digests[one.file][1][:12]})"
            )
        if not said:
            lines.append(NOT_PROVIDED)
    lines += ["", "## Files", "", "| File | Bytes | SHA-256 |", "|---|---|---|"]
    for file, (size, digest) in digests.items():
        lines.append(f"| [{file.name}]({_link(file, folder)}) | {size} | {digest} |")
    return "\n".join(lines) + "\n"


def _rows(evidence: Evidence) -> list[Mapping[str, Any]]:
    """Results of the candidate, the controller that it was compared with, and the log."""
    rows = evidence.manifest["evaluation"].get("rows")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _result(evidence: Evidence, row: Mapping[str, Any]) -> str:
    """The mean return of a row with its interval, as far as it is known."""
    units = evidence.manifest["evaluation"].get("units") or {}
    unit = units.get("return") or evidence.manifest["evaluation"].get("reward_unit") or ""
    returns = row.get("returns") or {}
    value, low, high = (returns.get(key) for key in ("value", "low", "high"))
    if value is None:
        return "no return is known"
    known = f" [{low:.6g}, {high:.6g}]" if low is not None and high is not None else ""
    episodes = f" in {row['n_episodes']} episodes" if "n_episodes" in row else ""
    return f"mean return {value:.6g}{known} {unit}".rstrip() + episodes


def _digest(path: Path) -> tuple[int, str]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.stat().st_size, digest


def _link(path: Path, folder: Path) -> str:
    return re.sub(r"[ ()<>]", lambda m: f"%{ord(m[0]):02x}", _relative(path, folder))


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def _plain(text: Any) -> str:
    """Text of a file as one line, in which nothing can act as Markdown or HTML."""
    words = "".join(c if c.isprintable() else " " for c in str(text))
    words = " ".join(words.split())
    words = words if len(words) <= LONGEST else f"{words[:LONGEST]} ..."
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", html.escape(words, quote=False))
