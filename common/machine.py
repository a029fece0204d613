"""What this process may use of its machine, also in a container or a batch job."""

import os
from contextlib import suppress
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")  # limits of containers and batch jobs; version 1: memory/, cpu/
GROUPS = Path("/proc/self/cgroup")  # where in there this process is


def own_groups():
    """The control groups of this process and those around them, which have limits, too."""
    groups = {Path()}
    with suppress(OSError):  # lines such as 0::/slurm/job_7
        for line in GROUPS.read_text().splitlines():
            group = Path(line.split(":", 2)[2].strip("/"))
            groups |= {group, *group.parents}
    return groups


def free_memory():
    """Free bytes on this machine, or of the container or batch job, as if this process were alone
    in there."""
    free = [psutil.virtual_memory().available]
    for group in own_groups():
        for path in (group / "memory.max", Path("memory") / group / "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # no such file, or no limit: "max"
                free.append(int((CGROUP / path).read_text()) - psutil.Process().memory_info().rss)
    return max(0, min(free))


def usable_cores():
    """Cores that this process may use; in a container or batch job that can be fewer than there
    are."""
    cores = [os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):
        cores.append(len(os.sched_getaffinity(0)))
    for group in own_groups():
        with suppress(OSError, ValueError):  # microseconds of work in a period, or "max"
            quota, period = (CGROUP / group / "cpu.max").read_text().split()
            cores.append(int(quota) // int(period))
        with suppress(OSError, ValueError, ZeroDivisionError):  # version 1; -1: no limit
            files = (CGROUP / "cpu" / group / f"cpu.cfs_{x}_us" for x in ("quota", "period"))
            quota, period = (int(file.read_text()) for file in files)
            cores += [quota // period] if quota > 0 else []
    return max(1, min(cores))
