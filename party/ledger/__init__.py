"""The ledger: what was approved, answered and charged, on disk and chained by hashes."""
