"""The origin of the numbers, and their limitations."""

from collections.abc import Sequence
from pathlib import Path

from neorl_safety.constraints import constraints_from_dict, describe_constraints
from neorl_train.report._html import (
    Column,
    Content,
    Group,
    Html,
    bullets,
    folded,
    joined,
    paragraph,
    table,
    tag,
)
from neorl_train.report._inputs import Inputs
from neorl_train.report._next_steps import next_steps
from neorl_train.results._wording import DASH, confidence, percent
from neorl_train.runs._names import policy_file


def what_it_says(inputs: Inputs) -> Html:
    """What follows from the verdict, and what does not."""
    tables = inputs.evaluation.tables
    says: list[Content] = [
        f"It concerns {tables.candidate}, that one policy, behind its guard, and no "
        "other: not another seed, not the algorithm, not the policy without its guard.",
    ]
    if inputs.simulated:
        says += [
            f"It was tested in the simulator {tables.environment} only. On the real plant it "
            "holds as far as the simulator, its disturbances and its spread of parameters do.",
            f"Intervals have {confidence(tables.level)} confidence over fresh starts of that "
            f"simulator, each on its own: the {tables.n_starts} starts are the sample, each "
            "resampled with all that belongs to it (BCa bootstrap). The chance "
            "that at least one of several intervals misses is larger.",
            "What was counted zero times can still happen: the tables give the largest chance of "
            "a violation that the counts leave open.",
        ]
    elif inputs.verdict.clauses:
        says.append(
            "Without a simulator no policy was run. What is said of its return and its costs is "
            "what a model learned from the log predicts, and holds as far as that model does."
        )
    else:
        says.append(
            "Without a simulator no policy was run, so nothing is known of its return or of its "
            "costs: only what the log holds, and how far each policy's actions are from it."
        )
    demands = "; ".join(_demands(inputs)) or "none are recorded"
    says += [
        f"The guard keeps these limits of every action, whatever the policy asks for: {demands}. "
        "It guarantees nothing about temperatures, pressures or any other state: a limit that "
        "names a measurement is only as good as the model that predicts it.",
        "This is supervisory control. It is no protection layer and no part of a safety "
        "instrumented system, which must stay independent of it.",
    ]
    return bullets(says)


def next_commands(inputs: Inputs) -> Html:
    """Commands that are useful after this run."""
    steps = next_steps(inputs.run, inputs.verdict, simulated=inputs.simulated)
    return bullets([joined([tag("code", command), f": {why}"]) for command, why in steps])


def training_facts(inputs: Inputs) -> Html:
    """Warnings from the last metrics about values and weights; nothing if there are none."""
    return bullets(inputs.signs) if inputs.signs else Html("")


def data_facts(inputs: Inputs) -> Html:
    """The log: size, origin, excitation, and what happened on the plant during training."""
    source, spec = inputs.evaluation.source, inputs.evaluation.tables.spec
    # A channel without a unit comes from a format that has neither units nor a period.
    assumed = " (assumed: the file does not say)" if spec.obs[0].unit == "?" else ""
    log = [
        ("Log", source.name),
        ("Size", f"{source.rows:,} rows in {source.episodes:,} episodes".replace(",", "\u2009")),
    ]
    facts = [
        *(log if source.rows else [("Log", "none: learners were trained on the plant itself")]),
        ("Period", f"{spec.dt:g} s{assumed}, at most {spec.horizon} steps an episode"),
        ("Channels", f"{spec.n_obs} measured, {spec.n_action} manipulated, {spec.n_cost} costs"),
        *([("Content hash", source.content_hash)] if source.rows else []),
    ]
    parts = [pairs(facts)]
    if source.attribution:
        parts.append(paragraph(f"Third-party data: {source.attribution}.", class_="note"))
    if source.excitation:
        parts.append(_excitation(inputs))
    tried = [str(sentence) for sentence in inputs.record.get("tried", [])]
    if tried:
        parts.append(paragraph("What the simulated plant went through while learners tried:"))
        parts.append(bullets(tried))
    return joined(parts)


def identified(inputs: Inputs) -> Html:
    """The models fitted for classical controllers, and what retuning would change in these."""
    sentences = [str(sentence) for sentence in inputs.record.get("controllers", [])]
    if not sentences:
        return Html("")
    advice = "Compare gains, signs and integral times with those in your control system."
    return joined([bullets(sentences), paragraph(advice)])


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
            one.channel,
            one.unit,
            f"{one.signal:g}",
            percent(one.manual),
            f"{one.deviation:.4g}",
        ]
        for one in inputs.evaluation.source.excitation
    ]
    return table(
        "What operators and test signals did to the plant while the log was filled.", columns, rows
    )


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
        parts.append(paragraph("This run has other limits than its source declares, which are:"))
        parts.append(bullets(replaced))
    return joined(parts)


def _monitors(inputs: Inputs) -> Html:
    """How often each monitor alarmed: on the log, and while the candidate acted."""
    monitors = inputs.record.get("monitors", [])
    if not monitors:
        return Html("")
    tables = inputs.evaluation.tables
    bits = [
        one.episodes.alarms
        for one in inputs.evaluation.results
        if one.guarded and one.name == tables.candidate
    ]
    rows: list[Sequence[Content] | Group] = []
    for i, one in enumerate(monitors):
        acted = DASH if not bits else f"{int((bits[0] >> i & 1).sum())} of {len(bits[0])}"
        promised = one["promised"]
        rows.append(
            [
                one["name"],
                DASH if promised is None else f"at most {percent(promised)}",
                f"{one['log_alarms']} of {one['log_episodes']}",
                acted,
            ]
        )
    columns = [
        Column("Monitor", align="left"),
        Column("Promised false alarms", "of episodes"),
        Column("Held-out log", "episodes with an alarm"),
        Column("The candidate", "episodes with an alarm"),
    ]
    return table(
        "Alarms of the guard's monitors. A promise is for episodes like those of the log; a policy "
        "that takes the plant elsewhere alarms more often, and is meant to.",
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
        ("Seeds", ", ".join(map(str, record.get("seeds", []))) or "unknown"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("Python", str(record.get("python", "unknown"))),
        ("Execution mode", str(record.get("execution_mode", "unknown"))),
    ]
    facts += [
        (f"{kind.capitalize()} from outside", f"{name}: {origin}")
        for kind, names in record.get("origins", {}).items()
        for name, origin in names.items()
    ]
    digest = record.get("policies", {}).get(Path(policy_file(inputs.verdict.candidate)).name)
    if digest:
        facts.insert(5, ("Digest of the candidate", str(digest)))
    parts = [pairs([fact for fact in facts if fact[1]])]
    if inputs.config:
        parts.append(folded("Configuration", tag("pre", tag("code", inputs.config))))
    return joined(parts)


def pairs(facts: Sequence[tuple[str, str]]) -> Html:
    """Names and values in two columns."""
    entries = [joined([tag("dt", name), tag("dd", value)]) for name, value in facts]
    return tag("dl", *entries)
