// Is this frame for the switch itself, or does it pretend to be from it? The controller writes the switch's own address.
// Each table says only what it found, in a field of its own: so no table waits for another, and all can share a stage.
control Address(inout headers_t hdr, inout metadata_t meta) {
    // Nobody looks at the destination MAC of a frame for the switch any more; replies come from this one.
    action is_switch(mac_address_t mac) {
        meta.to_switch = 1;
        hdr.ethernet.dst_mac = mac;
    }

    table switch_address {
        key = { meta.target_ip: exact @name("target_ip"); }
        actions = { is_switch; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 16;
    }

    action claims_ip() {
        meta.own_ip = 1;
    }

    table own_ip {
        key = { meta.source_ip: exact @name("source_ip"); }
        actions = { claims_ip; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 16;
    }

    action claims_mac() {
        meta.own_mac = 1;
    }

    table own_mac {
        key = { hdr.ethernet.src_mac: exact @name("src_mac"); }
        actions = { claims_mac; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 16;
    }

    apply {
        if (hdr.arp.isValid() || hdr.ipv4.isValid()) {
            switch_address.apply();
            own_ip.apply();
        }
        own_mac.apply();
    }
}
