"""Another process that wants to make the next revision of a ledger: `won <revision>` or `lost <code>`."""

from __future__ import annotations

import sys

from omnigraph.cluster.resources import ClusterError
from omnigraph.cluster.state_ledger import Ledger
from omnigraph.cluster.storage_root import make_root
from tests.support.child import say


def main(root: str) -> None:
    ledger = Ledger(make_root(root))
    before = ledger.newest()
    assert before is not None
    say("ready")
    sys.stdin.readline()
    try:
        say("won", ledger.create(before.state, before).revision)
    except ClusterError as error:
        say("lost", *error.codes)
