"""Make the folders that the image of `setup` mounts volumes on, for its user.

An empty volume takes the owner of the folder in the image that it is first mounted on.
"""

from __future__ import annotations

import os

from scripts.deployment.sites import MOST_PARTIES, MOUNTED, SETUP, STATES, hospitals, services_of

USER = 10001

names = services_of(hospitals(MOST_PARTIES))
for folder in (MOUNTED / SETUP, *(root / name for root in (MOUNTED, STATES) for name in names)):
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, USER, USER)
