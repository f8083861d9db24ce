"""The only input and output in common: settings, storage, TLS, problem documents, logs and metrics."""
