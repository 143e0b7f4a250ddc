// p4reduce for v1model (BMv2 and the embedded switch): read this file as the table of contents.
#include <core.p4>
#include <v1model.p4>

#include "../shared/wire.p4"
#include "headers.p4"
#include "parser.p4"
#include "address.p4"
#include "responder.p4"
#include "forwarding.p4"
#include "packet_io.p4"
#include "validation.p4"
#include "admission.p4"
#include "slot_state.p4"
#include "check_word.p4"
#include "column_sum.p4"
#include "reply.p4"

control MainIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Address() address;
    Responder() responder;
    Forwarding() forwarding;
    PacketOut() from_cpu;
    Punt() punt;
    Validation() validation;
    Admission() admission;
    SlotState() slot_state;
    CheckWord() check_word;
#define DECLARE_COLUMN(c, next) ColumnSum() column_##c;
    FOR_EACH_COLUMN(DECLARE_COLUMN)
    Reply() reply;

    // By job:
    counter(256, CounterType.packets_and_bytes) contributions;
    counter(256, CounterType.packets_and_bytes) duplicates;
    counter(256, CounterType.packets_and_bytes) results;     // rounds completed, by their last contribution
    counter(256, CounterType.packets_and_bytes) pendings;    // duplicates of a round still incomplete
    counter(256, CounterType.packets_and_bytes) parent_answers;   // RESULT and PENDING that are passed down
    // By reason (Drop):
    counter(DROP_REASONS, CounterType.packets_and_bytes) drops;

    apply {
        if (hdr.packet_out.isValid()) {
            from_cpu.apply(hdr, standard);
        } else {
            address.apply(hdr, meta);
            if (!hdr.ethernet.isValid()) {
                mark_to_drop(standard);   // shorter than an Ethernet header
            } else if (meta.drop != Drop.NONE) {
                // from an impostor: neither learned nor forwarded, counted below
            } else if (!meta.to_switch) {
                forwarding.apply(hdr, meta, standard);
            } else if (hdr.ipv4.isValid() && hdr.ipv4.protocol == PROTOCOL_UDP
                       && (!hdr.udp.isValid() || hdr.udp.dst_port == AGGREGATION_PORT)) {
                validation.apply(hdr, meta, standard);
                if (meta.drop == Drop.NONE && hdr.hello.isValid()) {
                    punt.apply(meta, standard);
                } else if (meta.drop == Drop.NONE) {
                    admission.apply(hdr, meta, standard);
                    if (meta.drop == Drop.NONE && !meta.from_parent) {
                        slot_state.apply(hdr, meta);
                    }
                    if (meta.drop == Drop.NONE && !meta.from_parent) {
                        check_word.apply(meta, hdr.guard.check);
#define APPLY_COLUMN(c, next) \
                        column_##c.apply(meta, hdr.keys.key_##c, hdr.block[c], \
                                         hdr.base.present[c:c], meta.held[c:c]);
                        FOR_EACH_COLUMN(APPLY_COLUMN)
                    }
                    if (meta.drop == Drop.NONE) {
                        reply.apply(hdr, meta, standard);

                        bit<32> job = (bit<32>)hdr.base.job;
                        if (meta.from_parent) {
                            parent_answers.count(job);
                        } else if (meta.verdict != Verdict.DUPLICATE) {
                            contributions.count(job);
                            if (meta.complete) {
                                results.count(job);
                            }
                        } else {
                            duplicates.count(job);
                            if (!meta.complete) {
                                pendings.count(job);
                            }
                        }
                    }
                }
            } else {
                responder.apply(hdr, meta, standard);
            }
            if (meta.drop != Drop.NONE) {
                drops.count((bit<32>)(bit<8>)meta.drop);
                mark_to_drop(standard);
            }
        }
    }
}

control MainEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    AddressReply() address_reply;
    PruneFlood() prune_flood;
    PacketIn() to_cpu;

    apply {
        address_reply.apply(hdr, meta, standard);
        prune_flood.apply(meta, standard);
        to_cpu.apply(hdr, standard);
    }
}

V1Switch(MainParser(), CheckChecksum(), MainIngress(), MainEgress(), UpdateChecksum(), MainDeparser()) main;
