"""Every exported function by its row in a ``table_*.py``; how to: ``neorl_core.testing._table``.

``pytest test_table.py -k expectile_loss --nightly`` runs all checks of one function. By day each
function has one form, compiled and mapped with its gradient, against its oracle and its laws; all
other forms, edges and values that are refused in compiled programs have the night.
"""

import ast
import inspect
from pathlib import Path

import pytest

import neorl_core
from neorl_core.testing import (
    check_bad_values,
    check_edges,
    check_form,
    check_refusals,
    check_transformations,
    check_values,
    exports,
    load_table,
    table_gaps,
)

HERE = Path(__file__).parent
TABLE = load_table(HERE)
EXPORTS = exports(neorl_core)

# Exports that are no formulas on arrays (records, protocols, what makes an empty record, and what
# turns plain numbers into others), by the test that uses each.
ELSEWHERE = {
    "infrastructure/test_compiled_programs.py": {
        "test_an_entry_is_shared_when_it_is_published": "CompiledPrograms",
        "test_without_a_cache_there_is_no_fault": "cache_fault",
        "test_the_environment_goes_before_the_configuration_before_the_default": (
            "keep_compiled_programs publish_compiled_programs"
        ),
    },
    "infrastructure/test_files.py": {
        "test_a_file_is_written_and_replaced": "write_bytes write_json write_text",
        "test_a_block_that_writes_nothing_is_an_error": "replacing",
        "test_a_folder_that_cannot_be_flushed_is_let_be": "sync_folder",
        "test_a_full_disk_is_recognised_behind_other_errors": "is_full_disk",
    },
    "infrastructure/test_names_and_heads.py": {
        "test_the_nearest_name": "nearest_name",
        "test_an_extra_is_installed_from_its_folder_in_the_clone": "install_line",
        "test_an_unknown_name_is_an_error_that_lists_the_known": "InputError unknown_name",
        "test_a_head_comes_back_from_json": "check_head head",
    },
    "infrastructure/test_lazy_names.py": {
        "test_a_name_comes_from_its_module_and_an_unknown_one_is_named": "lazy_names",
    },
    "infrastructure/test_plain_data.py": {
        "test_a_caller_may_bring_types_and_reasons_of_its_own": "Binder",
    },
    "infrastructure/test_programs.py": {
        "test_equations_of_inner_programs_are_among_them": "equations",
        "test_every_solver_of_jax_is_seen": "factorises",
    },
    "infrastructure/test_registry.py": {
        "test_its_own_entries_are_a_mapping": "Registry",
    },
    "infrastructure/test_settings.py": {
        "test_the_field_and_what_it_must_be_are_named": "require_settings",
        "test_a_range_is_inherited_with_another_default": "MAX_SEED Range range_of setting",
    },
    "control/test_delay_line.py": {
        "test_containers_start_empty": "DelayLine delay_line",
    },
    "control/test_standard_pid.py": {
        "test_a_pi_loop_is_the_discrete_transfer_function_of_its_formula": "standard_pid",
    },
    "control/test_tunables.py": {
        "test_changes_add_up_and_zero_changes_nothing": "tuned tunables",
        "test_a_pid_is_tuned_by_gains_times_and_set_points": "TunableController tunable_values",
        "test_the_numbers_of_a_part_are_those_of_the_whole": "Entry inside",
        "test_a_gradient_through_a_factor_is_its_step": "Tunable",
    },
    "costs/test_limit_kinds.py": {
        "test_every_kind_of_limit_is_defined_once": "CostPer limit_kind",
    },
    "federated/test_aggregation.py": {
        "test_at_its_bound_a_rule_stays_within_the_honest_spread": "Aggregate",
    },
    "graphs/test_graphs.py": {
        "test_a_graph_of_nothing_has_outputs_of_zero": "PaddedGraph",
    },
    "linear_systems/test_identified_models.py": {
        "test_lags_are_found_in_their_log": "ArxModel",
        "test_the_masses_are_found_in_their_positions": "SubspaceModel",
    },
    "linear_systems/test_known_systems.py": {
        "test_the_masses_are_found_in_their_log": "LinearModel",
    },
    "loops/test_known_loops.py": {
        "test_the_forms_of_vendors_make_the_loop_of_their_manual": (
            "VENDOR_FORMS VendorForm PIDForm"
        ),
        "test_a_faceplate_comes_back_exactly": "Faceplate PIDGains",
        "test_an_integrator_with_dead_time_has_the_margins_of_its_formula": (
            "LoopMargins TransferFunction"
        ),
        "test_a_loop_without_dynamics_is_a_matter_of_arithmetic": (
            "SampledModel StepFigures StepResponse"
        ),
        "test_rows_of_nothing_have_no_figures": (
            "LoopHealth HarrisIndex Oscillation StictionFit StictionCorrelation"
        ),
        "test_valves_do_what_their_papers_tabulate": "ValveState valve_state",
    },
    "off_policy_evaluation/test_off_policy.py": {
        "test_weights_of_nothing_are_reported": "LoggedTrajectories",
    },
    "replay/test_buffers.py": {
        "test_containers_start_empty": "PriorityTree RingBuffer priority_tree ring_buffer",
        "test_an_empty_buffer_and_a_tree_without_weight_are_flagged": "PrioritySample",
    },
    "statistics/test_correlated.py": {
        "test_an_interval_covers_the_mean_of_an_autoregression": "CorrelatedMean",
    },
    "statistics/test_data_statistics.py": {
        "test_merged_statistics_are_those_of_all_rows": "merge_statistics",
        "test_ranges_count_as_uniform_and_give_way_to_data": "range_statistics",
    },
    "statistics/test_interval_coverage.py": {
        "test_a_stratified_interval_covers_the_aggregate": "Interval",
    },
    "statistics/test_statistics.py": {
        "test_a_test_of_nan_is_nan": "PairedTest",
        "test_what_is_left_out_is_as_documented": "DEFAULT_LEVEL",
    },
    "statistics/test_conformal.py": {
        "test_the_number_of_scores_is_that_of_exact_arithmetic": "conformal_sample_size",
    },
    "vocabulary/test_channels.py": {
        "test_a_channel_with_a_bad_range_is_refused_by_name": "Channel",
        "test_a_cost_is_per_step_or_episode": "CostChannel",
        "test_a_spec_counts_its_channels_and_is_hashable": "Spec",
        "test_ends_are_in_order_of_the_channels": "highs lows",
        "test_a_spec_survives_json": "spec_from_dict spec_to_dict",
    },
    "vocabulary/test_protocols.py": {
        "test_containers_are_trees_of_their_fields": (
            "PIDCarry MultiplierState Step Transition DataStatistics FieldStatistics"
        ),
        "test_what_lacks_a_function_is_no_policy_and_no_environment": "Environment Policy",
        "test_a_trajectory_is_a_transition_and_optional_fields_may_be_none": "Trajectory",
    },
}
BY_NAME = {
    name: f"{file}::{test}"
    for file, tests in ELSEWHERE.items()
    for test, names in tests.items()
    for name in names.split()
}

every_row = pytest.mark.parametrize("row", TABLE, ids=str)


@every_row
def test_values(row):
    """Row E08: public functions run compiled and mapped, and agree with their oracle."""
    check_values(row)


@pytest.mark.nightly
@every_row
def test_transformations(row):
    check_transformations(row)


@pytest.mark.nightly
@pytest.mark.parametrize("row", [row for row in TABLE if row.edges], ids=str)
def test_edges(row):
    check_edges(row)


@pytest.mark.nightly
@every_row
def test_form(row):
    check_form(row)


@pytest.mark.parametrize("row", [row for row in TABLE if row.refuses], ids=str)
def test_refusals(row):
    check_refusals(row)


@pytest.mark.nightly
@every_row
def test_bad_values(row):
    check_bad_values(row)


def test_the_table_covers_every_export():
    """Row E08: no public function is left out of the table."""
    assert not table_gaps(EXPORTS, TABLE, BY_NAME)


def uses(file: Path, test: str, name: str) -> bool:
    """Whether a test, or a helper of its file that it names, calls ``name`` (names it: a class)."""
    tree = ast.parse(file.read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    is_class = not inspect.isfunction(EXPORTS[name])
    waiting, seen = [test], set()
    while waiting:
        seen.add(current := waiting.pop())
        nodes = list(ast.walk(functions[current]))
        used = nodes if is_class else [node.func for node in nodes if isinstance(node, ast.Call)]
        if name in {node.id for node in used if isinstance(node, ast.Name)}:
            return True
        named = {node.id for node in nodes if isinstance(node, ast.Name)}
        waiting.extend(sorted((named & set(functions)) - seen))
    return False


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_covered_elsewhere_is_used_there(name):
    file, test = BY_NAME[name].split("::")
    assert uses(HERE / file, test, name), f"{test} in {file} does not use {name}"


def test_a_name_that_is_only_imported_or_mentioned_is_not_used():
    channels = HERE / "vocabulary" / "test_channels.py"
    assert uses(channels, "test_a_spec_survives_json", "spec_to_dict")
    assert not uses(channels, "test_a_spec_survives_json", "unit_interval")
    # A name in a string is no call.
    here = test_a_name_that_is_only_imported_or_mentioned_is_not_used.__name__
    assert not uses(Path(__file__), here, "lows")
