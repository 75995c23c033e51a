"""The torture runner: several processes work on one graph at random, a nemesis kills and stops them, a model judges.

`python -m tests.torture --help` runs it; docs/dev/torture.md says what is checked and how to read a failure.
"""
