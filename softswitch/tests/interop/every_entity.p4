// A program with each kind of entity that P4Runtime reads and writes. Compiled to every_entity.json and
// every_entity.p4info.txtpb:
//   p4c-bm2-ss --p4runtime-files every_entity.p4info.txtpb -o every_entity.json every_entity.p4
#include <core.p4>
#include <v1model.p4>

header sample_t { bit<8> kind; bit<8> key; bit<16> flow; bit<8> note; }
struct headers_t { sample_t sample; }
struct metadata_t { bit<2> color; }
struct sighting_t { bit<8> key; bit<9> port; }

parser Sample(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    value_set<bit<8>>(4) kinds;
    state start { packet.extract(h.sample); transition select(h.sample.kind) { kinds: known; default: accept; } }
    state known { h.sample.note = 1; transition accept; }
}

control NoCheck(inout headers_t h, inout metadata_t m) { apply { } }

control MainIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    counter(4, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets_and_bytes) hits;
    meter(4, MeterType.packets) pace;
    direct_meter<bit<2>>(MeterType.packets) rate;
    register<bit<32>>(4) memory;
    @max_group_size(16) action_selector(HashAlgorithm.crc16, 32, 16) paths;
    @max_group_size(16) action_selector(HashAlgorithm.crc16, 32, 16) shots;

    action send(bit<9> port) { s.egress_spec = port; }
    action measured(bit<9> port) { rate.read(m.color); s.egress_spec = port; }
    action drop() { mark_to_drop(s); }

    table plain { key = { h.sample.key: exact; } actions = { send; drop; } counters = hits; }
    table metered { key = { h.sample.key: exact; } actions = { measured; NoAction; } meters = rate; }
    table aging { key = { h.sample.key: ternary; } actions = { send; drop; } support_timeout = true; }
    table by_group { key = { h.sample.key: exact; h.sample.flow: selector; } actions = { send; } implementation = paths; }
    table one_shot { key = { h.sample.key: exact; h.sample.flow: selector; } actions = { send; } implementation = shots; }

    apply {
        seen.count((bit<32>) h.sample.kind & 3);
        pace.execute_meter((bit<32>) h.sample.kind & 3, m.color);
        memory.write((bit<32>) h.sample.kind & 3, (bit<32>) h.sample.flow);
        digest<sighting_t>(1, { h.sample.key, s.ingress_port });
        plain.apply();
        metered.apply();
        aging.apply();
        by_group.apply();
        one_shot.apply();
    }
}

control MainEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control Deparse(packet_out packet, in headers_t h) { apply { packet.emit(h.sample); } }

V1Switch(Sample(), NoCheck(), MainIngress(), MainEgress(), NoCheck(), Deparse()) main;
