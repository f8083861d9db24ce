"""The key holder: its service, settings and commands, and its sessions with their journal and keys."""
