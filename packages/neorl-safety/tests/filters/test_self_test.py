"""The start-up test passes an honest program and refuses a fast-math one."""

import jax
import pytest

from neorl_safety.constraints import action_constraints
from neorl_safety.filters import fast_math_self_test, filter_action


def test_an_honest_program_passes(spec):
    limits = action_constraints(spec, [0.25, 0.05])
    fast_math_self_test(filter_action, limits)
    fast_math_self_test(jax.jit(filter_action), limits)


def test_a_fast_math_program_is_refused(spec):
    limits = action_constraints(spec, [0.25, 0.05])
    options = {
        "xla_cpu_enable_fast_math": True,
        "xla_cpu_fast_math_honor_nans": False,
        "xla_cpu_fast_math_honor_infs": False,
        # Fast math is an optimisation, and tests are compiled with few.
        "xla_backend_optimization_level": 3,
        "xla_llvm_disable_expensive_passes": False,
    }
    if jax.__version_info__ < (0, 11):  # newer compilers have no other way, and refuse the option
        options["xla_cpu_use_fusion_emitters"] = True
    with pytest.raises(RuntimeError, match="without fast math"):
        fast_math_self_test(jax.jit(filter_action, compiler_options=options), limits)


def test_a_filter_that_forgets_its_box_is_refused(spec):
    limits = action_constraints(spec)

    def forgetful(constraints, context, action):
        applied, report = filter_action(constraints, context, action)
        return applied + 1000, report

    with pytest.raises(RuntimeError, match="action in the box"):
        fast_math_self_test(forgetful, limits)
