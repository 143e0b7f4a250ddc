"""Training runs on real data that compare switch aggregation with plain averaging."""
