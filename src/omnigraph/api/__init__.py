"""The contract that Python, the command line, HTTP, the remote client and MCP share: requests, results, and `GraphApi`.

Typed, immutable and pure: it imports `omnigraph.errors` and nothing else of ours, and neither Arrow nor Lance, so a
remote client can hold every result. `omnigraph.api.wire` is the one way from these structs to JSON and back.
"""
