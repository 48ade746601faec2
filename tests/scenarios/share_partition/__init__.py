"""Stories of share partitions: records between members, locks, leaders and their log."""
