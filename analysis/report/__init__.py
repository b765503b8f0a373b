"""What a report says: sections that declare their tables, findings, and facts."""
