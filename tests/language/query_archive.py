"""The schema that the query tests speak about, and short ways to ask what a query means under it."""

from __future__ import annotations

from functools import cache

from omnigraph.errors import CompileError, Diagnostic
from omnigraph.language.catalog import Catalog
from omnigraph.language.query import ir
from omnigraph.language.query.compile import CompiledQuery, compile_queries
from omnigraph.language.schema.compile import compile_schema

SCHEMA = """
interface Named { name: String @index }

node Person implements Named {
    handle: String @key
    email: String? @unique
    age: I32?
    karma: F64?
    active: Bool?
    born: Date?
    seen: DateTime?
    aliases: [String]?
    photo: Blob?
}

node Paper {
    doi: String @key
    title: String
    abstract: String? @index
    state: enum(draft, final, withdrawn)
    pages: I32?
    price: F64?
    big: U64?
    added: DateTime?
    keywords: [String]?
    ratings: [I32]?
    weights: [F64]?
    moments: [DateTime]?
    scan: Blob?
    vec: Vector(4)? @embed("abstract")
}

node Slot { room: String  hour: I32  label: String?  @key(room, hour) }

node Note { body: String?  gist: Vector(2) @embed("body")  tag: String? }

node Memo { text: String  topic: Vector(3) @embed("text") }

edge Wrote: Person -> Paper { on: Date?  note: String?  share: F64?  receipt: Blob? }
edge Cites: Paper -> Paper { weight: F64? }
edge Knows: Person -> Person { since: Date? }
edge Contains: Paper -> Paper
edge Reserved: Person -> Slot { at: DateTime }
edge Memo: Person -> Paper
"""


@cache
def catalog() -> Catalog:
    return compile_schema(SCHEMA)


def compiled(text: str, name: str | None = None) -> CompiledQuery:
    return compile_queries(text, catalog()).query(name)


def read(match: str, returns: str = "1 as one", tail: str = "", params: str = "") -> str:
    """A read query of these parts."""
    return f"query q({params}) {{ match {{ {match} }} return {{ {returns} }} {tail} }}"


def write(statements: str, params: str = "") -> str:
    return f"query q({params}) {{ {statements} }}"


def findings(text: str) -> tuple[Diagnostic, ...]:
    """Every type error of the only query in a text."""
    try:
        _ = compiled(text).resolved
    except CompileError as error:
        return error.diagnostics
    return ()


def refusals(text: str) -> tuple[Diagnostic, ...]:
    """What stands in the way of running a query that typechecks."""
    query = compiled(text)
    _ = query.resolved
    try:
        _ = query.plan
    except CompileError as error:
        return error.diagnostics
    return ()


def tree(text: str) -> ir.ReadOperator:
    return compiled(text).read_plan.root


def statements(text: str) -> tuple[ir.WriteStatement, ...]:
    return compiled(text).write_plan.statements
