"""What each tool answers, over the protocol and in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import jsonschema
import pytest
from mcp import MCPError

import omnigraph
from omnigraph.api.graph import GraphApi
from omnigraph.language.schema.compile import compile_schema
from omnigraph.mcp.connections import DirectAccess
from omnigraph.mcp.endpoint import protocol_server
from omnigraph.mcp.graph import Terms
from omnigraph.mcp.guide import GUIDE, GUIDE_SCHEMA, summary
from omnigraph.mcp.stored_queries import with_query_files
from tests.mcp_server.agents import Agent, as_agent
from tests.mcp_server.conftest import QUERIES, record

Script = Callable[[Agent], Awaitable[Any]]

TITLES = "query titles() { match { $b: Book } return { $b.title as title } order { title } }"
ADD = "query add($slug: String, $name: String) { insert Author { slug: $slug, name: $name } }"
WRITING = {"branch_create", "merge", "mutate"}
READING = {
    *("schema", "guide", "query", "search", "entity", "neighbours", "branches", "diff", "merge_preview", "history"),
    "commit_changes",
}


def run(graph: GraphApi, script: Script, terms: Terms | None = None, actor: str | None = "ada") -> Any:
    server = protocol_server(lambda _context: DirectAccess(graph, actor), terms or Terms())
    return as_agent(server, script)


# What is offered


def test_every_tool_says_what_it_takes_and_whether_it_writes(library: omnigraph.Graph) -> None:
    tools = run(library, lambda agent: agent.tools())
    assert tools.keys() == READING | WRITING
    for name, tool in tools.items():
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object"
        assert tool.description
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is (name in READING)
        assert tool.annotations.open_world_hint is False
        assert all(member.get("description") for member in tool.input_schema["properties"].values()), name
    assert tools["mutate"].input_schema["required"] == ["query"]
    assert tools["mutate"].annotations.destructive_hint is True
    assert tools["branch_create"].annotations.destructive_hint is False
    assert tools["search"].input_schema["properties"]["mode"]["enum"] == ["hybrid", "keyword", "vector"]


def test_read_only_offers_no_tool_that_writes(library: omnigraph.Graph) -> None:
    graph = with_query_files(library, [("q.gq", QUERIES)])

    async def script(agent: Agent) -> None:
        assert (await agent.tools()).keys() == {*READING, "books_of", "stored_search"}
        for tool in ("mutate", "merge", "branch_create", "add_author"):
            assert (await agent.refused(tool))["type"] == "not_found"
        assert "read-only" in (await agent.refused("merge", source="x"))["error"]
        assert [prompt.name for prompt in (await agent.client.list_prompts()).prompts] == ["explore"]

    run(graph, script, Terms(read_only=True))
    assert library.list_branches() == ["main"]


# Reading


def test_the_schema_is_summarised_type_by_type(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        types = {each["type"]: each for each in (await agent.call("schema"))["types"]}
        assert list(types) == ["Author", "Book", "Remark", "WroteBy", "About", "Follows"]
        assert types["Author"]["key"] == ["slug"]
        assert types["Author"]["description"] == "Who wrote something"
        assert types["Author"]["edges"] == ["Book wroteBy Author", "Author follows Author"]
        assert types["Book"]["properties"]["vec"] == "Vector(4)?, embeds blurb"
        assert types["Book"]["instruction"] == "Ask for the title, not the isbn"
        assert (types["WroteBy"]["from"], types["WroteBy"]["to"]) == ("Book", "Author")
        one = await agent.call("schema", type="edge:Follows")
        assert [each["type"] for each in one["types"]] == ["Follows"]
        assert (await agent.call("schema", source=True))["source"] == library.schema.show()
        assert "did you mean 'Book'" in (await agent.refused("schema", type="Bok"))["error"]

    run(library, script)


def test_the_summary_tells_the_rules_that_writes_keep_to() -> None:
    member, knows = summary(
        compile_schema(
            """
            node Member {
                email: String @key
                age: I32?
                nick: String? @unique
                bio: String?
                tags: [String] = ["new"] @description("What it is about")
                vec: Vector(4)? @embed("bio", on_write=true)
                @unique(nick, age)
                @range(age, 0..)
                @check(nick, "^[a-z]+$")
            }
            edge Knows: Member -> Member @card(0..3) { @unique(src, dst) }
            """
        )
    )
    assert member["rules"] == ["@unique(nick)", "@unique(nick, age)", "@range(age, 0..)", '@check(nick, "^[a-z]+$")']
    assert member["properties"]["vec"] == "Vector(4)?, computed from bio"
    assert member["properties"]["tags"] == '[String], default ["new"], What it is about'
    assert knows["rules"] == ["@unique(src, dst)", "@card(0..3)"]


def test_a_state_is_read_by_its_own_schema(library: omnigraph.Graph) -> None:
    """A type that main does not have."""
    library.create_branch("work")
    tags = "node Tag { name: String @key @index  since: Date? }  edge Tagged: Book -> Tag"
    library.schema.apply(f"{library.schema.show()}\n{tags}", branch="work")
    widened = library.resolve_snapshot("work")
    loaded = library.load(record("Tag", name="ocean", since="2020-01-02"), mode="merge", branch="work").commit
    tagged = library.mutate('query tag() { insert Tagged { from: "1", to: "ocean" } }', branch="work").commit
    assert loaded is not None
    assert tagged is not None
    then = {"snapshot": tagged.id}

    async def script(agent: Agent) -> None:
        told = await agent.call("schema", **then)
        assert told["commit"] == tagged.id
        assert "Tag" in [each["type"] for each in told["types"]]
        assert "node Tag" in (await agent.call("schema", source=True, **then))["source"]
        found = await agent.call("entity", type="Tag", id="ocean", **then)
        assert (found["commit"], found["entity"]["since"]) == (tagged.id, "2020-01-02")
        assert (await agent.call("search", type="Tag", text="ocean", **then))["hits"][0]["id"] == "ocean"
        around = await agent.call("neighbours", type="Tag", id="ocean", **then)
        assert [each["id"] for each in around["neighbours"]] == ["1"]
        added, _ = (await agent.call("commit_changes", commit=widened))["changes"]
        assert (added["op"], added["type"], added["change"]) == ("schema_change", "Tag", "added")
        assert added["steps"] == ["add node type 'Tag'"]
        (change,) = (await agent.call("commit_changes", commit=loaded.id))["changes"]
        assert (
            "did you mean 'Book'" in (await agent.refused("commit_changes", commit=loaded.id, types=["Bok"]))["error"]
        )
        refused = await agent.refused("diff", before="main", after="main", types=["Bok"])
        assert "did you mean 'Book'" in refused["error"]
        assert change["after"]["since"] == "2020-01-02"
        assert "Tag" in (await agent.refused("entity", type="Tag", id="ocean"))["error"]

    run(library, script)


def test_the_schema_is_continued_as_it_was(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        counts = iter(range(100))
        pages = await agent.pages(
            "schema",
            "types",
            lambda: library.schema.apply(f"node Aaa{next(counts)} {{ name: String @key }}\n{library.schema.show()}"),
        )
        assert len(pages) > 1
        assert [each["type"] for page in pages for each in page] == [
            "Author",
            "Book",
            "Remark",
            "WroteBy",
            "About",
            "Follows",
        ]

    run(library, script, Terms(max_tokens=200))


def test_a_query_tells_the_commit_it_read(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        query = (
            "query by($slug: String) { match { $b wroteBy $a  $a: Author { slug: $slug } } return { $b.title as t } }"
        )
        answer = await agent.call("query", query=query, params={"slug": "leguin"})
        assert answer["rows"] == [{"t": "The Dispossessed"}]
        assert answer["columns"] == ["t"]
        assert answer["commit"] == library.resolve_snapshot("main")
        library.mutate(ADD, params={"slug": "x", "name": "X"})
        count = "query n() { match { $a: Author } return { count($a) as n } }"
        assert (await agent.call("query", query=count))["rows"] == [{"n": 3}]
        assert (await agent.call("query", query=count, snapshot=answer["commit"]))["rows"] == [{"n": 2}]

    run(library, script)


def test_an_error_of_the_language_shows_the_place_and_what_was_meant(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        error = await agent.refused("query", query="query q() { match { $b: Bok } return { $b.title as t } }")
        assert (error["code"], error["type"]) == ("bad_request", "compile")
        assert "1:25: T1: unknown node type 'Bok'" in error["error"]
        assert "help: did you mean 'Book'?" in error["error"]
        (finding,) = error["fields"]["diagnostics"]
        assert (finding["span"]["line"], finding["span"]["column"]) == (1, 25)
        mutation = await agent.refused("query", query='query q() { insert Author { slug: "a", name: "b" } }')
        assert "mutation" in mutation["error"]

    run(library, script)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("query", {}, "missing required field `query`"),
        ("query", {"query": 1}, "Expected `str`, got `int` - at `$.query`"),
        ("query", {"query": TITLES, "brnch": "x"}, "unknown field `brnch`"),
        ("query", {"query": TITLES, "params": [1]}, "Expected `object | null`"),
        ("query", {"query": TITLES, "branch": "main", "snapshot": "x"}, "not both"),
        ("query", {"query": TITLES, "branch": "none"}, "branch 'none' not found"),
        ("query", {"query": TITLES, "snapshot": "01NOPE"}, "commit '01NOPE'"),
        ("search", {"type": "Book", "text": ""}, "length >= 1"),
        ("search", {"type": "Book", "text": "x", "limit": 0}, ">= 1"),
        ("search", {"type": "Book", "text": "x", "mode": "magic"}, "Invalid enum value 'magic'"),
        ("search", {"type": "WroteBy", "text": "x"}, "is an edge type"),
        ("search", {"type": "Book", "text": "x", "property": "vec"}, "has no words to search"),
        ("search", {"type": "Book", "text": "x", "properties": ["titel"]}, "did you mean 'title'"),
        ("search", {"type": "Author", "text": "x", "mode": "vector"}, "has no vector"),
        ("entity", {"type": "Book", "id": "none"}, "there is no node Book with the id 'none'"),
        ("neighbours", {"type": "Book", "id": "1", "edge": "follows"}, "those that do: wroteBy, about"),
        ("diff", {"before": "main", "after": "gone"}, "gone"),
        ("merge_preview", {"source": "gone"}, "branch 'gone' not found"),
        ("merge_preview", {"source": "main", "resolutions": {"kinds": 1}}, "resolutions must be"),
        ("merge_preview", {"source": "main", "resolutions": {"who": {}}}, "unknown member 'who'"),
        ("mutate", {"query": ADD}, "a mutation needs a branch; make one with branch_create"),
        ("mutate", {"query": ADD, "branch": "  "}, "needs a branch"),
        ("commit_changes", {"commit": "01NOPE"}, "commit '01NOPE'"),
        ("history", {"branch": "gone"}, "branch 'gone' not found"),
        ("histroy", {}, "there is no tool 'histroy'; did you mean 'history'?"),
        ("drop_everything", {}, "tools/list lists the tools"),
    ],
)
def test_a_call_that_is_wrong_says_how(
    library: omnigraph.Graph, tool: str, arguments: dict[str, Any], said: str
) -> None:
    error = run(library, lambda agent: agent.refused(tool, **arguments))
    assert said in error["error"]
    assert error["code"] in ("bad_request", "not_found")
    assert "Traceback" not in json.dumps(error)


def test_what_breaks_inside_is_told_without_its_cause(
    library: omnigraph.Graph, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def stream(self, *arguments: object, **options: object) -> object:
            raise RuntimeError("planted secret")

    error = run(Broken(), lambda agent: agent.refused("query", query=TITLES))  # type: ignore[arg-type]
    assert (error["code"], error["error"]) == (
        "internal",
        "query failed inside; the log of the process that serves it has the cause",
    )
    assert "planted secret" in caplog.text


# Search, entities and neighbours


def test_search_by_words_by_meaning_and_by_both(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        words = await agent.call("search", type="Book", text="robots")
        assert words["ranked_by"] == "bm25($x.blurb, $text)"
        assert [(hit["id"], hit["properties"]["title"]) for hit in words["hits"]] == [("2", "The Cyberiad")]
        assert "vec" not in words["hits"][0]["properties"]
        titles = await agent.call("search", type="Book", text="solaris", property="title", properties=["isbn"])
        assert [hit["properties"] for hit in titles["hits"]] == [{"isbn": "1"}]
        meaning = await agent.call("search", type="Book", text="alpha", mode="vector", limit=2)
        assert meaning["hits"][0]["id"] == "2"
        assert meaning["hits"][0]["score"] == pytest.approx(0, abs=1e-6)
        both = await agent.call("search", type="Book", text="alpha", mode="hybrid", limit=1)
        assert both["ranked_by"] == "rrf(nearest($x.vec, $text), bm25($x.blurb, $text))"
        assert [hit["id"] for hit in both["hits"]] == ["2"]

    run(library, script)


def test_who_cannot_search_by_meaning_is_told_another_way(
    library: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OMNIGRAPH_EMBEDDINGS_MOCK", "OMNIGRAPH_EMBED_PROVIDER", "OPENROUTER_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    error = run(library, lambda agent: agent.refused("search", type="Book", text="sea", mode="hybrid"))
    assert "OPENAI_API_KEY is required" in error["error"]
    assert error["error"].endswith("mode 'keyword' needs no vector")


def test_an_entity_is_shown_for_a_reader(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        told = await agent.call("entity", type="Author", id="lem")
        assert told["commit"] == library.commits(limit=1).commits[0].id
        assert told["entity"] == {"id": "lem", "slug": "lem", "name": "Stanisław Lem", "born": "1921-09-12"}
        book = (await agent.call("entity", type="Book", id="1"))["entity"]
        assert (book["vec"], book["cover"]) == ("(Vector(4)?)", "(Blob)")
        asked = (await agent.call("entity", type="Book", id="1", properties=["vec", "cover"]))["entity"]
        assert asked == {"id": "1", "vec": [1, 0, 0, 0], "cover": "base64:AAEC"}

    run(library, script)


def test_neighbours_come_over_every_edge_in_both_directions(library: omnigraph.Graph) -> None:
    def told(answer: dict[str, Any]) -> list[tuple[str, str, str, str]]:
        return [(each["edge"], each["direction"], each["type"], each["id"]) for each in answer["neighbours"]]

    async def script(agent: Agent) -> None:
        lem = await agent.call("neighbours", type="Author", id="lem")
        assert told(lem) == [
            ("wroteBy", "in", "Book", "1"),
            ("wroteBy", "in", "Book", "2"),
            ("follows", "out", "Author", "leguin"),
        ]
        assert lem["neighbours"][0]["edge_properties"] == {"year": 1961}
        assert lem["neighbours"][0]["properties"]["title"] == "Solaris"
        assert told(await agent.call("neighbours", type="Author", id="leguin", edge="Follows", direction="in")) == [
            ("follows", "in", "Author", "lem")
        ]
        assert told(await agent.call("neighbours", type="Author", id="leguin", direction="out")) == []

    run(library, script)


def test_neighbours_of_a_node_without_a_key_are_its_own(library: omnigraph.Graph) -> None:
    """Two remarks are alike in everything but their ids, which a query can't name."""

    async def script(agent: Agent) -> None:
        for remark, book in (("r1", "1"), ("r2", "2")):
            found = await agent.call("neighbours", type="Remark", id=remark)
            assert [each["id"] for each in found["neighbours"]] == [book]

    run(library, script)


# Writing


def test_work_goes_from_a_branch_to_main(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        refusal = await agent.refused("mutate", query=ADD, params={"slug": "a", "name": "A"}, branch=" main ")
        assert refusal["code"] == "forbidden"
        for word in ("branch_create", "merge_preview", "--allow-main"):
            assert word in refusal["error"]
        await agent.call("branch_create", name="work")
        assert (await agent.call("branches"))["branches"] == ["main", "work"]
        written = await agent.call("mutate", query=ADD, params={"slug": "a", "name": "A"}, branch="work")
        assert (written["affected_nodes"], written["actor_id"]) == (1, "ada")
        difference = await agent.call("diff", before="main", after="work")
        assert difference["stats"]["inserts"] == 1
        assert [change["id"] for change in difference["changes"]] == ["a"]
        preview = await agent.call("merge_preview", source="work")
        assert (preview["outcome"], preview["conflict_count"]) == ("fast_forward", 0)
        assert preview["counts"] == {"node:Author": {"insert": 1, "update": 0, "delete": 0}}
        merged = await agent.call("merge", source="work", delete_branch=True, message="one more")
        assert (merged["outcome"], merged["branch_deleted"]) == ("fast_forward", True)
        newest = (await agent.call("history", limit=1))["commits"][0]
        assert (newest["actor"], newest["branch"]) == ("ada", "main")
        (change,) = (await agent.call("commit_changes", commit=newest["commit"]))["changes"]
        assert (change["op"], change["after"]["name"]) == ("insert", "A")

    run(library, script)
    assert library.describe_commit(library.resolve_snapshot()).message == "one more"


def test_conflicts_are_previewed_reported_and_resolved(library: omnigraph.Graph) -> None:
    rename = "query rename($slug: String, $name: String) { update Author set { name: $name } where slug = $slug }"

    async def script(agent: Agent) -> None:
        await agent.call("branch_create", name="work")
        await agent.call("mutate", query=rename, params={"slug": "lem", "name": "S. Lem"}, branch="work")
        library.mutate(rename, params={"slug": "lem", "name": "Lem, S."})
        preview = await agent.call("merge_preview", source="work")
        assert preview["conflict_count"] == 1
        assert preview["findings"][0]["conflict"]["entity_id"] == "lem"
        error = await agent.refused("merge", source="work")
        assert (error["code"], len(error["merge_conflicts"])) == ("conflict", 1)
        kinds = {preview["findings"][0]["conflict"]["kind"]: "theirs"}
        assert (await agent.call("merge", source="work", resolutions={"kinds": kinds}))["outcome"] == "merged"

    run(library, script)
    found = library.entity("node:Author", "lem")
    assert found is not None
    assert found["name"] == "S. Lem"


def test_a_write_that_is_repeated_by_its_key_writes_once(library: omnigraph.Graph) -> None:
    library.create_branch("work")

    async def script(agent: Agent) -> None:
        add = {"query": ADD, "params": {"slug": "a", "name": "A"}, "branch": "work", "idempotency_key": "once"}
        first, again = await agent.call("mutate", **add), await agent.call("mutate", **add)
        assert again["commit"] == first["commit"]
        assert again["replayed"] is True
        renamed = library.schema.show().replace("Author", "Writer")
        library.schema.apply(renamed.replace("node Writer", 'node Writer @rename_from("Author")'), branch="work")
        assert await agent.call("mutate", **add) == again, "whatever became of the schema"
        stale = await agent.refused("mutate", **{**add, "idempotency_key": "two", "if_commit": "01NOTTHEHEAD"})
        assert stale["type"] == "precondition_failed"
        side = {"name": "side", "source": "work", "idempotency_key": "made"}
        assert await agent.call("branch_create", **side) == {"branch": "side", "from": "work"}
        assert await agent.call("branch_create", **side) == {"branch": "side", "from": "work", "replayed": True}

    run(library, script)


def test_main_is_written_only_where_that_is_allowed(library: omnigraph.Graph) -> None:
    add = {"query": ADD, "params": {"slug": "a", "name": "A"}, "branch": "main"}
    run(library, lambda agent: agent.call("mutate", **add), Terms(allow_main=True))
    assert library.entity("node:Author", "a") is not None


# Stored queries


def test_stored_queries_are_tools_with_typed_parameters(library: omnigraph.Graph) -> None:
    graph = with_query_files(library, [("q.gq", QUERIES)])

    async def script(agent: Agent) -> None:
        tools = await agent.tools()
        books = tools["books_of"]
        assert books.description == "Books of an author\nGive the slug"
        assert books.input_schema["required"] == ["author"]
        assert books.input_schema["properties"]["author"] == {"type": "string"}
        assert books.input_schema["properties"]["year"] == {"type": "integer"}
        assert books.annotations is not None
        assert books.annotations.read_only_hint is True
        found = await agent.call("books_of", author="lem")
        assert found["rows"] == [{"title": "Solaris", "year": 1961}, {"title": "The Cyberiad", "year": 1965}]
        assert (await agent.call("stored_search", isbn="1"))["rows"] == [{"title": "Solaris"}]
        for wrong, said in (({}, "author"), ({"author": 1}, "author"), ({"author": "lem", "yaer": 1}, "yaer")):
            assert said in (await agent.refused("books_of", **wrong))["error"]
        about = await agent.client.read_resource("omnigraph://queries/books_of")
        assert json.loads(about.contents[0].text)["params"][0]["name"] == "author"  # type: ignore[union-attr]

    run(graph, script)


def test_a_stored_mutation_keeps_to_branches_and_its_parameters_keep_their_names(library: omnigraph.Graph) -> None:
    graph = with_query_files(library, [("q.gq", QUERIES)])
    library.create_branch("work")

    async def script(agent: Agent) -> None:
        tool = (await agent.tools())["add_author"]
        assert tool.input_schema["required"] == ["slug", "branch", "_branch"]
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is False
        refusal = await agent.refused("add_author", slug="a", branch="a name", _branch="main")
        assert refusal["code"] == "forbidden"
        written = await agent.call("add_author", slug="a", branch="a name", _branch="work")
        assert (written["branch"], written["actor_id"]) == ("work", "ada")

    run(graph, script)
    found = library.entity("node:Author", "a", branch="work")
    assert found is not None
    assert found["name"] == "a name"


def test_a_parameter_called_continuation_is_part_of_the_request(library: omnigraph.Graph) -> None:
    text = (
        "query q($continuation: String) { match { $b: Book $b.title != $continuation } return { $b.title as title } "
        "order { title } }"
    )

    async def script(agent: Agent) -> None:
        first = await agent.call("q", continuation="none")
        assert len(first["rows"]) == 1
        token = first["continuation"]
        assert (await agent.call("q", continuation="none", _continuation=token))["rows"] != first["rows"]
        refusal = await agent.refused("q", continuation="other", _continuation=token)
        assert "does not belong to this call" in refusal["error"]

    library.load("\n".join(record("Book", isbn=f"9{n}", title=f"{n}" * 700) for n in range(3)), mode="append")
    run(with_query_files(library, [("q.gq", text)]), script, Terms(max_tokens=200))


def test_every_stored_query_is_a_tool_whatever_its_name(library: omnigraph.Graph) -> None:
    names = ["search", "stored_search", "stored_search_2", "x" * 70, f"{'x' * 70}y"]
    texts = (f'query {name}() {{ match {{ $b: Book }} return {{ "{name}" as name }} limit 1 }}' for name in names)

    async def script(agent: Agent) -> None:
        offered = (await agent.tools()).keys() - READING - WRITING
        assert offered == {"stored_search", "stored_search_2", "stored_search_3", "x" * 64, f"{'x' * 60}_2"}
        told = {tool: (await agent.call(tool))["rows"][0]["name"] for tool in offered}
        assert sorted(told.values()) == sorted(names)
        assert (told["stored_search"], told["stored_search_3"]) == ("stored_search", "search")

    run(with_query_files(library, [("q.gq", "\n".join(texts))]), script)


def test_many_stored_queries_do_not_fill_the_context_of_a_model(library: omnigraph.Graph) -> None:
    """Clients show a model the whole list, every time."""
    text = TITLES.replace(
        "titles()", 'titles{}($author: String, $year: I32?) @description("Books of an author, newest")'
    )
    graph = with_query_files(library, [("q.gq", "\n".join(text.replace("{}", str(n), 1) for n in range(100)))])

    async def script(agent: Agent) -> None:
        tools = (await agent.tools()).values()
        sizes = [len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools]
        assert len(sizes) == 114
        assert sum(sizes) < 13_000 + 100 * 430

    run(graph, script)


def test_queries_of_files_must_fit_and_have_one_name_each(library: omnigraph.Graph) -> None:
    with pytest.raises(omnigraph.BadRequestError, match="unknown node type 'Bok'"):
        with_query_files(library, [("q.gq", "query q() { match { $b: Bok } return { $b.title } }")])
    with pytest.raises(omnigraph.OmniGraphError, match=r"b\.gq: a query called 'titles' is given already"):
        with_query_files(library, [("a.gq", TITLES), ("b.gq", TITLES)])


# Budgets


def test_pages_hold_every_row_once_while_others_write(library: omnigraph.Graph) -> None:
    library.load("\n".join(record("Author", slug=f"s{n:04}", name="x" * 50) for n in range(500)), mode="merge")
    names = "query slugs() { match { $a: Author } return { $a.slug as slug, $a.name as name } }"
    before = [row["slug"] for row in library.query(names).rows()]
    written = iter(range(1000))

    def between() -> None:
        number = next(written)
        library.mutate(ADD, params={"slug": f"s{number:04}a", "name": "new"})
        library.mutate("query drop($s: String) { delete Author where slug = $s }", s=f"s{number:04}")

    async def script(agent: Agent) -> list[list[Any]]:
        return await agent.pages("query", "rows", between, query=names)

    pages = run(library, script, Terms(max_tokens=1000))
    assert len(pages) > 5
    assert all(len(json.dumps(page)) < 1000 * 4 * 1.1 for page in pages)
    assert [row["slug"] for page in pages for row in page] == before


LISTS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("schema", "types", 200, {}),
    ("schema", "source", 60, {"source": True}),
    ("branches", "branches", 10, {}),
    ("history", "commits", 200, {"branch": "b07", "limit": 100}),
    ("diff", "changes", 200, {"before": "main", "after": "b07"}),
    ("merge_preview", "findings", 200, {"source": "b07"}),
    ("neighbours", "neighbours", 200, {"type": "Author", "id": "lem", "branch": "b07"}),
    ("search", "hits", 200, {"type": "Book", "text": "robots", "limit": 200, "branch": "b07"}),
]


def test_every_list_is_continued_to_its_end(library: omnigraph.Graph) -> None:
    for number in range(8):
        library.create_branch(f"b{number:02}")
    for number in range(20):
        lines = [
            record("Book", isbn=f"n{number}", title="T" * 30, blurb="robots"),
            json.dumps({"edge": "WroteBy", "from": f"n{number}", "to": "lem"}),
        ]
        library.load("\n".join(lines), mode="merge", branch="b07")
    for tool, member, tokens, arguments in LISTS:

        async def script(agent: Agent, call: Any = (tool, member), given: Any = arguments) -> list[list[Any]]:
            return await agent.pages(*call, **given)

        cut = run(library, script, Terms(max_tokens=tokens))
        (whole,) = run(library, script, Terms(max_tokens=100_000))
        assert len(cut) > 1, tool
        assert [item for page in cut for item in page] == list(whole), tool


def test_an_item_that_is_larger_than_an_answer_is_cut_and_says_so(library: omnigraph.Graph) -> None:
    library.load(record("Author", slug="long", name="n" * 100_000), mode="merge")
    names = "query names() { match { $a: Author } return { $a.name as name } order { name } }"

    async def script(agent: Agent) -> None:
        pages = [await agent.call("query", query=names)]
        while "continuation" in pages[-1]:
            pages.append(await agent.call("query", query=names, continuation=pages[-1]["continuation"]))
        assert [len(row["name"]) for page in pages for row in page["rows"]] == [13, 17, 1001]
        cut = [page for page in pages if "shortened" in page]
        assert len(cut) == 1
        assert cut[0]["rows"][-1]["name"].endswith("n…")

    run(library, script, Terms(max_tokens=300))


def test_a_continuation_belongs_to_one_call(library: omnigraph.Graph) -> None:
    library.load("\n".join(record("Author", slug=f"s{n}", name="x" * 50) for n in range(40)), mode="merge")
    names = "query names() { match { $a: Author } return { $a.name as name } }"

    async def script(agent: Agent) -> None:
        token = (await agent.call("query", query=names))["continuation"]
        for wrong in (
            {"query": names + " ", "continuation": token},
            {"query": names, "branch": "main", "continuation": token},
            {"query": names, "continuation": token + "x!"},
            {"query": names, "continuation": "c1.5.00000000.01ABC"},
            {"query": names, "continuation": ""},
            {"query": names, "continuation": token.replace(".", ".1", 1)},
            {"query": names, "continuation": token[:-1]},
            {"query": names, "continuation": token + ".1"},
        ):
            assert "does not belong to this call" in (await agent.refused("query", **wrong))["error"]
        assert len(token) < 64

    run(library, script, Terms(max_tokens=300))


def test_a_branch_that_was_made_again_is_not_continued(library: omnigraph.Graph) -> None:
    library.load("\n".join(record("Author", slug=f"s{n}", name="x" * 50) for n in range(40)), mode="merge")
    names = "query names() { match { $a: Author } return { $a.slug as slug, $a.name as name } }"

    def made_again() -> None:
        library.create_branch("work")
        library.mutate(ADD, params={"slug": "w", "name": "W"}, branch="work")

    made_again()

    async def script(agent: Agent) -> None:
        asked = {"query": names, "branch": "work"}
        token = (await agent.call("query", **asked))["continuation"]
        assert (await agent.call("query", **asked, continuation=token))["rows"]
        library.delete_branch("work")
        assert (await agent.refused("query", **asked, continuation=token))["type"] == "branch_not_found"
        made_again()
        assert "made again" in (await agent.refused("query", **asked, continuation=token))["error"]

    run(library, script, Terms(max_tokens=200))


def test_a_preview_is_not_continued_after_its_branches_moved(library: omnigraph.Graph) -> None:
    library.create_branch("work")
    library.load("\n".join(record("Author", slug=f"s{n}", name="x") for n in range(40)), mode="merge", branch="work")

    async def script(agent: Agent) -> None:
        token = (await agent.call("merge_preview", source="work"))["continuation"]
        library.mutate(ADD, params={"slug": "a", "name": "A"})
        assert "moved" in (await agent.refused("merge_preview", source="work", continuation=token))["error"]

    run(library, script, Terms(max_tokens=300))


def test_errors_keep_to_the_budget(library: omnigraph.Graph) -> None:
    """A thousand conflicts must not flood whoever asked for a merge."""
    library.load("\n".join(record("Author", slug=f"s{n}", name="x") for n in range(500)), mode="merge")
    library.create_branch("work")
    for branch in ("main", "work"):
        library.load(
            "\n".join(record("Author", slug=f"s{n}", name=branch) for n in range(500)), mode="merge", branch=branch
        )
    error = run(library, lambda agent: agent.refused("merge", source="work"), Terms(max_tokens=500))
    assert "500 conflicts" in error["error"]
    assert len(json.dumps(error)) < 500 * 4


# Resources, prompts and the guide


def test_resources_and_prompts(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        client = agent.client
        assert [str(each.uri) for each in (await client.list_resources()).resources] == [
            "omnigraph://schema",
            "omnigraph://guide",
        ]
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [
            "omnigraph://schema/{branch}",
            "omnigraph://entity/{type}/{id}",
        ]

        async def text(uri: str) -> str:
            return (await client.read_resource(uri)).contents[0].text  # type: ignore[union-attr]

        assert await text("omnigraph://schema") == await text("omnigraph://schema/main") == library.schema.show()
        assert await text("omnigraph://guide") == GUIDE
        assert json.loads(await text("omnigraph://entity/Author/l%65m"))["born"] == "1921-09-12"
        for unknown in ("omnigraph://nothing", "file:///etc/passwd", "omnigraph://entity/Author/none"):
            with pytest.raises(MCPError, match="there is no resource"):
                await client.read_resource(unknown)
        change = await client.get_prompt("propose_change", {"task": "rename Lem"})
        assert "rename Lem" in change.messages[0].content.text  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="unknown prompt"):
            await client.get_prompt("nothing")

    run(library, script)


def test_the_guide_is_read_by_a_tool_too(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        pages = await agent.pages("guide", "text")
        assert len(pages) > 1
        assert "".join(str(page) for page in pages) == GUIDE

    run(library, script, Terms(max_tokens=300))


def test_the_examples_of_the_guide_are_queries() -> None:
    from omnigraph.language.query.compile import compile_queries

    catalog = compile_schema(GUIDE_SCHEMA)
    blocks = [block.split("```")[0] for block in GUIDE.split("```gq")[1:]]
    compiled = [query for block in blocks for query in compile_queries(block, catalog).queries]
    assert [query.name for query in compiled] == [
        *("adults", "popular", "about", "add", "set_age", "move", "grow", "remove", "settle"),
    ]
    for query in compiled:
        assert query.parameters  # resolving them checks the whole query


def test_calls_that_come_at_once_do_not_wait_for_each_other(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        answers = await asyncio.gather(*(agent.call("query", query=TITLES) for _ in range(8)))
        assert len({json.dumps(answer) for answer in answers}) == 1

    run(library, script)
