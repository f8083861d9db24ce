"""The key holder: its service, settings and commands, its sessions, their journal and their keys."""
