"""`schema plan`: what a change writes, which rows stand against it, and who it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SCHEMA, Cli

POLICY = """\
version: 1
groups: {staff: [ana]}
rules:
  - id: adults
    allow:
      actors: {group: staff}
      actions: [read]
      branch_scope: any
      rows: {Person: 'age > 17'}
"""
PIPELINE = """\
version: 1
graph: g
sources: {people: {format: csv, path: people.csv, options: {header: true}}}
nodes:
  Person: {from: people, select: {name: name, age: "cast(age as int)"}}
"""
TYPED = SCHEMA.replace("age: I32?", "age: I64")


@pytest.fixture
def graph(cli: Cli) -> Cli:
    cli("init", "--schema", "s.pg", "--store", "g")
    cli("load", "--store", "g", "--data", "d.jsonl", "--mode", "append")
    Path("team.policy.yaml").write_text(POLICY)
    Path("people.yaml").write_text(PIPELINE)
    return cli


def plan(cli: Cli, schema: str, *arguments: str) -> list[str]:
    Path("next.pg").write_text(schema)
    outcome = cli("schema", "plan", "--store", "g", "--schema", "next.pg", *arguments)
    assert outcome.code == 0
    return outcome.lines


def test_rows_that_stand_against_a_step_are_named_below_it(graph: Cli) -> None:
    assert plan(graph, TYPED) == [
        "schema plan for g",
        "supported: yes",
        "blocked by stored rows: 1 step",
        "- change the type of property 'Person.age' (I32? -> I64) on node 'Person'",
        "    rewrites 2 rows in 1 file, about 17 bytes",
        "    checks that every Person has a value of 'age'",
        "    fails: node:Person 'Bob': non-nullable property 'age' has null value",
    ]
    refused = graph("schema", "apply", "--store", "g", "--schema", "next.pg", "--quiet")
    assert refused.code == 1
    assert "node:Person 'Bob'" in refused.err


def test_queries_policies_and_pipelines_that_break_are_named(graph: Cli) -> None:
    files = ("--query", "q.gq", "--policy", "team.policy.yaml", "--pipeline", "people.yaml")
    broken = [line.split(":")[0] for line in plan(graph, SCHEMA.replace("age: I32?", ""), *files) if line[0] == "!"]
    assert broken == [
        "! breaks stored query 'people'",
        "! breaks stored query 'by_name'",
        "! breaks stored query 'add'",
        "! breaks stored query 'grow'",
        "! breaks policy 'team.policy.yaml'",
        "! breaks pipeline 'people.yaml'",
    ]
    assert not [line for line in plan(graph, SCHEMA.replace("age: I32?", "age: I64?"), *files) if line[0] == "!"]


def test_a_plan_between_two_files_knows_no_effects(graph: Cli) -> None:
    Path("next.pg").write_text(TYPED)
    lines = graph("schema", "plan", "--from", "s.pg", "--schema", "next.pg").lines
    assert lines[2:] == ["- change the type of property 'Person.age' (I32? -> I64) on node 'Person'"]
