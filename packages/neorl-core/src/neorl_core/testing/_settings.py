"""The strict settings for the tests of every package."""

import os

import hypothesis
import jax

PROFILE_VARIABLE = "NEORL_HYPOTHESIS_PROFILE"


def configure_tests(*, strict_dtypes: bool = False, examples: int = 15) -> None:
    """Sets JAX and Hypothesis up for tests; call it in ``pytest_configure`` of a ``conftest.py``.

    Implicit rank promotion raises an error. Hypothesis has no deadline, since a first example may
    compile. It has two profiles, chosen by the environment variable ``NEORL_HYPOTHESIS_PROFILE``:
    ``default`` (the same ``examples`` in every run) and ``nightly`` (2,000 random ones). Only the
    settings of JAX and Hypothesis are changed.

    Args:
        strict_dtypes: Whether mixing dtypes raises an error too. Suitable for pure mathematics;
            code that calls optax needs the standard promotion.
        examples: Number of examples per property in the ``default`` profile.
    """
    jax.config.update("jax_numpy_rank_promotion", "raise")
    if strict_dtypes:
        jax.config.update("jax_numpy_dtype_promotion", "strict")
    check = hypothesis.HealthCheck
    suppressed = (check.too_slow, check.data_too_large, check.large_base_example)
    fixed = hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=suppressed,
    )
    hypothesis.settings.register_profile("default", fixed)
    hypothesis.settings.register_profile(
        "nightly", fixed, max_examples=2000, derandomize=False, print_blob=True
    )
    hypothesis.settings.load_profile(os.environ.get(PROFILE_VARIABLE, "default"))
