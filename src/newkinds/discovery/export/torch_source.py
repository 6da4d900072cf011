"""A graph of torch operations as Python source that people can read, and the tensors it needs by their names."""

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from ...errors import NewkindsError

# operations that check or only hand their argument on, in a model that does not train
CHECKS = ("aten._assert_tensor_metadata", "aten.promote_types", "aten._assert_scalar", "aten.sym_constrain_range")
HANDED_ON = ("aten.detach", "aten.detach_", "aten.alias", "aten.lift_fresh_copy")
OPERATORS = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.mod: "%",
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip


def write_out(program: ExportedProgram, images: str = "images") -> tuple[list[str], dict[str, Tensor]]:
    """The lines of a function body that ends with its `return`, and the tensors that it finds in `weights`.

    Values are forgotten after their last use, as they would be in a module: a batch needs no more memory than there.
    """
    return _Writer(program, images).written()


class _Writer:
    def __init__(self, program: ExportedProgram, images: str) -> None:
        self.program = program
        self.images = images
        self.words: dict[Node, str] = {}  # how each value is called
        self.tensors: dict[str, Tensor] = {}
        self.lines: list[str] = []
        self.inputs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}

    def written(self) -> tuple[list[str], dict[str, Tensor]]:
        *nodes, output = self.program.graph.nodes
        live = _live(nodes, output)
        kept = [node for node in nodes if node in live and not self._left_out(node)]
        last = self._last_uses(kept, output)
        where = None
        for node in kept:
            if (inside := _module_of(node)) and inside != where:
                where = inside
                self.lines.append(f"# {inside}")
            self.words[node] = node.name
            gone = [self.words[value] for value in last.get(node, ())]
            self.lines.append(f"{node.name} = {self._call(node)}" + (f"; del {', '.join(gone)}" if gone else ""))
        self.lines.append(f"return {', '.join(self._word(value) for value in output.args[0])}")
        return self.lines, self.tensors

    def _left_out(self, node: Node) -> bool:
        """Inputs have their words already, and what is handed on is called as before."""
        if node.op == "placeholder":
            spec = self.inputs[node.name]
            if spec.kind == InputKind.USER_INPUT:
                self.words[node] = self.images
            else:
                name = str(spec.target).removeprefix("model.")
                state = self.program.state_dict | self.program.constants
                self.tensors[name] = state[str(spec.target)].detach().clone().contiguous()
                self.words[node] = f"weights[{name!r}]"
            return True
        if node.op != "call_function":
            raise NewkindsError(f"this model cannot be written out as torch code: it has an own part ({node.op}).")
        operation, first = _operation(node), node.args[0] if node.args else None
        same_type = operation == "aten.to" and _dtype(first) == _dtype(node) and len(node.args) == 2
        asleep = operation == "aten.dropout" and not node.args[2]
        if isinstance(first, Node) and (operation in HANDED_ON or same_type or asleep):
            self.words[node] = self.words.get(first, first.name)
            return True
        return False

    def _last_uses(self, kept: Iterable[Node], output: Node) -> dict[Node, list[Node]]:
        """Each value under the last node that reads it; a value that was handed on counts as the one before."""
        own = {node.name: node for node in kept}
        seen = {self.words.get(node, node.name) for node in output.all_input_nodes}
        last: dict[Node, list[Node]] = {}
        for node in reversed(list(kept)):
            for value in node.all_input_nodes:
                word = self.words.get(value, value.name)
                if word in own and word not in seen:
                    seen.add(word)
                    last.setdefault(node, []).append(own[word])
        return last

    def _call(self, node: Node) -> str:
        target, arguments = node.target, [self._word(argument) for argument in node.args]
        if target is operator.getitem:
            return f"{arguments[0]}[{arguments[1]}]"
        if target in OPERATORS:
            return f" {OPERATORS[target]} ".join(arguments)
        if not isinstance(target, torch._ops.OpOverload):
            raise NewkindsError(f"this model cannot be written out as torch code: it uses {target}.")
        if str(target) == "aten.sym_size.int":
            return f"{arguments[0]}.shape[{arguments[1]}]"
        named = [f"{name}={self._word(value)}" for name, value in node.kwargs.items()]
        namespace, rest = str(target).split(".", 1)
        prefix = "aten" if namespace == "aten" else f"torch.ops.{namespace}"
        return f"{prefix}.{rest.removesuffix('.default')}({', '.join([*arguments, *named])})"

    def _word(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.words[value]
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self._word, value))}]"
        if isinstance(value, torch.device):
            return f"{self.images}.device"  # wherever the images are
        if isinstance(value, float) and not abs(value) < float("inf"):
            return f'float("{value}")'
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.layout, torch.memory_format)):
            return repr(value)
        raise NewkindsError(f"this model cannot be written out as torch code: it holds a {type(value).__name__}.")


def _live(nodes: list[Node], output: Node) -> set[Node]:
    """What the result depends on, and what changes a value in place."""
    live = set(output.all_input_nodes)
    for node in reversed(nodes):
        changes = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        if (node in live or changes) and _operation(node) not in CHECKS:
            live |= {node, *node.all_input_nodes}
    return live


def _operation(node: Node) -> str:
    """Without its overload: aten.add for aten.add.Tensor."""
    return str(node.target).rpartition(".")[0]


def _dtype(value: Any) -> torch.dtype | None:
    return getattr(value.meta.get("val"), "dtype", None) if isinstance(value, Node) else None


def _module_of(node: Node) -> str:
    """The name of the part of the model that computes it, no deeper than a block or layer of the network."""
    stack = [name for name, _ in node.meta.get("nn_module_stack", {}).values() if not name.startswith("_")]
    return ".".join((stack[-1] or "model").removeprefix("model.").split(".")[:5]) if stack else ""
