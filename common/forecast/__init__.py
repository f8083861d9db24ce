"""What a run will achieve, before it is run, from public facts alone."""
