"""Model of a mode of a given size under a load: its processes, and their use of CPU, memory, network and Kafka.

Not modelled: opening and closing of connections, lookups of owners, TLS, compression, tokens, recorded traffic.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from learning.costs import DEFAULT, ROLES, Amounts, RoleCosts, Total
from learning.modes import terms
from learning.modes.configuration import Configuration, Size
from learning.modes.load import Data, Load, any_of, touched

SUBSCRIPTION_BYTES: Final = 170.0
"""Memory of one of ten subscriptions of a connection (docs/performance.md)."""
RETAINED_BYTES: Final = 64 * 2**20
"""Default maximum of a process's retained data (``DIEM_*_RETAINED_DATA_BYTES``)."""
RECORD_BYTES: Final = 140.0
"""An update without data as a record in Kafka (``make bench-bridge``)."""
RESPONSE_BYTES: Final = 230.0
"""Headers of the response to a GET (``make bench-display``)."""
NGINX_WORKERS: Final = 4
"""Most workers of the generated nginx."""


@dataclass(frozen=True, slots=True)
class RoleUse:
    """The processes of one kind."""

    name: str
    count: int
    busiest: Amounts
    """Work of the busiest of them."""
    work: Amounts
    """Work of all of them."""
    cores: float = 1.0
    """Maximum number of cores of one of them."""
    memory_bytes: float = 0.0
    """Memory of all of them for clients and data, beyond an idle process's."""
    connections: float = 0.0
    """Clients of the busiest of them."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A mode of a given size under a load."""

    configuration: Configuration
    size: Size
    roles: tuple[RoleUse, ...]
    connections: float
    """Of clients, and between proxies and servers."""
    frame_bytes: float
    """Of frames to clients, a second."""
    egress_bytes: float
    """To clients, a second: frames, and responses to GETs with their headers."""
    kafka_in_bytes: float
    """Written to all brokers, a second."""
    kafka_out_bytes: float
    """Read by bridges, a second."""
    burst: Amounts
    """Work of the client-serving process for one write, until the last client has it."""

    def cpu(self, costs: RoleCosts) -> Total:
        """Return the CPU time of all processes, in microseconds a second."""
        return costs.total(terms.added(role.work for role in self.roles))

    def cpu_by_role(self, costs: RoleCosts) -> dict[str, float]:
        """Return the CPU time of each kind of process, in microseconds a second."""
        return {role.name: costs.value(role.work) for role in self.roles}

    def utilisation(self, role: RoleUse, costs: RoleCosts) -> float:
        """Return the share of its cores that the busiest process of a role uses."""
        return costs.value(role.busiest) / 1e6 / role.cores

    def memory(self, costs: RoleCosts) -> Total:
        """Return the resident memory of all processes, in bytes."""
        known, unmeasured = 0.0, []
        for role in self.roles:
            known += role.memory_bytes
            base = costs.memory.get(role.name)
            if base is None:
                unmeasured.append(role.name)
            else:
                known += base * role.count
        return Total(known, 0.0, tuple(unmeasured))

    def burst_s(self, costs: RoleCosts) -> float:
        """Return the seconds that the busiest client-serving process takes to send one write."""
        return costs.value(self.burst) / 1e6


def predict(
    configuration: Configuration,
    size: Size,
    load: Load,
    *,
    workers: int = NGINX_WORKERS,
    brokers: int = 1,
    fan_out: float | None = None,
    work_us: float = 0.0,
) -> Prediction:
    """Return the processes of a mode and their work.

    Args:
        configuration: the mode.
        size: its numbers of servers and clones.
        load: clients and writers.
        workers: processes of nginx in front of equal servers; 0: these share a port.
        brokers: of Kafka.
        fan_out: mean number of servers of a clone that a client needs; None: of endpoints on random servers.
        work_us: CPU that a server spends on an update besides what the product does: pieces then come further apart.
    """
    return _Model(configuration, size, load, workers, brokers, fan_out=fan_out, work_us=work_us).predict()


class MergedSaving(NamedTuple):
    """Savings of a frame that shares a send with another of its write, in microseconds."""

    servers: float
    between: float
    """Of the proxy, and of nginx before it."""


def merged_saving(configuration: Configuration, size: Size, load: Load, costs: RoleCosts) -> MergedSaving:
    """Return what it saves where the frames of a write for a client are in fewer partitions, by each frame.

    A proxy merges the pieces that it finds waiting anyway; of servers it gets a frame for all its clients.
    """

    def saved(send: str) -> float:
        return max(0.0, costs.value({send: 1.0}) - costs.value({"merged_frame_us": 1.0}))

    if not configuration.has_proxy:
        return MergedSaving(saved("delivery_us"), 0.0)
    model = _Model(configuration, size, load, NGINX_WORKERS, 1, fan_out=None, work_us=0.0)
    of_nginx = costs.value({"nginx_frame_us": 1.0}) if configuration.behind_nginx else 0.0
    return MergedSaving(0.0, model.apart_at_proxy() * (saved("proxy_frame_us") + of_nginx))


class _Model:
    """Amounts that several roles depend on."""

    def __init__(
        self,
        configuration: Configuration,
        size: Size,
        load: Load,
        workers: int,
        brokers: int,
        *,
        fan_out: float | None,
        work_us: float,
    ) -> None:
        self.configuration = configuration
        self.size = size
        self.load = load
        self.workers = workers
        self.behind_nginx = configuration.behind_nginx and workers > 0
        self.brokers = brokers
        self.update_us = DEFAULT.update_us + work_us
        # Of one clone: servers that a write reaches, and that a client needs.
        self.reached = touched(size.servers, load.batch)
        self.fan_out = touched(size.servers, load.subscriptions) if fan_out is None else fan_out
        # A broker answers a bridge with the partitions of a write that both have, which the bridge passes on at once.
        self.pieces = touched(self._links_to_brokers(), load.batch)
        self.parts = load.writes * self.pieces
        self.frames = load.frames
        self.sends = load.sends(self.pieces) if fan_out is None else load.sends_of(fan_out)
        self.proxied = load.merged_sends(self.pieces, self.apart_at_proxy())
        if configuration is Configuration.ALL_TO_ALL:
            self.frames = load.updates * load.clients
            self.sends = load.writes * load.clients
        self.inline = self.frames if load.data is Data.INLINE else 0.0
        self.gets = load.frames if load.data is Data.GET else 0.0

    def _links_to_brokers(self) -> float:
        """Return the number of pairs of a broker and a bridge among which the partitions of a clone are divided."""
        if not self.configuration.uses_kafka:
            return 1.0
        return min(self.size.partitions, self.brokers * (self.size.servers if self.configuration.partitioned else 1))

    def predict(self) -> Prediction:
        roles = [self._data(), *self._middle(), *self._edges()]
        if self.behind_nginx:
            roles.append(self._nginx())
        load, size, configuration = self.load, self.size, self.configuration
        record = RECORD_BYTES + (load.data_bytes if load.data is Data.INLINE else 0.0)
        readers = size.servers if configuration is Configuration.X else size.clones
        links = load.clients * self.fan_out if configuration is Configuration.Z_CLIENT else load.clients
        return Prediction(
            configuration,
            size,
            tuple(roles),
            connections=links + (size.all_servers if configuration.has_proxy else 0),
            frame_bytes=self.frames * load.frame_bytes,
            egress_bytes=self.frames * load.frame_bytes + self.gets * (load.data_bytes + RESPONSE_BYTES),
            kafka_in_bytes=load.updates * record * self.brokers if configuration.uses_kafka else 0.0,
            kafka_out_bytes=load.updates * record * readers if configuration.uses_kafka else 0.0,
            burst=self._burst(roles),
        )

    def _data(self) -> RoleUse:
        load = self.load
        # nginx answers all GETs of a version but one from its cache.
        cached = self.behind_nginx
        gets = min(self.gets, load.updates * load.watched) if cached else self.gets
        forms = [terms.data_service(load.updates, load.writes, gets)]
        if self.configuration.uses_kafka:
            forms.append(terms.publisher(load.updates, load.writes))
        if self.configuration is Configuration.ALL_TO_ALL:
            forms.append(terms.feed_readers(self.size.servers - 1, load.updates, load.writes))
        return _role("data", 1, terms.added(forms))

    def _middle(self) -> list[RoleUse]:
        """Return the processes between the Data Service and the servers."""
        load, size, configuration = self.load, self.size, self.configuration
        if configuration is Configuration.X_BROADCAST:
            feed = terms.feed_readers(size.servers, load.updates, load.writes)
            node = terms.added([terms.broadcast(load.updates, load.writes), feed])
            return [_role("broadcast", 1, node, memory=self._retained())]
        if not configuration.uses_kafka:
            return []
        readers = size.servers if configuration is Configuration.X else size.clones
        batches = load.writes * touched(size.partitions, load.batch)
        broker = terms.brokers(load.updates, batches, readers, size.all_servers)
        roles = [RoleUse("kafka", self.brokers, broker, _times(broker, self.brokers), math.inf)]
        form = terms.member if configuration.partitioned else terms.bridge
        roles.append(self._servers("bridge", self._busiest(form, batches), self._mean(form, batches)))
        if configuration.partitioned:
            clones = size.clones if configuration is Configuration.XZ else 1
            roles.append(_role("metadata", clones, terms.idle("metadata")))
        if configuration in {Configuration.Z_COMPOSITE, Configuration.XZ}:
            roles.append(_role("composite", size.clones, terms.idle("composite")))
        return roles

    def _share(self) -> float:
        """Return the share of the updates that reaches the busiest server."""
        return self.size.largest_share if self.configuration.partitioned else 1.0

    def _busiest(self, form: Callable[[float, float], Amounts], parts: float) -> Amounts:
        """Return the work of the busiest server, or its bridge, for updates and parts of writes."""
        return form(self.load.updates * self._share(), parts * self._share())

    def _mean(self, form: Callable[[float, float], Amounts], parts: float) -> Amounts:
        """Return the work of a mean server, or its bridge, for updates and parts of writes."""
        divided = self.size.servers if self.configuration.partitioned else 1
        return form(self.load.updates / divided, parts / divided)

    def _servers(
        self, name: str, busiest: Amounts, mean: Amounts, memory: float = 0.0, connections: float = 0.0
    ) -> RoleUse:
        """Return a role with a process for each server; ``memory`` is that of all for clients."""
        count = self.size.all_servers
        retained = self._retained() / (self.size.servers if self.configuration.partitioned else 1)
        return RoleUse(name, count, busiest, _times(mean, count), 1.0, memory + retained * count, connections)

    def _retained(self) -> float:
        """Return the data that a process with every endpoint retains, in bytes."""
        load = self.load
        return min(RETAINED_BYTES, load.endpoints * load.data_bytes) if load.data is Data.INLINE else 0.0

    def _edges(self) -> list[RoleUse]:
        """Return the servers, and the proxies in front of them."""
        load, size = self.load, self.size
        updates = self._share()
        busiest, mean = self._busiest(self._server, self.parts), self._mean(self._server, self.parts)
        if not self.configuration.has_proxy:
            clients = load.clients * (self.fan_out if self.configuration.partitioned else 1.0)
            # The busiest has the greatest share of the endpoints of its clone; on the X axis clients are divided.
            share = updates / size.clones if self.configuration.partitioned else 1 / size.servers
            busiest = terms.added([busiest, self._clients("delivery_us", share, clients)])
            mean = terms.added([mean, self._clients("delivery_us", 1 / size.all_servers, clients)])
            return [self._servers("websocket", busiest, mean, self._client_memory(clients), clients * share)]
        busiest = terms.added([busiest, self._links(updates)])
        mean = terms.added([mean, self._links(1 / size.servers)])
        return [self._servers("websocket", busiest, mean), self._proxies()]

    def _server(self, updates: float, parts: float) -> Amounts:
        """Return the work of a server, excluding its clients."""
        if self.configuration is Configuration.ALL_TO_ALL:
            watched = 1.0
        elif self.configuration.partitioned:
            watched = self._watched_of(self.size.clones)
        else:
            watched = self._watched_of(self.size.all_servers)
        return terms.added([terms.server(updates, parts), terms.framed(updates * watched)])

    def _clients(self, frame: str, share: float, clients: float, sends: float | None = None) -> Amounts:
        sent = self.sends if sends is None else sends
        return terms.clients_of(frame, sent * share, self.frames * share, clients * share, self.inline * share)

    def _client_memory(self, clients: float) -> float:
        subscriptions = self.load.clients * self.load.subscriptions
        return clients * DEFAULT.connection_bytes + subscriptions * SUBSCRIPTION_BYTES

    def _links(self, share: float) -> Amounts:
        """Return the work of a server with a ``share`` of the endpoints of its clone, for the proxy of its clone."""
        load = self.load
        # One frame of each update that any client of the proxy is subscribed to.
        watched = self._watched_of(self.size.clones)
        frames = load.updates * watched
        sends = self.parts * any_of(watched, load.batch / self.pieces)
        return terms.added([terms.links(sends * share), {"merged_frame_us": max(0.0, frames - sends) * share}])

    def _watched_of(self, groups: int) -> float:
        """Return the share of the updates that any client of one of so many equal groups is subscribed to."""
        return -math.expm1(-self.load.frames_per_update / groups)

    def _proxies(self) -> RoleUse:
        load, clones = self.load, self.size.clones
        own = terms.proxy(load.updates * self._watched_of(clones), load.writes * self.reached)
        work = terms.added([own, self._clients("proxy_frame_us", 1 / clones, load.clients, self.proxied)])
        memory = self._client_memory(load.clients) + self._retained() * clones
        return _role("proxy", clones, work, memory, load.clients / clones)

    def _nginx(self) -> RoleUse:
        load = self.load
        sends = self.proxied if self.configuration is Configuration.XZ else self.sends
        work = terms.nginx(sends, self.parts, self.inline, self.gets)
        return RoleUse("nginx", 1, work, work, float(self.workers), connections=load.clients)

    def apart_at_proxy(self) -> float:
        """Return the share of the pieces of a write that a proxy does not find waiting while it sends another.

        Pieces come as far apart as a bridge and a server need for each; the proxy sends a piece to its clients. Clones
        do so at the same time, which takes as long where they share cores.
        """
        if self.pieces <= 1 or not self.parts:
            return 1.0
        piece_us = ROLES.value({"bridge_part_us": 1.0, "server_part_us": 1.0, "link_delivery_us": 1.0})
        piece_us += self.load.batch / self.pieces * self.update_us
        sending_us = ROLES.value({"proxy_frame_us": self.sends / self.parts})
        return -math.expm1(-piece_us / sending_us) if sending_us else 1.0

    def _burst(self, roles: list[RoleUse]) -> Amounts:
        """Return the work for one write of the process that serves most clients, and of the nginx before it."""
        if not self.load.writes:
            return {}
        edge = next(role for role in reversed(roles) if role.name in {"proxy", "websocket"})
        frames = {"delivery_us", "merged_frame_us", "inline_frame_us", "proxy_frame_us"}
        burst = {name: amount / self.load.writes for name, amount in edge.busiest.items() if name in frames}
        if self.behind_nginx:
            nginx = next(role for role in roles if role.name == "nginx")
            burst["nginx_frame_us"] = nginx.work["nginx_frame_us"] / self.load.writes / self.workers
        return burst


def _role(name: str, count: int, each: Amounts, memory: float = 0.0, connections: float = 0.0) -> RoleUse:
    return RoleUse(name, count, each, _times(each, count), 1.0, memory, connections)


def _times(form: Amounts, count: float) -> Mapping[str, float]:
    return {name: amount * count for name, amount in form.items()}
