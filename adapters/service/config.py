"""Decides how a service is set up, and refuses what would leave it open to others."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trencadis.models.faults import Fault, InvalidInputError

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take."""

    body_bytes: int = 256 * MIB
    """Of a snapshot; other bodies are bounded by `small_body_bytes`."""
    small_body_bytes: int = 8 * MIB
    """An extender's request: 5,000 node objects fit."""
    depth: int = 64
    """Nested arrays and objects."""
    read_seconds: float = 30.0
    """From the first to the last byte of a body."""
    solve_seconds: float = 120.0
    """The longest solve that a request may ask for; its worker is killed some time after."""
    grace_seconds: float = 15.0
    """What a worker may take beyond the time of its solve, before it is killed."""
    waiting: int = 8
    """Requests that wait for a worker; more are told to come again."""
    open_requests: int = 256
    """Requests being answered at once; more are told to come again."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Bearer tokens: the queue that each is bound to, None for all."""

    queues: Mapping[str, str | None] = field(default_factory=dict)

    def find(self, given: str) -> tuple[bool, str | None]:
        """Whether the token is known, and its queue; takes as long for each wrong token."""
        found, queue = False, None
        for token, bound in self.queues.items():
            if hmac.compare_digest(token.encode(), given.encode()):
                found, queue = True, bound
        return found, queue


@dataclass(frozen=True, slots=True)
class Config:
    """A service."""

    host: str = "127.0.0.1"
    port: int = 8_888
    tokens: Tokens = field(default_factory=Tokens)
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    """Only clients with a certificate of this authority are let in; needed by a kube-scheduler on
    another machine, which sends no tokens."""
    workers: int = 2
    threads: int = 2
    """Threads of one solve."""
    round_seconds: float = 30.0
    """Time of the solve that follows each new state."""
    stale_seconds: float = 300.0
    """A plan of a state older than this answers no scheduler any more."""
    kube_api: str = ""
    """Where `bind` posts Bindings; it refuses where empty."""
    kube_token: Path | None = None
    kube_ca: Path | None = None
    gates: tuple[str, ...] = ()
    worker: str = "trencadis.adapters.service.worker"
    """The module that worker processes run."""
    whatif: bool = False
    """Whether they know the task `whatif`; without it there is no /v1/whatif."""
    prices: Path | None = None
    """Price list of /v1/whatif; an example where absent."""
    limits: Limits = field(default_factory=Limits)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check(self) -> None:
        """Raises InvalidInputError where the setting would let anyone in."""
        faults = []
        if not self.loopback and not self.tokens.queues and self.client_ca is None:
            faults.append(
                Fault(
                    "host",
                    f"{self.host} can be reached from elsewhere: --tokens or --client-ca is needed",
                )
            )
        if (self.certificate is None) != (self.key is None):
            faults.append(Fault("tls", "--certificate and --key go together"))
        if self.client_ca is not None and self.certificate is None:
            faults.append(Fault("tls", "--client-ca takes --certificate and --key"))
        if faults:
            raise InvalidInputError(faults)


def read_tokens(text: str, document: str) -> Tokens:
    """A line per token: the token, and the queue that it is bound to, if any; `#` for comments.

    Raises InvalidInputError.
    """
    found: dict[str, str | None] = {}
    faults = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        where = f"{document}:line {number}"
        if len(words) > 2:
            faults.append(Fault(where, "a token and at most one queue"))
        elif len(words[0]) < 16 or not words[0].isascii():
            faults.append(Fault(where, "a token has 16 ASCII characters or more"))
        elif words[0] in found:
            faults.append(Fault(where, "this token is listed twice"))
        else:
            found[words[0]] = words[1] if len(words) == 2 else None
    if not found and not faults:
        faults.append(Fault(f"{document}:$", "no token"))
    if faults:
        raise InvalidInputError(faults)
    return Tokens(found)
