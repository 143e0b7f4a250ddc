"""p4reduce on emulated hosts: real frames between them, through BMv2 or the embedded switch."""
