// What the little programs share: the includes and the controls most of them leave empty.
#include <core.p4>
#include <v1model.p4>

#define EMPTY_VERIFY control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }
#define EMPTY_UPDATE control Update(inout headers_t hdr, inout meta_t meta) { apply {} }
#define EMPTY_EGRESS control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }
#define DEPARSE_ALL control Emit(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
#define SWITCH V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Update(), Emit()) main;
#define PARSER parser Parse(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std)
#define INGRESS control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std)
#define EGRESS control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std)
