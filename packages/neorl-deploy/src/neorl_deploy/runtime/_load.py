"""Loads a directory as a runtime: verified, tried, tested, and either restored or stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

from neorl_deploy._errors import BundleError, DeployError, NotDeployable
from neorl_deploy.bundle._manifest import DEPLOY, permitted_use
from neorl_deploy.bundle._read import Bundle, read_bundle
from neorl_deploy.runtime._decision import LOGGER, WITHOUT_STATE
from neorl_deploy.runtime._forms import FormName, open_programs
from neorl_deploy.runtime._runtime import Runtime
from neorl_deploy.runtime._state import StateError

TIME_LIMIT = 120.0
"""Seconds allowed for compiling the programs, a fresh carry and all test vectors."""


def load_bundle(
    path: str | os.PathLike[str],
    *,
    trusted_key: str | None = None,
    require_deploy: bool = False,
    self_test: bool = True,
    time_limit: float = TIME_LIMIT,
    state: str | os.PathLike[str] | None = None,
    without_state: Literal["stopped", "refused"] = "stopped",
    form: FormName = "stablehlo",
) -> Runtime:
    """Verifies a bundle, loads and tests its programs, and restores its state.

    Before the form runs in this process, another process runs it with a time limit. The
    self-test then runs the very programs that will act; its vectors include NaN and infinities, so
    a runtime that was compiled to ignore them is refused. A verdict other than "deploy" is logged
    as a warning.

    If ``state`` names a file, an emergency stop, a latch, the last action and the policy's state
    survive the process: the file is read here, and written after every step, stop, release and
    reset. If there is no usable file, either the runtime begins as after an emergency stop, with
    the fallback acting until a person calls :meth:`Runtime.release`, or the start is refused.

    Args:
        path: The directory.
        trusted_key: Hexadecimal public key that must have signed it.
        require_deploy: Whether to refuse every verdict other than "deploy".
        self_test: Whether to compare with the test vectors.
        time_limit: Seconds allowed for the programs in the other process.
        state: File that the runtime continues from and keeps up to date; ``None`` for none.
        without_state: What to do if the file is missing, damaged or of another bundle, or none is
            named: ``"stopped"`` or ``"refused"``.
        form: ``"stablehlo"``, compiled, or ``"numpy"``, with NumPy only, if the bundle has that
            form.

    Returns:
        A runtime that continues where the earlier process ended, or one that is stopped.

    Raises:
        StateError: If there is no usable state and ``without_state`` is ``"refused"``.
        ValueError: If ``without_state`` is neither of the two.
        NotDeployable: If the verdict is not "deploy" and ``require_deploy`` is set.
        BundleError: If it is damaged, made for another platform or calling convention, exceeds the
            time limit, or answers the test vectors differently.
        DeployError: If the extra ``jax`` is not installed.
    """
    if without_state not in ("stopped", "refused"):
        raise ValueError(f'without_state must be "stopped" or "refused", got {without_state!r}')
    bundle = read_bundle(path, trusted_key=trusted_key)
    runtime = loaded_runtime(
        bundle, form, require_deploy=require_deploy, self_test=self_test, time_limit=time_limit
    )
    try:
        if state is None:
            raise StateError("no state file is named")
        runtime.restore(state)
    except StateError as error:
        if without_state == "refused":
            raise
        runtime.stop(f"{WITHOUT_STATE}: {error}")
    if state is not None:
        runtime.keep(state)
    return runtime


def loaded_runtime(
    bundle: Bundle,
    form: FormName = "stablehlo",
    *,
    require_deploy: bool = False,
    self_test: bool = True,
    time_limit: float = TIME_LIMIT,
) -> Runtime:
    """A runtime whose programs first ran in another process and passed the test; not stopped.

    Arguments and errors are those of :func:`load_bundle`.
    """
    verdict = bundle.manifest.verdict
    if verdict != DEPLOY:
        if require_deploy:
            raise NotDeployable(f"the verdict of {bundle.path} is {verdict!r}; it is not loaded")
        use = permitted_use(verdict)
        LOGGER.warning("the verdict of %s is %r: it is %s", bundle.path, verdict, use)
    if form == "stablehlo":
        open_programs(bundle)  # refuse first what can be detected without running the programs
    require_trial(bundle, time_limit, form)
    runtime = Runtime(bundle, form)
    if self_test:
        runtime.self_test()
    return runtime


# Runs a form of a bundle in a separate process first, with a time limit.
#
# A sealed program may loop forever, exhaust memory or crash, and none of that may happen in the
# process that controls a plant. A list of operations ends, but its loops may take long. Started as
# `python -m neorl_deploy.runtime._load BUNDLE DIGEST FORM`.


_passed_digests: set[tuple[str, str]] = set()
"""Digests and forms of the bundles that have completed in time since this process began."""


def require_trial(
    bundle: Bundle, seconds: float = TIME_LIMIT, form: FormName = "stablehlo"
) -> None:
    """Raises unless another process runs a form of a bundle to completion.

    That process creates a fresh carry and answers all test vectors; whether the answers are right
    is not checked here. A form of a bundle is tried once per process.

    Args:
        bundle: A verified bundle.
        seconds: Time limit.
        form: Form to try.

    Raises:
        BundleError: If the programs exceed the time limit, crash, or cannot be run.
    """
    if (bundle.digest, form) in _passed_digests:
        return
    command = [sys.executable, "-m", "neorl_deploy.runtime._load"]
    command += [str(bundle.path), bundle.digest, form]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        raise BundleError(
            f"{bundle.path}: its programs did not answer the test vectors within {seconds:g} s in "
            "a process of their own; try again when this machine is idle, and do not run it if "
            "they fail again"
        ) from error
    except OSError as error:
        raise BundleError(f"{bundle.path}: its programs could not be tried: {error}") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise BundleError(
            reason
            if done.returncode == 2
            else f"{bundle.path}: its programs crash ({reason:.200}); fetch the bundle again"
        )
    _passed_digests.add((bundle.digest, form))


def note_trial(bundle: Bundle) -> None:
    """Records that the parity check of an exported bundle was its trial in another process."""
    _passed_digests.update({(bundle.digest, "stablehlo"), (bundle.digest, "numpy")})


def _try(path: str, digest: str, form: FormName) -> None:
    bundle = read_bundle(Path(path), proven=False)
    if bundle.digest != digest:
        raise BundleError(f"{path} was changed while it was loaded")
    runtime = Runtime(bundle, form)
    for section in ("single", "sequence"):
        runtime.answers(section)


if __name__ == "__main__":
    try:
        _try(sys.argv[1], sys.argv[2], "numpy" if sys.argv[3] == "numpy" else "stablehlo")
    except DeployError as error:
        print(error, file=sys.stderr)
        sys.stderr.flush()
        os._exit(2)
