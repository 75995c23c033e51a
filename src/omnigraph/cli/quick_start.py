"""A quick start for commands: pandas is left out of processes that have no use for it.

pyarrow imports pandas as soon as it finds it, which takes longer than most commands. Only the command line may do
this: it owns its process. Spark still gets its pandas.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _WithoutPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas" and "pyspark" not in sys.modules:
            raise ModuleNotFoundError("pandas is left out of this process", name=fullname)
        return None


def leave_pandas_out() -> None:
    """Call before anything imports pyarrow."""
    sys.meta_path.insert(0, _WithoutPandas())
