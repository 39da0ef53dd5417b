"""The policy as ONNX (extra ``onnx``), for other runtimes and without its guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neorl_deploy._errors import DeployError, needs
from neorl_deploy.bundle._manifest import PARITY_TOLERANCE, ArrayEntry
from neorl_deploy.bundle._test_vectors import relative_difference
from neorl_deploy.export._numpy_form import NoSuchOperationError, operation_list
from neorl_deploy.export._read import entries
from neorl_deploy.runtime._operations import Operation, Operations

if TYPE_CHECKING:
    from neorl_agents import PolicyArtefact

OPSET, IR_VERSION = 18, 9
"""Released in 2023, so that older runtimes can read the model."""

DESCRIPTION = (
    "The policy alone: one observation in physical units to one action, clipped to the range of "
    "the actuators. Without the guard of the bundle: no rate limit, no monitor, no fallback, NaN "
    "passes."
)

SAME_NAME = {
    "abs": "Abs",
    "add": "Add",
    "ceil": "Ceil",
    "cos": "Cos",
    "div": "Div",
    "dot": "MatMul",
    "eq": "Equal",
    "exp": "Exp",
    "floor": "Floor",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "log": "Log",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Max",
    "min": "Min",
    "mul": "Mul",
    "neg": "Neg",
    "pow": "Pow",
    "sign": "Sign",
    "sin": "Sin",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tanh": "Tanh",
}
OF_BOOLEANS = {"and": "And", "or": "Or", "not": "Not", "xor": "Xor"}
REDUCED = {"reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_sum": "ReduceSum"}


def policy_onnx(candidate: PolicyArtefact) -> bytes:
    """A memoryless policy as an ONNX model, ``obs`` to ``action``, both in physical units.

    ONNX's own evaluator checks its answers to the artefact's observations.

    Raises:
        DeployError: If the policy has memory, contains an operation that is not translated, differs
            from its translation by more than 1e-6 of a channel's size, or the extra ``onnx`` is not
            installed.
    """
    import jax

    with needs("an export to ONNX", "onnx"):
        import onnx
        from onnx.reference import ReferenceEvaluator
    policy: Any = candidate.policy
    carry = policy.initial_carry()
    if jax.tree.leaves(carry):
        raise DeployError("this policy remembers past steps; its ONNX form is not written")
    obs, action = entries(candidate.spec.obs), entries(candidate.spec.action)
    try:
        steps = operation_list(
            lambda row: (policy(carry, row, None)[1],), [ArrayEntry("obs", (len(obs),), "float32")]
        )
        model = _model(onnx, steps, len(action), candidate.kind)
    except NoSuchOperationError as error:
        raise DeployError(f"this policy has no ONNX form: it holds {error}") from error
    onnx.checker.check_model(model)
    evaluator = ReferenceEvaluator(model)
    inputs = np.asarray(candidate.parity_obs, np.float32)
    answers = np.concatenate([[*evaluator.run(None, {"obs": row})] for row in inputs])
    difference = relative_difference(action, answers, candidate.parity_actions)
    if not difference <= PARITY_TOLERANCE:
        raise DeployError(
            f"the ONNX form of the policy differs from it by {difference:.1e} of a channel's size; "
            f"{PARITY_TOLERANCE:.0e} is allowed, export without it"
        )
    return model.SerializeToString()


def _model(onnx: Any, listed_steps: Operations, width: int, kind: str) -> Any:
    graph = _Graph(onnx, listed_steps)
    for at, operation in enumerate(
        listed_steps.operations, len(listed_steps.inputs) + len(listed_steps.constants)
    ):
        graph.translate(f"v{at}", operation)
    graph.node("Identity", [graph.name(listed_steps.outputs[0])], "action")
    float_type, (entry,) = onnx.TensorProto.FLOAT, listed_steps.inputs
    body = onnx.helper.make_graph(
        graph.nodes,
        f"neorl_{kind.replace('-', '_')}",
        [onnx.helper.make_tensor_value_info("obs", float_type, list(entry.shape))],
        [onnx.helper.make_tensor_value_info("action", float_type, [width])],
        graph.constants,
        doc_string=DESCRIPTION,
    )
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(body, opset_imports=[opset], producer_name="neorl-deploy")
    model.ir_version = IR_VERSION
    return model


class _Graph:
    """Nodes and constants of a model under construction."""

    def __init__(self, onnx: Any, steps: Operations) -> None:
        self._onnx, self.nodes, self.constants = onnx, [], []
        self._begin = len(steps.inputs)
        self._types = ["float32", *(c.dtype.name for c in steps.constants)]
        self._types += [operation.dtype for operation in steps.operations]
        for i, constant in enumerate(steps.constants, self._begin):
            self.constants.append(onnx.numpy_helper.from_array(constant, f"v{i}"))

    def name(self, number: int) -> str:
        """Name of the value with a given number."""
        return "obs" if number < self._begin else f"v{number}"

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Adds a node and returns the name of its output."""
        node = self._onnx.helper.make_node(kind, inputs, [output], **attributes)
        self.nodes.append(node)
        return output

    def held(self, name: str, values: Any) -> str:
        """Adds a constant and returns its name."""
        self.constants.append(self._onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def translate(self, out: str, operation: Operation) -> None:
        """Adds the nodes of an operation; an unknown one is a :class:`NoSuchOperationError`."""
        inputs = [self.name(number) for number in operation.inputs]
        booleans = bool(operation.inputs) and self._types[operation.inputs[0]] == "bool"
        if operation.name in SAME_NAME:
            self.node(SAME_NAME[operation.name], inputs, out)
        elif operation.name in OF_BOOLEANS and booleans:
            self.node(OF_BOOLEANS[operation.name], inputs, out)
        elif operation.name in REDUCED:
            axes = self.held(f"{out}_axes", np.array(operation.settings["axes"], np.int64))
            self.node(REDUCED[operation.name], [*inputs, axes], out, keepdims=0)
        elif operation.name in COMPOSED and (booleans or operation.name != "select_n"):
            COMPOSED[operation.name](self, inputs, out, operation)
        else:
            raise NoSuchOperationError(f"the operation {operation.name}, which is not translated")


def _not_equal(graph: _Graph, inputs: list[str], out: str, _: Operation) -> None:
    graph.node("Not", [graph.node("Equal", inputs, f"{out}_equal")], out)


def _square(graph: _Graph, inputs: list[str], out: str, _: Operation) -> None:
    graph.node("Mul", inputs * 2, out)


def _rsqrt(graph: _Graph, inputs: list[str], out: str, _: Operation) -> None:
    graph.node("Reciprocal", [graph.node("Sqrt", inputs, f"{out}_root")], out)


def _power(graph: _Graph, inputs: list[str], out: str, operation: Operation) -> None:
    power = graph.held(f"{out}_power", np.float32(operation.settings["power"]))
    graph.node("Pow", [*inputs, power], out)


def _where(graph: _Graph, inputs: list[str], out: str, _: Operation) -> None:
    graph.node("Where", [inputs[0], inputs[2], inputs[1]], out)


def _is_finite(graph: _Graph, inputs: list[str], out: str, _: Operation) -> None:
    odd = [graph.node(kind, inputs, f"{out}_{kind}") for kind in ("IsNaN", "IsInf")]
    graph.node("Not", [graph.node("Or", odd, f"{out}_odd")], out)


def _cast(graph: _Graph, inputs: list[str], out: str, operation: Operation) -> None:
    import onnx

    graph.node(
        "Cast", inputs, out, to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(operation.dtype))
    )


def _reshape(graph: _Graph, inputs: list[str], out: str, operation: Operation) -> None:
    shape = graph.held(f"{out}_shape", np.array(operation.shape, np.int64))
    graph.node("Reshape", [*inputs, shape], out)


def _transpose(graph: _Graph, inputs: list[str], out: str, operation: Operation) -> None:
    graph.node("Transpose", inputs, out, perm=operation.settings["axes"])


def _concatenate(graph: _Graph, inputs: list[str], out: str, operation: Operation) -> None:
    graph.node("Concat", inputs, out, axis=operation.settings["axis"])


def _slice(graph: _Graph, inputs: list[str], out: str, operation: Operation) -> None:
    parts = {**operation.settings, "axes": range(len(operation.shape))}
    ends = [
        graph.held(f"{out}_{part}", np.array(parts[part], np.int64))
        for part in ("start", "stop", "axes", "step")
    ]
    graph.node("Slice", [*inputs, *ends], out)


COMPOSED = {
    "concatenate": _concatenate,
    "convert": _cast,
    "integer_pow": _power,
    "is_finite": _is_finite,
    "ne": _not_equal,
    "reshape": _reshape,
    "rsqrt": _rsqrt,
    "select_n": _where,
    "slice": _slice,
    "square": _square,
    "transpose": _transpose,
}
"""Operations that become several ONNX nodes, or that need their settings."""
