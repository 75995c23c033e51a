"""The questions of the followers example, answered by the graph and by SQL."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph
from tests.examples.tables import EXAMPLES, Tables, rows_of

PEOPLE, CITIES, STATES, COUNTRIES = 120, 12, 6, 3
INTERESTS = ("Fine Dining", "Tennis", "Photography", "Chess")
NAMES = ("Ada", "Bo", "Cy", "Di", "Ed")
FOLDER = EXAMPLES / "followers"


def population() -> Tables:
    chance, tables = random.Random(11), Tables()
    for number in range(PEOPLE):
        born = f"{chance.randint(1950, 2004)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
        tables.add_node(
            "Person",
            number=number,
            name=f"{chance.choice(NAMES)} {number}",
            gender=chance.choice(("female", "male")),
            birthday=born,
            age=2024 - int(born[:4]),
            is_married=chance.random() < 0.4,
        )
        tables.add_edge("LivesIn", number, chance.randrange(CITIES))
        for interest in chance.sample(range(len(INTERESTS)), chance.randint(0, 3)):
            tables.add_edge("HasInterest", number, interest)
        for other in chance.sample(range(PEOPLE), chance.randint(0, 8)):
            tables.add_edge("Follows", number, other)
    for number in range(CITIES):
        tables.add_node("City", number=number, name=f"City {number}", population=chance.randint(1, 9) * 1000)
        tables.add_edge("CityIn", number, number % STATES)
    for number in range(STATES):
        tables.add_node("State", number=number, name=f"State {number}")
        tables.add_edge("StateIn", number, number % COUNTRIES)
    for number in range(COUNTRIES):
        tables.add_node("Country", number=number, name=f"Country {number}")
    for number, name in enumerate(INTERESTS):
        tables.add_node("Interest", number=number, name=name)
    return tables


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    connection = population().database()
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with omnigraph.init(tmp_path_factory.mktemp("followers") / "graph", FOLDER / "schema.pg") as graph:
        population().load(graph)
        yield graph


HOME = """
    join LivesIn on LivesIn.src = Person.number join City on City.number = LivesIn.dst
    join CityIn on CityIn.src = City.number join State on State.number = CityIn.dst
    join StateIn on StateIn.src = State.number join Country on Country.number = StateIn.dst
"""
INTEREST = """
    join HasInterest on HasInterest.src = Person.number
    join Interest on Interest.number = HasInterest.dst and lower(Interest.name) = lower(:interest)
"""
QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "most_followed": (
        {},
        """select number as person, name, count(*) as followers from Follows join Person on number = dst
        group by number order by followers desc, person limit 3""",
    ),
    "home_of_most_followed": (
        {},
        f"""with most as (select dst, count(*) as followers from Follows group by dst
            order by followers desc, cast(dst as text) limit 1)
        select Person.name, followers, City.name as city, State.name as state, Country.name as country
        from most join Person on Person.number = most.dst {HOME}""",
    ),
    "youngest_cities": (
        {"country": "Country 1"},
        f"""select City.name as city, avg(age) as average_age from Person {HOME} where Country.name = :country
        group by City.number order by average_age, city limit 5""",
    ),
    "people_by_country": (
        {"youngest": 30, "oldest": 40},
        f"""select Country.name as country, count(*) as people from Person {HOME}
        where age between :youngest and :oldest group by Country.number order by people desc, country limit 3""",
    ),
    "people_with_interest": (
        {"gender": "male", "city": "City 4", "country": "Country 1", "interest": "fine dining"},
        f"""select count(*) as people from Person {INTEREST} {HOME}
        where gender = :gender and City.name = :city and Country.name = :country""",
    ),
    "cities_with_interest": (
        {"gender": "female", "interest": "tennis"},
        f"""select City.name as city, Country.name as country, count(*) as people from Person {INTEREST} {HOME}
        where gender = :gender group by City.number order by people desc, city limit 5""",
    ),
    "state_with_interest": (
        {"country": "Country 0", "youngest": 23, "oldest": 50, "interest": "PHOTOGRAPHY"},
        f"""select State.name as state, count(*) as people from Person {INTEREST} {HOME}
        where Country.name = :country and age between :youngest and :oldest
        group by State.number order by people desc, state limit 1""",
    ),
    "paths_of_two": ({}, "select count(*) as paths from Follows as f join Follows as g on g.src = f.dst"),
    "paths_through_ages": (
        {"younger": 50, "older": 25},
        """select count(*) as paths from Follows as f join Follows as g on g.src = f.dst
        join Person as b on b.number = f.dst join Person as c on c.number = g.dst
        where b.age < :younger and c.age > :older""",
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_answer_is_that_of_sql(name: str, graph: Graph, database: sqlite3.Connection) -> None:
    parameters, sql = QUESTIONS[name]
    answer = list(graph.query((FOLDER / "queries.gq").read_text(), name, parameters))
    assert answer == rows_of(database.execute(sql, parameters))
    assert answer


def test_every_query_has_a_question() -> None:
    text = Path(FOLDER / "queries.gq").read_text()
    assert {line.split("(")[0].removeprefix("query ") for line in text.splitlines() if line.startswith("query ")} == (
        QUESTIONS.keys()
    )
