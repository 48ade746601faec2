"""The same requests to Apache Kafka and to Millstream, and their answers side by side.

`requests.py` makes the requests from the schema, `cluster.py` the state they meet, `answers.py`
compares field by field. What Apache Kafka answered is in `recorded.json`: `test_recorded.py` holds
Millstream to it everywhere, `test_apache_kafka.py` (interop) asks a running Apache Kafka whether it
still says so. Differences that are meant are in `differences.toml`, each with its reason.
"""
