// Is this frame for the switch itself? The controller writes the switch's own address.
control Address(inout headers_t hdr, inout metadata_t meta) {
    ipv4_address_t target_ip = 0;

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

    apply {
        if (hdr.ipv4.isValid()) {
            target_ip = hdr.ipv4.dst_ip;
        } else if (hdr.arp.isValid()) {
            target_ip = hdr.arp.target_ip;
        }
        if (hdr.ipv4.isValid() || hdr.arp.isValid()) {
            switch_address.apply();
        }
    }
}
