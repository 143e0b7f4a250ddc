"""Table entries with their direct counters and meters: P4Runtime's requests on a table of the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.schema import ActionInfo, Directory, FieldInfo, TableInfo
from p4reduce_switch.p4runtime.action_profiles import BoundProfile, encode_target
from p4reduce_switch.p4runtime.encoding import decode_action, decode_matches, encode_action, encode_matches
from p4reduce_switch.p4runtime.idle_timeouts import IdleTimeouts
from p4reduce_switch.p4runtime.indirect import check_modify, check_no_color_counts, decode_rates, encode_rates
from p4reduce_switch.p4runtime.status import Code, RequestError, invalid_argument
from p4reduce_switch.program.errors import EntryMissingError, TargetMissingError
from p4reduce_switch.program.state.profiles import Call, Target
from p4reduce_switch.program.state.stateful import MeterConfig
from p4reduce_switch.program.state.tables import NO_METADATA, Entry, EntryKey, Metadata, Table

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


class BoundTable:
    """A table of the program bound to its P4Info. Callers hold the switch's lock.

    Its keys are in the program's order. p4c writes optional keys into the BMv2 JSON as ternary ones; requests and
    answers have P4Info's kinds.
    """

    def __init__(
        self,
        info: TableInfo,
        table: Table,
        actions: Directory[ActionInfo],
        profiles: Mapping[int, BoundProfile],
        idle_timeouts: IdleTimeouts,
    ) -> None:
        """INVALID_ARGUMENT when they are not of one program."""
        self.info = info
        self.table = table
        self.profile = profiles.get(info.profile_id)
        missing = bool(info.profile_id) and self.profile is None
        if missing or table.profile is not (None if self.profile is None else self.profile.state):
            invalid_argument(
                f"p4info and program do not belong together: the action profile of table {info.name} differs"
            )
        self._keys = _key_order(info, table)
        self._default_metadata = NO_METADATA
        self._actions = actions
        self._idle_timeouts = idle_timeouts
        if table.const and not info.const:
            table.allow_changes(max(info.size, table.max_size))
        for action_id in info.action_ids:
            name = actions.by_id[action_id].name
            if name not in table.action_params:
                invalid_argument(f"p4info and program do not belong together: table {info.name} has no action {name}")

    # ---- TableEntry, written

    def write(self, operation: p4r.Update.Type, request: p4r.TableEntry) -> None:
        """Insert, modify or delete an entry, or modify the default entry."""
        if operation != DELETE:
            self._check_writable(request)
        if request.is_default_action:
            self._modify_default(operation, request)
            return
        key = self._key_of(request)
        if self.info.const:
            self._modify_const(operation, request, key)
        elif operation == DELETE:
            self.table.delete(*key)
            self._idle_timeouts.remove(self.info.id, key)
            return
        else:
            self._write_entry(operation, request, key)
        self._set_idle_timeout(request.idle_timeout_ns, key)

    def _write_entry(self, operation: p4r.Update.Type, request: p4r.TableEntry, key: EntryKey) -> None:
        if operation == MODIFY:
            self.table.entry(*key)  # that it is missing is said first
        elif not self._keys:
            invalid_argument(f"table {self.info.name} has no key, so it takes no entries")
        elif not request.HasField("action"):
            invalid_argument("an insert needs an action")
        rates = self._direct_rates(request)
        call = self._call_of(request) if request.HasField("action") else None
        try:
            if operation == INSERT and call is not None:
                self.table.insert(*key, call, _metadata_of(request))
            else:
                self.table.modify(*key, call, _metadata_of(request))
        except TargetMissingError as error:  # the entry itself is there
            invalid_argument(str(error))
        self._write_direct(request, key, rates)

    def _modify_const(self, operation: p4r.Update.Type, request: p4r.TableEntry, key: EntryKey) -> None:
        """Modify the direct counters and meters of a const table, of which nothing else can be written."""
        if operation != MODIFY or request.HasField("action"):
            raise RequestError(Code.PERMISSION_DENIED, f"the entries of table {self.info.name} are const")
        rates = self._direct_rates(request)
        self.table.entry(*key)
        self._write_direct(request, key, rates)

    def _modify_default(self, operation: p4r.Update.Type, request: p4r.TableEntry) -> None:
        if operation != MODIFY:
            invalid_argument("a default entry can only be modified")
        _check_default(request)
        if self.profile is not None:
            invalid_argument(f"the default entry of table {self.info.name}, which has an action profile, cannot be set")
        for resource, field in (("counter", "counter_data"), ("meter", "meter_config")):
            if request.HasField(field):
                raise RequestError(Code.UNIMPLEMENTED, f"default entries have no direct {resource} on this switch")
        if self.table.default_is_const or self.info.const_default:
            raise RequestError(Code.PERMISSION_DENIED, f"the default entry of table {self.info.name} is const")
        if request.HasField("action"):
            self.table.set_default(*self._action_of(request, self.info.entry_only))
            self._default_metadata = _metadata_of(request)
        else:
            self.table.reset_default()
            self._default_metadata = NO_METADATA

    def _check_writable(self, request: p4r.TableEntry) -> None:
        """Refuse what a Write cannot set. Clients compare the texts about timeouts, which are PI's."""
        if request.HasField("time_since_last_hit"):
            invalid_argument("has_time_since_last_hit must not be set in WriteRequest")
        if request.is_const:
            invalid_argument("is_const must not be set in WriteRequest")
        check_no_color_counts(request, "meter_counter_data")
        if request.idle_timeout_ns < 0:
            invalid_argument("an idle timeout is not negative")
        if request.idle_timeout_ns and request.is_default_action:
            invalid_argument("default entries have no idle timeouts")
        if request.idle_timeout_ns and not self._has_idle_timeout:
            invalid_argument("idle_timeout_ns must be set to 0 for tables which do not support idle timeout")

    def _direct_rates(self, request: p4r.TableEntry) -> MeterConfig | None:
        """Check a request's direct resources against the table's; return the rates for the direct meter, if any."""
        if request.HasField("counter_data") and not self.table.has_direct_counter:
            invalid_argument(f"table {self.info.name} has no direct counter")
        if not request.HasField("meter_config"):
            return None
        if not self.table.has_direct_meter:
            invalid_argument(f"table {self.info.name} has no direct meter")
        return decode_rates(request.meter_config)

    def _write_direct(self, request: p4r.TableEntry, key: EntryKey, rates: MeterConfig | None) -> None:
        """Write the direct counter if the request has one, and the direct meter: without rates it is reset."""
        if request.HasField("counter_data"):
            self.table.write_counter(*key, request.counter_data.packet_count, request.counter_data.byte_count)
        if self.table.has_direct_meter:
            self.table.configure_meter(*key, rates)

    def _set_idle_timeout(self, timeout_ns: int, key: EntryKey) -> None:
        self._idle_timeouts.remove(self.info.id, key)
        if timeout_ns:
            notification = p4r.TableEntry(idle_timeout_ns=timeout_ns)
            entry = self.table.entry(*key)
            self._encode_key(entry, notification)
            notification.controller_metadata, notification.metadata = entry.metadata
            self._idle_timeouts.add(self.table, key, notification)

    # ---- TableEntry, read

    def read(self, query: p4r.TableEntry) -> list[p4r.Entity]:
        """Return the entities for a query: one entry, the default entry, or all that pass the query's filters.

        The spec's "Wildcard Reads". Default entries are read on their own.
        """
        check_no_color_counts(query, "meter_counter_data")
        if query.HasField("time_since_last_hit") and (query.is_default_action or not self._has_idle_timeout):
            invalid_argument(f"table {self.info.name} does not measure idle times, and default entries have none")
        if query.is_default_action:
            if query.table_id:
                _check_default(query)
            return [self._default_entity()]
        if query.table_id and query.match:
            try:
                return [self._entity(self.table.entry(*self._key_of(query)), query)]
            except EntryMissingError:
                return []
        found = [self._entity(entry, query) for entry in self.table.entries()]
        for field in ("priority", "controller_metadata", "metadata"):
            if getattr(query, field):
                found = [e for e in found if getattr(e.table_entry, field) == getattr(query, field)]
        if query.action.WhichOneof("type") == "action":
            id = query.action.action.action_id
            found = [e for e in found if e.table_entry.action.action.action_id == id]
        elif query.HasField("action"):
            found = [e for e in found if e.table_entry.action == query.action]
        return found

    def _entity(self, entry: Entry, query: p4r.TableEntry) -> p4r.Entity:
        """Return an entry as P4Runtime has it, with the direct resources that the query asks for."""
        key = (entry.match, entry.priority)
        entity = p4r.Entity()
        out = entity.table_entry
        self._encode_key(entry, out)
        if isinstance(entry.call, tuple):
            self._encode_action(*entry.call, out)
        else:
            encode_target(entry.call, self._actions, out.action)
        out.controller_metadata, out.metadata = entry.metadata
        if query.HasField("counter_data") and self.table.has_direct_counter:
            out.counter_data.packet_count, out.counter_data.byte_count = entry.packets, entry.bytes
        if query.HasField("meter_config") and self.table.has_direct_meter:
            encode_rates(self.table.read_meter(*key), out.meter_config)
        out.idle_timeout_ns = self._idle_timeouts.timeout_ns(self.info.id, key)
        if query.HasField("time_since_last_hit"):
            out.time_since_last_hit.elapsed_ns = self._idle_timeouts.since_last_hit_ns(entry)
        out.is_const = entry.const
        return entity

    def _default_entity(self) -> p4r.Entity:
        entity = p4r.Entity()
        out = entity.table_entry
        out.table_id = self.info.id
        out.is_default_action = True
        if self.table.default_action is not None:
            self._encode_action(*self.table.default_action, out)
        out.controller_metadata, out.metadata = self._default_metadata
        return entity

    # ---- DirectCounterEntry and DirectMeterEntry

    def write_counter(self, operation: p4r.Update.Type, request: p4r.DirectCounterEntry) -> None:
        """Set the direct counter of one entry."""
        check_modify(operation, "direct counter")
        key = self._direct_key(request.table_entry, "direct counter")
        if request.HasField("data"):
            self.table.write_counter(*key, request.data.packet_count, request.data.byte_count)

    def read_counters(self, query: p4r.DirectCounterEntry) -> Iterator[p4r.Entity]:
        """Yield the direct counter of one entry, or those of all."""
        for entry in self._direct_entries(query.table_entry, "direct counter"):
            entity = p4r.Entity()
            out = entity.direct_counter_entry
            self._encode_key(entry, out.table_entry)
            out.data.packet_count, out.data.byte_count = entry.packets, entry.bytes
            yield entity

    def write_meter(self, operation: p4r.Update.Type, request: p4r.DirectMeterEntry) -> None:
        """Set the rates of the direct meter of one entry."""
        check_modify(operation, "direct meter")
        check_no_color_counts(request, "counter_data")
        key = self._direct_key(request.table_entry, "direct meter")
        self.table.configure_meter(*key, decode_rates(request.config) if request.HasField("config") else None)

    def read_meters(self, query: p4r.DirectMeterEntry) -> Iterator[p4r.Entity]:
        """Yield the rates of the direct meter of one entry, or of all."""
        check_no_color_counts(query, "counter_data")
        for entry in self._direct_entries(query.table_entry, "direct meter"):
            entity = p4r.Entity()
            out = entity.direct_meter_entry
            self._encode_key(entry, out.table_entry)
            encode_rates(self.table.read_meter(entry.match, entry.priority), out.config)
            yield entity

    def _direct_key(self, request: p4r.TableEntry, resource: str) -> EntryKey:
        """Return the key of the one entry that a request's table entry names; EntryMissingError when there is none."""
        if not self._has_direct(resource):
            invalid_argument(f"table {self.info.name} has no {resource}")
        if request.is_default_action:
            raise RequestError(Code.UNIMPLEMENTED, f"default entries have no {resource} on this switch")
        key = self._key_of(request)
        self.table.entry(*key)
        return key

    def _direct_entries(self, query: p4r.TableEntry, resource: str) -> Iterable[Entry]:
        """Return the entry that a query's table entry names, or all; none for a wildcard when it has no `resource`."""
        if query.table_id and (query.match or query.is_default_action):
            return [self.table.entry(*self._direct_key(query, resource))]
        if not self._has_direct(resource):
            if query.table_id:
                invalid_argument(f"table {self.info.name} has no {resource}")
            return []
        priority = query.priority if query.table_id else 0
        return [entry for entry in self.table.entries() if not priority or entry.priority == priority]

    def _has_direct(self, resource: str) -> bool:
        return self.table.has_direct_counter if resource == "direct counter" else self.table.has_direct_meter

    # ---- keys and actions

    @property
    def _has_idle_timeout(self) -> bool:
        return self.info.has_idle_timeout and self.table.supports_timeout

    def _key_of(self, request: p4r.TableEntry) -> EntryKey:
        """Return match and priority of a request, checked."""
        where = f"table {self.info.name}"
        match = decode_matches(self._keys, request.match, where)
        if request.priority < 0 or self.info.needs_priority != bool(request.priority):
            needs = "needs a priority above 0" if self.info.needs_priority else "takes no priority"
            invalid_argument(f"{where} {needs}")
        return match, request.priority

    def _encode_key(self, entry: Entry, out: p4r.TableEntry) -> None:
        """Write table id, match and priority into an answer; keys that match everything are left out."""
        out.table_id = self.info.id
        out.priority = entry.priority
        encode_matches(self._keys, entry.match, out)

    def _call_of(self, request: p4r.TableEntry) -> Call | Target:
        """Return what a request's entry does, checked."""
        if self.profile is None:
            return self._action_of(request, self.info.default_only)
        return self.profile.target_of(request.action)

    def _action_of(self, request: p4r.TableEntry, excluded: frozenset[int]) -> Call:
        """Return the name and the parameters in order of a request's action, checked ("Action Specification")."""
        if request.action.WhichOneof("type") != "action":
            invalid_argument(f"table {self.info.name} takes a direct action, no action profile")
        where = f"table {self.info.name}"
        return decode_action(request.action.action, self._actions, self.info.action_ids, excluded, where)

    def _encode_action(self, name: str, params: tuple[int, ...], out: p4r.TableEntry) -> None:
        """Write an action into an answer; a default action that P4Info does not list is left out."""
        if name in self._actions:
            encode_action(name, params, self._actions, out.action.action)


def _metadata_of(request: p4r.TableEntry) -> Metadata:
    return request.controller_metadata, request.metadata


def _check_default(request: p4r.TableEntry) -> None:
    if request.match or request.priority:
        invalid_argument("a default entry has neither match nor priority")


def _key_order(info: TableInfo, table: Table) -> tuple[FieldInfo, ...]:
    """Return P4Info's keys in the program's order: by name, or by position when only one side has an annotated name.

    A key whose type P4Runtime translates to another number has the program's width: a value stands for itself.
    """
    names = [key.name for key in table.keys]
    by_name = {key.name: key for key in info.keys}
    ordered = tuple(by_name[name] for name in names) if set(names) == set(by_name) else info.keys
    for key, stored in zip(ordered, table.keys, strict=False):
        same_kind = key.kind == stored.kind or (key.kind, stored.kind) == ("optional", "ternary")
        if not same_kind or (key.bitwidth != stored.bits and not key.own_type):
            invalid_argument(f"p4info and program do not belong together: key {key.name} of table {info.name} differs")
    if len(ordered) != len(table.keys):
        invalid_argument(f"p4info and program do not belong together: the keys of table {info.name} differ")
    return tuple(
        replace(key, bitwidth=stored.bits) if key.bitwidth else key
        for key, stored in zip(ordered, table.keys, strict=True)
    )
