"""The record of what a site has sent: every labelling of its votes or ballots spends its people's budgets again."""

import json
from pathlib import Path

from ipate.errors import InputError
from ipate.files import FileLock, write_text


class Record:
    """The hashes of the queries and cells for which a site has sent votes or ballots, in its private folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._file = folder, folder / "private" / "given.json"

    def locked(self) -> FileLock:
        """Let one process send at a time, so that no two send different things without knowing of each other."""
        refusal = InputError(f"{self.folder}: another process is voting here; wait for it to end")
        return FileLock(self.folder / "private" / ".lock", refusal=refusal)

    def check(self, asked: str, *, again: bool) -> None:
        """Refuse to send for other queries, cells or rows than before, unless budgets hold for each labelling."""
        others = [sent for sent in self._sent() if sent != asked]
        if others and not again:
            raise InputError(
                f"{self.folder}: has already sent votes or ballots for other queries, cells or rows "
                f"({others[0][:16]}…), and every labelling spends people's budgets again; let there be one labelling "
                "of all points, or use --again if budgets hold for each"
            )

    def add(self, asked: str) -> None:
        """Record queries or cells, before the file that answers them is released."""
        write_text(self._file, json.dumps(sorted({*self._sent(), asked}), indent=2) + "\n")

    def _sent(self) -> list[str]:
        """Return the recorded hashes; an unreadable record is an error."""
        if not self._file.is_file():
            return []
        try:
            return [str(asked) for asked in json.loads(self._file.read_text())]
        except ValueError:
            raise InputError(
                f"{self._file}: not readable, so it is unknown what this site has voted on; restore it from a backup"
            ) from None
