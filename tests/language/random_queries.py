"""Random clauses and stages over the schema of `query_archive`. Many of them do not typecheck; who draws them skips
those."""

from __future__ import annotations

from random import Random

_PEOPLE = ("a", "b", "c")
_PAPERS = ("p", "q")


def random_match(random: Random, *, has_order: bool = True) -> list[str]:
    """One to three clauses. Those that have an order are blocks but for negations: what is bound after one is not
    visible in it."""
    return [_clause(random, 1, has_order) for _ in range(random.randint(1, 3))]


def random_query(random: Random) -> tuple[str, str]:
    """Two stages, of which the second has conditions on what the first returns."""
    match = "  ".join(random_match(random))
    returns = "$a, $a.age as age, $a.name as name" + (", $a.age + 1 as next" if random.random() < 0.5 else "")
    first = f"match {{ $a: Person  {match} }} return {{ {returns} }}"
    tests = [
        "$age > 20",
        "$age is null",
        'not ($name = "Ada")',
        "$a.karma > 1.0",
        "$a.age = $age",
        "($age - 5) * 2 > 30",
    ]
    chosen = "  ".join(random.sample(tests, random.randint(1, 2)))
    more = random.choice(("", "$a wrote $p", "optional { $a knows $b }", "not { $a knows $b }"))
    return first, f"match {{ {chosen}  {more} }} return {{ $a.@id as id, $age as age, $name as name }}"


def _block(random: Random, depth: int, has_order: bool) -> str:
    return "  ".join(_clause(random, depth, has_order) for _ in range(random.randint(1, 2)))


def _clause(random: Random, depth: int, has_order: bool) -> str:
    person, other, paper = random.choice(_PEOPLE), random.choice(_PEOPLE), random.choice(_PAPERS)
    clauses = [
        f"${person}: Person",
        f"${paper}: Paper {{ pages: {random.choice((5, 10, 20))} }}",
        f"${person} wrote ${paper}",
        f"${person} knows ${other}",
        f"${person} knows{{1,2}} ${other}",
        f"${person} (wrote | memo) ${paper}",
        f"path ${random.choice('kl')}: shortest ${person} knows ${other}",
        f"${person} knows{{1,}} ${other} each $_ $n {{ $n.age > {random.choice(('25', '$a.age'))} }}",
        _condition(random, depth if has_order else 0),
    ]
    if depth:
        block = _block(random, depth - 1, has_order)
        clauses += [f"not {{ {block} }}", *([f"optional {{ {block} }}"] * 2 if has_order else ())]
    return random.choice(clauses)


def _condition(random: Random, depth: int) -> str:
    variable = random.choice((*_PEOPLE, *_PAPERS))
    number = f"${variable}.{'age' if variable in _PEOPLE else 'pages'}"
    conditions = [
        f"{number} > {random.choice((8, 15, 25))}",
        f"{number} is null",
        f"not ({number} = {random.choice((10, 20, 30))})",
        f"({number} > 15 or $a.age is null)",
        f"({number} > 5 and {number} < 35)",
        f"$a.age > {number}",
    ]
    if depth:
        block = _block(random, depth - 1, True)
        conditions += [
            f"exists {{ {block} }}",
            f"(count {{ {block} }} > 1)",
            f"(exists {{ {block} }} or {number} > 15)",
        ]
    return random.choice(conditions)
