"""`omnigraph embed`: which records get vectors, what they are made of, and what is left when a run dies."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.support.embedding_server import EmbeddingServer, Reply, embedding_server, never, proper, vector_of
from tests.support.waiting import wait_until

SPEC = {"dimension": 4, "model": "ignored", "types": {"Doc": {"target": "vec", "fields": ["slug", "body", "tags"]}}}
RECORDS = [
    {"type": "Doc", "data": {"slug": "a", "body": " Alpha ", "tags": ["x", "", None, "y"]}},
    {"type": "Doc", "data": {"slug": "b", "vec": [0, 0, 0, 1]}},
    {"type": "Other", "data": {"slug": "a"}},
    {"edge": "Cites", "from": "a", "to": "b"},
    {"type": "Doc", "data": {"slug": "c", "vec": []}},
]


@pytest.fixture(autouse=True)
def place(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that commands run in, with records and a spec."""
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_CACHE", "off")
    place = Path.cwd()
    (place / "spec.json").write_text(json.dumps(SPEC))
    write(place / "in.jsonl", RECORDS)
    return place


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    with embedding_server() as server:
        monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK")
        for name, value in {
            "OMNIGRAPH_EMBED_BASE_URL": server.url,
            "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "1",
            "OPENAI_API_KEY": "key",
            "OMNIGRAPH_EMBED_MODEL": "m",
        }.items():
            monkeypatch.setenv(name, value)
        yield server


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


FILES = ("--input", "in.jsonl", "--output", "out.jsonl", "--spec", "spec.json")
A, C = "type: Doc\nslug: a\nbody: Alpha\ntags: x, y", "type: Doc\nslug: c"


def test_standard_streams_take_the_place_of_files(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("embed", *FILES).code == 0
    files = {"--input": "in.jsonl", "--spec": "spec.json"}
    for flag, name in files.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((place / name).read_bytes())))
        given = [each for pair in {**files, flag: "-", "--output": "-"}.items() for each in pair]
        ran = cli("embed", *given)
        assert (ran.code, ran.out) == (0, (place / "out.jsonl").read_text())
        assert ran.err.startswith("embedded 2 records (selected 4, cleaned 0) from ")
    assert not list(place.glob("-*")), "nothing is kept beside a stream"
    for wrong in (["--spec", "-"], ["--spec", "spec.json", "--json"]):
        assert cli("embed", "--input", "-", "--output", "-", *wrong).code == 2


def test_missing_vectors_are_filled(cli: Cli, place: Path) -> None:
    ran = cli("embed", *FILES)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "embedded 2 records (selected 4, cleaned 0) from in.jsonl -> out.jsonl [fill_missing 4d]\n"
    filled = read(place / "out.jsonl")
    assert filled[0] == {**RECORDS[0], "data": {**RECORDS[0]["data"], "vec": vector_of(A, 4)}}
    assert filled[1:4] == RECORDS[1:4]
    assert filled[4]["data"]["vec"] == vector_of(C, 4)
    assert sorted(path.name for path in place.iterdir() if path.name.startswith("out")) == ["out.jsonl"]


@pytest.mark.parametrize(
    ("flags", "mode", "selected", "embedded", "cleaned"),
    [
        ((), "fill_missing", 4, 2, 0),
        (("--type", "Doc"), "fill_missing", 3, 2, 0),
        (("--reembed-all",), "reembed_all", 4, 3, 0),
        (("--reembed-all", "--type", "Doc", "--select", "slug=b"), "reembed_all", 1, 1, 0),
        (("--select", "slug=b"), "reembed_selected", 1, 1, 0),
        (("--select", " Doc : slug = a ", "--select", "slug=b"), "reembed_selected", 2, 2, 0),
        (("--select", "slug=a"), "reembed_selected", 2, 1, 0),
        (("--select", ":tags=x, y"), "reembed_selected", 1, 1, 0),
        (("--select", "slug=A"), "reembed_selected", 0, 0, 0),
        (("--clean",), "clean", 4, 0, 2),
        (("--clean", "--select", "slug=b"), "clean", 1, 0, 1),
    ],
)
def test_modes_and_selection(
    cli: Cli, flags: tuple[str, ...], mode: str, selected: int, embedded: int, cleaned: int
) -> None:
    told = cli("embed", *FILES, *flags, "--json").json
    assert told["mode"] == mode
    assert (told["selected_records"], told["embedded_records"], told["cleaned_records"]) == (
        selected,
        embedded,
        cleaned,
    )


def test_the_report(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "label")
    documented = {
        "input": "in.jsonl", "output": "out.jsonl", "records": 5, "selected_records": 4, "embedded_records": 2,
        "cleaned_records": 0, "mode": "fill_missing", "dimension": 4, "model": "label",
    }  # fmt: skip
    cost = {"texts": 2, "reused_texts": 0, "requests": 0, "retries": 0, "tokens": None}
    assert list(cli("embed", *FILES, "--json").json.items()) == [*documented.items(), *cost.items()]
    assert cli("embed", *FILES, "--json", "--clean").json["model"] == ""


def test_cleaning_needs_no_provider(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "0")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "gemini")
    refused = cli("embed", *FILES)
    assert refused.code == 1
    assert "GEMINI_API_KEY is required for the gemini embedding provider" in refused.err
    assert cli("embed", *FILES, "--clean").code == 0
    assert "vec" not in (place / "out.jsonl").read_text()


def test_values_come_out_as_they_went_in(cli: Cli, place: Path) -> None:
    odd = '{"type" : "Doc", "data": {"n": 1.10, "big": 12345678901234567890.5, "o": {"z": 1, "a" : "é"}, "e": 1e400}}'
    (place / "in.jsonl").write_text(f"\n  {odd}\r\n\n {odd.replace('Doc', 'Else')}\n\u2003\n")
    fields = ["n", "big", "o", "missing", "e"]
    (place / "spec.json").write_text(json.dumps({"dimension": 2, "types": {"Doc": {"target": "v", "fields": fields}}}))
    assert cli("embed", *FILES, "--json").json["records"] == 2
    embedded, copied = (place / "out.jsonl").read_text().splitlines()
    text = 'type: Doc\nn: 1.10\nbig: 12345678901234567890.5\no: {"z":1,"a":"é"}\ne: 1e400'
    vector = json.dumps(vector_of(text, 2), separators=(",", ":"))
    same = '"data":{"n":1.10,"big":12345678901234567890.5,"o":{"z":1,"a":"é"},"e":1e400'
    assert embedded == f'{{"type":"Doc",{same},"v":{vector}}}}}'
    assert copied == f'{{"type":"Else",{same}}}}}'


def test_the_output_may_be_the_input(cli: Cli, place: Path) -> None:
    same = ("--input", "in.jsonl", "--output", "in.jsonl", "--spec", "spec.json")
    assert cli("embed", *same, "--json").json["embedded_records"] == 2
    assert cli("embed", *same, "--json").json["embedded_records"] == 0


def test_a_manifest(cli: Cli, place: Path) -> None:
    (place / "seeds" / "data").mkdir(parents=True)
    write(place / "seeds" / "data" / "seed.jsonl", RECORDS)
    manifest = place / "seeds" / "seed.yaml"
    spec = json.dumps(SPEC)
    manifest.write_text(f"unknown: 1\nseed: {{data: ./data/seed.jsonl}}\nembeddings: {spec}\n")
    told = cli("embed", "--seed", "seeds/seed.yaml", "--json").json
    assert told["input"] == "seeds/./data/seed.jsonl"
    assert told["output"] == "seeds/./build/seed.embedded.jsonl"
    assert len(read(place / "seeds" / "build" / "seed.embedded.jsonl")) == 5
    manifest.write_text(
        "sources: {raw_seed: data/seed.jsonl}\nseed: {data: nowhere}\n"
        f"artifacts: {{embedded_seed: out/vectors.jsonl}}\nembeddings: {spec}\n"
    )
    assert cli("embed", "--seed", "seeds/seed.yaml", "--json").json["output"] == "seeds/out/vectors.jsonl"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"embeddings: {json.dumps(SPEC)}", "sources.raw_seed"),
        ("sources: {raw_seed: in.jsonl}", "it needs embeddings"),
        ("sources: {}\nembeddings: 1", "raw_seed"),
        ("artifacts: {x: 1}\nsources: {raw_seed: a}", "embedded_seed"),
        ("sources: [", "is not valid YAML"),
        ("", "sources.raw_seed"),
        ("sources: {raw_seed: a}\nembeddings: {dimension: -1, types: {}}", "embeddings.dimension"),
    ],
)
def test_unusable_manifests(cli: Cli, place: Path, content: str, message: str) -> None:
    (place / "seed.yaml").write_text(content)
    ran = cli("embed", "--seed", "seed.yaml")
    assert ran.code == 1
    assert message in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 1, "--input is required when --seed is not provided"),
        (("--output", "o"), 1, "--input is required when --seed is not provided"),
        (("--input", "i"), 2, "--input requires --output and --spec"),
        (("--input", "i", "--output", "o"), 2, "--input requires --spec"),
        (("--spec", "s"), 2, "--spec requires --input and --output"),
        (("--seed", "s", "--input", "i"), 2, "--seed and --input are mutually exclusive"),
        (("--seed", "s", "--spec", "i"), 2, "--seed and --spec are mutually exclusive"),
        ((*FILES, "--clean", "--reembed-all"), 2, "mutually exclusive"),
        ((*FILES, "--select", "slug"), 1, "selector must be field=value or Type:field=value"),
        ((*FILES, "--select", "Doc: =x"), 1, "selector field cannot be empty"),
        ((*FILES, "--type", "Doc", "--type", "Docs"), 1, "the embedding spec has no type 'Docs'; did you mean 'Doc'?"),
        ((*FILES, "--select", "doc:slug=a"), 1, "the embedding spec has no type 'doc'; did you mean 'Doc'?"),
        ((*FILES, "--clean", "--type", "Other"), 1, "the embedding spec has no type 'Other'\n"),
        ((*FILES[:1], "gone.jsonl", *FILES[2:]), 1, "seed input does not exist: gone.jsonl"),
        ((*FILES[:5], "gone.json"), 1, "embedding spec does not exist: gone.json"),
        (("--store", "x", *FILES), 1, "`embed` is a local command; --store"),
    ],
)
def test_wrong_usage(cli: Cli, arguments: tuple[str, ...], code: int, message: str) -> None:
    ran = cli("embed", *arguments)
    assert ran.code == code
    assert message in ran.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3 is not valid JSON: "),
        ("[1]", "line 3 is not valid JSON: "),
        ('{"a": NaN}', "line 3 is not valid JSON: "),
        ("\udcff", "line 3 is not valid JSON: "),
        ('{"a":' * 3000, "line 3 is not valid JSON: "),
        ('{"type": "Doc"}', "line 3 is missing object field 'data'"),
        ('{"type": "Doc", "data": []}', "line 3 is missing object field 'data'"),
    ],
)
def test_a_bad_record_leaves_the_output_as_it_was(cli: Cli, place: Path, line: str, message: str) -> None:
    good = json.dumps(RECORDS[0])
    (place / "in.jsonl").write_bytes(f"{good}\n\n{good}\n{line}\n".encode(errors="surrogateescape"))
    (place / "out.jsonl").write_text("before")
    ran = cli("embed", *FILES)
    assert ran.code == 1
    assert message in ran.err
    assert (place / "out.jsonl").read_text() == "before"


def test_a_dimension_of_zero(cli: Cli, place: Path) -> None:
    (place / "spec.json").write_text(json.dumps({**SPEC, "dimension": 0}))
    assert "embedding dimension must be greater than zero" in cli("embed", *FILES).err


def test_two_runs_do_not_mix_their_lines(cli: Cli, place: Path) -> None:
    with (place / "out.jsonl.tmp").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ran = cli("embed", *FILES)
    assert ran.code == 1
    assert "another `omnigraph embed` is writing 'out.jsonl.tmp'" in ran.err
    assert cli("embed", *FILES).code == 0


def many(path: Path, count: int) -> None:
    write(path / "in.jsonl", [{"type": "Doc", "data": {"slug": str(number)}} for number in range(count)])


def test_a_run_that_failed_is_repeated_at_the_price_of_the_rest(
    cli: Cli, place: Path, provider: EmbeddingServer
) -> None:
    many(place, 300)
    provider.faults.extend([proper, Reply(503, "busy"), proper, Reply(401, "no more credit")])
    failed = cli("embed", *FILES)
    assert failed.code == 1
    assert "status 401: no more credit" in failed.err
    assert not (place / "out.jsonl").exists()
    assert (place / "out.jsonl.resume").exists()
    told = cli("embed", *FILES, "--json").json
    assert (told["texts"], told["reused_texts"], told["requests"], told["retries"]) == (300, 128, 3, 0)
    assert told["tokens"] == 3 * 172
    assert not (place / "out.jsonl.resume").exists()
    paid = [len(asked.texts) for asked in provider.asked]
    assert paid == [64, 64, 64, 64, 64, 64, 44]
    assert [record["data"]["slug"] for record in read(place / "out.jsonl")] == [str(number) for number in range(300)]


def test_a_run_that_was_killed_is_repeated_at_the_price_of_the_rest(
    cli: Cli, place: Path, provider: EmbeddingServer
) -> None:
    many(place, 150)
    (place / "out.jsonl").write_text("before")
    provider.faults.extend([proper, proper, never])
    command = [sys.executable, "-m", "omnigraph.cli.main", "embed", *FILES]
    child = subprocess.Popen(command, cwd=place, env=os.environ)
    wait_until(lambda: len(provider.asked) == 3, "the third request")
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert (place / "out.jsonl").read_text() == "before"
    ran = cli("embed", *FILES)
    assert (ran.code, ran.err) == (0, "note: asked for 22 of 150 texts: 1 request, 0 retries, 66 tokens\n")
    assert [len(asked.texts) for asked in provider.asked] == [64, 64, 22, 22]
    assert len(read(place / "out.jsonl")) == 150
