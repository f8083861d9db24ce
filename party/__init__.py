"""A data owner's service: it answers queries about its private shard within a privacy budget."""
