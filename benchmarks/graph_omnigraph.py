"""OmniGraph in the graph benchmarks: through its public API and its query language only."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import Ours
from benchmarks.graph_systems import KNOWS, PEOPLE, GraphSystem, Params, Rows

SCHEMA = """
node Person { slug: String @key  mail: String @index  age: I32 @index  city: String @index }
edge Knows: Person -> Person
"""
HOPS = "\n".join(
    f"query hops{most}($k: String) {{ match {{ $p: Person {{ slug: $k }}  $p knows{{1,{most}}} $x }}"
    " return { count($x) as n } }"
    for most in (1, 2, 3, 4)
)
QUERIES = f"""
query person($k: String) {{ match {{ $p: Person {{ slug: $k }} }} return {{ $p.age as age, $p.city as city }} }}
query mail($m: String) {{ match {{ $p: Person {{ mail: $m }} }} return {{ $p.slug as slug }} }}
query in_city($c: String, $a: I32) {{
    match {{ $p: Person {{ city: $c }}  $p.age > $a }}
    return {{ $p.slug as slug, $p.age as age }}
    order {{ age desc, slug }}
    limit 10
}}
query older($a: I32) {{
    match {{ $p: Person  $p.age > $a }} return {{ $p.slug as slug, $p.age as age }} order {{ age desc, slug }} limit 10
}}
query count_older($a: I32) {{ match {{ $p: Person  $p.age >= $a }} return {{ count($p) as n }} }}
query cities() {{ match {{ $p: Person }} return {{ $p.city as city, count($p) as n, avg($p.age) as age }} }}
query friends_by_city() {{
    match {{ $a: Person  $a knows $b }} return {{ $b.city as city, count($a) as n, avg($a.age) as age }}
}}
query city_pairs() {{
    match {{ $a: Person  $a knows $b }}
    return {{ $a.city as source, $b.city as target, count($b) as n }}
    order {{ n desc, source, target }}
    limit 20
}}
{HOPS}
query friends($k: String) {{
    match {{ $p: Person {{ slug: $k }}  $p knows{{1,2}} $x }} return {{ $x.slug as slug, $x.age as age }}
}}
query paths() {{ match {{ $a: Person  $a knows $b  $b knows $c }} return {{ count($c) as n }} }}
query degrees() {{
    match {{ $a: Person  $a knows $b }}
    return {{ $b.slug as slug, count($a) as n }}
    order {{ n desc, slug }}
    limit 10
}}
query triangles() {{ match {{ $a: Person  $a knows $b  $b knows $c  $c knows $a }} return {{ count($c) as n }} }}
query everybody() {{
    match {{ $p: Person }} return {{ $p.slug as slug, $p.mail as mail, $p.age as age, $p.city as city }}
}}
query befriend($k: String, $o: String) {{ insert Knows {{ from: $k, to: $o }} }}
query age($k: String, $a: I32) {{ update Person set {{ age: $a }} where slug = $k }}
query remove($k: String) {{ delete Person where slug = $k }}
"""


class GraphSession:
    """The threads of a process share one handle."""

    def __init__(self, graph: Any) -> None:
        import omnigraph

        self.graph = graph
        self.queries = omnigraph.queries(QUERIES)

    def rows(self, name: str, params: Params) -> Rows:
        query = getattr(self.queries, name)
        if query.is_mutation:
            self.graph.mutate(query, **params)
            return []
        rows: Rows = self.graph.query(query, **params).to_dicts()
        return rows

    def close(self) -> None: ...


class OmniGraph(Ours, GraphSystem):
    session: GraphSession
    PROGRAM = """
import omnigraph
with omnigraph.open(store) as graph:
    rows = graph.query(text, name, params).to_dicts()
"""

    @classmethod
    def text(cls, name: str) -> str:
        return next(text for text in re.split(r"^(?=query )", QUERIES, flags=re.M) if text.startswith(f"query {name}("))

    def create(self) -> None:
        import omnigraph

        omnigraph.init(self.folder, SCHEMA).close()
        self.open()

    def load_people(self) -> None:
        self._load_file("Person", PEOPLE, {name: name for name in ("slug", "mail", "age", "city")})

    def load_edges(self) -> None:
        self._load_file("Knows", KNOWS, {"source_slug": "from", "target_slug": "to"})

    def load_json_edges(self, file: Path) -> None:
        self.graph.load(file, type="Knows", mode="append")

    def build_indexes(self) -> None:
        self.graph.maintenance.optimize()

    def _load_file(self, type: str, file: str, columns: dict[str, str]) -> None:
        """In batches, as the file has them: the whole of it need not fit into memory."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        def batches() -> Iterator[Any]:
            for batch in stored.iter_batches(columns=list(columns)):
                yield batch.rename_columns(list(columns.values()))

        with pq.ParquetFile(self.data / file) as stored:
            types = stored.schema_arrow
            schema = pa.schema([(renamed, types.field(name).type) for name, renamed in columns.items()])
            self.graph.load(pa.RecordBatchReader.from_batches(schema, batches()), type=type, mode="append")

    def connect(self) -> None:
        import omnigraph

        # Files of any size are loaded here as one commit.
        self.graph = omnigraph.open(self.folder, limits=omnigraph.Limits(rows=1 << 40, bytes=1 << 50))

    def disconnect(self) -> None:
        self.graph.close()

    def new_session(self) -> GraphSession:
        return GraphSession(self.graph)

    @classmethod
    def forget_derived(cls, folder: Path) -> None:
        shutil.rmtree(folder / "topology", ignore_errors=True)

    def arrow_size(self, name: str) -> int:
        return int(self.graph.query(getattr(self.session.queries, name)).to_arrow().num_rows)

    def insert_people(self, people: Sequence[Params]) -> None:
        """A mutation with a statement for each person."""
        statements = "\n".join(f"insert Person {{ {_assignments(person)} }}" for person in people)
        self.graph.mutate(f"query many() {{ {statements} }}", "many")

    def insert_each(self, people: Sequence[Params]) -> None:
        parameters = "$slug: String, $mail: String, $age: I32, $city: String"
        text = f"query one({parameters}) {{ insert Person {{ slug: $slug, mail: $mail, age: $age, city: $city }} }}"
        for person in people:
            self.graph.mutate(text, "one", person)

    def load_new_people(self, people: Sequence[Params]) -> None:
        self.graph.load(people, type="Person", mode="append")

    def update_people(self, people: Sequence[Params]) -> None:
        self.graph.load(people, type="Person", mode="merge")


def _assignments(person: Params) -> str:
    return ", ".join(f"{name}: {json.dumps(value)}" for name, value in person.items())
