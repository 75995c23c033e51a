"""Everything that is wrong with a document, as the compilers, lint and the validators of the project say it, and fixes.

`diagnose` is a function of a workspace at one moment: it reads files that the editor does not have open, and nothing
else. A broken document of any kind gives findings and never an exception. `fixes` are edits that remedy findings: what
a compiler suggests, a missing parameter, and the canonical layout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml
from msgspec import Struct
from msgspec.structs import replace

from omnigraph.cluster.configuration import config_document, parse_root, shape_finding, survey_root
from omnigraph.cluster.desired import load_desired
from omnigraph.cluster.resources import ClusterError
from omnigraph.cluster.resources import Diagnostic as ClusterFinding
from omnigraph.cluster.resources import Severity as ClusterSeverity
from omnigraph.editor.documents import YAML_SUFFIXES, Document, Edit, Kind, Problem, first_line, minimal_edits
from omnigraph.editor.projects import Choice, Workspace
from omnigraph.editor.query_symbols import QueryIndex
from omnigraph.editor.schema_symbols import SchemaIndex
from omnigraph.editor.yaml_files import entries, read_root, text_of
from omnigraph.errors import CompileError, OmniGraphError
from omnigraph.language.catalog import Catalog
from omnigraph.language.lint import HARD_CODED
from omnigraph.language.lint_rules import Severity, query_findings
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.compile import CompiledQuery
from omnigraph.language.query.formatter import format_queries
from omnigraph.language.query.parser import DEFAULT_LIMITS, parse_recovering, statement_refusal
from omnigraph.language.query.value_types import ValueType
from omnigraph.language.schema.formatter import format_schema
from omnigraph.language.source import Name, SourceText, SyntaxNode, TextSpan
from omnigraph.language.types import PropertyType
from omnigraph.pipeline.file import check_against, read_check, read_pipeline
from omnigraph.policy.bundle import align, read_bundle
from omnigraph.policy.explanation import read_cases
from omnigraph.policy.visibility import resolve_restrictions
from omnigraph.yaml_documents import Value

NO_SCHEMA: Final = "no-schema"
SEVERAL_SCHEMAS: Final = "several-schemas"
BROKEN_SCHEMA: Final = "broken-schema"
UNREADABLE_SCHEMA: Final = "unreadable-schema"
HARD_CODED_MUTATION: Final = "hard-coded"
CLUSTER_FILES: Final = "cluster-files"
HOW_TO_CHOOSE: Final = "name it in a comment at the top, `// schema: PATH`, or in the setting omnigraph.schema"


def diagnose(workspace: Workspace, document: Document) -> tuple[Problem, ...]:
    """The findings about a document in their order in the text; none about a file of something else."""
    if document.kind is None:
        return ()
    problems = _DIAGNOSES[document.kind](workspace, document)
    return tuple(sorted(problems, key=lambda problem: problem.at.start))


def _compile_problems(document: Document, error: CompileError) -> list[Problem]:
    problems = [document.problem(diagnostic) for diagnostic in error.diagnostics]
    if document.path.suffix not in YAML_SUFFIXES or (root := read_root(document.text)) is None:
        return problems
    keys = dict(_keys_of_collections(root))
    spans = ((problem, keys.get((problem.at.start, problem.at.end))) for problem in problems)
    return [problem if at is None else replace(problem, at=at) for problem, at in spans]


def _keys_of_collections(value: Value) -> Iterator[tuple[tuple[int, int], TextSpan]]:
    """The positions of all mappings and lists below a value, each with that of its key: a finding about a whole block
    is shown at the key."""
    waiting = [value]
    seen: set[int] = set()  # an alias may lead back to its anchor
    while waiting:
        each = waiting.pop()
        if id(each.node) in seen:
            continue
        seen.add(id(each.node))
        for key, member in entries(each):
            if not isinstance(member.node, yaml.ScalarNode):
                yield (member.at.start, member.at.end), key.at
            waiting.append(member)
        waiting += each.items() if each.is_list else []


# ---- schemas and queries --------------------------------------------------------------------------------


def _schema(workspace: Workspace, document: Document) -> Iterator[Problem]:
    schema = workspace.schema(document.path)
    for diagnostic in schema.diagnostics if schema is not None else ():
        yield document.problem(diagnostic)


def _queries(workspace: Workspace, document: Document) -> Iterator[Problem]:
    path, text = str(document.path), document.text
    try:
        file, broken = parse_recovering(text, path)
        if file.statement is not None:
            raise statement_refusal(text, path)
    except CompileError as error:
        yield from _compile_problems(document, error)
        return
    for diagnostic in broken:
        yield document.problem(diagnostic)
    choice = workspace.choose_schema(document)
    schema = workspace.schema(choice.schema)
    if schema is None or schema.catalog is None:
        yield _schema_note(document, choice, schema)
        return
    source = SourceText(text, path)
    for syntax in file.queries:
        query = CompiledQuery(syntax, schema.catalog, source, DEFAULT_LIMITS)
        try:
            _ = query.operation
        except CompileError as error:
            yield from _compile_problems(document, error)
            continue
        if query.is_mutation and not syntax.parameters:
            yield Problem(syntax.name.at, "warning", HARD_CODED_MUTATION, HARD_CODED)
        for finding, at in query_findings(query):
            yield Problem(at, finding.severity, finding.code, finding.message)


def _schema_note(document: Document, choice: Choice, schema: SchemaIndex | None) -> Problem:
    """Why the queries of a file are not checked against a schema."""
    at = first_line(document.text)
    if schema is not None:
        count = len(schema.diagnostics)
        mistakes = "a mistake" if count == 1 else f"{count} mistakes"
        message = f"the queries are not checked: {schema.path.name} has {mistakes}"
        return Problem(at, "info", BROKEN_SCHEMA, message, "correct the schema first")
    if choice.schema is not None:
        message = f"the queries are not checked: {choice.origin} names '{choice.schema}', which can't be read"
        return Problem(at, "error", UNREADABLE_SCHEMA, message, "correct the path, or create the file")
    if choice.schemas:
        names = ", ".join(path.name for path in choice.schemas)
        message = f"the queries are not checked: several schemas fit ({names}, by {choice.origin})"
        return Problem(at, "info", SEVERAL_SCHEMAS, message, HOW_TO_CHOOSE)
    message = "the queries are not checked: no schema belongs to this file"
    return Problem(at, "info", NO_SCHEMA, message, HOW_TO_CHOOSE)


# ---- pipelines and policies -----------------------------------------------------------------------------


def _pipeline(workspace: Workspace, document: Document) -> Iterator[Problem]:
    try:
        pipeline = read_pipeline(document.text, path=str(document.path), directory=str(document.path.parent))
        schema = workspace.schema(workspace.choose_schema(document).schema)
        if schema is not None and schema.catalog is not None:
            check_against(pipeline, schema.catalog)
    except CompileError as error:
        yield from _compile_problems(document, error)


def _policy(workspace: Workspace, document: Document) -> Iterator[Problem]:
    try:
        bundle = read_bundle(document.text, str(document.path))
        owner = workspace.cluster_of(document)
        if owner is not None and (scope := owner[1].scope(document)) is not None:
            align(bundle, scope)
    except CompileError as error:
        yield from _compile_problems(document, error)
        return
    choice = workspace.choose_schema(document)
    problems: dict[tuple[int, str], Problem] = {}
    # The folder of a policy without a cluster may hold schemas that it is not about.
    for path in choice.schemas if owner is not None or choice.schema is not None else ():
        catalog = _catalog(workspace, path)
        if catalog is None:
            continue
        try:
            resolve_restrictions(bundle, catalog)
        except CompileError as error:
            problems |= {(each.at.start, each.message): each for each in _compile_problems(document, error)}
    yield from problems.values()


def _catalog(workspace: Workspace, path: Path) -> Catalog | None:
    schema = workspace.schema(path)
    return None if schema is None else schema.catalog


def _policy_tests(workspace: Workspace, document: Document) -> Iterator[Problem]:
    try:
        read_cases(document.text, str(document.path))
    except CompileError as error:
        yield from _compile_problems(document, error)


# ---- clusters -------------------------------------------------------------------------------------------


def _cluster(workspace: Workspace, document: Document) -> Iterator[Problem]:
    """The mistakes of the text at their places, then those of the files it names, each at the key that names it. Files
    are read as they are on the disk, as every command of a cluster does."""
    try:
        config_document(document.text).root()
        root = parse_root(document.text)
    except CompileError as error:
        yield from _compile_problems(document, error)
        return
    except ClusterError as error:
        yield from (_finding(document, None, finding) for finding in error.diagnostics)
        return
    file = survey_root(document.path.parent, root)
    yield from (document.problem(finding.diagnostic) for finding in root.document.findings)
    shapes = {shape_finding(finding) for finding in root.document.findings}
    try:
        findings = load_desired(file, read_check).findings
    except OmniGraphError as error:
        yield Problem(first_line(document.text), "error", CLUSTER_FILES, str(error))
        return
    yield from (_finding(document, root, finding) for finding in findings if finding not in shapes)


def _finding(document: Document, root: Value | None, finding: ClusterFinding) -> Problem:
    at = None if root is None else locate(root, finding.path)
    return Problem(at or first_line(document.text), _SEVERITIES[finding.severity], finding.code, finding.message)


_SEVERITIES: Final[Mapping[ClusterSeverity, Severity]] = {
    ClusterSeverity.ERROR: "error",
    ClusterSeverity.WARNING: "warning",
}
_INDEX: Final = re.compile(r"(.*)\[(\d+)\]")


def locate(root: Value, path: str) -> TextSpan | None:
    """The position of a dotted key of a configuration, or of the deepest part of it that is written: a single value
    itself, of a mapping or a list its key."""
    value, at = root, None
    for step in path.split("."):
        match = _INDEX.fullmatch(step)
        name = step if match is None else match[1]
        member = next((entry for entry in entries(value) if text_of(entry[0]) == name), None)
        if member is None:
            return at
        key, value = member
        if match is not None and value.is_list and int(match[2]) < len(items := value.items()):
            value = items[int(match[2])]
            at = value.at
        else:
            at = key.at if value.is_mapping or value.is_list or value.is_empty else value.at
    return at


_DIAGNOSES: Final[Mapping[Kind, Callable[[Workspace, Document], Iterator[Problem]]]] = {
    Kind.SCHEMA: _schema,
    Kind.QUERIES: _queries,
    Kind.PIPELINE: _pipeline,
    Kind.POLICY: _policy,
    Kind.POLICY_TESTS: _policy_tests,
    Kind.CLUSTER: _cluster,
}


# ---- fixes ----------------------------------------------------------------------------------------------

_MEANT: Final = re.compile(r"did you mean '([^']+)'\?")
_QUOTED: Final = re.compile(r"'([^']+)'")
_WRITE: Final = re.compile(r"write (\{\d+,\d*\}|\$[a-z_]\w*)")
_UNDECLARED: Final = frozenset({"T6", "T14", "T110"})


class Fix(Struct, frozen=True):
    """Edits of a document that remedy a problem; without a problem, an action on the whole document."""

    title: str
    edits: tuple[Edit, ...]
    problem: Problem | None = None
    is_preferred: bool = False


def fixes(
    workspace: Workspace, document: Document, problems: Iterable[Problem], start: int, end: int
) -> tuple[Fix, ...]:
    """The fixes for the problems that touch a part of a document."""
    offered: list[Fix] = []
    for problem in problems:
        if problem.at.start <= end and start <= problem.at.end:
            offered += _replacements(document, problem)
            if document.kind is Kind.QUERIES and problem.code in _UNDECLARED:
                offered += _declarations(workspace, document, problem)
    if formatted := format_document(document):
        offered.append(Fix("Format the file", formatted))
    return tuple(offered)


def _replacements(document: Document, problem: Problem) -> Iterator[Fix]:
    suggestion = problem.suggestion or ""
    at = problem.at
    written = document.text[at.start : at.end]
    if (meant := _MEANT.search(suggestion)) is not None:
        name = meant[1]
        place = _missed_name(written, at, problem.message)
        if place is not None:
            yield Fix(f"Replace by '{name}'", (Edit(place, name),), problem, is_preferred=True)
    elif (literal := _WRITE.fullmatch(suggestion)) is not None and written[:1] == literal[1][:1]:
        yield Fix(f"Write {literal[1]}", (Edit(at, literal[1]),), problem, is_preferred=True)


def _missed_name(written: str, at: TextSpan, message: str) -> TextSpan | None:
    """Where the name is that a suggestion replaces: the whole position of the problem, or the only place in it of a
    word that the message quotes."""
    if re.fullmatch(r"[@$]?[\w.-]+", written):
        return at
    for name in _QUOTED.findall(message):
        places = list(re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", written))
        if len(places) == 1:
            return TextSpan(at.start + places[0].start(), at.start + places[0].end())
    return None


# ---- parameters -----------------------------------------------------------------------------------------


def _declarations(workspace: Workspace, document: Document, problem: Problem) -> Iterator[Fix]:
    """Declare the variable of a problem as a parameter, with the type that its place asks for."""
    written = document.text[problem.at.start : problem.at.end]
    index = workspace.queries(document)
    query = index.query_at(problem.at.start)
    if query is None or re.fullmatch(r"\$[a-z_]\w*", written) is None:
        return
    if problem.code == "T6" and not _is_value(query, problem.at):
        return
    type_ = "I64" if problem.code == "T110" else _expected_type(index, query, problem.at) or "String"
    opening = document.text.index("(", query.name.at.end)
    end = query.parameters[-1].at.end if query.parameters else opening + 1
    separator = ", " if query.parameters else ""
    edit = Edit(TextSpan(end, end), f"{separator}{written}: {type_}")
    yield Fix(f"Declare the parameter {written}: {type_}", (edit,), problem)


def _nodes(tree: SyntaxNode) -> Iterator[SyntaxNode]:
    waiting: list[object] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif isinstance(part, SyntaxNode) and not isinstance(part, Name):
            yield part
            waiting += [getattr(part, name) for name in part.__struct_fields__]


def _spans(at: TextSpan, other: TextSpan) -> bool:
    return (at.start, at.end) == (other.start, other.end)


def _is_value(query: ast.Query, at: TextSpan) -> bool:
    """Whether a variable is a value, and not what has a property or an end of a traversal."""
    inner = [part.variable for part in _nodes(query) if isinstance(part, ast.PropertyAccess | ast.MetaAccess)]
    return not any(variable is not None and _spans(variable.at, at) for variable in inner)


def _expected_type(index: QueryIndex, query: ast.Query, at: TextSpan) -> str | None:
    """The type of what a variable is compared with or assigned to."""
    for part in _nodes(query):
        if isinstance(part, ast.Pin | ast.Assignment) and _spans(part.value.at, at):
            return _property_type(index, part.property)
        if isinstance(part, ast.Compare):
            for one, other in ((part.left, part.right), (part.right, part.left)):
                if _spans(one.at, at):
                    name = Name(other.name, at=other.at) if isinstance(other, ast.Alias) else None
                    return _spell(index.notes.at(other.at)) or (_property_type(index, name) if name else None)
    return None


def _property_type(index: QueryIndex, name: Name) -> str | None:
    occurrence = next((each for each in index.occurrences if _spans(each.at, name.at)), None)
    types = [*index.catalog.types()] if index.catalog is not None else []
    for owner in occurrence.owners if occurrence is not None else ():
        for type_ in types:
            if type_.type_key == owner and (prop := type_.properties.get(name.text)) is not None:
                return _spell(prop.type)
    return None


def _spell(type_: ValueType | None) -> str | None:
    """A type as a parameter declares it; an enum is a text there."""
    if not isinstance(type_, PropertyType):
        return None
    return str(PropertyType(type_.scalar, list=type_.list, dimension=type_.dimension))


# ---- layout ---------------------------------------------------------------------------------------------


def format_document(document: Document) -> tuple[Edit, ...]:
    """The edits to the canonical layout; none for a text that has it, does not parse or has none."""
    if document.kind is Kind.SCHEMA:
        layout = format_schema
    elif document.kind is Kind.QUERIES:
        layout = format_queries
    else:
        return ()
    try:
        return minimal_edits(document.text, layout(document.text, str(document.path)))
    except CompileError:
        return ()
