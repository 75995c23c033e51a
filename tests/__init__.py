"""Processes that tests start by the dozen do without pandas, as commands do: importing it takes longer than they do."""

import os

if os.environ.get("OMNIGRAPH_TEST_QUICK_START"):
    from omnigraph.cli.quick_start import leave_pandas_out

    leave_pandas_out()
