"""Stories of classic groups and their offsets."""
