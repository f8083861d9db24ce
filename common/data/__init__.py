"""An owner's examples: the study that describes them, their columns, and the shard that is safe to compute on."""
