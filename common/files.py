"""Files that are written completely or not at all."""

import csv
import io
import os
from contextlib import suppress
from pathlib import Path

from common.errors import RunError


def file_name(env_id):
    """An environment's id as the names of run folders have it."""
    return env_id.replace(":", "_").replace("/", "_")


def write_file(path, *chunks):
    """Writes bytes to `path` atomically: temporary name, flush to disk, move into place."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):  # a read-only disk
            temporary.unlink(missing_ok=True)
        kept = "; the old file is kept" if path.exists() else ""
        raise RunError(f"cannot write {path}: {error.strerror}{kept}") from error


def write_csv(path, rows, names=None):
    """Writes dicts with the same keys as a table, completely or not at all.

    names: of the columns; needed where there may be no rows yet.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, names or rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(path, text.getvalue().encode())
