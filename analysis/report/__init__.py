"""The content of a report: sections that declare their tables, findings, and facts."""
