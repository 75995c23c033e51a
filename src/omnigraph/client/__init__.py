"""A graph behind a server, with the methods of one that is opened here: `RemoteGraph`, and `AsyncRemoteGraph`.

Requests are made from the route table of the contract, answers become its structs and errors, and rows are Arrow. Each
call is described once (`reads`, `writes`, `history`), and two thin transports carry it out. Nothing here knows storage.
"""

from omnigraph.client.graph import AsyncRemoteGraph, RemoteGraph
from omnigraph.client.reads import RemoteSnapshot

__all__ = ["AsyncRemoteGraph", "RemoteGraph", "RemoteSnapshot"]
