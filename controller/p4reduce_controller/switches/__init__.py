"""The switches: the connection to each, and the entries that jobs need there."""
