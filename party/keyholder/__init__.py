"""The key holder's service: decrypts the sum of one set of contributions a round, and no other."""
