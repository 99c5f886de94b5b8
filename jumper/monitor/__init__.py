"""Taking samples: the protocol of monitors, collectors, engines, and the spool that they write to."""
