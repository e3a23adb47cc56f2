"""The folder that lasts: a release on disk, written as a whole, checked when it is read (docs/folder.md)."""
