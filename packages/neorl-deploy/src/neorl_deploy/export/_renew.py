"""Makes the programs of a bundle anew from its NumPy form, with today's JAX (extra ``jax``)."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._files import program_names
from neorl_deploy.bundle._manifest import PARITY_TOLERANCE
from neorl_deploy.bundle._read import Bundle, read_bundle
from neorl_deploy.bundle._signature import Signer
from neorl_deploy.bundle._test_vectors import relative_difference
from neorl_deploy.export._export import programs_entry, require_place, write_proven
from neorl_deploy.export._stablehlo import Exported, lowered
from neorl_deploy.runtime._decision import findings
from neorl_deploy.runtime._forms import flushed, jax_module, sealed_operations, step_inputs
from neorl_deploy.runtime._operations import as_function

PROBES = 1_000
"""Steps on which the new program must answer as the sealed operations, besides the test vectors."""
SEED = 10
REPLACED = (
    bundle_files.MANIFEST,
    bundle_files.STEP,
    bundle_files.INITIAL_CARRY,
    bundle_files.CHECKSUMS,
    bundle_files.SIGNATURE,
)


@dataclasses.dataclass(frozen=True)
class Renewal:
    """A bundle with programs by today's JAX.

    Attributes:
        bundle: The new bundle, verified.
        before: The bundle that it was made from.
        difference: Largest difference between the new program and the sealed operations on the
            probes, as a fraction of a channel's size.
    """

    bundle: Bundle
    before: Bundle
    difference: float


def renew_bundle(
    path: Path,
    out: Path | None = None,
    *,
    sign_key: Path | None = None,
    trusted_key: str | None = None,
    overwrite: bool = False,
) -> Renewal:
    """Writes a bundle with the same policy, guard and evidence, and programs by the present JAX.

    The programs are traced from the sealed operations, for the platforms of the old ones. On 1,000
    hostile steps they must answer as these, and in a fresh process as the test vectors say. The
    digest, seal, release and signer of the old bundle are added to ``renewals`` of the provenance.

    Args:
        path: The bundle; it is left as it is.
        out: Directory to write; ``None`` for ``NAME-renewed.bundle`` beside it.
        sign_key: File with the private key for signing; needed if the bundle is signed.
        trusted_key: Hexadecimal public key that must have signed the old bundle.
        overwrite: Replace an existing bundle.

    Raises:
        BundleError: If the bundle is damaged.
        DeployError: If it has no NumPy form, is signed and no key is given, the new program answers
            differently (the message has the figure), or the new bundle cannot be written.
    """
    bundle = read_bundle(path, trusted_key=trusted_key)
    document = copy.deepcopy(dict(bundle.manifest.document))
    if bundle.manifest.form_of_record != "numpy":
        why = document["programs"].get("without_numpy") or "it was exported without one"
        raise DeployError(
            f"{path} has no NumPy form to make its programs from ({why}); export it again from its "
            "run with today's packages"
        )
    if bundle.signed_by and sign_key is None:
        raise DeployError(
            f"{path} is signed by {bundle.signed_by}; its renewal has other bytes and must be "
            "signed anew: name a key with --sign"
        )
    target = path.with_name(f"{path.stem}-renewed.bundle") if out is None else out
    require_place(target, overwrite=overwrite)
    signer = None if sign_key is None else Signer(sign_key)
    exported, difference = _proven_programs(bundle)
    files = {name: data for name, data in bundle.files.items() if name not in REPLACED}
    files |= {bundle_files.STEP: exported.step, bundle_files.INITIAL_CARRY: exported.initial_carry}
    document["provenance"]["renewals"] = [
        *document["provenance"].get("renewals", []),
        {
            "digest": f"sha256:{bundle.digest}",
            "seal": bundle_files.seal(document),
            "jax": bundle.manifest.jax,
            "calling_convention": bundle.manifest.calling_convention,
            "signed_by": bundle.signed_by,
        },
    ]
    document["programs"] = programs_entry(exported, files)
    document["signature"] = None if signer is None else signer.claim
    document["parity"] = None
    renewed = write_proven(target, files, document, signer, overwrite=overwrite)
    return Renewal(renewed, bundle, difference)


def _proven_programs(bundle: Bundle) -> tuple[Exported, float]:
    """Programs traced from the sealed operations, and how far they are from them on the probes."""
    jax = jax_module()
    from neorl_deploy.export._jax_operations import as_jax

    operations, fresh = sealed_operations(bundle)
    with jax.default_device(jax.devices("cpu")[0]):
        exported = lowered(
            as_jax(operations),
            lambda: tuple(jax.numpy.asarray(array) for array in fresh),
            step_inputs(bundle),
            bundle.manifest.platforms,
            program_names(bundle.manifest.document),
        )
        program = jax.jit(jax.export.deserialize(bytearray(exported.step)).call)
        difference, same = _compared(bundle, as_function(operations), program, fresh)
    if not (difference <= PARITY_TOLERANCE and same):
        raise DeployError(
            f"the program that this jax ({jax.__version__}) makes of {bundle.path} differs from "
            f"its sealed operations by {difference:.1e} of a channel's size on {PROBES} steps "
            f"(allowed {PARITY_TOLERANCE:.0e}), flags and alarms "
            f"{'equal' if same else 'different'}; nothing was written"
        )
    return exported, difference


def _compared(
    bundle: Bundle, sealed: Callable[..., Any], program: Callable[..., Any], fresh: list[np.ndarray]
) -> tuple[float, bool]:
    """Largest difference of an action, and whether flags and alarms agree, over hostile steps.

    Every step begins from the state of the sealed operations, so that a difference is that of one
    step and does not grow.
    """
    manifest, n_carry = bundle.manifest, len(fresh)
    checked = np.uint32(findings(manifest.flags))
    carry, worst, same = tuple(fresh), 0.0, True
    for inputs in _probes(bundle):
        obs, last_sent = map(flushed, inputs)
        expected, actual = (run(*carry, obs, last_sent) for run in (sealed, program))
        action, flags, _, _, alarms = (np.asarray(array) for array in actual[n_carry:])
        sent, raised, _, _, alarmed = expected[n_carry:]
        worst = max(worst, relative_difference(manifest.action, action[None], sent[None]))
        same = same and (flags & checked, alarms) == (raised & checked, alarmed)
        carry = expected[:n_carry]
    return worst, bool(same)


def _probes(bundle: Bundle) -> Any:
    """Observations across and beyond the ranges, lost and impossible ones, and last actions."""
    rng, bad = np.random.default_rng(SEED), [np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40]
    channels = bundle.manifest.obs, bundle.manifest.action
    ends = [np.array([[c.low, c.high] for c in group]).T for group in channels]
    place = np.full(len(bundle.manifest.obs), 0.5)
    for _ in range(PROBES):
        place = np.clip(place + rng.normal(0, 0.05, len(place)), -0.1, 1.1)
        obs = ends[0][0] + (ends[0][1] - ends[0][0]) * place
        sent = rng.uniform(*ends[1])
        for array, chance in ((obs, 0.1), (sent, 0.2)):
            if rng.uniform() < chance:
                array[rng.integers(len(array))] = rng.choice(bad)
        yield obs.astype(np.float32), sent.astype(np.float32)
