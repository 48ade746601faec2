"""How our clients behave: one suite for our broker, for Apache Kafka, and for an old one."""
