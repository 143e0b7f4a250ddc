"""What packets did, for people and programs: text, BMv2's log lines, and BMv2's message."""
