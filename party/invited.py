"""What an invitation adds to a party's settings: a study, and a learner that the settings do not know yet.

The settings, which a running service takes up by itself, are written last, once the learner has taken the invitation.
Until then only the tokens and keys for the learner lie in the folder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from parley.common.client.endpoints import LearnerAddress
from parley.common.data.study import Study
from parley.common.errors import ConflictError, InvalidInputError
from parley.common.files.sources import DataSource
from parley.common.files.studies import read_study
from parley.common.runs.certificate import SignedStudy
from parley.common.service.http.proxy import ProxyAccess
from parley.common.strict import faults
from parley.common.wire.membership import Invitation, KnownKey
from parley.party.commands import read_text
from parley.party.joining import learner_toml, service_toml
from parley.party.membership import Folder
from parley.party.policy import first_algorithms, named_studies, refused_for_sums
from parley.party.settings import Data, PartySettings, StudyPolicy, StudySettings
from parley.party.settings_text import appended, in_long_form, spell_pins, spell_study, with_learners, with_pins_for

BUDGET = {"epsilon": 5.0, "delta": 2e-5, "max_epsilon_per_run": 1.0, "max_delta_per_run": 1e-5}
"""The budget of an owner that has no settings yet and says no other, by the names of the settings.

Of many rows both deltas are less: see `usual_budget`.
"""


def usual_budget(n_examples: int) -> dict[str, float]:
    """Return `BUDGET` with each delta below 1/n, n counting the rows of the largest table.

    >>> usual_budget(30_000)["delta"], usual_budget(300_000)["delta"], usual_budget(300_000)["max_delta_per_run"]
    (2e-05, 3e-06, 3e-06)
    """
    share = 1 / max(n_examples, 1)
    place = 10.0 ** math.floor(math.log10(share))
    below = float(f"{max(1, math.floor(share / place)) * place:.0e}")
    return {name: min(value, below) if "delta" in name else value for name, value in BUDGET.items()}


@dataclass(frozen=True, slots=True)
class Addition:
    """A study that an invitation adds, and its ``entry`` in the settings.

    Of a study that the settings have, but not for this learner, there is no entry.
    """

    signed: SignedStudy
    entry: StudySettings | None


@dataclass(frozen=True, slots=True)
class InvitedParty:
    """The party that an invitation is for, as it is before it joins; ``settings`` are None if it has none yet.

    ``learner`` is what the settings call the learner, or will call it. ``agreed`` are the studies that they have.
    """

    invitation: Invitation
    folder: Folder
    config: Path
    settings: PartySettings | None
    learner: str
    agreed: dict[str, StudySettings]

    @classmethod
    def find(cls, invitation: Invitation, out: Path | None, config: Path | None) -> Self:
        """Look for settings in ``config``, or in the folder ``out``, or in the one named as the invited party.

        Raises InvalidInputError, and ConflictError where they are another party's.
        """
        if out is not None and config is not None:
            raise InvalidInputError("--out and --config: name the folder or the settings in it, not both")
        path = config.resolve() if config else (out or Path(invitation.name)).resolve() / "party.toml"
        if config is None and not path.exists():
            return cls(invitation, Folder(path.parent), path, None, invitation.learner.name, {})
        settings = PartySettings.load(path)
        if settings.name != invitation.name:
            raise ConflictError(
                f"{path} is {settings.name}'s, and the invitation is for {invitation.name}: say --out for another "
                f"folder, or have the learner's operator invite {settings.name}"
            )
        name_before = next(
            (each.name for each in settings.learners if each.public_key == invitation.learner.public_key), None
        )
        learner = name_before or _free_name(invitation.learner.name, settings)
        own_files = learner if name_before is None else _own_files_of(path, settings, name_before)
        folder = Folder(path.parent, own_files, settings.state)
        return cls(invitation, folder, path, settings, learner, named_studies(settings))

    @property
    def knows_learner(self) -> bool:
        """Whether the settings have this learner, by its key."""
        return self.settings is not None and self.learner in {each.name for each in self.settings.learners}

    @property
    def brings(self) -> list[SignedStudy]:
        """The studies of the invitation that the settings do not have yet, or not for this learner."""
        return [signed for signed in self.invitation.studies if not self._may_ask(signed.study.name)]

    def _may_ask(self, study: str) -> bool:
        """Say whether the settings have a study that this learner may ask about."""
        return study in self.agreed and self.knows_learner and self.agreed[study].is_open_to(self.learner)

    def choose(self, name: str) -> SignedStudy | None:
        """Return a study of the invitation that is to be added, by its name; None if the settings have it.

        Raises InvalidInputError, and ConflictError where the settings have another study of this name.
        """
        offered = {signed.study.name: signed for signed in self.invitation.studies}
        if name not in offered:
            raise InvalidInputError(f"--study: the invitation has no study {name}; it has {', '.join(offered)}")
        choice = offered[name]
        choice.verify()
        if choice.public_key != self.invitation.learner.public_key:
            raise InvalidInputError(f"study {choice.study.name!r} is signed by another than the learner that invites")
        held = self.agreed.get(choice.study.name)
        if held is not None and not read_study(held.study).has_digest(choice.study.digest):
            raise ConflictError(
                f"{self.config} has another study called {choice.study.name}: withdraw it (parley-party withdraw), and "
                f"say the same again; or replace {held.study}, and say parley-party accept-data"
            )
        return choice if choice in self.brings else None

    def proxy(self, said: ProxyAccess | None) -> ProxyAccess | None:
        """Return the proxy on the way to the learner: the one that is said, otherwise that of the settings."""
        addresses = self.settings.outbound if self.settings else ()
        own = [address for address in addresses if address.name == self.learner] or addresses
        if said is not None or not own or own[0].proxy is None:
            return said
        return proxy_access(own[0])

    # ── the text of the settings ─────────────────────────────────────────────

    def study_file(self, study: Study) -> Path:
        """Return the path of a study's file; digits of its digest tell apart names that are spelt alike there."""
        plain = re.sub(r"[^A-Za-z0-9._-]|^\.", "-", study.name)[:100]
        distinct = "" if plain == study.name else f"-{study.digest[:8]}"
        return self.folder.root / "studies" / f"{plain}{distinct}.json"

    def entry(
        self,
        study: Study,
        data: DataSource,
        *,
        clip: bool,
        people: str | None,
        person: str | None = None,
        **rules: Any,  # noqa: ANN401 -- of `StudyPolicy`
    ) -> StudySettings:
        """Return the settings of a study that is added, for this learner alone. Raises InvalidInputError."""
        try:
            return StudySettings(
                name=study.name,
                study=self.study_file(study),
                data=Data(**dict(data), out_of_bounds="clip" if clip else "refuse", person=person),
                people=people,
                policy=StudyPolicy(learners=(self.learner,), algorithms=first_algorithms(study), **rules),
            )
        except ValidationError as error:
            raise InvalidInputError(f"the study's settings: {faults(error)}") from None

    def first_text(
        self,
        additions: Sequence[Addition],
        budget: Mapping[str, float],
        compared: Collection[str],
        proxy: ProxyAccess | None,
        ports: tuple[int, int, int],
    ) -> str:
        """Return settings for a party that has none. ``budget`` has the names of `BUDGET`.

        ``compared`` are the key holders whose keys the owner has compared. ``ports`` are those of the service, of its
        metrics and of the owner's page.
        """
        limits = "".join(f"{name} = {value!r}\n" for name, value in budget.items())
        studies = [added.signed.study for added in additions]
        refused = ", ".join(dict.fromkeys(chain.from_iterable(map(refused_for_sums, studies))))
        pins = self._new_pins(compared)
        hidden = 'adjacency = "person"  # runs that hide one row each are refused\n'
        specific = f"""\

[policy]  # all that runs may do; change what you like: a service that runs takes it up by itself
{limits}{hidden if studies and all(study.person for study in studies) else ""}minimum_contributors = 2
approval = "manual"  # runs wait for your word: parley-party pending
require_secure_sum = {f"true  # so {refused} is refused: it shows the learner each answer" if pins else "false"}

[owner]  # your page, where runs wait for your word: parley-party owner prints its address
port = {ports[2]}
"""
        text = service_toml(self.invitation, self.folder, specific, proxy, ports[:2])
        entries = [spell_study(added.entry) for added in additions if added.entry]
        return "\n".join([f"{text}{pins}", *entries])

    def changed_text(self, additions: Sequence[Addition], compared: Collection[str], proxy: ProxyAccess | None) -> str:
        """Return the text of the settings with this learner, and with the studies that are added.

        A new learner may ask about no other study that they have. Raises InvalidInputError.
        """
        text = read_text(self.config)
        if self.knows_learner:
            text = self.folder.with_token(self.config, text)
        else:
            keys = {key.public_key for key in (*self.invitation.key_holders, *self.invitation.parties)}
            text = with_pins_for(self._limited(text), self._earlier_learners, self.learner, keys)
            text = appended(text, learner_toml(self.invitation, self.folder, self.learner, proxy))
            if pins := self._new_pins(compared):
                text = appended(text, pins)
        for added in additions:
            if added.entry is not None:
                text = appended(text, spell_study(added.entry))
            else:
                name = added.signed.study.name
                learners = self.agreed[name].policy.learners or self._earlier_learners
                text = with_learners(text, name, (*learners, self.learner))
        return text

    @property
    def _earlier_learners(self) -> tuple[str, ...]:
        """The learners that the settings have without this one."""
        learners = self.settings.learners if self.settings else ()
        return tuple(learner.name for learner in learners if learner.name != self.learner)

    def _limited(self, text: str) -> str:
        """Return settings in which the learners that they have, and no later ones, may ask about their studies."""
        for name, entry in self.agreed.items():
            if entry.policy.learners is None:
                text = in_long_form(text, name)
                text = with_learners(text, name, self._earlier_learners)
        return text

    def _new_pins(self, compared: Collection[str]) -> str:
        """Return the keys that the invitation names and the settings do not, as pins."""
        sums = self.settings.secure_sum if self.settings else None
        pinned = (*sums.key_holders, *sums.parties) if sums else ()
        taken = {*(pin.name for pin in pinned), *(pin.public_key for pin in pinned)}

        def new(keys: Iterable[KnownKey]) -> list[KnownKey]:
            return [key for key in keys if not {key.name, key.public_key} & taken]

        learners = (self.learner,) if self._earlier_learners else None
        holders = spell_pins("key_holders", new(self.invitation.key_holders), compared, learners)
        parties = spell_pins("parties", new(self.invitation.parties), (), learners)
        return holders + (parties if holders or sums else "")

    def other_keys(self) -> list[str]:
        """Return the names for which the settings and the invitation have different keys.

        Raises ConflictError if the owner has compared the key of such a key holder, and InvalidInputError for a key
        that is this party's own.
        """
        if self.settings is None:
            return []
        sums, others = self.settings.secure_sum, []
        pinned = {pin.name: pin.public_key for pin in (*sums.key_holders, *sums.parties)} if sums else {}
        for key in (*self.invitation.key_holders, *self.invitation.parties):
            if key.public_key == self.settings.identity.key:
                raise InvalidInputError(f"the invitation: the key of {key.name} is this party's own: do not go on")
            if pinned.get(key.name, key.public_key) == key.public_key:
                continue
            if key.name in self.settings.key_holder_pins:
                raise ConflictError(
                    f"the invitation has another key of {key.name} than you have compared: ask its operator; if that "
                    f"is right, take its pin out of {self.config} and say the same again"
                )
            others.append(key.name)
        return others

    def cautions(self, other_keys: Collection[str]) -> list[str]:
        """Return what the owner has to know about keys and names that are not what they seem."""
        cautions = [
            f"the settings have another key of {name}, which stays: ask {name} which is right" for name in other_keys
        ]
        if self.settings is not None and not self.knows_learner and self.learner != self.invitation.learner.name:
            name = self.invitation.learner.name
            cautions.append(f"your settings have another learner that calls itself {name}: this one is {self.learner}")
        return cautions


def proxy_access(address: LearnerAddress) -> ProxyAccess:
    """Return the proxy of a learner in the settings, with its user and password. Raises InvalidInputError."""
    password = read_text(address.proxy_password_file).strip() if address.proxy_password_file else ""
    return ProxyAccess(str(address.proxy).rstrip("/"), password)


def _free_name(name: str, settings: PartySettings) -> str:
    """Return a name for a learner that no other learner has: two learners may call themselves the same."""
    taken = {learner.name for learner in settings.learners}
    return next(each for each in chain([name], (f"{name}-{number}" for number in count(2))) if each not in taken)


def _own_files_of(config: Path, settings: PartySettings, learner: str) -> str:
    """Return what the names of the files for a learner begin with; nothing for those of the first.

    Raises InvalidInputError where the service does not connect to the learner itself.
    """
    address = next((each for each in settings.outbound if each.name == learner), None)
    if address is None or address.token_file is None:
        raise InvalidInputError(
            f"{config} has no [[outbound]] for {learner}, which it joined in another way: write [[studies]] by hand"
        )
    return address.token_file.name.removesuffix("connect.token").rstrip(".")
