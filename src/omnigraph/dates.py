"""Days and milliseconds since 1970 as the texts of dates and times, and back to years, months and days.

Pure arithmetic that every package may use: `datetime` stops at the years 1 and 9999, a Date column does not.
"""

from __future__ import annotations

from typing import Final

MILLIS_PER_DAY: Final = 86_400_000


def format_date(days: int) -> str:
    """`YYYY-MM-DD`; years outside 0..9999 carry a sign, so that the text parses back."""
    year, month, day = civil_from_days(days)
    spelled = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{spelled}-{month:02d}-{day:02d}"


def format_datetime(millis: int) -> str:
    """`YYYY-MM-DDTHH:MM:SS.mmmZ`, always three decimals."""
    days, of_day = divmod(millis, MILLIS_PER_DAY)
    seconds, milli = divmod(of_day, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{format_date(days)}T{hour:02d}:{minute:02d}:{second:02d}.{milli:03d}Z"


# Proleptic Gregorian, eras of 400 years starting in March so that the leap day is the last day of its year.
def days_from_civil(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1
