"""The sections of a report: each module of this package declares one as SECTION."""

from __future__ import annotations

from importlib import import_module, resources

from perfpipe.analysis.report.declare import SectionSpec, TableSpec

#: The modules of the sections, in reading order.
ORDER = (
    "budget",
    "critical",
    "tried",
    "serving",
    "running",
    "hangs",
    "categories",
    "bounds",
    "kernels",
    "details",
    "roofline",
    "stalls",
    "occupancy",
    "memory",
    "source",
    "launches",
    "host",
    "device_memory",
    "snapshot",
    "communication",
    "groups",
    "modules",
    "nvtx",
    "operators",
    "sizes",
    "tuning_history",
    "regression",
)


def _declared() -> tuple[SectionSpec, ...]:
    """Return the sections in order; raises ValueError if something declared would not be shown."""
    files = (file.name for file in resources.files(__name__).iterdir())
    names = {name[:-3] for name in files if name.endswith(".py") and not name.startswith("_")}
    if lost := names ^ {*ORDER}:
        raise ValueError(f"without a module, or not in ORDER: {', '.join(sorted(lost))}")
    sections = []
    for name in ORDER:
        module = import_module(f"{__name__}.{name}")
        section: SectionSpec = module.SECTION
        tables = (value for value in vars(module).values() if isinstance(value, TableSpec))
        if unlisted := [table.title for table in tables if table not in section.parts]:
            raise ValueError(f"section {name} omits the tables: {', '.join(unlisted)}")
        sections.append(section)
    return tuple(sections)


SECTIONS = _declared()
