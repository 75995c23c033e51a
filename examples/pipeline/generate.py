"""Write the data of the library example: a few thousand rows in CSV, Parquet and NDJSON, some of them bad.

    python examples/pipeline/generate.py [DIRECTORY]

Always the same rows. The bad ones are what real exports have: a broken line, an unknown district, an impossible date,
an e-mail used twice, loans of books that the catalogue does not know.
"""

from __future__ import annotations

import json
import random
import sys
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SEED = 1961
READERS, BOOKS, AUTHORS, LOANS, RECOMMENDATIONS = 1_500, 900, 160, 4_000, 800

FIRST = [
    "Ada",
    "Bo",
    "Cem",
    "Dora",
    "Emil",
    "Femi",
    "Gita",
    "Hugo",
    "Ines",
    "Jun",
    "Kofi",
    "Lena",
    "Mara",
    "Nils",
    "Olga",
    "Pia",
    "Quinn",
    "Rosa",
    "Sam",
    "Tove",
]
LAST = [
    "Abara",
    "Berg",
    "Costa",
    "Duarte",
    "Eklund",
    "Fischer",
    "Garcia",
    "Hansen",
    "Ito",
    "Jansen",
    "Kaya",
    "Lindt",
    "Moreau",
    "Novak",
    "Okafor",
    "Petrov",
]
DISTRICTS = ["North", "South", "East", "West", "Harbour"]
SUBJECTS = {
    "the sea": "harbour tide sailor lighthouse storm island ship salt",
    "distant planets": "orbit planet signal engineer ocean star station silence",
    "an old city": "street market bridge archive winter clock stranger rooftop",
    "a long war": "letter border soldier harvest train exile river witness",
    "small machines": "gear workshop inventor steam pattern copper apprentice mistake",
    "the forest": "root wolf path moss hunter spring fire seed",
}
SHAPES = [
    "A History of {}",
    "Letters from {}",
    "{} at Night",
    "The Book of {}",
    "Notes on {}",
    "Beyond {}",
    "What {} Remembers",
]


def main(directory: Path) -> None:
    chance = random.Random(SEED)
    isbns = catalogue(directory / "catalogue", chance)
    cards = readers(directory / "readers", chance)
    loans(directory / "loans.ndjson", chance, cards, isbns)
    recommendations(directory / "recommendations.ndjson", chance, cards)


def catalogue(directory: Path, chance: random.Random) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    authors = {
        f"{chance.choice(FIRST)} {chance.choice(LAST)} {n}": chance.randrange(1850, 1995) for n in range(AUTHORS)
    }
    rows = []
    for number in range(BOOKS):
        subject = chance.choice(list(SUBJECTS))
        words = SUBJECTS[subject].split()
        author = chance.choice(list(authors))
        said = ", ".join(chance.sample(words, 4))
        rows.append(
            {
                "isbn": f"978-{number:06d}",
                "title": chance.choice(SHAPES).format(subject.removeprefix("the ").removeprefix("a ").title()),
                "abstract": f"A story about {subject}: {said}, and {chance.choice(words)} again.",
                "published": authors[author] + chance.randrange(20, 60),
                "pages": chance.randrange(90, 900),
                "author": author,
                "author_born": authors[author],
            }
        )
    rows[17]["isbn"] = "no isbn yet"
    half = len(rows) // 2
    for part, some in enumerate((rows[:half], rows[half:])):
        pq.write_table(pa.Table.from_pylist(some), directory / f"part-{part}.parquet")
    return [str(row["isbn"]) for row in rows]


def readers(directory: Path, chance: random.Random) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    header = "card,full_name,district,joined,email"
    lines = []
    for number in range(READERS):
        joined = date(2015, 1, 1) + timedelta(days=chance.randrange(4_000))
        email = f"reader{number}@example.org" if chance.random() < 0.8 else ""
        name = f"{chance.choice(FIRST)} {chance.choice(LAST)}"
        lines.append(f"C{number:05d},{name},{chance.choice(DISTRICTS)},{joined},{email}")
    lines[40] = "C00040,Ada Berg,Moon,2020-01-01,moon@example.org"
    lines[300] = "C00300,Nils Ito,North,2020-02-31,nils@example.org"
    lines[700] = "C00700,Olga Kaya,South,2021-01-01,reader1@example.org"
    lines[1100] = 'C01100,"Pia Novak,East'
    for part in range(3):
        some = [header, *lines[part::3]]
        (directory / f"readers-{part}.csv").write_text("\n".join(some) + "\n")
    return [f"C{number:05d}" for number in range(READERS)]


def loans(path: Path, chance: random.Random, cards: list[str], isbns: list[str]) -> None:
    with path.open("w") as file:
        for number in range(LOANS):
            day = date(2025, 1, 1) + timedelta(days=chance.randrange(600))
            loan = {"card": chance.choice(cards), "isbn": chance.choice(isbns), "day": str(day)}
            if chance.random() < 0.9:
                loan["returned"] = str(day + timedelta(days=chance.randrange(1, 40)))
            if number % 1_000 == 500:
                loan["isbn"] = "978-999999"
            file.write(json.dumps(loan) + "\n")


def recommendations(path: Path, chance: random.Random, cards: list[str]) -> None:
    with path.open("w") as file:
        for _ in range(RECOMMENDATIONS):
            source, target = chance.sample(cards, 2)
            data = {"because": f"we both read about {chance.choice(list(SUBJECTS))}"}
            file.write(json.dumps({"edge": "Recommends", "from": source, "to": target, "data": data}) + "\n")
        file.write('{"edge": "Recommends", "from": "C00001"}\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data")
