"""The origin of the numbers, and their limitations."""

from collections.abc import Sequence
from pathlib import Path

from neorl_safety.constraints import constraints_from_dict, describe_constraints
from neorl_train.judging._wording import DASH, confidence, percent
from neorl_train.pages._html import (
    Column,
    Content,
    Group,
    Html,
    bullets,
    fold,
    join,
    paragraph,
    table,
    tag,
)
from neorl_train.pages._inputs import Inputs
from neorl_train.pages._terminal import next_steps
from neorl_train.runs._directory import policy_file


def what_it_says(inputs: Inputs) -> Html:
    """What follows from the verdict, and what does not."""
    tables = inputs.evaluation.tables
    if tables.judge:
        scored: list[Content] = [
            f"Scores are undiscounted returns in {tables.judge}, without guard; the environment "
            "must be the one that the log was recorded in.",
            f"Each interval has {confidence(tables.level)} confidence over fresh episodes, and "
            "over fresh seeds if several were trained.",
            f"They are no verdict on a plant: {inputs.verdict.reason}.",
        ]
        return bullets(scored)
    statements: list[Content] = [
        f"It concerns only the policy {tables.candidate} behind its guard. It does not apply to "
        "other seeds, to the algorithm in general, or to the policy without its guard.",
    ]
    if inputs.simulated:
        statements += [
            f"The policy was tested only in the simulator {tables.environment}. On the real plant "
            "the verdict holds only as far as the simulator, its disturbances and its spread of "
            "parameters represent that plant.",
            f"Each interval has {confidence(tables.level)} confidence over fresh starts of that "
            f"simulator: the {tables.n_starts} starts are the sample, and each start is resampled "
            "with everything that belongs to it (BCa bootstrap). The probability that at least one "
            "of several intervals misses its true value is larger.",
            "An event that was counted zero times can still happen: the tables give the largest "
            "probability of a violation that is compatible with the counts.",
        ]
    elif inputs.verdict.clauses:
        statements.append(
            "Without a simulator no policy was run. Statements on its return and costs are "
            "predictions of a model learned from the log, and are only as good as that model."
        )
    else:
        statements.append(
            "Without a simulator no policy was run, so its return and its costs are unknown. All "
            "we know is what the log contains and how far each policy's actions are from the "
            "logged ones."
        )
    demands = "; ".join(_demands(inputs)) or "none are recorded"
    statements += [
        "The guard keeps every action within these limits, whatever the policy requests: "
        f"{demands}. It guarantees nothing about temperatures, pressures or any other state: a "
        "limit on a measurement is only as good as the model that predicts it.",
        "This is supervisory control. It is not a protection layer and not part of a safety "
        "instrumented system, which must remain independent of it.",
    ]
    return bullets(statements)


def next_commands(inputs: Inputs) -> Html:
    """Commands that are useful after this run."""
    steps = next_steps(inputs.run, inputs.verdict, inputs.evaluation.tables)
    return bullets([join([tag("code", command), f": {why}"]) for command, why in steps])


def training_facts(inputs: Inputs) -> Html:
    """Warnings about the log, values and weights; nothing if there are none."""
    return bullets(inputs.signs) if inputs.signs else Html("")


def data_facts(inputs: Inputs) -> Html:
    """The log: size, origin, excitation, and what happened on the plant during training."""
    source, spec = inputs.evaluation.source, inputs.evaluation.tables.spec
    # A channel without a unit comes from a format that has neither units nor a period.
    assumed = " (assumed, because the file does not state it)" if spec.obs[0].unit == "?" else ""
    log = [
        ("Log", source.name),
        ("Size", f"{source.rows:,} rows in {source.episodes:,} episodes".replace(",", "\u2009")),
    ]
    facts = [
        *(
            log
            if source.rows
            else [("Log", "none, because learners were trained on the plant itself")]
        ),
        ("Period", f"{spec.dt:g} s{assumed}, at most {spec.horizon} steps an episode"),
        ("Channels", f"{spec.n_obs} measured, {spec.n_action} manipulated, {spec.n_cost} costs"),
        *([("Content hash", source.content_hash)] if source.rows else []),
    ]
    parts = [pairs(facts)]
    if source.attribution:
        parts.append(paragraph(f"Third-party data: {source.attribution}.", class_="note"))
    if source.excitation:
        parts.append(_excitation(inputs))
    exploration = [str(sentence) for sentence in inputs.record.get("exploration", [])]
    if exploration:
        parts.append(paragraph("What happened on the simulated plant while learners explored:"))
        parts.append(bullets(exploration))
    return join(parts)


def identified_models(inputs: Inputs) -> Html:
    """The models fitted for classical controllers, and what retuning would change in these."""
    sentences = [str(sentence) for sentence in inputs.record.get("controllers", [])]
    if not sentences:
        return Html("")
    advice = "Compare gains, signs and integral times with those in your control system."
    return join([bullets(sentences), paragraph(advice)])


def _excitation(inputs: Inputs) -> Html:
    columns = [
        Column("Manipulated variable", align="left"),
        Column("Unit", align="left"),
        Column("Test signal", "\N{PLUS-MINUS SIGN}"),
        Column("In manual", "of steps"),
        Column("Standard deviation"),
    ]
    rows: list[Sequence[Content] | Group] = [
        [
            channel.channel,
            channel.unit,
            f"{channel.signal:g}",
            percent(channel.manual),
            f"{channel.deviation:.4g}",
        ]
        for channel in inputs.evaluation.source.excitation
    ]
    return table("Test signals and manual operation while the log was recorded.", columns, rows)


def guard_facts(inputs: Inputs) -> Html:
    """The demands of the guard, each kind in its own words, and the fallback inside it."""
    demands = _demands(inputs)
    parts = [paragraph("Hard limits of every action:"), bullets(demands)] if demands else []
    fallback = str(inputs.record.get("fallback", ""))
    if fallback:
        parts.append(paragraph(f"Fallback, where the policy cannot act: {fallback}."))
    sentences = [str(sentence) for sentence in inputs.record.get("supervision", [])]
    if sentences:
        parts += [paragraph("Monitors and supervision:"), bullets(sentences)]
    parts.append(_monitors(inputs))
    replaced = [str(sentence) for sentence in inputs.record.get("replaced_limits", [])]
    if replaced:
        parts.append(paragraph("This run replaces these limits, which its source declares:"))
        parts.append(bullets(replaced))
    return join(parts)


def _monitors(inputs: Inputs) -> Html:
    """How often each monitor alarmed: on the log, and while the candidate acted."""
    monitors = inputs.record.get("monitors", [])
    if not monitors:
        return Html("")
    tables = inputs.evaluation.tables
    alarm_bits = [
        result.episodes.alarms
        for result in inputs.evaluation.results
        if result.guarded and result.name == tables.candidate
    ]
    rows: list[Sequence[Content] | Group] = []
    for i, monitor in enumerate(monitors):
        alarmed = (
            DASH
            if not alarm_bits
            else f"{int((alarm_bits[0] >> i & 1).sum())} of {len(alarm_bits[0])}"
        )
        promised = monitor["promised"]
        rows.append(
            [
                monitor["name"],
                DASH if promised is None else f"at most {percent(promised)}",
                f"{monitor['log_alarms']} of {monitor['log_episodes']}",
                alarmed,
            ]
        )
    columns = [
        Column("Monitor", align="left"),
        Column("Promised false alarms", "of episodes"),
        Column("Held-out log", "episodes with an alarm"),
        Column("The candidate", "episodes with an alarm"),
    ]
    return table(
        "Alarms of the guard's monitors. The promise holds for episodes like those of the log. A "
        "policy that leaves its regions raises more alarms, which is intended.",
        columns,
        rows,
    )


def _demands(inputs: Inputs) -> list[str]:
    if not inputs.constraints:
        return []
    return describe_constraints(constraints_from_dict(inputs.constraints))


def provenance(inputs: Inputs) -> Html:
    """Run, versions, hashes, seeds and the configuration."""
    record = inputs.record
    versions = record.get("versions", {})
    facts = [
        ("Run", f"{inputs.run.name} ({record.get('id', 'unknown')})"),
        ("Started", str(record.get("started", "unknown"))),
        ("Configuration hash", str(record.get("config_hash", "unknown"))),
        ("Data hash", inputs.evaluation.source.content_hash),
        ("Candidate", policy_file(inputs.verdict.candidate)),
        ("Seeds", ", ".join(map(str, record.get("seeds", ["unknown"])))),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("Python", str(record.get("python", "unknown"))),
        ("Execution mode", str(record.get("execution_mode", "unknown"))),
    ]
    facts += [
        (f"Third-party {kind}", f"{name}: {origin}")
        for kind, names in record.get("origins", {}).items()
        for name, origin in names.items()
    ]
    digest = record.get("policies", {}).get(Path(policy_file(inputs.verdict.candidate)).name)
    if digest:
        facts.insert(5, ("SHA-256 digest of the candidate", str(digest)))
    parts = [pairs([fact for fact in facts if fact[1]])]
    if inputs.config:
        parts.append(fold("Configuration", tag("pre", tag("code", inputs.config))))
    return join(parts)


def pairs(facts: Sequence[tuple[str, str]]) -> Html:
    """Names and values in two columns."""
    entries = [join([tag("dt", name), tag("dd", value)]) for name, value in facts]
    return tag("dl", *entries)
