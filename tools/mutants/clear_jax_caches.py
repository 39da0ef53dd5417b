"""Clears JAX's caches of traced programs before each test; a plugin of ``tools/mutation.py``.

Which tests reach a function is seen when Python runs it, and Python runs it only when JAX traces:
without this, only the first of all tests that trace a function would be seen to reach it.
"""

import jax


def pytest_runtest_setup() -> None:
    jax.clear_caches()
