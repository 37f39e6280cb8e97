"""Node -> the tables of a program (_program.pxd): steps, names of properties, literals. Any thread.

No step leads backwards, so a program ends after as many steps as it has, and how deep its stack grows is known beforehand."""

from rmq_store.errors import FilterIllegal
from rmq_store.fields import NamedTuple
from rmq_store.filter.expression import (
    Cast,
    Chain,
    Compare,
    In,
    IsNull,
    Literal,
    Negate,
    Negative,
    Node,
    Not,
    Property,
    Refused,
    Search,
)
from rmq_store.filter.grammar import STEPS_MAX, parse, too_long

NAMES_MAX = 64                      # properties that one expression looks at
LITERALS_MAX = 8192

class Operand(NamedTuple):
    kind: str
    place: int


NONE, STACK = Operand("none", 0), Operand("stack", 0)


class Step(NamedTuple):
    """operation: of OPERATIONS in _program.pyx. skip: for a jump the step to continue at; for `in` how many literals there are.
    negated: a true result becomes false, and the other way round."""

    operation: str
    left: Operand = NONE
    right: Operand = NONE
    negated: bool = False
    skip: int = 0


class Tables(NamedTuple):
    steps: list[Step]
    names: list[str]
    literals: list[Literal]
    stack: int


class _Compiler:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.names: dict[str, int] = {}
        self.literals: list[Literal] = []
        self.known: dict[tuple[str, object], int] = {}
        self.depth = self.deepest = 0

    def emit(self, at: int, step: Step, grows: int) -> int:
        """grows: by how much the step changes the stack. Returns the place of the step."""
        if len(self.steps) == STEPS_MAX:
            raise too_long(at)
        self.steps.append(step)
        self.depth += grows
        self.deepest = max(self.deepest, self.depth)
        return len(self.steps) - 1

    def land(self, place: int) -> None:
        """The jump at `place` leads behind all steps so far."""
        self.steps[place] = self.steps[place]._replace(skip=len(self.steps))

    def literal(self, literal: Literal) -> Operand:
        key = literal.kind, literal.value
        if key not in self.known:
            self.known[key] = self._store([literal])
        return Operand("literal", self.known[key])

    def _store(self, literals: list[Literal]) -> int:
        if len(self.literals) + len(literals) > LITERALS_MAX:
            raise Refused(literals[0].at, f"the expression has more than {LITERALS_MAX} literals", "split it")
        self.literals += literals
        return len(self.literals) - len(literals)

    def value(self, node: Node) -> Operand:
        """Where the value of a part is when the steps so far are done."""
        if isinstance(node, Property):
            if node.name not in self.names and len(self.names) == NAMES_MAX:
                raise Refused(node.at, f"the expression looks at more than {NAMES_MAX} properties", "split it")
            return Operand("property", self.names.setdefault(node.name, len(self.names)))
        if isinstance(node, Literal):
            return self.literal(node)
        if isinstance(node, Negative):
            return self.literal(node.literal)
        if isinstance(node, Negate):
            if self.value(node.operand) == STACK:       # what has a sign is null, but its evaluation may fail
                self.emit(node.at, Step("forget"), 0)
                return STACK
            return self.literal(Literal(node.at, 1, "null", None))
        self.condition(node)
        return STACK

    def condition(self, node: Node) -> None:
        """Steps that leave the truth of a condition on the stack."""
        if isinstance(node, Chain):
            self._chain(node)
        elif isinstance(node, Compare):
            self._compare(node)
        elif isinstance(node, Not):
            self.condition(node.operand)
            self.emit(node.at, Step("not"), 0)
        elif isinstance(node, Cast):
            self.emit(node.at, Step("cast", self.value(node.name)), 1)
        elif isinstance(node, IsNull):
            self._unary(node.at, "is null", node.operand)
        elif isinstance(node, Search):
            self._search(node)
        elif isinstance(node, In):
            self._in(node)
        else:
            self.emit(node.at, Step("push", self.value(node)), 1)

    def _unary(self, at: int, operation: str, operand: Node, right: Operand = NONE, negated: bool = False) -> None:
        left = self.value(operand)
        self.emit(at, Step(operation, left, right, negated), 0 if left == STACK else 1)

    def _chain(self, node: Chain) -> None:
        skip = "skip if false" if node.word == "AND" else "skip if true"
        self.condition(node.parts[0])
        jumps = []
        for part in node.parts[1:]:
            jumps.append(self.emit(part.at, Step(skip), 0))
            self.condition(part)
            self.emit(part.at, Step(node.word.lower()), -1)
        for place in jumps:
            self.land(place)

    def _compare(self, node: Compare) -> None:
        left = self.value(node.left)
        jump = None
        if node.sign != "=" and left != STACK:
            # A comparison of order with null on its left is null, whatever the right side is: that is not evaluated.
            before = len(self.steps)
            jump = self.emit(node.at, Step("skip if null", left), 0)
            right = self.value(node.right)
            if right != STACK:
                del self.steps[before:]
                jump = None
        elif node.sign != "=":
            return                      # only null can be there, and it stays
        else:
            right = self.value(node.right)
        grows = 1 - (left == STACK) - (right == STACK)
        self.emit(node.at, Step(node.sign, left, right), grows)
        if jump is not None:
            self.land(jump)

    def _search(self, node: Search) -> None:
        if not node.text:               # RocketMQ evaluates nothing then
            self.emit(node.at, Step("push", self.literal(Literal(node.at, 1, "boolean", False))), 1)
            return
        text = self.literal(Literal(node.at, 1, "text", node.text))
        self._unary(node.at, node.word.lower(), node.operand, text, node.negated)

    def _in(self, node: In) -> None:
        # Sorted as the program searches them: shorter ones first, then by their bytes.
        texts = sorted(set(node.texts), key=lambda text: (len(text.encode()), text.encode()))
        first = self._store([Literal(node.at, 1, "text", text) for text in texts])
        self.emit(node.at, Step("in", self.value(node.name), Operand("literal", first), node.negated, len(texts)), 1)


def tables(sql: str) -> Tables:
    """The program of an expression. Raises FilterIllegal."""
    compiler = _Compiler()
    try:
        compiler.condition(parse(sql))
    except Refused as error:
        raise FilterIllegal(sql, error.at, error.reason, error.cure) from None
    return Tables(compiler.steps, list(compiler.names), compiler.literals, compiler.deepest)
