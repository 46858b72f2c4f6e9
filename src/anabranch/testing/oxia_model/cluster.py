"""Who leads which shard of the modelled Oxia, and which sessions live.

It belongs to no process: what a leader has carried out stays. When a leader is gone another server
leads its shards after a while, and all sessions have their full time again.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.oxia_model.shard import ModelShard

if TYPE_CHECKING:
    from anabranch.testing.oxia_model.service import ModelServer

_HASHES: Final = 2**32
_LOOK_AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Nature:
    """What one cluster is like."""

    shards: int = 1
    election_s: float = 0.0
    """How long a shard has no leader when one is lost."""
    rate: float = 1.0
    """How fast the servers' clocks run."""
    lost_answers: float = 0.0
    """Share of writes whose connection ends after they were carried out, before the answer."""
    numbers_given: int = 0
    """How many numbers each shard has given to states that are gone."""


class Cluster:
    """See the module."""

    def __init__(self, world: Surroundings, nature: Nature) -> None:
        self.world = world
        self.nature = nature
        self.shards = [ModelShard(number, nature.numbers_given) for number in range(nature.shards)]
        self.servers: list[ModelServer] = []
        self._leaders: dict[int, ModelServer] = {}
        self._ends_s: dict[tuple[int, int], float] = {}
        """When a session of a shard runs out."""

    # --- who leads ----------------------------------------------------------------------------

    def join(self, server: "ModelServer") -> None:
        """A server is up."""
        self.servers.append(server)
        server.assigned()
        self._fill()

    def left(self, server: "ModelServer") -> None:
        """A server is gone."""
        if server in self.servers:
            self.servers.remove(server)
            self._depose(server)

    def move(self, shard: int) -> None:
        """Let another server lead a shard, if there is one."""
        leader = self._leaders.get(shard)
        others = [server for server in self.servers if server is not leader]
        if leader is not None and others:
            del self._leaders[shard]
            leader.deposed(shard)
            self._lead(shard, self.world.rng.choice(others))
            self._tell()

    def isolate(self, server: "ModelServer") -> None:
        """Cut a server off from the others, which replace it; it does not know that they do."""
        if server in self.servers and len(self.servers) > 1:
            led = [shard for shard, leader in self._leaders.items() if leader is server]
            server.freeze({shard: self.shards[shard] for shard in led})
            self.left(server)

    def reunite(self, server: "ModelServer") -> None:
        """Let a server that was cut off hear what happened."""
        if server not in self.servers:
            server.thaw()
            self.join(server)

    def _depose(self, server: "ModelServer") -> None:
        led = [shard for shard, leader in self._leaders.items() if leader is server]
        for shard in led:
            del self._leaders[shard]
        if self.nature.election_s:
            delay_s = self.nature.election_s * self.world.rng.uniform(0.5, 1.5)
            self.world.later(delay_s, self._fill)
        else:
            self._fill()

    def _fill(self) -> None:
        missing = [shard.number for shard in self.shards if shard.number not in self._leaders]
        if not self.servers or not missing:
            return
        for shard in missing:
            self._lead(shard, self.world.rng.choice(self.servers))
        self._tell()

    def _lead(self, shard: int, server: "ModelServer") -> None:
        self._leaders[shard] = server
        for session in self.shards[shard].sessions:
            self.touch(shard, session)

    def _tell(self) -> None:
        for server in self.servers:
            server.assigned()

    def leads(self, server: "ModelServer", shard: int) -> bool:
        """Whether a server leads a shard."""
        return self._leaders.get(shard) is server

    def assignments(self, namespace: str) -> pb.ShardAssignments | None:
        """Who leads what; None while nobody leads some shard."""
        if len(self._leaders) < len(self.shards):
            return None
        found = pb.ShardAssignments()
        shards = found.namespaces[namespace]
        shards.shard_key_router = pb.XXHASH3
        width = _HASHES // len(self.shards)
        for shard in self.shards:
            last = shard.number == len(self.shards) - 1
            first_hash = shard.number * width
            shards.assignments.append(
                pb.ShardAssignment(
                    shard=shard.number,
                    leader=self._leaders[shard.number].address,
                    hash_range=pb.HashRange(
                        first=first_hash, last=_HASHES - 1 if last else first_hash + width - 1
                    ),
                )
            )
        return found

    # --- writing ------------------------------------------------------------------------------

    def written(self, shard: int) -> None:
        """A shard has another log entry."""
        leader = self._leaders.get(shard)
        if leader is not None:
            leader.notify(shard)

    def write(self, shard: int, request: pb.WriteRequest) -> pb.WriteResponse:
        """Carry out a write."""
        answer = self.shards[shard].write(request, self.world.clock.wall_ms())
        self.written(shard)
        return answer

    # --- sessions -----------------------------------------------------------------------------

    def open_session(self, shard: int, timeout_ms: int, identity: str) -> int:
        """Begin a session on a shard."""
        wall_ms = self.world.clock.wall_ms()
        session = self.shards[shard].open_session(timeout_ms, identity, wall_ms)
        self.written(shard)
        self.touch(shard, session)
        self.world.later(timeout_ms / 1000, self._look, shard, session)
        return session

    def touch(self, shard: int, session: int) -> bool:
        """Hear of a session's client; False if the session has ended."""
        timeout_ms = self.shards[shard].sessions.get(session)
        if timeout_ms is None:
            return False
        now_s = self.world.loop.time()
        self._ends_s[shard, session] = now_s + timeout_ms / 1000 / self.nature.rate
        return True

    def close_session(self, shard: int, session: int) -> bool:
        """End a session; False if there is none."""
        if session not in self.shards[shard].sessions:
            return False
        self._ends_s.pop((shard, session), None)
        self.shards[shard].close_session(session, self.world.clock.wall_ms())
        self.written(shard)
        return True

    def _look(self, shard: int, session: int) -> None:
        ends_s = self._ends_s.get((shard, session))
        if ends_s is None:
            return
        left_s = ends_s - self.world.loop.time()
        if left_s <= 0 and shard in self._leaders:
            self.world.reach("oxia: session expired")
            self.close_session(shard, session)
        else:
            self.world.later(left_s if left_s > 0 else _LOOK_AGAIN_S, self._look, shard, session)
