"""Stories of the metadata quorum."""
