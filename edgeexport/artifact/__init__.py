"""What a build leaves behind, and how it is read: the folder with its manifest, archives, program
files.
"""
