"""Interface files of the P4 language consortium and what `make proto` generates from them."""
