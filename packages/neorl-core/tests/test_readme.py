"""The code blocks of the README run as they stand."""

import re
from pathlib import Path

import jax
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[f"block {i}" for i in range(len(BLOCKS))])
def test_a_block_runs(code):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile(code, "README.md", "exec"), {})


def test_every_name_in_the_readme_is_exported():
    import neorl_core

    table = README.split("## What is in it")[1].split("## The test kit")[0]
    for name in re.findall(r"`([A-Za-z][A-Za-z0-9_]*)`", table):
        assert hasattr(neorl_core, name) or name == "segment_", f"{name} is not exported"
