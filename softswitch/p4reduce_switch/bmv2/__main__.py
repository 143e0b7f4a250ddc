"""`python -m p4reduce_switch.bmv2`."""

from p4reduce_switch.bmv2.cli import main

if __name__ == "__main__":
    main()
