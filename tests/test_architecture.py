"""The shape of the code base, enforced: import arrows, one owner of Lance, domain names, cheap start."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

import pytest

pytestmark = pytest.mark.xdist_group("sources")  # all of them are parsed once

SOURCE = Path(__file__).resolve().parents[1] / "src" / "omnigraph"

MAY_IMPORT: dict[str, set[str]] = {
    "api": set(),
    "language": {"api"},
    "storage": {"language", "api"},
    "engine": {"storage", "language", "api"},
    "codegen": {"language", "api"},
    "embeddings": {"language", "api"},
    "policy": {"language", "api"},
    "pipeline": {"engine", "embeddings", "storage", "language", "api"},
    "cluster": {"engine", "policy", "embeddings", "storage", "language", "api"},
    "server": {"cluster", "engine", "policy", "api", "language", "mcp", "graph", "local", "sources"},
    "client": {"api"},
    "mcp": {"language", "api"},
    "editor": {"cluster", "policy", "pipeline", "language", "api"},
}
"""Who may import whom, whether at the top, in a function or for its types only. The CLI may import everybody, and
everybody `omnigraph.errors`."""

ANYWHERE = {"errors", "dates", "process", "yaml_documents", "__version__"}
LANCE_OWNER = "storage/tables"
MOVES_AN_ATTACHED_HEAD = {
    "cleanup_old_versions",
    "compact_files",
    "optimize_indices",
    "create_index",
    "create_scalar_index",
    "add_columns",
    "restore",
    "create_branch",
}


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    return tuple((path.relative_to(SOURCE), ast.parse(path.read_text())) for path in sorted(SOURCE.rglob("*.py")))


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that the arrows can be read"
            if node.module == "omnigraph":
                yield from (f"omnigraph.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def test_imports_only_go_down_the_layers() -> None:
    strays = []
    for path, tree in modules():
        layer = path.parts[0]
        if layer not in MAY_IMPORT:
            continue
        for name in imported(tree):
            parts = name.split(".")
            if parts[0] == "omnigraph" and len(parts) > 1 and parts[1] not in {layer, *ANYWHERE, *MAY_IMPORT[layer]}:
                strays.append(f"{path} imports {name}")
    assert strays == []


def test_every_room_is_in_the_layer_table() -> None:
    rooms = {p.name for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms <= {*MAY_IMPORT, "cli"}


def test_the_architecture_page_has_the_same_table() -> None:
    page = (SOURCE.parents[1] / "docs" / "dev" / "architecture.md").read_text()
    rows = re.findall(r"^\| ([a-z, ]+) \| ([a-z, ]+?)(?:[:;].*)? \|$", page, re.MULTILINE)
    told = {room: set(may.split(", ")) - ANYWHERE for rooms, may in rows for room in rooms.split(", ")}
    assert {room: may for room, may in told.items() if room in MAY_IMPORT} == MAY_IMPORT


def module_names() -> dict[str, Path]:
    return {
        ".".join(("omnigraph", *(part for part in path.with_suffix("").parts if part != "__init__"))): path
        for path, _ in modules()
    }


def import_graph() -> dict[str, set[str]]:
    """Which module imports which, at any level: also within functions, and for the type checker alone."""
    names, trees = module_names(), dict(modules())
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        found[name] = set()
        for node in ast.walk(trees[path]):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names} & names.keys()
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= (inner & names.keys()) or ({node.module} & names.keys())
        found[name].discard(name)
    return found


def test_there_is_no_import_cycle_of_any_kind() -> None:
    try:
        TopologicalSorter(import_graph()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


DOCUMENTS = SOURCE.parents[1]


def test_what_users_read_names_no_room_behind_the_face() -> None:
    """What users need is exported from `omnigraph`; `engine` and `storage` may be rebuilt any day."""
    pages = [DOCUMENTS / "README.md", *sorted((DOCUMENTS / "docs" / "user").rglob("*"))]
    strays = [
        f"{page.relative_to(DOCUMENTS)}:{number} {line.strip()}"
        for page in pages
        if page.is_file()
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if re.search(r"omnigraph[./](engine|storage)\b|from omnigraph import .*\b(engine|storage)\b", line)
    ]
    assert strays == []


EXECUTOR_MODULES = ("executor",)


def test_what_executors_import_opens_no_graph() -> None:
    """A task is plain data: whoever unpickles it loads neither Lance nor anything that holds an open graph."""
    names = ", ".join(f"omnigraph.engine.bulk.{name}" for name in EXECUTOR_MODULES)
    script = f"import sys, omnigraph.pipeline.execution.ingest, {names}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    open_graphs = {
        "omnigraph.engine.workspace",
        "omnigraph.engine.resources",
        "omnigraph.storage.root",
        "omnigraph.graph",
    }
    assert {"lance", "pyspark", *open_graphs}.isdisjoint(loaded)


def test_only_the_tables_package_calls_lance() -> None:
    strays = [
        f"{path} imports {name}"
        for path, tree in modules()
        if not path.as_posix().startswith(LANCE_OWNER)
        for name in imported(tree)
        if name.split(".")[0] == "lance"
    ]
    assert strays == []


LANCE_OBJECTS = {"_dataset", "_fragments", "_fragments_among", "_described_indexes"}
"""What a `Table` holds of Lance's own. The modules of its package share it; nobody else may even look."""


def test_only_the_tables_package_touches_what_is_lances() -> None:
    strays = [
        f"{path}:{node.lineno} reaches for {node.attr}"
        for path, tree in modules()
        if not path.as_posix().startswith(LANCE_OWNER)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in LANCE_OBJECTS
    ]
    assert strays == []
    (tables,) = (tree for path, tree in modules() if path.as_posix() == f"{LANCE_OWNER}/rows.py")
    (table,) = (node for node in tables.body if isinstance(node, ast.ClassDef) and node.name == "Table")
    held = {n.attr for n in ast.walk(table) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    expected = {"state", "_dataset", "_location", "_watch", "_origin", "_appended"}
    assert held == expected, "a Lance object must not be an attribute that others can use"


DELETES_TABLE_DATA = {
    "engine/maintenance/cleanup.py": "what no kept version names, manifests before files",
    "storage/tables/files.py": "files of a write whose plan never left it",
    "storage/creation.py": "the folders of an init that failed",
    "cluster/storage_root.py": "folders of deleted graphs, whose names are never used again",
}
DELETES_OTHER_OBJECTS = {
    "storage/log/writer_queue.py": "tickets",
    "storage/log/cleanup_journal.py": "pins; records of cleanups",
    "storage/topology.py": "derived adjacency",
    "storage/root.py": "derived adjacency; folders that were emptied",
    "storage/local_disk.py": "its own temporary files",
    "storage/disk/disk_cache.py": "copies of objects, on this machine",
    "storage/log/write_guard.py": "its own probes",
    "cli/config.py": "its own temporary files",
    "engine/export.py": "its own temporary files",
    "cluster/state_ledger.py": "the lock of a command that ended",
    "cluster/commands/status.py": "a lock that somebody breaks",
    "embeddings/vector_store.py": "vectors of a finished job; a damaged cache",
    "server/runtime/run_directory.py": "its own temporary files",
}
DELETIONS = {"delete_all", "unlink", "rmtree", "rmdir", "remove_empty_folders"}


def deletions(tree: ast.Module) -> Iterator[ast.Call]:
    """Calls that remove stored objects or files."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = ast.unparse(node.func.value).rsplit(".", 1)[-1]
            if node.func.attr in DELETIONS or (node.func.attr == "delete" and of.endswith("objects")):
                yield node


def test_table_data_is_deleted_in_known_places_only() -> None:
    """Who may delete can lose data. Each of them has its safety argument written down where it deletes."""
    deleting = {path.as_posix() for path, tree in modules() if any(deletions(tree))}
    assert deleting == {*DELETES_TABLE_DATA, *DELETES_OTHER_OBJECTS}


def test_nothing_moves_the_attached_head_of_a_table() -> None:
    """These Lance calls commit to, or prune, the attached lineage; a staged version must never do that."""
    strays = [
        f"{path}:{node.lineno} calls {node.func.attr}"
        for path, tree in modules()
        if path.as_posix().startswith(LANCE_OWNER)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in MOVES_AN_ATTACHED_HEAD
    ]
    assert strays == []


GUARDS = {"reading", "writing", "translate_errors"}
WORKS_ON_FILES = {
    *("to_table", "to_batches", "to_reader", "scanner", "count_rows", "_take_rows", "take_blobs", "readall"),
    *("describe_indices", "read_all", "read_range", "execute", "execute_uncommitted", "write_dataset"),
    *("write_fragments", "merge_columns", "update_columns", "delete_rows", "create_index_uncommitted", "commit"),
    *("merge_existing_index_segments", "plan"),
}
"""Calls by which Lance reads or writes."""
STANDS_FOR_A_DATASET = "storage/tables/disk/copied_dataset.py"
"""Called as a dataset is, within the guards of its callers; of its own it needs the raw error."""


def unguarded(node: ast.AST, guarded: bool = False) -> Iterator[str]:
    """Calls of Lance that stand neither within `with table.reading()` and the like nor in a `try` of their own."""
    if isinstance(node, ast.With):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        names = {getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls}
        guarded = guarded or bool(names & GUARDS)
    if isinstance(node, ast.Try):
        caught = ast.unparse(ast.Tuple([h.type for h in node.handlers if h.type is not None]))
        guarded = guarded or "LANCE_ERRORS" in caught or "OSError" in caught
    if isinstance(node, ast.Call) and not guarded:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in WORKS_ON_FILES:
            yield f"{node.lineno} {name}"
    for child in ast.iter_child_nodes(node):
        yield from unguarded(child, guarded)


def test_every_call_of_lance_has_its_errors_translated() -> None:
    """A raw error of Lance says neither whether a version was reclaimed nor which file is damaged."""
    strays = [
        f"{path}:{call}"
        for path, tree in modules()
        if path.as_posix().startswith(LANCE_OWNER) and path.as_posix() != STANDS_FOR_A_DATASET
        for call in unguarded(tree)
    ]
    assert strays == []


def test_the_language_is_pure() -> None:
    allowed = {"lark", "msgspec", "omnigraph", *sys.stdlib_module_names}
    impure = {"os", "pathlib", "subprocess", "socket", "urllib", "shutil", "tempfile"}
    strays = [
        f"{path} imports {name}"
        for path, tree in modules()
        if path.parts[0] == "language"
        for name in imported(tree)
        if name.split(".")[0] not in allowed or name.split(".")[0] in impure
    ]
    # The dialect of patterns is that of the library that checks rows; one module asks it, when it has to.
    assert set(strays) == {f"language/values.py imports {name}" for name in ("pyarrow", "pyarrow.compute")}


@pytest.mark.parametrize("word", ["utils", "helpers", "common", "manager", "misc"])
def test_modules_are_named_after_what_they_are(word: str) -> None:
    assert [p for p, _ in modules() if word in p.stem] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [str(p) for p, tree in modules() if not ast.get_docstring(tree) and tree.body] == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = "import sys, omnigraph; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"lance", "pyarrow", "numpy", "pandas", "pyspark", "fastapi", "obstore"}.isdisjoint(loaded)


# -- The shape of folders and modules


MOST_MODULES = 12
FEWEST_LINES = 40
CROWDED: dict[str, str] = {
    "api": "one module for each area of the contract; `commits` is below `schema`, and `history` above it",
    "cli/commands": "one module for each group of commands",
}


def test_a_folder_shows_at_most_twelve_modules() -> None:
    counts = Counter(path.parent.as_posix() for path, _ in modules() if path.name != "__init__.py")
    assert {folder: n for folder, n in counts.items() if n > MOST_MODULES and folder not in CROWDED} == {}


def test_a_module_is_a_topic() -> None:
    """A file of 40 lines with one importer belongs to its importer."""
    sizes = {path.as_posix(): len((SOURCE / path).read_text().splitlines()) for path, _ in modules()}
    small = {
        name: n for name, n in sizes.items() if n < FEWEST_LINES and not name.endswith(("__init__.py", "__main__.py"))
    }
    assert small == {}
    assert median(n for name, n in sizes.items() if not name.endswith("__init__.py")) >= 150


def test_the_code_base_stays_small() -> None:
    assert len(modules()) <= 450
    assert sum(len((SOURCE / path).read_text().splitlines()) for path, _ in modules()) <= 101_000


FAMILIES_THAT_SHARE_NAMES: dict[str, str] = {
    "language": "`query` and `schema` are twins: the same stages have the same names",
    "cli": "a command is named like the concept it is about",
}


def test_base_names_are_unique_within_a_package() -> None:
    names: dict[tuple[str, str], list[str]] = {}
    for path, _ in modules():
        if len(path.parts) > 1 and path.name != "__init__.py" and path.parts[0] not in FAMILIES_THAT_SHARE_NAMES:
            names.setdefault((path.parts[0], path.name), []).append(path.as_posix())
    assert [places for places in names.values() if len(places) > 1] == []


PRIVATE_NAMES_OF_LIBRARIES: dict[str, str] = {
    "process.py: _exit": "the documented way of `os` to end a process without taking its modules apart",
    "storage/tables/lance_metadata.py: _from_protos": "makes a schema with chosen field ids",
    "storage/tables/rows.py: _path": "reading `DataFile.path` makes a new class every time",
    "storage/tables/version_diff.py: _path": "the same",
    "storage/tables/memory/addresses.py: _path": "the same",
}
"""`module: name`, with the reason why there is no public way."""


def test_libraries_are_used_by_their_public_names() -> None:
    """A private module or name may change in any release of the library."""
    strays = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith("omnigraph"):
                parts = [*node.module.split("."), *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Import):
                parts = [
                    part
                    for alias in node.names
                    if not alias.name.startswith("omnigraph")
                    for part in alias.name.split(".")
                ]
            else:
                continue
            strays += [f"{path}: {part}" for part in parts if part.startswith("_") and part != "__future__"]
    assert {stray for stray in strays if stray not in PRIVATE_NAMES_OF_LIBRARIES} == set()


BANNED_IN_NAMES = re.compile(
    r"(?:^|_)(lens|sight|sighted|unseen|discreet|upkeep|keepers?|tidy|verdict|reclaims|folding|constructive|"
    r"patience|prospect|draft|surroundings|house|rooms|told|whoever)(?:_|$)"
)
BANNED_IN_TEXTS = re.compile(r"\b(is no (?!longer\b|more\b)[a-z]+|whoever|for ever|goes by|is told|are told)\b")


def named_things(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_names_are_the_words_of_the_glossary() -> None:
    words = lambda name: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()  # noqa: E731
    strays = {
        f"{path}: {name}"
        for path, tree in modules()
        for name in named_things(tree)
        if BANNED_IN_NAMES.search(words(name))
    }
    assert strays == set()


VAGUE = {"found", "known", "given", "told"}
VAGUE_ALLOWED = {"cli/printing/reports.py: found", "errors.py: found"}
"""Members that users read: of the checks of `doctor --json`, and of `FormatVersionError`."""


def test_variables_name_the_thing() -> None:
    strays = {f"{path}: {name}" for path, tree in modules() for name in named_things(tree) if name in VAGUE}
    assert strays == VAGUE_ALLOWED


PARTICIPLE = re.compile(r"_*([a-z]+ed|told|held|kept|shown|seen|made|taken|bound|sent)")
NOT_PARTICIPLES = {"embed", "_embed", "reembed", "feed", "_feed", "directed", "undirected", "enclosed"}
"""Verbs, and rules of a grammar."""


def test_functions_are_verbs_or_nouns() -> None:
    """A bare participle does not say what a call does. A property may be one: `commit.created`, `blob.managed`."""
    strays = [
        f"{path}: {node.name}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if PARTICIPLE.fullmatch(node.name) and node.name not in NOT_PARTICIPLES
        if not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]
    assert strays == []


def test_texts_are_plain_english() -> None:
    strays = [
        f"{path}:{node.lineno} {match[0]}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for match in BANNED_IN_TEXTS.finditer(node.value)
        if "there is no" not in node.value[max(0, match.start() - 6) : match.end()].lower()
    ]
    assert strays == []


def test_no_private_attribute_of_a_library_is_used() -> None:
    """A private attribute that no class of ours defines belongs to a library."""
    ours: set[str] = set()
    for _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                ours.add(node.name)
            elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
                ours.add(node.attr if isinstance(node, ast.Attribute) else node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                ours.add(node.value)  # names of slots
    strays = {
        f"{path}: {node.attr}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if node.attr not in ours
    }
    assert {stray for stray in strays if stray not in PRIVATE_NAMES_OF_LIBRARIES} == set()
