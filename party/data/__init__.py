"""How the party loads its owner's data."""
