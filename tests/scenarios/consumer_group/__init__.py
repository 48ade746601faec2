"""Stories of consumer groups, and of groups on their way between the protocols."""
