"""CPU detection: vendor, architecture, instruction sets, caches, cores.

Reads what the operating system publishes (`/proc`, `/sys`, `sysctl`), which takes a
millisecond and loads nothing. For tests, `TENSORLANG_CPUINFO` names a file to use
instead of `/proc/cpuinfo`: emulators change the processor, but not that.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from tensorlang import lazy
from tensorlang.frozen import frozen

with lazy.modules(__name__):  # few processors have tiles
    from tensorlang import tile_permission

MAX_THREADS: Final = 1024
CPUINFO_VARIABLE: Final = "TENSORLANG_CPUINFO"
_CPUINFO: Final = "/proc/cpuinfo"
_CPU: Final = Path("/sys/devices/system/cpu")
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")

# (vendor, family) -> (first model, architecture), highest model first
_ARCHITECTURES: Final[dict[tuple[str, int], tuple[tuple[int, str], ...]]] = {
    ("amd", 0x17): ((0x30, "zen2"), (0x00, "zen")),
    ("amd", 0x19): (
        (0xA0, "zen4"),
        (0x80, "zen4"),
        (0x60, "zen4"),
        (0x20, "zen3"),
        (0x10, "zen4"),
        (0x00, "zen3"),
    ),
    ("amd", 0x1A): ((0x00, "zen5"),),
}
_INTEL: Final = {
    60: "haswell", 63: "haswell", 69: "haswell", 70: "haswell",
    61: "broadwell", 71: "broadwell", 79: "broadwell", 86: "broadwell",
    78: "skylake", 94: "skylake", 142: "skylake", 158: "skylake",
    85: "skylakex", 106: "icelakex", 108: "icelakex", 125: "icelake", 126: "icelake",
    140: "tigerlake", 141: "tigerlake", 151: "alderlake", 154: "alderlake",
    183: "raptorlake", 186: "raptorlake", 191: "raptorlake", 170: "meteorlake",
    143: "sapphirerapids", 207: "emeraldrapids", 173: "graniterapids",
    197: "arrowlake", 198: "arrowlake", 189: "lunarlake",
}  # fmt: skip
_VENDORS: Final = {"AuthenticAMD": "amd", "GenuineIntel": "intel", "0x41": "arm"}

# a tag of the fingerprint -> the features it implies, widest first
_TAGS: Final[dict[str, tuple[str, ...]]] = {
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "avx2": ("avx2", "fma"),
    "avx": ("avx",),
    "sse2": ("sse2",),
    "neon": ("asimd",),
}
_MARKS: Final = str.maketrans("", "", "_-.")
# prefixes of the features that `Processor.hides` decides about
_VECTORS: Final = ("amx", "avx", "f16c", "fma")
_EXTRAS: Final = {
    "bf16": "avx512_bf16",
    "fp16": "avx512_fp16",
    "amx": "amx_tile",
    "sve": "sve",
}


@frozen
class Processor:
    """A processor model: `name` such as `amd-zen5-m2`, and its instruction sets."""

    name: str
    device: str
    features: tuple[str, ...]

    def hides(self, feature: str) -> bool:
        """Whether a vector feature, by LLVM's name, is missing from Linux's list."""
        name = _plain(feature)
        if sys.platform != "linux" or not name.startswith(_VECTORS):
            return False
        listed = {_plain(known) for known in self.features}
        return bool(listed) and name not in listed

    @property
    def levels(self) -> list[str]:
        """The tags of its vector instruction sets, widest first."""
        return vector_tags(self.features, every=True)


def vector_tags(features: tuple[str, ...], *, every: bool = False) -> list[str]:
    """The widest vector set among `features` (or every one), then its extensions."""
    have = set(features)
    levels = [tag for tag, needed in _TAGS.items() if have.issuperset(needed)]
    extras = [tag for tag, needed in _EXTRAS.items() if needed in have]
    return (levels if every else levels[:1]) + extras


@cache
def processor() -> Processor:
    """The processor of this machine, without AMX if the system does not grant it."""
    emulated = os.environ.get(CPUINFO_VARIABLE)
    cpuinfo = Path(emulated or _CPUINFO)
    if cpuinfo.exists():
        found = _from_cpuinfo(cpuinfo.read_text())
        return found if emulated else usable(found)
    brand = _sysctl("machdep.cpu.brand_string") or platform.processor() or "unknown"
    arm = platform.machine() in ("arm64", "aarch64")
    features = ("asimd",) if arm else tuple(_sysctl("machdep.cpu.features").split())
    name = "-".join(brand.lower().replace("(r)", "").split()[:3])
    lowered = tuple(sorted(feature.lower() for feature in features))
    return Processor(_identifier(name), brand, lowered)


def usable(found: Processor) -> Processor:
    """The processor without AMX if the system refuses the tile registers."""
    if _EXTRAS["amx"] not in found.features or tile_permission.granted():
        return found
    left = tuple(name for name in found.features if not name.startswith("amx"))
    return replace(found, features=left)


def _from_cpuinfo(text: str) -> Processor:
    """The first processor in Linux's list; all are assumed to be alike."""
    fields: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    vendor_id = fields.get("vendor_id") or fields.get("CPU implementer") or "unknown"
    vendor = _VENDORS.get(vendor_id, vendor_id.lower())
    features = fields.get("flags") or fields.get("Features") or ""
    family = int(fields.get("cpu family", "0"))
    model = int(fields.get("model") or fields.get("CPU part") or "0", 0)
    device = fields.get("model name", f"{vendor} {model:#x}")
    name = f"{vendor}-{architecture(vendor, family, model)}-m{model}"
    return Processor(_identifier(name), device, tuple(sorted(features.split())))


def architecture(vendor: str, family: int, model: int) -> str:
    """The microarchitecture, such as `zen5`; `f6` for a family in no table."""
    for first, name in _ARCHITECTURES.get((vendor, family), ()):
        if model >= first:
            return name
    if vendor == "intel" and family == 6:
        return _INTEL.get(model, "f6")
    return f"f{family}"


def _plain(feature: str) -> str:
    """Normalize spellings such as `avx512_bf16` and LLVM's `avx512bf16`."""
    return feature.translate(_MARKS)


def _identifier(text: str) -> str:
    """Letters, digits and hyphens only: fingerprints become folder names."""
    kept = (c if c.isalnum() and c.isascii() else "-" for c in text)
    return "-".join("".join(kept).split("-")).strip("-") or "unknown"


def _sysctl(name: str) -> str:
    if platform.system() != "Darwin":
        return ""
    done = subprocess.run(  # noqa: S603 - a fixed command
        ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


@cache
def caches() -> dict[int, int]:
    """Bytes of each level's data cache, as seen by one core: {1: 49152, ...}."""
    found: dict[int, int] = {}
    for folder in sorted((_CPU / "cpu0" / "cache").glob("index*")):
        try:
            kind = (folder / "type").read_text().strip()
            level = int((folder / "level").read_text())
            size = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction":
            found[level] = bytes_of(size)
    for level, name in ((1, "hw.l1dcachesize"), (2, "hw.l2cachesize")):
        size = _sysctl(name)
        if size:
            found.setdefault(level, int(size))
    return found


def bytes_of(text: str) -> int:
    """`48K`, `32M` or a plain number of bytes."""
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
    return int(text.rstrip("KMG")) << unit


@cache
def cores() -> int:
    """Physical cores available to this process, limited by its CPU quota."""
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
        count = len({siblings(cpu) for cpu in allowed})
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, _quota(count), MAX_THREADS))


def siblings(cpu: int) -> str:
    """An identifier of a hardware thread's physical core."""
    try:
        return (_CPU / f"cpu{cpu}" / "topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _quota(default: int) -> int:
    """The control group's CPU quota, in whole processors."""
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return default
