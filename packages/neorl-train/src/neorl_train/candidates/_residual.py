"""A network of bounded authority on top of the retuned controller."""

from neorl_agents.retuning import RefineResult, refine
from neorl_core import InputError, Spec
from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.candidates._retuned import gain_text, retune_settings
from neorl_train.judging._pool import RESIDUAL, RETUNED, Candidate
from neorl_train.judging._wording import number


def _names(inputs: RunInputs) -> list[str]:
    retuning = inputs.config.retuning
    return [RESIDUAL] if retuning.controller and retuning.residual else []


def _no_network(inputs: RunInputs, name: str) -> str:
    if name != RESIDUAL or inputs.config.retuning.residual:
        return ""
    return (
        "but no network is trained on top of a controller; request one with --retuning.controller "
        "incumbent --retuning.residual"
    )


def _refine(material: Material) -> Made:
    """The retuned controller with its network; without it, if it is predicted to bring nothing."""
    retuning, plants = material.config.retuning, material.plants
    if not retuning.residual or plants is None:
        return Made([], [])
    (retuned,) = material.pool.of(RETUNED)
    settings = retune_settings(retuning)
    try:
        result = refine(plants, retuned.policy, retuning.seed, settings)
    except InputError as error:
        raise InputError(f"retuning {retuning.controller}: {error}") from error
    seeds = (material.seed,)
    network = Candidate(RESIDUAL, RESIDUAL, result.policy, seeds, metadata=retuned.metadata)
    return Made([network], residual_sentences(result, plants.model.spec))


def residual_sentences(result: RefineResult, spec: Spec) -> list[str]:
    """Describes the authority and the predictions of a network on top of the retuned controller."""
    chosen = {row.name: row for row in result.table}[result.chosen]
    if result.chosen == result.table[0].name:
        best = max(result.table[1:], key=lambda prediction: prediction.low)
        return [
            "no network is added to the retuned controller; the best one was refused: "
            f"{'; '.join(best.refusals)}"
        ]
    reach = ", ".join(
        f"{channel.name} by at most {number(float(most))} {channel.unit}".rstrip()
        for channel, most in zip(spec.action, result.authority, strict=True)
    )
    return [
        f"residual: a network adds to the action of the retuned controller; it moves {reach}",
        f"predicted gain in return over the retuned controller: {gain_text(chosen)}; the linear "
        f"part of the model alone predicts {number(chosen.by_member[-1])}",
    ]


NETWORK = Family(_names, _refine, _no_network, always_judged=True)
