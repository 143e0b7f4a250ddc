"""What a launch starts where no controller is named: a switch on each host, and a controller on rank 0's.

launch.py     the steps, by the process group's store
children.py   a program that ends with this process
addresses.py  the address by which other hosts reach this one
processes.py  which process a rank is, and whether it has ended
"""
