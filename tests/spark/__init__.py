"""Real Spark on a real broker: the source, the sink, sessions, pipelines and their connectors."""
