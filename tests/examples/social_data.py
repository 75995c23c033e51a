"""A small social network, made by chance but always the same."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from tests.examples.tables import Tables

PEOPLE, POSTS, COMMENTS, FORUMS, TAGS, CITIES, COUNTRIES = 40, 160, 240, 10, 12, 8, 4
FIRST_COMMENT = 1000
START = datetime(2012, 1, 1, tzinfo=UTC)
FIRST_NAMES = ("Ada", "Bob", "Cay", "Dee")
LAST_NAMES = ("Ash", "Birch", "Cedar", "Elm", "Fir")


def instant(chance: random.Random, *, after: str | None = None) -> str:
    begin = START if after is None else datetime.fromisoformat(after)
    return (begin + timedelta(minutes=chance.randint(1, 60 * 24 * 200))).strftime("%Y-%m-%dT%H:%M:%SZ")


def network() -> Tables:
    chance, tables = random.Random(5), Tables()
    _add_topics(tables, chance)
    _add_places(tables)
    _add_people(tables, chance)
    _add_messages(tables, chance)
    _add_forums(tables, chance)
    return tables


def _add_topics(tables: Tables, chance: random.Random) -> None:
    for number, name in enumerate(("Thing", "Person", "Artist", "Place", "Lonely")):
        tables.add_node("TagClass", number=number, name=name)
    for below, above in ((1, 0), (2, 1), (3, 0)):
        tables.add_edge("SubclassOf", below, above)
    for number in range(TAGS):
        tables.add_node("Tag", number=number, name=f"tag {number:02}")
        tables.add_edge("HasType", number, chance.randrange(5))


def _add_places(tables: Tables) -> None:
    for number in range(COUNTRIES):
        tables.add_node("Country", number=number, name=f"Country {number}")
    for number in range(CITIES):
        tables.add_node("City", number=number, name=f"City {number}")
        tables.add_edge("CityIn", number, number % COUNTRIES)
    for number in range(3):
        tables.add_node("University", number=number, name=f"University {number}")
        tables.add_edge("UniversityIn", number, number)
        tables.add_node("Company", number=number, name=f"Company {number}")
        tables.add_edge("CompanyIn", number, number)


def _add_people(tables: Tables, chance: random.Random) -> None:
    for number in range(PEOPLE):
        tables.add_node(
            "Person",
            number=number,
            first_name=chance.choice(FIRST_NAMES),
            last_name=chance.choice(LAST_NAMES),
            gender=chance.choice(("female", "male")),
            birthday=f"{chance.randint(1960, 2000)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}",
            joined=instant(chance),
            browser=chance.choice(("Chrome", "Firefox")),
            languages=chance.sample(("de", "en", "fr"), 2),
            emails=[f"{number}@example.org"],
        )
        tables.add_edge("LivesIn", number, chance.randrange(CITIES))
        for tag in chance.sample(range(TAGS), chance.randint(0, 4)):
            tables.add_edge("HasInterest", number, tag)
        for university in chance.sample(range(3), chance.randint(0, 2)):
            tables.add_edge("StudyAt", number, university, class_year=chance.randint(1990, 2010))
        for company in chance.sample(range(3), chance.randint(0, 2)):
            tables.add_edge("WorkAt", number, company, since=chance.randint(1995, 2012))
    # The last few people form an island, so that some do not know each other at all.
    pairs = [(a, b) for a in range(PEOPLE) for b in range(a + 1, PEOPLE) if (a < PEOPLE - 4) == (b < PEOPLE - 4)]
    for one, other in chance.sample(pairs, 110):
        ends = (one, other) if chance.random() < 0.5 else (other, one)
        tables.add_edge("Knows", *ends, since=instant(chance))


def _add_messages(tables: Tables, chance: random.Random) -> None:
    written: dict[int, str] = {}
    for number in range(POSTS):
        written[number] = instant(chance)
        content = None if chance.random() < 0.3 else f"post {number}"
        image = None if content else f"photo{number}.jpg"
        tables.add_node("Post", number=number, content=content, image_file=image, created=written[number])
        tables.add_edge("PostCreator", number, chance.randrange(PEOPLE))
        tables.add_edge("PostedFrom", number, chance.randrange(COUNTRIES))
        for tag in chance.sample(range(TAGS), chance.randint(1, 3)):
            tables.add_edge("PostTag", number, tag)
    for number in range(FIRST_COMMENT, FIRST_COMMENT + COMMENTS):
        answered = chance.choice(list(written))
        written[number] = instant(chance, after=written[answered].replace("Z", "+00:00"))
        tables.add_node("Comment", number=number, content=f"comment {number}", created=written[number])
        tables.add_edge("ReplyToPost" if answered < FIRST_COMMENT else "ReplyToComment", number, answered)
        tables.add_edge("CommentCreator", number, chance.randrange(PEOPLE))
        tables.add_edge("CommentedFrom", number, chance.randrange(COUNTRIES))
        for tag in chance.sample(range(TAGS), chance.randint(0, 2)):
            tables.add_edge("CommentTag", number, tag)
    for number, created in written.items():
        for person in chance.sample(range(PEOPLE), chance.randint(0, 3)):
            liked = instant(chance, after=created.replace("Z", "+00:00"))
            tables.add_edge("LikesPost" if number < FIRST_COMMENT else "LikesComment", person, number, created=liked)


def _add_forums(tables: Tables, chance: random.Random) -> None:
    for number in range(FORUMS):
        tables.add_node("Forum", number=number, title=f"Forum {number}", created=instant(chance))
        for person in chance.sample(range(PEOPLE), 12):
            tables.add_edge("HasMember", number, person, joined=instant(chance))
    for post in range(POSTS):
        tables.add_edge("ContainerOf", chance.randrange(FORUMS), post)
