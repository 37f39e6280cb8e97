"""Text of a SQL92 filter -> Node (RocketMQ: SelectorParser.jj of 5.3.3), parsed by lark.

The grammar is RocketMQ's, with two differences, both at the end of the text: RocketMQ stops where an expression is complete and
ignores what follows (`a = 1 b = 2`, `a = 007`), this parser refuses it; and a comment of one line may end with the text.
Raises FilterIllegal, with the place and a cure. Any thread.
"""
import re
from functools import lru_cache
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args
from lark.exceptions import VisitError

from rmq_store.errors import FilterIllegal
from rmq_store.filter import expression
from rmq_store.filter.expression import Literal, Node, Property, Refused

LENGTH_MAX = 1 << 16                # characters of an expression
KEYWORDS = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"))

GRAMMAR = r"""
start: disjunction
?disjunction: conjunction (OR conjunction)*
?conjunction: equality (AND equality)*
?equality: comparison
    | equality "=" comparison -> equal
    | equality _UNEQUAL comparison -> different
    | equality IS NULL -> is_null
    | equality IS NOT NULL -> is_not_null
?comparison: unary
    | comparison ORDER unary -> ordering
    | comparison BETWEEN unary AND unary -> between
    | comparison NOT BETWEEN unary AND unary -> not_between
    | comparison IN texts -> within
    | comparison NOT IN texts -> not_within
    | comparison (CONTAINS | STARTSWITH | ENDSWITH) TEXT -> search
    | comparison NOT (CONTAINS | STARTSWITH | ENDSWITH) TEXT -> not_search
?unary: primary
    | "+" unary -> positive
    | MINUS unary -> negative
    | NOT unary -> inverse
?primary: DECIMAL -> decimal
    | NUMBER -> number
    | TEXT -> text
    | TRUE -> true
    | FALSE -> false
    | NULL -> null
    | NAME -> name
    | "(" disjunction ")" -> group
texts: "(" TEXT ("," TEXT)* ")"

%declare NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH
_UNEQUAL.5: "<>"
ORDER: ">=" | "<=" | ">" | "<"
MINUS: "-"
DECIMAL.3: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
NUMBER.2: /0|[1-9][0-9]*[lL]?/
TEXT: /'[^']*(?:''[^']*)*'/
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
LINE_COMMENT.4: /--[^\n\r]*/
BLOCK_COMMENT.4: /\/\*.*?\*\//s
BLANK: /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
%ignore BLANK
"""

# What other dialects write, and what to write here.
_SIGNS = {"!=": "write <> for unequal", "==": "write = for equal", "&&": "write AND", "||": "write OR",
          '"': "write text in single quotes, and the name of a property without quotes",
          "`": "write the name of a property without quotes", "/*": "close the comment with */",
          ".": "the name of a property has letters, digits, _ and $ only"}
_WORDS = {"LIKE": "write CONTAINS, STARTSWITH or ENDSWITH with a text", "ESCAPE": "write CONTAINS with a text"}
_NAMES = {"NAME": "a property", "NUMBER": "a number", "DECIMAL": "a number", "TEXT": "a text in single quotes", "LPAR": "(",
          "RPAR": ")", "EQUAL": "=", "_UNEQUAL": "<>", "ORDER": "<, <=, >, >=", "COMMA": ",", "PLUS": "+", "MINUS": "-",
          "$END": "the end"}
STEPS_MAX = 4096                    # of a program (compiler.py)
CALLED_MAX = 256                    # characters before a parenthesis in which the name of a function is looked for
_CALLED = re.compile(r"(?<![\w$])([A-Za-z_$][\w$]*+)\s*+\Z")
_JOINS = re.compile(r"'[^']*(?:'|\Z)|--[^\n\r]*|/\*.*?(?:\*/|\Z)|(?<![\w$])(?:AND|OR|BETWEEN)(?![\w$])",
                    re.DOTALL | re.IGNORECASE | re.ASCII)
_OPENINGS = re.compile(r"--[^\n\r]*|/\*.*?\*/|'(?:[^']|'')*+(?P<end>'?)", re.DOTALL)


def _word(token: Token) -> Token:
    # Reserved in every place and any case, as RocketMQ's tokens are.
    word = token.upper()
    return Token.new_borrow_pos(word, token.value, token) if word in KEYWORDS else token


def _plain(token: Token) -> str:
    return token[1:-1].replace("''", "'")


@v_args(inline=True)
class _Maker(Transformer[Token, Node]):
    """Called by the parser with the parts of each rule, so the depth of an expression costs no stack."""

    def start(self, node: Node) -> Node:
        return expression.condition(node)

    def disjunction(self, *parts: Any) -> Node:
        return expression.chain("OR", parts[::2])

    def conjunction(self, *parts: Any) -> Node:
        return expression.chain("AND", parts[::2])

    def equal(self, left: Node, right: Node) -> Node:
        return expression.equal(left, right)

    def different(self, left: Node, right: Node) -> Node:
        return expression.different(left, right)

    def is_null(self, left: Node, *_: Token) -> Node:
        return expression.is_null(left)

    def is_not_null(self, left: Node, *_: Token) -> Node:
        return expression.inverse(left.at, expression.is_null(left))

    def ordering(self, left: Node, sign: Token, right: Node) -> Node:
        return expression.ordering(str(sign), left, right)

    def between(self, value: Node, _: Token, low: Node, __: Token, high: Node) -> Node:
        return expression.between(value, low, high)

    def not_between(self, value: Node, _: Token, __: Token, low: Node, ___: Token, high: Node) -> Node:
        return expression.not_between(value, low, high)

    def texts(self, *texts: Token) -> Any:
        return [_plain(text) for text in texts]

    def within(self, left: Node, _: Token, texts: list[str]) -> Node:
        return expression.within(left, texts, False)

    def not_within(self, left: Node, _: Token, __: Token, texts: list[str]) -> Node:
        return expression.within(left, texts, True)

    def search(self, left: Node, word: Token, text: Token) -> Node:
        return expression.search(word.upper(), left, _plain(text), False)

    def not_search(self, left: Node, _: Token, word: Token, text: Token) -> Node:
        return expression.search(word.upper(), left, _plain(text), True)

    def positive(self, operand: Node) -> Node:
        return operand

    def negative(self, sign: Token, operand: Node) -> Node:
        return expression.negated(_at(sign), operand)

    def inverse(self, word: Token, operand: Node) -> Node:
        return expression.inverse(_at(word), operand)

    def group(self, node: Node) -> Node:
        return node

    def decimal(self, token: Token) -> Node:
        return expression.decimal(_at(token), token)

    def number(self, token: Token) -> Node:
        return expression.number(_at(token), token)

    def text(self, token: Token) -> Node:
        return Literal(_at(token), 1, "text", _plain(token))

    def true(self, token: Token) -> Node:
        return Literal(_at(token), 1, "boolean", True)

    def false(self, token: Token) -> Node:
        return Literal(_at(token), 1, "boolean", False)

    def null(self, token: Token) -> Node:
        return Literal(_at(token), 1, "null", None)

    def name(self, token: Token) -> Node:
        return Property(_at(token), 1, str(token))


def _at(token: Token) -> int:
    return token.start_pos or 0


@lru_cache(maxsize=1)
def _parser() -> Lark:
    parser = Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_Maker(), lexer_callbacks={"NAME": _word})
    parser.parse("a")       # makes the scanner, which two threads at once must not: one would see names where keywords stand
    return parser


def _unread(sql: str, at: int) -> Refused:
    """For a character that begins no token."""
    for opening in _OPENINGS.finditer(sql):
        if opening["end"] == "":
            return Refused(opening.start(), "a text begins here, and no quote ends it", "close it with ', and write '' for a "
                           "quote within it")
    sign = next((sign for sign in _SIGNS if sql.startswith(sign, at)), "")
    return Refused(at, f"{sign or sql[at]!r} is not part of the language",
                   _SIGNS.get(sign, "remove it; docs/filtering.md lists what there is"))


def _unexpected(sql: str, token: Token, expected: set[str]) -> Refused:
    """For a token in the wrong place."""
    at = len(sql) if token.type == "$END" else _at(token)
    names = sorted({_NAMES.get(name, name) for name in expected})
    wanted = f"one of these can stand here: {'  '.join(names)}"
    if token.type == "$END":
        return Refused(at, "the text ends before the expression does", wanted)
    if token.type == "NAME" and token.upper() in _WORDS:
        return Refused(at, f"{token.upper()} is not part of the language", _WORDS[token.upper()])
    if token.type == "LPAR" and (called := _CALLED.search(sql, max(0, at - CALLED_MAX), at)):
        return Refused(called.start(1), f"the function {called[1][:40]} is unknown", "the language has no functions: put the "
                       "value into a property of the message and compare that")
    if token.type == "EQUAL" and sql[at - 1:at] in ("=", "!"):
        return Refused(at - 1, f"'{sql[at - 1:at + 1]}' is not part of the language", _SIGNS[sql[at - 1:at + 1]])
    return Refused(at, f"{str(token)[:40]!r} is not expected here", wanted)


def _refuse_long(sql: str) -> None:
    # Each AND and each OR, but for the AND of a BETWEEN, makes three steps of the program, beside the first one's. Counting
    # them first spares the parsing of what the compiler refuses.
    steps = 1
    for word in _JOINS.finditer(sql):
        steps += {"AND": 3, "OR": 3, "BETWEEN": -3}.get(word[0].upper(), 0)
        if steps > STEPS_MAX:
            raise too_long(word.start())


def too_long(at: int) -> Refused:
    """The refusal of an expression whose program is too long."""
    return Refused(at, f"the expression needs more than {STEPS_MAX} steps", "split it, or use IN for many texts")


def parse(sql: str) -> Node:
    """The condition that `sql` is. Raises FilterIllegal."""
    try:
        if len(sql) > LENGTH_MAX:
            raise Refused(LENGTH_MAX, f"the expression has {len(sql)} characters, the limit is {LENGTH_MAX}", "shorten it")
        if not sql.isascii() and (bad := re.search("[\ud800-\udfff]", sql)):
            raise Refused(bad.start(), "half of a surrogate pair is not a character", "remove it")
        _refuse_long(sql)
        if not sql.strip(" \t\n\r\f"):
            raise Refused(0, "the expression is empty", "give a condition such as a > 5, or None for all messages")
        return _parser().parse(sql)         # type: ignore[return-value]
    except VisitError as error:
        refused = error.orig_exc
        if not isinstance(refused, Refused):
            raise
    except Refused as error:
        refused = error
    except UnexpectedCharacters as error:
        refused = _unread(sql, error.pos_in_stream or 0)
    except UnexpectedToken as error:
        refused = _unexpected(sql, error.token, error.expected)
    raise FilterIllegal(sql, refused.at, refused.reason, refused.cure)
