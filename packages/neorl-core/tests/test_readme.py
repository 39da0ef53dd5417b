"""The code blocks of the README run as they stand, and its table is the list of namespaces."""

import re
from pathlib import Path

import jax
import pytest

import neorl_core
from neorl_core.testing import namespaces

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[f"block {i}" for i in range(len(BLOCKS))])
def test_a_block_runs(code):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile(code, "README.md", "exec"), {})


def test_the_table_is_the_list_of_namespaces():
    table = README.split("## What is in it")[1].split("## The test kit")[0]
    listed = re.findall(r"^\| \[`(\w+)`\]", table, re.MULTILINE)
    assert listed == [module.__name__.split(".")[-1] for module in namespaces(neorl_core)]
