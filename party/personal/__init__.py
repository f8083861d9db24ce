"""An owner who learns: its own model, with the others' noisy answers."""
