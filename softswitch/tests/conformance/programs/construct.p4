// What the programs of this folder have around their one construct.
#include <core.p4>
#include <v1model.p4>

#define PARSE parser Parse(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t std)
#define PARSE_H PARSE { state start { packet.extract(hdr.h); transition accept; } }
#define INGRESS control MainIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t std)
#define EGRESS control MainEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t std)
#define NO_EGRESS EGRESS { apply {} }
#define VERIFY control Verify(inout headers hdr, inout metadata meta)
#define NO_VERIFY VERIFY { apply {} }
#define UPDATE control Update(inout headers hdr, inout metadata meta)
#define NO_UPDATE UPDATE { apply {} }
#define EMIT control Emit(packet_out packet, in headers hdr) { apply { packet.emit(hdr); } }
#define MAIN V1Switch(Parse(), Verify(), MainIngress(), MainEgress(), Update(), Emit()) main;
// Headers h alone, and everything but ingress left empty.
#define ONLY_H struct headers { h_t h; } struct metadata {}
#define REST NO_EGRESS NO_VERIFY NO_UPDATE EMIT MAIN
