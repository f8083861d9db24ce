"""Make the folders that the image of `setup` mounts volumes on, so that these belong to its user: an empty volume takes
the owner of the folder in the image."""

from __future__ import annotations

import os

from scripts.deployment.sites import MOST_PARTIES, MOUNTED, SETUP, STATES, hospitals, services_of

USER = 10001

for folder in (MOUNTED / SETUP, *(at / name for at in (MOUNTED, STATES) for name in services_of(hospitals(MOST_PARTIES)))):
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, USER, USER)
