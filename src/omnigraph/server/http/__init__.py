"""HTTP: requests, responses, streams, and the call of an operation as its handler gets it."""
