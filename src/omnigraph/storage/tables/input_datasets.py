"""Lance datasets that belong to no graph, pinned to one version, as inputs of pipelines.

The driver looks a dataset up once; executors then read fragments of that version through its address like those of
any table. Nothing here writes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import lance
import pyarrow as pa

from omnigraph.errors import BadRequestError
from omnigraph.storage.location import Location
from omnigraph.storage.store_errors import reason_of
from omnigraph.storage.tables.fragments import FragmentSummary


@dataclass(frozen=True, slots=True)
class PinnedDataset:
    """One version of a dataset. `digest` names its files: a dataset made anew at the same place has another."""

    uri: str
    version: str
    options: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    fragments: tuple[FragmentSummary, ...]
    digest: str


def pinned_dataset(uri: str, version: int | None = None, options: Mapping[str, str] | None = None) -> PinnedDataset:
    """The dataset at a path or URI, at `version` or the newest there is. `options` add to those of the environment."""
    location = Location.parse(uri)
    store = {**location.options, **(options or {})}
    try:
        dataset = lance.dataset(location.uri, version=version, storage_options=store or None)
    except (OSError, ValueError) as error:
        which = "" if version is None else f" at version {version}"
        raise BadRequestError(f"can't open the Lance dataset '{uri}'{which}: {reason_of(error)}") from None
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    named = json.dumps([location.uri, dataset.version, [fragment.to_json() for fragment in fragments]])
    return PinnedDataset(
        location.uri,
        str(dataset.version),
        store,
        dataset.schema,
        tuple(FragmentSummary(f.id, f.num_rows, f.files[0].path if f.files else "") for f in fragments),
        hashlib.sha256(named.encode()).hexdigest(),
    )
