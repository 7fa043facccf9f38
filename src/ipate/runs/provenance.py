"""Where a run comes from: who is responsible for it, its fingerprints, and the consent of its people.

A fingerprint of public data and settings may be published. A hash of private rows may not: whoever knows all rows but
one could try out candidates for it. So the private file has a keyed fingerprint (HMAC), whose random key stays in the
run's private folder, and even that is in the private report only.
"""

import hashlib
import hmac
import json
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

from ipate.files import read_table, write_csv
from ipate.report.facts import ConsentFacts, Identity
from ipate.runs.folder import RunFolder
from ipate.runs.task import FileTask

_BLOCK = 1 << 20
_COLUMNS = ("person", "date", "version")


def keep_provenance(folder: RunFolder, task: FileTask) -> None:
    """Write the records of consent and the keyed fingerprint of the private file, once; both are private."""
    consents = folder.private / "consent.csv"
    if task.consents and not consents.is_file():
        write_csv(consents, _COLUMNS, task.consents)
    path, file = folder.private / "fingerprint.json", folder.config.data.file
    if file is not None and not path.is_file():
        key = secrets.token_bytes(32)
        folder.write(path, {"file": file.name, "key": key.hex(), "hmac_sha256": keyed_fingerprint(file, key)})


def keyed_fingerprint(file: Path, key: bytes) -> str:
    """Return the HMAC-SHA256 of a file's bytes, as `openssl dgst -sha256 -mac HMAC -macopt hexkey:KEY FILE` does."""
    found = hmac.new(key, digestmod=hashlib.sha256)
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def identity_of(folder: RunFolder, data: dict[str, Any]) -> Identity:
    """Return who is responsible for a run, when it began, its policy, and the fingerprints that may be published."""
    config = folder.config
    about, budgets = config.report, config.budgets
    return Identity(
        run=folder.id,
        begun=str(folder.facts["begun"])[:10],
        controller=about.controller,
        contact=about.contact,
        purpose=about.purpose,
        region=about.region,
        sector=about.sector,
        policy_version=budgets.policy_version,
        policy_date=None if budgets.policy_date is None else budgets.policy_date.isoformat(),
        fingerprints=_public_fingerprints(folder, data),
    )


def _public_fingerprints(folder: RunFolder, data: dict[str, Any]) -> dict[str, str]:
    """Return hashes of the public pool, the schema and the settings; the seed of the noise is left out."""
    asked = folder.config.model_dump(mode="json", exclude={"seed", "report"})
    found = {"pool and classes": str(data["pool"])}
    for name, path in (("schema", folder.path / "schema.json"), ("settings", folder.path / "settings.json")):
        if path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    found["configuration"] = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    return found


def private_fingerprint(folder: RunFolder) -> str | None:
    """Return the keyed fingerprint of the private file when the run began; None for a data set of this package."""
    found = folder.read(folder.private / "fingerprint.json")
    return None if found is None else str(found["hmac_sha256"])


def consents_of(folder: RunFolder) -> dict[str, tuple[str | None, str | None]]:
    """Return every person's day of consent and version of the policy, by id; empty if the run knows none."""
    path = folder.private / "consent.csv"
    if not path.is_file():
        return {}
    table = read_table(path, required=list(_COLUMNS))
    rows = zip(*(table.columns[name] for name in _COLUMNS), strict=True)
    return {person: (day or None, version or None) for person, day, version in rows}


def consent_facts(folder: RunFolder) -> ConsentFacts | None:
    """Return when people agreed and to which versions, for the data owner; None if the run knows neither."""
    found = consents_of(folder).values()
    if not found:
        return None
    days = sorted(day for day, _ in found if day is not None)
    versions = Counter(version for _, version in found if version is not None)
    return ConsentFacts(dates=(days[0], days[-1]) if days else None, versions=dict(versions))
