"""Vectors for texts on executors: for the incoming rows of a run, and for stored rows that are embedded again.

Ingest tasks and `bulk_maintenance` call it. A run fills only cells without a vector whose source text is there. The
client batches texts, retries, and stores vectors, so a task that Spark runs again pays for nothing twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.embeddings.client import CLIENT_VARIABLES, EmbeddingClient, open_client
from omnigraph.embeddings.configuration import EmbeddingConfig, config_from_environment, model_from_environment
from omnigraph.engine.query.search.embedder import check_model
from omnigraph.engine.rows.columns import rows_schema, vector_cells, with_vectors, without_vector
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog, NodeType, TableType
from omnigraph.language.violations import Sentence
from omnigraph.pipeline.file import EmbedStep, Pipeline


@dataclass(frozen=True, slots=True)
class EmbedTask:
    """One vector column and the text column it comes from. The configuration travels to executors with its key and the
    `variables` of a client. `reason` says what is wrong with a row that has neither, where the schema wants a vector.
    """

    source: str
    target: str
    dimension: int
    config: EmbeddingConfig
    property: str = ""
    reason: str | None = None
    variables: tuple[tuple[str, str], ...] = ()

    def without_text(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Rows that have neither a vector nor a text, where the schema wants a vector."""
        if self.reason is None:
            return np.zeros(rows.num_rows, np.bool_)
        missing: NDArray[np.bool_] = rows.column(self.target).is_null().to_numpy()
        return missing & ~without_vector(rows, self.source, self.target)

    def fill(self, rows: pa.Table) -> pa.Table:
        wanted = without_vector(rows, self.source, self.target)
        if not wanted.any():
            return rows
        texts = rows.column(self.source).filter(pa.array(wanted))
        return with_vectors(rows, self.target, wanted, self._embed(texts))

    def vectors(self, texts: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
        """A cell for every text, none of which is null."""
        return vector_cells(self._embed(texts), type_)

    def _embed(self, texts: pa.ChunkedArray) -> NDArray[np.float32]:
        return _client(self.config, self.variables).embed_documents(texts.to_pylist(), self.dimension)


def fill_vectors(steps: Sequence[EmbedTask], type_: TableType, rows: pa.Table) -> pa.Table:
    """Rows of a type with the vectors of all steps."""
    for step in steps:
        rows = step.fill(rows)
    return pa.table(rows.columns, schema=rows_schema(type_)) if steps else rows


def client_of(task: EmbedTask) -> EmbeddingClient:
    """The client that computes these vectors."""
    return _client(task.config, task.variables)


@lru_cache(maxsize=4)
def _client(config: EmbeddingConfig, variables: tuple[tuple[str, str], ...]) -> EmbeddingClient:
    """One client for all batches of a worker: it keeps its connection, its model and what it learned."""
    return open_client(config, {**os.environ, **dict(variables)})


def embed_tasks(
    steps: Sequence[EmbedStep], catalog: Catalog, config: EmbeddingConfig | None = None
) -> dict[str, tuple[EmbedTask, ...]]:
    """The vectors to fill, by type key; by default with the configuration of the environment. A model that the schema
    records must be the configured one; this is reported before a missing key."""
    model, is_mock = model_from_environment(os.environ) if config is None else (config.model, config.is_mock)
    vectors = []
    for step in steps:
        node = catalog.nodes[step.type_name]
        prop = node.properties[step.property]
        if prop.embed is None:
            raise BadRequestError(f"{node.name}.{prop.name} has no @embed source in the schema")
        check_model(model, node.name, prop, is_mock=is_mock)
        vectors.append((node, prop, prop.embed.property))
    if not vectors:
        return {}
    used = config_from_environment(os.environ) if config is None else config
    variables = tuple((name, os.environ[name]) for name in CLIENT_VARIABLES if name in os.environ)
    tasks: dict[str, tuple[EmbedTask, ...]] = {}
    for node, prop, source in vectors:
        reason = None if prop.type.nullable else Sentence.NO_TEXT.text(property=prop.name, source=source)
        column = node.properties[source].column
        task = EmbedTask(column, prop.column, prop.type.dimension or 0, used, prop.name, reason, variables)
        tasks[node.type_key] = (*tasks.get(node.type_key, ()), task)
    return tasks


def steps_of(pipeline: Pipeline, catalog: Catalog) -> list[EmbedStep]:
    """The vectors that the pipeline asks for, and those that the schema computes on every write of its types."""
    any_type = any(source.is_graph for source in pipeline.sources.values())
    written = {mapping.type_name for mapping in pipeline.mappings if not mapping.is_edge}
    nodes = [node for name, node in catalog.nodes.items() if any_type or name in written]
    return list(dict.fromkeys([*pipeline.embed, *on_write_steps(nodes)]))


def touched_steps(steps: Sequence[EmbedStep], catalog: Catalog, selected: Set[tuple[str, str]]) -> list[EmbedStep]:
    """The vectors that an update of some properties concerns; each is named with its type."""
    pairs = [(step, catalog.nodes[step.type_name].properties[step.property].embed) for step in steps]
    return [
        step
        for step, embed in pairs
        if embed and {(step.type_name, step.property), (step.type_name, embed.property)} & selected
    ]


def on_write_steps(nodes: Sequence[NodeType]) -> list[EmbedStep]:
    """The vectors that the schema has every write compute."""
    return [EmbedStep(node.name, p.name) for node in nodes for p in node.property_list if p.is_embedded_on_write]
