"""The questions of the social network example, answered by the graph and by SQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph
from tests.examples.social_data import network
from tests.examples.tables import EXAMPLES, rows_of

FOLDER = EXAMPLES / "social_network"
SHARED = """
with recursive
Friend(one, other) as (select src, dst from Knows union select dst, src from Knows),
Near(number, hops) as (
    select other, 1 from Friend where one = :person
    union
    select f.other, n.hops + 1 from Near as n join Friend as f on f.one = n.number where n.hops < 3
),
Within(number, distance) as (
    select number, min(hops) from Near where number != :person group by number
),
Message(number, content, created, author, country) as (
    select p.number, coalesce(p.content, p.image_file), p.created, a.dst, f.dst
    from Post as p join PostCreator as a on a.src = p.number join PostedFrom as f on f.src = p.number
    union all
    select c.number, c.content, c.created, a.dst, f.dst
    from Comment as c join CommentCreator as a on a.src = c.number join CommentedFrom as f on f.src = c.number
),
Liked(fan, message, liked) as (
    select src, dst, created from LikesPost union all select src, dst, created from LikesComment
),
Reply(number, message) as (
    select src, dst from ReplyToPost union all select src, dst from ReplyToComment
)
"""
QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "people_by_name": (
        {"person": 0, "name": "Ada"},
        """select p.number, last_name, distance, birthday, json_array(emails) as emails, City.name as city,
        (select json_group_array(json_object('name', u.name, 'year', s.class_year, 'city', c.name))
            from StudyAt as s join University as u on u.number = s.dst join UniversityIn as i on i.src = u.number
            join City as c on c.number = i.dst where s.src = p.number) as universities,
        (select json_group_array(json_object('name', o.name, 'since', w.since, 'country', c.name))
            from WorkAt as w join Company as o on o.number = w.dst join CompanyIn as i on i.src = o.number
            join Country as c on c.number = i.dst where w.src = p.number) as companies
        from Within as n join Person as p on p.number = n.number join LivesIn as l on l.src = p.number
        join City on City.number = l.dst
        where first_name = :name order by distance, last_name, p.number limit 20""",
    ),
    "messages_of_friends": (
        {"person": 0, "until": "2012-06-01T00:00:00Z"},
        """select p.number as friend, first_name, m.number as message, content, created
        from Friend join Person as p on p.number = other join Message as m on m.author = p.number
        where one = :person and created <= :until order by created desc, message limit 20""",
    ),
    "friends_abroad": (
        {
            "person": 0,
            "one": "Country 1",
            "two": "Country 2",
            "begin": "2012-01-01T00:00:00Z",
            "end": "2012-12-01T00:00:00Z",
        },
        """, Abroad as (
            select p.number, p.first_name,
            (select count(*) from Message join Country as c on c.number = country where author = p.number
                and c.name = :one and created >= :begin and created < :end) as in_one,
            (select count(*) from Message join Country as c on c.number = country where author = p.number
                and c.name = :two and created >= :begin and created < :end) as in_two
            from Within as n join Person as p on p.number = n.number join LivesIn as l on l.src = p.number
            join CityIn as i on i.src = l.dst join Country as h on h.number = i.dst
            where n.distance <= 2 and h.name not in (:one, :two)
        ) select *, in_one + in_two as messages from Abroad where in_one > 0 and in_two > 0
        order by in_one desc, number limit 20""",
    ),
    "new_topics": (
        {"person": 0, "begin": "2012-02-01T00:00:00Z", "end": "2012-08-01T00:00:00Z"},
        """select t.name as tag, count(*) as posts from Friend join PostCreator as a on a.dst = other
        join Post as p on p.number = a.src join PostTag as x on x.src = p.number join Tag as t on t.number = x.dst
        where one = :person and p.created < :end group by t.number having min(p.created) >= :begin
        order by posts desc, tag limit 10""",
    ),
    "new_groups": (
        {"person": 0, "after": "2012-03-01T00:00:00Z"},
        """select f.number as forum, f.title, sum((select count(*) from ContainerOf as c join PostCreator as a
            on a.src = c.dst where c.src = f.number and a.dst = n.number)) as posts
        from Within as n join HasMember as m on m.dst = n.number join Forum as f on f.number = m.src
        where n.distance <= 2 and m.joined > :after group by f.number order by posts desc, forum limit 20""",
    ),
    "tags_beside": (
        {"person": 0, "tag": "tag 02"},
        """select o.name as tag, count(distinct x.src) as posts from Within as n
        join PostCreator as a on a.dst = n.number join PostTag as x on x.src = a.src join Tag as t on t.number = x.dst
        join PostTag as y on y.src = a.src join Tag as o on o.number = y.dst
        where n.distance <= 2 and t.name = :tag and o.number != t.number group by o.number
        order by posts desc, tag limit 10""",
    ),
    "recent_likes": (
        {"person": 0},
        """, Latest as (
            select l.*, row_number() over (partition by fan order by liked desc, message) as place
            from Liked as l join Message as m on m.number = l.message where m.author = :person
        ) select fan, first_name, liked, message, content,
        cast((julianday(liked) - julianday(created)) * 86400 + 0.5 as integer) / 60 as minutes,
        not exists (select * from Friend where one = :person and other = fan) as is_new
        from Latest join Message as m on m.number = message join Person as p on p.number = fan where place = 1
        order by liked desc, fan limit 20""",
    ),
    "recent_replies": (
        {"person": 0},
        """select p.number as author, first_name, c.created, c.number as reply, c.content
        from Message as m join Reply as r on r.message = m.number join Message as c on c.number = r.number
        join Person as p on p.number = c.author where m.author = :person order by c.created desc, reply limit 20""",
    ),
    "messages_nearby": (
        {"person": 0, "before": "2012-05-01T00:00:00Z"},
        """select n.number as friend, m.number as message, content, created
        from Within as n join Message as m on m.author = n.number where distance <= 2 and created < :before
        order by created desc, message limit 20""",
    ),
    "friends_to_be": (
        {"person": 0, "month": 12},
        """, Scored as (
            select p.number, p.first_name, City.name as city, a.src as post, exists (
                select * from PostTag as t join HasInterest as h on h.dst = t.dst
                where t.src = a.src and h.src = :person) as meets
            from Within as n join Person as p on p.number = n.number join LivesIn as l on l.src = p.number
            join City on City.number = l.dst left join PostCreator as a on a.dst = p.number
            where n.distance = 2 and (
                (cast(substr(birthday, 6, 2) as integer) = :month and cast(substr(birthday, 9) as integer) >= 21)
                or (cast(substr(birthday, 6, 2) as integer) = :month % 12 + 1
                    and cast(substr(birthday, 9) as integer) < 22))
        ) select number, first_name, city,
        sum(case when post is null then 0 when meets then 1 else -1 end) as score
        from Scored group by number order by score desc, number limit 10""",
    ),
    "people_at_work": (
        {"person": 0, "country": "Country 1", "before": 2010},
        """select p.number, first_name, c.name as company, w.since from Within as n
        join Person as p on p.number = n.number join WorkAt as w on w.src = p.number
        join Company as c on c.number = w.dst join CompanyIn as i on i.src = c.number
        join Country as h on h.number = i.dst
        where distance <= 2 and h.name = :country and w.since < :before
        order by w.since, p.number, company desc limit 10""",
    ),
    "experts": (
        {"person": 0, "class": "Thing"},
        """, Below(number) as (
            select number from TagClass where name = :class
            union select s.src from Below as b join SubclassOf as s on s.dst = b.number
        ) select p.number, first_name, count(distinct c.src) as replies, json_group_array(distinct t.name) as tags
        from Friend join Person as p on p.number = other join CommentCreator as c on c.dst = p.number
        join ReplyToPost as r on r.src = c.src join PostTag as x on x.src = r.dst join Tag as t on t.number = x.dst
        join HasType as h on h.src = t.number where one = :person and h.dst in (select number from Below)
        group by p.number order by replies desc, p.number limit 20""",
    ),
}
PATHS = """
with recursive
Friend(one, other) as (select src, dst from Knows union select dst, src from Knows),
Way(number, hops, people) as (
    select :one, 0, json_array(:one)
    union all
    select other, hops + 1, json_insert(people, '$[#]', other) from Way join Friend on one = number
    where hops < 6 and not exists (select * from json_each(people) where value = other)
),
Shortest(people) as (
    select people from Way where number = :two and hops = (select min(hops) from Way where number = :two)
),
Answered(one, other, weight) as (
    select c.dst, m.dst, 1.0 from CommentCreator as c join ReplyToPost as r on r.src = c.src
        join PostCreator as m on m.src = r.dst
    union all
    select c.dst, m.dst, 0.5 from CommentCreator as c join ReplyToComment as r on r.src = c.src
        join CommentCreator as m on m.src = r.dst
)
"""
LISTS = ("emails", "universities", "companies", "tags")


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    connection = network().database()
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with omnigraph.init(tmp_path_factory.mktemp("network") / "graph", FOLDER / "schema.pg") as graph:
        network().load(graph)
        yield graph


def ask(graph: Graph, name: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows in plain forms: whole seconds, lists in an order of their own where the question promises none."""
    rows = list(graph.query((FOLDER / "queries.gq").read_text(), name, parameters))
    return [{column: _comparable(column, value) for column, value in row.items()} for row in rows]


def _comparable(column: str, value: Any) -> Any:
    if column in LISTS:
        return sorted(map(repr, value))
    return value.replace(".000Z", "Z") if isinstance(value, str) else value


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_answer_is_that_of_sql(name: str, graph: Graph, database: sqlite3.Connection) -> None:
    parameters, sql = QUESTIONS[name]
    expected = rows_of(database.execute(SHARED + sql, parameters))
    for row in expected:
        row |= {column: sorted(map(repr, json.loads(row[column]))) for column in LISTS if column in row}
    assert ask(graph, name, parameters) == expected
    assert expected


@pytest.mark.parametrize(("one", "two"), [(3, 3), (3, 7), (3, 20), (3, 31), (3, 38)])
def test_distances_and_weighted_paths_are_those_of_sql(
    one: int, two: int, graph: Graph, database: sqlite3.Connection
) -> None:
    ends = {"one": one, "two": two}
    (shortest,) = database.execute(f"{PATHS} select min(hops) from Way where number = :two", ends).fetchone()
    assert ask(graph, "distance", ends) == [{"distance": -1 if shortest is None else shortest}]
    sql = f"""{PATHS} select people, (
        select coalesce(sum(weight), 0.0) from Answered join json_each(people) as a join json_each(people) as b
        on b.key = a.key + 1
        where (one = a.value and other = b.value) or (one = b.value and other = a.value)
    ) as weight from Shortest order by weight desc, people"""
    expected = [] if one == two else [(json.loads(people), weight) for people, weight in database.execute(sql, ends)]
    answer = [(row["people"], row["weight"]) for row in ask(graph, "trusted_paths", ends)]
    assert sorted(answer) == sorted(expected)
    assert [weight for _, weight in answer] == sorted((weight for _, weight in answer), reverse=True)
