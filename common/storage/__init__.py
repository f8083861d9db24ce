"""What services write to disk: SQLite files, and chains of records in them."""
