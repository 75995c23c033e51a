"""A graph behind a server, with the methods of one that is opened here: `RemoteGraph`, and `AsyncRemoteGraph`.

Requests are made from the route table of the contract, responses become its structs and errors, and rows are Arrow.
`operations` describes each operation once, and two thin transports carry it out. Nothing here knows storage.
"""

from omnigraph.client.graph import AsyncRemoteGraph, RemoteGraph
from omnigraph.client.operations import RemoteSnapshot

__all__ = ["AsyncRemoteGraph", "RemoteGraph", "RemoteSnapshot"]
