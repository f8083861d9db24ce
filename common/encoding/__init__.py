"""One spelling for one value: fixed-point integers, arrays as bytes, canonical JSON."""
