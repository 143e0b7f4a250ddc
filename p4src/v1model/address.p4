// Is this frame for the switch itself, or does it pretend to be from it? The controller writes the switch's own address.
control Address(inout headers_t hdr, inout metadata_t meta) {
    ipv4_address_t target_ip = 0;
    ipv4_address_t source_ip = 0;

    action is_switch(mac_address_t mac) {
        meta.to_switch = true;
        meta.switch_mac = mac;
    }

    table switch_address {
        key = { target_ip: exact @name("target_ip"); }
        actions = { is_switch; NoAction; }
        const default_action = NoAction();
        size = 16;
    }

    action claims_ip() {
        meta.drop = Drop.SPOOFED;
    }

    table own_ip {
        key = { source_ip: exact @name("source_ip"); }
        actions = { claims_ip; NoAction; }
        const default_action = NoAction();
        size = 16;
    }

    action claims_mac() {
        meta.drop = Drop.SPOOFED;
    }

    table own_mac {
        key = { hdr.ethernet.src_mac: exact @name("src_mac"); }
        actions = { claims_mac; NoAction; }
        const default_action = NoAction();
        size = 16;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            target_ip = hdr.ipv4.dst_ip;
            source_ip = hdr.ipv4.src_ip;
        } else if (hdr.arp.isValid()) {
            target_ip = hdr.arp.target_ip;
            source_ip = hdr.arp.sender_ip;
        }
        if (hdr.ipv4.isValid() || hdr.arp.isValid()) {
            switch_address.apply();
            // A worker may live on the switch's own machine and share its IP address, but not its UDP port: such a
            // frame goes no further than to the switch, and admission decides. Nobody else may be called so.
            if (!(meta.to_switch && hdr.udp.isValid() && hdr.udp.src_port != AGGREGATION_PORT)) {
                own_ip.apply();
            }
        }
        if (hdr.ethernet.isValid()) {
            own_mac.apply();
        }
    }
}
