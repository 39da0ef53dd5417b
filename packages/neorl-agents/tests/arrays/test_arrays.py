"""Public functions of arrays under eager, jit, vmap and jit of vmap, and those left out, by reason.

The table is that of :mod:`neorl_core.testing`; its docstring says how to add a row.
"""

from pathlib import Path

import pytest

import neorl_agents
from neorl_core.testing import (
    check_edges,
    check_transformations,
    check_values,
    functions_of_arrays,
    load_table,
    table_gaps,
)

TABLE = load_table(Path(__file__).parent)
LEFT_OUT = {
    "take a network, and run compiled and mapped in the laws of every learner": """
        critic_loss descend first_q_value gaussian_log_prob minimise mixture_parameters newest
        next_network_inputs q_values regress_actor regression_weights sampled_q_values
        squashed_parameters train_chunk unit_rows value_metrics weighted_regression_loss
        """,
    "take the preparation of a learner, and are compared with NumPy in tests of limits": """
        counted_costs critic_limit_units critic_limits step_limits
        """,
    "take a fitted critic or ensemble, and are compared with NumPy in tests of critics": """
        disagreement horizon_curve largest_risk limit_risks predicted
        """,
    "take the memory of several players, and are compared with the source's recorded turns": """
        act begin_episode draw_windows episode_windows quantile_loss ring_windows
        """,
    "take rows of a replay and of a log, and run compiled in tests of fine-tuning": """
        balanced_batch replay_begin
        """,
    "take the tables of a log's histories, and are compared with rows cut by hand": """
        next_windows windows
        """,
    "make initial weights, which the laws of every learner run compiled and mapped": """
        init_graph_network init_mlp init_optimiser
        """,
    "run on the host, and only pass arrays on": """
        policy_actions pooled_scaling prepare replayed_loops save_policy
        """,
}
REASONS = {name: reason for reason, names in LEFT_OUT.items() for name in names.split()}

every_row = pytest.mark.parametrize("row", TABLE, ids=str)


@every_row
def test_values(row):
    """Row E08: they run compiled and mapped, and agree with their oracle."""
    check_values(row)


@pytest.mark.nightly
@every_row
def test_transformations(row):
    check_transformations(row)


@pytest.mark.nightly
@pytest.mark.parametrize("row", [row for row in TABLE if row.edges], ids=str)
def test_edges(row):
    check_edges(row)


def test_every_function_of_arrays_is_in_the_table_or_left_out_for_a_reason():
    assert not table_gaps(functions_of_arrays(neorl_agents), TABLE, REASONS)
