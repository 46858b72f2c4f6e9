"""What a query went on without, kept as a table: `spark.read.json(folder)`.

    <folder>/<digest>.json      {"topic": ..., "start": ..., "end": ...}, a line for each range

Spark plans a query as often as it likes; what is lost then has the same file.
"""

import hashlib
import json
from collections.abc import Sequence

from pyspark_anabranch.files import folder_at
from pyspark_anabranch.places import Range


def note_lost(folder: str, lost: Sequence[Range]) -> None:
    """Add ranges to the table in a folder, unless they are there."""
    lines = [
        json.dumps({"topic": each.topic, "start": str(each.start), "end": str(each.end)})
        for each in lost
    ]
    content = "".join(f"{line}\n" for line in lines).encode()
    files, root = folder_at(folder)
    files.create_dir(root, recursive=True)
    path = f"{root}/{hashlib.sha256(content).hexdigest()[:16]}.json"
    # A name that begins with a dot is none of the table's, for Spark.
    hidden = f"{root}/.{path.rpartition('/')[2]}"
    with files.open_output_stream(hidden) as out:
        out.write(content)
    files.move(hidden, path)
