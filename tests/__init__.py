"""Processes that tests start by the dozen do without pandas: importing it takes longer than they do."""

import os
import sys

if os.environ.get("OMNIGRAPH_TEST_QUICK_START"):
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]  # an import of it fails, and pyarrow copes
