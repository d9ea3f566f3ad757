"""What the file has to know of the machine: its clock, its boot, and the kind of file system that a folder is on.

Times in the file are those of the kernel's boot clock, which all its processes share and nobody can set. A container may have
been given an offset of its own, and a boot id of its own: the offset is taken off, and the id alone proves nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

_NETWORK = """
    9p acfs afs beegfs ceph cifs coda gfs gfs2 glusterfs gpfs kafs lustre ncpfs nfs nfs4 ocfs2 orangefs panfs prl_fs pvfs2
    smb2 smb3 smbfs vboxsf virtiofs vmhgfs
    fuse.sshfs fuse.glusterfs fuse.ceph fuse.ceph-fuse fuse.cephfs fuse.s3fs fuse.rclone fuse.gcsfuse fuse.goofys fuse.juicefs
    fuse.mfs fuse.moosefs fuse.lizardfs fuse.seaweedfs fuse.weed fuse.davfs fuse.davfs2 fuse.curlftpfs fuse.smbnetfs fuse.nfs
    fuse.vmhgfs-fuse fuse.blobfuse fuse.blobfuse2 fuse.mount-s3 fuse.alluxio fuse.hdfs fuse.quobyte
"""
_LOCAL = """
    aufs bcachefs btrfs ecryptfs exfat ext2 ext3 ext4 f2fs fuse.fuse-overlayfs fuseblk hfs hfsplus jfs minix msdos nilfs2 ntfs
    ntfs3 overlay ramfs reiserfs rootfs shiftfs tmpfs ubifs udf ufs vfat xfs zfs
"""
NETWORK_FILE_SYSTEMS = frozenset(_NETWORK.split())
LOCAL_FILE_SYSTEMS = frozenset(_LOCAL.split())


def boot_id() -> str:
    """Tells this boot of the machine from all others; empty where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def shared_clock(now: Callable[[], float]) -> Callable[[], float]:
    """A clock that all processes of the machine read the same; `now` is the driver's."""
    if sys.platform != "linux":
        return time.time  # elsewhere it is not known which clock would be
    ahead = clock_offset()
    return (lambda: now() - ahead) if ahead else now


def clock_offset(told: str = "/proc/self/timens_offsets") -> float:
    """By how much the boot clock of this container is ahead of the kernel's."""
    try:
        with open(told, encoding="utf-8") as lines:
            for line in lines:
                which, seconds, nanoseconds = line.split()
                if which == "boottime":
                    return int(seconds) + int(nanoseconds) / 1e9
    except (OSError, ValueError):
        pass  # a kernel that knows no such offsets has none
    return 0.0


def file_system_of(folder: str, mounts: str = "/proc/self/mountinfo") -> str:
    """The type of file system that a folder is on; empty where the system does not say."""
    best, kind = "", ""
    try:
        device = os.stat(folder).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        real = os.path.realpath(folder) + "/"
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                fields, _, rest = line.partition(" - ")
                _, _, numbers, _, point, *_ = fields.split()
                if numbers == wanted:
                    return rest.split()[0]
                # Some (btrfs) show other numbers than a file's; the innermost mount point tells as well.
                point = point.replace("\\040", " ").rstrip("/") + "/"
                if real.startswith(point) and len(point) >= len(best):
                    best, kind = point, rest.split()[0]
    except (OSError, ValueError, IndexError, AttributeError):  # the last: a system that numbers no devices
        return ""
    return kind
