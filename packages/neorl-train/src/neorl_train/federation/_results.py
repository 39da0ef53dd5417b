"""Results of a federation: the common policy compared with local training and controllers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neorl_train.federation._privacy import epsilon
from neorl_train.federation._site_run import LOCAL
from neorl_train.federation._sites import FederationPlan
from neorl_train.judging._results import Evaluation, read_evaluation
from neorl_train.judging._verdict import read_verdict
from neorl_train.runs._directory import RunDirectory


def federation_results(
    plan: FederationPlan, sites: Mapping[str, RunDirectory], rounds: Sequence[Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """The comparison over all sites, as text and as JSON."""
    site_results = {name: _site(plan.algorithm, run) for name, run in sites.items()}
    document: dict[str, Any] = {
        "algorithm": plan.algorithm,
        "rule": plan.settings.federation.rule,
        "rounds": plan.settings.federation.rounds,
        "seeds": list(plan.seeds),
        "sites": site_results,
        "messages": _messages(rounds),
        "outcomes": _outcomes(rounds),
    }
    if plan.settings.private:
        privacy = plan.settings.privacy
        document["privacy"] = {
            "epsilon": epsilon(
                rounds=plan.settings.federation.rounds * len(plan.seeds),
                noise_multiplier=privacy.noise_multiplier,
                participation=plan.settings.federation.participation,
                delta=privacy.delta,
            ),
            "delta": privacy.delta,
        }
    means = _means(site_results)
    if means:
        document["mean_of_sites"] = means
    return "\n".join(_sentences(document)), document


def _site(algorithm: str, run: RunDirectory) -> dict[str, Any]:
    evaluation, verdict = read_evaluation(run.path), read_verdict(run.path)
    site: dict[str, Any] = {
        "run": str(run.path),
        "verdict": verdict.answer,
        "rows": evaluation.source.rows,
    }
    if not evaluation.tables.environment:
        return site  # a log alone cannot show the returns of another policy
    groups = {"federated": algorithm, "local": f"{algorithm}_{LOCAL}"}
    site["returns"] = {name: _mean(evaluation, group) for name, group in groups.items()}
    site["returns"] |= {
        row.name: row.returns.value
        for row in evaluation.tables.rows
        if row.role in ("classical", "behaviour") and not row.guarded
    }
    site["gain"] = _gain(evaluation, *groups.values())
    return site


def _mean(evaluation: Evaluation, group: str) -> float:
    rows = [r for r in evaluation.tables.rows if r.group == group and not r.guarded]
    return float(np.mean([row.returns.value for row in rows]))


def _gain(evaluation: Evaluation, trained: str, compared: str) -> dict[str, float]:
    """Paired difference between common policy and local training, over starts; mean over seeds."""
    returns = {
        group: np.mean(
            [
                np.asarray(result.episodes.returns, np.float64)
                for result in evaluation.results
                if result.group == group and not result.guarded
            ],
            axis=0,
        )
        for group in (trained, compared)
    }
    paired = returns[trained] - returns[compared]
    error = float(paired.std(ddof=1) / np.sqrt(len(paired)))
    return {"mean": float(paired.mean()), "standard_error": error}


def _means(site_results: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    with_plant = [site for site in site_results.values() if "returns" in site]
    if len(with_plant) < len(site_results):
        return {}
    gains = [site["gain"] for site in with_plant]
    return {
        "federated": float(np.mean([site["returns"]["federated"] for site in with_plant])),
        "local": float(np.mean([site["returns"]["local"] for site in with_plant])),
        "gain": float(np.mean([gain["mean"] for gain in gains])),
        "gain_standard_error": float(
            np.sqrt(sum(gain["standard_error"] ** 2 for gain in gains)) / len(gains)
        ),
    }


def _messages(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    sent = sum(line["bytes_up"] for line in rounds)
    plain = sum(line["bytes_plain"] for line in rounds)
    return {
        "bytes_up": sent,
        "bytes_down": sum(line["bytes_down"] for line in rounds),
        "bytes_saved": max(plain - sent, 0),
        "largest_error": max((line["error"] for line in rounds), default=0.0),
    }


def _outcomes(rounds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How often each site answered, and what happened otherwise."""
    counts: dict[str, dict[str, int]] = {}
    for line in rounds:
        for name, outcome in line["outcomes"].items():
            kind = outcome.partition(":")[0]
            counts.setdefault(name, {})
            counts[name][kind] = counts[name].get(kind, 0) + 1
    return counts


def _sentences(document: Mapping[str, Any]) -> list[str]:
    lines = [f"{document['algorithm']} by {document['rule']}, {document['rounds']} rounds"]
    for name, site in document["sites"].items():
        line = f"  {name}: {site['rows']} rows, {site['verdict']}"
        if "returns" in site:
            gain = site["gain"]
            line += (
                f"; return {site['returns']['federated']:.4g} together, "
                f"{site['returns']['local']:.4g} alone "
                f"({gain['mean']:+.3g} ± {gain['standard_error']:.2g} paired)"
            )
        lines.append(line)
        failures = {k: n for k, n in document["outcomes"].get(name, {}).items() if k != "answered"}
        if failures:
            lines.append("    rounds: " + ", ".join(f"{n} {kind}" for kind, n in failures.items()))
    if "mean_of_sites" in document:
        means = document["mean_of_sites"]
        lines.append(
            f"  mean of the sites: {means['federated']:.4g} together, {means['local']:.4g} alone "
            f"({means['gain']:+.3g} ± {means['gain_standard_error']:.2g}, standard error)"
        )
    messages = document["messages"]
    saved = messages["bytes_saved"]
    lines.append(
        f"messages: {messages['bytes_up'] / 1e6:.3g} MB sent by the sites"
        + (f", {saved / 1e6:.3g} MB saved" if saved else "")
        + f", {messages['bytes_down'] / 1e6:.3g} MB sent to them"
    )
    if "privacy" in document:
        privacy = document["privacy"]
        lines.append(
            f"privacy: epsilon {privacy['epsilon']:.3g} at delta {privacy['delta']:g} for the "
            "updates of one site in all rounds; merged statistics are not covered"
        )
    return lines
