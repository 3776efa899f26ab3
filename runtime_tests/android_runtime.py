"""ExecuTorch for Android as an app gets it: the library in the npm package of react-native-executorch. To test against, never to ship."""

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from clips import DATA

PACKAGE = "react-native-executorch@0.9.3"
SHA512 = "eanpDe8sFFxbKfCh0lqrSVyU4/deiF1pZWtZOjZSV+w+qfuNsdrkQkoscxvhMwJOnvXNkBt4BXAr8pAlGOXStA=="
FOLDER = "package/third-party/android/libs/executorch"


def android_runtime():
    """The folder with a library an architecture, fetched once into build/test-data; or a sentence that says why there is none."""
    home = DATA / PACKAGE.replace("@", "-")
    if home.is_dir():
        return home
    if shutil.which("npm") is None:
        return f"npm is not installed, which fetches {PACKAGE}"
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        done = subprocess.run(["npm", "pack", "--silent", "--pack-destination", folder, PACKAGE], capture_output=True, text=True)
        if done.returncode != 0:
            return f"npm could not fetch {PACKAGE}: {done.stderr.strip()[-300:]}"
        (packed,) = Path(folder).glob("*.tgz")
        assert base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode() == SHA512, f"{PACKAGE} is not the one that was released"
        with tarfile.open(packed) as archive:
            archive.extractall(folder, [member for member in archive if member.name.startswith(FOLDER)], filter="data")
        (Path(folder) / FOLDER).rename(home)
    return home
