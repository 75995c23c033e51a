"""Write the data of the library example: a few thousand rows in CSV, Parquet and NDJSON, some of them bad.

    python examples/library/generate.py [DIRECTORY]

Always the same rows. The bad ones are what real exports have: a broken line, an unknown district, an impossible date,
an e-mail used twice, a book without its number, loans of books that the catalogue does not know.
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
READERS, BOOKS, AUTHORS, LOANS, RECOMMENDATIONS = 1_500, 900, 160, 4_000, 3_000

FIRST = ["Ada", "Bo", "Cem", "Dora", "Emil", "Femi", "Gita", "Hugo", "Ines", "Jun", "Kofi", "Lena", "Mara", "Nils"]
LAST = ["Abara", "Berg", "Costa", "Duarte", "Eklund", "Fischer", "Garcia", "Hansen", "Ito", "Jansen", "Kaya", "Lindt"]
DISTRICTS = ["North", "South", "East", "West", "Harbour"]
SUBJECTS = {
    "the sea": ["harbour", "tide", "sailor", "lighthouse", "storm", "island", "ship", "anchor"],
    "distant planets": ["orbit", "planet", "signal", "engineer", "comet", "star", "station", "silence"],
    "an old city": ["street", "market", "bridge", "archive", "winter", "clock", "stranger", "rooftop"],
    "a long war": ["letter", "border", "soldier", "harvest", "train", "exile", "river", "witness"],
    "small machines": ["gear", "workshop", "inventor", "engine", "pattern", "lever", "apprentice", "mistake"],
    "the forest": ["root", "wolf", "path", "moss", "hunter", "spring", "fire", "seed"],
}
TITLES = ["The {} and the {}", "{} without {}", "The Last {} of the {}", "{} before {}", "From the {} to the {}"]
ABSTRACTS = [
    "A story about {subject}: the {a}, the {b}, and the {c} that nobody wanted to see.",
    "What remains of {subject} when the {a} is gone and only the {b} and the {c} are left.",
    "Three generations, one {a}, and the {b} that changes what they know of {subject} and the {c}.",
]


def main(directory: Path) -> dict[str, int]:
    """Write everything below `directory`; rows by the path they are in."""
    chance = random.Random(SEED)
    isbns = catalogue(directory / "catalogue", chance)
    cards = readers(directory / "readers", chance)
    loans(directory / "loans.ndjson", chance, cards, isbns)
    recommendations(directory / "recommendations.ndjson", chance, cards)
    return {
        "readers/*.csv": READERS,
        "catalogue/*.parquet": BOOKS,
        "loans.ndjson": LOANS,
        "recommendations.ndjson": RECOMMENDATIONS + 1,
    }


def profile_of(*subjects: str) -> list[float]:
    """What a book is about, as a vector: the first subject most, the others less."""
    return [round(1.0 / (1 + subjects.index(each)), 3) if each in subjects else 0.0 for each in SUBJECTS]


def catalogue(directory: Path, chance: random.Random) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    authors = {f"{chance.choice(FIRST)} {chance.choice(LAST)}-{chance.choice(LAST)}": 0 for _ in range(2 * AUTHORS)}
    authors = {name: chance.randrange(1850, 1995) for name in list(authors)[:AUTHORS]}
    rows = []
    for number in range(BOOKS):
        subject, second = chance.sample(list(SUBJECTS), 2)
        a, b, c = chance.sample(SUBJECTS[subject], 3)
        author = chance.choice(list(authors))
        blurred = [round(weight + chance.uniform(0, 0.15), 3) for weight in profile_of(subject, second)]
        rows.append(
            {
                "isbn": f"978-{number:06d}",
                "title": chance.choice(TITLES).format(a.title(), b.title()),
                "abstract": chance.choice(ABSTRACTS).format(subject=subject, a=a, b=b, c=c),
                "published": authors[author] + chance.randrange(20, 60),
                "pages": chance.randrange(90, 900),
                "author": author,
                "author_born": authors[author],
                "profile": blurred,
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
    lines[1] = "C00001,Bo Costa,West,2019-05-04,bo@example.org"
    lines[40] = "C00040,Ada Berg,Moon,2020-01-01,moon@example.org"
    lines[300] = "C00300,Nils Ito,North,2020-02-31,nils@example.org"
    lines[700] = "C00700,Olga Kaya,South,2021-01-01,bo@example.org"
    lines[1100] = 'C01100,"Pia Novak,East'
    for part in range(3):
        some = [header, *lines[part::3]]
        (directory / f"readers-{part}.csv").write_text("\n".join(some) + "\n")
    return [f"C{number:05d}" for number in range(READERS)]


def loans(path: Path, chance: random.Random, cards: list[str], isbns: list[str]) -> None:
    with path.open("w") as file:
        for number in range(LOANS):
            day = date(2025, 1, 1) + timedelta(days=chance.randrange(600))
            # Some books are read by everybody.
            isbn = isbns[int(len(isbns) * chance.random() ** 3)]
            loan = {"card": chance.choice(cards), "isbn": isbn, "day": str(day)}
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
