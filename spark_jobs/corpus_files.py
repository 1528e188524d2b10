"""Own the listing of a corpus' files, with what tells a changed file from an unchanged one.

Whatever has a name of a file of the corpus and is none, and each folder that cannot be listed, is a fault, and hides
nothing else. Files and folders whose names begin with a dot or an underscore are left alone, and so is what is of an
index, this corpus' or another's.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

import pyarrow.fs as pafs

from service.core.errors import SourceError, first_line
from spark_jobs.corpus_index import OF_INDEX
from spark_jobs.corpus_tables import FaultKind, ReadingFault
from spark_jobs.hadoop_files import HadoopSettings, hadoop_settings
from spark_jobs.sources import find_file_system


class FoundFile(NamedTuple):
    """Hold a file: its path below the corpus' folder, bytes, and nanoseconds of its change where they are known."""

    path: str
    size: int
    modified: int | None


def corpus_root(location: str, hadoop: HadoopSettings) -> tuple[pafs.FileSystem, str]:
    """Give the file system and the folder that a corpus' paths are below; a file is a corpus in the folder it is in.

    Raises SourceError when there is no such file or folder.
    """
    filesystem, root = find_file_system(location, hadoop)
    if filesystem.get_file_info(root).type == pafs.FileType.File:
        root = root.rpartition("/")[0]
    return filesystem, root.rstrip("/")


def list_files(location: str, endings: tuple[str, ...]) -> tuple[list[FoundFile], list[ReadingFault]]:
    """List the files at or below a location whose names have one of the endings, by their paths.

    Raises SourceError when the location itself cannot be listed.
    """
    filesystem, root = corpus_root(location, hadoop_settings())
    top = filesystem.get_file_info(find_file_system(location)[1])
    if top.type == pafs.FileType.File:
        named = top.base_name.lower().endswith(endings)
        return [FoundFile(top.base_name, top.size, top.mtime_ns)] if named else [], []
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    found, faults = _walk_local(root or "/", endings) if is_local else _walk(filesystem, root, endings)
    return sorted(_without_indexes(filesystem, root, found)), faults


def _without_indexes(filesystem: pafs.FileSystem, root: str, found: list[FoundFile]) -> list[FoundFile]:
    """Leave out what has a name of ours where an owner tells that it is an index: names alone may be a user's."""
    owners = {file.path: f"{root}/{of[1]}owner" for file in found if (of := OF_INDEX.fullmatch(file.path))}
    infos = filesystem.get_file_info(sorted(set(owners.values())))
    there = {info.path for info in infos if info.type is pafs.FileType.File}
    return [file for file in found if owners.get(file.path) not in there]


def _walk_local(root: str, endings: tuple[str, ...]) -> tuple[list[FoundFile], list[ReadingFault]]:
    """List by the system's own calls: Arrow's follow links that lead back, and drop those that lead nowhere."""
    found: list[FoundFile] = []
    faults: list[ReadingFault] = []
    folders: list[tuple[str, str, tuple[tuple[int, int], ...]]] = [(root, "", ())]
    while folders:
        folder, below, above = folders.pop()
        try:
            about = os.stat(folder)
            if (about.st_dev, about.st_ino) in above:
                faults.append(ReadingFault(below[:-1], FaultKind.UNREADABLE, "the folder is, by a link, one it is in"))
                continue
            entries = list_folder(folder)
        except OSError as error:
            faults.append(_unlisted(root, folder, below[:-1], error))
            continue
        for entry in entries:
            path = below + entry.name
            if entry.name[0] in "._":
                continue
            try:
                path.encode()
                if entry.is_dir():
                    folders.append((entry.path, f"{path}/", (*above, (about.st_dev, about.st_ino))))
                elif entry.name.lower().endswith(endings):
                    file = entry.stat()
                    if stat.S_ISREG(file.st_mode):
                        found.append(FoundFile(path, file.st_size, file.st_mtime_ns))
                    else:
                        faults.append(ReadingFault(path, FaultKind.UNREADABLE, "it is no ordinary file"))
            except UnicodeEncodeError:
                shown = os.fsencode(path).decode(errors="replace")
                faults.append(ReadingFault(shown, FaultKind.UNREADABLE, "its name is no UTF-8: give it another"))
            except OSError as error:
                faults.append(ReadingFault(path, FaultKind.UNREADABLE, f"it cannot be read: {error.strerror}"))
    return found, faults


def list_folder(folder: str) -> list[os.DirEntry[str]]:
    """Give what is in a local folder."""
    with os.scandir(folder) as entries:
        return list(entries)


def _walk(
    filesystem: pafs.FileSystem, root: str, endings: tuple[str, ...]
) -> tuple[list[FoundFile], list[ReadingFault]]:
    """List all at once, which object stores do fast; where that fails, folder by folder."""
    try:
        infos = filesystem.get_file_info(pafs.FileSelector(root, recursive=True))
        return _chosen(infos, root, endings), []
    except OSError:
        pass
    found: list[FoundFile] = []
    faults: list[ReadingFault] = []
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            infos = filesystem.get_file_info(pafs.FileSelector(folder))
        except OSError as error:
            faults.append(_unlisted(root, folder, folder[len(root) + 1 :], error))
            continue
        found += _chosen(infos, root, endings)
        folders += [info.path for info in infos if info.type == pafs.FileType.Directory]
    return found, faults


def _chosen(infos: list[pafs.FileInfo], root: str, endings: tuple[str, ...]) -> list[FoundFile]:
    files = [
        FoundFile(info.path[len(root) :].lstrip("/"), info.size, info.mtime_ns)
        for info in infos
        if info.type == pafs.FileType.File and info.path.lower().endswith(endings)
    ]
    return [file for file in files if not any(name[0] in "._" for name in file.path.split("/"))]


def _unlisted(root: str, folder: str, path: str, error: OSError) -> ReadingFault:
    if folder == root:
        raise SourceError(f"{root}: the folder cannot be listed: {first_line(error)}.") from error
    return ReadingFault(
        path, FaultKind.UNREADABLE, f"the folder cannot be listed: {error.strerror or first_line(error)}"
    )
