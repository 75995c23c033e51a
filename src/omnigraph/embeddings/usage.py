"""What a client has asked for so far: the figures that decide what embedding costs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class Usage:
    """Counters of one client. `reused` texts were answered before and cost nothing; `tokens` stay None until a provider
    tells them."""

    texts: int = 0
    reused: int = 0
    requests: int = 0
    retries: int = 0
    tokens: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(
        self, *, texts: int = 0, reused: int = 0, requests: int = 0, retries: int = 0, tokens: int | None = None
    ) -> None:
        with self._lock:
            self.texts += texts
            self.reused += reused
            self.requests += requests
            self.retries += retries
            if tokens is not None:
                self.tokens = (self.tokens or 0) + tokens
