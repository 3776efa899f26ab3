"""Opens emitted files and calls their methods, as a device does: from the file and the manifest
alone.
"""
