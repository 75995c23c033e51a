"""Where a cluster's storage root is, by a URI or by a configuration directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.cluster.configuration import storage_root
from omnigraph.cluster.resources import ClusterError
from omnigraph.cluster.serving import read_serving
from tests.support.clusters import make_cluster


def configured(directory: Path, text: str) -> str:
    (directory / "cluster.yaml").write_text(text)
    return str(directory)


def test_a_uri_is_the_root_itself() -> None:
    assert storage_root("s3://bucket/prefix") == "s3://bucket/prefix"


@pytest.mark.parametrize(
    ("storage", "root"),
    [
        ("", "."),
        ("storage: data/box", "data/box"),
        ("storage: ' data/box/ '", "data/box"),
        ("storage: ../beside", "../beside"),
        ("storage: s3://bucket/prefix/", "s3://bucket/prefix"),
        ("storage: /", "/"),
        ("storage: null", "."),
    ],
)
def test_a_directory_names_its_root(tmp_path: Path, storage: str, root: str) -> None:
    found = storage_root(configured(tmp_path, f"version: 1\n{storage}\n"))
    assert found == (root if "://" in root else str(tmp_path / root))


def test_only_the_storage_of_a_configuration_counts(tmp_path: Path) -> None:
    box = make_cluster(tmp_path / "box", queries={}, init=False)
    config = tmp_path / "config"
    config.mkdir()
    source = configured(config, "version: 99\nstorage: ../box\ngraphs: nonsense\nfuture: {a: 1}\n")
    assert read_serving(source).root == box.objects.location.uri


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("storage: ' '", "invalid_storage_root"),
        ("storage: 7", "invalid_storage_root"),
        ("storage: s3://", "invalid_storage_root"),
        ("storage: s3:///prefix", "invalid_storage_root"),
        ("storage: ftp://host/x", "storage_root_invalid"),
        ("storage: s3://key:hunter2@bucket/x", "storage_root_invalid"),
        ("a: [", "invalid_cluster_yaml"),
        ("a: \x01", "invalid_cluster_yaml"),
        ("- a", "invalid_cluster_yaml"),
        ("", "invalid_cluster_yaml"),
        ("a: " + "[" * 1_500, "invalid_cluster_yaml"),
        ("? [x]\n: 1", "invalid_cluster_yaml"),
    ],
)
def test_what_is_no_configuration(tmp_path: Path, text: str, code: str) -> None:
    with pytest.raises(ClusterError) as error:
        read_serving(configured(tmp_path, text))
    assert error.value.codes == [code]
    assert "hunter2" not in str(error.value)


def test_directories_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as error:
        read_serving(str(tmp_path / "absent"))
    assert error.value.codes == ["config_dir_not_found"]
    with pytest.raises(ClusterError) as error:
        read_serving(str(tmp_path))
    assert error.value.codes == ["cluster_config_read_error"]
    (tmp_path / "cluster.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ClusterError) as error:
        read_serving(str(tmp_path))
    assert error.value.codes == ["cluster_config_read_error"]
